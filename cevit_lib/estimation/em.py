"""The EM family without sampling: the paper's fMCEM (Algorithm 2) and the exact EM that it approximates."""

import numpy as np

from cevit_lib.estimation.base import CopulaEstimator, starting_correlation
from cevit_lib.estimation.correlation import (
    complete_objective,
    cov2cor,
    keep_positive_definite,
    maximise_over_correlations,
)
from cevit_lib.estimation.e_step import expected_moments, plugged_in_moments
from cevit_lib.estimation.observed import Observed

M_STEPS = ("cov2cor", "constrained")


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise ``ValueError`` naming the choices if ``value`` is not among them."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; seen {value!r}")


def m_step(second_moment: np.ndarray, current: np.ndarray, kind: str) -> np.ndarray:
    """Return the next correlation matrix: rescaled second moment, or the maximiser over correlation matrices."""
    if kind == "cov2cor":
        return keep_positive_definite(cov2cor(second_moment))
    return maximise_over_correlations(second_moment, current)


class ExpectationMaximization(CopulaEstimator):
    """The loop that :class:`FastMCEM` and :class:`ExactEM` share; a subclass gives the ``expectation``."""

    def expectation(
        self, observed: Observed, scale: np.ndarray, correlation: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Return the second moment for the M-step and the objective at ``correlation``."""
        raise NotImplementedError

    def _estimate(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        check_choice("m_step", self.m_step, M_STEPS)
        scale = observed.residual_scale()
        correlation = starting_correlation(self.initial, observed.p)
        self.history_["correlation"].append(correlation)
        for iteration in range(1, self.max_iter + 1):
            self.n_iter_ = iteration
            second_moment, objective = self.expectation(observed, scale, correlation)
            updated = m_step(second_moment, correlation, self.m_step)
            change = float(np.linalg.norm(updated - correlation))
            correlation = updated
            for name, value in (
                ("objective", objective),
                ("change", change),
                ("correlation", correlation),
            ):
                self.history_[name].append(value)
            if change < self.tol:
                self.converged_ = True
                break
        return scale, correlation


class FastMCEM(ExpectationMaximization):
    r"""Fast Monte Carlo EM, Algorithm 2 of the paper: plug expected latent scores in, then ``cov2cor``.

    Its fixed point is not the maximum of the likelihood: the conditional covariance of the latent scores is left
    out, which biases the mixed correlations upwards and :math:`\rho_{34}` downwards, more so under a stronger signal.

    Parameters
    ----------
    e_step : "univariate" or "bivariate"
        Read line 2 of Algorithm 2 as ``2n`` univariate truncated normal means (the reading that the paper's numbers
        identify), or take the exact means of the bivariate posterior (12).
    m_step : "cov2cor" or "constrained"
        Line 3 as printed, or the maximiser over correlation matrices.
    variances : bool
        Add the univariate truncated variances to the diagonal of ``Z'Z / n``: a correction that is not in the paper.
    max_iter, tol : int, float
        Stop when the Frobenius norm of an update is below ``tol`` (Supplement B.2: 100 and 1e-6).
    initial : (p, p) array, optional
        Starting matrix; the identity if not given.
    continuous : int, optional
        Number of continuous responses; found from ``y`` if not given.

    Notes
    -----
    ``history_["objective"]`` is the paper's approximate energy (with the sign of the log-determinant mended) at each
    step's new matrix. Missing responses take their normal regression on the expected scores, with its covariance.
    """

    def __init__(
        self,
        e_step="univariate",
        m_step="cov2cor",
        variances=False,
        max_iter=100,
        tol=1e-6,
        initial=None,
        continuous=None,
    ):
        self.e_step = e_step
        self.m_step = m_step
        self.variances = variances
        self.max_iter = max_iter
        self.tol = tol
        self.initial = initial
        self.continuous = continuous

    def expectation(
        self, observed: Observed, scale: np.ndarray, correlation: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Return ``Z'Z / n`` and the approximate energy at ``correlation``."""
        check_choice("e_step", self.e_step, ("univariate", "bivariate"))
        second_moment = plugged_in_moments(
            observed, scale, correlation, self.e_step, self.variances
        )
        return second_moment, complete_objective(correlation, second_moment)


class ExactEM(ExpectationMaximization):
    """The EM algorithm that Algorithm 1 aims at, with its expectations in closed form instead of sampled.

    The E-step adds the conditional covariance of the truncated latent scores; with the constrained M-step the
    observed likelihood never falls and the limit is its maximum given ``sigma``.

    Parameters
    ----------
    m_step : "constrained" or "cov2cor"
        The maximiser over correlation matrices, or the paper's rescaling (faster, close, not monotone by proof).
    max_iter, tol, initial, continuous
        As in :class:`FastMCEM`.

    Examples
    --------
    >>> from cevit_lib.datasets.toy import ToyExample, plug_in_outputs
    >>> data = ToyExample(n=800, beta_latent=(0.5, 0.5, 0.5), rng=0).sample()
    >>> estimator = ExactEM().fit(plug_in_outputs(data), data.y)
    >>> estimator.converged_, tuple(estimator.parameters_.correlation.shape)
    (True, (4, 4))

    Notes
    -----
    ``history_["objective"]`` is the mean observed log-likelihood at the matrix each iteration started from. ``sigma``
    is the SD of the residuals that were observed: right if continuous responses are missing completely at random. If
    what is missing depends on what was seen, :class:`MaximumLikelihood` fits ``sigma`` too and stays right.
    """

    def __init__(self, m_step="constrained", max_iter=500, tol=1e-6, initial=None, continuous=None):
        self.m_step = m_step
        self.max_iter = max_iter
        self.tol = tol
        self.initial = initial
        self.continuous = continuous

    def expectation(
        self, observed: Observed, scale: np.ndarray, correlation: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Return the exact expected second moment and the mean observed log-likelihood at ``correlation``."""
        moments = expected_moments(observed, scale, correlation)
        return moments.second, moments.log_likelihood
