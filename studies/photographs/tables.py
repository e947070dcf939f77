"""Tables of the ablation on photographs: from its records to frames, comparisons and sentences.

Nothing here fits or draws, and no finding is written down.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pingouin
import torch

from cevit_lib.copula import CopulaParameters, log_density
from cevit_lib.records import paper_numbers
from studies.comparison import compare_paired, inflation
from studies.simulation.tables import PRINTED, both_eyes, sign

NAMES = {
    "empirical": "ViT",
    "matched": "matched independence",
    "one stage": "CeViT, one stage",
    "algorithm 3, paper": "CeViT, Algorithm 3 as printed",
    "algorithm 3, exact": "CeViT, Algorithm 3, exact",
    "empirical, adapters": "ViT-A",
    "one stage, adapters": "CeViT-A, one stage",
    "algorithm 3, paper, adapters": "CeViT-A, Algorithm 3 as printed",
    "algorithm 3, exact, adapters": "CeViT-A, Algorithm 3, exact",
    "age and sex": "age and sex",
    "PCA of pixels": "small pictures",
}
"""Arm -> its name in tables and pictures, references last."""
QUESTIONS = (
    ("matched", "empirical", "scale and weight alone"),
    ("one stage", "matched", "dependence"),
    ("one stage", "empirical", "the whole copula loss, one stage"),
    ("algorithm 3, exact", "empirical", "the same, Algorithm 3, exact"),
    ("algorithm 3, paper", "empirical", "the same, Algorithm 3 as printed"),
    ("empirical, adapters", "empirical", "adapters, empirical loss"),
    ("one stage, adapters", "one stage", "adapters, one stage"),
)
"""Arm that is asked about, its control, and what differs between them."""
TABLE_TWO = {
    "CeViT-A vs. CeViT": ("{copula}, adapters", "{copula}"),
    "ViT-A vs. ViT": ("empirical, adapters", "empirical"),
    "CeViT vs. ViT": ("{copula}", "empirical"),
    "CeViT-A vs. ViT-A": ("{copula}, adapters", "empirical, adapters"),
}
"""The paper's comparisons as arms."""
COPULA = ("algorithm 3, paper", "one stage")
MEANS = ("MAE", "AUC", "Brier", "joint ACC", "log-likelihood")
GAINS = {"log score": "log score of a pair (nats)", "MAE": "MAE (um)", "AUC": "AUC"}
"""Gains of the dependence between eyes, and their units."""
STRANGERS = "strangers'"


def metrics_frame(records: Iterable[dict]) -> pd.DataFrame:
    """Return one row per fit, arm and metric.

    Returns
    -------
    DataFrame
        Columns ``partition, fold, folds, pairs, arm, metric, value``; an arm with adapters is
        named ``"empirical, adapters"``. ``MAE`` and the like without an eye are the mean of both.
    """
    rows = []
    for record in records:
        c = record["configuration"]
        key = {name: c[name] for name in ("partition", "fold", "folds")}
        key["pairs"] = c.get("pairs", "own")
        for name, values in record["metrics"].items():
            arm = name + (", adapters" if c.get("adapters") else "")
            known = both_eyes(values).items()
            rows += [{**key, "arm": arm, "metric": m, "value": value} for m, value in known]
    return pd.DataFrame(rows)


def compare(frame: pd.DataFrame, a: str, b: str, metric: str, label: str = "") -> dict[str, Any]:
    """Compare two arms fold by fold.

    Returns
    -------
    dict
        Means, and of :func:`judged` what the differences a - b say.
    """
    own = frame[frame["metric"] == metric]
    keys = ["partition", "fold"]
    one, other = (own[own["arm"] == arm].set_index(keys)["value"] for arm in (a, b))
    both = pd.concat([one, other], axis=1, keys=["a", "b"]).dropna()
    told = judged(both["a"], both["b"], frame["folds"].iloc[0])
    row = {"label": label or f"{a} against {b}", "a": a, "b": b, "metric": metric, **told}
    row |= {"mean_a": both["a"].mean(), "mean_b": both["b"].mean()}
    return row | {"word": word(row)}


def judged(a: pd.Series, b: pd.Series, folds: int) -> dict[str, float]:
    """Return mean difference and ``d_z`` of paired values, and by the test that is corrected for
    the training patients that folds share its p-value, its 95 % interval, and the smallest
    difference that it finds with power 0.8.
    """
    found = compare_paired(a, b, test_share=1 / folds)
    spread = float((np.asarray(a) - np.asarray(b)).std(ddof=1))
    return {
        "difference": found.difference,
        "d_z": found.d_z,
        "p": found.p_corrected,
        "low": found.low_corrected,
        "high": found.high_corrected,
        "smallest": smallest_detectable(found.folds, 1 / folds) * spread,
        "fits": found.folds,
    }


def smallest_detectable(folds: int, test_share: float) -> float:
    """Return the ``d_z`` that the corrected test finds with power 0.8."""
    own = pingouin.power_ttest(n=folds, power=0.8, contrast="paired")
    return float(own * math.sqrt(inflation(folds, test_share)))


def word(row: dict[str, Any]) -> str:
    """Return better, worse, or not distinguishable, by the interval of the corrected test."""
    if not row["low"] * row["high"] > 0:
        return "not distinguishable"
    return "better" if sign(row["metric"]) * row["difference"] < 0 else "worse"


def comparisons(frame: pd.DataFrame, metrics: Iterable[str] = ("MAE", "AUC")) -> pd.DataFrame:
    """Return one row per metric and question."""
    return pd.DataFrame(
        [compare(frame, a, b, m, label) for m in metrics for a, b, label in QUESTIONS]
    )


def levels(frame: pd.DataFrame) -> pd.DataFrame:
    """Return arms in rows and metrics in columns, means over all fits; references stand last."""
    table = frame.pivot_table("value", "arm", "metric", aggfunc="mean")
    known = [arm for arm in NAMES if arm in table.index]
    return table.loc[known, list(MEANS)].rename(NAMES).rename_axis(None)


def table_two(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the layout of the paper's Table 2: Cohen's d_z and, in brackets, its p-value, ours
    corrected; the printed row (other eyes, other images) stands above ours.
    """
    printed = paper_numbers("table_real_data")["comparisons"]
    rows = {}
    for name, arms in TABLE_TWO.items():
        rows[name, "printed"] = {
            m: f"{e['d']:+.2f} ({_printed(e)})" for m, e in printed[name].items()
        }
        for copula in COPULA if "{copula}" in arms[0] else ("no copula",):
            a, b = (arm.format(copula=copula) for arm in arms)
            found = {m: compare(frame, a, b, m) for m in PRINTED}
            rows[name, copula] = {
                m: f"{r['d_z']:+.2f} ({_probability(r['p'])})" for m, r in found.items()
            }
    return pd.DataFrame(rows).T[list(PRINTED)]


def _printed(entry: dict) -> str:
    return f"<{entry['p_below']:g}" if "p_below" in entry else f"{entry['p']:.3f}"


def _probability(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def gamma_matrices(records: Iterable[dict], arms: Iterable[str] = COPULA) -> dict[str, tuple]:
    """Return arm -> mean and standard deviation over fits of every correlation, two (4, 4)
    matrices.
    """
    found = {}
    for arm in arms:
        known = [r["parameters"][arm]["correlation"] for r in records if arm in r["parameters"]]
        found[NAMES[arm]] = np.mean(known, axis=0), np.std(known, axis=0, ddof=1)
    return found


def within_eyes(parameters: CopulaParameters) -> CopulaParameters:
    """Return copula parameters without what joins the two eyes."""
    same_eye = torch.eye(2, dtype=torch.float64).tile(2, 2)  # responses are dealt eye by eye
    return CopulaParameters(parameters.correlation * same_eye, parameters.scale)


def joined(record: dict, arm: str = "one stage") -> tuple[float, float]:
    """Return the test patients' mean log density of one network's outputs: with all correlations,
    and without those between the eyes (nats a patient).
    """
    parts = (record["predictions"][name] for name in (arm, "y"))
    outputs, y = (torch.tensor(part, dtype=torch.float64) for part in parts)
    whole = CopulaParameters.from_dict(record["parameters"][arm])
    scores = (log_density(outputs, y, own).mean() for own in (whole, within_eyes(whole)))
    return tuple(map(float, scores))


def gains_of_dependence(own: list[dict], disrupted: list[dict]) -> pd.DataFrame:
    """Return what the dependence between eyes gains, on patients' own pairs and on strangers'.

    Returns
    -------
    DataFrame
        One row a kind of pairs and gain: ``pairs, gain``, and what :func:`judged` says of it. The
        log score is that of one network's outputs with and without what joins the eyes; MAE and
        AUC are of one stage beside matched independence. More is better.
    """
    rows = []
    for pairs, records in (("own", own), (STRANGERS, disrupted)):
        folds = records[0]["configuration"]["folds"]
        kinds: dict[str, tuple] = {"log score": tuple(zip(*map(joined, records), strict=True))}
        for metric in ("MAE", "AUC"):
            each = [
                [both_eyes(r["metrics"][arm])[metric] for r in records]
                for arm in ("one stage", "matched")
            ]
            kinds[metric] = tuple(-sign(metric) * np.array(values) for values in each)
        for kind, (a, b) in kinds.items():
            told = judged(pd.Series(a), pd.Series(b), folds)
            rows.append({"pairs": pairs, "gain": GAINS[kind], **told})
    return pd.DataFrame(rows)


def shown_plane(records: Iterable[dict]) -> dict | None:
    """Return the record that holds the coordinates of one CeViT-A's class tokens, if it is
    there.
    """
    return next((record for record in records if record.get("columns")), None)


def answer(rows: pd.DataFrame, gains: pd.DataFrame) -> str:
    """Say what the records say of the dependence: of margins, of pairs, and of strangers."""
    row = _dependence(rows)
    scores = gains[gains["gain"] == GAINS["log score"]].set_index("pairs")
    found = {pairs: _range(score) for pairs, score in scores.iterrows()}
    return (
        "Beside matched independence, training under the dependence changes the error of the "
        f"thickness by {_range(row)} um: **{row['word']}**. What joins the eyes adds "
        f"{found['own']} nats to the log score of a held-out pair, and where the eyes are "
        f"strangers {found[STRANGERS]}."
    )


def say_smallest(rows: pd.DataFrame) -> str:
    """Say what so few pairs can see at all."""
    row = _dependence(rows)
    unseen = int((rows["word"] == "not distinguishable").sum())
    return (
        f"With power 0.8 this design sees a difference of **{row['smallest']:.2f} um** in the "
        f"error of the thickness, {row['smallest'] / row['mean_b']:.1%} of it, and a smaller one "
        f"less often; of the {len(rows)} comparisons above, {unseen} are not distinguishable, "
        "which is not to say equal."
    )


def _dependence(rows: pd.DataFrame) -> pd.Series:
    return rows[(rows["label"] == "dependence") & (rows["metric"] == "MAE")].iloc[0]


def _range(row: pd.Series) -> str:
    return f"{row['difference']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})"


def weights_table(records: Iterable[dict]) -> pd.DataFrame:
    """Return which weights made the records: one row for each file, and how many fits read it."""
    told = [r["parameters"]["weights"] for r in records]
    table = pd.DataFrame(told).groupby("hash", sort=False)
    return table.first().assign(fits=table.size()).rename_axis("weights")
