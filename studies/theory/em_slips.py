"""The signs of Section 2.3 and 3.1: the printed objective, trace and cross entropy, and what they should be."""

import numpy as np


def expected_log_likelihood(correlation, scatter) -> float:
    """-(log|Gamma| + tr(Gamma^{-1} S)) / 2 per observation: the right MCEM objective, S the expected scatter matrix."""
    return -0.5 * (
        np.linalg.slogdet(correlation)[1] + np.trace(np.linalg.solve(correlation, scatter))
    )


def printed_expected_log_likelihood(covariance, scatter) -> float:
    """log|Gamma| - tr(Gamma^{-1} S) / 2, as printed: without a bound over covariance matrices. Kept, wrong."""
    return np.linalg.slogdet(covariance)[1] - 0.5 * np.trace(np.linalg.solve(covariance, scatter))


def conditional_covariance(correlation, n_continuous: int = 2) -> np.ndarray:
    """V = Gamma_22 - Gamma_21 Gamma_11^{-1} Gamma_12."""
    a, b = correlation[:n_continuous, :n_continuous], correlation[:n_continuous, n_continuous:]
    return correlation[n_continuous:, n_continuous:] - b.T @ np.linalg.solve(a, b)


def trace_term(correlation, old_correlation, n_continuous: int = 2) -> float:
    """tr{Gamma^{-1} blockdiag(0, V_old)}: equals p1 at Gamma = Gamma_old only.

    Section 2.3 calls it "invariant and unrelated to Gamma"; in the M-step V belongs to the old Gamma and Gamma varies.
    """
    block = np.linalg.inv(correlation)[n_continuous:, n_continuous:]
    return float(np.trace(block @ conditional_covariance(old_correlation, n_continuous)))


def printed_cross_entropy(probability, y):
    """y log(p) + (1 - y) log(1 - p): Section 3.1 without the minus; its minimum is the wrong label. Kept, wrong."""
    return y * np.log(probability) + (1 - y) * np.log1p(-np.asarray(probability))


def truncated_variance(q):
    """Var(u | u > -q) of a standard normal: 1 - lambda (lambda + q), lambda = phi(q) / Phi(q). Its infimum is 0.

    The proof of Proposition 2 needs a positive lower bound, which does not exist. For q < -20 the asymptotic series
    1/q^2 - 6/q^4 + 50/q^6 is used, where the difference would cancel.
    """
    from studies.theory._arrays import log_ndtr

    q = np.asarray(q, dtype=float)
    inner = np.maximum(q, -20.0)
    mills = np.exp(-0.5 * inner**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(inner))
    with np.errstate(divide="ignore", invalid="ignore"):
        tail = q**-2.0 - 6 * q**-4.0 + 50 * q**-6.0
    return np.where(q < -20.0, tail, 1.0 - mills * (mills + inner))
