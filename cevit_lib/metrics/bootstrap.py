"""Confidence intervals that resample patients, never eyes.

Two eyes of a patient err alike, so resampling eyes pretends to more data than there are: its
intervals are too narrow :cite:`ying2017tutorial`. A resample here draws patients with replacement
and takes all rows of each.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cevit_lib.errors import DataError, ParameterError

MOST_UNDEFINED = 0.1
"""Above this share of resamples in which a metric is undefined (one class only) no interval is
given.
"""


class Interval(NamedTuple):
    """A metric with its percentile interval.

    Attributes
    ----------
    value : float
        On the patients themselves.
    low, high : float
        Interval; NaN where the metric or more than ``MOST_UNDEFINED`` of the resamples are
        undefined.
    standard_error : float
        Standard deviation over the resamples.
    undefined : int
        Resamples in which the metric was NaN, such as an AUC without positives.
    """

    value: float
    low: float
    high: float
    standard_error: float
    undefined: int


def patient_bootstrap(
    statistic: Callable[[np.ndarray], Any],
    patients: Any,
    rng: np.random.Generator,
    *,
    replications: int = 1000,
    level: float = 0.95,
) -> Any:
    """Return a metric, or many by name, with intervals from resampled patients.

    Parameters
    ----------
    statistic : callable
        Takes row numbers (a row of a patient drawn twice comes twice) and returns a float or a dict
        of floats. All metrics of a dict share the resamples.
    patients : int or sequence
        Number of patients with one row each, or the patient of every row.
    rng : numpy.random.Generator
    replications : int
    level : float
        Coverage aimed at, in (0, 1).

    Returns
    -------
    Interval or dict of Interval
        As the statistic returned.

    Raises
    ------
    DataError, ParameterError
        Fewer than two patients; ``level`` or ``replications`` out of range.

    Notes
    -----
    Where a label is rare the percentile interval of an area under the curve is too short. In
    simulations at 95 % it covers in about .83 of the cases with 4 positive eyes, .88 with 8, .91
    with 16 and .93 with 24 (medians); resampling eyes covers .03 less again.

    Examples
    --------
    >>> error = lambda rows: mean_absolute_error(mu[rows], y[rows])  # doctest: +SKIP
    >>> interval = patient_bootstrap(error, ids, rng)  # doctest: +SKIP
    """
    if not 0 < level < 1 or replications < 20:
        raise ParameterError(
            f"level={level}, replications={replications}: give a level in (0, 1) and 20 or more."
        )
    owner = (
        np.arange(patients)
        if np.ndim(patients) == 0
        else np.unique(np.asarray(patients), return_inverse=True)[1]
    )
    count = int(owner.max(initial=-1)) + 1
    if count < 2:
        raise DataError(f"{count} patients: resampling needs at least two.")
    rows = np.arange(len(owner))
    whole = _named(statistic(rows))
    drawn = {name: np.empty(replications) for name in whole}
    for replication in range(replications):
        times = np.bincount(rng.integers(count, size=count), minlength=count)
        for name, number in _named(statistic(np.repeat(rows, times[owner]))).items():
            drawn[name][replication] = number
    intervals = {name: _interval(number, drawn[name], level) for name, number in whole.items()}
    return intervals if len(whole) != 1 or "" not in whole else intervals[""]


def _named(value: Any) -> dict[str, float]:
    return value if isinstance(value, dict) else {"": float(value)}


def _interval(value: float, drawn: np.ndarray, level: float) -> Interval:
    defined = drawn[np.isfinite(drawn)]
    undefined = len(drawn) - len(defined)
    if not np.isfinite(value) or undefined > MOST_UNDEFINED * len(drawn):
        return Interval(float(value), *[float("nan")] * 3, undefined)
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(value), float(low), float(high), float(defined.std(ddof=1)), undefined)
