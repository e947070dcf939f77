"""Whether 30 percent means 30 in a hundred: calibration :cite:`vancalster2019calibration`, Brier
score, the curve.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit

from cevit_lib.errors import LabelError
from cevit_lib.metrics.arrays import observed_pair, scored
from cevit_lib.metrics.detection import class_reason

_EDGE = 1e-12  # a probability of exactly 0 or 1 has no logit


class Calibration(NamedTuple):
    """Calibration of one response's probabilities.

    Attributes
    ----------
    intercept : float
        Of a logistic regression of the labels with the predicted logit as offset ("calibration in
        the large"): 0 where the mean probability is right, positive where it is too low.
    slope : float
        Of a logistic regression on the predicted logit: 1 where it is right, below 1 where
        predictions are too extreme.
    brier : float
        Mean squared difference of probability and label.
    reason : str or None
        Why a number is NaN.
    intercept_with_slope : float
        Of the regression that gives the slope.
    """

    intercept: float
    slope: float
    brier: float
    reason: str | None = None
    intercept_with_slope: float = float("nan")


def brier_score(probabilities: Any, labels: Any) -> float:
    """Return the mean of ``(probability - label)^2`` over what was observed; NaN without any."""
    return scored("mean_squared_error", *_checked(probabilities, labels))


def calibration(probabilities: Any, labels: Any) -> Calibration:
    """Return intercept, slope and Brier score.

    A slope exists only where the probabilities of the two classes overlap; where they are separated
    the regression's slope is infinite and NaN is returned with that reason.

    Parameters
    ----------
    probabilities : array, shape (n,)
    labels : array, shape (n,)
        0, 1, or NaN for not observed.

    Raises
    ------
    LabelError
        A probability is outside of [0, 1].
    """
    from sklearn.linear_model import LogisticRegression

    probabilities, labels = _checked(probabilities, labels)
    brier = brier_score(probabilities, labels)
    if reason := class_reason(labels):
        return Calibration(float("nan"), float("nan"), brier, reason)
    score = log_odds(probabilities)
    middle = logit(labels.mean())
    ends = middle - score.max() - 1, middle - score.min() + 1
    intercept = brentq(lambda a: (expit(a + score) - labels).sum(), *ends, xtol=1e-12)
    positive, negative = score[labels == 1], score[labels == 0]
    if not (positive.min() < negative.max() and negative.min() < positive.max()):
        return Calibration(intercept, float("nan"), brier, "the predictions separate the classes")
    regression = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # near separation its solver falls back to another
        regression.fit(score[:, None], labels)
    slope, with_slope = float(regression.coef_[0, 0]), float(regression.intercept_[0])
    return Calibration(intercept, slope, brier, None, with_slope)


def log_odds(probabilities: Any) -> np.ndarray:
    """Return the logits of probabilities, finite also where they are 0 or 1."""
    return logit(np.clip(probabilities, _EDGE, 1 - _EDGE))


class CalibrationCurve(NamedTuple):
    """Groups of patients with similar predictions, each field of shape (bins,).

    Attributes
    ----------
    predicted, observed : numpy.ndarray
        Mean probability and share of positives.
    low, high : numpy.ndarray
        Wilson's 95 % interval of the share.
    count : numpy.ndarray of int
    """

    predicted: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: np.ndarray


def calibration_curve(probabilities: Any, labels: Any, bins: int = 5) -> CalibrationCurve:
    """Return shares of positives in groups of (nearly) equal size, ordered by probability.

    Wilson's intervals take the labels as independent: give one eye of each patient, or a
    patient-level answer.
    """
    from scipy.stats import binomtest

    probabilities, labels = _checked(probabilities, labels)
    order = np.argsort(probabilities, kind="stable")
    groups = [group for group in np.array_split(order, bins) if group.size]
    intervals = [
        binomtest(int(labels[g].sum()), len(g)).proportion_ci(method="wilson") for g in groups
    ]
    means = [np.array([values[g].mean() for g in groups]) for values in (probabilities, labels)]
    return CalibrationCurve(
        *means,
        np.array([i.low for i in intervals]),
        np.array([i.high for i in intervals]),
        np.array([len(g) for g in groups], dtype=int),
    )


def _checked(probabilities: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    probabilities, labels = observed_pair(probabilities, labels)
    wrong = ~((probabilities >= -1e-9) & (probabilities <= 1 + 1e-9))
    if wrong.any():
        seen = probabilities[wrong][0]
        raise LabelError(
            f"{seen:g} is no probability; if these are logits, pass torch.sigmoid of them."
        )
    return probabilities, labels
