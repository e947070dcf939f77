"""Answers to the chapters' exercises that are numbers, computed and never stored.

An exercise is a function with its label's name: its docstring is the hint, its arguments are the
numbers that the exercise states (``vary``: as printed -> what a variant may put there) and what of
the page the answer depends on, by keyword.

    check("ex-gain", 0.107, 0.302)      on a page
    answer("ex-gain", [0.45, 0.6])      a variant's key
"""

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi2, norm

from cevit_lib.copula import class_probabilities, condition_on, scores_given
from cevit_lib.normal import bivariate_normal_cdf
from studies import theory


@dataclass(frozen=True)
class Exercise:
    """How an exercise's numbers follow, and how close an answer must come."""

    answer: Callable
    within: float  # of the number, or of one where that is larger
    vary: dict[str, str] = field(default_factory=dict)


EXERCISES: dict[str, Exercise] = {}
_wrong: Counter = Counter()


def number(printed: str) -> float:
    """Return what ``.55``, ``10.0`` or ``1/2`` says."""
    return float(Fraction(printed))


def answer(label: str, numbers: list[float] | None = None, **page) -> np.ndarray:
    """Return the numbers that answer an exercise.

    Parameters
    ----------
    label : str
        Such as ``"ex-gain"``.
    numbers : list of float, optional
        What stands in a variant in the place of the exercise's own numbers.
    page
        What the answer depends on, under its name on the page.
    """
    own = EXERCISES[label]
    numbers = [number(printed) for printed in own.vary] if numbers is None else numbers
    return np.ravel(np.asarray(own.answer(*numbers, **page), dtype=float))


def check(label: str, *values, **page) -> bool:
    """Say whether numbers answer an exercise; after the second wrong try with a hint.

    Parameters
    ----------
    label : str
        Such as ``"ex-gain"``.
    values : float
        In the order in which the exercise asks for them; ``...`` is not an answer yet.
    page
        What the answer depends on, under its name on the page.
    """
    if any(value is ... for value in values):
        print(f"{label}: put a number in the place of each ...")
        return False
    own, wanted = EXERCISES[label], answer(label, **page)
    found = np.array([float(value) for value in values])
    told = ", ".join(f"{value:.3g}" for value in found)
    if found.shape != wanted.shape:
        print(f"{label}: {len(found)} numbers were given, {len(wanted)} are asked for")
    elif np.allclose(found, wanted, rtol=own.within, atol=own.within, equal_nan=True):
        print(f"{label}: {told} is right")
        _wrong[label] = 0
        return True
    else:
        _wrong[label] += 1
        hint = f"; hint: {own.answer.__doc__}" if _wrong[label] > 1 else ", try again"
        print(f"{label}: {told} is not right{hint}")
    return False


def variant(label: str, text: str, rng: np.random.Generator) -> tuple[str, np.ndarray]:
    """Draw other numbers for an exercise; return its text with them, and its answer."""
    others = EXERCISES[label].vary
    drawn = {printed: str(rng.choice(choice.split())) for printed, choice in others.items()}
    stated = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, others))})(?!\w|\.\d)")
    text = stated.sub(lambda found: drawn[found[0]], text)
    return text, answer(label, [number(each) for each in drawn.values()])


def exercise(within: float, vary: dict[str, str] | None = None):
    """Enter a function under its name, with hyphens, as an exercise."""

    def enter(function: Callable) -> Callable:
        label = function.__name__.replace("_", "-")
        EXERCISES[label] = Exercise(function, within, vary or {})
        return function

    return enter


def _pair(correlation: float) -> np.ndarray:
    return np.array([[1.0, correlation], [correlation, 1.0]])


@exercise(0.02)
def ex_recognise():
    """What is the mean squared distance of fellows over that of strangers, and how far do 144
    pixels let it stray?"""
    of_fellows = np.linspace(1e-3, 1, 999, endpoint=False)
    stranger_is_farther = chi2.sf(chi2.ppf(of_fellows, 144) / 2, 144)
    return np.mean(stranger_is_farther**998)


@exercise(0.005)
def ex_both_kinds(g1):
    """Covariances add, and so do variances; each eye has its own."""
    total = np.cov(g1.T) + _pair(0.72)
    return total[0, 1] / np.sqrt(total[0, 0] * total[1, 1])


@exercise(0.03)
def ex_find_leak():
    """Two strangers share a position; how often do they share one fold of five?"""
    return 1 - 1 / 5


@exercise(1e-3)
def ex_derive_cell(outputs, y, parameters):
    """Flip the score of the eye whose label is one: its mean, its limit and the correlation."""
    seen = y[:1].clone()
    seen[:, 2:] = torch.nan
    return class_probabilities(outputs[:1].detach(), parameters, seen)[0, 1, 0]


@exercise(2e-3, {".3": ".1 .2 .4", "-.5": "-.2 -.7 -.9", ".6": ".4 .5 .7"})
def ex_inclusion_exclusion(c3, c4, rho):
    """The cell (0, 0) is right. In the others the first term's limit is minus a threshold."""
    cells = product((0, 1), repeat=2)
    at = [c3, c4], [0.0, 0.0], _pair(rho)
    return sum(theory.printed_limits_probability(cell, *at) for cell in cells)


@exercise(0.01)
def ex_cell_gradient():
    """The slope of a logarithm is the slope over the value: the density over the cell."""
    a, b, r = -0.4, 0.1, -0.9
    square = (a**2 - 2 * r * a * b + b**2) / (1 - r**2)
    density = math.exp(-square / 2) / (2 * math.pi * math.sqrt(1 - r**2))
    return density / bivariate_normal_cdf(a, b, r)


@exercise(5e-3, {"0.1": "0.2 0.3 0.5", "10": "5 20 40"})
def ex_which_alpha(small, large):
    """Put v = s / alpha into the penalty; one unknown is left."""

    def settled(s):
        penalty = lambda raw: (s * (1 + np.exp(-raw))) ** 2 + raw**2  # noqa: E731
        return 1 / (1 + np.exp(-minimize_scalar(penalty).x))

    return [settled(s) for s in (small, 1.0, large)]


@exercise(2e-3, {"1/2": "1/3 1/4 2/5 3/5"})
def ex_errata_half(p):
    """Put the printed (1, 1) into the others, and the others into the printed (0, 0)."""
    cells = theory.label_cells([p], [p], 0.0, "printed")[0]
    return [cells[0, 0], cells.sum()]


@exercise(2e-3, {"1/2": "1/3 1/4 2/3 3/4"})
def ex_errata_probit(rho):
    """The logistic draws of two eyes are independent, and each has the variance pi^2 / 3."""
    return rho / (1 + math.pi**2 / 3)


@exercise(5e-3, {".569": ".2 .4 .7 .8"})
def ex_errata_concordance(rho):
    """Twice the chance of two positive labels is one where that chance is a half."""
    return brentq(lambda q: 2 * bivariate_normal_cdf(q, q, rho).item() - 1, 0, 3)


@exercise(0.05)
def ex_missing_labels():
    """Patients without a label keep their residuals; complete ones have a left residual between
    -1 and 1, of variance .29."""
    variance = 1 - 2 * norm.pdf(1) / (2 * norm.cdf(1) - 1)
    return [0.72, 0.72 * math.sqrt(variance / (0.72**2 * variance + 1 - 0.72**2))]


@exercise(0.05)
def ex_cheaper_cure(likelihood):
    """Mend first and hold what is mended; then only the last correlation is free."""
    return likelihood[2, 3]


@exercise(1e-3)
def ex_only_binary():
    """All three scores are positive if a is the smallest of four independent numbers."""
    return math.log(4)


@exercise(0)
def ex_mask_after_nan():
    """What is zero times NaN?"""
    return math.nan


@exercise(0.03)
def ex_condition_by_drawing(outputs, seen, learnt):
    """Keep draws by their first pressure, then look at the second and at the diagnosis."""
    told = condition_on(outputs[:1], seen[:1], learnt)
    return [told.mean[0, 1], told.probability[0, 0]]


@exercise(1e-6)
def ex_sum_test():
    """Each first form adds or subtracts the 7 once."""
    return 1.0


@exercise(2e-3, {"-.6": "-.3 -.4 -.7 -.8"})
def ex_slepian(rho):
    """Where do both ends of the proof's inequality lie if rho is negative?"""
    nothing_is_cut = theory.orthant_moments(-8.0, -8.0, rho).correlation
    return [nothing_is_cut, 0.0]


@exercise(0.02, {"5.0": "2.0 3.0 8.0"})
def ex_between_cells(sd, rho_34=0.569):
    """If a label is certain, how much of the plane does its cell hold?"""
    q = sd * np.random.default_rng(0).multivariate_normal([0, 0], _pair(0.5), 20_000)
    parts = theory.decompose_latent_correlation(*q.T, rho_34)
    return [parts["within"], parts["between"]]


@exercise(2e-3, {"0.23": "0.15 0.2 0.3", "0.4": "0.3 0.5 0.6"})
def ex_both_eyes(p, rho):
    """Both is one cell, any is one minus another."""
    cells = theory.label_cells([p], [p], rho)[0]
    return [cells[1, 1], 1 - cells[0, 0]]


@exercise(0.01)
def ex_value_of_an_eye(steps):
    """The gain is the mutual information of two normal numbers; solve it for the correlation."""
    return np.sqrt(1 - np.exp(-2 * steps["between eyes"]["mean"]))


@exercise(0.01)
def ex_cut_label():
    """A label that is cut from a number says nothing that the number's distribution does not."""
    return 0.0


@exercise(2e-3, {".2": ".15 .18 .22 .25", ".569": ".3 .4 .7 .8"})
def ex_either_eye(p, rho):
    """One minus the chance that both are well."""
    return [1 - theory.label_cells([p], [p], r)[0, 0, 0] for r in (0.0, rho)]


@exercise(0.015, {".55": ".52 .57 .6", ".569": ".4 .5 .7"})
def ex_both_rules(p3, rho):
    """Take the most probable of the four cells and the two more probable labels, on a grid."""
    p4 = np.linspace(0.002, 0.998, 499)
    joint = theory.label_cells(np.full_like(p4, p3), p4, rho).reshape(-1, 4).argmax(1)
    differs = p4[joint != 2 + (p4 > 0.5)]
    return [differs.min(), differs.max()]


@exercise(2e-3, {".4": ".2 .3 .5", ".569": ".45 .6 .7"})
def ex_implied_latent(covariance, rho):
    """A covariance of two scores of variance 1 is at most 1."""
    return theory.implied_latent_correlation(1.0, covariance, rho)


@exercise(0)
def ex_simulation_pairs():
    """Try m = 10 and m = 50 in a t distribution with m - 1 degrees of freedom."""
    from studies.simulation.tables import implied_pairs

    return implied_pairs(0.36, 0.014)


@exercise(0.02, {".95": ".5 .8 .9 .98"})
def ex_simulation_two_d(correlation):
    """Write the variance of a difference by the variance of each and the correlation."""
    return 1 / math.sqrt(2 * (1 - correlation))


@exercise(5e-3, {".9": ".6 .7 .95", ".8": ".3 .5 .9"})
def ex_simulation_own(rho, r):
    """Half of 1 - 1/G, for lengths alone."""
    return 0.5 * (1 - 1 / theory.gain_limit(rho, r))


@exercise(0.01)
def ex_ablation_two_d(frame):
    """One divides by the spread of the differences, the other by that of the values."""
    own = frame[frame["metric"] == "MAE_L"]
    own = own.pivot_table("value", ["partition", "fold"], "arm")
    a, b = own["one stage"].to_numpy(), own["empirical"].to_numpy()
    spread = np.std(a - b, ddof=1), math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2)
    return [(a - b).mean() / each for each in spread]


@exercise(0.01)
def ex_ablation_seeds():
    """Four folds of a quarter each: the second term under the root is 1/3, and stays."""
    return [math.sqrt((1 / (4 * n) + 1 / 3) / (1 / 4 + 1 / 3)) for n in (10, 1000)]


@exercise(0.5)
def ex_ablation_leak(eyes, test, seed):
    """A test pair leaks where its right eye's owner is in the training part."""
    order = np.random.default_rng(seed).permutation(len(eyes))
    return np.sum(test[order] & ~test[np.roll(order, 1)])


@exercise(1e-3)
def ex_constant_shift():
    """A covariance over patients does not see a constant."""
    return 1.0


@exercise(5e-3, {".5": ".2 .8 1.2 2"})
def ex_residual_limit(noise):
    """The noise adds its variance to the covariance and to both variances."""
    return theory.DISTORTIONS["shared-noise"].residual_correlation(math.sqrt(noise), 0.72)


@exercise(0.05)
def ex_fmcem_collapse():
    """Each iteration adds what z_3 owes to the lengths and rescales."""
    from cevit_lib.estimation import FastMCEM

    draw = theory.draw_scores(1000, np.random.default_rng(0), sd=10.0)
    fitted = FastMCEM(max_iter=500).fit(draw.outputs, draw.y).parameters_.correlation
    return 1 - scores_given(fitted, [2], [0, 1]).covariance


@exercise(5e-3)
def ex_second_sigmoid():
    """A probability lies between 0 and 1; put both into the sigmoid, and that into a threshold."""
    return [-norm.ppf(1 / (1 + math.exp(-p))) for p in (1, 0)]


@exercise(0)
def ex_verdicts_without_records():
    """Count the claims that name a study and are not about the hospital's images."""
    from studies.verdicts import CLAIMS, NOT_RUN, judge_all

    judged = judge_all(CLAIMS, Path("a folder without records"))
    return sum(verdict.word == NOT_RUN for _, verdict in judged)


@exercise(3e-3, {".55": ".45 .65 .75", ".9": ".5 .7 .8"})
def ex_gain(rho, r):
    """One minus the inverse of the equation for G, with r and with r = 0."""
    return [1 - 1 / theory.gain_limit(rho, each) for each in (r, 0.0)]


@exercise(0.05)
def ex_safe_gamma():
    """Between the two ends; neither no dependence nor the true one biases a margin."""
    grid = np.linspace(0, 0.569, 24)
    left = [theory.binary_pair_minimum([1.0, -0.5], 0.569, rho)[0] for rho in grid]
    return grid[np.abs(norm.cdf(left) - norm.cdf(1.0)).argmax()]


@exercise(0.05)
def ex_own_both():
    """Correlated eyes agree more often than independent ones."""
    return 1.0


@exercise(0.01)
def ex_own_width(folder):
    """The variance that is left is that of a bivariate normal distribution."""
    from cevit_lib.training import load_model

    learnt = load_model(folder / "models" / "all").parameters
    return math.sqrt(1 - learnt.correlation[0, 1].item() ** 2)
