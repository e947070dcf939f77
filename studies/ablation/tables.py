"""Tables of the ablation on real eyes: from its records to frames, comparisons in the layout of Table 2, and sentences.

Nothing here fits or draws. An incomplete grid says so, a comparison says what it cannot conclude, and no finding is
written down: sentences are put together from the records.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import pandas as pd

from cevit_lib.errors import ProvenanceError
from cevit_lib.records import load_records, paper_numbers, record_id
from studies.ablation.settings import grid
from studies.comparison import compare_paired
from studies.simulation.grid import Grid
from studies.simulation.tables import PRINTED, both_eyes, sign

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
RIVALS = ("constant", "PCA of pixels", "frozen encoder", "CeCNN copula", "OUCopulaCNN copula")


def records_of(study: str, scale: Literal["stored", "smoke", "paper"], folder: Any = None) -> Grid:
    """Return a part's records: stored ones, a tiny grid fitted now, or the paper's grid with its gaps fitted now.

    Raises
    ------
    ProvenanceError
        ``"stored"`` and no record that may be published; the message names the run that makes it.
    """
    if scale == "smoke":
        return _smoke((study,))[study]
    wanted = {
        record_id(study, configuration, [seed], "paper") for configuration, seed in grid(study)
    }
    if scale == "paper":
        from studies.ablation.fits import run_study

        run_study(study, "paper", folder=folder)
    found = [record for record in load_records(study, folder=folder) if record["id"] in wanted]
    return Grid(study, found, len(wanted))


def all_parts(studies: Iterable[str], scale: str, folder: Any = None) -> dict[str, Grid]:
    """Return the grids of several parts; a stored part without any record is an empty grid, which its note says."""
    studies = tuple(studies)
    if scale == "smoke":
        return _smoke(studies)
    found = {}
    for study in studies:
        try:
            found[study] = records_of(study, scale, folder)
        except ProvenanceError:
            if study == "ablation" or scale == "paper":
                raise
            found[study] = Grid(study, [], len(grid(study)))
    return found


def _smoke(studies: tuple[str, ...]) -> dict[str, Grid]:
    from studies.ablation.fits import run_study
    from studies.ablation.pretraining import run

    def quiet(*_, **__):
        return None

    with tempfile.TemporaryDirectory() as scratch, _one_thread():
        run("smoke", weights=f"{scratch}/weights", results=scratch, device="cpu", report=quiet)
        made = {
            s: run_study(
                s, "smoke", folder=scratch, store=f"{scratch}/weights", device="cpu", report=quiet
            )
            for s in studies
        }
    return {study: Grid(study, records, len(records)) for study, records in made.items()}


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Networks so small that several threads only wait for each other."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def metrics_frame(records: Iterable[dict]) -> pd.DataFrame:
    """Return one row per fit, arm and metric.

    Returns
    -------
    DataFrame
        Columns ``seed, partition, fold, folds, weights, arm, metric, value``; an arm with adapters is named
        ``"empirical, adapters"``, one whose encoder has seen the test images ``"..., transductive"``. ``MAE``, ``ACC``
        and the like without an eye are the mean of both eyes.
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
    """Return one row per seed and fold that has both arms; an arm without chance stands beside every seed."""
    own = frame[frame["metric"] == metric]
    one, other = (
        own[own["arm"] == arm][["seed", "partition", "fold", "folds", "value"]] for arm in (a, b)
    )
    keys = ["partition", "fold", "folds"] + (
        ["seed"] if _by_chance(one) and _by_chance(other) else []
    )
    joined = one.merge(other, on=keys, suffixes=("", "_b")).rename(
        columns={"value": "a", "value_b": "b"}
    )
    if "seed" not in keys and _by_chance(other):
        joined["seed"] = joined["seed_b"]
    return joined.dropna(subset=["a", "b"])[["seed", "partition", "fold", "folds", "a", "b"]]


def _by_chance(own: pd.DataFrame) -> bool:
    return (
        bool(own.groupby(["partition", "fold"])["seed"].nunique().gt(1).any())
        or own["seed"].nunique() > 1
    )


def compare(frame: pd.DataFrame, a: str, b: str, metric: str, label: str = "") -> dict[str, Any]:
    """Compare two arms fold by fold, and say how small a difference such a study could have seen.

    Returns
    -------
    dict
        Means, ``difference`` (a - b), ``d_z``, ``d_av``, ``p`` (folds taken as independent), ``p_corrected`` (for the
        training patients that folds share) with ``low`` and ``high``, its 95 % interval, ``smallest_d`` (the d_z that
        the corrected test finds with power 0.8), ``power`` (at a d_z of 0.5), and ``word``.
    """
    pairs = paired(frame, a, b, metric)
    nothing = dict.fromkeys(
        ("difference", "d_z", "d_av", "p", "p_corrected", "low", "high"), math.nan
    )
    row: dict[str, Any] = {
        "label": label or f"{a} against {b}",
        "a": a,
        "b": b,
        "metric": metric,
        "folds": len(pairs),
        "seeds": pairs["seed"].nunique(),
        "mean_a": pairs["a"].mean(),
        "mean_b": pairs["b"].mean(),
        **nothing,
        "smallest_d": math.nan,
        "power": math.nan,
        "p_test_sets": math.nan,
    }
    if len(pairs) > 2:
        share = 1 / pairs["folds"].iloc[0]
        found = compare_paired(pairs["a"], pairs["b"], test_share=share)
        row |= {
            key: found.to_dict()[key] for key in ("difference", "d_z", "d_av", "p", "p_corrected")
        }
        inflation = inflated(len(pairs), share)
        half = (
            _quantile(len(pairs))
            * (pairs["a"] - pairs["b"]).std()
            * math.sqrt(inflation / len(pairs))
        )
        row |= {"low": row["difference"] - half, "high": row["difference"] + half}
        row |= {"p_test_sets": _by_test_sets(pairs), "power": power(0.5, len(pairs), share)}
        row["smallest_d"] = smallest_detectable(len(pairs), share)
    return row | {"word": word(row)}


def _by_test_sets(pairs: pd.DataFrame) -> float:
    """Return the corrected test's p-value with one difference a test set, the mean over its seeds."""
    own = pairs.groupby(["partition", "fold"])[["a", "b"]].mean()
    if len(own) < 3:
        return math.nan
    return compare_paired(own["a"], own["b"], test_share=1 / pairs["folds"].iloc[0]).p_corrected


def inflated(folds: int, test_share: float) -> float:
    """Return by how much shared training patients inflate the variance of a mean of ``folds`` differences."""
    return 1 + folds * test_share / (1 - test_share)


def power(d: float, folds: int, test_share: float, level: float = 0.05) -> float:
    """Return the power of the two-sided corrected test at a true ``d_z``: a noncentral t distribution."""
    from scipy.stats import nct

    shift, at = d * math.sqrt(folds / inflated(folds, test_share)), _quantile(folds, level)
    other = nct.cdf(-at, folds - 1, shift)  # NaN where it is too small for scipy to compute
    return float(nct.sf(at, folds - 1, shift) + (other if math.isfinite(other) else 0.0))


def smallest_detectable(folds: int, test_share: float, wanted: float = 0.8) -> float:
    """Return the ``d_z`` that the corrected test finds with power ``wanted``."""
    from scipy.optimize import brentq

    highest = 30.0 / math.sqrt(
        folds / inflated(folds, test_share)
    )  # a shift of 30 standard errors is always seen
    return float(brentq(lambda d: power(d, folds, test_share) - wanted, 1e-6, highest))


def _quantile(folds: int, level: float = 0.05) -> float:
    from scipy.stats import t

    return float(t.ppf(1 - level / 2, folds - 1))


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
    """Return the layout of the paper's Table 2: Cohen's d_z and, in brackets, the plain and the corrected p-value.

    The printed row (other eyes, other images) stands above ours: one for each estimate where a copula takes part.
    """
    printed = paper_numbers("table_real_data")["comparisons"]
    rows = {}
    for name, arms in TABLE_TWO.items():
        rows[name, "printed"] = {
            m: f"{e['d']:+.2f} ({_printed(e)})" for m, e in printed[name].items()
        }
        estimates = (
            ("fmcem", "cross-fitted") if any("{copula}" in arm for arm in arms) else ("no copula",)
        )
        for estimate in estimates:
            a, b = (arm.format(copula=estimate) for arm in arms)
            found = (
                {m: compare(frame, a, b, m) for m in PRINTED} if {a, b} <= set(frame["arm"]) else {}
            )
            cells = {
                m: f"{r['d_z']:+.2f} ({_probability(r['p'])}; {_probability(r['p_corrected'])})"
                if math.isfinite(r["d_z"])
                else "-"
                for m, r in found.items()
            }
            rows[name, estimate] = cells or dict.fromkeys(PRINTED, "not run yet")
    return pd.DataFrame(rows).T[list(PRINTED)]


def _printed(entry: dict) -> str:
    return f"<{entry['p_below']:g}" if "p_below" in entry else f"{entry['p']:.3f}"


def _probability(p: float) -> str:
    return "-" if not math.isfinite(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


MEANS = ("MAE_L", "MAE_R", "AUC_L", "AUC_R", "Brier", "ACC", "joint ACC", "log-likelihood")


def means(frame: pd.DataFrame, metrics: Iterable[str] = MEANS) -> pd.DataFrame:
    """Return arms in rows and metrics in columns, means over all fits, and the weights that made each row."""
    table = frame.pivot_table("value", ["arm", "weights"], "metric", aggfunc="mean", sort=False)
    return table[[metric for metric in metrics if metric in table]].reset_index("weights")


def encoders(records: Iterable[dict]) -> pd.DataFrame:
    """Return what each fold's encoder was pre-trained on: images seen, those left out, steps, and images passed."""
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
        f"{row['label']}: {row['metric']} {row['mean_a']:.3f} against {row['mean_b']:.3f}, difference "
        f"{row['difference']:+.3f} (corrected 95 % interval {row['low']:+.3f} to {row['high']:+.3f}, "
        f"{seeds}, {row['folds']} folds): **{row['word']}**"
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
    """Return one row per candidate: the left-out patients' empirical loss at the last and at the best epoch."""
    curves: dict[tuple, list] = {}
    for record in records:
        c = record["configuration"]["warm_up"]
        own = [
            stage["validation_loss"] for name, stage in record["trace"].items() if "cross" in name
        ]
        curves.setdefault((c["learning_rate"], c["epochs"]), []).append(np.mean(own, axis=0))
    found = []
    for (rate, epochs), folds in curves.items():
        mean = np.mean(folds, axis=0)
        found.append(
            {
                "learning rate": rate,
                "epochs": epochs,
                "last epoch": mean[-1],
                "best epoch": mean.min(),
                "at epoch": mean.argmin() + 1,
            }
        )
    return pd.DataFrame(found).sort_values("last epoch", ignore_index=True)


def gamma_frame(records: Iterable[dict]) -> pd.DataFrame:
    """Return every estimated correlation: columns ``seed, fold, adapters, estimate, entry, value``."""
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
            if name in ("fmcem", "cross-fitted")
            for entry, (i, j) in ENTRIES.items()
        ]
    )


def gamma_matrices(records: Iterable[dict]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return estimate -> mean and standard deviation over fits of every correlation, two (4, 4) matrices."""
    frame, found = gamma_frame(records), {}
    for name, own in frame.groupby("estimate", sort=False):
        mean, spread = np.eye(4), np.zeros((4, 4))
        for entry, (i, j) in ENTRIES.items():
            values = own[own["entry"] == entry]["value"]
            mean[i, j] = mean[j, i] = values.mean()
            spread[i, j] = spread[j, i] = values.std()
        found[name] = (mean, spread)
    return found


def gamma_spread(records: Iterable[dict]) -> pd.DataFrame:
    """Return for each estimate and correlation its mean, its SD over folds (of their means), and that within a fold."""
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
    """Return the smallest eigenvalue of every estimated correlation matrix: one row a fit, one column an estimate."""
    return pd.DataFrame(
        [
            {
                name: np.linalg.eigvalsh(value["correlation"])[0]
                for name, value in r["parameters"].items()
                if name in ("fmcem", "cross-fitted")
            }
            for r in records
        ]
    )
