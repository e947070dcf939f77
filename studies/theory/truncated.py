r"""Moments of a bivariate normal pair truncated to an orthant: the Tallis lemma of Supplement A.2,
put right.

For (Z1, Z2) standard normal with correlation r and the orthant R = (c1, inf) x (c2, inf) write
alpha(c1, c2) = P(R). From the moment generating function (Tallis, 1961)

    E[exp(t'Z); R] = exp{(t1^2 + t2^2 + 2 r t1 t2) / 2} alpha(c1 - t1 - r t2, c2 - r t1 - t2)

the derivative of its logarithm in t1 and t2 at t = 0 gives

    Cov(Z1, Z2 | R) = r + D,      D = d^2 log alpha(c1 - t1 - r t2, c2 - r t1 - t2) / dt1 dt2 < 0.

The printed lemma has r - D, with D < 0 as here.
"""

from dataclasses import dataclass

import numpy as np
import torch

from cevit_lib.normal import log_bivariate_normal_cdf, truncated_normal_variance
from studies.theory.arrays import tensor

CELLS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""Values of (y3, y4)."""


@dataclass(frozen=True)
class OrthantMoments:
    """What is left of a standard normal pair in an orthant.

    Attributes
    ----------
    probability : array (...)
        Of the orthant.
    mean : array (..., 2)
    matrix : array (..., 2, 2)
        Covariance matrix.
    """

    probability: np.ndarray
    mean: np.ndarray
    matrix: np.ndarray

    @property
    def covariance(self) -> np.ndarray:
        """``Cov(Z1, Z2 | R)``: the right form of the Tallis lemma."""
        return self.matrix[..., 0, 1]

    @property
    def correlation(self) -> np.ndarray:
        """``Corr(Z1, Z2 | R)``: strictly between 0 and r for r > 0, in every orthant R."""
        variances = self.matrix[..., 0, 0] * self.matrix[..., 1, 1]
        return self.covariance / np.sqrt(variances)


def orthant_moments(c1, c2, correlation, sides=(1, 1)) -> OrthantMoments:
    """Moments of a standard normal pair of which both coordinates lie beyond their thresholds.

    Parameters
    ----------
    c1, c2, correlation : array or float
        Thresholds and correlation; they broadcast.
    sides : pair of 1 or -1
        Above a threshold, or below it. With thresholds ``-q`` and sides ``2 y - 1`` the orthant is
        a label cell.
    """
    c1, c2, r = torch.broadcast_tensors(tensor(c1), tensor(c2), tensor(correlation))
    side = tensor(sides).expand(*r.shape, 2)
    r, one = r * side.prod(-1), torch.ones_like(r)
    standard = torch.stack((one, r, r, one), -1).unflatten(-1, (2, 2))
    # w = side * Z is above -b: E w = R g and Var w = R + R H R, by the derivatives of log P in b
    b = [limit.requires_grad_() for limit in (-side * torch.stack((c1, c2), -1)).unbind(-1)]
    value = log_bivariate_normal_cdf(*b, r)
    slopes = torch.autograd.grad(value.sum(), b, create_graph=True)
    rows = [torch.autograd.grad(each.sum(), b, retain_graph=True) for each in slopes]
    hessian = torch.stack([torch.stack(row, -1) for row in rows], -1)
    mean = side * (standard @ torch.stack(slopes, -1).unsqueeze(-1)).squeeze(-1)
    spread = standard + standard @ hessian @ standard
    matrix = side.unsqueeze(-1) * spread * side.unsqueeze(-2)
    return OrthantMoments(*(part.detach().numpy() for part in (value.exp(), mean, matrix)))


def truncated_variance(q) -> np.ndarray:
    """Var(u | u > -q) of a standard normal; its infimum over q is 0.

    The proof of Proposition 2 needs a positive lower bound, which does not exist.
    """
    return truncated_normal_variance(tensor(q)).numpy()


def tallis_derivative(c1, c2, correlation) -> np.ndarray:
    """D, the derivative in t1 and t2 that the lemma names, by automatic differentiation; it is
    negative."""
    c1, c2, r = torch.broadcast_tensors(tensor(c1), tensor(c2), tensor(correlation))
    t1, t2 = (torch.zeros_like(r, requires_grad=True) for _ in range(2))
    log_alpha = log_bivariate_normal_cdf(t1 + r * t2 - c1, r * t1 + t2 - c2, r)
    (slope,) = torch.autograd.grad(log_alpha.sum(), t1, create_graph=True)
    return torch.autograd.grad(slope.sum(), t2)[0].numpy()


def printed_orthant_covariance(c1, c2, correlation) -> np.ndarray:
    """The covariance as the supplement prints it, r - D. Kept, wrong, so that nobody fixes it
    back."""
    return np.asarray(correlation, dtype=float) - tallis_derivative(c1, c2, correlation)


def decompose_latent_correlation(q3, q4, correlation: float) -> dict:
    """Split rho34 = Cov(u3, u4) into the part within the label cells and the part between them.

    The proof of Proposition 1 takes the weighted *within*-cell correlation for the probability
    limit of the estimator (``printed_limit``); the law of total covariance says that the
    between-cell part must be added.

    Parameters
    ----------
    q3, q4 : array (n,)
        True Gaussian scores; averages are over their empirical distribution.

    Returns
    -------
    dict of float
        ``printed_limit``; ``within`` and ``between`` the cells; their sum ``total``, which is
        ``rho34``.
    """
    parts = {"printed_limit": 0.0, "within": 0.0, "between": 0.0}
    for y3, y4 in CELLS:
        cell = orthant_moments(-tensor(q3), -tensor(q4), correlation, (2 * y3 - 1, 2 * y4 - 1))
        weight = np.where(cell.probability > 1e-12, cell.probability, 0.0)
        for name, values in (
            ("printed_limit", cell.correlation),
            ("within", cell.covariance),
            ("between", cell.mean.prod(axis=-1)),
        ):
            parts[name] += float(np.mean(weight * values))
    return parts | {"total": parts["within"] + parts["between"]}
