"""Whether a model has seen a patient: ids as salted hashes, since a saved model names nobody."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any


def hashed(patient: str, salt: str) -> str:
    """Return what stands for a patient's id in a saved model: 085 and 85 are the same."""
    plain = patient.lstrip("0").casefold()
    return hashlib.sha256(f"{salt}\0{plain}".encode()).hexdigest()[:16]


def known_patients(ids: Iterable[str], notes: dict[str, Any]) -> list[str]:
    """Return those of some patients on whom a model with these notes was fitted."""
    salt, seen = notes.get("data_hash", ""), set(notes.get("patient_hashes", ()))
    return [patient for patient in dict.fromkeys(ids) if hashed(patient, salt) in seen]
