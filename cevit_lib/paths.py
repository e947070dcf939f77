"""Where things lie: the project's root, its results, the data folder that the user names; files
that appear whole or not at all; and the processors that are granted."""

import contextlib
import errno
import glob
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from cevit_lib.errors import DataError, OutputError

LEFT_OVER_SECONDS = 86_400.0
"""Older temporary files are of a process that was killed."""


def project_root() -> Path:
    """Return the compendium's root: ``CEVIT_ROOT``, else the nearest parent with ``_toc.yml``.

    Looks upwards from the working directory, then from this file: notebooks run from any folder.
    """
    if os.environ.get("CEVIT_ROOT"):
        return Path(os.environ["CEVIT_ROOT"]).expanduser().resolve()
    starts = Path.cwd(), Path(__file__).resolve().parent
    folders = (folder for start in starts for folder in (start, *start.parents))
    roots = (f for f in folders if (f / "_toc.yml").is_file() and (f / "cevit_lib").is_dir())
    return next(roots, Path.cwd())


def results_folder() -> Path:
    """Return the folder of records: ``CEVIT_RESULTS`` if set, else ``results`` under the root."""
    named = os.environ.get("CEVIT_RESULTS")
    return Path(named).expanduser().resolve() if named else project_root() / "results"


def data_folder(name: str, given: str | os.PathLike | None = None) -> Path:
    """Return the folder of one data set, from ``given``, else from ``CEVIT_DATA/name``.

    Raises
    ------
    DataError
        The folder does not exist; the message says which option or variable to set.
    """
    sys.audit("cevit_lib.data_folder", name)  # a page that asks for data depends on where they are
    root = os.environ.get("CEVIT_DATA")
    folder = Path(given) if given else Path(root) / name if root else None
    if folder is not None and folder.expanduser().is_dir():
        return folder.expanduser().resolve()
    looked = f"looked in {folder}" if folder else "CEVIT_DATA is not set"
    raise DataError(
        f"no folder of the data set {name!r}: {looked}. Set CEVIT_DATA to the folder that holds "
        f"{name!r}, or pass the folder itself (--data-folder); the page on data says where "
        f"{name!r} can be had."
    )


def cache_folder() -> Path | None:
    """Return the folder ``CEVIT_CACHE`` for what was decoded once; without it nothing is kept."""
    named = os.environ.get("CEVIT_CACHE")
    return Path(named).expanduser().resolve() if named else None


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that becomes ``path`` at the end, so that nobody meets a half of it.

    Parameters
    ----------
    path : Path
        The file; its folder is made.

    Raises
    ------
    OutputError
        The disk is full or takes nothing; the message names the file.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, f".{glob.escape(path.name)}.*.tmp")
        with open(temporary, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())  # or a power cut could leave the name without the content
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:
        if not isinstance(error, OSError) and not torn_write(error):
            raise
        raise OutputError(
            f"{why(error)}: could not write {path}; what was there before is untouched. Free some "
            "space or name another place, and give the same command again."
        ) from error
    finally:
        # after a success the name is gone; after anything else, a Ctrl-C included, the half file is
        # removed
        with contextlib.suppress(OSError):
            temporary.unlink()


def sweep(folder: Path, pattern: str) -> None:
    """Remove temporary files that a killed process left in a folder long ago."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > LEFT_OVER_SECONDS:
                path.unlink()


def granted_cores() -> int:
    """Return how many processors this process may use: its affinity, its control group's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        count = min(count, max(1, int(quota) // int(period)))
    return count or 1


def torn_write(error: BaseException) -> bool:
    """Tell whether torch could not write on: it says nothing of the disk that was full."""
    return isinstance(error, RuntimeError) and bool(
        re.search("unexpected pos|PytorchStreamWriter", str(error))
    )


def why(error: BaseException) -> str:
    """Say in few words why something could not be written."""
    full = torn_write(error) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    return "the disk is full" if full else (getattr(error, "strerror", None) or str(error))
