"""Markov chain Monte Carlo: the paper's rank-likelihood sampler, and one whose target is the stated
posterior."""

import warnings
from collections.abc import Iterator
from itertools import count, islice

import numpy as np
import torch

from cevit_lib.errors import DataError
from cevit_lib.estimation.base import CopulaEstimator, arguments
from cevit_lib.estimation.correlation import (
    EIGENVALUE_FLOOR,
    correlation_from_unconstrained,
    cov2cor,
    from_off_diagonal,
    keep_positive_definite,
    off_diagonal,
    smallest_eigenvalue,
    unconstrained_from_correlation,
)
from cevit_lib.estimation.em import check_choice
from cevit_lib.estimation.mle import MaximumLikelihood
from cevit_lib.estimation.moments import expected_moments
from cevit_lib.estimation.observed import Observed
from cevit_lib.estimation.sampling import gibbs_sweep, inverse_wishart, open_uniform

#: The share of accepted steps that burn-in aims at: between the best for one and for many.
ACCEPTANCE = 0.3


def split_r_hat(draws: np.ndarray) -> np.ndarray:
    """Return Gelman and Rubin's potential scale reduction of each quantity, every chain split in
    two.

    Parameters
    ----------
    draws : (chains, draws, k) array
    """
    half = draws.shape[1] // 2
    parts = np.concatenate([draws[:, :half], draws[:, half : 2 * half]])
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    constant = within <= 0
    return np.where(
        constant, 1.0, np.sqrt((half - 1) / half + between / np.where(constant, 1.0, within))
    )


@arguments
class RankLikelihoodMCMC(CopulaEstimator):
    r"""Posterior mean of ``Gamma`` by Markov chain Monte Carlo.

    Parameters
    ----------
    sampler : "paper" or "proper"
        ``"paper"``: Hoff's extended rank likelihood as Supplement B.2 uses it. Coordinate-wise
        Gibbs draws of the latent scores beyond their known thresholds, then an inverse-Wishart draw
        of a covariance matrix, whose correlation matrix is fed back. With known thresholds the
        latent scale is *not* free, so rescaling is not a likelihood step: the chain has no stated
        posterior as its target, but comes close where the margins are right. ``"proper"``:
        random-walk Metropolis over correlation matrices with the observed likelihood (latent scores
        integrated out) and a uniform prior on the set of correlation matrices; its step is tuned
        during the burn-in.
    sweeps, burn_in, thin, chains : int
        Supplement B.2: 2500, 1000, 10 and one chain.
    rng : numpy.random.Generator or int, optional
        Chains use streams spawned from it.

    Attributes
    ----------
    draws_ : (chains, kept, p, p) tensor
    standard_deviation_ : (p, p) tensor
        Posterior standard deviations.
    r_hat_ : (p, p) tensor
        Split potential scale reduction; ``converged_`` says that none exceeds 1.1.
    """

    remedy = "raise sweeps and burn_in, or run several chains (chains=4) and look at r_hat_"

    sampler: str = "paper"
    sweeps: int = 2500
    burn_in: int = 1000
    thin: int = 10
    chains: int = 1
    rng: np.random.Generator | int | None = None

    def _estimate(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        check_choice("sampler", self.sampler, ("paper", "proper"))
        if (self.sweeps - self.burn_in) // self.thin < 4:
            raise ValueError("sweeps, burn_in and thin must leave at least 4 draws a chain")
        scale = observed.residual_scale()
        streams = np.random.default_rng(self.rng).spawn(self.chains)
        if self.sampler == "paper":
            chains = [gibbs_chain(observed, scale, rng) for rng in streams]
        else:
            chains = [metropolis_chain(observed, scale, self.burn_in, rng) for rng in streams]
        first = self.burn_in + self.thin - 1
        kept = np.array([list(islice(own, first, self.sweeps, self.thin)) for own in chains])
        self.n_iter_ = self.sweeps
        rows, columns = off_diagonal(observed.p)
        r_hat = from_off_diagonal(split_r_hat(kept[:, :, rows, columns]), observed.p)
        self.converged_ = bool(r_hat.max() <= 1.1)
        self.history_["correlation"] = kept[0]
        self.r_hat_ = torch.from_numpy(r_hat)
        self.draws_ = torch.from_numpy(kept)
        self.standard_deviation_ = torch.from_numpy(kept.std(axis=(0, 1), ddof=1))
        return scale, kept.mean(axis=(0, 1))


def _latent_arrays(observed: Observed, scale: np.ndarray):
    """Return starting scores (p, n), the variables to be drawn, and their thresholds and signs (k,
    n)."""
    z = np.zeros((observed.p, observed.n))
    threshold, sign = np.full_like(z, -np.inf), np.ones_like(z)  # a missing response is free
    start = 0
    for part in observed.patterns:
        here = slice(start, start + len(part))
        start += len(part)
        z[part.continuous, here] = (part.residual / scale[part.continuous]).T
        z[part.binary, here] = (part.threshold + 0.5 * part.sign).T
        threshold[part.binary, here], sign[part.binary, here] = part.threshold.T, part.sign.T
        threshold[part.continuous, here] = sign[part.continuous, here] = 0.0
    columns = np.flatnonzero(sign.any(axis=1))
    return z, columns, threshold[columns], sign[columns]


def gibbs_chain(
    observed: Observed, scale: np.ndarray, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield the correlation matrix after each sweep of the paper's sampler.

    The prior on the covariance matrix is inverse Wishart with ``p + 2`` degrees of freedom and
    scale ``(p + 2) I``.
    """
    p, n = observed.p, observed.n
    z, columns, threshold, sign = _latent_arrays(observed, scale)
    prior = (p + 2.0) * np.eye(p)
    correlation = np.eye(p)
    block = max(1, 400_000 // max(1, len(columns) * n))
    while True:
        for uniform in open_uniform(rng, (block, len(columns), n)):
            gibbs_sweep(z, np.linalg.inv(correlation), columns, threshold, sign, uniform)
            correlation = cov2cor(inverse_wishart(prior + z @ z.T, p + 2 + n, rng))
            yield correlation


def log_volume(z: np.ndarray, correlation: np.ndarray) -> float:
    r"""Return :math:`\log |d \Gamma / d z|`, the entries above the diagonal by the ``z`` of
    :func:`metropolis_chain`: :math:`\tfrac{p + 1}{2} \log |\Gamma| + \sum \log \cosh z`."""
    return (
        0.5 * (len(correlation) + 1) * np.linalg.slogdet(correlation)[1] + np.log(np.cosh(z)).sum()
    )


def metropolis_chain(
    observed: Observed, scale: np.ndarray, burn_in: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Yield the matrix after each random-walk step: the one before where the step was rejected.

    The walk is in ``z = asinh(l)``, ``l`` the free coordinates of
    :func:`~cevit_lib.estimation.correlation.correlation_from_unconstrained` (``rho = tanh z`` where
    ``p = 2``), in which no boundary is near; :func:`log_volume` makes the prior uniform over
    correlation matrices. Size and shape of the step follow the chain (Andrieu and Thoms 2008,
    Algorithm 4) during the first ``burn_in`` steps, and stay.
    """
    p = observed.p
    if p < 2:
        raise DataError("one response has no correlation to sample; give at least two")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        mode = MaximumLikelihood(fit_scale=False).fit_observed(observed).parameters_
    current = keep_positive_definite(mode.correlation.numpy(), 1e-3)

    def log_posterior(z, correlation):
        likelihood = expected_moments(observed, scale, correlation).log_likelihood
        return observed.n * likelihood + log_volume(z, correlation)

    point = np.arcsinh(unconstrained_from_correlation(current))
    value, centre = log_posterior(point, current), point
    size, spread = np.log(2.38**2 / len(point)), np.eye(len(point)) * 4 / observed.n
    for sweep in count(1):
        root = np.linalg.cholesky(np.exp(size) * spread)
        proposal, accepted = point + root @ rng.standard_normal(len(point)), 0.0
        matrix, _ = correlation_from_unconstrained(np.sinh(proposal), p)
        if smallest_eigenvalue(matrix) > EIGENVALUE_FLOOR:
            proposed = log_posterior(proposal, matrix)
            accepted = np.exp(min(0.0, proposed - value))
        if open_uniform(rng, ()) < accepted:
            point, current, value = proposal, matrix, proposed
        if sweep <= burn_in:
            weight, departure = (10.0 + sweep) ** -0.6, point - centre
            centre = centre + weight * departure
            spread += weight * (np.outer(departure, departure) - spread)
            size += weight * (accepted - ACCEPTANCE)
        yield current
