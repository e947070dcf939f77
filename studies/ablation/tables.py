"""Tables of the ablation on real eyes: from its records to frames, comparisons in the layout of
Table 2, and sentences.

Nothing here fits or draws. An incomplete grid says so, a comparison says what it cannot conclude,
and no finding is written down: sentences are put together from the records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pingouin

from cevit_lib.records import paper_numbers
from studies.comparison import compare_paired
from studies.simulation.tables import PRINTED, both_eyes, sign
from studies.study import Grid, find

ENTRIES = {
    "rho12": (0, 1),
    "rho13": (0, 2),
    "rho14": (0, 3),
    "rho23": (1, 2),
    "rho24": (1, 3),
    "rho34": (2, 3),
}
TABLE_TWO = {
    "CeViT-A vs. CeViT": ("{copula}, adapters", "{copula}"),
    "ViT-A vs. ViT": ("empirical, adapters", "empirical"),
    "CeViT vs. ViT": ("{copula}", "empirical"),
    "CeViT-A vs. ViT-A": ("{copula}, adapters", "empirical, adapters"),
}
"""The paper's comparisons as arms; ``{copula}`` is ``fmcem`` (the paper's) or ``cross-fitted``."""
CONTROLS = (
    ("empirical", "warm-up", "more epochs, same loss"),
    ("independence", "empirical", "re-weighting by sigma"),
    ("fmcem", "independence", "dependence, fMCEM in-sample"),
    ("cross-fitted", "independence", "dependence, exact cross-fitted estimate"),
    ("cross-fitted", "fmcem", "cross-fitted instead of fMCEM"),
    ("cross-fitted", "empirical", "the whole copula loss (CeViT, ViT)"),
    ("cross-fitted", "warm-up", "CeViT against its own warm-up"),
)
ESTIMATES = ("fmcem", "cross-fitted")
COMPARED = {
    "difference": "difference",
    "d_z": "d_z",
    "d_av": "d_av",
    "p": "p",
    "p_corrected": "p_corrected",
    "low": "low_corrected",
    "high": "high_corrected",
}
"""A comparison's columns, and what ``compare_paired`` calls them."""
RIVALS = ("constant", "PCA of pixels", "frozen encoder")


def all_parts(studies: Iterable[str], scale: str, folder: Any = None) -> dict[str, Grid]:
    """Return the grids of several parts; a stored part without any record is an empty grid, which
    its note says."""
    return {name: find(name).collect(scale, folder, name == "ablation") for name in studies}


def metrics_frame(records: Iterable[dict]) -> pd.DataFrame:
    """Return one row per fit, arm and metric.

    Returns
    -------
    DataFrame
        Columns ``seed, partition, fold, folds, weights, arm, metric, value``; an arm with adapters
        is named ``"empirical, adapters"``, one whose encoder has seen the test images ``"...,
        transductive"``. ``MAE``, ``ACC`` and the like without an eye are the mean of both eyes.
    """
    rows = []
    for record in records:
        c = record["configuration"]
        key = {
            "seed": record["seeds"][0],
            "partition": c["partition"],
            "fold": c["fold"],
            "folds": c["folds"],
            "weights": ((record["parameters"] or {}).get("weights") or {}).get("kind", "none"),
        }
        for name, values in record["metrics"].items():
            arm = name + (", adapters" if c.get("adapters") else "")
            arm += ", transductive" if key["weights"] == "mae-all" else ""
            known = both_eyes(values) if "MAE y1" in values else {}
            rows += [
                {**key, "arm": arm, "metric": metric, "value": value}
                for metric, value in known.items()
            ]
    return pd.DataFrame(rows)


def paired(frame: pd.DataFrame, a: str, b: str, metric: str) -> pd.DataFrame:
    """Return one row per seed and fold that has both arms; an arm without chance stands beside
    every seed."""
    columns, keys = ["seed", "partition", "fold", "folds", "value"], ["partition", "fold", "folds"]
    own = frame[frame["metric"] == metric]
    one, other = (own[own["arm"] == arm][columns] for arm in (a, b))
    by_chance = [arm["seed"].nunique() > 1 for arm in (one, other)]
    joined = one.merge(other, on=keys + ["seed"] * all(by_chance), suffixes=("", "_b"))
    joined = joined.rename(columns={"value": "a", "value_b": "b"})
    if by_chance == [False, True]:
        joined["seed"] = joined["seed_b"]
    return joined.dropna(subset=["a", "b"])[["seed", *keys, "a", "b"]]


def compare(frame: pd.DataFrame, a: str, b: str, metric: str, label: str = "") -> dict[str, Any]:
    """Compare two arms fold by fold, and say how small a difference such a study could have seen.

    Returns
    -------
    dict
        Means, ``difference`` (a - b), ``d_z``, ``d_av``, ``p`` (folds taken as independent),
        ``p_corrected`` (for the training patients that folds share) with ``low`` and ``high``, its
        95 % interval, ``smallest_d`` (the d_z that the corrected test finds with power 0.8),
        ``power`` (at a d_z of 0.5), and ``word``.
    """
    pairs = paired(frame, a, b, metric)
    found = dict.fromkeys((*COMPARED, "smallest_d", "power", "p_test_sets"), math.nan)
    if len(pairs) > 2:
        share = 1 / pairs["folds"].iloc[0]
        told = compare_paired(pairs["a"], pairs["b"], test_share=share).to_dict()
        found |= {name: told[own] for name, own in COMPARED.items()}
        found["smallest_d"] = smallest_detectable(len(pairs), share)
        found["power"] = power(0.5, len(pairs), share)
        # one difference a test set, the mean over its seeds
        sets = pairs.groupby(["partition", "fold"])[["a", "b"]].mean()
        if len(sets) > 2:
            by_set = compare_paired(sets["a"], sets["b"], test_share=share)
            found["p_test_sets"] = by_set.p_corrected
    row = {"label": label or f"{a} against {b}", "a": a, "b": b, "metric": metric, **found}
    row |= {"folds": len(pairs), "seeds": pairs["seed"].nunique()}
    row |= {"mean_a": pairs["a"].mean(), "mean_b": pairs["b"].mean()}
    return row | {"word": word(row)}


def inflated(folds: int, test_share: float) -> float:
    """Return by how much shared training patients inflate the variance of a mean of ``folds``
    differences."""
    return 1 + folds * test_share / (1 - test_share)


def power(d: float, folds: int, test_share: float) -> float:
    """Return the power of the two-sided corrected test at a true ``d_z``."""
    own = d / math.sqrt(inflated(folds, test_share))
    return float(pingouin.power_ttest(d=own, n=folds, contrast="paired"))


def smallest_detectable(folds: int, test_share: float) -> float:
    """Return the ``d_z`` that the corrected test finds with power 0.8."""
    own = pingouin.power_ttest(n=folds, power=0.8, contrast="paired")
    return float(own * math.sqrt(inflated(folds, test_share)))


def word(row: dict[str, Any]) -> str:
    """Return better, worse, or not distinguishable, by the interval of the corrected test."""
    if not math.isfinite(row["low"]):
        return "no verdict (too few folds, or no difference at all)"
    if row["low"] <= 0 <= row["high"]:
        return "not distinguishable"
    return "better" if sign(row["metric"]) * row["difference"] < 0 else "worse"


def comparisons(
    frame: pd.DataFrame,
    questions: Iterable[tuple[str, str, str]],
    metrics: Iterable[str] = ("MAE", "AUC"),
) -> pd.DataFrame:
    """Return one row per metric and question whose two arms are there."""
    arms = set(frame["arm"])
    asked = [q for q in questions if {q[0], q[1]} <= arms]
    return pd.DataFrame([compare(frame, a, b, m, label) for m in metrics for a, b, label in asked])


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return comparisons as a table to read."""
    told = [
        {
            "comparison": r["label"],
            "metric": r["metric"],
            "difference": f"{r['difference']:+.3f}",
            "95 % interval, corrected": f"{r['low']:+.3f} to {r['high']:+.3f}",
            "d_z": f"{r['d_z']:+.2f}",
            "d_av": f"{r['d_av']:+.2f}",
            "p": _probability(r["p"]),
            "p, corrected": _probability(r["p_corrected"]),
            "p, test sets": _probability(r["p_test_sets"]),
            "result": r["word"],
        }
        for r in rows.to_dict("records")
    ]
    return pd.DataFrame(told).set_index("comparison")


def table_two(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the layout of the paper's Table 2: Cohen's d_z and, in brackets, the plain and the
    corrected p-value.

    The printed row (other eyes, other images) stands above ours: one for each estimate where a
    copula takes part.
    """
    printed = paper_numbers("table_real_data")["comparisons"]
    rows = {}
    for name, arms in TABLE_TWO.items():
        rows[name, "printed"] = {
            m: f"{e['d']:+.2f} ({_printed(e)})" for m, e in printed[name].items()
        }
        estimates = ESTIMATES if "{copula}" in arms[0] else ("no copula",)
        for estimate in estimates:
            a, b = (arm.format(copula=estimate) for arm in arms)
            known = {a, b} <= set(frame["arm"])
            rows[name, estimate] = {
                m: _entry(compare(frame, a, b, m)) if known else "not run yet" for m in PRINTED
            }
    return pd.DataFrame(rows).T[list(PRINTED)]


def _entry(row: dict[str, Any]) -> str:
    if not math.isfinite(row["d_z"]):
        return "-"
    return f"{row['d_z']:+.2f} ({_probability(row['p'])}; {_probability(row['p_corrected'])})"


def _printed(entry: dict) -> str:
    return f"<{entry['p_below']:g}" if "p_below" in entry else f"{entry['p']:.3f}"


def _probability(p: float) -> str:
    return "-" if not math.isfinite(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


MEANS = ("MAE_L", "MAE_R", "AUC_L", "AUC_R", "Brier", "ACC", "joint ACC", "log-likelihood")


def means(frame: pd.DataFrame, metrics: Iterable[str] = MEANS) -> pd.DataFrame:
    """Return arms in rows and metrics in columns, means over all fits, and the weights that made
    each row."""
    table = frame.pivot_table("value", ["arm", "weights"], "metric", aggfunc="mean", sort=False)
    return table[[metric for metric in metrics if metric in table]].reset_index("weights")


def encoders(records: Iterable[dict]) -> pd.DataFrame:
    """Return what each fold's encoder was pre-trained on: images seen, those left out, steps, and
    images passed."""
    told = {r["configuration"]["fold"]: r["parameters"]["weights"] for r in records}
    columns = {
        "hash": "weights",
        "images_seen": "images seen",
        "images_of_test_patients": "left out: test patients'",
        "steps": "steps",
        "image_passes": "images passed",
    }
    table = pd.DataFrame.from_dict(told, orient="index").sort_index().rename_axis("fold")
    return table[[name for name in columns if name in table]].rename(columns=columns)


def say(row: dict[str, Any]) -> str:
    """Return a comparison as one sentence, with what it cannot conclude."""
    seeds = "1 seed" if row["seeds"] == 1 else f"{row['seeds']} seeds"
    text = (
        f"{row['label']}: {row['metric']} {row['mean_a']:.3f} against {row['mean_b']:.3f}, "
        f"difference {row['difference']:+.3f} (corrected 95 % interval {row['low']:+.3f} to "
        f"{row['high']:+.3f}, {seeds}, {row['folds']} folds): **{row['word']}**"
    )
    if row["word"] == "not distinguishable":
        farthest = max(row["low"], row["high"], key=abs)
        text += f"; neither zero nor {farthest:+.3f} is ruled out"
    elif math.isfinite(row["p_test_sets"]):
        text += f"; by test sets alone p = {_probability(row['p_test_sets'])}"
    return text + "."


def say_all(rows: pd.DataFrame) -> str:
    """Return a Markdown list with one sentence a row."""
    return "\n".join(f"- {say(row)}" for row in rows.to_dict("records")) or "- no record yet"


def tuning_frame(records: Iterable[dict]) -> pd.DataFrame:
    """Return one row per candidate: the left-out patients' empirical loss at the last and at the
    best epoch."""
    curves: dict[tuple, list] = {}
    for record in records:
        c = record["configuration"]["warm_up"]
        own = [stage["validation_loss"] for n, stage in record["trace"].items() if "cross" in n]
        curves.setdefault((c["learning_rate"], c["epochs"]), []).append(np.mean(own, axis=0))
    means = {tried: np.mean(folds, axis=0) for tried, folds in curves.items()}
    found = [
        {
            "learning rate": rate,
            "epochs": epochs,
            "last epoch": mean[-1],
            "best epoch": mean.min(),
            "at epoch": mean.argmin() + 1,
        }
        for (rate, epochs), mean in means.items()
    ]
    return pd.DataFrame(found).sort_values("last epoch", ignore_index=True)


def gamma_frame(records: Iterable[dict]) -> pd.DataFrame:
    """Return every estimated correlation: columns ``seed, fold, adapters, estimate, entry,
    value``."""
    return pd.DataFrame(
        [
            {
                "seed": r["seeds"][0],
                "fold": r["configuration"]["fold"],
                "adapters": r["configuration"].get("adapters"),
                "estimate": name,
                "entry": entry,
                "value": value["correlation"][i][j],
            }
            for r in records
            for name, value in r["parameters"].items()
            if name in ESTIMATES
            for entry, (i, j) in ENTRIES.items()
        ]
    )


def gamma_matrices(records: Iterable[dict]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return estimate -> mean and standard deviation over fits of every correlation, two (4, 4)
    matrices."""
    found = {}
    for name in ESTIMATES:
        known = [r["parameters"][name] for r in records if name in r["parameters"]]
        each = np.array([parameters["correlation"] for parameters in known])
        if known:
            found[name] = each.mean(0), each.std(0, ddof=1)
    return found


def gamma_spread(records: Iterable[dict]) -> pd.DataFrame:
    """Return for each estimate and correlation its mean, its SD over folds (of their means), and
    that within a fold."""
    frame = gamma_frame(records)
    keys = ["estimate", "entry"]
    by_fold = frame.groupby([*keys, "fold"], sort=False)["value"].mean()
    within = frame.groupby([*keys, "fold", "adapters"], sort=False)["value"].var()
    return pd.DataFrame(
        {
            "mean": frame.groupby(keys, sort=False)["value"].mean(),
            "SD over folds": by_fold.groupby(keys, sort=False).std(),
            "SD over seeds, within a fold": within.groupby(keys, sort=False).mean() ** 0.5,
        }
    )


def smallest_eigenvalues(records: Iterable[dict]) -> pd.DataFrame:
    """Return the smallest eigenvalue of every estimated correlation matrix: one row a fit, one
    column an estimate."""
    return pd.DataFrame(
        [
            {
                name: np.linalg.eigvalsh(value["correlation"])[0]
                for name, value in r["parameters"].items()
                if name in ESTIMATES
            }
            for r in records
        ]
    )
