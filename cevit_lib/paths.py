"""Where things lie: the project's root, its results, and the data folder that the user names."""

import os
import sys
from pathlib import Path

from cevit_lib.errors import DataError


def project_root() -> Path:
    """Return the compendium's root: ``CEVIT_ROOT``, else the nearest parent with ``_toc.yml``.

    Looks upwards from the working directory, then from this file: notebooks run from any folder.
    """
    if os.environ.get("CEVIT_ROOT"):
        return Path(os.environ["CEVIT_ROOT"]).expanduser().resolve()
    for start in (Path.cwd(), Path(__file__).resolve().parent):
        for folder in (start, *start.parents):
            if (folder / "_toc.yml").is_file() and (folder / "cevit_lib").is_dir():
                return folder
    return Path.cwd()


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
