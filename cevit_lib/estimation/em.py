"""The EM family: one loop; the paper's fMCEM (Algorithm 2), the exact EM that it approximates, and
MCEM (Algorithm 1).

Every step is a method. ``e_step`` gives the expected second moment of the scores, ``m_step`` the
next correlation matrix; :meth:`ExpectationMaximization._estimate` alternates them. What the steps
have in common, patients with missing responses and the laws of latent scores, is in
:mod:`cevit_lib.estimation.moments`.
"""

import logging

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from cevit_lib.estimation.base import CopulaEstimator, arguments
from cevit_lib.estimation.correlation import (
    complete_objective,
    cov2cor,
    from_off_diagonal,
    keep_positive_definite,
    maximise_over_correlations,
    off_diagonal,
    smallest_eigenvalue,
)
from cevit_lib.estimation.moments import (
    expected_moments,
    latent_moments,
    univariate_means,
    univariate_variances,
)
from cevit_lib.estimation.observed import Observed, Pattern
from cevit_lib.estimation.sampling import Chains

LOG = logging.getLogger(__name__)


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise ``ValueError`` naming the choices if ``value`` is not among them."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; seen {value!r}")


class ExpectationMaximization(CopulaEstimator):
    """The loop that the family shares; a subclass gives ``e_step``."""

    rescale = False

    def e_step(
        self, observed: Observed, scale: np.ndarray, correlation: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Return the (p, p) second moment for the M-step and the objective at ``correlation``."""
        raise NotImplementedError

    def m_step(self, second_moment: np.ndarray, correlation: np.ndarray) -> np.ndarray:
        """Return the next (p, p) correlation matrix.

        That is the second moment rescaled to a unit diagonal (Algorithm 2, line 3), or the
        maximiser of the expected log-likelihood over correlation matrices, found from the present
        one (Algorithm 1, line 4).
        """
        if self.rescale:
            return keep_positive_definite(cov2cor(second_moment))
        return maximise_over_correlations(second_moment, correlation)

    def _estimate(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        scale = observed.residual_scale()
        correlation = np.eye(observed.p)
        self.history_["correlation"].append(correlation)
        while self.n_iter_ < self.max_iter and not self.converged_:
            second_moment, objective = self.e_step(observed, scale, correlation)
            updated = self.m_step(second_moment, correlation)
            change = float(np.linalg.norm(updated - correlation))
            correlation = updated
            self.history_["objective"].append(objective)
            self.history_["change"].append(change)
            self.history_["correlation"].append(correlation)
            self.n_iter_ += 1
            self.converged_ = self._settled(change)
            LOG.info("%s: iteration %d of %d", type(self).__name__, self.n_iter_, self.max_iter)
        return scale, correlation

    def _settled(self, change: float) -> bool:
        return change < self.tol


@arguments
class FastMCEM(ExpectationMaximization):
    r"""Fast Monte Carlo EM, Algorithm 2 of the paper: plug expected latent scores in, then
    ``cov2cor``.

    Its fixed point is not the maximum of the likelihood: the conditional covariance of the latent
    scores is left out, which biases the mixed correlations upwards and :math:`\rho_{34}` downwards,
    more so under a stronger signal.

    Parameters
    ----------
    means : "univariate" or "bivariate"
        Read line 2 of Algorithm 2 as ``2n`` univariate truncated normal means (the reading that the
        paper's numbers identify), or take the exact means of the bivariate posterior (12).
    rescale : bool
        Line 3 as printed (``cov2cor``), or else the maximiser over correlation matrices.
    variances : bool
        Add the univariate truncated variances to the diagonal of ``Z'Z / n``: a correction that is
        not in the paper.
    max_iter, tol : int, float
        Stop when the Frobenius norm of an update is below ``tol`` (Supplement B.2: 100 and 1e-6).

    Notes
    -----
    ``history_["objective"]`` is the paper's approximate energy (with the sign of the
    log-determinant mended) at each step's new matrix. Missing responses take their normal
    regression on the expected scores, with its covariance.
    """

    means: str = "univariate"
    rescale: bool = True
    variances: bool = False
    max_iter: int = 100
    tol: float = 1e-6

    def e_step(
        self, observed: Observed, scale: np.ndarray, correlation: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Return ``Z'Z / n``, outer products of expected scores, and the approximate energy
        there."""
        check_choice("means", self.means, ("univariate", "bivariate"))
        second_moment, _ = expected_moments(observed, scale, correlation, self.plugged_in)
        return second_moment, complete_objective(correlation, second_moment)

    def plugged_in(self, mean: np.ndarray, covariance: np.ndarray, part: Pattern):
        """Return the expected latent scores (n, b), and their outer products for expected
        products."""
        if self.means == "bivariate":
            means, _, _ = latent_moments(mean, covariance, part)
        else:
            means = univariate_means(mean, covariance, part)
        second = means.T @ means
        if self.variances:
            second += np.diag(univariate_variances(mean, covariance, part).sum(axis=0))
        return means, second, 0.0


@arguments
class ExactEM(ExpectationMaximization):
    """The EM algorithm that Algorithm 1 aims at, with its expectations in closed form instead of
    sampled.

    The E-step adds the conditional covariance of the truncated latent scores; with the maximising
    M-step the observed likelihood never falls and the limit is its maximum given ``sigma``.

    Parameters
    ----------
    rescale : bool
        Take the paper's rescaling for the M-step (faster, close, not monotone by proof).
    max_iter, tol
        As in :class:`FastMCEM`.

    Examples
    --------
    >>> from cevit_lib.datasets.toy import ToyExample
    >>> data = ToyExample(n=800, beta_latent=(0.5, 0.5, 0.5), rng=0).sample()
    >>> estimator = ExactEM().fit(data.outputs, data.y)
    >>> estimator.converged_, tuple(estimator.parameters_.correlation.shape)
    (True, (4, 4))

    Notes
    -----
    ``history_["objective"]`` is the mean observed log-likelihood at the matrix each iteration
    started from. ``sigma`` is the SD of the residuals that were observed: right if continuous
    responses are missing completely at random. If what is missing depends on what was seen,
    :class:`MaximumLikelihood` fits ``sigma`` too and stays right.
    """

    rescale: bool = False
    max_iter: int = 500
    tol: float = 1e-6

    def e_step(
        self, observed: Observed, scale: np.ndarray, correlation: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Return the exact expected second moment and the mean observed log-likelihood."""
        return expected_moments(observed, scale, correlation)


def em_rate(observed: Observed, scale: np.ndarray, correlation: np.ndarray) -> np.ndarray:
    """Return what an iteration of the exact EM leaves of a departure from ``correlation``.

    That is the derivative of its map in the entries above the diagonal, (k, k), by differences; its
    largest eigenvalue is the rate at which EM converges.
    """
    p = observed.p
    upper, step = off_diagonal(p), 1e-4 * smallest_eigenvalue(correlation)

    def mapped(values):
        matrix = from_off_diagonal(values, p)
        second_moment = expected_moments(observed, scale, matrix).second
        return maximise_over_correlations(second_moment, matrix)[upper]

    here, axes = correlation[upper], np.eye(len(upper[0]))
    return np.array([mapped(here + step * axis) - mapped(here) for axis in axes]).T / step


@arguments
class MonteCarloEM(ExpectationMaximization):
    r"""Monte Carlo EM, Algorithm 1 of the paper, with the right sign of the log-determinant.

    Each E-step draws ``draws`` latent vectors a patient from the posterior (12) by Gibbs sweeps
    that start where the last E-step stopped; truncation points 40 standard deviations out are
    handled. The estimate is the mean of the iterates after ``burn_in``, which no longer move
    systematically; their scatter gives its Monte Carlo error.

    Parameters
    ----------
    draws, sweeps : int
        Draws ``M`` a patient, and Gibbs sweeps before each use of them.
    max_iter, burn_in : int
        Iterations in all, and how many of them are dropped.
    tol : float
        Converged if the means of the two halves of the kept iterates differ by less than ``tol``
        plus eight Monte Carlo errors (four of such a difference), in every entry.
    rng : numpy.random.Generator or int, optional

    Attributes
    ----------
    monte_carlo_error_ : (p, p) tensor
        Monte Carlo standard error of each correlation.

    Notes
    -----
    An iterate is ``A`` times the one before plus the noise of its draws, both less their limit,
    ``A`` the rate of the exact EM (:func:`em_rate`). It may take fifty iterations to forget, more
    than batches of the iterates could be long; but the noise is nearly white. So its long-run
    variance is taken by overlapping batch means, and ``(I - A)^{-1}`` carries it over to the mean.

    ``history_["objective"]`` is the expected log-likelihood of the scores at the matrix each
    iteration started from.
    """

    remedy = (
        "raise max_iter (cevit fit: --max-iter), burn_in or draws: the kept iterates still drift"
    )

    draws: int = 10
    sweeps: int = 2
    max_iter: int = 200
    burn_in: int = 120
    tol: float = 1e-3
    rng: np.random.Generator | int | None = None

    def _estimate(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        if not 0 <= self.burn_in <= self.max_iter - 8:
            raise ValueError(
                f"burn_in must leave at least 8 of {self.max_iter} iterations; seen {self.burn_in}"
            )
        self._rng, self._chains = np.random.default_rng(self.rng), None
        scale, _ = super()._estimate(observed)
        del self._rng, self._chains
        kept = np.array(self.history_["correlation"][self.burn_in :])
        estimate = cov2cor(kept[1:].mean(axis=0))
        self._judge(kept, estimate, em_rate(observed, scale, estimate))
        return scale, estimate

    def e_step(
        self, observed: Observed, scale: np.ndarray, correlation: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Return the mean outer product of the drawn scores, and the expected log-likelihood
        there."""
        if self._chains is None:
            self._chains = [Chains(part, scale, self.draws) for part in observed.patterns]
        sums = [chain.second_moment(correlation, self.sweeps, self._rng) for chain in self._chains]
        second_moment = sum(sums) / observed.n
        return second_moment, complete_objective(correlation, second_moment)

    def _settled(self, change: float) -> bool:
        return False  # an iterate never rests: ``_judge`` looks at all of them in the end

    def _judge(self, kept: np.ndarray, estimate: np.ndarray, rate: np.ndarray) -> None:
        """Set ``monte_carlo_error_`` and ``converged_`` from the iterates (k + 1, p, p)."""
        p = len(estimate)
        departures = (kept - estimate)[(..., *off_diagonal(p))]
        noise = departures[1:] - departures[:-1] @ rate.T
        width = round(len(noise) ** (1 / 3))
        batches = sliding_window_view(noise, width, axis=0).mean(axis=-1)
        spread = np.linalg.solve(np.eye(len(rate)) - rate, (batches - noise.mean(axis=0)).T)
        variance = width * (spread**2).sum(axis=1) / len(noise) / (len(noise) - width)
        error = from_off_diagonal(np.sqrt(variance), p)
        np.fill_diagonal(error, 0.0)
        early, late = (part.mean(axis=0) for part in np.array_split(kept[1:], 2))
        self.converged_ = bool(np.all(np.abs(early - late) < self.tol + 8.0 * error))
        self.monte_carlo_error_ = torch.from_numpy(error)
