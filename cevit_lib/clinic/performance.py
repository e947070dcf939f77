"""What a clinician asks of predictions: errors and agreement, detection, calibration, and whether
they are better than saying the same of everybody.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from math import nan
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from cevit_lib.clinic.tables import Domains, eye_of, pairs_of
from cevit_lib.copula import class_probabilities
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
)
from cevit_lib.training import Predictions

LEVELS = ("any", "both")  # questions about a label of both eyes
REPLICATIONS = 300  # of the bootstrap


class Question(NamedTuple):
    """One response, or one question about a label of both eyes.

    Attributes
    ----------
    name, measure : str
        Such as ``"HM_OS"`` or ``"any HM"``, both of ``"HM"``.
    label : bool
    columns : tuple of int
        One, or those of both eyes.
    """

    name: str
    measure: str
    label: bool
    columns: tuple[int, ...]

    @property
    def level(self) -> str:
        """``"any"`` or ``"both"``, where it is about both eyes."""
        return self.name.partition(" ")[0] if len(self.columns) == 2 else ""

    def observed(self, y: np.ndarray) -> np.ndarray:
        """Return what is, ``(n,)``: of both eyes where both have a label. A positive eye alone
        would decide "any", a negative one alone would not, and the share would be too large.
        """
        values = y[:, list(self.columns)]
        if not self.level:
            return values[:, 0]
        return np.where(np.isfinite(values).all(1), patient_labels(values, self.level), nan)


def questions(
    responses: tuple[str, ...], continuous: int, domains: Domains = EYES
) -> list[Question]:
    """Return what can be asked of a model with these responses, measure by measure."""
    found = [
        Question(name, measure_of(name, domains), k >= continuous, (k,))
        for k, name in enumerate(responses)
    ]
    for stem, pair in pairs_of(responses, continuous, domains).items():
        found += [Question(f"{level} {stem}", stem, True, pair) for level in LEVELS]
    order = list(dict.fromkeys(one.measure for one in found))
    return sorted(found, key=lambda one: order.index(one.measure))


def measure_of(response: str, domains: Domains = EYES) -> str:
    """Return the name of a response without its eye."""
    eye = eye_of(response, domains)
    return response.replace(f"_{eye}", "", 1) if eye else response


@dataclass(frozen=True)
class Answer:
    """What was said to a question, and what is.

    Attributes
    ----------
    name, measure, label
        Of the question; ``said`` are probabilities where it asks for a label.
    said, seen, usual : (n,) arrays
        Predicted; observed, NaN = not; and what is said of everybody who was not photographed: the
        mean of the patients on whom the model was fitted.
    scale : (n,) array
        Residual SD that stands behind each patient's interval; NaN of a label.
    """

    name: str
    measure: str
    label: bool
    said: np.ndarray
    seen: np.ndarray
    usual: np.ndarray
    scale: Any = nan

    @property
    def off(self) -> np.ndarray:
        """Distance of predicted and observed in units of their scale."""
        return np.abs(self.seen - self.said) / self.scale

    def numbers(self, stated: dict[str, float], rows: Any = slice(None)) -> dict[str, float]:
        """Return the metrics of some patients."""
        of = of_label if self.label else of_length
        return of(self.said[rows], self.seen[rows], self.usual[rows], stated[self.name])

    def without_skill(self, stated: dict[str, float]) -> dict[str, float]:
        """Return the metrics of saying the usual of everybody."""
        return replace(self, said=self.usual).numbers(stated)


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
    said: np.ndarray, seen: np.ndarray, usual: np.ndarray, prevalence: float, share: float = 0.9
) -> dict[str, float]:
    """Return detection and calibration of a label's probabilities."""
    found = detection_at(said, seen, share)
    # told the other way round: negatives take the place of positives, "no" that of "yes"
    reverse = detection_at(-said, 1 - seen, share)
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
    asked = questions(responses, continuous, domains)
    seen = {one.name: one.observed(y) for one in asked}
    return {k: float(np.nanmean(v)) if np.isfinite(v).any() else nan for k, v in seen.items()}


@dataclass(frozen=True)
class Judged:
    """Patients of whom something was said by a model that had not seen them.

    Attributes
    ----------
    ids : list of str
        The patient of each row; one with several visits has several.
    asked : list of Answer
        To every question.
    domains : tuple of str
        Names of the left and of the right eye, as the responses end.
    """

    ids: list[str]
    asked: list[Answer]
    domains: Domains = EYES

    def answers(self) -> list[Answer]:
        """Return what can be judged, measure by measure."""
        return [answer for answer in self.asked if np.isfinite(answer.seen).any()]

    def performance(
        self, stated: dict[str, float], rng: np.random.Generator, replications: int = REPLICATIONS
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
        reach = norm.ppf((1 + level) / 2)
        return {
            answer.name: (int((answer.off <= reach).sum()), int(np.isfinite(answer.off).sum()))
            for answer in self.answers()
            if not answer.label
        }

    def worst(self, count: int = 5) -> list[tuple[str, str, float, float]]:
        """Return the predictions furthest off in units of their scale.

        Each as patient, response, predicted, observed.
        """
        cases = [
            (off, patient, answer.name, float(said), float(seen))
            for answer in self.answers()
            for off, patient, said, seen in zip(
                answer.off, self.ids, answer.said, answer.seen, strict=True
            )
            if off >= 0
        ]
        return [case[1:] for case in sorted(cases, reverse=True)[:count]]


def judge(
    predictions: Predictions, y: np.ndarray, usual: dict[str, float], domains: Domains = EYES
) -> Judged:
    """Return the predictions of one model beside what was observed, ``y (n, p)``, and ``usual``."""
    outputs, p, asked = predictions.outputs.double(), predictions.parameters, []
    means = np.concatenate([outputs[:, : p.p0], outputs[:, p.p0 :].sigmoid()], axis=1)
    for question in questions(predictions.responses, p.p0, domains):
        columns = list(question.columns)
        said, scale = means[:, columns[0]], nan
        if question.level:
            cells = class_probabilities(outputs[:, columns], p.margin(columns)).numpy()
            said = patient_scores(cells, question.level)
        elif not question.label:
            scale = float(p.scale[columns[0]])
        known = usual.get(question.name)
        alike = (np.full(len(means), nan if one is None else one) for one in (known, scale))
        asked.append(Answer(*question[:3], said, question.observed(y), *alike))
    return Judged(list(predictions.ids), asked, domains)


def joined(parts: list[Judged]) -> Judged:
    """Lay judged patients together."""
    arrays = ("said", "seen", "usual", "scale")
    asked = [
        replace(
            same[0],
            **{name: np.concatenate([getattr(one, name) for one in same]) for name in arrays},
        )
        for same in zip(*(part.asked for part in parts), strict=True)
    ]
    return replace(parts[0], ids=[patient for part in parts for patient in part.ids], asked=asked)


def in_words(performance: dict[str, dict[str, Interval]]) -> str:
    """Return the sentence on skill that stands in a report and on the terminal: of some answers
    none is shown, the interval of the skill reaches zero.
    """
    blind = [name for name, of in performance.items() if not of["skill"].low > 0]
    if not blind:
        return "For every response the predictions are better than saying the usual of everybody."
    whose = "any response" if len(blind) == len(performance) else ", ".join(blind)
    return (
        f"No skill is shown for {whose}: saying the mean of the patients on whom the model was "
        "fitted of everybody may do as well (the 95 % interval of the skill reaches 0 or is not "
        "known)."
    )


def resampled(
    judged: Judged, stated: dict[str, float]
) -> tuple[dict[str, float], dict[str, dict[str, Interval]]]:
    """Return what is stated of every answer, and the performance under it; say that it takes
    time.
    """
    answers, patients = judged.answers(), len(set(judged.ids))
    stated = filled(answers, stated)
    said = f"{patients} patients are resampled {REPLICATIONS} times, for the intervals of"
    print(f"{said} {len(answers)} answers", flush=True)
    return stated, judged.performance(stated, np.random.default_rng(0))


def stated_by(options: argparse.Namespace, asked: list[Question]) -> dict[str, float]:
    """Return what ``--within`` and ``--prevalence`` state, of a response or of all of a measure.

    Raises
    ------
    ParameterError
        A name is none of the measures.
    """
    stated: dict[str, float] = {}
    for option, label in (("within", False), ("prevalence", True)):
        known = [name for one in asked if one.label == label for name in (one.measure, one.name)]
        for name, value in getattr(options, option) or ():
            if name not in known:
                names = ", ".join(dict.fromkeys(known))
                raise ParameterError(f"--{option} {name}: the names here are {names}.")
            stated[name] = value
    return stated


def filled(answers: list[Answer], stated: dict[str, float]) -> dict[str, float]:
    """Return the largest error that is small enough, or the share of positives at which predictive
    values are wanted, of every answer.

    Where nothing is stated: half the SD of what was observed of a measure, the share observed.
    """
    found = {}
    for answer in answers:
        same = [one.seen - np.nanmean(one.seen) for one in answers if one.measure == answer.measure]
        usual = float(f"{np.nanstd(np.concatenate(same)) / 2:.1g}")
        usual = float(np.nanmean(answer.seen)) if answer.label else usual
        found[answer.name] = stated.get(answer.name, stated.get(answer.measure, usual))
    return found
