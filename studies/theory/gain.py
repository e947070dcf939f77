r"""When a copula loss can help: the SUR / GLS view, and where the two losses have the same minimum.

The closing paragraph of the Discussion says that the minima of the copula loss and of the empirical loss coincide.
These functions show where that is exact (identical regressors or interpolation) and where it is not.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize

from cevit_lib.normal import log_bivariate_normal_cdf
from studies.theory._arrays import ndtr

CELLS = [(0, 0), (0, 1), (1, 0), (1, 1)]


def gain_limit(rho: float, image_correlation) -> np.ndarray:
    """Large-sample variance ratio OLS / GLS of a coefficient: (1 - rho^2 r^2) / (1 - rho^2).

    One regressor per eye, correlated r between the eyes; the same for separate and for shared weights. It is
    1 / (1 - rho^2) for unrelated images and 1 where both eyes show the same.

    Parameters
    ----------
    rho : float
        Correlation of the two errors.
    image_correlation : array
        r between the left and the right regressor.
    """
    return (1 - rho**2 * np.square(image_correlation)) / (1 - rho**2)


@dataclass(frozen=True)
class TwoEyeRegression:
    """Stacked design of two equations with correlated errors: the seemingly unrelated regressions of Zellner (1962).

    Attributes
    ----------
    left, right : array (n, k)
        Regressors of each eye.
    rho : float
        Correlation of the errors, both of variance 1.
    shared : bool
        One coefficient vector for both eyes, as a shared encoder with shared heads has.
    """

    left: np.ndarray
    right: np.ndarray
    rho: float
    shared: bool = False

    @property
    def design(self) -> np.ndarray:
        """Stacked regressors of both eyes, left eye first; one block of columns if ``shared``, else two."""
        if self.shared:
            return np.vstack([self.left, self.right])
        zeros = np.zeros_like(self.left)
        return np.block([[self.left, zeros], [zeros, self.right]])

    def covariances(self) -> tuple[np.ndarray, np.ndarray]:
        """Exact covariance matrices of the OLS and of the GLS estimate given the design."""
        n, x = len(self.left), self.design
        error = np.kron(np.array([[1.0, self.rho], [self.rho, 1.0]]), np.eye(n))
        gram = np.linalg.inv(x.T @ x)
        return gram @ x.T @ error @ x @ gram, np.linalg.inv(x.T @ np.linalg.solve(error, x))

    def efficiency(self) -> float:
        """Mean-squared-error ratio OLS / GLS, summed over the coefficients."""
        ols, gls = self.covariances()
        return float(np.trace(ols) / np.trace(gls))

    def fit(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """OLS and GLS estimates for y (2n,), left eye's responses first."""
        n, x = len(self.left), self.design
        inverse = np.linalg.inv(np.array([[1.0, self.rho], [self.rho, 1.0]]))
        weighted = np.kron(inverse, np.eye(n)) @ x
        return np.linalg.lstsq(x, y, rcond=None)[0], np.linalg.solve(x.T @ weighted, weighted.T @ y)


def draw_two_eyes(n: int, n_features: int, image_correlation: float, rng: np.random.Generator):
    """Standard normal features of the left and the right eye, each pair correlated; shapes (n, n_features)."""
    left = rng.standard_normal((n, n_features))
    noise = rng.standard_normal((n, n_features))
    return left, image_correlation * left + np.sqrt(1 - image_correlation**2) * noise


_SIGNS = torch.tensor([(-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0)], dtype=torch.float64)


def _log_cells(q3, q4, correlation):
    """log P of the four cells for scores q3, q4 (m,): (m, 4) in the order of ``CELLS``, differentiable."""
    s3, s4 = _SIGNS[:, 0], _SIGNS[:, 1]
    scores = [
        s * torch.as_tensor(q, dtype=torch.float64)[..., None] for s, q in ((s3, q3), (s4, q4))
    ]
    return log_bivariate_normal_cdf(*scores, s3 * s4 * correlation)


def _minimise(loss, start) -> np.ndarray:
    """BFGS with the gradient from autograd."""

    def value_and_gradient(x):
        q = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        value = loss(q)
        return value.item(), torch.autograd.grad(value, q)[0].numpy()

    return minimize(
        value_and_gradient, start, jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 500}
    ).x


def binary_pair_minimum(scores, rho_true: float, rho_assumed: float) -> np.ndarray:
    """Scores that minimise the population copula loss of a binary pair when the scores are free but rho34 is wrong.

    Parameters
    ----------
    scores : (2,)
        True q3, q4.

    Returns
    -------
    (2,) minimising scores; Phi of them are the margins that an unrestricted model is driven to.
    """
    scores = np.asarray(scores, dtype=float)
    truth = _log_cells(*scores, rho_true).exp()
    return _minimise(lambda q: -(truth * _log_cells(q[0], q[1], rho_assumed)).sum(), scores)


def free_model_minimum(scores, correlation, assumed, nodes: int = 24) -> np.ndarray:
    """Outputs (q1, ..., q4) that minimise the population copula loss of one image pair under an assumed Gamma.

    Nothing ties the outputs of different images together (an unrestricted model). The expectation over the two
    residuals is a Gauss-Hermite rule with ``nodes`` points each, over the labels it is exact.

    Parameters
    ----------
    scores : (4,)
        True q1..q4; sigma is 1 and known.
    correlation, assumed : (4, 4)
        True Gamma, and the one in the loss.
    """
    scores, correlation, assumed = (
        torch.as_tensor(np.asarray(a, dtype=float)) for a in (scores, correlation, assumed)
    )
    x, w = (torch.as_tensor(a) for a in np.polynomial.hermite_e.hermegauss(nodes))
    weights = torch.outer(w, w).ravel() / (2 * np.pi)
    residuals = torch.cartesian_prod(x, x) @ torch.linalg.cholesky(correlation[:2, :2]).T
    truth = weights[:, None] * _conditional_log_cells(residuals, scores[2:], correlation).exp()
    inverse = torch.linalg.inv(assumed[:2, :2])

    def loss(q):
        shifted = residuals + scores[:2] - q[:2]
        quadratic = 0.5 * torch.einsum("ni,ij,nj->n", shifted, inverse, shifted)
        return weights @ quadratic - (truth * _conditional_log_cells(shifted, q[2:], assumed)).sum()

    return _minimise(loss, scores.numpy())


def _conditional_log_cells(residuals, q, correlation):
    """log P(y3, y4 | residuals) for scores q (2,): (m, 4) in the order of ``CELLS``."""
    regression = torch.linalg.solve(correlation[:2, :2], correlation[:2, 2:])
    covariance = correlation[2:, 2:] - correlation[2:, :2] @ regression
    sd = covariance.diagonal().sqrt()
    h = (q + residuals @ regression) / sd
    return _log_cells(h[:, 0], h[:, 1], float(covariance[0, 1] / sd.prod()))


def margins(scores) -> np.ndarray:
    """Phi of scores: the marginal probabilities that a reader compares."""
    return ndtr(np.asarray(scores, dtype=float))
