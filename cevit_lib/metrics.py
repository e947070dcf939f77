"""How good predictions are, per eye and for both eyes together; what cannot be computed is NaN and says why."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from cevit_lib.errors import ShapeError


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


def mean_absolute_error(predicted: Any, observed: Any) -> float:
    """Return the mean of ``|predicted - observed|`` over what was observed, in the response's units (or NaN)."""
    difference = _difference(predicted, observed)
    return float(np.abs(difference).mean()) if difference.size else float("nan")


def root_mean_squared_error(predicted: Any, observed: Any) -> float:
    """Return the root of the mean squared difference over what was observed, in the response's units (or NaN)."""
    difference = _difference(predicted, observed)
    return float(np.sqrt(np.square(difference).mean())) if difference.size else float("nan")


def accuracy(classes: Any, labels: Any) -> float:
    """Return the share of observed labels that were predicted; NaN without any."""
    classes, labels = _pair(classes, labels)
    return float((classes == labels).mean()) if labels.size else float("nan")


def joint_accuracy(classes: Any, labels: Any) -> float:
    """Return the share of patients whose labels are all right together, of those with all labels observed.

    Parameters
    ----------
    classes, labels : array, shape (n, p1)
    """
    classes, labels = _array(classes), _array(labels)
    if classes.shape != labels.shape or labels.ndim != 2:
        raise ShapeError(f"classes {classes.shape} and labels {labels.shape} must both be (n, p1).")
    whole = np.isfinite(labels).all(1)
    return float((classes[whole] == labels[whole]).all(1).mean()) if whole.any() else float("nan")


def area_under_curve(scores: Any, labels: Any) -> float:
    """Return the probability that a random positive has the larger score than a random negative (ties count half).

    By ranks (the Mann-Whitney statistic); NaN when the observed labels have one class only.
    """
    from scipy.stats import rankdata

    scores, labels = _pair(scores, labels)
    positive = int((labels == 1).sum())
    negative = labels.size - positive
    if positive == 0 or negative == 0:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[labels == 1].sum() - positive * (positive + 1) / 2) / (positive * negative))


def evaluate(
    outputs: Any, y: Any, responses: tuple[str, ...], continuous: int, joint_classes: Any | None = None
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
    """
    outputs, y = _array(outputs), _array(y)
    if outputs.shape != y.shape or y.shape[1] != len(responses):
        raise ShapeError(f"outputs {outputs.shape}, y {y.shape} and {len(responses)} names do not agree.")
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
            reasons[key] = f"one class only: {int((seen == 0).sum())} zeros, {int((seen == 1).sum())} ones"
        else:
            reasons[key] = "a prediction is not finite"
    return reasons


def _array(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy().astype(float) if torch.is_tensor(values) else np.asarray(values, dtype=float)


def _pair(predicted: Any, observed: Any) -> tuple[np.ndarray, np.ndarray]:
    predicted, observed = _array(predicted), _array(observed)
    if predicted.shape != observed.shape or observed.ndim != 1:
        raise ShapeError(f"predicted {predicted.shape} and observed {observed.shape} must both be (n,).")
    seen = np.isfinite(observed)
    return predicted[seen], observed[seen]


def _difference(predicted: Any, observed: Any) -> np.ndarray:
    predicted, observed = _pair(predicted, observed)
    return predicted - observed
