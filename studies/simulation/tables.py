"""Tables of the simulation study: from its records to tidy frames, paired comparisons and the
sentences of the page.

Nothing here fits or draws, and no finding is written down: a sentence is made from the records when
the page is made. A grid that is not complete says so (``37 of 50 folds``) wherever its numbers are
shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t, ttest_ind

from cevit_lib.records import paper_numbers
from studies.comparison import compare_paired
from studies.study import Grid
from studies.verdicts.runs import CONTROL, PAPERS_ARM, gain_verdict

NO_BREAK = "\N{NO-BREAK SPACE}"
BAYES, BEST = "Bayes-optimal", ", at its best epoch"
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
QUESTIONS = (
    ("empirical", "warm-up", "more epochs, same loss"),
    ("independence", "empirical", "re-weighting by sigma"),
    ("fmcem", "independence", "dependence as fMCEM sees it"),
    ("in-sample", "independence", "dependence, exact estimate in-sample"),
    ("held-out", "independence", "dependence, exact estimate held-out"),
    ("true", "independence", "dependence, true Gamma"),
    ("fmcem", "empirical", "the paper's copula loss at equal budget"),
    ("held-out", "empirical", "copula loss, held-out estimate, at equal budget"),
    ("held-out", "fmcem", "exact held-out estimate instead of fMCEM"),
    ("true", "held-out", "the truth instead of an estimate"),
    ("fmcem", "warm-up", "the paper's copula loss against the warm-up"),
)
"""Arm, its control, and the one thing in which the two differ."""
FROM_SCRATCH = (
    ("independence at the true scale, from scratch", "warm-up", "re-weighting by sigma"),
    (
        "true, from scratch",
        "independence at the true scale, from scratch",
        "dependence, true Gamma",
    ),
    ("true, from scratch", "warm-up", "the whole copula loss, true Gamma"),
)
ADAPTERS = (
    ("empirical, adapters", "empirical", "adapters under the empirical loss"),
    ("held-out, adapters", "held-out", "adapters under the copula loss"),
    ("held-out, adapters", "empirical, adapters", "copula loss, both with adapters"),
)
ENTRIES = {
    "rho12": (0, 1),
    "rho13": (0, 2),
    "rho14": (0, 3),
    "rho23": (1, 2),
    "rho24": (1, 3),
    "rho34": (2, 3),
}
_FIT = ["dataset", "fold", "n", "strength", "epochs"]


def metrics_frame(records: Iterable[dict]) -> pd.DataFrame:
    """Return one row per fit, arm, epoch and metric, with its excess over the Bayes-optimal row.

    Returns
    -------
    DataFrame
        Columns ``dataset, fold, n, strength, epochs, folds, arm, epoch ("last" or "best"), metric,
        value, excess``. ``excess`` is positive where an arm is worse than the true regression
        functions on the same patients. ``MAE``, ``ACC`` and the like without an eye are the mean of
        both eyes.
    """
    rows = []
    for record in records:
        c, metrics = record["configuration"], record["metrics"]
        key = {
            "dataset": c["dataset"],
            "fold": c["fold"],
            "n": c["n"],
            "strength": c["strength"],
            "epochs": c["warm_up"]["epochs"],
            "folds": c["folds"],
        }
        floor = both_eyes(metrics[BAYES])
        for name, values in metrics.items():
            arm = name.removesuffix(BEST) + (
                ", adapters" if c["adapters"] and name != BAYES else ""
            )
            epoch = "best" if name.endswith(BEST) else "last"
            for metric, value in both_eyes(values).items():
                excess = sign(metric) * (value - floor.get(metric, 0.0))
                rows.append(
                    {
                        **key,
                        "arm": arm,
                        "epoch": epoch,
                        "metric": metric,
                        "value": value,
                        "excess": excess,
                    }
                )
    return pd.DataFrame(rows)


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


def paired_values(
    frame: pd.DataFrame, a: str, b: str, metric: str, epoch: str = "last"
) -> pd.DataFrame:
    """Return one row per fit that has both arms: values ``a`` and ``b`` and the control's
    ``excess``.
    """
    chosen = frame[(frame["metric"] == metric) & (frame["epoch"] == epoch)]
    one = chosen[chosen["arm"] == a].set_index([*_FIT, "folds"])["value"].rename("a")
    other = chosen[chosen["arm"] == b].set_index([*_FIT, "folds"])[["value", "excess"]]
    joined = other.rename(columns={"value": "b"}).join(one, how="inner")
    return joined.replace([np.inf, -np.inf], np.nan).dropna(subset=["a", "b"]).reset_index()


def compare(
    frame: pd.DataFrame, a: str, b: str, metric: str, epoch: str = "last", label: str = ""
) -> dict[str, Any]:
    """Compare two arms on the same folds; the interval and the word take data sets as the
    independent units.

    Returns
    -------
    dict
        Means, ``difference`` (a - b), ``low`` and ``high`` (95 %, over data sets; NaN with fewer
        than two), ``d_z``, ``d_av``, three p-values, ``room`` (share of the control's excess that
        went away) and ``word``.
    """
    pairs = paired_values(frame, a, b, metric, epoch)
    row: dict[str, Any] = {
        "label": label or f"{a} against {b}",
        "a": a,
        "b": b,
        "metric": metric,
        "epoch": epoch,
        "folds": len(pairs),
        "datasets": pairs["dataset"].nunique(),
    }
    nothing = dict.fromkeys(
        ("difference", "low", "high", "d_z", "d_av", "p", "p_corrected", "p_datasets"), math.nan
    )
    row |= {"mean_a": pairs["a"].mean(), "mean_b": pairs["b"].mean(), "room": math.nan, **nothing}
    if len(pairs) > 1:
        share = 1 / pairs["folds"].iloc[0]
        by_fold = compare_paired(
            pairs["a"], pairs["b"], datasets=pairs["dataset"], test_share=share
        ).to_dict()
        row |= {key: by_fold[key] for key in nothing if key not in ("low", "high")}
        means = pairs.groupby("dataset")[["a", "b"]].mean()
        if len(means) > 1:
            by_set = compare_paired(means["a"], means["b"])
            row |= {"low": by_set.low, "high": by_set.high}
        excess = pairs["excess"].mean()
        row["room"] = -sign(metric) * row["difference"] / excess if excess > 0 else math.nan
    return row | {"word": word(row)}


def word(row: dict[str, Any]) -> str:
    """Return better, worse, or not distinguishable, by whether the interval over data sets leaves
    out zero.
    """
    low, high = row["low"], row["high"]
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no verdict (too few data sets)"
    if low <= 0 <= high:
        return "not distinguishable"
    return "better" if sign(row["metric"]) * row["difference"] < 0 else "worse"


def comparisons(
    frame: pd.DataFrame,
    metrics: Iterable[str] = ("MAE", "AUC"),
    epoch: str = "last",
    questions: Iterable[tuple[str, str, str]] = QUESTIONS,
) -> pd.DataFrame:
    """Return one row per metric and question whose two arms were fitted."""
    arms = set(frame["arm"])
    asked = [q for q in questions if {q[0], q[1]} <= arms]
    return pd.DataFrame(
        [compare(frame, a, b, m, epoch, label) for m in metrics for a, b, label in asked]
    )


def say(row: Any) -> str:
    """Return a comparison as one sentence, direction included, from its numbers alone."""
    unit = f"{row['datasets']} data set{'s' if row['datasets'] != 1 else ''}, {row['folds']} folds"
    spread = (
        f"95 % interval {row['low']:+.4f} to {row['high']:+.4f}; "
        if math.isfinite(row["low"])
        else ""
    )
    room = ""
    if math.isfinite(row["room"]):
        taken = "less" if row["room"] > 0 else "more"
        room = f", {abs(row['room']):.1%} {taken} excess over the floor than the control"
    effect = f", d_z = {row['d_z']:+.2f}" if math.isfinite(row["d_z"]) else ""
    return (
        f"{row['label']}: {row['metric']} {row['mean_a']:.4f} against {row['mean_b']:.4f}, "
        "difference "
        f"{row['difference']:+.4f} ({spread}{unit}){room}{effect}: **{row['word']}**."
    )


def say_all(rows: pd.DataFrame) -> str:
    """Return a Markdown list with one sentence a row."""
    return "\n".join(f"- {say(row)}" for row in rows.to_dict("records"))


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return comparisons as a table to read: difference, interval, share of the excess removed,
    d_z, and the word.
    """
    told = [
        {
            "comparison": row["label"],
            "metric": row["metric"],
            "difference": f"{row['difference']:+.4f}",
            "95 % interval": f"{row['low']:+.4f} to {row['high']:+.4f}".replace(" ", NO_BREAK)
            if math.isfinite(row["low"])
            else "-",
            "excess removed": f"{row['room']:+.1%}" if math.isfinite(row["room"]) else "-",
            "d_z": f"{row['d_z']:+.2f}" if math.isfinite(row["d_z"]) else "-",
            "result": row["word"],
        }
        for row in rows.to_dict("records")
    ]
    return pd.DataFrame(told).set_index("comparison")


def means(
    frame: pd.DataFrame, metrics: Iterable[str], column: str = "value", epoch: str = "last"
) -> pd.DataFrame:
    """Return arms in rows and metrics in columns: means over all fits of ``column`` (``value`` or
    ``excess``).
    """
    chosen = frame[frame["epoch"] == epoch]
    table = chosen.pivot_table(column, "arm", "metric", aggfunc="mean", sort=False)
    return table[[metric for metric in metrics if metric in table]]


def gamma_frame(records: Iterable[dict]) -> pd.DataFrame:
    """Return the error of each correlation: columns ``dataset, fold, n, strength, epochs, estimate,
    entry, error``.
    """
    rows = []
    for record in records:
        c, parameters = record["configuration"], record["parameters"]
        truth = np.array(parameters["true"]["correlation"])
        for name, value in parameters.items():
            error = np.array(value["correlation"]) - truth
            rows += [
                {
                    "dataset": c["dataset"],
                    "fold": c["fold"],
                    "n": c["n"],
                    "strength": c["strength"],
                    "epochs": c["warm_up"]["epochs"],
                    "estimate": name,
                    "entry": entry,
                    "error": error[at],
                }
                for entry, at in ENTRIES.items()
                if name != "true"
            ]
    return pd.DataFrame(rows)


def gamma_errors(records: Iterable[dict]) -> dict[str, np.ndarray]:
    """Return estimate -> (4, 4) matrix of mean errors of Gamma, the heat map of the paper's Section
    5.
    """
    mean = gamma_frame(records).groupby(["estimate", "entry"], sort=False)["error"].mean()
    found, upper = {}, tuple(zip(*ENTRIES.values(), strict=True))
    for estimate in mean.index.unique("estimate"):
        matrix = np.zeros((4, 4))
        matrix[upper] = mean[estimate][list(ENTRIES)]
        found[estimate] = matrix + matrix.T
    return found


def left_behind(frame: pd.DataFrame, metric: str, by: float, epoch: str = "last") -> pd.DataFrame:
    """Return for each arm how many folds exceed the floor by more than ``by``, and the mean of its
    other folds.
    """
    own = frame[(frame["metric"] == metric) & (frame["epoch"] == epoch) & (frame["arm"] != BAYES)]
    late = own.assign(late=own["excess"] > by).groupby("arm", sort=False)
    rest = own[own["excess"] <= by].groupby("arm", sort=False)["value"].mean()
    return pd.DataFrame(
        {
            f"folds more than {by:g} below the floor": late["late"].sum(),
            "of": late.size(),
            f"mean {metric} of the others": rest.round(4),
        }
    )


def say_gamma(records: list[dict], entries: Iterable[str] = ("rho12", "rho34")) -> str:
    """Return for each estimate the mean error of some correlations with its standard error over
    data sets.
    """
    frame, lines = gamma_frame(records), []
    for estimate, own in frame.groupby("estimate", sort=False):
        parts = []
        for entry in entries:
            means = own[own["entry"] == entry].groupby("dataset")["error"].mean()
            error = (
                f" (SE {means.std(ddof=1) / math.sqrt(len(means)):.3f})" if len(means) > 1 else ""
            )
            parts.append(f"{entry} {means.mean():+.3f}{error}")
        lines.append(f"- {estimate}: mean error of {', of '.join(parts)}")
    return "\n".join(lines)


def table_one(grid: Grid) -> pd.DataFrame:
    """Return the paper's Table 1, Cohen's d_z with p-value in brackets, beside ours and a verdict
    by rule.

    The printed row compares "CeViT" with "ViT". Two rows of ours can be meant by it: against the
    warm-up, and against the same number of epochs under the empirical loss. The verdict's rule asks
    for both.
    """
    frame = metrics_frame(grid.records)
    printed = paper_numbers("table_simulation")["comparisons"]["CeViT vs. ViT"]
    rows = {
        "printed, CeViT vs. ViT": {
            m: _cell(e["d"], e.get("p"), e.get("p_below")) for m, e in printed.items()
        }
    }
    pairs = [
        (PAPERS_ARM, CONTROL),
        (PAPERS_ARM, "warm-up"),
        ("held-out", CONTROL),
        ("true", CONTROL),
    ]
    for a, b in pairs:
        found = {m: compare(frame, a, b, m) for m in PRINTED}
        rows[f"{a} against {b} ({grid.note})"] = {
            m: _cell(r["d_z"], r["p"]) for m, r in found.items()
        }
        if (a, b) == pairs[0]:
            rows["p with data sets as units"] = {
                m: _probability(r["p_datasets"]) for m, r in found.items()
            }
            rows["d_av instead of d_z"] = {m: f"{r['d_av']:+.2f}" for m, r in found.items()}
    if grid.smoke or not grid.complete:
        rows["verdict"] = dict.fromkeys(
            PRINTED, "smoke run" if grid.smoke else f"not run yet: {grid.note}"
        )
    else:
        rows["verdict"] = {m: gain_verdict(grid.records, (m,)).word for m in PRINTED}
    return pd.DataFrame(rows).T[list(PRINTED)]


def _cell(d: float, p: float | None, below: float | None = None) -> str:
    if not math.isfinite(d):
        return "-"
    return f"{d:+.2f} ({f'<{below:g}' if below else _probability(p)})"


def _probability(p: float | None) -> str:
    return "-" if p is None or not math.isfinite(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def implied_pairs(d: float, p: float) -> int:
    """Return the number of pairs for which a paired t-test with Cohen's d_z = ``d`` gives the
    two-sided ``p``.
    """
    counts = np.arange(3, 2000)
    return int(counts[np.abs(2 * t.sf(abs(d) * np.sqrt(counts), counts - 1) - p).argmin()])


def tuning_frame(records: Iterable[dict]) -> pd.DataFrame:
    """Return one row per candidate: held-out loss of the warm-up at its last and best epoch, the
    best row first.
    """
    rows = []
    for record in records:
        c = record["configuration"]["warm_up"]
        trace = [entry for entry in record["trace"] if entry["stage"] == "warm-up"]
        losses = np.array([entry["validation_loss"] for entry in trace], dtype=float).tolist()
        rows.append(
            {
                "learning rate": c["learning_rate"],
                "epochs": c["epochs"],
                "last epoch": losses[-1],
                "best epoch": min(losses),
            }
        )
    groups = pd.DataFrame(rows).groupby(["learning rate", "epochs"])
    table = groups.mean().assign(
        **{"SD of folds": groups["last epoch"].std(), "folds": groups.size()}
    )
    return table.sort_values("last epoch").reset_index()


def sensitivity(
    grids: Iterable[Grid],
    by: str,
    control: str,
    arms: Iterable[str],
    metric: str = "MAE",
    epoch: str = "last",
) -> pd.DataFrame:
    """Return one row per arm and value of ``by`` (``n``, ``strength`` or ``epochs``): its
    comparison with the control.

    A further column ``estimate_error`` has the arm's entry of ``estimate_errors``; NaN where it
    uses none.
    """
    grids, rows = list(grids), []
    frame = metrics_frame([record for grid in grids for record in grid.records])
    errors = estimate_errors(grids, by).set_index([by, "a"])["estimate_error"]
    for value, own in frame.groupby(by):
        there = set(own["arm"])
        for arm in arms:
            if {arm, control} <= there:
                error = errors.get((value, arm), math.nan)
                label = f"{by} = {value:g}, {arm} against {control}"
                rows.append(
                    {
                        by: value,
                        "estimate_error": error,
                        **compare(own, arm, control, metric, epoch, label),
                    }
                )
    return pd.DataFrame(rows)


def by_epochs(grids: Iterable[Grid]) -> pd.DataFrame:
    """Return mean MAE and log-likelihood per new patient of each arm, one row per length of the
    warm-up.
    """
    frame = metrics_frame([record for grid in grids for record in grid.records])
    arms = ["empirical", "fmcem", "in-sample", "held-out", "true"]
    own = frame[(frame["epoch"] == "last") & frame["arm"].isin(arms)]
    metrics = {"MAE": ["MAE_L", "MAE_R"], "log-likelihood": ["log-likelihood"]}
    parts = {
        metric: own[own["metric"].isin(names)].pivot_table(
            index="epochs", columns="arm", values="value"
        )[arms]
        for metric, names in metrics.items()
    }
    return pd.concat(parts, axis=1)


def say_by_epochs(grids: Iterable[Grid], metrics: Iterable[str] = ("MAE", "log-likelihood")) -> str:
    """Return what a held-out estimate does against the two from training outputs, after each length
    of the warm-up.
    """
    lines = []
    for metric in metrics:
        for control in ("in-sample", "fmcem"):
            rows = sensitivity(grids, "epochs", control, ("held-out",), metric)
            told = ", ".join(
                f"{row['word']} after {row['epochs']:g}" for row in rows.to_dict("records")
            )
            lines.append(f"- {metric}, held-out estimate against {control}: {told} epochs.")
    return "\n".join(lines)


def estimate_errors(grids: Iterable[Grid], by: str) -> pd.DataFrame:
    """Return the mean absolute error of the six correlations by setting and estimate (column
    ``a``).
    """
    frame = gamma_frame([record for grid in grids for record in grid.records])
    mean = frame.assign(estimate_error=frame["error"].abs()).groupby([by, "estimate"], sort=False)[
        "estimate_error"
    ]
    return mean.mean().reset_index().rename(columns={"estimate": "a"})


def against_start(grid: Grid) -> pd.DataFrame:
    """Return, by number of patients, the warm-up's AUC and MAE, and how far each arm's MAE is from
    its warm-up's.
    """
    frame, rows = metrics_frame(grid.records), {}
    for n, own in frame[frame["epoch"] == "last"].groupby("n"):
        area = _warm_ups(own, "AUC")
        told = {
            "AUC of warm-ups": f"{area.mean():.3f} ({area.min():.3f} to {area.max():.3f})",
            "MAE": f"{_warm_ups(own, 'MAE').mean():.3f}",
        }
        arms = [arm for arm in own["arm"].unique() if arm not in ("warm-up", BAYES)]
        rows[n] = told | {
            arm: f"{compare(own, arm, 'warm-up', 'MAE')['difference']:+.3f}" for arm in arms
        }
    return pd.DataFrame(rows).T.rename_axis("patients")


def say_steps(size: Grid, steps: Grid, metrics: Iterable[str] = ("AUC", "MAE")) -> str:
    """Return what more steps on the same number of patients do to the warm-up; data sets differ, so
    Welch intervals.
    """
    told: dict[int, list[str]] = {}
    for metric in metrics:
        folds = [_warm_ups(metrics_frame(grid.records), metric) for grid in (size, steps)]
        few, many = (dict(list(own.groupby(["n", "dataset"]).mean().groupby("n"))) for own in folds)
        for n in sorted(few.keys() & many.keys()):
            low = high = math.nan
            if min(len(few[n]), len(many[n])) > 1:
                low, high = ttest_ind(many[n], few[n], equal_var=False).confidence_interval()
            row = {
                "metric": metric,
                "difference": many[n].mean() - few[n].mean(),
                "low": low,
                "high": high,
            }
            spread = (
                f" (95 % interval of the difference {low:+.3f} to {high:+.3f})"
                if math.isfinite(low)
                else ""
            )
            means = f"{metric} {many[n].mean():.3f} instead of {few[n].mean():.3f}"
            told.setdefault(n, []).append(f"{means}{spread}: **{word(row)}**")
    return "\n".join(f"- {n:,} patients: {'; '.join(parts)}." for n, parts in told.items())


def _warm_ups(frame: pd.DataFrame, metric: str) -> pd.Series:
    """Return the warm-up's metric at its last epoch by number of patients, data set and fold."""
    own = frame[
        (frame["epoch"] == "last") & (frame["arm"] == "warm-up") & (frame["metric"] == metric)
    ]
    return own.groupby(["n", "dataset", "fold"])["value"].mean()


def epoch_price(records: Iterable[dict]) -> float:
    """Return the seconds of an epoch under the copula loss over those under the empirical one,
    medians over fits.
    """
    entries = [entry for record in records for entry in record["trace"]]
    seconds = pd.DataFrame(entries).groupby("stage")["seconds"].median()
    return float(
        seconds[["independence", "fmcem", "in-sample", "held-out", "true"]].median()
        / seconds["empirical"]
    )


def curves(records: Iterable[dict]) -> pd.DataFrame:
    """Return the mean training and held-out loss over fits, by stage and epoch."""
    frame = pd.DataFrame([entry for record in records for entry in record["trace"]])
    groups = frame.astype({"validation_loss": float}).groupby(["stage", "epoch"], sort=False)
    return groups[["loss", "validation_loss"]].mean().reset_index()


def costs(records: Iterable[dict]) -> pd.DataFrame:
    """Return seconds of one fit by stage: what all fits of a program took, shared out over them."""
    times = pd.DataFrame([record["times"] for record in records])
    seconds = times.filter(like=" (all fits)").div(times["fits"], axis=0).mean()
    seconds.index = seconds.index.str.removesuffix(" (all fits)")
    return seconds.rename("seconds a fit").to_frame()
