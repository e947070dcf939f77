"""How far predicted lengths are from measured ones: errors, shares within limits, R squared, Bland
and Altman.
"""

from typing import Any, NamedTuple

import numpy as np

from cevit_lib.metrics.arrays import observed_pair, scored


def mean_absolute_error(predicted: Any, observed: Any) -> float:
    """Return the mean of ``|predicted - observed|`` over what was observed, in the response's units
    (or NaN).

    Examples
    --------
    >>> mean_absolute_error([24.0, 25.0, 26.0], [24.5, 26.5, float("nan")])
    1.0
    """
    return scored("mean_absolute_error", predicted, observed)


def root_mean_squared_error(predicted: Any, observed: Any) -> float:
    """Return the root of the mean squared difference over what was observed, in the response's
    units (or NaN).
    """
    return scored("root_mean_squared_error", predicted, observed)


def share_within(predicted: Any, observed: Any, limit: float) -> float:
    """Return the share of predictions at most ``limit`` (in the response's units) off; NaN without
    an observation.
    """
    predicted, observed = observed_pair(predicted, observed)
    # a difference of two decimals that should equal the limit may miss it by rounding
    near = np.abs(predicted - observed) <= limit * (1 + 1e-12)
    return float(near.mean()) if near.size else float("nan")


def r_squared(predicted: Any, observed: Any) -> float:
    """Return ``1 - SSE / SST``, with SST about the mean of what was observed *here*.

    Below zero where that mean, which no forecast can know, would have done better; NaN where
    nothing varies.
    """
    return scored("r2_score", predicted, observed, vary=True)


class Agreement(NamedTuple):
    """Bland and Altman's summary of ``predicted - observed``, in the response's units.

    Attributes
    ----------
    bias, low, high : float
        Mean difference, and the limits within which 95 % of differences lie if they are normal.
    slope : float
        Of the regression of the difference on the mean of both :cite:`bland1986statistical`.
    slope_on_observed : float
        Of the regression on the measured value. Even the best forecast has ``-(1 - R^2)`` here:
        regression to the mean.
    """

    bias: float
    low: float
    high: float
    slope: float
    slope_on_observed: float


def bland_altman(predicted: Any, observed: Any) -> Agreement:
    """Return bias, 95 % limits of agreement and slopes; NaN with fewer than three observations.

    Patients are taken as independent: give one eye, or take intervals from ``patient_bootstrap``.
    """
    predicted, observed = observed_pair(predicted, observed)
    if observed.size < 3:
        return Agreement(*[float("nan")] * 5)
    difference, mean = predicted - observed, (predicted + observed) / 2
    bias, wide = float(difference.mean()), 1.96 * float(difference.std(ddof=1))
    slopes = _slope(mean, difference), _slope(observed, difference)
    return Agreement(bias, bias - wide, bias + wide, *slopes)


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    from scipy.stats import linregress

    return float(linregress(x, y).slope) if np.ptp(x) > 0 else float("nan")
