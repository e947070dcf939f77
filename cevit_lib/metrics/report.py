"""One table of metrics for a set of predictions, per response, per patient and jointly; NaN comes
with its reason.
"""

import os
import re
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from cevit_lib.errors import ParameterError, ShapeError
from cevit_lib.metrics.agreement import (
    bland_altman,
    mean_absolute_error,
    r_squared,
    root_mean_squared_error,
    share_within,
)
from cevit_lib.metrics.arrays import as_array
from cevit_lib.metrics.calibration import calibration
from cevit_lib.metrics.detection import (
    accuracy,
    area_under_curve,
    class_reason,
    detection_at,
    joint_accuracy,
    threshold_at_specificity,
)
from cevit_lib.metrics.patients import (
    LEVELS,
    asymmetric,
    independent_cells,
    joint_brier_score,
    joint_log_score,
    patient_labels,
    patient_scores,
    rightly_ordered,
)

UNSEEN = "no patient has it observed"
ONE_EYED = "no patient has both eyes observed"


@dataclass
class Metrics:
    """Values by name, and the reason for every NaN among them.

    Attributes
    ----------
    values : dict of float
        Such as ``"MAE RNFL_OS (um)"``; lower is better for MAE and RMSE, higher for ACC, joint ACC
        and AUC.
    reasons : dict of str
        For each name whose value is NaN.
    """

    values: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, values: dict[str, float], reason: str | None = None) -> None:
        """Take values up, and why those that are NaN are."""
        for key, value in values.items():
            self.values[key] = float(value)
            if np.isnan(value):
                self.reasons[key] = reason or "a prediction is not finite"

    def to_dict(self) -> dict[str, Any]:
        """Return values and reasons as plain dictionaries, for a record."""
        return asdict(self)


@dataclass(frozen=True)
class Questions:
    """What :func:`evaluate_pairs` is asked beside its plain numbers.

    Attributes
    ----------
    limits : dict
        For a measure, limits of error whose shares are wanted, such as ``{"AL": (0.5, 1.0)}``.
    thresholds : dict
        From :func:`thresholds_at_specificity` of *validation* patients: adds sensitivity and
        specificity.
    asymmetry : dict
        For a continuous measure, by how much eyes must differ to count as asymmetric; labels are
        when they differ.
    """

    limits: dict[str, tuple[float, ...]] = field(default_factory=dict)
    thresholds: dict[str, float] = field(default_factory=dict)
    asymmetry: dict[str, float] = field(default_factory=dict)


def evaluate(
    outputs: Any,
    y: Any,
    responses: tuple[str, ...],
    continuous: int,
    joint_classes: Any | None = None,
) -> Metrics:
    """Return MAE, RMSE, ACC by both rules, joint ACC and AUC of one set of predictions, per
    response.

    Parameters
    ----------
    outputs : array, shape (n, p)
        Means in the responses' units, then logits.
    y : array, shape (n, p)
        Responses, NaN = not observed.
    responses : tuple of str
        Names of the columns.
    continuous : int
        How many columns are continuous.
    joint_classes : array, shape (n, p1), optional
        Classes by the joint Bayes rule; without it the rule by margins stands for both.

    Returns
    -------
    Metrics
        Keys ``MAE name, RMSE name, ACC name`` (each margin above 1/2), ``ACC joint rule name, AUC
        name, joint ACC`` and ``joint ACC marginal rule``.

    Raises
    ------
    ShapeError
        Outputs, responses and names disagree.
    """
    outputs, y = _checked(outputs, y, responses)
    labels, marginal = y[:, continuous:], (outputs[:, continuous:] > 0).astype(float)
    joint = marginal if joint_classes is None else as_array(joint_classes)
    table = Metrics()
    for k, name in enumerate(responses):
        values, column = {}, (outputs[:, k], y[:, k])
        if k < continuous:
            values[f"MAE {name}"] = mean_absolute_error(*column)
            values[f"RMSE {name}"] = root_mean_squared_error(*column)
        else:
            values[f"ACC {name}"] = accuracy(marginal[:, k - continuous], y[:, k])
            values[f"ACC joint rule {name}"] = accuracy(joint[:, k - continuous], y[:, k])
            table.add({f"AUC {name}": area_under_curve(*column)}, class_reason(y[:, k]))
        table.add(values, _unseen(y[:, k]))
    if labels.shape[1]:
        both = {"joint ACC": joint, "joint ACC marginal rule": marginal}
        table.add({name: joint_accuracy(said, labels) for name, said in both.items()}, UNSEEN)
    return table


def evaluate_pairs(
    outputs: Any,
    y: Any,
    responses: tuple[str, ...],
    continuous: int,
    cells: Any | None = None,
    questions: Questions | None = None,
) -> Metrics:
    """Return what an eye clinic asks of predictions for both eyes: by eye, by patient, and where
    the eyes differ.

    Parameters
    ----------
    outputs : array, shape (n, p)
        Means in the responses' units, then logits.
    y : array, shape (n, p)
        Responses, NaN = not observed; the two eyes of a measure side by side, left eye first.
    responses : tuple of str
        Names of the columns, such as ``("AL_OS", "AL_OD", "HM_OS", "HM_OD")``: the measures are
        ``AL`` and ``HM``.
    continuous : int
        How many columns are continuous.
    cells : array, shape (n, 2, 2), optional
        Joint probabilities of the two labels; without them the eyes are taken for independent.
    questions : Questions, optional
        What else is asked, measure by measure.

    Returns
    -------
    Metrics
        Continuous, ``x`` being a column: ``MAE x, RMSE x, R2 x, bias x, slope x`` (Bland and
        Altman), ``within L x``; of a measure ``m``: ``MAE m eyes`` (all eyes), ``MAE m worse``,
        ``MAE m difference`` (of the difference between the eyes), ``patients m asymmetric``, ``MAE
        m asymmetric``, ``MAE m difference asymmetric``. Binary, ``x`` being a column or one of ``m
        any, m worse, m both``: ``AUC x, Brier x, calibration intercept x, calibration slope x,
        sensitivity x, specificity x``; of a measure: ``joint log score m, joint Brier m, patients m
        asymmetric, ordered m`` (see ``cevit_lib.metrics.patients``).

    Raises
    ------
    ShapeError, ParameterError
        Shapes disagree, columns do not come in pairs, or a question names a measure that is not
        there.
    """
    measures, asked = _measures(outputs, y, responses, continuous), questions or Questions()
    lengths, labels = measures[: continuous // 2], measures[continuous // 2 :]
    known = sorted(measure.name for measure in lengths)
    if unknown := sorted((asked.limits.keys() | asked.asymmetry.keys()) - set(known)):
        raise ParameterError(
            f"no continuous measure {unknown[0]!r}; there are: {', '.join(known) or 'none'}."
        )
    if cells is not None and len(labels) != 1:
        raise ShapeError(f"cells are those of two labels; here are {len(labels)} binary measures.")
    table = Metrics()
    for measure in lengths:
        _lengths(table, measure, asked)
    for measure in labels:
        _labels(table, measure, cells, asked.thresholds)
    return table


def thresholds_at_specificity(
    outputs: Any,
    y: Any,
    responses: tuple[str, ...],
    continuous: int,
    specificity: float = 0.9,
    cells: Any | None = None,
) -> dict[str, float]:
    """Return thresholds on the probabilities of each binary column and each patient-level answer.

    Arguments as in :func:`evaluate_pairs`, of *validation* patients; NaN where they hold no
    negative.
    """
    return {
        key: threshold_at_specificity(score, label, specificity)
        for measure in _measures(outputs, y, responses, continuous)[continuous // 2 :]
        for key, score, label in measure.answers(cells)
    }


class _Measure(NamedTuple):
    """What is measured in both eyes: its name, those of its columns, predictions and observations
    (n, 2).
    """

    name: str
    columns: tuple[str, ...]
    predicted: np.ndarray
    observed: np.ndarray

    def eyes(self) -> list[tuple[str, np.ndarray, np.ndarray]]:
        """Return name, predictions (n,) and observations (n,) of each eye."""
        return list(zip(self.columns, self.predicted.T, self.observed.T, strict=True))

    def cells(self, given: Any) -> Any:
        """Return joint probabilities (n, 2, 2) of two labels, as given or of independent eyes."""
        return independent_cells(expit(self.predicted)) if given is None else given

    def answers(self, cells: Any) -> list[tuple[str, np.ndarray, np.ndarray]]:
        """Return name, probability and label of each question: two about eyes, three about the
        patient.
        """
        cells = self.cells(cells)
        by_eye = [(column, expit(logit), label) for column, logit, label in self.eyes()]
        return by_eye + [
            (
                f"{self.name} {level}",
                patient_scores(cells, level),
                patient_labels(self.observed, level),
            )
            for level in LEVELS
        ]


def _checked(outputs: Any, y: Any, responses: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    outputs, y = as_array(outputs), as_array(y)
    if outputs.shape != y.shape or y.ndim != 2 or y.shape[1] != len(responses):
        raise ShapeError(
            f"outputs {outputs.shape}, y {y.shape} and {len(responses)} names do not agree."
        )
    return outputs, y


def _measures(outputs: Any, y: Any, responses: tuple[str, ...], continuous: int) -> list[_Measure]:
    """Return the measures, each named by the common beginning of its two columns' names."""
    outputs, y = _checked(outputs, y, responses)
    if len(responses) % 2 or continuous % 2:
        counted = f"{continuous} continuous of {len(responses)} responses"
        raise ShapeError(f"{counted}: two eyes give even numbers of both.")
    pairs = [tuple(responses[k : k + 2]) for k in range(0, len(responses), 2)]
    names = [
        re.split(r"[_ .-]+[^_ .-]*$", os.path.commonprefix(pair))[0] for pair in pairs
    ]  # AL_O(S|D) -> AL
    if "" in names or len(set(names)) < len(names):  # such as y1_OS, y2_OD, y3_OS, y4_OD
        names = ["/".join(pair) for pair in pairs]
    return [
        _Measure(name, pair, outputs[:, 2 * k : 2 * k + 2], y[:, 2 * k : 2 * k + 2])
        for k, (name, pair) in enumerate(zip(names, pairs, strict=True))
    ]


def _lengths(table: Metrics, measure: _Measure, asked: Questions) -> None:
    name, predicted, observed = measure.name, measure.predicted, measure.observed
    limits = asked.limits.get(name, ())
    for column, mu, y in measure.eyes():
        agreement = bland_altman(mu, y)
        _errors(table, column, mu, y, limits)
        values = {
            f"RMSE {column}": root_mean_squared_error(mu, y),
            f"R2 {column}": r_squared(mu, y),
            f"bias {column}": agreement.bias,
            f"slope {column}": agreement.slope,
        }
        table.add(values, _why_undefined(y))
    _errors(table, f"{name} eyes", predicted.ravel(), observed.ravel(), limits)
    apart = [values[:, 0] - values[:, 1] for values in (predicted, observed)]
    values = {  # the worse eye is the longer one, and not known where the other is missing
        f"MAE {name} worse": mean_absolute_error(predicted.max(1), observed.max(1)),
        f"MAE {name} difference": mean_absolute_error(*apart),
    }
    table.add(values, ONE_EYED)
    if name in asked.asymmetry:
        differ = asymmetric(observed, asked.asymmetry[name])
        eyes = predicted[differ].ravel(), observed[differ].ravel()
        values = {
            f"patients {name} asymmetric": differ.sum(),
            f"MAE {name} asymmetric": mean_absolute_error(*eyes),
            f"MAE {name} difference asymmetric": mean_absolute_error(*[a[differ] for a in apart]),
        }
        table.add(values, f"no patient's eyes differ by more than {asked.asymmetry[name]:g}")


def _errors(table: Metrics, name: str, predicted, observed, limits) -> None:
    within = {
        f"within {limit:g} {name}": share_within(predicted, observed, limit) for limit in limits
    }
    table.add({f"MAE {name}": mean_absolute_error(predicted, observed)} | within, _unseen(observed))


def _unseen(observed: np.ndarray) -> str | None:
    return None if np.isfinite(observed).any() else UNSEEN


def _why_undefined(observed: np.ndarray) -> str | None:
    seen = observed[np.isfinite(observed)]
    if seen.size and (seen.size < 3 or np.ptp(seen) == 0):
        why = "do not vary" if np.ptp(seen) == 0 else "are too few"
        return f"{seen.size} observations that {why}"
    return _unseen(observed)


def _labels(table: Metrics, measure: _Measure, cells: Any, thresholds: dict[str, float]) -> None:
    name, labels = measure.name, measure.observed
    for key, score, label in measure.answers(cells):
        reason, found = class_reason(label), calibration(score, label)
        table.add({f"AUC {key}": area_under_curve(score, label)}, reason)
        table.add({f"Brier {key}": found.brier}, reason)
        slope = {f"calibration intercept {key}": found.intercept}
        table.add(slope | {f"calibration slope {key}": found.slope}, found.reason)
        if key in thresholds:
            blind = np.isnan(thresholds[key])
            shares = detection_at(score, label, thresholds[key])._asdict()
            values = {f"{share} {key}": value for share, value in shares.items()}
            table.add(values, "the validation patients have no negative" if blind else reason)
    joint = measure.cells(cells)
    scores = {
        f"joint log score {name}": joint_log_score(joint, labels),
        f"joint Brier {name}": joint_brier_score(joint, labels),
        f"patients {name} asymmetric": asymmetric(labels).sum(),
    }
    table.add(scores, ONE_EYED)
    ordered = rightly_ordered(measure.predicted, labels)
    table.add({f"ordered {name}": ordered}, "in no patient do the eyes differ")
