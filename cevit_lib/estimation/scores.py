"""The predecessor's plug-in: the sample correlation of Gaussian scores (CeCNN)."""

import numpy as np

from cevit_lib.estimation.base import CopulaEstimator
from cevit_lib.estimation.correlation import cov2cor
from cevit_lib.estimation.em import check_choice
from cevit_lib.estimation.observed import Observed, as_float64, count_continuous


class GaussianScoreCorrelation(CopulaEstimator):
    r"""Sample correlation of residuals and Gaussian scores :math:`\Phi^{-1}(\hat p)`, as CeCNN plugs in.

    The score of a binary response is a function of the *inputs*, not of the label: it measures how the outputs vary
    together, which is not the conditional dependence ``Gamma``. It is kept as the predecessor's method.

    Parameters
    ----------
    against : "residual" or "label"
        What stands for a continuous response: its residual (the predecessor's text) or the response itself (its
        simulation script).
    continuous : int, optional
        Number of continuous responses; found from ``y`` if not given.

    Notes
    -----
    Missing responses drop out pair by pair. A score without variance gets correlation zero.
    """

    def __init__(self, against="residual", continuous=None):
        self.against = against
        self.continuous = continuous

    def fit(self, outputs, y):
        """Estimate from ``outputs`` and ``y``, both (n, p), as every estimator does."""
        check_choice("against", self.against, ("residual", "label"))
        if self.against == "label":
            y = as_float64(y, "y")
            p0 = count_continuous(y) if self.continuous is None else self.continuous
            # The residual from a constant has the label's correlations, and its SD.
            outputs = as_float64(outputs, "outputs").copy()
            outputs[:, :p0] = np.nan_to_num(np.nanmean(y[:, :p0], axis=0))
        return super().fit(outputs, y)

    def _estimate(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        p = observed.p
        count, products, sums = np.zeros((p, p)), np.zeros((p, p)), np.zeros((p, p))
        squares = np.zeros((p, p))
        for part in observed.patterns:
            # the Gaussian score is minus the threshold
            z = np.concatenate([part.residual, -part.threshold], axis=1)
            here = np.ix_(part.seen, part.seen)
            count[here] += len(part)
            products[here] += z.T @ z
            sums[here] += z.sum(axis=0)[:, None]
            squares[here] += (z**2).sum(axis=0)[:, None]
        count = np.maximum(count, 1.0)
        covariance = products / count - sums * sums.T / count**2
        variance = squares / count - (sums / count) ** 2
        variance = np.where(
            variance > 1e-12 * squares / count, variance, 0.0
        )  # rounding is not variance
        both = np.sqrt(variance * variance.T)
        covariance = np.where(both > 0, covariance / np.where(both > 0, both, 1.0), np.eye(p))
        self.n_iter_, self.converged_ = 1, True
        return observed.residual_scale(), cov2cor(covariance)
