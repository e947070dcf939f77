"""The folds of one fit laid together: every patient with the prediction of the fit that had not
seen him.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cevit_lib.clinic.performance import Judged, joined, judge
from cevit_lib.clinic.tables import Domains, stored_predictions
from cevit_lib.datasets.layout import EYES
from cevit_lib.errors import ProvenanceError
from cevit_lib.records import load_records


def responses_of(record: dict[str, Any]) -> tuple[tuple[str, ...], int, Domains]:
    """Return the names of the responses of a record, how many are continuous, and what the left and
    the right one are called.
    """
    keys = [key.partition(" ") for key in record["metrics"]["copula"]["values"]]
    continuous = [name for kind, _, name in keys if kind == "MAE"]
    labels = [name for kind, _, name in keys if kind == "AUC"]
    domains = record["configuration"]["data"].get("layout", {}).get("domains", EYES)
    return (*continuous, *labels), len(continuous), tuple(domains)


def fit_records(folder: Path, study: str, identity: str | None = None) -> list[dict[str, Any]]:
    """Return the folds of one fit from a folder of records: of the newest fit, or of the one that
    ``identity`` is of.

    Raises
    ------
    ProvenanceError
        There is no such record.
    """
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


def arm_means(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return each arm's metrics as means over the folds, and over how many where not all have
    one.
    """
    metrics = [record["metrics"] for record in records]
    values = [pd.DataFrame({arm: of["values"] for arm, of in each.items()}) for each in metrics]
    folds = pd.concat(values).astype(float).groupby(level=0, sort=False)
    text, count = folds.mean().map(lambda mean: f"{mean:.3g}", na_action="ignore"), folds.count()
    return text.where(count == len(records), text + " (" + count.astype(str) + ")")


def pool(records: list[dict[str, Any]]) -> Judged:
    """Lay the folds of a fit together."""
    responses, _, domains = responses_of(records[0])
    parts = []
    for record in records:
        stored = record["predictions"]
        y = np.array(stored["y"], dtype=float)  # None is NaN
        said = stored_predictions(record, responses, "copula")
        parts.append(judge(said, y, stored.get("usual", {}), domains))
    return joined(parts)
