"""``cevit doctor``: what is installed, what computes, and where data and weights were looked
for.
"""

import argparse
import contextlib
import os
import platform
import re
from importlib import metadata
from pathlib import Path

from cevit_lib import __version__
from cevit_lib.paths import project_root

DATA_SETS = ("grape", "papila", "uwhvf")


def run_doctor(options: argparse.Namespace) -> int:
    """Print the report; return 1 where what every command needs is missing or does not fit."""
    faults: list[str] = []
    for title, lines in (
        ("Program", program()),
        ("Packages", packages(faults)),
        ("Devices", [] if options.no_devices else devices(faults)),
        ("Data", data()),
        ("Weights", weights()),
    ):
        if lines:
            print(f"{title}\n" + "\n".join(f"  {line}" for line in lines))
    print("\n".join(f"FAULT: {fault}" for fault in faults) or "No fault found.")
    return 1 if faults else 0


def installed(name: str) -> str | None:
    """Return a package's version without importing it; None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def extras() -> dict[str, list[str]]:
    """Return the packages of the core and of each extra, as this package declares them."""
    groups: dict[str, list[str]] = {}
    for text in metadata.requires("cevit-lib") or ():
        name, extra = re.match(r'([\w.-]+)[^;]*(?:;.*extra == "(\w+)")?', text).groups()
        groups.setdefault(extra or "core", []).append(name)
    return groups


def program() -> list[str]:
    """Return version, interpreter and project root."""
    root = project_root()
    outside = " (no _toc.yml here or above: not inside a clone; set CEVIT_ROOT)"
    return [
        f"cevit_lib {__version__}",
        f"Python {platform.python_version()} on {platform.platform()}",
        f"project root {root}" + ("" if (root / "_toc.yml").is_file() else outside),
    ]


def packages(faults: list[str]) -> list[str]:
    """Return the versions of the core and of each extra, and what brings those that lack."""
    lines = []
    for group, names in extras().items():
        versions = {name: installed(name) for name in names}
        lines.append(f"{group:9}" + ", ".join(f"{k} {v}" for k, v in versions.items() if v))
        if missing := ", ".join(name for name, version in versions.items() if version is None):
            remedy = "pip install " + ("cevit-lib" if group == "core" else f"'cevit-lib[{group}]'")
            lines.append(f"{'':9}not installed: {missing} ({remedy})")
            faults += [f"the core needs {missing}: {remedy}"] if group == "core" else []
    return lines


def devices(faults: list[str]) -> list[str]:
    """Return the devices that torch sees, once it and torchvision were imported, which fails where
    one was not built for the other.
    """
    try:
        import torch

        with contextlib.suppress(ModuleNotFoundError):  # of the extra vit
            import torchvision  # noqa: F401
    except Exception as error:  # a broken build fails in many ways; the report is still printed
        faults.append(
            f"torch and torchvision cannot be imported ({type(error).__name__}: {error}); install "
            "both in one command, from one index"
        )
        return ["torch and torchvision do not fit"]
    cards = [torch.cuda.get_device_properties(k) for k in range(torch.cuda.device_count())]
    return [
        f"CPU with {os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads",
        *(
            f"cuda:{k} {card.name}, {card.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
            for k, card in enumerate(cards)
        ),
        *([] if cards else ["no CUDA device"]),
        *(["mps (Apple GPU)"] if torch.backends.mps.is_available() else []),
    ]


def data() -> list[str]:
    """Return where each data set was looked for."""
    if not (named := os.environ.get("CEVIT_DATA")):
        return [
            f"CEVIT_DATA is not set; set it to the folder that holds {', '.join(DATA_SETS)} "
            "(the page on data says where they can be had)"
        ]
    places = {name: Path(named).expanduser() / name for name in DATA_SETS}
    return [
        f"{name}: {'found in' if place.is_dir() else 'not found, looked in'} {place}"
        for name, place in places.items()
    ]


def weights() -> list[str]:
    """Return the folders where timm looks for pretrained weights, and what is there."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("HF_HOME", f"{cache}/huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()
    torch_home = os.environ.get("TORCH_HOME", f"{cache}/torch")
    checkpoints = Path(torch_home).expanduser() / "hub" / "checkpoints"
    models = (path.name.removeprefix("models--") for path in sorted(hub.glob("models--*")))
    files = sorted(path.name for path in checkpoints.glob("*") if path.is_file())
    return [
        f"Hugging Face hub {hub}: {', '.join(models).replace('--', '/') or 'none found'} "
        "(HF_HOME or HF_HUB_CACHE moves it)",
        f"torch hub {checkpoints}: {', '.join(files) or 'none found'} (TORCH_HOME moves it)",
        "without them a backbone starts from random weights, or pretrained=True downloads them",
    ]
