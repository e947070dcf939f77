"""Tables of the simulation study: from its records to tidy frames and what the page says.

Nothing here fits or draws; rules and the arithmetic of gains stand in ``studies.verdicts``.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t

from studies.study import Grid
from studies.verdicts.later import LATE, PLATEAU
from studies.verdicts.predictions import (
    MATCHED,
    ONE_STAGE,
    gains,
    judge_predictions,
    squared_error,
)
from studies.verdicts.simulation import READINGS, column, dataset_means, interval

METRICS = {
    "MAE_L": "MAE y1",
    "MAE_R": "MAE y2",
    "ACC_L": "ACC y3",
    "ACC_R": "ACC y4",
    "AUC_L": "AUC y3",
    "AUC_R": "AUC y4",
    "RMSE_L": "RMSE y1",
    "RMSE_R": "RMSE y2",
    "Brier_L": "Brier y3",
    "Brier_R": "Brier y4",
    "ACC by joint rule_L": "ACC joint rule y3",
    "ACC by joint rule_R": "ACC joint rule y4",
    "RMSE to truth_L": "RMSE to truth y1",
    "RMSE to truth_R": "RMSE to truth y2",
    "joint ACC": "joint ACC",
    "joint ACC by margins": "joint ACC marginal rule",
    "log-likelihood": "log-likelihood",
}
"""Name in the tables -> name in the records; the left eye is domain 1."""
PRINTED = ("MAE_L", "MAE_R", "ACC_L", "ACC_R", "AUC_L", "AUC_R")


def sign(metric: str) -> int:
    """Return 1 for a metric of which less is better, otherwise -1."""
    return 1 if metric.startswith(("MAE", "RMSE", "Brier")) else -1


def both_eyes(values: dict[str, float | None]) -> dict[str, float]:
    """Return an arm's metrics by the tables' names, and the mean of both eyes; what was not defined
    is NaN.
    """
    found = {
        name: float("nan") if values[own] is None else float(values[own])
        for name, own in METRICS.items()
        if own in values
    }
    stems = [name.removesuffix("_L") for name in found if name.endswith("_L")]
    return found | {stem: (found[f"{stem}_L"] + found[f"{stem}_R"]) / 2 for stem in stems}


BEST = tuple(filter(None, READINGS.values()))  # all but the last epoch
COLUMNS = ("RMSE to truth", "MAE", "AUC", "joint ACC", "log-likelihood")
STEPS = {
    "learned weights": ("empirical", "uncertainty"),
    "sigma, re-estimated": ("empirical", "independence"),
    "more weight on lengths": ("independence", MATCHED),
    "dependence, estimated": (MATCHED, ONE_STAGE),
    "the true Gamma": (ONE_STAGE, "one stage, true Gamma"),
}
"""What changes from one arm to the next; all but the first are steps of one path."""

LATE_LEARNER = 1.5
"""Times the squared error of the median network: well above the spread of networks that learn."""
BY_SIZE = ("empirical", MATCHED, ONE_STAGE)


def arms_table(records: list[dict], again: list[dict] = ()) -> pd.DataFrame:
    """Return a row for each arm: means over the fits, both eyes together, and how much less squared
    error than the empirical loss it has, in per cent.

    ``gain`` has its 95 % interval; at the best epochs, an arm's own and that of the common
    criterion, the empirical loss is read there, too. With a rate and epochs of its own an arm is
    compared with the empirical loss at the common ones, and folds whose network learnt next to
    nothing are counted. ``second run`` is the gain in another run of the fits, with the number of
    networks that have over ``LATE_LEARNER`` times the squared error of their arm's median.
    """
    rows, runs = {}, {"gain": records} | ({"second run": again} if again else {})
    names = records[0]["metrics"]
    for arm in (name for name in names if ", at " not in name and ", tuned" not in name):
        means = pd.DataFrame([both_eyes(record["metrics"][arm]) for record in records]).mean()
        row = {name: f"{means.get(name, 0.0):.4f}" for name in COLUMNS}
        if arm not in ("truth", "empirical"):
            for run, own in runs.items():
                if arm in own[0]["metrics"]:
                    error = squared_error(own, arm)
                    late = int((error > LATE_LEARNER * np.median(error)).sum())
                    row[run] = percent(gains(own, arm, "empirical")) + f"; {late} late" * (late > 0)
            best = (gains(records, arm + end, f"empirical{end}").mean() for end in BEST)
            row["best epochs"] = ", ".join(f"{100 * share:.1f}" for share in best)
        if (tuned := f"{arm}, tuned") in names:
            fail = int((column(records, tuned, "RMSE to truth").mean(1) > PLATEAU).sum())
            row["tuned"] = percent(gains(records, tuned, "empirical"))
            row["tuned"] += f"; {fail} fail" * (fail > 0)
        rows[arm] = row
    order = [COLUMNS[0], *runs, "best epochs", "tuned", *COLUMNS[1:]]
    return pd.DataFrame(rows).T.reindex(columns=order).fillna("")


def percent(values: Iterable[float]) -> str:
    """Return ``8.1 (6.0 to 10.2)``, in per cent, for one share a data set."""
    low, mean, high = (100 * each for each in interval(values))
    return f"{mean:.1f}" + (f" ({low:.1f} to {high:.1f})" if np.isfinite(low) else "")


def waterfall(records: list[dict]) -> pd.DataFrame:
    """Return what each step takes away of the empirical loss's squared error at the last epoch.

    Returns
    -------
    DataFrame
        ``step, low, mean, high`` in per cent, over data sets.
    """
    rows, whole = [], dataset_means(records, squared_error(records, "empirical"))
    for step, pair in STEPS.items():
        before, after = (dataset_means(records, squared_error(records, arm)) for arm in pair)
        low, mean, high = (100 * each for each in interval((before - after) / whole))
        rows.append({"step": step, "low": low, "mean": mean, "high": high})
    return pd.DataFrame(rows)


def candidates(records: list[dict]) -> pd.DataFrame:
    """Return the mean held-out criterion of each arm's last epoch by epochs and rate; the smallest
    is the arm's choice.
    """
    rows = []
    for record in records:
        recipe = record["configuration"]["recipe"]
        name = f"{recipe['epochs']} epochs, {recipe['learning_rate']:g}"
        for arm, trace in record["trace"].items():
            rows.append({"arm": arm, "candidate": name, "value": trace["common criterion"][-1]})
    frame = pd.DataFrame(rows, columns=["arm", "candidate", "value"])
    return frame.pivot_table("value", "arm", "candidate", sort=False)


def by_size(records: list[dict]) -> pd.DataFrame:
    """Return the error of each fold's network by the number of patients, of epochs, and arm.

    Returns
    -------
    DataFrame
        ``n, epochs, arm, dataset, fold``; ``error``, the RMSE to truth, above ``PLATEAU`` for a
        network that learnt next to nothing; ``chosen``, whether the arm's median held-out criterion
        is smaller after so many epochs than after others (one network that learnt nothing does not
        move a median).
    """
    rows = []
    for record in records:
        c = record["configuration"]
        for arm in BY_SIZE:
            error = column([record], arm, "RMSE to truth").mean()
            held_out = record["trace"][arm]["common criterion"][-1]
            key = (c["n"], c["recipe"]["epochs"], arm, c["dataset"], c["fold"])
            rows.append((*key, error, held_out))
    names = ["n", "epochs", "arm", "dataset", "fold", "error", "held out"]
    frame = pd.DataFrame(rows, columns=names)
    medians = frame.groupby(names[:3])["held out"].median()
    chosen = medians.groupby(["n", "arm"]).transform("min") == medians
    return frame.join(chosen.rename("chosen"), names[:3])


def gains_by_size(frame: pd.DataFrame) -> pd.DataFrame:
    """Return by the numbers of patients and epochs in how many folds all arms learnt, and there the
    gain of one stage in per cent, with its 95 % interval over data sets.
    """
    rows = {}
    for key, own in frame.groupby(["n", "epochs"]):
        errors = own.pivot_table("error", ["dataset", "fold"], "arm")
        learnt = errors[(errors <= PLATEAU).all(axis=1)]
        means = learnt.pow(2).groupby("dataset").mean()
        told = {"folds": len(errors), "learnt": len(learnt)}
        for control in BY_SIZE[:-1] if len(means) > 1 else ():
            told[f"over {control}"] = percent(1 - means[ONE_STAGE] / means[control])
        rows[key] = told
    table = pd.DataFrame.from_dict(rows, orient="index").fillna("")
    return table.rename_axis(["patients", "epochs"])


def features_correlations(records: list[dict]) -> dict[float, float]:
    """Return the mean correlation of the two eyes' features in trained networks by that of the
    images: what stands for r in a network's gain.
    """
    found: dict[float, list[float]] = {}
    for record in records:
        seen = record["trace"][ONE_STAGE]["features' correlation"]
        found.setdefault(record["configuration"]["pixel_correlation"], []).extend(seen)
    return {r: float(np.mean(seen)) for r, seen in sorted(found.items())}


def stuck(records: list[dict]) -> pd.DataFrame:
    """Return by correlation of the images how one stage begins, and how many of its networks learn
    next to nothing.

    Returns
    -------
    DataFrame
        ``r``; ``first rho12``, mean estimate after the first epoch; ``failed`` of ``fits``, and
        ``failed, later`` where the first estimate is that of a later epoch.
    """
    frame = pd.DataFrame(
        {
            "r": [r["configuration"]["pixel_correlation"] for r in records],
            "first rho12": [r["trace"][ONE_STAGE]["rho12"][0] for r in records],
            "failed": column(records, ONE_STAGE, "RMSE to truth").mean(1) > PLATEAU,
            "failed, later": column(records, LATE, "RMSE to truth").mean(1) > PLATEAU,
            "fits": 1,
        }
    )
    return frame.groupby("r").agg({"first rho12": "mean"} | dict.fromkeys(frame.columns[2:], "sum"))


def sigmas(records: list[dict]) -> pd.DataFrame:
    """Return sigma of the left length by epoch, mean over fits: what uncertainty weighting learns,
    and what held-out outputs say of the same network and of others.

    Returns
    -------
    DataFrame
        ``method, epoch, sigma``.
    """
    columns = {
        "learned weights: sigma that it learns": ("uncertainty", "sigma1"),
        "learned weights: held-out sigma": ("uncertainty", "held-out sigma1"),
        "independence: held-out sigma": ("independence", "sigma1"),
        "one stage: held-out sigma": (ONE_STAGE, "sigma1"),
    }
    rows = []
    for method, (arm, name) in columns.items():
        path = np.mean([record["trace"][arm][name] for record in records], axis=0)
        for epoch, sigma in enumerate(path, 1):
            rows.append({"method": method, "epoch": epoch, "sigma": sigma})
    return pd.DataFrame(rows)


def state(grid: Grid) -> dict:
    """Return what a figure says of its grid."""
    return {"note": grid.note, "smoke": grid.smoke}


def foretold(folder: Path | None = None) -> str:
    """Return a Markdown list of the predictions, what became of them, and their rules."""
    return "\n".join(
        f"- {claim.text} **{outcome.word[0].upper()}{outcome.word[1:]}**: {outcome.because}."
        f"<details><summary>Rule</summary>{claim.rule}</details>"
        for claim, outcome in judge_predictions(folder)
    )


def implied_pairs(d: float, p: float) -> int:
    """Return the number of pairs for which a paired t-test with Cohen's d_z = ``d`` gives the
    two-sided ``p``.
    """
    counts = np.arange(3, 2000)
    return int(counts[np.abs(2 * t.sf(abs(d) * np.sqrt(counts), counts - 1) - p).argmin()])
