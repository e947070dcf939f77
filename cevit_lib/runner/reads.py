"""What a page reads while it runs, so that a build can run it again when any of it changes, and not
otherwise."""

import json
import os
import sys
from pathlib import Path

from cevit_lib.paths import project_root, results_folder

#: Where a run writes what its page read: a JSON list of files, folders and variables (``$NAME``).
READS = "CEVIT_READS"
_MADE = {"build", "_build", "executed", "__pycache__"}
_seen: set[str] = set()


def watch_reads() -> None:
    """Take note of every file and folder that Python opens from now on, if somebody asked for
    it."""
    if os.environ.get(READS):
        sys.addaudithook(_note)


def _note(event: str, arguments: tuple) -> None:
    if event == "cevit_lib.data_folder":
        _seen.add("$CEVIT_DATA")
    elif event in ("open", "os.scandir") and isinstance(arguments[0], str | os.PathLike):
        _seen.add(os.path.abspath(arguments[0]))


def write_reads() -> None:
    """Write down the modules that the page imported and the project's files, records and data that
    it opened."""
    if not os.environ.get(READS):
        return
    names = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    # code matters where it is imported; provenance opens all of it, for its hash
    names |= {name for name in _seen if not name.endswith(".py")}
    Path(os.environ[READS]).write_text(json.dumps(sorted(filter(_matters, names))), "utf-8")


def _matters(name: str) -> bool:
    path, root = Path(name), project_root()
    data = Path(os.environ.get("CEVIT_DATA") or os.devnull).expanduser().resolve()
    if name.startswith("$") or path.is_relative_to(results_folder()) or path.is_relative_to(data):
        return True
    inside = path.relative_to(root).parts if path.is_relative_to(root) else (".",)
    return path.is_file() and not any(p in _MADE or p.startswith(".") for p in inside)
