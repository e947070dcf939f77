"""The predecessor's plug-in: the sample correlation of Gaussian scores (CeCNN)."""

import numpy as np

from cevit_lib.estimation.base import CopulaEstimator
from cevit_lib.estimation.correlation import cov2cor
from cevit_lib.estimation.observed import Observed


class GaussianScoreCorrelation(CopulaEstimator):
    r"""Sample correlation of residuals and Gaussian scores :math:`\Phi^{-1}(\hat p)`, as CeCNN
    plugs in.

    The score of a binary response is a function of the *inputs*, not of the label: it measures how
    the outputs vary together, which is not the conditional dependence ``Gamma``. It is kept as the
    predecessor's method.

    Notes
    -----
    Missing responses drop out pair by pair. A score without variance gets correlation zero.
    """

    def _estimate(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        count, products, sums, squares = np.zeros((4, observed.p, observed.p))
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
        # rounding is not variance
        variance = np.where(variance > 1e-12 * squares / count, variance, 0.0)
        both = np.sqrt(variance * variance.T)
        covariance = np.where(
            both > 0, covariance / np.where(both > 0, both, 1.0), np.eye(observed.p)
        )
        self.n_iter_, self.converged_ = 1, True
        return observed.residual_scale(), cov2cor(covariance)
