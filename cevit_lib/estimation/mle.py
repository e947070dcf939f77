"""Direct maximisation of the observed-data likelihood in ``sigma`` and ``Gamma``, with standard
errors."""

import logging
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize

from cevit_lib.estimation.base import CopulaEstimator, arguments
from cevit_lib.estimation.correlation import (
    correlation_from_unconstrained,
    cov2cor,
    from_off_diagonal,
    keep_positive_definite,
    off_diagonal,
    smallest_eigenvalue,
    unconstrained_from_correlation,
)
from cevit_lib.estimation.em import FastMCEM
from cevit_lib.estimation.moments import expected_moments
from cevit_lib.estimation.observed import Observed

LOG = logging.getLogger(__name__)
#: Largest free coordinate of the correlation matrix: correlations then stay below 1 - 5e-7.
COORDINATE_BOUND = 1e3


class StandardErrors(NamedTuple):
    """Standard errors in the shapes of ``CopulaParameters``; ``inf`` where the data say nothing.

    Attributes
    ----------
    correlation : (p, p) tensor, zero on the diagonal
    scale : (p0,) tensor, in the units of the continuous responses
    """

    correlation: torch.Tensor
    scale: torch.Tensor


def log_likelihood_and_score(observed: Observed, scale: np.ndarray, correlation: np.ndarray):
    r"""Return the mean observed log-likelihood and its gradients in ``scale`` and ``correlation``.

    By Fisher's identity both gradients follow from the expected second moment ``S`` of one E-step:
    :math:`\partial/\partial\Gamma = \tfrac12(\Gamma^{-1} S \Gamma^{-1} - \Gamma^{-1})` (every
    entry on its own) and
    :math:`\partial/\partial\sigma_j = \{(\Gamma^{-1} S)_{jj} - 1\} / \sigma_j`. Patients who
    lack response ``j`` add nothing to the latter: for them the expectation of the bracket is zero.
    """
    moments = expected_moments(observed, scale, correlation)
    inverse = np.linalg.inv(correlation)
    product = inverse @ moments.second
    in_correlation = 0.5 * (product @ inverse - inverse)
    in_scale = (np.diag(product)[: observed.p0] - 1.0) / scale
    return moments.log_likelihood, in_scale, in_correlation


def observed_information(
    observed: Observed, scale: np.ndarray, correlation: np.ndarray, step: float = 1e-5
) -> np.ndarray:
    """Return the observed information of ``(sigma, off-diagonal of Gamma)``, all patients together.

    Forward differences of the analytic score, which needs one expectation step a parameter; the
    width shrinks where the matrix is close to singular.
    """
    rows, columns = off_diagonal(observed.p)
    p0 = observed.p0
    centre = np.concatenate([scale, correlation[rows, columns]])
    room = np.concatenate([scale, np.full(len(rows), min(1.0, smallest_eigenvalue(correlation)))])

    def score(point):
        _, in_scale, in_correlation = log_likelihood_and_score(
            observed, point[:p0], from_off_diagonal(point[p0:], observed.p)
        )
        return np.concatenate([in_scale, 2.0 * in_correlation[rows, columns]])

    here = score(centre)
    information = np.empty((len(centre),) * 2)
    for index, width in enumerate(step * room):
        shift = np.zeros_like(centre)
        shift[index] = width
        information[index] = -observed.n * (score(centre + shift) - here) / width
    return 0.5 * (information + information.T)


def errors_from_information(information: np.ndarray) -> np.ndarray:
    """Return standard errors; a direction without information gets ``inf``, never ``NaN``."""
    values, vectors = np.linalg.eigh(information)
    flat = values <= 1e-10 * max(values[-1], 1.0)
    inverse = np.where(flat, 0.0, 1.0 / np.where(flat, 1.0, values))
    variances = (vectors**2) @ inverse
    touched = (vectors[:, flat] ** 2).sum(axis=1) > 1e-8
    return np.where(touched, np.inf, np.sqrt(variances))


def cheap_correlation(observed: Observed, scale: np.ndarray) -> np.ndarray:
    """Return where the search starts: a few expectation steps from the identity."""
    correlation, cheap = np.eye(observed.p), FastMCEM(variances=True)
    for _ in range(5):
        second_moment, _ = cheap.e_step(observed, scale, correlation)
        correlation = keep_positive_definite(cov2cor(second_moment), 1e-3)
    return correlation


@arguments
class MaximumLikelihood(CopulaEstimator):
    """Maximum likelihood for ``sigma`` and ``Gamma`` given the outputs.

    Parameters
    ----------
    fit_scale : bool
        Maximise over ``sigma`` too; otherwise it stays the SD of the residuals, as in the EM
        family.
    standard_errors : bool
        Compute standard errors from the observed information.
    max_iter, tol : int, float
        Of the quasi-Newton search; ``tol`` bounds the largest entry of the mean log-likelihood's
        gradient.

    Attributes
    ----------
    standard_errors_ : StandardErrors

    Notes
    -----
    The standard errors take the outputs as given: what it cost to estimate them is not in there.
    """

    remedy = (
        "raise max_iter (cevit fit: --max-iter), or check for separated classes, where the "
        "likelihood is flat or has no interior maximum"
    )

    fit_scale: bool = True
    standard_errors: bool = False
    max_iter: int = 200
    tol: float = 1e-6

    @property
    def fits_many(self) -> bool:
        """Whether :func:`~cevit_lib.estimation.estimate_many` finds the same."""
        return self.fit_scale and not self.standard_errors

    def _estimate(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        scale, p = observed.residual_scale(), observed.p
        start = cheap_correlation(observed, scale)
        free = observed.p0 if self.fit_scale else 0

        def unpack(point):
            sigma = scale * np.exp(point[:free]) if free else scale
            return sigma, *correlation_from_unconstrained(point[free:], p)

        def objective(point):
            sigma, correlation, pull_back = unpack(point)
            value, in_scale, in_correlation = log_likelihood_and_score(
                observed, sigma, keep_positive_definite(correlation)
            )
            gradient = np.concatenate([(in_scale * sigma)[:free], pull_back(in_correlation)])
            return -value, -gradient

        def record(intermediate_result):
            self.history_["objective"].append(-float(intermediate_result.fun))
            self.history_["correlation"].append(unpack(intermediate_result.x)[1])
            done = len(self.history_["objective"])
            LOG.info("%s: iteration %d of %d", type(self).__name__, done, self.max_iter)

        self.history_["correlation"].append(start)
        coordinates = unconstrained_from_correlation(start)
        found = minimize(
            objective,
            np.concatenate([np.zeros(free), coordinates]),
            jac=True,
            method="L-BFGS-B",
            bounds=[(-7.0, 7.0)] * free
            + [(-COORDINATE_BOUND, COORDINATE_BOUND)] * len(coordinates),
            callback=record,
            options={
                "maxiter": self.max_iter,
                "gtol": self.tol,
                "ftol": 1e-15,
                "maxcor": 20,
                "maxls": 40,
            },
        )
        self.n_iter_ = int(found.nit)
        sigma, correlation, _ = unpack(found.x)
        correlation = keep_positive_definite(correlation)
        # A search that ends on its bound has run away from a maximum that does not exist inside.
        inside = np.abs(found.x[free:]).max(initial=0.0) < COORDINATE_BOUND
        self.converged_ = bool(inside and (found.success or np.abs(found.jac).max() < 1e-5))
        if self.standard_errors:
            information = observed_information(observed, sigma, correlation)
            errors = errors_from_information(information)
            matrix = from_off_diagonal(errors[observed.p0 :], p) - np.eye(p)
            parts = matrix, errors[: observed.p0]
            self.standard_errors_ = StandardErrors(*map(torch.from_numpy, parts))
        return sigma, correlation
