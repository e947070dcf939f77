"""``cevit doctor``: what is installed, what computes, and where data and weights were looked for."""

import os
import platform
import re
from importlib import metadata, util
from pathlib import Path

from cevit_lib import __version__
from cevit_lib.paths import project_root, results_folder

CORE = ("numpy", "scipy", "torch", "pandas", "jsonschema", "pyyaml")
EXTRAS = {
    "vit": (
        "timm",
        "peft",
        "torchvision",
        "accelerate",
        "pillow",
        "openpyxl",
        "pooch",
        "scikit-learn",
    ),
    "book": ("jupyter-book", "jupytext", "papermill", "ipykernel", "nbclient", "matplotlib"),
    "dev": ("pytest", "ruff", "mpmath"),
    "dicom": ("pydicom",),
    "workflow": ("snakemake",),
}
DATA_SETS = ("grape", "papila")


def add_arguments(parser) -> None:
    """Declare the options of ``cevit doctor``."""
    parser.add_argument(
        "--no-devices", action="store_true", help="do not ask torch which devices it sees (faster)"
    )


def main(options) -> int:
    """Print the report; return 1 where something that every command needs is missing or does not fit together."""
    faults: list[str] = []
    for title, lines in (
        ("Program", program()),
        ("Packages", packages(faults)),
        ("Devices", [] if options.no_devices else devices(faults)),
        ("Data", data()),
        ("Weights", weights()),
        ("Records", records()),
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


def program() -> list[str]:
    """Return version, interpreter and project root."""
    root = project_root()
    found = (
        ""
        if (root / "_toc.yml").is_file()
        else " (no _toc.yml here or above: not inside a clone; set CEVIT_ROOT)"
    )
    return [
        f"cevit_lib {__version__}",
        f"Python {platform.python_version()} on {platform.platform()}",
        f"project root {root}{found}",
    ]


def packages(faults: list[str]) -> list[str]:
    """Return the versions of the core and of each extra, and whether torch and torchvision fit together."""
    lines = []
    for group, names in (("core", CORE), *EXTRAS.items()):
        versions = {name: installed(name) for name in names}
        missing = [name for name, version in versions.items() if version is None]
        lines.append(
            f"{group:9}"
            + ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        )
        if missing:
            remedy = (
                "pip install cevit-lib" if group == "core" else f"pip install 'cevit-lib[{group}]'"
            )
            lines.append(f"{'':9}not installed: {', '.join(missing)} ({remedy})")
            if group == "core":
                faults.append(f"the core needs {', '.join(missing)}: {remedy}")
    lines.append(torch_pair(installed("torch"), installed("torchvision"), faults))
    return lines


def torch_pair(torch: str | None, torchvision: str | None, faults: list[str]) -> str:
    """Return whether torch and torchvision were built for each other; a pair that was not fails at import.

    torch 2.x goes with torchvision 0.(x + 15) (2.14 with 0.29), and both come from one kind of build: a CPU build
    beside a CUDA build fails as well.
    """
    if torch is None or torchvision is None:
        return "pair     torch and torchvision are not both installed (torchvision comes with the extra vit)"
    number = re.match(r"2\.(\d+)", torch)
    expected = f"0.{int(number.group(1)) + 15}" if number else None
    builds = [version.partition("+")[2] for version in (torch, torchvision)]
    fits = expected is None or torchvision.startswith(f"{expected}.")
    if not fits:
        faults.append(
            f"torch {torch} needs torchvision {expected}.*, but {torchvision} is installed; install both "
            "in one command"
        )
    elif builds[0] != builds[1]:
        fits = False
        faults.append(
            f"torch {torch} and torchvision {torchvision} are different builds; install both from one index"
        )
    return f"pair     torch {torch} and torchvision {torchvision} " + (
        "match" if fits else "DO NOT MATCH"
    )


def devices(faults: list[str]) -> list[str]:
    """Return the devices that torch sees."""
    if not util.find_spec("torch"):
        return ["torch is not installed"]
    try:
        import torch
    except (
        Exception
    ) as error:  # a broken build fails in many ways, and this report must still be printed
        faults.append(f"torch cannot be imported: {type(error).__name__}: {error}")
        return ["torch cannot be imported"]
    lines = [f"CPU with {os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"]
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(index)
            lines.append(
                f"cuda:{index} {facts.name}, {facts.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
            )
    else:
        lines.append("no CUDA device")
    if torch.backends.mps.is_available():
        lines.append("mps (Apple GPU)")
    return lines


def data() -> list[str]:
    """Return where each data set was looked for."""
    root = os.environ.get("CEVIT_DATA")
    if not root:
        return [
            f"CEVIT_DATA is not set; set it to the folder that holds {', '.join(DATA_SETS)} "
            "(the page on data says where they can be had)"
        ]
    lines = [
        f"CEVIT_DATA={root}" + ("" if Path(root).expanduser().is_dir() else " (no such folder)")
    ]
    for name in DATA_SETS:
        folder = Path(root).expanduser() / name
        lines.append(
            f"{name}: "
            + (f"found in {folder}" if folder.is_dir() else f"not found (looked in {folder})")
        )
    return lines


def weights() -> list[str]:
    """Return the folders where timm looks for pretrained weights, and what is there."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface").expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser()
    torch_home = Path(os.environ.get("TORCH_HOME") or cache / "torch").expanduser()
    checkpoints = torch_home / "hub" / "checkpoints"
    models = sorted(
        path.name.removeprefix("models--").replace("--", "/") for path in hub.glob("models--*")
    )
    files = sorted(path.name for path in checkpoints.glob("*") if path.is_file())
    return [
        f"Hugging Face hub {hub}: {', '.join(models) or 'none found'} (HF_HOME or HF_HUB_CACHE moves it)",
        f"torch hub {checkpoints}: {', '.join(files) or 'none found'} (TORCH_HOME moves it)",
        "without them a backbone starts from random weights, or pretrained=True downloads them",
    ]


def records() -> list[str]:
    """Return how many records each study has."""
    from cevit_lib.records.verify import stored_studies

    folder = results_folder()
    counts = [
        f"{study}: {len(list((folder / study).glob('*.json')))}" for study in stored_studies(folder)
    ]
    return [f"{folder}: {', '.join(counts) or 'none yet'}"]
