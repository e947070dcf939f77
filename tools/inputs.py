"""What something was made from, remembered beside it: made again when any of it has changed, and
not otherwise."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path


def digest(name: str) -> str:
    """Return the hash of a file's bytes, of the names in a folder, or the value of a variable
    (``$NAME``)."""
    if name.startswith("$"):
        return os.environ.get(name[1:], "")
    path = Path(name)
    if path.is_dir():
        content = "\0".join(sorted(os.listdir(path))).encode()
    else:
        content = path.read_bytes() if path.is_file() else b"there is none"
    return hashlib.sha256(content).hexdigest()


def remember(
    memory: Path, names: Iterable[str | Path], since: float, made: Path | None = None
) -> None:
    """Write down what the named inputs are now.

    Parameters
    ----------
    memory : Path
        The file to write.
    names : iterable of str or Path
        Files, folders, and variables of the environment as ``$NAME``.
    since : float
        When the work began: an input that was edited after that counts as changed the next time.
    made : Path, optional
        The one among them that the work itself has made: replaced by hand, it is made again.
    """
    known = {}
    for name in map(str, names):
        edited = name != str(made) and os.path.isfile(name) and os.path.getmtime(name) > since
        known[name] = "edited during the work" if edited else digest(name)
    memory.parent.mkdir(parents=True, exist_ok=True)
    memory.write_text(json.dumps(known, indent=0, sort_keys=True), encoding="utf-8")


def changed(memory: Path, names: Iterable[str | Path] | None = None) -> set[str]:
    """Return the inputs that are no longer what ``memory`` says, or are new or gone.

    Without a readable memory everything has changed: the answer then holds the name of the memory
    itself.
    """
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {str(memory)}
    wanted = known.keys() if names is None else set(map(str, names))
    return {name for name in wanted | known.keys() if known.get(name) != digest(name)} | (
        known.keys() - wanted
    )
