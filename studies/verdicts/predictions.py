"""What this book foretold of training in one stage: predictions and rules, committed before the
records that judge them.

They are no claims of the paper and have words of their own. Differences and gains are means over
data sets with 95 % t-intervals; the endpoint is the distance to the true regression functions of
the lengths, which is free of the floor's noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t

from cevit_lib.datasets.synthetic import TEXT_CORRELATION
from cevit_lib.records import load_arrays
from studies.theory import gain
from studies.verdicts.judge import NOT_RUN, Claim, Evidence
from studies.verdicts.judge import judge as judged_claim
from studies.verdicts.simulation import (
    PRINTED_ARM,
    READINGS,
    column,
    dataset_means,
    interval,
    with_arms,
)

CONFIRMED, IN_PART, REFUTED = "confirmed", "confirmed in part", "refuted"
UNDECIDED = "undecided"
WORDS = (CONFIRMED, IN_PART, REFUTED, UNDECIDED, NOT_RUN)

ONE_STAGE, MATCHED = "one stage", "matched"
CONTROLS = ("empirical", "uncertainty", "independence", MATCHED)
MARGIN = 0.03
"""Three points: the half-width of an interval that may confirm, and what counts as nothing."""
SMALL_AUC = 0.001
SD_OF_SCORES = (9 * 0.5) ** 0.5
"""A label's score is a sum of nine pixels of variance 1/2."""
FOLDS, DATASETS, REDRAWS, REDRAWN_SETS = 50, 10, 5, 4
REDRAWN_R = (0.0, 0.5, 0.9)
ENOUGH = 10  # of twelve cells
GRID_R, GRID_STRENGTH = (0.0, 0.5, 0.9, 1.0), (0.0, 1.0, 1.25)

PREDICTIONS: list[Claim] = []
"""All predictions, in the order of the page."""


@dataclass(frozen=True)
class Outcome:
    """A word of ``WORDS`` and the numbers that led to it."""

    word: str
    because: str


def predicted(text: str, rule: str, *studies: str) -> Callable:
    """Enter the prediction that the decorated rule decides; its key is the rule's name."""

    def enter(decide: Callable[[Evidence], Outcome]) -> Callable[[Evidence], Outcome]:
        key = decide.__name__.replace("_", "-")
        PREDICTIONS.append(Claim(key, "foretold", text, rule, studies, decide, "simulation.html"))
        return decide

    return enter


def judge_predictions(folder: Path | None = None) -> list[tuple[Claim, Outcome]]:
    """Return every prediction with what became of it."""
    evidence = Evidence(folder)
    return [(each, judged_claim(each, evidence)) for each in PREDICTIONS]


def squared_error(records: list[dict], arm: str) -> np.ndarray:
    """Return the mean square of the distance to the true regression functions, shape
    (folds,): the mean of both eyes.
    """
    return np.square(column(records, arm, "RMSE to truth")).mean(1)


def gains(records: list[dict], arm: str, control: str) -> pd.Series:
    """Return by data set the share of the control's squared error that an arm has not."""
    ours, theirs = (dataset_means(records, squared_error(records, a)) for a in (arm, control))
    return 1 - ours / theirs


def variance_share(records: list[dict], arm: str, folder: Path | None = None) -> pd.Series:
    """Return by data set the share of an arm's squared error that new errors change.

    With e_a the network's error at a patient under redraw a of the training errors on the same
    images, ``v = 1 - mean_{a != b} e_a e_b / mean e_a^2``: what redraws share is bias.
    """
    found: dict[int, list[np.ndarray]] = {}
    for record in records:
        arrays = load_arrays(record, folder)
        own = arrays["errors"][list(arrays["arms"]).index(arm)].astype(float)
        found.setdefault(record["configuration"]["dataset"], []).append(own)
    shares = {}
    for dataset, errors in found.items():
        each, count = np.stack(errors), len(errors)
        square = np.square(each).mean()
        common = (count * np.square(each.mean(0)).mean() - square) / (count - 1)
        shares[dataset] = 1 - common / square
    return pd.Series(shares, dtype=float)


def gain_cells(
    fits: list[dict], redraws: list[dict], control: str = MATCHED, folder: Path | None = None
) -> pd.DataFrame:
    """Return measured and predicted gain for each r and strength.

    Returns
    -------
    DataFrame
        ``r, strength, G, v``; ``measured, predicted`` and ``miss``, their difference, each with
        the half-width of its 95 % interval as ``_half``. v is that of strength 1 at the same r, NaN
        where it was not measured; where G = 1 the prediction is 0 whatever it is.
    """
    shares = {
        r: variance_share(own, control, folder) for r, own in _by(redraws, "pixel_correlation")
    }
    rows = []
    for r, at_r in _by(fits, "pixel_correlation"):
        v = shares.get(r, pd.Series(dtype=float))
        for strength, own in _by(at_r, "strength"):
            factor = float(gain(correlation_at(strength), r, SD_OF_SCORES)[:2].mean())
            share = v * (1 - 1 / factor) if factor > 1 + 1e-9 else pd.Series([0.0, 0.0])
            row = {"r": r, "strength": strength, "G": factor, "v": v.mean()}
            rows.append(row | _compared(gains(own, ONE_STAGE, control), share))
    return pd.DataFrame(rows)


def correlation_at(strength: float) -> np.ndarray:
    """Return the printed Gamma with its correlations multiplied; 0 is independence."""
    return np.eye(4) + strength * (TEXT_CORRELATION - np.eye(4))


def _by(records: list[dict], key: str) -> list[tuple[float, list[dict]]]:
    values = sorted({record["configuration"][key] for record in records})
    return [(v, [r for r in records if r["configuration"][key] == v]) for v in values]


def _compared(measured: pd.Series, predicted: pd.Series) -> dict[str, float]:
    """Return the means of two independent samples and their difference, by Welch's interval."""
    row, parts = {}, {"measured": measured, "predicted": predicted}
    for name, values in parts.items():
        low, row[name], high = interval(values)
        row[f"{name}_half"] = (high - low) / 2
    variances = [values.var(ddof=1) / len(values) for values in parts.values() if len(values)]
    degrees = [len(values) - 1 for values in parts.values() if len(values)]
    total = sum(variances)
    below = sum(v**2 / d for v, d in zip(variances, degrees, strict=True) if d)
    row["miss"] = row["measured"] - row["predicted"]
    row["miss_half"] = t.ppf(0.975, total**2 / below) * total**0.5 if below else np.nan
    return row


def agrees(cells: pd.DataFrame) -> pd.Series:
    """Whether the interval of measured minus predicted covers 0 and is narrow enough."""
    return (cells["miss"].abs() <= cells["miss_half"]) & (cells["miss_half"] <= MARGIN)


def _grid(evidence: Evidence) -> pd.DataFrame:
    """Return all cells of the grid of gains."""
    count = len(GRID_R) * len(GRID_STRENGTH) * DATASETS
    fits = with_arms(evidence, "simulation-gain", [MATCHED, ONE_STAGE], count)
    count = len(REDRAWN_R) * REDRAWS * REDRAWN_SETS
    redraws = with_arms(evidence, "simulation-redraws", [MATCHED], count)
    return gain_cells(fits, redraws, MATCHED, evidence.folder)


def _counted(met: list[bool]) -> str:
    return CONFIRMED if all(met) else IN_PART if any(met) else REFUTED


def _percent(low: float, mean: float, high: float) -> str:
    return f"{mean:.1%} ({low:.1%} to {high:.1%})"


def _nearer(evidence: Evidence, tuned: str) -> Outcome:
    arms = [f"{arm}{tuned}" for arm in (ONE_STAGE, *CONTROLS)]
    records = with_arms(evidence, "simulation", arms, FOLDS)
    met, told = [], []
    for control in arms[1:]:
        for end in READINGS.values():
            pair = (column(records, a + end, "RMSE to truth").mean(1) for a in (arms[0], control))
            met.append(interval(dataset_means(records, np.subtract(*pair)))[2] < 0)
        share = _percent(*interval(gains(records, arms[0], control)))
        told.append(f"{share} of the squared error of {control}")
    share = f"{sum(met)} of {len(met)} differences lie below 0"
    return Outcome(_counted(met), f"{share}; at the last epoch it lacks {', '.join(told)}")


_NEARER = (
    "confirmed if the 95 % interval over data sets of the difference in RMSE to truth lies below 0 "
    "against each of the four, at the last epoch, at each arm's own best and at the best by the "
    "common criterion; in part if some of the twelve do"
)


@predicted(
    "At the same rate and epochs, one stage under the copula loss comes nearer to the true "
    "regression functions than the empirical loss, learned weights, independence and matched "
    "independence.",
    _NEARER,
    "simulation",
)
def one_stage(evidence):
    return _nearer(evidence, "")


@predicted(
    "It does so when rate and epochs are tuned for each arm.",
    f"{_NEARER}; rates and epochs by simulation-tuning",
    "simulation",
)
def one_stage_tuned(evidence):
    return _nearer(evidence, ", tuned")


def _as_in_the_pilot(evidence: Evidence, tuned: str, expected: dict[str, float]) -> Outcome:
    arms = [f"{arm}{tuned}" for arm in (ONE_STAGE, *expected)]
    records = with_arms(evidence, "simulation", arms, FOLDS)
    floor = column(records, "truth", "MAE").mean(1)
    ours, *theirs = (
        dataset_means(records, column(records, arm, "MAE").mean(1) - floor) for arm in arms
    )
    met, told = [], []
    for (control, share), excess in zip(expected.items(), theirs, strict=True):
        low, mean, high = interval(1 - ours / excess)
        met.append(low <= share <= high)
        told.append(f"{_percent(low, mean, high)} against {control}, foretold {share:.0%}")
    return Outcome(_counted(met), "; ".join(told))


@predicted(
    "At the same rate the copula loss removes 11 % of the excess MAE of the empirical loss; 8 % of "
    "independence's and 7 % of matched independence's are due to the dependence.",
    "confirmed if the 95 % interval over data sets of each share, at the last epoch, covers the "
    "foretold one; in part if one does",
    "simulation",
)
def pilot(evidence):
    expected = {"empirical": 0.11, "independence": 0.08, MATCHED: 0.07}
    return _as_in_the_pilot(evidence, "", expected)


@predicted(
    "With tuned rates it is 14 % of the empirical loss's excess MAE and 10 % of matched "
    "independence's.",
    "as above",
    "simulation",
)
def pilot_tuned(evidence):
    return _as_in_the_pilot(evidence, ", tuned", {"empirical": 0.14, MATCHED: 0.10})


@predicted(
    "Only the variance share v of a network's squared error shrinks: the gain over matched "
    "independence is v (1 - 1/G), with G from the information in all four responses.",
    "a cell of r and strength agrees if the 95 % interval of measured minus predicted, over data "
    "sets and with the error of v, covers 0 with a half-width of at most 3 points; confirmed if "
    "ten of the twelve agree (twelve true intervals do so in 98 of 100 grids), in part if half of "
    "the six with a predicted gain do",
    "simulation-gain",
    "simulation-redraws",
)
def gain_formula(evidence):
    cells = _grid(evidence)
    met = agrees(cells)
    worst = cells.loc[cells["miss"].abs().idxmax()]
    promising = met[cells["G"] > 1 + 1e-9]
    word = CONFIRMED if met.sum() >= ENOUGH else IN_PART if promising.mean() >= 0.5 else REFUTED
    where = f"at r = {worst['r']:g} and strength {worst['strength']:g}"
    both = f"{worst['measured']:.1%} measured, {worst['predicted']:.1%} predicted"
    return Outcome(word, f"{met.sum()} of {len(cells)} cells agree; largest miss {where}: {both}")


def _nothing(cells: pd.DataFrame) -> Outcome:
    """Confirmed if every gain's interval lies within the margin; refuted if one leaves out 0."""
    low, high = (cells["measured"] + sign * cells["measured_half"] for sign in (-1, 1))
    within = (low > -MARGIN) & (high < MARGIN)
    off = ~within & ((low > 0) | (high < 0))
    word = CONFIRMED if within.all() else REFUTED if off.any() else UNDECIDED
    return Outcome(word, f"gains between {low.min():.1%} and {high.max():.1%}, intervals included")


@predicted(
    "A placebo: where the errors are independent, nothing is gained, whatever the images.",
    "confirmed if at strength 0 the 95 % interval of the gain over matched independence lies "
    "within 3 points of 0 at every r; refuted if one that does not leaves out 0",
    "simulation-gain",
    "simulation-redraws",
)
def placebo(evidence):
    return _nothing(_grid(evidence).query("strength == 0"))


@predicted(
    "Where both eyes show the same image, next to nothing is gained for the lengths.",
    "as above, at r = 1 and strengths 1 and 1.25",
    "simulation-gain",
    "simulation-redraws",
)
def same_images(evidence):
    return _nothing(_grid(evidence).query("r == 1 and strength > 0"))


@predicted(
    "Nothing is gained under fMCEM: at equal epochs Algorithm 3 as printed comes no nearer to the "
    "truth than the empirical loss.",
    "confirmed if the 95 % interval over data sets of its gain in squared error, at the last "
    "epoch, ends below 3 points; refuted if it does not and lies above 0",
    "simulation",
)
def fmcem(evidence):
    records = with_arms(evidence, "simulation", [PRINTED_ARM, "empirical"], FOLDS)
    low, mean, high = interval(gains(records, PRINTED_ARM, "empirical"))
    word = CONFIRMED if high < MARGIN else REFUTED if low > 0 else UNDECIDED
    return Outcome(word, f"gain {_percent(low, mean, high)}")


@predicted(
    "The AUC rises above the empirical loss's, and dependence has next to no part in it.",
    "confirmed if at the last epoch the 95 % interval over data sets of the AUC's difference lies "
    "above 0 against the empirical loss and within .001 of 0 against independence; in part if one "
    "of the two holds",
    "simulation",
)
def auc(evidence):
    records = with_arms(evidence, "simulation", [ONE_STAGE, "empirical", "independence"], FOLDS)
    ours, *theirs = (
        column(records, arm, "AUC").mean(1) for arm in (ONE_STAGE, "empirical", "independence")
    )
    over, beside = (interval(dataset_means(records, ours - each)) for each in theirs)
    met = [over[0] > 0, max(-beside[0], beside[2]) < SMALL_AUC]
    told = [f"{mean:+.4f} ({low:+.4f} to {high:+.4f})" for low, mean, high in (over, beside)]
    return Outcome(_counted(met), f"{told[0]} against empirical, {told[1]} against independence")
