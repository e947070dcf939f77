r"""The E-step: expected second moments of the latent scores given what was observed, and the observed likelihood.

For a patient let :math:`z = (u_A, u_B, u_M)`: observed continuous scores, latent scores behind observed labels, and
the scores of missing responses. Given :math:`u_A`, the latent :math:`u_B` is normal with mean
:math:`\tilde\mu = \Gamma_{BA}\Gamma_{AA}^{-1}u_A` and covariance :math:`\tilde V` (Theorem 2.1), truncated to one
orthant by the labels: equation (12). Missing scores are normal given the rest, so they are integrated in closed form.
"""

import functools
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import erfcx, log_ndtr, ndtr

from cevit_lib.estimation.correlation import complete_objective
from cevit_lib.estimation.observed import Observed, Pattern
from cevit_lib.normal import log_bivariate_normal_cdf_with_gradients, log_multivariate_normal_cdf

LOG_TWO_PI = float(np.log(2.0 * np.pi))
#: Patients handled at a time: their work arrays then stay in the processor's cache, and memory does not grow.
BLOCK = 8192
#: The shared-node integral is used for correlations up to the first and probabilities down to the second number.
MOST_SHARED, LEAST_SHARED = 0.925, 1e-7


class Regression(NamedTuple):
    """The normal law of one block of scores given another: ``u_B | u_A ~ N(slope u_A, covariance)``."""

    slope: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, correlation: np.ndarray, target: np.ndarray, given: np.ndarray) -> "Regression":
        cross = correlation[np.ix_(target, given)]
        slope = np.linalg.solve(correlation[np.ix_(given, given)], cross.T).T
        return cls(slope, correlation[np.ix_(target, target)] - slope @ cross.T)


class Moments(NamedTuple):
    """What one E-step returns: a mean over patients.

    Attributes
    ----------
    second : (p, p) array
        ``E[z z' | observed]``.
    log_likelihood : float
        Log-density of the observed responses.
    """

    second: np.ndarray
    log_likelihood: float


def inverse_mills(b: np.ndarray) -> np.ndarray:
    r"""Return :math:`\phi(b)/\Phi(b)` in the ``erfcx`` form, which neither overflows nor cancels for any ``b``."""
    return np.sqrt(2.0 / np.pi) / erfcx(b * -np.sqrt(0.5))


def univariate_moments(mean: np.ndarray, sd: np.ndarray, part: Pattern):
    """Return mean and variance, (n, b) both, of each latent under its own truncated normal.

    The means are Algorithm 2's E-step: ``2n`` univariate expectations ``E[N(mean, sd^2) | side of the threshold]``,
    which ignore that the two latents of (12) are truncated together.
    """
    limit = part.sign * (mean - part.threshold) / sd
    hazard = inverse_mills(limit)
    return mean + part.sign * sd * hazard, sd**2 * (1.0 - hazard * (limit + hazard))


@functools.cache
def _gauss_legendre(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Gauss-Legendre nodes and weights on [0, 1]."""
    node, weight = np.polynomial.legendre.leggauss(nodes)
    return 0.5 * (node + 1.0), 0.5 * weight


def quadrant(b: np.ndarray, r: float, flip: np.ndarray) -> tuple[np.ndarray, ...]:
    r"""Return :math:`\log\Phi_2(b_1, b_2; \pm r)` and its derivatives in :math:`b_1, b_2` and the correlation.

    All patients of a pattern share :math:`|r|`, hence the nodes of Plackett's integral over the correlation,
    :math:`\Phi_2 = \Phi(b_1)\Phi(b_2) + \frac{1}{2\pi}\int_0^{\arcsin r} \exp\{-\frac{b_1^2 + b_2^2 - 2 b_1 b_2
    \sin\theta}{2\cos^2\theta}\}\,d\theta`: one matrix product and one ``exp``, 1e-15 in absolute terms. Where that is
    not enough (small probabilities, correlations beyond 0.925) ``cevit_lib.normal`` works in log space.

    Parameters
    ----------
    b : (n, 2) array
    r : float
    flip : (n,) array of +-1
        The correlation of row ``i`` is ``flip[i] * r``.
    """
    if abs(r) > MOST_SHARED:
        return _quadrant_in_logs(b, r * flip)
    node, weight = _gauss_legendre(12 if abs(r) < 0.75 else 24)
    theta = np.arcsin(r) * node
    ratio = np.sin(theta) / np.cos(theta) ** 2
    squares, product = np.square(b).sum(axis=1), flip * b[:, 0] * b[:, 1]
    exponent = np.stack([squares, product], axis=1) @ np.stack([-0.5 / np.cos(theta) ** 2, ratio])
    side = ndtr(b)
    p = side[:, 0] * side[:, 1] + flip * (np.exp(exponent) @ weight) * (
        np.arcsin(r) / (2.0 * np.pi)
    )
    small = p < LEAST_SHARED
    p[small] = 1.0
    across = np.sqrt(1.0 - r * r)
    given = ndtr((b[:, ::-1] - (r * flip)[:, None] * b) / across)
    slopes = np.exp(-0.5 * np.square(b)) * given / (np.sqrt(2.0 * np.pi) * p[:, None])
    by_r = np.exp((product * r - 0.5 * squares) / across**2) / (2.0 * np.pi * across * p)
    found = np.log(p), slopes[:, 0], slopes[:, 1], by_r
    if small.any():
        for array, values in zip(found, _quadrant_in_logs(b[small], r * flip[small]), strict=True):
            array[small] = values
    return found


def _quadrant_in_logs(b: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, ...]:
    x, y, r = (torch.from_numpy(np.ascontiguousarray(each)) for each in (b[:, 0], b[:, 1], r))
    with torch.no_grad():
        return tuple(each.numpy() for each in log_bivariate_normal_cdf_with_gradients(x, y, r))


def bivariate_moments(mean: np.ndarray, covariance: np.ndarray, part: Pattern):
    r"""Return mean, summed second moment and log-probability of pairs of latents truncated by their labels.

    With :math:`w_j = s_j (z_j - \tilde\mu_j)/\tilde v_j^{1/2}` the event is :math:`w > -b` and has probability
    :math:`\Phi_2(b; r)`. The gradient :math:`f` of :math:`\log\Phi_2` and its derivative :math:`f_r` in the correlation
    give every moment (Tallis 1961, with Plackett's :math:`\partial\Phi_2/\partial r = \partial^2\Phi_2/\partial b_1
    \partial b_2`): :math:`E w = R f` and :math:`E w w' = R + R H R`, :math:`H_{12} = f_r`,
    :math:`H_{jj} = -b_j f_j - r f_r`.

    Returns
    -------
    mean : (n, 2) array
    second : (2, 2) array
        Sum over patients of ``E[z z']``.
    log_probability : (n,) array
    """
    sd = np.sqrt(np.diag(covariance))
    b = part.sign * (mean - part.threshold) / sd
    flip = part.sign[:, 0] * part.sign[:, 1]
    shared = covariance[0, 1] / (sd[0] * sd[1])
    log_p, f1, f2, fr = quadrant(b, shared, flip)
    r = shared * flip
    shift = np.stack([f1 + r * f2, r * f1 + f2], axis=1)
    h11, h22 = -b[:, 0] * f1 - r * fr, -b[:, 1] * f2 - r * fr
    w11 = 1.0 + h11 + 2 * r * fr + r**2 * h22
    w22 = 1.0 + h22 + 2 * r * fr + r**2 * h11
    w12 = r + r * (h11 + h22) + (1.0 + r**2) * fr
    centred = part.sign * sd * shift
    cross = mean.T @ centred
    spread = np.array([[w11.sum(), flip @ w12], [flip @ w12, w22.sum()]]) * np.outer(sd, sd)
    return mean + centred, mean.T @ mean + cross + cross.T + spread, log_p


def orthant_moments(mean: np.ndarray, covariance: np.ndarray, part: Pattern):
    r"""Return what :func:`bivariate_moments` does for any number of labels, by the gradient of :math:`\log\Phi_b`.

    Fisher's identity: the derivative of the log-probability in the mean is :math:`\tilde V^{-1}E(z - \tilde\mu)`, and
    in the covariance it is :math:`\tfrac12 \tilde V^{-1}\{E(z-\tilde\mu)(z-\tilde\mu)' - \tilde V\}\tilde V^{-1}`.
    """
    centre = torch.from_numpy(mean).requires_grad_()
    spread = torch.from_numpy(covariance).requires_grad_()
    sign = torch.from_numpy(part.sign)
    flipped = sign[:, :, None] * spread * sign[:, None, :]
    upper = sign * (centre - torch.from_numpy(part.threshold))
    log_p = log_multivariate_normal_cdf(upper, torch.zeros_like(centre), flipped)
    d_mean, d_spread = torch.autograd.grad(log_p.sum(), (centre, spread))
    slope = 0.5 * (d_spread + d_spread.T).numpy()
    shift = d_mean.numpy() @ covariance
    cross = mean.T @ shift
    around = len(mean) * covariance + 2.0 * covariance @ slope @ covariance
    return mean + shift, mean.T @ mean + cross + cross.T + around, log_p.detach().numpy()


def latent_moments(mean: np.ndarray, covariance: np.ndarray, part: Pattern):
    """Return means, summed second moment and log-probability of the latents behind the observed labels."""
    labels = part.sign.shape[1]
    if labels == 0:
        return mean, np.zeros((0, 0)), 0.0
    if labels == 1:
        sd = np.sqrt(covariance[0])
        means, variances = univariate_moments(mean, sd, part)
        log_p = log_ndtr(part.sign * (mean - part.threshold) / sd)
        return means, means.T @ means + variances.sum(), log_p
    return (bivariate_moments if labels == 2 else orthant_moments)(mean, covariance, part)


def expected_moments(
    observed: Observed, scale: np.ndarray, correlation: np.ndarray, latent=latent_moments
) -> Moments:
    """Return the mean over all patients of ``E[z z']``, and the mean log-likelihood.

    The log-likelihood is that of the observed responses in their own units.

    Parameters
    ----------
    scale, correlation : (p0,), (p, p) arrays
    latent : callable (mean, covariance, pattern) -> means, second moment, log probability
        What is expected of the latent scores behind a pattern's labels, whose normal law before truncation has these
        means (n, b) and this covariance (b, b): by default the exact moments; fMCEM has its own.
    """
    second, log_likelihood = np.zeros_like(correlation), 0.0
    for part in observed.patterns:
        a = part.continuous
        seen, log_probability = sum_of_pattern(part, scale, correlation, latent)
        second += with_missing(seen, part, correlation)
        own = complete_objective(
            correlation[np.ix_(a, a)], seen[: len(a), : len(a)] / len(part)
        )  # log-density of the continuous scores, but for its constant
        own -= 0.5 * len(a) * LOG_TWO_PI + np.log(scale[a]).sum()
        log_likelihood += log_probability + len(part) * own
    return Moments(second / observed.n, float(log_likelihood) / observed.n)


def sum_of_pattern(part: Pattern, scale: np.ndarray, correlation: np.ndarray, latent):
    """Return the summed second moment of the observed responses' scores, and the labels' log probability."""
    a, b = part.continuous, part.binary
    law = Regression.of(correlation, b, a)
    seen, log_probability = np.zeros((len(part.seen),) * 2), 0.0
    for block in part.blocks(BLOCK):
        u = block.residual / scale[a]
        means, second, log_p = latent(u @ law.slope.T, law.covariance, block)
        cross = u.T @ means
        seen += np.block([[u.T @ u, cross], [cross.T, second]])
        log_probability += np.sum(log_p)
    return seen, log_probability


def with_missing(seen: np.ndarray, part: Pattern, correlation: np.ndarray) -> np.ndarray:
    """Return the (p, p) summed second moment from that of the observed scores: missing ones are normal given these."""
    order, missing = part.seen, part.missing
    second = np.empty_like(correlation)
    second[np.ix_(order, order)] = seen
    if len(missing):
        law = Regression.of(correlation, missing, order)
        cross = law.slope @ seen
        second[np.ix_(missing, order)], second[np.ix_(order, missing)] = cross, cross.T
        second[np.ix_(missing, missing)] = cross @ law.slope.T + len(part) * law.covariance
    return second
