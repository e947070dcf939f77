"""Composite likelihood of pairs: each correlation from its own two responses, for the case that all
are too many to be taken together."""

import logging
from itertools import combinations

import numpy as np
from scipy.optimize import minimize_scalar

from cevit_lib.estimation.base import CopulaEstimator, arguments
from cevit_lib.estimation.moments import expected_moments
from cevit_lib.estimation.observed import Observed, Pattern

LOG = logging.getLogger(__name__)
LARGEST = 0.999  # correlation that a pair may have


@arguments
class PairwiseLikelihood(CopulaEstimator):
    """The maximum of the sum of all pairs' log-likelihoods in ``Gamma``, with ``sigma`` the SD of
    the residuals.

    Each pair has one correlation of its own, so the sum falls apart into searches in one number.
    The estimate is consistent and loses little against maximum likelihood, and its cost grows with
    the pairs and not with the dimension. The matrix of separate estimates need not be positive
    definite; it is then drawn towards the identity, as any estimate here.

    Parameters
    ----------
    max_iter, tol : int, float
        Of each pair's search.

    Notes
    -----
    Source: C. Varin, N. Reid, D. Firth, An overview of composite likelihood methods (Statistica
    Sinica 21, 2011). A pair enters with the patients who have both its responses.
    """

    remedy = (
        "raise max_iter (cevit fit: --max-iter); a pair at the end of its range has labels that "
        "never differ, or too few patients"
    )

    max_iter: int = 100
    tol: float = 1e-6

    def _estimate(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        scale, correlation = observed.residual_scale(), np.eye(observed.p)
        self.history_["correlation"].append(np.eye(observed.p))
        self.converged_, total = True, 0.0
        pairs = list(combinations(range(observed.p), 2))
        for number, (j, k) in enumerate(pairs, 1):
            pair, own = observed.pair(j, k), scale[[i for i in (j, k) if i < observed.p0]]
            if len(pair):
                found = minimize_scalar(
                    lambda rho, pair=pair, own=own: -pair_log_likelihood(pair, own, rho),
                    bounds=(-LARGEST, LARGEST),
                    method="bounded",
                    options={"maxiter": self.max_iter, "xatol": self.tol},
                )
                correlation[j, k] = correlation[k, j] = found.x
                self.converged_ &= bool(found.success) and abs(found.x) < LARGEST - 1e-3
                self.n_iter_ = max(self.n_iter_, int(found.nit))
                total -= found.fun
            LOG.info("%s: iteration %d of %d", type(self).__name__, number, len(pairs))
        self.history_["correlation"].append(correlation)
        self.history_["objective"].append(total / observed.n)
        return scale, correlation


def pair_log_likelihood(pair: Pattern, scale: np.ndarray, rho: float) -> float:
    """Return the log-likelihood of two responses."""
    alone = Observed([pair], len(pair), 2, len(scale))
    correlation = np.array([[1.0, rho], [rho, 1.0]])
    return len(pair) * expected_moments(alone, scale, correlation).log_likelihood
