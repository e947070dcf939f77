"""The folds of one fit laid together: every patient with the prediction of the fit that had not
seen him.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cevit_lib.clinic.performance import Judged, usual_of
from cevit_lib.clinic.tables import Domains, pairs_of, stored_predictions
from cevit_lib.copula import class_probabilities
from cevit_lib.datasets.layout import EYES
from cevit_lib.errors import ProvenanceError
from cevit_lib.records import load_records
from cevit_lib.records.store import record_path
from cevit_lib.training import Predictions


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


def unsettled(records: list[dict[str, Any]]) -> list[str]:
    """Return a sentence where the copula parameters of some folds did not converge."""
    folds = [r["configuration"]["fold"] for r in records if r["status"] == "not converged"]
    if not folds:
        return []
    most = "s " + ", ".join(map(str, folds)) if len(folds) > 1 else f" {folds[0]}"
    return [
        f"In fold{most} of {records[0]['configuration']['folds']} the estimate of the copula "
        "parameters stopped before it had settled: correlations, joint probabilities and what "
        "follows from a measured response may still move. A fit with a larger --max-iter, or with "
        "more patients, mends it."
    ]


def _kind(record: dict[str, Any]) -> tuple:
    """Return what the folds of one fit have in common."""
    configuration = {**record["configuration"], "fold": None}
    return (configuration, record["seeds"], record["data"]["hash"], record["scale"])


def pool(records: list[dict[str, Any]]) -> Judged:
    """Lay the folds of a fit together."""
    responses, continuous = responses_of(records[0])
    parts = [stored_predictions(record, responses, "copula") for record in records]
    seen = [
        np.array([[np.nan if v is None else v for v in row] for row in record["predictions"]["y"]])
        for record in records
    ]
    usual, domains = [], domains_of(records[0])
    about = (responses, continuous, domains)
    for k, record in enumerate(records):
        others = [y for j, y in enumerate(seen) if j != k]  # all whom a whole fit trained on
        told = record["predictions"].get("usual")
        usual.append(told or (usual_of(np.concatenate(others), *about) if others else {}))
    return joined([judge(*each, domains) for each in zip(parts, seen, usual, strict=True)])


def domains_of(record: dict[str, Any]) -> Domains:
    """Return what the left and the right one are called in a record's layout."""
    return tuple(record["configuration"]["data"].get("layout", {}).get("domains", EYES))


def judge(
    predictions: Predictions, y: np.ndarray, usual: dict[str, float], domains: Domains = EYES
) -> Judged:
    """Return the predictions of one model beside what was observed."""
    outputs, p, n = predictions.outputs.double(), predictions.parameters, len(predictions.ids)
    cells = {
        stem: class_probabilities(outputs[:, pair], p.margin(list(pair))).numpy()
        for stem, pair in pairs_of(predictions.responses, p.p0, domains).items()
    }
    return Judged(
        list(predictions.ids),
        predictions.responses,
        p.p0,
        np.asarray(y, dtype=float).reshape(n, len(predictions.responses)),
        outputs.numpy(),
        np.tile(p.scale.numpy(), (n, 1)),
        cells,
        {name: np.full(n, np.nan if value is None else value) for name, value in usual.items()},
        domains,
    )


def joined(parts: list[Judged]) -> Judged:
    """Lay judged patients together."""

    def whole(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    def each(name: str) -> dict[str, np.ndarray]:
        found = [getattr(part, name) for part in parts]
        return {key: np.concatenate([one[key] for one in found]) for key in found[0]}

    first = parts[0]
    return Judged(
        [patient for part in parts for patient in part.ids],
        first.responses,
        first.continuous,
        whole("y"),
        whole("outputs"),
        whole("scale"),
        each("cells"),
        each("usual"),
        first.domains,
    )
