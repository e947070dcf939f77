r"""When a copula loss can help: the information in all four responses against that in one, its
SUR / GLS case, and where the two losses have the same minimum.

The closing paragraph of the Discussion says that the minima of the copula loss and of the empirical
loss coincide. These functions show where that is exact (identical regressors or interpolation) and
where it is not.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import minimize

from cevit_lib.copula import CopulaParameters, class_probabilities, log_density
from cevit_lib.normal import log_bivariate_normal_cdf
from studies.theory.arrays import outputs_from_scores, tensor


def information(correlation, scores_covariance, nodes: int = 40) -> np.ndarray:
    """Information (4, 4) of one patient on ``(mu_1, mu_2, q_3, q_4)``, averaged over the scores q.

    Given the lengths' errors the labels are a bivariate probit whose thresholds they move, so that
    the information of the lengths and that of the labels given the lengths add up.

    Parameters
    ----------
    correlation : (4, 4)
        Gamma; the lengths are in units of their sigma.
    scores_covariance : (2, 2)
        Of the normal scores q_3, q_4 over patients.
    nodes : int
        Of a Gauss-Hermite rule in each of the two thresholds.
    """
    gamma = np.asarray(correlation, dtype=float)
    slopes = np.linalg.solve(gamma[:2, :2], gamma[:2, 2:])  # of labels' errors on lengths'
    told = gamma[2:, :2] @ slopes
    left = gamma[2:, 2:] - told
    sd = np.sqrt(np.diag(left))
    values, vectors = np.linalg.eigh(told + scores_covariance)
    x, w = hermegauss(nodes)
    normal = np.array(list(product(x, repeat=2))) * np.sqrt(values.clip(0))
    weights = np.outer(w, w).ravel() / w.sum() ** 2
    labels = _label_information(normal @ vectors.T / sd, left[0, 1] / sd.prod(), weights)
    labels /= np.outer(sd, sd)
    lengths = np.linalg.inv(gamma[:2, :2]) + slopes @ labels @ slopes.T
    return np.block([[lengths, -slopes @ labels], [-labels @ slopes.T, labels]])


def _label_information(thresholds, correlation: float, weights) -> np.ndarray:
    """Weighted mean of the bivariate probit's information (2, 2) at thresholds (n, 2)."""
    t = tensor(thresholds).requires_grad_()
    found = torch.zeros(2, 2, dtype=torch.float64)
    for a, b in product((-1, 1), repeat=2):
        cell = log_bivariate_normal_cdf(a * t[:, 0], b * t[:, 1], a * b * correlation)
        slope = torch.autograd.grad(cell.sum(), t)[0]
        found += torch.einsum("n,ni,nj->ij", tensor(weights) * cell.detach().exp(), slope, slope)
    return found.numpy()


def gain(correlation, r: float, sd_of_scores: float) -> np.ndarray:
    r"""Variance of each output fitted on its own response over that of the joint fit, (4,).

    With R = 1 within an eye and r between, it is :math:`G_k = (1 / I_{kk}^{own}) / [(I \circ
    R)^{-1}]_{kk}`: for a linear model in the large-sample limit. The excess of a network has a part
    v of variance, the only one that shrinks: by ``v (1 - 1 / G)``.

    Parameters
    ----------
    correlation : (4, 4)
        Gamma of the errors.
    r : float
        Correlation of a feature between the two eyes, 0 to 1; both eyes follow one law, so that
        this is that of the scores as well.
    sd_of_scores : float
        Standard deviation of q_3 and q_4 over patients.
    """
    eyes = np.array([[1.0, r], [r, 1.0]])
    own, joint = (information(g, sd_of_scores**2 * eyes) for g in (np.eye(4), correlation))
    return 1 / np.diag(own) / np.diag(np.linalg.inv(joint * np.tile(eyes, (2, 2))))


@dataclass(frozen=True)
class LinearEyes:
    """A linear model of both eyes' responses, to see the gain in fits of it.

    Features have correlation ``r`` between the eyes; the labels' scores are ``sd_of_scores`` times
    the first feature, and the others say nothing.
    """

    correlation: np.ndarray
    r: float
    sd_of_scores: float
    n: int = 300
    features: int = 3

    def gain(self, fits: int, rng: np.random.Generator) -> np.ndarray:
        """Squared error of maximum likelihood on each response alone over that on all four, (4,);
        Gamma is known, and the features that say nothing are looked at.
        """
        x, y = self.draw(fits, rng)
        own, joint = (self.fit(x, y, g)[..., 1:] for g in (np.eye(4), self.correlation))
        return (own.square().mean((0, 2)) / joint.square().mean((0, 2))).numpy()

    def draw(self, fits: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Features (fits, n, 4, features), of the left and right eye twice, and responses."""
        eyes = np.linalg.cholesky(self._eyes + 1e-12 * np.eye(2))
        x = np.einsum("ab,fnbd->fnad", eyes, rng.standard_normal((fits, self.n, 2, self.features)))
        errors = rng.standard_normal((fits, self.n, 4)) @ np.linalg.cholesky(self.correlation).T
        labels = errors[..., 2:] + self.sd_of_scores * x[..., 0] > 0
        return tensor(np.tile(x, (1, 1, 2, 1))), tensor(
            np.concatenate([errors[..., :2], labels], -1)
        )

    def fit(self, x: torch.Tensor, y: torch.Tensor, gamma: np.ndarray, steps: int = 8):
        """Coefficients (fits, 4, features) of maximum likelihood under Gamma, by Fisher's scoring
        from the true ones.
        """
        shared = information(gamma, self.sd_of_scores**2 * self._eyes) * np.tile(self._eyes, (2, 2))
        metric, parameters = (
            np.linalg.pinv(shared) / self.n,
            CopulaParameters(tensor(gamma), np.ones(2)),
        )
        b = torch.zeros(len(x), 4, self.features, dtype=torch.float64)
        b[:, 2:, 0] = self.sd_of_scores
        for _ in range(steps):
            b.requires_grad_()
            s = torch.einsum("fnkd,fkd->fnk", x, b).reshape(-1, 4)
            logit = torch.special.log_ndtr(s[:, 2:]) - torch.special.log_ndtr(-s[:, 2:])
            outputs = torch.cat([s[:, :2], logit], 1)
            likelihood = log_density(outputs, y.reshape(-1, 4), parameters, validate=False).sum()
            slope = torch.autograd.grad(likelihood, b)[0]
            b = (b + torch.einsum("kl,fld->fkd", tensor(metric), slope)).detach()
        return b

    @property
    def _eyes(self) -> np.ndarray:
        return np.array([[1.0, self.r], [self.r, 1.0]])


def gain_limit(rho: float, image_correlation) -> np.ndarray:
    """Large-sample variance ratio OLS / GLS of a coefficient: (1 - rho^2 r^2) / (1 - rho^2).

    One regressor per eye, correlated r between the eyes; the same for separate and for shared
    weights. It is 1 / (1 - rho^2) for unrelated images and 1 where both eyes show the same.

    Parameters
    ----------
    rho : float
        Correlation of the two errors.
    image_correlation : array
        r between the left and the right regressor.
    """
    return (1 - rho**2 * np.square(image_correlation)) / (1 - rho**2)


_LABELS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])


@dataclass(frozen=True)
class TwoEyeRegression:
    """Stacked design of two equations with correlated errors: the seemingly unrelated regressions
    of Zellner (1962).

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
        """Stacked regressors of both eyes, left eye first; one block of columns if ``shared``, else
        two."""
        if self.shared:
            return np.vstack([self.left, self.right])
        zeros = np.zeros_like(self.left)
        return np.block([[self.left, zeros], [zeros, self.right]])

    def efficiency(self) -> float:
        """Mean-squared-error ratio OLS / GLS given the design, exact, summed over the
        coefficients."""
        n, x = len(self.left), self.design
        error = np.kron(np.array([[1.0, self.rho], [self.rho, 1.0]]), np.eye(n))
        gram = np.linalg.inv(x.T @ x)
        ols = gram @ x.T @ error @ x @ gram
        return float(np.trace(ols) / np.trace(np.linalg.inv(x.T @ np.linalg.solve(error, x))))

    def fit(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """OLS and GLS estimates for y (2n,), left eye's responses first."""
        n, x = len(self.left), self.design
        inverse = np.linalg.inv(np.array([[1.0, self.rho], [self.rho, 1.0]]))
        weighted = np.kron(inverse, np.eye(n)) @ x
        return np.linalg.lstsq(x, y, rcond=None)[0], np.linalg.solve(x.T @ weighted, weighted.T @ y)


def draw_two_eyes(n: int, n_features: int, image_correlation: float, rng: np.random.Generator):
    """Standard normal features of the left and the right eye, each pair correlated; shapes (n,
    n_features)."""
    left = rng.standard_normal((n, n_features))
    noise = rng.standard_normal((n, n_features))
    return left, image_correlation * left + np.sqrt(1 - image_correlation**2) * noise


def free_model_minimum(scores, correlation, assumed, nodes: int = 24) -> np.ndarray:
    """Scores (p,) that minimise the population copula loss of one image pair under an assumed
    Gamma.

    Nothing ties the outputs of different images together (an unrestricted model). The expectation
    over the residuals of continuous responses is a Gauss-Hermite rule with ``nodes`` points each,
    over two labels it is exact.

    Parameters
    ----------
    scores : (p,)
        True q_1..q_p, the last two of binary responses; sigma is 1 and known.
    correlation, assumed : (p, p)
        True Gamma, and the one in the loss.

    Returns
    -------
    (p,) array. Phi of the last two are the margins that an unrestricted model is driven to.
    """
    scores, p0 = np.asarray(scores, dtype=float), len(scores) - 2
    true, wrong = (CopulaParameters(tensor(gamma), np.ones(p0)) for gamma in (correlation, assumed))
    x, w = hermegauss(nodes)
    points = np.array(list(product(x, repeat=p0)))
    weights = np.array(list(product(w / w.sum(), repeat=p0))).prod(axis=1)
    residuals = points @ np.linalg.cholesky(np.asarray(correlation)[:p0, :p0]).T
    # every node with each pair of labels
    y = np.concatenate(
        [np.repeat(scores[:p0] + residuals, 4, 0), np.tile(_LABELS, (len(points), 1))], 1
    )
    outputs = np.repeat(outputs_from_scores(scores[None], p0), len(points), 0)
    share = class_probabilities(tensor(outputs), true, tensor(y[::4])).reshape(-1)
    share *= tensor(np.repeat(weights, 4))

    def loss(q):
        binary = torch.special.log_ndtr(q[p0:]) - torch.special.log_ndtr(-q[p0:])
        outputs = torch.cat([q[:p0], binary]).expand(len(y), -1)
        return -(share * log_density(outputs, tensor(y), wrong)).sum()

    def value_and_gradient(q):
        q = torch.tensor(q, requires_grad=True)
        value = loss(q)
        return value.item(), torch.autograd.grad(value, q)[0].numpy()

    options = {"gtol": 1e-10, "maxiter": 500}
    return minimize(value_and_gradient, scores, jac=True, method="BFGS", options=options).x


def binary_pair_minimum(scores, rho_true: float, rho_assumed: float) -> np.ndarray:
    """Scores (2,) that minimise the loss of a binary pair when they are free but rho34 is wrong."""
    gammas = ([[1.0, rho], [rho, 1.0]] for rho in (rho_true, rho_assumed))
    return free_model_minimum(scores, *gammas)
