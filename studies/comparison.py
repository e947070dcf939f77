"""Comparing two models on the same folds: effect sizes by their names, and tests that know what was
resampled.

The paper reports "Cohen's d" and the p-value of a paired t-test over cross-validated folds. Two
things are hidden in that sentence. There are two paired Cohen's d, often several-fold apart:
``d_z`` divides the mean difference by the standard deviation of the differences, ``d_av`` by the
average standard deviation of the two models' values. And folds of one cross-validation share their
training patients, so their differences are not independent and the plain test's p-value is too
small :cite:`nadeau2003inference`.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cevit_lib.errors import ShapeError


@dataclass(frozen=True)
class PairedComparison:
    """Model ``a`` against model ``b`` on the same folds; differences are ``a - b``, and keep their
    sign.

    Attributes
    ----------
    folds, datasets : int
        Number of differences, and of independent data sets they come from.
    difference, low, high : float
        Mean difference and its 95 % interval by the plain paired t-test, in the metric's units.
    d_z : float
        Mean difference over the standard deviation of the differences.
    d_av : float
        Mean difference over the root mean of both models' variances (what pingouin calls
        ``cohen_d`` of a paired test).
    t, p : float
        Plain paired t-test over folds.
    p_corrected : float
        Corrected resampled t-test: the variance of the mean is multiplied by ``1 + k * test /
        train``.
    low_corrected, high_corrected : float
        The 95 % interval that belongs to the corrected test.
    p_datasets : float
        Paired t-test over the data sets' means, the only independent units; NaN with fewer than
        two.
    smallest_sign_p : float
        Smallest two-sided p-value that a sign test over the data sets could reach: what so few of
        them can say at all.
    """

    folds: int
    datasets: int
    difference: float
    low: float
    high: float
    d_z: float
    d_av: float
    t: float
    p: float
    p_corrected: float
    low_corrected: float
    high_corrected: float
    p_datasets: float
    smallest_sign_p: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for a record or a table."""
        return asdict(self)


def holm(p: Any) -> np.ndarray:
    """Return p-values adjusted for their number by Holm's step-down method, in the order given.

    Parameters
    ----------
    p : array-like, shape (k,)
        Of k questions asked of the same data; NaN stays NaN and is not counted.
    """
    import pingouin

    return np.asarray(pingouin.multicomp(np.asarray(p, dtype=float), method="holm")[1])


def compare_paired(
    a: Any, b: Any, *, datasets: Any = None, test_share: float = 0.2
) -> PairedComparison:
    """Compare the values of one metric of two models, fold by fold.

    Parameters
    ----------
    a, b : array, shape (k,)
        The metric of each model on the same ``k`` test folds.
    datasets : array, shape (k,), optional
        Which independent data set (or repetition) each fold comes from; by default all from one.
    test_share : float
        Share of the patients in a test fold; 0.2 in a 5-fold cross-validation.

    Returns
    -------
    PairedComparison
        NaN where the differences do not vary.

    Raises
    ------
    ShapeError
        Fewer than two folds, or arrays that do not match.

    Examples
    --------
    >>> found = compare_paired([0.80, 0.84, 0.81, 0.85, 0.83], [0.78, 0.83, 0.80, 0.82, 0.80])
    >>> round(found.difference, 3), found.p < found.p_corrected  # folds share patients: the plain
    p-value is too small (0.02, True)
    """
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    labels = np.zeros(a.shape) if datasets is None else np.asarray(datasets)
    if a.ndim != 1 or a.shape != b.shape or labels.shape != a.shape or len(a) < 2:
        raise ShapeError(
            f"a {a.shape}, b {b.shape} and datasets {labels.shape} must all be (k,) with k of 2 "
            "or more."
        )
    groups = np.unique(labels)
    per_group = np.array([(a - b)[labels == group].mean() for group in groups])
    plain = _paired_t(a, b)
    within = (
        (len(a) / len(groups)) * test_share / (1 - test_share)
    )  # folds of one data set times n_test / n_train
    wider = np.sqrt(1 / len(a) + test_share / (1 - test_share) / len(groups))
    half = _t_quantile(len(a) - 1) * (a - b).std(ddof=1) * wider
    return PairedComparison(
        folds=len(a),
        datasets=len(groups),
        difference=float((a - b).mean()),
        low=plain["low"],
        high=plain["high"],
        d_z=cohen_d_z(a, b),
        d_av=cohen_d_av(a, b),
        t=plain["t"],
        p=plain["p"],
        p_corrected=_p_value(plain["t"] / np.sqrt(1 + within), len(a) - 1),
        low_corrected=float((a - b).mean() - half),
        high_corrected=float((a - b).mean() + half),
        p_datasets=_paired_t(per_group, np.zeros_like(per_group))["p"]
        if len(groups) > 1
        else float("nan"),
        smallest_sign_p=min(1.0, 2.0 ** (1 - len(groups))),
    )


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


def _paired_t(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """The one place where pingouin is asked; its column names have changed between releases."""
    import pingouin

    difference = a - b
    if not np.isfinite(_ratio(difference.mean(), difference.std(ddof=1))):
        return dict.fromkeys(("t", "p", "low", "high"), float("nan"))
    row = pingouin.ttest(difference, 0.0).iloc[
        0
    ]  # a paired test is a one-sample test of the differences
    named = {
        str(key).lower().replace("-", "_").replace("%", ""): value for key, value in row.items()
    }
    half = difference.std(ddof=1) / np.sqrt(len(difference)) * _t_quantile(len(difference) - 1)
    return {
        "t": float(named["t"]),
        "p": float(named.get("p_val", named.get("p_unc"))),
        "low": float(difference.mean() - half),
        "high": float(difference.mean() + half),
    }


def _t_quantile(degrees: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, degrees))


def _p_value(statistic: float, degrees: int) -> float:
    from scipy.stats import t

    return float(2 * t.sf(abs(statistic), degrees)) if np.isfinite(statistic) else float("nan")
