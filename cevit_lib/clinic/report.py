"""The command ``cevit report``: one page on a fit, complete in itself, from its records alone."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cevit_lib.clinic.page import write_page
from cevit_lib.clinic.performance import (
    Judged,
    in_words,
    joined,
    judge,
    questions,
    resampled,
    stated_by,
)
from cevit_lib.clinic.report_figures import plot_correlation
from cevit_lib.clinic.tables import Domains, own_or_new, stored_predictions
from cevit_lib.datasets.layout import EYES
from cevit_lib.errors import ProvenanceError
from cevit_lib.records import badge, load_records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Records = list[dict[str, Any]]


def run_report(options: argparse.Namespace) -> int:
    """Write the page; return 0."""
    own_or_new(options.output)
    records = fit_records(options.results, options.study)
    stated = stated_by(options, questions(*responses_of(records[0])))
    judged, open_ends = pool(records), unsettled(records)
    stated, found = resampled(judged, stated)
    first, folds = records[0], f"{len(records)} of {records[0]['configuration']['folds']} folds"
    write_page(
        options.output,
        judged,
        stated,
        found,
        options.level,
        title=f"Report on {first['data']['name']}",
        record=first,
        responses=responses_of(first)[0],
        folds=folds,
        doubts=open_ends,
        flow=first["data"].get("flow"),
        groups=_folds(records),
        arms=arm_means(records),
        correlation=_correlation(records),
        badge=badge(records),
        origin=f"Data {first['data']['hash']}; records {', '.join(one['id'] for one in records)}",
    )
    print(f"report on {len(records)} folds in {options.output} (not for clinical use)")
    print(in_words(found), *open_ends, sep="\n")
    return 0


def _folds(records: Records) -> dict[str, slice]:
    """Return the rows of each fold."""
    stops = np.cumsum([0, *(len(record["predictions"]["id"]) for record in records)])
    names = [f"fold {record['configuration']['fold']}" for record in records]
    return dict(zip(names, map(slice, stops[:-1], stops[1:]), strict=True))


def _correlation(records: Records) -> Figure:
    found = np.array([record["parameters"]["correlation"] for record in records])
    panels = {"mean of the folds": found.mean(0)}
    if len(found) > 1:
        panels["standard deviation"] = found.std(0, ddof=1)
    names = [name.replace("_", " ") for name in responses_of(records[0])[0]]
    return plot_correlation(panels, names)


def responses_of(record: dict[str, Any]) -> tuple[tuple[str, ...], int, Domains]:
    """Return the names of the responses of a record, how many are continuous, and what the left and
    the right one are called.
    """
    keys = [key.partition(" ") for key in record["metrics"]["copula"]["values"]]
    continuous = [name for kind, _, name in keys if kind == "MAE"]
    labels = [name for kind, _, name in keys if kind == "AUC"]
    domains = record["configuration"]["data"].get("layout", {}).get("domains", EYES)
    return (*continuous, *labels), len(continuous), tuple(domains)


def fit_records(folder: Path, study: str) -> Records:
    """Return the folds of the newest fit in a folder of records.

    Raises
    ------
    ProvenanceError
        There is no such record.
    """
    found = load_records(study, publication=False, folder=folder)
    newest = _kind(found[-1])
    same = [r for r in found if _kind(r) == newest and r["configuration"]["fold"]]
    if not same:
        raise ProvenanceError(
            f"{folder} holds no fold of that fit, only the one on all patients; fit the folds too."
        )
    return sorted(same, key=lambda record: record["configuration"]["fold"])


def unsettled(records: Records) -> list[str]:
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


def arm_means(records: Records) -> pd.DataFrame:
    """Return each arm's metrics as means over the folds, and over how many where not all have
    one.
    """
    metrics = [record["metrics"] for record in records]
    values = [pd.DataFrame({arm: of["values"] for arm, of in each.items()}) for each in metrics]
    folds = pd.concat(values).astype(float).groupby(level=0, sort=False)
    text, count = folds.mean().map(lambda mean: f"{mean:.3g}", na_action="ignore"), folds.count()
    return text.where(count == len(records), text + " (" + count.astype(str) + ")")


def pool(records: Records) -> Judged:
    """Lay the folds of a fit together."""
    responses, _, domains = responses_of(records[0])
    parts = []
    for record in records:
        stored = record["predictions"]
        y = np.array(stored["y"], dtype=float)  # None is NaN
        said = stored_predictions(record, responses, "copula")
        parts.append(judge(said, y, stored.get("usual", {}), domains))
    return joined(parts)
