"""Errors and warnings: each message says what was seen, what was expected and what to do.

``guarded`` is the edge of every command: what was raised below it ends there as one sentence.
"""

import argparse
import errno
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable

#: Status of a command that met a fault of the program itself (``EX_SOFTWARE``).
FAULT_OF_OURS = 70


class CevitError(Exception):
    """Base of every error that the library raises on purpose."""


class ShapeError(CevitError, ValueError):
    """An array has the wrong shape; the message names both shapes."""


class LabelError(CevitError, ValueError):
    """A binary response is not 0, 1 or NaN; the message names the row."""


class ScaleError(CevitError, ValueError):
    """A standard deviation is not positive and finite."""


class NotPositiveDefiniteError(CevitError, ValueError):
    """A correlation matrix is not positive definite; the message gives its smallest eigenvalue."""


class ParameterError(CevitError, ValueError):
    """A notebook or command parameter is unknown, ill-typed or out of range."""


class DataError(CevitError, ValueError):
    """A table, image or data folder cannot be used; the message names the place."""


class ProvenanceError(CevitError, RuntimeError):
    """A record is dirty, smoke, outdated, invalid or missing; a page needs one that is not."""


class OutputError(CevitError, OSError):
    """What is to be written cannot be; the message names it and says what is left as it was."""


class TrainingError(CevitError, RuntimeError):
    """A fit collapsed or diverged; the message names epoch, batch and likely cause."""


class NotebookError(CevitError, RuntimeError):
    """A notebook did not finish; the message names the cell."""


class NotConvergedWarning(UserWarning):
    """An estimator stopped before its tolerance was met; the message names a remedy."""


class NearSingularWarning(UserWarning):
    """An estimated correlation matrix has its smallest eigenvalue below 1e-3."""


class EstimateKeptWarning(UserWarning):
    """An estimate along the way failed; training goes on under the last good one."""


class WronglyCompiledWarning(UserWarning):
    """What was compiled of a network is not the network; training goes on uncompiled."""


class FrozenRandomWeightsWarning(UserWarning):
    """LoRA was put on frozen weights that were drawn at random and never trained."""


class WeightsWarning(UserWarning):
    """Part of a file of weights was left out, or nothing says how its images were normalised."""


def at_least(lowest: float, whole: bool = True) -> Callable[[str], float]:
    """Return a reader of a command's numbers: finite, not below ``lowest``, whole unless told."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not lowest <= value < 1e15 or (whole and value != int(value)):
            kind = "whole number" if whole else "number"
            raise argparse.ArgumentTypeError(f"{text!r}: give a {kind} of at least {lowest:g}")
        return int(value) if whole else value

    return read


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
        status, said = refused, in_words(error)
        if isinstance(error, ModuleNotFoundError) and not (error.name or "cevit_lib").startswith(
            "cevit_lib"
        ):
            said = f"the package {error.name!r} is not installed; {missing(error.name)}"
        elif said is None:
            status, said = FAULT_OF_OURS, _fault_of_ours(error)
    print(f"{name}: {said}", file=sys.stderr)
    return status


def in_words(error: BaseException) -> str | None:
    """Return a sentence on what the system or a file did, ``None`` for a fault of the program."""
    text = " ".join(str(error).split())[:300]
    if isinstance(error, MemoryError) or "out of memory" in text.lower():
        return (
            f"out of memory ({text or 'the processor'}); make the batch or the photographs smaller."
        )
    if isinstance(error, UnicodeError):
        return f"what should be text in UTF-8 is not ({text}); save it as UTF-8 and try again."
    if not isinstance(error, OSError):
        return "the disk is full or gone; free some space" if torn_write(error) else None
    place = f"{error.filename}: " if error.filename else ""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            told = "the disk is full; free some space and give the same command again."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            told = f"{error.strerror}; name a place where you may read and write."
        case errno.ENOENT:
            told = "does not exist; look at the name."
        case _:
            told = f"{error.strerror or text}; name another place or look at this one."
    return place + told


def torn_write(error: BaseException) -> bool:
    """Tell whether torch could not write on: it says nothing of the disk that was full."""
    return isinstance(error, RuntimeError) and bool(
        re.search("unexpected pos|PytorchStreamWriter", str(error))
    )


def _fault_of_ours(error: BaseException) -> str:
    """Return where a fault of the program is; its whole account goes to a file."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    said = f"a fault of the program ({what}, {os.path.basename(last.filename)}:{last.lineno})"
    try:
        handle, path = tempfile.mkstemp(prefix="cevit-fault-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as stream:
            traceback.print_exception(error, file=stream)
    except OSError:
        return said
    return f"{said}; please report it with {path}, which says how it came about."
