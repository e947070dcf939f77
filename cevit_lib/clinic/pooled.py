"""The folds of one fit laid together: every patient with the prediction of the fit that had not seen him."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cevit_lib.errors import ProvenanceError

if TYPE_CHECKING:
    from cevit_lib.metrics import Interval


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
        return 1 / (1 + np.exp(-self.outputs[:, self.continuous :]))

    def coverage(self, level: float) -> dict[str, tuple[int, int]]:
        """Return, for each continuous response, how many observed values lie in their interval, and of how many."""
        from scipy.stats import norm

        inside = np.abs(self.y[:, : self.continuous] - self.outputs[:, : self.continuous])
        inside = inside <= norm.ppf((1 + level) / 2) * self.scale
        seen = np.isfinite(self.y[:, : self.continuous])
        return {
            name: (int((inside & seen)[:, k].sum()), int(seen[:, k].sum()))
            for k, name in enumerate(self.responses[: self.continuous])
        }

    def metrics(self, rng: np.random.Generator, replications: int = 500) -> dict[str, Interval]:
        """Return each metric with its 95 % interval from resampled patients."""
        from cevit_lib.metrics import evaluate, patient_bootstrap

        def of(rows: np.ndarray) -> dict[str, float]:
            some = (
                self.outputs[rows],
                self.y[rows],
                self.responses,
                self.continuous,
                self.classes[rows],
            )
            return evaluate(*some).values

        return patient_bootstrap(of, len(self.ids), rng, replications=replications)

    def worst(self, count: int = 5) -> list[tuple[str, str, float, float]]:
        """Return the predictions that are furthest off in units of their scale: patient, response, said, observed."""
        off = np.abs(self.y[:, : self.continuous] - self.outputs[:, : self.continuous]) / self.scale
        order = np.argsort(-np.nan_to_num(off, nan=-1.0), axis=None)[:count]
        rows, columns = np.unravel_index(order, off.shape)
        return [
            (self.ids[i], self.responses[k], float(self.outputs[i, k]), float(self.y[i, k]))
            for i, k in zip(rows, columns, strict=True)
            if np.isfinite(off[i, k])
        ]


def responses_of(record: dict[str, Any]) -> tuple[tuple[str, ...], int]:
    """Return the names of the responses of a record, and how many are continuous."""
    names = [
        key.partition(" ")[2]
        for key in record["metrics"]["copula"]["values"]
        if key.startswith("MAE ")
    ]
    labels = [
        key.partition(" ")[2]
        for key in record["metrics"]["copula"]["values"]
        if key.startswith("AUC ")
    ]
    return tuple(names + labels), len(names)


def fit_records(folder: Path, study: str, identity: str | None = None) -> list[dict[str, Any]]:
    """Return the folds of one fit from a folder of records: of the newest fit, or of the one that ``identity`` is of.

    Raises
    ------
    ProvenanceError
        There is no such record.
    """
    from cevit_lib.records import load_records
    from cevit_lib.records.store import record_path

    if not any(record_path(study, "any", folder=folder).parent.glob("*.json")):
        raise ProvenanceError(
            f"{folder} has no record of {study}; name the folder that 'cevit fit' wrote (--results)."
        )
    found = load_records(study, publication=False, folder=folder)
    chosen = [record for record in found if identity is None or record["id"].startswith(identity)]
    if not chosen:
        raise ProvenanceError(
            f"{folder} has no record {identity!r} of {study}; it has {len(found)} others."
        )

    def kind(record: dict[str, Any]) -> tuple:
        configuration = {
            key: value for key, value in record["configuration"].items() if key != "fold"
        }
        return (configuration, record["seeds"], record["data"]["hash"], record["scale"])

    newest = max(chosen, key=lambda record: record["created"])
    same = [
        record
        for record in found
        if kind(record) == kind(newest) and record["configuration"]["fold"]
    ]
    if not same:
        raise ProvenanceError(
            f"{folder} holds no fold of that fit, only the one on all patients; fit the folds too."
        )
    return sorted(same, key=lambda record: record["configuration"]["fold"])


def pool(records: list[dict[str, Any]]) -> Pooled:
    """Lay the folds of a fit together."""
    from cevit_lib.clinic.tables import stored_predictions

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
