"""The signs of Section 2.3 and 3.1: the printed objective, trace and cross entropy, and what they
should be.

The right objective of an M-step is ``cevit_lib.estimation.correlation.complete_objective``.
"""

import numpy as np

from cevit_lib.copula import scores_given
from cevit_lib.normal import truncated_normal_variance
from studies.theory.arrays import tensor


def printed_expected_log_likelihood(covariance, scatter) -> float:
    """log|Gamma| - tr(Gamma^{-1} S) / 2, as printed: without a bound over covariance matrices.
    Kept, wrong."""
    return np.linalg.slogdet(covariance)[1] - 0.5 * np.trace(np.linalg.solve(covariance, scatter))


def trace_term(correlation, old_correlation) -> float:
    """tr{Gamma^{-1} blockdiag(0, V_old)}: equals p1 at Gamma = Gamma_old only.

    Section 2.3 calls it "invariant and unrelated to Gamma"; in the M-step V is of the old Gamma
    and Gamma varies. Both matrices are (4, 4).
    """
    covariance = scores_given(old_correlation, [2, 3], [0, 1]).covariance.numpy()
    return float(np.trace(np.linalg.inv(correlation)[2:, 2:] @ covariance))


def printed_cross_entropy(probability, y):
    """y log(p) + (1 - y) log(1 - p): Section 3.1 without the minus; its minimum is the wrong label.
    Kept, wrong."""
    return y * np.log(probability) + (1 - y) * np.log1p(-np.asarray(probability))


def truncated_variance(q) -> np.ndarray:
    """Var(u | u > -q) of a standard normal; its infimum over q is 0.

    The proof of Proposition 2 needs a positive lower bound, which does not exist.
    """
    return truncated_normal_variance(tensor(q)).numpy()
