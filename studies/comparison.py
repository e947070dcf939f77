"""Comparing two models on the same folds: effect sizes by their names, and a test that knows what
was resampled.

The paper reports "Cohen's d" and the p-value of a paired t-test over cross-validated folds. Two
things are hidden in that sentence. There are two paired Cohen's d, often several-fold apart:
``d_z`` divides the mean difference by the standard deviation of the differences, ``d_av`` by the
average standard deviation of the two models' values (what pingouin calls ``cohen_d`` of a paired
test). And folds of one cross-validation share their training patients, so their differences are not
independent and the plain test's p-value is too small :cite:`nadeau2003inference`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

from cevit_lib.errors import ShapeError


@dataclass(frozen=True)
class PairedComparison:
    """Model ``a`` against model ``b`` on the same folds; differences are ``a - b``, and keep their
    sign.

    Attributes
    ----------
    folds : int
        Number of differences.
    difference : float
        Their mean, in the metric's units.
    d_z : float
        Mean difference over the standard deviation of the differences.
    p : float
        Plain paired t-test over folds.
    p_corrected, low_corrected, high_corrected : float
        Corrected resampled t-test, and the 95 % interval that belongs to it: the variance of the
        mean is multiplied by ``1 + k * test / train``.
    """

    folds: int
    difference: float
    d_z: float
    p: float
    p_corrected: float
    low_corrected: float
    high_corrected: float


def compare_paired(a: Any, b: Any, *, test_share: float = 0.2) -> PairedComparison:
    """Compare the values of one metric of two models, fold by fold.

    Parameters
    ----------
    a, b : array, shape (k,)
        The metric of each model on the same ``k`` test folds.
    test_share : float
        Share of the patients in a test fold; 0.2 in a 5-fold cross-validation.

    Returns
    -------
    PairedComparison
        Tests are NaN where the differences do not vary.

    Raises
    ------
    ShapeError
        Fewer than two folds, or arrays that do not match.

    Examples
    --------
    >>> found = compare_paired([0.80, 0.84, 0.81, 0.85, 0.83], [0.78, 0.83, 0.80, 0.82, 0.80])
    >>> round(found.difference, 3), found.p < found.p_corrected  # folds share patients
    (0.02, True)
    """
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if a.ndim != 1 or a.shape != b.shape or len(a) < 2:
        raise ShapeError(f"a {a.shape} and b {b.shape} must both be (k,) with k of 2 or more.")
    k, difference, d_z = len(a), float((a - b).mean()), cohen_d_z(a, b)
    shared = inflation(k, test_share)
    half = student.ppf(0.975, k - 1) * (a - b).std(ddof=1) * np.sqrt(shared / k)
    p, p_corrected = 2 * student.sf(abs(d_z) * np.sqrt([k, k / shared]), k - 1)
    return PairedComparison(
        folds=k,
        difference=difference,
        d_z=d_z,
        p=float(p),
        p_corrected=float(p_corrected),
        low_corrected=float(difference - half),
        high_corrected=float(difference + half),
    )


def inflation(folds: int, test_share: float) -> float:
    """Return by how much shared training patients inflate the variance of a mean of ``folds``
    differences.
    """
    return 1 + folds * test_share / (1 - test_share)


def cohen_d_z(a: Any, b: Any) -> float:
    """Return the mean of ``a - b`` over the standard deviation of ``a - b``, with its sign; NaN
    when that is 0.
    """
    difference = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    return _ratio(difference.mean(), difference.std(ddof=1))


def cohen_d_av(a: Any, b: Any) -> float:
    """Return the mean of ``a - b`` over the root of the mean of both variances, with its sign; NaN
    when that is 0.
    """
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    return _ratio((a - b).mean(), np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2))


def _ratio(difference: float, spread: float) -> float:
    return float(difference / spread) if spread > 1e-12 * (1 + abs(difference)) else float("nan")
