"""How far predicted lengths are from measured ones: errors, shares within limits, R squared, Bland and Altman."""

from typing import Any, NamedTuple

import numpy as np

from cevit_lib.metrics.arrays import observed_pair


def _difference(predicted: Any, observed: Any) -> np.ndarray:
    predicted, observed = observed_pair(predicted, observed)
    return predicted - observed


def mean_absolute_error(predicted: Any, observed: Any) -> float:
    """Return the mean of ``|predicted - observed|`` over what was observed, in the response's units (or NaN).

    Examples
    --------
    >>> mean_absolute_error([24.0, 25.0, 26.0], [24.5, 26.5, float("nan")])
    1.0
    """
    difference = _difference(predicted, observed)
    return float(np.abs(difference).mean()) if difference.size else float("nan")


def root_mean_squared_error(predicted: Any, observed: Any) -> float:
    """Return the root of the mean squared difference over what was observed, in the response's units (or NaN)."""
    difference = _difference(predicted, observed)
    return float(np.sqrt(np.square(difference).mean())) if difference.size else float("nan")


def share_within(predicted: Any, observed: Any, limit: float) -> float:
    """Return the share of predictions at most ``limit`` (in the response's units) off; NaN without an observation."""
    difference = _difference(predicted, observed)
    # a difference of two decimals that should equal the limit may miss it by rounding
    return (
        float((np.abs(difference) <= limit * (1 + 1e-12)).mean())
        if difference.size
        else float("nan")
    )


def r_squared(predicted: Any, observed: Any) -> float:
    """Return ``1 - SSE / SST``, with SST about the mean of what was observed *here*.

    Below zero where that mean, which no forecast can know, would have done better; NaN where nothing varies.
    """
    predicted, observed = observed_pair(predicted, observed)
    total = np.square(observed - observed.mean()).sum() if observed.size else 0.0
    return float(1 - np.square(predicted - observed).sum() / total) if total > 0 else float("nan")


class Agreement(NamedTuple):
    """Bland and Altman's summary of ``predicted - observed``, in the response's units.

    Attributes
    ----------
    bias, low, high : float
        Mean difference, and the limits within which 95 % of differences lie if they are normal.
    slope, slope_error : float
        Of the regression of the difference on the mean of both :cite:`bland1986statistical`, with its standard error.
    slope_on_observed : float
        Of the regression on the measured value. Even the best forecast has ``-(1 - R^2)`` here: regression to the mean.
    """

    bias: float
    low: float
    high: float
    slope: float
    slope_error: float
    slope_on_observed: float


def bland_altman(predicted: Any, observed: Any) -> Agreement:
    """Return bias, 95 % limits of agreement and slopes; NaN with fewer than three observations.

    Patients are taken as independent: give one eye, or take intervals from ``patient_bootstrap``.
    """
    from scipy.stats import linregress

    predicted, observed = observed_pair(predicted, observed)
    if observed.size < 3:
        return Agreement(*[float("nan")] * 6)
    difference = predicted - observed
    bias, spread = float(difference.mean()), float(difference.std(ddof=1))
    slope = error = on_observed = float("nan")
    mean = (predicted + observed) / 2
    if np.ptp(mean) > 0:
        line = linregress(mean, difference)
        slope, error = float(line.slope), float(line.stderr)
    if np.ptp(observed) > 0:
        on_observed = float(linregress(observed, difference).slope)
    return Agreement(bias, bias - 1.96 * spread, bias + 1.96 * spread, slope, error, on_observed)
