r"""Expected second moments of the scores given what was observed, and the observed likelihood.

For a patient let :math:`z = (u_A, u_B, u_M)`: observed continuous scores, latent scores behind
observed labels, and the scores of missing responses. Given :math:`u_A`, the latent :math:`u_B` is
normal with mean
:math:`\tilde\mu = \Gamma_{BA}\Gamma_{AA}^{-1}u_A` and covariance :math:`\tilde V` (Theorem 2.1),
truncated to one orthant by the labels: equation (12). Missing scores are normal given the rest, so
they are integrated in closed form.
"""

from typing import NamedTuple

import numpy as np
import torch

from cevit_lib.estimation.correlation import complete_objective
from cevit_lib.estimation.observed import Observed, Pattern
from cevit_lib.normal import (
    log_multivariate_normal_cdf,
    truncated_normal_mean,
    truncated_normal_variance,
)
from cevit_lib.normal.bivariate import log_cdf_of_pairs
from cevit_lib.normal.central import PlackettNodes
from cevit_lib.normal.wedge import correlation_slope

LOG_TWO_PI = float(np.log(2.0 * np.pi))
#: Patients handled at a time: their work arrays then stay in the processor's cache, and memory does
#: not grow.
BLOCK = 8192


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


def law_given(correlation: np.ndarray, target: np.ndarray, given: np.ndarray):
    """Return slope (b, a) and covariance (b, b) of the normal scores ``target`` given ``given``."""
    rows = correlation[target]  # NumPy's calls cost a quarter of torch's, and there are thousands
    slope = np.linalg.solve(correlation[given][:, given], rows[:, given].T).T
    covariance = rows[:, target] - slope @ rows[:, given].T
    return slope, 0.5 * (covariance + covariance.T)  # rounding would grow from step to step


def univariate_means(mean: np.ndarray, covariance: np.ndarray, part: Pattern) -> np.ndarray:
    """Return the mean (n, b) of each latent under its own truncated normal.

    This is Algorithm 2's E-step: ``2n`` univariate expectations ``E[N(mean, sd^2) | side of the
    threshold]``, which ignore that the two latents of (12) are truncated together.
    """
    return truncated_normal_mean(*_truncation(mean, covariance, part)).numpy()


def univariate_variances(mean: np.ndarray, covariance: np.ndarray, part: Pattern) -> np.ndarray:
    """Return the variance (n, b) of each latent under its own truncated normal."""
    return truncated_normal_variance(*_truncation(mean, covariance, part)).numpy()


def _truncation(mean: np.ndarray, covariance: np.ndarray, part: Pattern):
    sd = np.sqrt(np.diag(covariance))
    return [torch.from_numpy(each) for each in (part.threshold, mean, sd, part.sign)]


def latent_moments(mean: np.ndarray, covariance: np.ndarray, part: Pattern):
    r"""Return the exact moments of the latents behind the observed labels, truncated together.

    Fisher's identity: the derivative of the labels' log-probability in the mean is :math:`\tilde
    V^{-1}E(z - \tilde\mu)`, and in the covariance :math:`\tfrac12 \tilde
    V^{-1}\{E(z-\tilde\mu)(z-\tilde\mu)' - \tilde V\}\tilde V^{-1}`. So slopes give every moment; an
    E-step needs the second ones summed only.

    Parameters
    ----------
    mean, covariance : (n, b), (b, b) arrays
        Of the latents before the labels are known.

    Returns
    -------
    means : (n, b) array
    second : (b, b) array
        Sum over patients of ``E[u_B u_B']``.
    log_probability : (n,) array
        Of the labels.
    """
    if mean.shape[1] == 0:
        return mean, covariance, np.zeros(len(mean))
    slopes = slopes_of_pairs if mean.shape[1] == 2 else slopes_of_orthants
    log_probability, by_mean, by_covariance = slopes(mean, covariance, part)
    shift = by_mean @ covariance
    cross = mean.T @ shift
    around = len(mean) * covariance + 2.0 * covariance @ by_covariance @ covariance
    return mean + shift, mean.T @ mean + cross + cross.T + around, log_probability


def slopes_of_pairs(mean: np.ndarray, covariance: np.ndarray, part: Pattern):
    r"""Return log-probability (n,), its slope in the mean (n, 2) and, summed over patients, in the
    covariance (2, 2).

    With :math:`b_j = s_j (\tilde\mu_j - c_j)/\tilde v_j^{1/2}` the labels have probability
    :math:`\Phi_2(b; s_1 s_2 r)`: all patients share :math:`|r|`.
    """
    sd = np.sqrt(np.diag(covariance))
    b = part.sign * (mean - part.threshold) / sd
    flip, r = part.sign[:, 0] * part.sign[:, 1], covariance[0, 1] / sd.prod()
    limits, signs = torch.from_numpy(b), torch.from_numpy(flip)
    nodes = PlackettNodes.of(torch.tensor([r]))
    value, slopes = log_cdf_of_pairs(limits, signs, nodes, digits=12)
    by_r = flip @ correlation_slope(*limits.unbind(-1), signs * r, value).numpy()
    log_probability, by_b = value.numpy(), slopes.numpy()
    own = np.diag(np.einsum("nj,nj->j", b, by_b) + r * by_r) / covariance.diagonal()
    across = by_r * (1.0 - np.eye(2)) / sd.prod()
    return log_probability, part.sign * by_b / sd, 0.5 * (across - own)


def slopes_of_orthants(mean: np.ndarray, covariance: np.ndarray, part: Pattern):
    """Return what :func:`slopes_of_pairs` does for any number of labels, by autograd."""
    centre = torch.from_numpy(mean).requires_grad_()
    spread = torch.from_numpy(covariance).requires_grad_()
    sign = torch.from_numpy(part.sign)
    flipped = sign[:, :, None] * spread * sign[:, None, :]
    upper = sign * (centre - torch.from_numpy(part.threshold))
    log_p = log_multivariate_normal_cdf(upper, torch.zeros_like(centre), flipped)
    by_mean, by_spread = torch.autograd.grad(log_p.sum(), (centre, spread))
    return log_p.detach().numpy(), by_mean.numpy(), 0.5 * (by_spread + by_spread.T).numpy()


def expected_moments(
    observed: Observed, scale: np.ndarray, correlation: np.ndarray, latent=latent_moments
) -> Moments:
    """Return the mean over all patients of ``E[z z']``, and the mean log-likelihood.

    The log-likelihood is that of the observed responses in their own units.

    Parameters
    ----------
    scale, correlation : (p0,), (p, p) arrays
    latent : callable
        What is expected of the latent scores behind a pattern's labels, called and answering as
        :func:`latent_moments`; fMCEM has its own.
    """
    second, log_likelihood = np.zeros_like(correlation), 0.0
    for part in observed.patterns:
        a = part.continuous
        seen, log_probability = sum_of_pattern(part, scale, correlation, latent)
        second += with_missing(seen, part, correlation)
        # the log-density of the continuous responses
        own = complete_objective(correlation[np.ix_(a, a)], seen[: len(a), : len(a)] / len(part))
        own -= 0.5 * len(a) * LOG_TWO_PI + np.log(scale[a]).sum()
        log_likelihood += log_probability + len(part) * own
    return Moments(second / observed.n, float(log_likelihood) / observed.n)


def sum_of_pattern(part: Pattern, scale: np.ndarray, correlation: np.ndarray, latent):
    """Return the summed second moment of the observed responses' scores, and the labels' log
    probability."""
    a, b = part.continuous, part.binary
    slope, covariance = law_given(correlation, b, a)
    seen, log_probability = np.zeros((len(part.seen),) * 2), 0.0
    for block in part.blocks(BLOCK):
        u = block.residual / scale[a]
        means, second, log_p = latent(u @ slope.T, covariance, block)
        cross = u.T @ means
        seen += np.vstack([np.hstack([u.T @ u, cross]), np.hstack([cross.T, second])])
        log_probability += np.sum(log_p)
    return seen, log_probability


def with_missing(seen: np.ndarray, part: Pattern, correlation: np.ndarray) -> np.ndarray:
    """Return the (p, p) summed second moment from that of the observed scores: missing ones are
    normal given these."""
    order, missing = part.seen, part.missing
    second = np.empty_like(correlation)
    second[np.ix_(order, order)] = seen
    if len(missing):
        slope, covariance = law_given(correlation, missing, order)
        cross = slope @ seen
        second[np.ix_(missing, order)], second[np.ix_(order, missing)] = cross, cross.T
        second[np.ix_(missing, missing)] = cross @ slope.T + len(part) * covariance
    return second
