"""Composite likelihood of pairs: each correlation from its own two responses, for the case that all
are too many to be taken together."""

import logging
from itertools import combinations

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from cevit_lib.estimation.base import CopulaEstimator
from cevit_lib.estimation.observed import Observed
from cevit_lib.normal import log_bivariate_normal_cdf
from cevit_lib.normal.univariate import log_normal_cdf

LOG = logging.getLogger(__name__)
LARGEST = 0.999  # correlation that a pair may have


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

    def __init__(self, max_iter=100, tol=1e-6):
        self.max_iter = max_iter
        self.tol = tol

    def _estimate(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        scale, p = observed.residual_scale(), observed.p
        scores, signs = _laid_out(observed, scale)
        correlation, settled, total = np.eye(p), [], 0.0
        pairs = list(combinations(range(p), 2))
        for number, (j, k) in enumerate(pairs, 1):
            both = np.isfinite(scores[:, j]) & np.isfinite(scores[:, k])
            if both.any():
                pair = scores[both][:, [j, k]], signs[both][:, [j, k]]
                found = minimize_scalar(
                    lambda rho, pair=pair: -pair_log_likelihood(*pair, rho),
                    bounds=(-LARGEST, LARGEST),
                    method="bounded",
                    options={"maxiter": self.max_iter, "xatol": self.tol},
                )
                correlation[j, k] = correlation[k, j] = found.x
                settled.append(bool(found.success) and abs(found.x) < LARGEST - 1e-3)
                total -= found.fun
                self.n_iter_ = max(self.n_iter_, int(found.nit))
            LOG.info("%s: iteration %d of %d", type(self).__name__, number, len(pairs))
        self.history_["correlation"] += [np.eye(p), correlation]
        self.history_["objective"].append(total / observed.n)
        self.converged_ = all(settled)
        return scale, correlation


def pair_log_likelihood(scores: np.ndarray, signs: np.ndarray, rho: float) -> float:
    """Return the log-likelihood of two responses, up to what does not depend on ``rho``.

    Parameters
    ----------
    scores : (n, 2) array
        Residuals in units of their SD, or a label's threshold.
    signs : (n, 2) array
        ``2 y - 1`` of labels, 0 of a continuous response.
    rho : float
    """
    (first, second), (s, t) = torch.from_numpy(scores).T, torch.from_numpy(signs).T
    spread = 1 - rho**2
    if not s.any() and not t.any():
        square = (first.square() - 2 * rho * first * second + second.square()) / spread
        return float(-0.5 * (square - first.square() - second.square()).sum()) - (
            0.5 * len(first) * np.log(spread)
        )
    if not s.any():  # a label above its threshold, given the residual
        return float(log_normal_cdf(t * (rho * first - second) / np.sqrt(spread)).sum())
    rhos = torch.as_tensor(rho, dtype=torch.float64) * s * t
    return float(log_bivariate_normal_cdf(-s * first, -t * second, rhos).sum())


def _laid_out(observed: Observed, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each patient's scores ``(n, p)``, NaN where not observed, and the labels' signs."""
    scores, signs = [], []
    for part in observed.patterns:
        own = np.full((len(part), observed.p), np.nan)
        own[:, part.continuous] = part.residual / scale[part.continuous]
        own[:, part.binary] = part.threshold
        sign = np.zeros_like(own)
        sign[:, part.binary] = part.sign
        scores.append(own)
        signs.append(sign)
    return np.concatenate(scores), np.concatenate(signs)
