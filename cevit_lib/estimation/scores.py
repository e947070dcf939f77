"""The predecessor's plug-in: the sample correlation of Gaussian scores (CeCNN)."""

from itertools import combinations

import numpy as np

from cevit_lib.estimation.base import CopulaEstimator
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
        correlation = np.eye(observed.p)
        for j, k in combinations(range(observed.p), 2):
            pair = observed.pair(j, k)
            z = np.c_[pair.residual, -pair.threshold]  # the Gaussian score is minus the threshold
            # rounding is not variance
            if len(z) and np.all(z.var(axis=0) > 1e-12 * (z**2).mean(axis=0)):
                correlation[j, k] = correlation[k, j] = np.corrcoef(z.T)[0, 1]
        self.n_iter_, self.converged_ = 1, True
        return observed.residual_scale(), correlation
