"""What a clinician asks of predictions: errors and agreement, detection, calibration, and whether
they are better than saying the same of everybody.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from math import nan

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from cevit_lib.clinic.tables import Domains, eye_of, pairs_of
from cevit_lib.datasets.layout import EYES
from cevit_lib.errors import ParameterError
from cevit_lib.metrics import (
    Interval,
    area_under_curve,
    bland_altman,
    calibration,
    detection_at,
    mean_absolute_error,
    patient_bootstrap,
    patient_labels,
    patient_scores,
    predictive_values,
    r_squared,
    root_mean_squared_error,
    share_within,
    threshold_at_specificity,
)

LEVELS = ("any", "both")  # questions about a label of both eyes
REPLICATIONS = 300  # of the bootstrap
#: What is said before it, for patients and answers.
RESAMPLED = f"{{}} patients are resampled {REPLICATIONS} times, for the intervals of {{}} answers"


@dataclass(frozen=True)
class Stated:
    """What only the reader of a report can say.

    Attributes
    ----------
    limits : dict
        Continuous response to the largest error that is small enough for him.
    prevalences : dict
        Label, or question about it, to the share of positives where predictive values are wanted.
    share : float
        At which specificity the sensitivity is told, and at which sensitivity the specificity.
    """

    limits: dict[str, float] = field(default_factory=dict)
    prevalences: dict[str, float] = field(default_factory=dict)
    share: float = 0.9


@dataclass(frozen=True)
class Answer:
    """One response, or one question about a label of both eyes: what was said, and what is.

    Attributes
    ----------
    name, measure : str
        Such as ``"HM_OS"`` or ``"any HM"``, both of ``"HM"``.
    label : bool
        Whether ``said`` are probabilities.
    said, seen, usual : (n,) arrays
        Predicted; observed, NaN = not; and what is said of everybody who was not photographed: the
        mean of the patients on whom the model was fitted.
    """

    name: str
    measure: str
    label: bool
    said: np.ndarray
    seen: np.ndarray
    usual: np.ndarray

    def numbers(
        self, stated: Stated, rows: np.ndarray | None = None, said: np.ndarray | None = None
    ) -> dict[str, float]:
        """Return the metrics of some patients, of what was said or of something else."""
        rows = np.arange(len(self.seen)) if rows is None else rows
        said = (self.said if said is None else said)[rows]
        if self.label:
            prevalence = stated.prevalences[self.name]
            return of_label(said, self.seen[rows], self.usual[rows], prevalence, stated.share)
        return of_length(said, self.seen[rows], self.usual[rows], stated.limits[self.name])


def of_length(
    said: np.ndarray, seen: np.ndarray, usual: np.ndarray, limit: float
) -> dict[str, float]:
    """Return errors and agreement of a continuous response."""
    agreement = bland_altman(said, seen)
    return {
        "mean absolute error": mean_absolute_error(said, seen),
        "root mean squared error": root_mean_squared_error(said, seen),
        "R²": r_squared(said, seen),
        "bias": agreement.bias,
        "limits of agreement, lower": agreement.low,
        "upper": agreement.high,
        f"share within {limit:g}": share_within(said, seen, limit),
        "skill": skill(said, seen, usual),
    }


def of_label(
    said: np.ndarray, seen: np.ndarray, usual: np.ndarray, prevalence: float, share: float
) -> dict[str, float]:
    """Return detection and calibration of a label's probabilities.

    Thresholds are read off the same patients' curve, which flatters them a little.
    """
    found = detection_at(said, seen, threshold_at_specificity(said, seen, share))
    # told the other way round: negatives take the place of positives, "no" that of "yes"
    turned = -said, 1 - seen
    reverse = detection_at(*turned, threshold_at_specificity(*turned, share))
    predictive = predictive_values(found.sensitivity, found.specificity, prevalence)
    fitted = calibration(said, seen)
    return {
        "area under the curve": area_under_curve(said, seen),
        f"sensitivity at specificity {share:g}": found.sensitivity,
        f"specificity at sensitivity {share:g}": reverse.sensitivity,
        "at prevalence": prevalence,
        "positive predictive value": predictive[0],
        "negative predictive value": predictive[1],
        "Brier score": fitted.brier,
        "calibration intercept": fitted.intercept,
        "calibration slope": fitted.slope,
        "skill": skill(said, seen, usual),
    }


def skill(said: np.ndarray, seen: np.ndarray, usual: np.ndarray) -> float:
    """Return the share of the squared error of saying the usual that the predictions spare."""
    there = np.isfinite(seen)
    plain = float(np.square(usual - seen)[there].mean()) if there.any() else nan
    return 1 - float(np.square(said - seen)[there].mean()) / plain if plain > 0 else nan


def usual_of(
    y: np.ndarray, responses: tuple[str, ...], continuous: int, domains: Domains = EYES
) -> dict[str, float]:
    """Return the mean of every response, and the shares of patients with a label in any and in both
    eyes: what predicts a patient of whom there is no photograph.
    """
    columns = {name: y[:, k] for k, name in enumerate(responses)}
    for stem, pair in pairs_of(responses, continuous, domains).items():
        columns |= {f"{level} {stem}": _of_both(y[:, list(pair)], level) for level in LEVELS}
    seen = {name: values[np.isfinite(values)] for name, values in columns.items()}
    return {name: float(values.mean()) if len(values) else nan for name, values in seen.items()}


def _of_both(labels: np.ndarray, level: str) -> np.ndarray:
    """Return the patient's label where both eyes have one: a positive eye alone would decide "any",
    a negative one alone would not, and the share would be too large.
    """
    return np.where(np.isfinite(labels).all(1), patient_labels(labels, level), nan)


@dataclass(frozen=True)
class Judged:
    """Patients of whom something was said by a model that had not seen them.

    Attributes
    ----------
    ids : list of str
        The patient of each row; one with several visits has several.
    responses : tuple of str
    continuous : int
    y, outputs : (n, p) arrays
        Observed (NaN = not), and means and logits.
    scale : (n, p0) array
        Residual SD that stands behind each patient's intervals.
    cells : dict
        Label of both eyes to its joint probabilities ``(n, 2, 2)``.
    usual : dict
        As :func:`usual_of` names them: ``(n,)`` what is said without a photograph.
    domains : tuple of str
        Names of the left and of the right eye, as the responses end.
    """

    ids: list[str]
    responses: tuple[str, ...]
    continuous: int
    y: np.ndarray
    outputs: np.ndarray
    scale: np.ndarray
    cells: dict[str, np.ndarray]
    usual: dict[str, np.ndarray]
    domains: Domains = EYES

    @property
    def probabilities(self) -> np.ndarray:
        """``(n, p1)`` of the binary responses."""
        return expit(self.outputs[:, self.continuous :])

    def answers(self) -> list[Answer]:
        """Return what can be judged, measure by measure."""
        said = np.concatenate([self.outputs[:, : self.continuous], self.probabilities], axis=1)
        found = [
            Answer(
                name,
                measure_of(name, self.domains),
                k >= self.continuous,
                said[:, k],
                self.y[:, k],
                self._usual(name),
            )
            for k, name in enumerate(self.responses)
        ]
        for stem, pair in pairs_of(self.responses, self.continuous, self.domains).items():
            for level in LEVELS:
                scores, seen = (
                    patient_scores(self.cells[stem], level),
                    _of_both(self.y[:, list(pair)], level),
                )
                name = f"{level} {stem}"
                found.append(Answer(name, stem, True, scores, seen, self._usual(name)))
        order = list(dict.fromkeys(answer.measure for answer in found))
        there = [answer for answer in found if np.isfinite(answer.seen).any()]
        return sorted(there, key=lambda answer: order.index(answer.measure))

    def _usual(self, name: str) -> np.ndarray:
        return self.usual.get(name, np.full(len(self.ids), nan))

    def performance(
        self, stated: Stated, rng: np.random.Generator, replications: int = REPLICATIONS
    ) -> dict[str, dict[str, Interval]]:
        """Return the metrics of every answer, with 95 % intervals from resampled patients."""
        answers = self.answers()

        def of(rows: np.ndarray) -> dict[tuple[str, str], float]:
            return {
                (answer.name, metric): value
                for answer in answers
                for metric, value in answer.numbers(stated, rows).items()
            }

        found: dict[str, dict[str, Interval]] = {answer.name: {} for answer in answers}
        drawn = patient_bootstrap(of, self.ids, rng, replications=replications)
        for (name, metric), interval in drawn.items():
            found[name][metric] = interval
        return found

    def coverage(self, level: float) -> dict[str, tuple[int, int]]:
        """Return how many observed values of a response lie in their interval, and of how many."""
        off = np.abs(self.y - self.outputs)[:, : self.continuous] / self.scale
        inside, seen = off <= norm.ppf((1 + level) / 2), np.isfinite(off)
        return {
            name: (int(inside[:, k].sum()), int(seen[:, k].sum()))
            for k, name in enumerate(self.responses[: self.continuous])
        }

    def worst(self, count: int = 5) -> list[tuple[str, str, float, float]]:
        """Return the predictions furthest off in units of their scale.

        Each as patient, response, predicted, observed.
        """
        off = np.abs(self.y - self.outputs)[:, : self.continuous] / self.scale
        order = np.argsort(-np.nan_to_num(off, nan=-1.0), axis=None)[:count]
        rows, columns = np.unravel_index(order, off.shape)
        return [
            (self.ids[i], self.responses[k], float(self.outputs[i, k]), float(self.y[i, k]))
            for i, k in zip(rows, columns, strict=True)
            if np.isfinite(off[i, k])
        ]


def measure_of(response: str, domains: Domains = EYES) -> str:
    """Return the name of a response without its eye."""
    eye = eye_of(response, domains)
    return response.replace(f"_{eye}", "", 1) if eye else response


def unskilled(performance: dict[str, dict[str, Interval]]) -> list[str]:
    """Return the answers of which no skill is shown: the interval of the skill reaches zero."""
    return [name for name, of in performance.items() if not of["skill"].low > 0]


def in_words(performance: dict[str, dict[str, Interval]]) -> str:
    """Return the sentence on skill that stands in a report and on the terminal."""
    blind = unskilled(performance)
    if not blind:
        return "For every response the predictions are better than saying the usual of everybody."
    whose = "any response" if len(blind) == len(performance) else ", ".join(blind)
    return (
        f"No skill is shown for {whose}: saying the mean of the patients on whom the model was "
        "fitted of everybody may do as well (the 95 % interval of the skill reaches 0 or is not "
        "known)."
    )


def stated_of(words: list[str] | None, option: str) -> dict[str, float]:
    """Read ``NAME=NUMBER``.

    Raises
    ------
    ParameterError
        A word is none, or no number above zero.
    """
    found = {}
    for word in words or ():
        name, _, number = word.rpartition("=")
        try:
            found[name] = float(number)
        except ValueError:
            found[name] = nan
        if not name or not found[name] > 0:
            raise ParameterError(f"{option} {word}: write NAME=NUMBER above zero, such as AL=0.5.")
    return found


def stated_by(options: argparse.Namespace, judged: Judged) -> Stated:
    """Return what ``--within`` and ``--prevalence`` state, of a response or of all of a measure.

    Where they say nothing: half the SD of what was observed of a measure, and the share of
    positives of each label.

    Raises
    ------
    ParameterError
        A name is none of the measures, or a prevalence no share.
    """
    limits = stated_of(options.within, "--within")
    prevalences = stated_of(options.prevalence, "--prevalence")
    for option, given, label in (("--within", limits, False), ("--prevalence", prevalences, True)):
        known = [(a.measure, a.name) for a in judged.answers() if a.label == label]
        names = list(dict.fromkeys(name for pair in known for name in pair))
        for name, value in given.items():
            if name not in names:
                raise ParameterError(f"{option} {name}: the names here are {', '.join(names)}.")
            if label and not value < 1:
                raise ParameterError(f"{option} {name}={value:g}: give a share such as 0.05.")
    return filled(judged, limits, prevalences)


def filled(judged: Judged, limits: dict[str, float], prevalences: dict[str, float]) -> Stated:
    """Return what is stated of every answer, from what was said of some."""
    answers = judged.answers()
    spread: dict[str, list[np.ndarray]] = {}
    for answer in answers:
        spread.setdefault(answer.measure, []).append(answer.seen - np.nanmean(answer.seen))
    usual = {name: _round(np.nanstd(np.concatenate(of)) / 2) for name, of in spread.items()}
    wide = usual | limits
    return Stated(
        {a.name: limits.get(a.name, wide[a.measure]) for a in answers if not a.label},
        {
            a.name: prevalences.get(a.name, prevalences.get(a.measure, float(np.nanmean(a.seen))))
            for a in answers
            if a.label
        },
    )


def _round(value: float) -> float:
    return float(f"{value:.1g}")
