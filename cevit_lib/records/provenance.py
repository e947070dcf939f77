"""Where a number comes from: commit, source hash, device and package versions, without importing
torch.
"""

import contextlib
import hashlib
import io
import os
import platform
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

from cevit_lib.errors import ProvenanceError
from cevit_lib.paths import project_root

PACKAGES = ("torch", "torchvision", "timm", "peft", "numpy", "scipy", "pandas", "scikit-learn")
# what a record's source hash is of; a folder that a commit does not have adds nothing to it
SOURCE = ("cevit_lib", "studies")
# what a record's commit vouches for when there is no repository to ask (see ``commit_and_dirty``)
CODE = ("cevit_lib", "studies", "notebooks", "benchmarks", "workflow")
_SUFFIXES = (".py", ".json", ".md", ".toml")


def source_hash(root: Path | None = None, folders: tuple[str, ...] = SOURCE) -> str:
    """Return the sha256 of the code of the library and the studies (or other folders).

    It depends on paths and contents only: neither on the order of files nor on how lines end.
    """
    root = root or Path(__file__).resolve().parents[2]
    paths = [
        path
        for folder in folders
        for path in (root / folder).rglob("*")
        if path.suffix in _SUFFIXES
    ]
    files = {
        path.relative_to(root).as_posix(): path.read_bytes() for path in paths if path.is_file()
    }
    return _hash_files(files)


def commit_source_hash(
    commit: str, root: Path | None = None, folders: tuple[str, ...] = SOURCE
) -> str:
    """Return what ``source_hash`` was at a commit.

    Raises
    ------
    ProvenanceError
        The commit is not in this clone (a shallow one, say), or there is no repository.
    """
    root = root or project_root()
    present = [folder for folder in folders if _git(root, "ls-tree", commit, "--", folder)]
    archive = subprocess.run(
        ["git", "-C", str(root), "archive", commit, "--", *present], capture_output=True
    )
    if archive.returncode:
        raise ProvenanceError(
            f"commit {commit} is not in this clone: {archive.stderr.decode().strip()}"
        )
    files = {}
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        for member in tar.getmembers():
            if member.isfile() and member.name.endswith(_SUFFIXES):
                files[member.name] = tar.extractfile(member).read()
    return _hash_files(files)


def _hash_files(files: dict[str, bytes]) -> str:
    total = hashlib.sha256()
    for name in sorted(
        name for name in files if "__pycache__" not in name and ".ipynb_checkpoints" not in name
    ):
        content = hashlib.sha256(files[name].replace(b"\r\n", b"\n")).hexdigest()
        total.update(f"{name} {content}\n".encode())
    return total.hexdigest()


def _git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, or None where it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit_and_dirty(
    commit: str | None = None, root: Path | None = None
) -> tuple[str | None, bool]:
    """Return the commit and whether anything but ``results/`` differs from it.

    Asked is the clone that the library was imported from, or the one that ``CEVIT_ROOT`` names.
    With a repository, git answers, and a commit that is passed in must be the one checked out. On a
    machine that holds a copy without its history, the sender passes ``CEVIT_COMMIT`` and
    ``CEVIT_CODE_HASH``, both printed by ``python -m cevit_lib.records`` in the clean clone; the
    copy is clean when its own code hash is the same. Where neither can be told the copy counts as
    dirty.

    Raises
    ------
    ProvenanceError
        The commit that was passed in is not the one checked out.
    """
    root = root or _imported_root()
    commit = commit or os.environ.get("CEVIT_COMMIT") or None
    top = _git(root, "rev-parse", "--show-toplevel")
    if top and Path(top).resolve() == root.resolve():
        head = _git(root, "rev-parse", "HEAD")
        if commit and head and not head.startswith(commit):
            raise ProvenanceError(
                f"commit {commit} was passed in, but {head} is checked out; unset CEVIT_COMMIT"
            )
        changed = _git(
            root, "status", "--porcelain", "--untracked-files=all", "--", ".", ":(exclude)results"
        )
        return head, changed is None or bool(changed) or not _is_imported_from(root)
    expected = os.environ.get("CEVIT_CODE_HASH")
    return commit, not (commit and expected and expected == source_hash(root, CODE))


def _is_imported_from(root: Path) -> bool:
    """Tell whether the code that runs is the code that git was asked about (an installed copy, or
    another clone's environment, may be another).
    """
    for name in SOURCE:  # the studies only where they are imported
        module = sys.modules.get(name)
        here = Path(module.__file__).resolve().parents[1] if module else root
        if here != root.resolve() and source_hash(here, (name,)) != source_hash(root, (name,)):
            return False
    return True


def _imported_root() -> Path:
    """Return the clone from which this library was imported, else the folder that is worked in."""
    here = Path(__file__).resolve().parents[2]
    named = os.environ.get("CEVIT_ROOT") or not (here / "_toc.yml").is_file()
    return project_root() if named else here


def device_facts(device=None) -> dict:
    """Return name, count, CUDA and driver of the device in use; asks torch only where it is already
    imported.
    """
    torch = sys.modules.get("torch")
    kind = (
        str(device)
        if device is not None
        else "cuda"
        if torch and torch.cuda.is_available()
        else "cpu"
    )
    facts = {
        "type": kind.split(":")[0],
        "name": _processor(),
        "count": 1,
        "cores": os.cpu_count(),
        "cuda": None,
        "cudnn": None,
    }
    if torch and facts["type"] == "cuda":
        facts |= {
            "name": torch.cuda.get_device_name(),
            "count": torch.cuda.device_count(),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }
    elif torch and facts["type"] == "mps":
        facts["name"] = f"Apple GPU ({facts['name']})"
    return facts


def _processor() -> str:
    """Return the processor's name; Linux hides it in a file that other systems lack."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def versions() -> dict:
    """Return the versions of Python and of the packages that can move a number (None: not
    installed).
    """
    found = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **dict.fromkeys(PACKAGES),
    }
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def deterministic_flags() -> dict:
    """Return the switches that decide whether the same seed gives the same bits."""
    torch = sys.modules.get("torch")
    flags = {
        "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "deterministic_algorithms": None,
        "cudnn_benchmark": None,
        "tf32": None,
        "threads": None,
    }
    if torch:
        flags |= {
            "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "tf32": torch.get_float32_matmul_precision() != "highest",
            "threads": torch.get_num_threads(),
        }
    return flags


def peak_memory(device_type: str) -> dict:
    """Return the peak memory of this process in MiB, on the host and on a CUDA device."""
    torch = sys.modules.get("torch")
    peak = {"host_mib": None, "device_mib": None}
    with contextlib.suppress(ImportError):
        import resource  # not on Windows

        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peak["host_mib"] = round(used / (2**20 if sys.platform == "darwin" else 2**10), 1)
    if torch and device_type == "cuda":
        peak["device_mib"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return peak


def provenance(device=None, commit: str | None = None) -> dict:
    """Return everything that a record says about where it was made."""
    commit, dirty = commit_and_dirty(commit)
    facts = device_facts(device)
    return {
        "commit": commit,
        "dirty": dirty,
        "source": source_hash(),
        "device": facts,
        "versions": versions(),
        "deterministic": deterministic_flags(),
        "peak_memory": peak_memory(facts["type"]),
    }
