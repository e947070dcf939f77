"""The studies of the compendium, one line each in ``studies.json``, added by its owner.

``recipe``
    The version of its recipe. Raise it by hand when a change of code could move the study's
    numbers: its older records then count as outdated and no page draws them.
``arms``
    Where its records grow by arms: which of them were fitted is no part of a record's identity.
    Versions of the recipes of single arms, 1 unless named; an outdated arm is refused as an
    outdated record is.
``study``
    ``"module:NAME"`` of its ``studies.study.Study``, or of a table of them by name: what ``python
    -m studies`` runs.
``refit``
    ``"module:function"`` that takes a record and returns a fresh one, where it is not the study's
    own ``refit``; ``null`` for a study that ``cevit verify`` does not fit again.
``maker``
    The command that makes its records, where it is not ``python -m studies``.
``replicates``
    Keys of its configuration that only number repetitions; records that differ in nothing else are
    its spread.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from cevit_lib.errors import ProvenanceError

STUDIES: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("studies.json").read_text("utf-8")
)


def recipe_of(study: str) -> int:
    """Return the version of a study's recipe.

    Raises
    ------
    ProvenanceError
        The study has no line in ``studies.json``.
    """
    if study not in STUDIES:
        raise ProvenanceError(
            f"study {study!r} has no recipe version; add a line to cevit_lib/records/studies.json "
            f"(known: {', '.join(sorted(STUDIES)) or 'none'})"
        )
    return STUDIES[study]["recipe"]


def arms_of(study: str) -> dict[str, int] | None:
    """Return versions of single arms' recipes, or None for a study whose records do not grow."""
    return STUDIES.get(study, {}).get("arms")


def maker_of(study: str) -> str:
    """Return the command that makes the records of a study, or whom to ask for it."""
    entry = STUDIES.get(study, {})
    own = f"python -m studies {study}" if "study" in entry else None
    return (
        entry.get("maker")
        or own
        or f"the page or script that owns {study!r} (cevit run PAGE -p scale paper)"
    )


def refit_name(study: str) -> str | None:
    """Return where the function stands that fits a study's records again, or None where they are
    not.
    """
    entry = STUDIES.get(study, {})
    return entry.get("refit", entry.get("study"))


def imported(study: str, name: str) -> Any:
    """Return what ``"module:NAME"`` names; of a table of studies, the one asked for.

    Raises
    ------
    ProvenanceError
        It cannot be imported.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
        return found[study] if isinstance(found, dict) else found
    except (ImportError, AttributeError, KeyError) as error:
        raise ProvenanceError(f"{name!r} of study {study!r} cannot be imported: {error}") from error
