"""Corollary A.1 in general dimension: the right probability of a label cell, and the printed sums,
kept as printed.

All functions take one observation: labels (p1,), thresholds c (p1,) with y_k = 1{u_k >= c_k}, and
the conditional mean and covariance of u given the continuous residuals. They are for checking, not
for training: the loss is ``cevit_lib.copula.CopulaLoss``.
"""

from itertools import chain, combinations

import numpy as np

from cevit_lib.normal import log_multivariate_normal_cdf
from studies.theory.arrays import tensor
from studies.theory.printed import printed_corollary


def probability_below(upper, mean, covariance) -> float:
    """P(u <= upper) for u ~ N(mean, covariance); limits may be infinite."""
    return float(log_multivariate_normal_cdf(*map(tensor, (upper, mean, covariance))).exp())


def cell_probability(labels, thresholds, mean, covariance) -> float:
    """P(y | residuals) by the sign flip: Phi_p1(s (mean - c); S V S), s = 2 y - 1. One cdf for all
    2^p1 cells."""
    signs = 2.0 * np.asarray(labels) - 1.0
    covariance = signs[:, None] * np.asarray(covariance) * signs
    return probability_below(
        signs * (np.asarray(mean) - thresholds), np.zeros(len(signs)), covariance
    )


def subsets(indices):
    """All subsets of a sequence, the empty one first."""
    return chain.from_iterable(combinations(indices, size) for size in range(len(indices) + 1))


def inclusion_exclusion_probability(labels, thresholds, mean, covariance) -> float:
    """Inclusion-exclusion with the right limits: +infinity for k in A without T, c_k for all
    others."""
    labels, thresholds = np.asarray(labels), np.asarray(thresholds, dtype=float)
    total = 0.0
    for flipped in subsets(np.flatnonzero(labels == 1)):
        limits = np.where(labels == 1, np.inf, thresholds)
        limits[list(flipped)] = thresholds[list(flipped)]
        total += (-1) ** len(flipped) * probability_below(limits, mean, covariance)
    return total


def printed_limits_probability(labels, thresholds, mean, covariance) -> float:
    """The sum of Corollary A.1 with its printed limits: -c_k for k in A without T. Kept, wrong: it
    falls below zero."""
    rows = (tensor(a)[None] for a in (labels, thresholds, mean))
    return float(printed_corollary(*rows, tensor(covariance)))


def printed_expansion_probability(labels, thresholds, mean, covariance) -> float:
    """The displayed expansion in the corollary's proof, whose events for A without T are {u_k >=
    c_k}. Kept, wrong.

    Each term is itself the probability of the cell in which the labels in T are switched to 0.
    """
    labels = np.asarray(labels)
    total = 0.0
    for flipped in subsets(np.flatnonzero(labels == 1)):
        switched = labels.copy()
        switched[list(flipped)] = 0
        total += (-1) ** len(flipped) * cell_probability(switched, thresholds, mean, covariance)
    return total


def printed_case(y3: int, y4: int, thresholds, logits, mean, covariance) -> float:
    """Last expressions of Cases 1 to 4 in the proof of Theorem 2.1, as printed. All four differ
    from the cells.

    Case 1 puts the logits -mu for the thresholds; Case 2 lacks the minus before the conditional
    mean; Cases 3 and 4 put both the logits and -(conditional mean) into the bivariate term.
    """
    thresholds, logits, mean = (np.asarray(a, dtype=float) for a in (thresholds, logits, mean))
    if (y3, y4) == (0, 0):
        return probability_below(-logits, mean, covariance)
    if (y3, y4) == (1, 1):
        return probability_below(-thresholds, mean, covariance)
    kept = 1 if y3 == 1 else 0
    univariate = probability_below(
        thresholds[[kept]], mean[[kept]], np.asarray(covariance)[kept : kept + 1, kept : kept + 1]
    )
    return univariate - probability_below(-logits, -mean, covariance)


def integrate_normal(lower, upper, mean, covariance, nodes: int = 48) -> float:
    """P(lower < u < upper) by a tensor Gauss-Legendre rule: the general integral form, as an
    independent check.

    The box is cut at 8 standard deviations from the mean; fit for up to four dimensions (``nodes **
    p1`` points).
    """
    mean, covariance = np.asarray(mean, dtype=float), np.asarray(covariance, dtype=float)
    x, w = np.polynomial.legendre.leggauss(nodes)
    sd = np.sqrt(np.diag(covariance))
    low, high = np.maximum(lower, mean - 8 * sd), np.minimum(upper, mean + 8 * sd)
    if (high <= low).any():
        return 0.0
    half = (high - low) / 2
    axes = [(a + b) / 2 + h * x - m for a, b, h, m in zip(low, high, half, mean, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    exponent = -0.5 * np.einsum("...i,ij,...j->...", points, np.linalg.inv(covariance), points)
    value = np.exp(exponent) * half.prod() / np.sqrt(np.linalg.det(2 * np.pi * covariance))
    for _ in mean:
        value = value @ w
    return float(value)
