"""Yes-or-no answers: accuracy, area under the curve, sensitivity at a specificity."""

from typing import Any, NamedTuple

import numpy as np

from cevit_lib.errors import ParameterError, ShapeError
from cevit_lib.metrics.arrays import as_array, observed_pair, scored

UNSEEN = "no patient has it observed"


def class_reason(labels: Any) -> str | None:
    """Return why no metric that compares the classes exists, or None where both are there."""
    labels = as_array(labels)
    zeros, ones = int((labels == 0).sum()), int((labels == 1).sum())
    if zeros + ones == 0:
        return UNSEEN
    return None if zeros and ones else f"one class only: {zeros} zeros, {ones} ones"


def accuracy(classes: Any, labels: Any) -> float:
    """Return the share of observed labels that were predicted; NaN without any."""
    return scored("accuracy_score", classes, labels)


def joint_accuracy(classes: Any, labels: Any) -> float:
    """Return the share of patients whose labels are all right together, of those with all labels
    observed.

    Parameters
    ----------
    classes, labels : array, shape (n, p1)

    Raises
    ------
    ShapeError
        Classes and labels are not both (n, p1).
    """
    classes, labels = as_array(classes), as_array(labels)
    if classes.shape != labels.shape or labels.ndim != 2:
        raise ShapeError(f"classes {classes.shape} and labels {labels.shape} must both be (n, p1).")
    whole = np.isfinite(labels).all(1)
    return float((classes[whole] == labels[whole]).all(1).mean()) if whole.any() else float("nan")


def area_under_curve(scores: Any, labels: Any) -> float:
    """Return the probability that a random positive has the larger score than a random negative
    (ties count half).

    NaN when the observed labels have one class only.
    """
    return scored("roc_auc_score", scores, labels, vary=True)


class Detection(NamedTuple):
    """What a threshold does: shares of the positives found and of the negatives left alone (NaN
    where a class is not there).
    """

    sensitivity: float
    specificity: float


def detection_at(scores: Any, labels: Any, specificity: float = 0.9) -> Detection:
    """Return what the smallest threshold does that leaves at least this share of the negatives
    right; "yes" is a score above it.

    It is read off the patients whom it is judged by, which flatters it a little.

    Parameters
    ----------
    scores, labels : array, shape (n,)
    specificity : float
        In (0, 1].
    """
    scores, labels = observed_pair(scores, labels)
    if class_reason(labels):
        return Detection(float("nan"), float("nan"))
    negative, positive = np.sort(scores[labels == 0]), scores[labels == 1]
    needed = int(np.ceil(specificity * negative.size - 1e-9))  # 0.9 * 10 is not 9 in floating point
    threshold = negative[max(needed, 1) - 1]
    return Detection(float((positive > threshold).mean()), float((negative <= threshold).mean()))


def predictive_values(
    sensitivity: float, specificity: float, prevalence: float
) -> tuple[float, float]:
    """Return positive and negative predictive value where ``prevalence`` of the people have the
    condition (Bayes).

    Raises
    ------
    ParameterError
        A share is not in [0, 1].
    """
    shares = {"sensitivity": sensitivity, "specificity": specificity, "prevalence": prevalence}
    for name, share in shares.items():
        if not (0 <= share <= 1 or np.isnan(share)):
            raise ParameterError(f"{name}={share}: give a share between 0 and 1.")
    found, alarmed = sensitivity * prevalence, (1 - specificity) * (1 - prevalence)
    passed, lost = specificity * (1 - prevalence), (1 - sensitivity) * prevalence
    positive = found / (found + alarmed) if found + alarmed > 0 else float("nan")
    return positive, passed / (passed + lost) if passed + lost > 0 else float("nan")
