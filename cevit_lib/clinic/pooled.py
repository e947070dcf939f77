"""The folds of one fit laid together: every patient with the prediction of the fit that had not
seen him.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from cevit_lib.clinic.tables import stored_predictions
from cevit_lib.errors import ProvenanceError
from cevit_lib.metrics import Interval, evaluate, patient_bootstrap
from cevit_lib.records import load_records
from cevit_lib.records.store import record_path


@dataclass(frozen=True)
class Pooled:
    """Test patients of all folds.

    Attributes
    ----------
    records : list of dict
        One a fold.
    ids : list of str
    responses : tuple of str
    continuous : int
    y, outputs : (n, p) arrays
        Observed (NaN = not), and means and logits of the copula arm.
    scale : (n, p0) array
        Residual SD that each patient's fold estimated.
    classes : (n, p1) array
        By the joint Bayes rule.
    """

    records: list[dict[str, Any]]
    ids: list[str]
    responses: tuple[str, ...]
    continuous: int
    y: np.ndarray
    outputs: np.ndarray
    scale: np.ndarray
    classes: np.ndarray

    @property
    def probabilities(self) -> np.ndarray:
        """``(n, p1)`` of the binary responses."""
        return expit(self.outputs[:, self.continuous :])

    def coverage(self, level: float) -> dict[str, tuple[int, int]]:
        """Return how many observed values of a response lie in their interval, and of how many."""
        off = np.abs(self.y - self.outputs)[:, : self.continuous] / self.scale
        inside, seen = off <= norm.ppf((1 + level) / 2), np.isfinite(off)
        return {
            name: (int(inside[:, k].sum()), int(seen[:, k].sum()))
            for k, name in enumerate(self.responses[: self.continuous])
        }

    def metrics(self, rng: np.random.Generator, replications: int = 500) -> dict[str, Interval]:
        """Return each metric with its 95 % interval from resampled patients."""

        def of(rows: np.ndarray) -> dict[str, float]:
            outputs, y, classes = self.outputs[rows], self.y[rows], self.classes[rows]
            return evaluate(outputs, y, self.responses, self.continuous, classes).values

        return patient_bootstrap(of, len(self.ids), rng, replications=replications)

    def worst(self, count: int = 5) -> list[tuple[str, str, float, float]]:
        """Return the predictions furthest off in units of their scale.

        Each as patient, response, predicted, observed.
        """
        off = np.abs(self.y - self.outputs)[:, : self.continuous] / self.scale
        order = np.argsort(-np.nan_to_num(off, nan=-1.0), axis=None)[:count]
        rows, columns = np.unravel_index(order, off.shape)
        return [
            (self.ids[i], self.responses[k], float(self.outputs[i, k]), float(self.y[i, k]))
            for i, k in zip(rows, columns, strict=True)
            if np.isfinite(off[i, k])
        ]


def responses_of(record: dict[str, Any]) -> tuple[tuple[str, ...], int]:
    """Return the names of the responses of a record, and how many are continuous."""
    keys = [key.partition(" ") for key in record["metrics"]["copula"]["values"]]
    continuous = [name for kind, _, name in keys if kind == "MAE"]
    return (*continuous, *(name for kind, _, name in keys if kind == "AUC")), len(continuous)


def fit_records(folder: Path, study: str, identity: str | None = None) -> list[dict[str, Any]]:
    """Return the folds of one fit from a folder of records: of the newest fit, or of the one that
    ``identity`` is of.

    Raises
    ------
    ProvenanceError
        There is no such record.
    """
    if not any(record_path(study, "any", folder=folder).parent.glob("*.json")):
        raise ProvenanceError(
            f"{folder} has no record of {study}; name the folder that 'cevit fit' wrote "
            "(--results)."
        )
    found = load_records(study, publication=False, folder=folder)
    chosen = [record for record in found if record["id"].startswith(identity or "")]
    if not chosen:
        raise ProvenanceError(
            f"{folder} has no record {identity!r} of {study}; it has {len(found)} others."
        )
    newest = _kind(max(chosen, key=lambda record: record["created"]))
    same = [r for r in found if _kind(r) == newest and r["configuration"]["fold"]]
    if not same:
        raise ProvenanceError(
            f"{folder} holds no fold of that fit, only the one on all patients; fit the folds too."
        )
    return sorted(same, key=lambda record: record["configuration"]["fold"])


def _kind(record: dict[str, Any]) -> tuple:
    """Return what the folds of one fit have in common."""
    configuration = {**record["configuration"], "fold": None}
    return (configuration, record["seeds"], record["data"]["hash"], record["scale"])


def pool(records: list[dict[str, Any]]) -> Pooled:
    """Lay the folds of a fit together."""
    responses, continuous = responses_of(records[0])
    parts = [stored_predictions(record, responses, "copula") for record in records]
    observed = [value for record in records for value in record["predictions"]["y"]]
    scales = [np.tile(part.parameters.scale.numpy(), (len(part.ids), 1)) for part in parts]
    return Pooled(
        records,
        [patient for part in parts for patient in part.ids],
        responses,
        continuous,
        np.array([[np.nan if v is None else v for v in row] for row in observed], dtype=float),
        np.concatenate([part.outputs.numpy() for part in parts]),
        np.concatenate(scales),
        np.concatenate([part.classes().numpy() for part in parts]).astype(float),
    )
