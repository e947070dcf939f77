"""The claims of Section 5, judged by the records of the simulation.

What is judged is Algorithm 3 as printed. Its "ViT" can be read in three ways: the empirical loss
for as many epochs, with both stages inside them or with the paper's further ones, and the warm-up.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy.stats import t

from cevit_lib.records import paper_numbers
from studies.comparison import cohen_d_z
from studies.verdicts.judge import (
    IN_PART,
    NOT_REPRODUCED,
    REPRODUCED,
    Evidence,
    MissingRecordError,
    Verdict,
    claim,
)

PRINTED_ARM = "algorithm 3, paper"
FURTHER = f"{PRINTED_ARM}, further"
COMPARISONS = {
    "as many epochs, the further ones included": (FURTHER, "empirical, further"),
    "as many epochs in all": (PRINTED_ARM, "empirical"),
    "the warm-up": (FURTHER, "empirical"),
}
READINGS = {
    "last epoch": "",
    "own best epoch": ", at its own best epoch",
    "common best epoch": ", at the common best epoch",
}
"""Where an arm is read: the end of its name in a record."""
SUBSTANTIAL = 0.2  # the paper's bound for Cohen's d
GAIN = (
    "a comparison holds if for both eyes Cohen's d_z over the folds has the printed sign and "
    "exceeds .2, and the 95 % interval over data sets lies on the same side of 0; reproduced if "
    "Algorithm 3 as printed does so at its last and at its own best epoch against as many epochs "
    "of the empirical loss in all, against as many with the paper's further ones, and against the "
    "warm-up; in part if one of these six holds"
)
RECORDED = {
    "MAE": ("MAE y1", "MAE y2"),
    "ACC": ("ACC y3", "ACC y4"),
    "AUC": ("AUC y3", "AUC y4"),
    "RMSE to truth": ("RMSE to truth y1", "RMSE to truth y2"),
}


def with_arms(evidence: Evidence, study: str, arms: Iterable[str], count: int) -> list[dict]:
    """Return the records of a study, all of which have some arms.

    Raises
    ------
    MissingRecordError
        Fewer than ``count`` have them.
    """
    found = [r for r in evidence.records(study) if {*arms} <= r["metrics"].keys()]
    if len(found) < count:
        lacking = f"{len(found)} of {count} fits of {study}"
        raise MissingRecordError(f"{lacking} have a record with all arms that the rule reads")
    return found


def column(records: list[dict], arm: str, metric: str) -> np.ndarray:
    """Return a metric of both eyes, left first, (folds, 2); what is not defined is NaN."""
    rows = [[r["metrics"][arm][name] for name in RECORDED[metric]] for r in records]
    return np.array(rows, dtype=float)


def dataset_means(records: list[dict], values: np.ndarray) -> pd.Series:
    """Return the mean of one value a fold over the folds of each data set."""
    return pd.Series(values).groupby([r["configuration"]["dataset"] for r in records]).mean()


def interval(values: np.ndarray | pd.Series) -> tuple[float, float, float]:
    """Return mean and 95 % t-interval of independent values: low, mean, high."""
    values = np.asarray(values, dtype=float)
    mean, n = float(values.mean()), len(values)
    half = t.ppf(0.975, n - 1) * values.std(ddof=1) / n**0.5 if n > 1 else float("nan")
    return mean - half, mean, mean + half


def effects(records: list[dict], a: str, b: str, metric: str, end: str) -> list[dict[str, float]]:
    """Compare two arms in each eye: Cohen's d_z over folds, and the interval over data sets."""
    pair = (column(records, arm + end, metric) for arm in (a, b))
    found = []
    for ours, control in zip(*(each.T for each in pair), strict=True):
        low, mean, high = interval(dataset_means(records, ours - control))
        found.append({"d": cohen_d_z(ours, control), "low": low, "difference": mean, "high": high})
    return found


def holds(effect: dict[str, float], printed: float) -> bool:
    """Whether an effect is substantial, and distinguishable, in the printed direction."""
    end = effect["high"] if printed < 0 else -effect["low"]
    return effect["d"] * np.sign(printed) > SUBSTANTIAL and end < 0


def _judged(evidence: Evidence, metric: str) -> Verdict:
    """Judge the printed gain in a metric of both eyes by each reading of the comparison."""
    arms = {arm for pair in COMPARISONS.values() for arm in pair}
    records = with_arms(evidence, "simulation", sorted(arms), _folds())
    table = paper_numbers("table_simulation")["comparisons"]["CeViT vs. ViT"]
    printed = [table[f"{metric}_{eye}"]["d"] for eye in "LR"]
    met, told = [], []
    for words, (a, b) in COMPARISONS.items():
        for reading in ("last epoch", "own best epoch"):
            found = effects(records, a, b, metric, READINGS[reading])
            met.append(all(map(holds, found, printed)))
            d = " and ".join(f"{effect['d']:+.2f}" for effect in found)
            told.append(f"against {words}, {reading}: d = {d}{' (holds)' if met[-1] else ''}")
    word = REPRODUCED if all(met) else IN_PART if any(met) else NOT_REPRODUCED
    return Verdict(
        word, f"{sum(met)} of {len(met)} comparisons hold for both eyes; " + "; ".join(told)
    )


def _folds() -> int:
    printed = paper_numbers("simulation")
    return printed["datasets"]["value"] * printed["folds"]["value"]


@claim(
    "Section 5",
    "rho12 is strongly and rho34 also underestimated.",
    "reproduced if the mean errors of fMCEM after the warm-up are below -.1 and -.02, with 95 % "
    "intervals over data sets below 0; in part if one is",
    "simulation",
    "simulation.html#the-evidence",
)
def simulation_gamma(evidence):
    records = with_arms(evidence, "simulation", [FURTHER], _folds())
    found = {}
    for name, at in {"rho12": (0, 1), "rho34": (2, 3)}.items():
        error = [
            np.subtract(
                *(r["parameters"][k]["correlation"][at[0]][at[1]] for k in (FURTHER, "true"))
            )
            for r in records
        ]
        found[name] = interval(dataset_means(records, np.array(error)))
    low = [
        found[n][1] < bound and found[n][2] < 0 for n, bound in (("rho12", -0.1), ("rho34", -0.02))
    ]
    told = [f"{n} {mean:+.3f} ({lo:+.3f} to {hi:+.3f})" for n, (lo, mean, hi) in found.items()]
    return Verdict(
        REPRODUCED if all(low) else IN_PART if any(low) else NOT_REPRODUCED,
        f"mean error of fMCEM's {', of '.join(told)}",
    )


@claim(
    "Section 5, table",
    "The copula loss lowers the MAE of both eyes.",
    GAIN,
    "simulation",
    "simulation.html#the-evidence",
)
def simulation_mae(evidence):
    return _judged(evidence, "MAE")


@claim(
    "Section 5, table",
    "The copula loss raises the accuracy.",
    GAIN,
    "simulation",
    "simulation.html#the-evidence",
)
def simulation_acc(evidence):
    return _judged(evidence, "ACC")


@claim(
    "Section 5, table",
    "The copula loss raises the AUC.",
    GAIN,
    "simulation",
    "simulation.html#the-evidence",
)
def simulation_auc(evidence):
    return _judged(evidence, "AUC")
