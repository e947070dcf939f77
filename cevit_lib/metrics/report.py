"""One table of metrics for a set of predictions, per response, per patient and jointly; NaN comes with its reason."""

import os
import re
from dataclasses import dataclass, field
from typing import Any

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
from cevit_lib.metrics.arrays import as_array as _array
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
    worse_eye,
)


@dataclass(frozen=True)
class Metrics:
    """Values by name, and the reason for every NaN among them.

    Attributes
    ----------
    values : dict of float
        Such as ``"MAE RNFL_OS (um)"``; lower is better for MAE and RMSE, higher for ACC, joint ACC and AUC.
    reasons : dict of str
        For each name whose value is NaN.
    """

    values: dict[str, float]
    reasons: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return values and reasons as plain dictionaries, for a record."""
        return {"values": dict(self.values), "reasons": dict(self.reasons)}


def evaluate(
    outputs: Any,
    y: Any,
    responses: tuple[str, ...],
    continuous: int,
    joint_classes: Any | None = None,
) -> Metrics:
    """Return MAE, RMSE, ACC by both rules, joint ACC and AUC of one set of predictions, per response.

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
        Keys ``MAE name, RMSE name, ACC name`` (each margin above 1/2), ``ACC joint rule name, AUC name, joint ACC`` and
        ``joint ACC marginal rule``.

    Raises
    ------
    ShapeError
        Outputs, responses and names disagree.
    """
    outputs, y = _array(outputs), _array(y)
    if outputs.shape != y.shape or y.shape[1] != len(responses):
        raise ShapeError(
            f"outputs {outputs.shape}, y {y.shape} and {len(responses)} names do not agree."
        )
    marginal = (outputs[:, continuous:] > 0).astype(float)
    joint = marginal if joint_classes is None else _array(joint_classes)
    values: dict[str, float] = {}
    for k in range(continuous):
        values[f"MAE {responses[k]}"] = mean_absolute_error(outputs[:, k], y[:, k])
        values[f"RMSE {responses[k]}"] = root_mean_squared_error(outputs[:, k], y[:, k])
    for k, name in enumerate(responses[continuous:]):
        values[f"ACC {name}"] = accuracy(marginal[:, k], y[:, continuous + k])
        values[f"ACC joint rule {name}"] = accuracy(joint[:, k], y[:, continuous + k])
        values[f"AUC {name}"] = area_under_curve(outputs[:, continuous + k], y[:, continuous + k])
    if y.shape[1] > continuous:
        values["joint ACC"] = joint_accuracy(joint, y[:, continuous:])
        values["joint ACC marginal rule"] = joint_accuracy(marginal, y[:, continuous:])
    return Metrics(values, _reasons(values, y, responses))


def _reasons(values: dict[str, float], y: np.ndarray, responses: tuple[str, ...]) -> dict[str, str]:
    reasons = {}
    for key, value in values.items():
        if np.isfinite(value):
            continue
        column = next((k for k, name in enumerate(responses) if key.endswith(name)), None)
        seen = y[:, column][np.isfinite(y[:, column])] if column is not None else np.empty(0)
        if seen.size == 0:
            reasons[key] = "no patient has it observed"
        elif key.startswith("AUC"):
            reasons[key] = (
                f"one class only: {int((seen == 0).sum())} zeros, {int((seen == 1).sum())} ones"
            )
        else:
            reasons[key] = "a prediction is not finite"
    return reasons


def evaluate_pairs(
    outputs: Any,
    y: Any,
    responses: tuple[str, ...],
    continuous: int,
    *,
    cells: Any | None = None,
    limits: dict[str, tuple[float, ...]] | None = None,
    thresholds: dict[str, float] | None = None,
    asymmetry: dict[str, float] | None = None,
) -> Metrics:
    """Return what an eye clinic asks of predictions for both eyes: by eye, by patient, and where the eyes differ.

    Parameters
    ----------
    outputs : array, shape (n, p)
        Means in the responses' units, then logits.
    y : array, shape (n, p)
        Responses, NaN = not observed; the two eyes of a measure side by side, left eye first.
    responses : tuple of str
        Names of the columns, such as ``("AL_OS", "AL_OD", "HM_OS", "HM_OD")``: the measures are ``AL`` and ``HM``.
    continuous : int
        How many columns are continuous.
    cells : array, shape (n, 2, 2), optional
        Joint probabilities of the two labels; without them the eyes are taken for independent.
    limits : dict, optional
        For a measure, limits of error whose shares are wanted, such as ``{"AL": (0.5, 1.0)}``.
    thresholds : dict, optional
        From :func:`thresholds_at_specificity` of *validation* patients: adds sensitivity and specificity.
    asymmetry : dict, optional
        For a continuous measure, by how much eyes must differ to count as asymmetric; labels are when they differ.

    Returns
    -------
    Metrics
        Continuous, ``x`` being a column: ``MAE x, RMSE x, R2 x, bias x, slope x`` (Bland and Altman), ``within L x``;
        of a measure ``m``: ``MAE m eyes`` (all eyes), ``MAE m worse``, ``MAE m difference`` (of the difference between
        the eyes), ``patients m asymmetric``, ``MAE m asymmetric``, ``MAE m difference asymmetric``.
        Binary, ``x`` being a column or one of ``m any, m worse, m both``: ``AUC x, Brier x, calibration intercept x,
        calibration slope x, sensitivity x, specificity x``; of a measure: ``joint log score m, joint Brier m,
        patients m asymmetric, ordered m`` (see ``cevit_lib.metrics.patients``).

    Raises
    ------
    ShapeError, ParameterError
        Shapes disagree, columns do not come in pairs, or a dict names a measure that is not there.
    """
    outputs, y = _array(outputs), _array(y)
    if outputs.shape != y.shape or y.ndim != 2 or y.shape[1] != len(responses):
        raise ShapeError(
            f"outputs {outputs.shape}, y {y.shape} and {len(responses)} names do not agree."
        )
    measures = _measures(responses, continuous)
    binary = [name for name, column in measures.items() if column >= continuous]
    _only_known({**(limits or {}), **(asymmetry or {})}, set(measures) - set(binary))
    if cells is not None and len(binary) != 1:
        raise ShapeError(f"cells are those of two labels; here are {len(binary)} binary measures.")
    table = _Table()
    for name, column in measures.items():
        pair, names = slice(column, column + 2), responses[column : column + 2]
        if column < continuous:
            _lengths(
                table,
                name,
                names,
                outputs[:, pair],
                y[:, pair],
                (limits or {}).get(name, ()),
                (asymmetry or {}).get(name),
            )
        else:
            _labels(table, name, names, outputs[:, pair], y[:, pair], cells, thresholds or {})
    return Metrics(table.values, table.reasons)


def thresholds_at_specificity(
    outputs: Any,
    y: Any,
    responses: tuple[str, ...],
    continuous: int,
    specificity: float = 0.9,
    *,
    cells: Any | None = None,
) -> dict[str, float]:
    """Return thresholds on the probabilities of each binary column and each patient-level answer.

    Arguments as in :func:`evaluate_pairs`, of *validation* patients; NaN where they hold no negative.
    """
    outputs, y = _array(outputs), _array(y)
    found = {}
    for name, column in _measures(responses, continuous).items():
        if column >= continuous:
            pair = slice(column, column + 2)
            questions = _questions(
                name, responses[pair], expit(outputs[:, pair]), y[:, pair], cells
            )
            found |= {
                key: threshold_at_specificity(score, label, specificity)
                for key, score, label in questions
            }
    return found


class _Table:
    """Collects values, and a reason for each NaN."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.reasons: dict[str, str] = {}

    def add(self, key: str, value: float, reason: str | None = None) -> None:
        self.values[key] = float(value)
        if np.isnan(value):
            self.reasons[key] = reason or "a prediction is not finite"


def _measures(responses: tuple[str, ...], continuous: int) -> dict[str, int]:
    """Return the first column of each measure by the common beginning of its two names."""
    if len(responses) % 2 or continuous % 2:
        raise ShapeError(
            f"{continuous} continuous of {len(responses)} responses: two eyes give even numbers of both."
        )
    pairs = [tuple(responses[k : k + 2]) for k in range(0, len(responses), 2)]
    names = [
        re.split(r"[_ .-]+[^_ .-]*$", os.path.commonprefix(pair))[0] for pair in pairs
    ]  # AL_O(S|D) -> AL
    if "" in names or len(set(names)) < len(names):  # such as y1_OS, y2_OD, y3_OS, y4_OD
        names = ["/".join(pair) for pair in pairs]
    return {name: 2 * place for place, name in enumerate(names)}


def _only_known(named: dict[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(named) - known):
        raise ParameterError(
            f"no continuous measure {unknown[0]!r}; there are: {', '.join(sorted(known)) or 'none'}."
        )


def _lengths(table, name, names, predicted, observed, limits, asymmetry) -> None:
    for k, column in enumerate(names):
        _errors(table, column, predicted[:, k], observed[:, k], limits)
        reason = _why_undefined(observed[:, k])
        agreement = bland_altman(predicted[:, k], observed[:, k])
        table.add(
            f"RMSE {column}", root_mean_squared_error(predicted[:, k], observed[:, k]), reason
        )
        table.add(f"R2 {column}", r_squared(predicted[:, k], observed[:, k]), reason)
        table.add(f"bias {column}", agreement.bias, reason)
        table.add(f"slope {column}", agreement.slope, reason)
    _errors(table, f"{name} eyes", predicted.ravel(), observed.ravel(), limits)
    reason = "no patient has both eyes observed"
    table.add(
        f"MAE {name} worse", mean_absolute_error(worse_eye(predicted), worse_eye(observed)), reason
    )
    apart = [values[:, 0] - values[:, 1] for values in (predicted, observed)]
    table.add(f"MAE {name} difference", mean_absolute_error(*apart), reason)
    if asymmetry is not None:
        differ = asymmetric(observed, asymmetry)
        reason = f"no patient's eyes differ by more than {asymmetry:g}"
        table.add(f"patients {name} asymmetric", differ.sum())
        table.add(
            f"MAE {name} asymmetric",
            mean_absolute_error(predicted[differ].ravel(), observed[differ].ravel()),
            reason,
        )
        table.add(
            f"MAE {name} difference asymmetric",
            mean_absolute_error(*[side[differ] for side in apart]),
            reason,
        )


def _errors(table, name, predicted, observed, limits) -> None:
    reason = _why_undefined(observed)
    table.add(f"MAE {name}", mean_absolute_error(predicted, observed), reason)
    for limit in limits:
        table.add(f"within {limit:g} {name}", share_within(predicted, observed, limit), reason)


def _why_undefined(observed: np.ndarray) -> str | None:
    seen = observed[np.isfinite(observed)]
    if seen.size == 0:
        return "no patient has it observed"
    if seen.size < 3 or np.ptp(seen) == 0:
        return f"{seen.size} observations that " + (
            "do not vary" if np.ptp(seen) == 0 else "are too few"
        )
    return None


def _questions(name, names, probability, labels, cells) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return name, probability and label of each question: two about eyes, three about the patient."""
    cells = independent_cells(probability) if cells is None else cells
    by_eye = [(column, probability[:, k], labels[:, k]) for k, column in enumerate(names)]
    return by_eye + [
        (f"{name} {level}", patient_scores(cells, level), patient_labels(labels, level))
        for level in LEVELS
    ]


def _labels(table, name, names, logits, labels, cells, thresholds) -> None:
    probability = expit(logits)
    for key, score, label in _questions(name, names, probability, labels, cells):
        reason = class_reason(label)
        table.add(f"AUC {key}", area_under_curve(score, label), reason)
        found = calibration(score, label)
        table.add(f"Brier {key}", found.brier, reason)
        table.add(f"calibration intercept {key}", found.intercept, found.reason)
        table.add(f"calibration slope {key}", found.slope, found.reason)
        if key in thresholds:
            reason = (
                "the validation patients have no negative" if np.isnan(thresholds[key]) else reason
            )
            sensitivity, specificity = detection_at(score, label, thresholds[key])
            table.add(f"sensitivity {key}", sensitivity, reason)
            table.add(f"specificity {key}", specificity, reason)
    joint = independent_cells(probability) if cells is None else cells
    table.add(
        f"joint log score {name}",
        joint_log_score(joint, labels),
        "no patient has both eyes observed",
    )
    table.add(
        f"joint Brier {name}", joint_brier_score(joint, labels), "no patient has both eyes observed"
    )
    table.add(f"patients {name} asymmetric", asymmetric(labels).sum())
    table.add(
        f"ordered {name}", rightly_ordered(logits, labels), "in no patient do the eyes differ"
    )
