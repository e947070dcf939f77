"""Corollary A.1 in general dimension: the right probability of a label cell, and the printed sums, kept as printed.

All functions take one observation: labels (p1,), thresholds c (p1,) with y_k = 1{u_k >= c_k}, and the conditional mean
and covariance of u given the continuous residuals. They are for checking, not for training: the loss is
``cevit_lib.copula.CopulaLoss``.
"""

from functools import reduce
from itertools import chain, combinations

import numpy as np

from studies.errata.printed import printed_corollary
from studies.theory._arrays import bivariate_cdf, ndtr, tensor


def normal_cdf(upper, mean, covariance, nodes: int = 40) -> float:
    """P(u <= upper) for u ~ N(mean, covariance); infinite limits drop their coordinate.

    Beyond two coordinates, the first p1 - 2 are integrated by Gauss-Legendre within 8.5 standard deviations and
    the other two, given them, by the bivariate cdf: slow, and independent of the library's own p1 > 2.
    """
    upper, mean, covariance = (np.asarray(a, dtype=float) for a in (upper, mean, covariance))
    if (upper == -np.inf).any():
        return 0.0
    kept = np.isfinite(upper)
    upper, mean, covariance = upper[kept], mean[kept], covariance[np.ix_(kept, kept)]
    if len(upper) == 0:
        return 1.0
    if len(upper) == 1:
        return float(ndtr((upper[0] - mean[0]) / np.sqrt(covariance[0, 0])))
    first = np.arange(len(upper) - 2)
    points, weights = _density_rule(
        upper[first] - mean[first], covariance[np.ix_(first, first)], nodes
    )
    loading = np.linalg.solve(covariance[np.ix_(first, first)], covariance[first][:, -2:])
    rest = covariance[-2:, -2:] - covariance[-2:][:, first] @ loading
    sd = np.sqrt(np.diag(rest))
    z = (upper[-2:] - mean[-2:] - points @ loading) / sd
    return float(weights @ bivariate_cdf(z[:, 0], z[:, 1], rest[0, 1] / sd.prod()))


def _density_rule(upper, covariance, nodes: int):
    """Points (m, k) and weights (m,) that integrate against the N(0, covariance) density below ``upper`` (k,)."""
    if len(upper) == 0:
        return np.zeros((1, 0)), np.ones(1)
    x, w = np.polynomial.legendre.leggauss(nodes)
    low = -8.5 * np.sqrt(np.diag(covariance))
    half = (np.clip(upper, low, -low) - low) / 2
    axes = [(x + 1) * h + a for h, a in zip(half, low, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(upper))
    weights = reduce(np.multiply.outer, [w * h for h in half]).ravel()
    exponent = -0.5 * np.einsum("ni,ij,nj->n", points, np.linalg.inv(covariance), points)
    return points, weights * np.exp(exponent) / np.sqrt(np.linalg.det(2 * np.pi * covariance))


def cell_probability(labels, thresholds, mean, covariance) -> float:
    """P(y | residuals) by the sign flip: Phi_p1(s (mean - c); S V S), s = 2 y - 1. One cdf for all 2^p1 cells."""
    signs = 2.0 * np.asarray(labels) - 1.0
    covariance = signs[:, None] * np.asarray(covariance) * signs
    return normal_cdf(signs * (np.asarray(mean) - thresholds), np.zeros(len(signs)), covariance)


def subsets(indices):
    """All subsets of a sequence, the empty one first."""
    return chain.from_iterable(combinations(indices, size) for size in range(len(indices) + 1))


def inclusion_exclusion_probability(labels, thresholds, mean, covariance) -> float:
    """Inclusion-exclusion with the right limits: +infinity for k in A without T, c_k for all others."""
    labels, thresholds = np.asarray(labels), np.asarray(thresholds, dtype=float)
    total = 0.0
    for flipped in subsets(np.flatnonzero(labels == 1)):
        limits = np.where(labels == 1, np.inf, thresholds)
        limits[list(flipped)] = thresholds[list(flipped)]
        total += (-1) ** len(flipped) * normal_cdf(limits, mean, covariance)
    return total


def printed_limits_probability(labels, thresholds, mean, covariance) -> float:
    """The sum of Corollary A.1 with its printed limits: -c_k for k in A without T. Kept, wrong: it falls below zero."""
    rows = (tensor(a)[None] for a in (labels, thresholds, mean))
    return float(printed_corollary(*rows, tensor(covariance)))


def printed_expansion_probability(labels, thresholds, mean, covariance) -> float:
    """The displayed expansion in the corollary's proof, whose events for A without T are {u_k >= c_k}. Kept, wrong.

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
    """Last expressions of Cases 1 to 4 in the proof of Theorem 2.1, as printed. All four differ from the cells.

    Case 1 puts the logits -mu for the thresholds; Case 2 lacks the minus before the conditional mean; Cases 3 and 4 put
    both the logits and -(conditional mean) into the bivariate term.
    """
    thresholds, logits, mean = (np.asarray(a, dtype=float) for a in (thresholds, logits, mean))
    if (y3, y4) == (0, 0):
        return normal_cdf(-logits, mean, covariance)
    if (y3, y4) == (1, 1):
        return normal_cdf(-thresholds, mean, covariance)
    kept = 1 if y3 == 1 else 0
    univariate = normal_cdf(
        thresholds[[kept]], mean[[kept]], np.asarray(covariance)[kept : kept + 1, kept : kept + 1]
    )
    return univariate - normal_cdf(-logits, -mean, covariance)


def integrate_normal(lower, upper, mean, covariance, nodes: int = 48) -> float:
    """P(lower < u < upper) by a tensor Gauss-Legendre rule: the general integral form, as an independent check.

    The box is cut at 8 standard deviations from the mean; fit for up to four dimensions (``nodes ** p1`` points).
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
