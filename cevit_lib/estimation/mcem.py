"""Algorithm 1: Monte Carlo EM, with its expectations sampled from the truncated normal posterior (12)."""

import numpy as np
import torch

from cevit_lib.estimation.base import CopulaEstimator, starting_correlation
from cevit_lib.estimation.correlation import cov2cor
from cevit_lib.estimation.e_step import _with_missing
from cevit_lib.estimation.em import M_STEPS, check_choice, m_step
from cevit_lib.estimation.observed import Observed, Pattern
from cevit_lib.estimation.sampling import gibbs_sweep, open_uniform


class _Chains:
    """Gibbs chains over the latents of one pattern: ``draws`` for each patient, kept from one E-step to the next."""

    def __init__(self, part: Pattern, scale: np.ndarray, draws: int):
        self.part, self.draws = part, draws
        self.u = np.repeat(part.residual / scale[part.continuous], draws, axis=0).T
        self.threshold = np.repeat(part.threshold, draws, axis=0).T
        self.sign = np.repeat(part.sign, draws, axis=0).T
        # Any admitted point will do as a start: one unit beyond the threshold.
        self.z = np.concatenate([self.u, self.threshold + self.sign])
        self.columns = np.arange(len(self.u), len(self.z))

    def second_moment(
        self, correlation: np.ndarray, sweeps: int, rng: np.random.Generator
    ) -> np.ndarray:
        order = self.part.seen
        precision = np.linalg.inv(correlation[np.ix_(order, order)])
        for _ in range(sweeps if len(self.columns) else 0):
            gibbs_sweep(
                self.z,
                precision,
                self.columns,
                self.threshold,
                self.sign,
                open_uniform(rng, self.threshold.shape),
            )
        return _with_missing(self.z @ self.z.T / self.draws, self.part, correlation)


class MonteCarloEM(CopulaEstimator):
    r"""Monte Carlo EM, Algorithm 1 of the paper, with the right sign of the log-determinant.

    Each E-step draws ``draws`` latent vectors a patient from the posterior (12) by Gibbs sweeps that start where the
    last E-step stopped; truncation points 40 standard deviations out are handled. The estimate is the mean of the
    iterates after ``burn_in``, which no longer move systematically; their scatter gives its Monte Carlo error.

    Parameters
    ----------
    draws, sweeps : int
        Draws ``M`` a patient, and Gibbs sweeps before each use of them.
    max_iter, burn_in : int
        Iterations in all, and how many of them are dropped.
    m_step : "constrained" or "cov2cor"
    tol : float
        Converged if the means of the two halves of the kept iterates differ by less than ``tol`` plus four standard
        errors of that difference, in every entry.
    rng : numpy.random.Generator or int, optional
    initial, continuous
        As in :class:`FastMCEM`.

    Attributes
    ----------
    monte_carlo_error_ : (p, p) tensor
        Monte Carlo standard error of each correlation, by batch means.
    """

    remedy = (
        "raise max_iter (cevit fit: --max-iter), burn_in or draws: the kept iterates still drift"
    )

    def __init__(
        self,
        draws=10,
        sweeps=2,
        max_iter=200,
        burn_in=120,
        m_step="constrained",
        tol=1e-3,
        rng=None,
        initial=None,
        continuous=None,
    ):
        self.draws = draws
        self.sweeps = sweeps
        self.max_iter = max_iter
        self.burn_in = burn_in
        self.m_step = m_step
        self.tol = tol
        self.rng = rng
        self.initial = initial
        self.continuous = continuous

    def _estimate(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        check_choice("m_step", self.m_step, M_STEPS)
        if not 0 <= self.burn_in <= self.max_iter - 8:
            raise ValueError(
                f"burn_in must leave at least 8 of {self.max_iter} iterations; seen {self.burn_in}"
            )
        rng = np.random.default_rng(self.rng)
        scale = observed.residual_scale()
        correlation = starting_correlation(self.initial, observed.p)
        chains = [_Chains(part, scale, self.draws) for part in observed.patterns]
        self.history_["correlation"].append(correlation)
        for iteration in range(1, self.max_iter + 1):
            self.n_iter_ = iteration
            second_moment = (
                sum(chain.second_moment(correlation, self.sweeps, rng) for chain in chains)
                / observed.n
            )
            updated = m_step(second_moment, correlation, self.m_step)
            self.history_["change"].append(float(np.linalg.norm(updated - correlation)))
            self.history_["correlation"].append(updated)
            correlation = updated
        return scale, self._average(np.array(self.history_["correlation"])[self.burn_in + 1 :])

    def _average(self, kept: np.ndarray) -> np.ndarray:
        batches = np.array([part.mean(axis=0) for part in np.array_split(kept, 8)])
        error = batches.std(axis=0, ddof=1) / np.sqrt(len(batches))
        drift = np.abs(batches[:4].mean(axis=0) - batches[4:].mean(axis=0))
        # Noise by successive differences, which a drift hardly enters; means of four batches differ by 2^-1/2 of it.
        noise = np.sqrt(0.5 * (np.diff(batches, axis=0) ** 2).mean(axis=0))
        self.converged_ = bool(np.all(drift < self.tol + 4.0 * noise / np.sqrt(2.0)))
        self.monte_carlo_error_ = torch.from_numpy(error)
        return cov2cor(kept.mean(axis=0))


def posterior_draws(
    mean: np.ndarray,
    covariance: np.ndarray,
    threshold: np.ndarray,
    sign: np.ndarray,
    rng=None,
    sweeps: int = 50,
) -> np.ndarray:
    """Return one draw a row from the truncated normal posterior (12).

    Parameters
    ----------
    mean, threshold, sign : (n, b) arrays
        Latent ``j`` of row ``i`` is normal with this mean and lies above its threshold (sign +1) or below it (-1).
    covariance : (b, b) array
    sweeps : int
        Gibbs sweeps from a start one unit beyond the threshold.

    Returns
    -------
    (n, b) array
    """
    rng = np.random.default_rng(rng)
    z = (threshold + sign - mean).T.copy()
    shifted, side = (threshold - mean).T, np.ascontiguousarray(sign.T)
    precision, columns = np.linalg.inv(covariance), np.arange(len(covariance))
    for _ in range(sweeps):
        gibbs_sweep(z, precision, columns, shifted, side, open_uniform(rng, z.shape))
    return z.T + mean
