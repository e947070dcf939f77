"""Whether a model has seen a patient: ids as salted hashes, since a saved model names nobody."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from cevit_lib.clinic.folder import plain


def hashed(patient: str, salt: str) -> str:
    """Return what stands for a patient's id in a saved model: 085, 85 and 85.0 are the same."""
    return hashlib.sha256(f"{salt}\0{plain(patient)}".encode()).hexdigest()[:16]


def other_units(y: np.ndarray, measures: tuple[str, ...], usual: dict[str, float]) -> list[str]:
    """Return a sentence on each measure, one of the first columns of ``y``, that lies as far from
    its mean in the fit as another unit brings it: more than four times the SD of what was observed.
    """
    return [
        f"{name} is {seen.mean():.3g} on average, in the fit {usual[name]:.3g}: another unit?"
        for name, all_ in zip(measures, y.T, strict=False)
        if len(seen := all_[np.isfinite(all_)]) > 1
        and abs(seen.mean() - usual.get(name, np.nan)) > 4 * seen.std() > 0
    ]


def known_patients(ids: Iterable[str], notes: dict[str, Any]) -> list[str]:
    """Return those of some patients on whom a model with these notes was fitted."""
    salt, seen = notes.get("data_hash", ""), set(notes.get("patient_hashes", ()))
    return [patient for patient in dict.fromkeys(ids) if hashed(patient, salt) in seen]
