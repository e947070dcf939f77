"""The edge of every command: numbers are read, outputs are tried before the work, and whatever was
raised ends as one sentence."""

import argparse
import contextlib
import difflib
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from cevit_lib.errors import CevitError, OutputError, ParameterError
from cevit_lib.paths import torn_write, why

#: Status of a command that met a fault of the program itself (``EX_SOFTWARE``).
FAULT_OF_OURS = 70
# YAML 1.2's plain values; YAML 1.1 reads 010 as 8, 1:30 as 90 and no as false
_SCALARS = {
    "null": "~|null|Null|NULL|",
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "[-+]?(0|[1-9][0-9]*)",
    "float": r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+",
}

#: What :func:`why` says, to what can be done.
_REMEDIES = {
    "the disk is full": "free some space and give the same command again",
    "No such file or directory": "look at the name",
    "Permission denied": "name a place where you may read and write",
    "Read-only file system": "name a place where you may read and write",
}


def at_least(
    lowest: float, whole: bool = True, at_most: float = float("inf")
) -> Callable[[str], float]:
    """Return a reader of a command's numbers: finite, between two limits, whole unless told."""

    def read(text: str) -> float:
        with contextlib.suppress(ValueError):
            value = float(text)
            if lowest <= value <= min(at_most, 1e15) and not (whole and value % 1):
                return int(value) if whole else value
        kind = "whole number" if whole else "number"
        upper = f" and at most {at_most:g}" if at_most < float("inf") else ""
        raise argparse.ArgumentTypeError(f"{text!r}: give a {kind} of at least {lowest:g}{upper}")

    return read


def nearest(wanted: object, there: Iterable[object], alike: float = 0.5) -> str:
    """Say which of some texts is nearest to the one that was looked for, or nothing."""
    known = {str(text).casefold(): str(text) for text in there}
    near = difflib.get_close_matches(str(wanted).casefold(), known, 1, alike)
    return f" (nearest: {known[near[0]]!r})" if near else ""


def read_mapping(
    path: Path, what: str = "the file", wrong: type[CevitError] = ParameterError
) -> dict:
    """Return the names and values in a YAML or JSON file.

    Values are read as YAML 1.2 and JSON have them: ``1e-4`` is a number, and ``no``, ``010`` or
    ``1:30`` are words, not false, 8 and 90.

    Raises
    ------
    ParameterError
        (or ``wrong``) It is missing, of another kind, no mapping, or has a key twice, of which one
        would be lost.
    """
    import yaml

    class Strict(yaml.SafeLoader):
        yaml_implicit_resolvers: dict = {}

        def construct_mapping(self, node, deep=False):
            keys = [key.value for key, _ in node.value]
            if twice := [key for key in keys if keys.count(key) > 1]:
                line = node.start_mark.line + 1
                raise yaml.YAMLError(f"{twice[0]!r} stands twice in the block of line {line}")
            return super().construct_mapping(node, deep)

    for kind, form in _SCALARS.items():
        Strict.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"({form})$"), None)
    try:
        content = yaml.load(path.read_text("utf-8-sig"), Strict)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())[:300]
        raise wrong(f"{what} {path} cannot be read: {said}") from None
    if not isinstance(content or {}, dict):
        kind = type(content).__name__
        raise wrong(f"{what} {path} must hold lines 'name: value', got {kind}.")
    return content or {}


def check_output(
    path: str | os.PathLike,
    kind: Literal["file", "folder"],
    option: str = "",
    inputs: Iterable[str | os.PathLike] = (),
) -> None:
    """Try, before any work, whether an output can be written where it is to go.

    Raises
    ------
    OutputError
        It is of the wrong kind, one of the inputs, below a file, or in a folder that takes none.
    """
    path = Path(path).expanduser()
    said = f"{option} {path}".strip()
    if path.exists() and path.is_dir() != (kind == "folder"):
        seen, other = ("folder", "file") if path.is_dir() else ("file", "folder")
        raise OutputError(f"{said} is a {seen}; name a {other} to write.")
    if path.exists() and any(os.path.exists(one) and path.samefile(one) for one in inputs):
        raise OutputError(
            f"{said} is read by this command and left as it is; name another {kind} to write."
        )
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    there = there.parent if kind == "file" and there == path else there
    if not there.is_dir():
        raise OutputError(f"{said} cannot be written: {there} is a file, no folder.")
    try:
        with tempfile.TemporaryFile(dir=there) as tried:
            tried.write(bytes(4096))
    except OSError as error:
        raise OutputError(f"{said} cannot be written ({why(error)}); nothing was done.") from error


def guarded(
    name: str,
    work: Callable[[], int],
    *,
    missing: Callable[[str], str] = lambda package: f"pip install {package}",
    refused: int = 2,
) -> int:
    """Do a command's work and return its status; whatever it raises becomes one sentence.

    Parameters
    ----------
    name : str
        Of the command, before the sentence.
    work : callable
        Returns the status.
    missing : callable
        Says what brings a package that is not installed.
    refused : int
        The status where an error of ours has none of its own.
    """
    try:
        status = work()
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever read has enough; Python's last flush must not complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except KeyboardInterrupt:
        status, said = 130, "interrupted"
    except CevitError as error:
        status, said = getattr(error, "exit_status", refused), str(error)
    except Exception as error:
        package = isinstance(error, ModuleNotFoundError) and error.name
        if package and not package.startswith("cevit_lib"):
            told = f"the package {package!r} is not installed; {missing(package)}"
        else:
            told = in_words(error)
        status, said = (refused, told) if told else (FAULT_OF_OURS, _fault_of_ours(error))
    print(f"{name}: {said}", file=sys.stderr)
    return status


def in_words(error: BaseException) -> str | None:
    """Return a sentence on what the system or a file did, ``None`` for a fault of the program."""
    text = " ".join(str(error).split())[:300]
    full = re.search("(out of|allocate|not enough) memory", text.lower())
    if isinstance(error, MemoryError) or full:
        return (
            f"out of memory ({text or 'the processor'}); make the batch or the photographs smaller."
        )
    if isinstance(error, UnicodeError):
        return f"what should be text in UTF-8 is not ({text}); save it as UTF-8 and try again."
    if not isinstance(error, OSError) and not torn_write(error):
        return None
    name = getattr(error, "filename", None)
    remedy = _REMEDIES.get(why(error), "name another place, or look at this one")
    return f"{f'{name}: ' if name else ''}{why(error)}; {remedy}."


def _fault_of_ours(error: BaseException) -> str:
    """Return where a fault of the program is; its whole account goes to a file."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    said = f"a fault of the program ({what}, {os.path.basename(last.filename)}:{last.lineno})"
    kept = {"prefix": "cevit-fault-", "suffix": ".txt", "encoding": "utf-8", "errors": "replace"}
    with contextlib.suppress(OSError), tempfile.NamedTemporaryFile("w", delete=False, **kept) as to:
        traceback.print_exception(error, file=to)
        said += f"; please report it with {to.name}, which says how it came about."
    return said
