"""What a saved model knows of the data that it was fitted on, and what does not go with it.

Its patients are known by salted hashes of their ids, since a saved model names nobody.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cevit_lib.clinic.folder import plain
from cevit_lib.datasets import PairedEyes
from cevit_lib.datasets.cells import Problem
from cevit_lib.datasets.layout import differences, read_layout
from cevit_lib.errors import DataError


def stored_notes(model: Path) -> dict[str, Any]:
    """Return the notes of a saved model, with its responses.

    Raises
    ------
    DataError
        There is none in the folder, or several.
    """
    try:
        stored = json.loads((model / "model.json").read_text(encoding="utf-8"))
        return {**stored["notes"], "responses": stored["responses"]}
    except (OSError, ValueError, KeyError, TypeError):
        inside = [str(path.parent) for path in sorted(model.glob("*/model.json"))]
        raise DataError(
            f"--model {model} is no saved model; name one that 'cevit fit --save' wrote, such as "
            f"{[*inside, 'models/all'][0]}."
        ) from None


def beside_model(data: PairedEyes, layout: Any, notes: dict[str, Any]) -> Iterator[Problem]:
    """Yield where patients and the layout of their table do not go with a model, and whom of them
    it knows.
    """
    covariates = notes.get("covariates", ())
    for what, wanted, there in (
        ("predicts", notes["responses"], data.responses),
        ("reads the covariates", covariates, data.covariate_names if covariates else ()),
    ):
        if list(wanted) != list(there):
            yield Problem(
                f"the model {what} {', '.join(wanted)}; the layout declares "
                f"{', '.join(there) or 'none'}. Use the model's own layout (leave --layout out)"
            )
    theirs = notes.get("layout") or layout
    for said in differences(read_layout(layout), read_layout(theirs)):
        yield Problem(f"{said}: measured labels would mean something else; use the model's rule")
    if known := known_patients(data.ids, notes):
        shown = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
        yield Problem(
            f"{len(known)} of {len(set(data.ids))} patients have ids of patients on whom the model "
            f"was fitted ({shown}): unless another clinic counts alike, its errors look smaller "
            "there than they are",
            error=False,
        )


def hashed(patient: str, salt: str) -> str:
    """Return what stands for a patient's id in a saved model: 085, 85 and 85.0 are the same."""
    return hashlib.sha256(f"{salt}\0{plain(patient)}".encode()).hexdigest()[:16]


def known_patients(ids: Iterable[str], notes: dict[str, Any]) -> list[str]:
    """Return those of some patients on whom a model with these notes was fitted."""
    salt, seen = notes.get("data_hash", ""), set(notes.get("patient_hashes", ()))
    return [patient for patient in dict.fromkeys(ids) if hashed(patient, salt) in seen]
