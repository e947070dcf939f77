"""The probability of an orthant under a normal in up to eight dimensions, in log space, with
derivatives.

One and two dimensions are exact in relative terms; three and four are one-dimensional integrals of
those, exact in absolute terms, with the lattice taking over where the probability is below 1e-9;
five to eight use the lattice.
"""

import math

import torch
from torch import Tensor

from cevit_lib.errors import ShapeError
from cevit_lib.normal.bivariate import log_bivariate_normal_cdf
from cevit_lib.normal.lattice import lattice_log_probability
from cevit_lib.normal.plackett import plackett_probability
from cevit_lib.normal.univariate import log_normal_cdf, may_branch

LARGEST_DIMENSION = 8
LEAST_PLACKETT = 2e-9
LARGEST_LIMIT = 1e6
INFINITE = 1e30
POINTS = 1024  # of the lattice
RARE_POINTS = 256  # where it stands in for Plackett's integral


def _three_or_four(z: Tensor, correlation: Tensor) -> Tensor:
    """Log probability of rows, p = 3 or 4: the lattice takes over where it is small."""
    probability = plackett_probability(z, correlation)
    rare = ~(probability > LEAST_PLACKETT)
    value = probability.clamp_min(LEAST_PLACKETT).log()
    chosen = rare.nonzero().squeeze(-1) if may_branch(z) else torch.arange(len(z), device=z.device)
    if chosen.numel():
        far = lattice_log_probability(z[chosen], correlation[chosen], RARE_POINTS)
        value = value.index_put((chosen,), torch.where(rare[chosen], far, value[chosen]))
    return value


def log_orthant(z: Tensor, correlation: Tensor) -> Tensor:
    """``log Phi_p`` of float64 rows ``(n, p)`` and ``(n, p, p)``.

    Raises
    ------
    ShapeError
        ``p`` is not between 1 and 8.
    """
    p = z.shape[-1]
    if not 1 <= p <= LARGEST_DIMENSION:
        raise ShapeError(
            f"the normal probability has 1 to {LARGEST_DIMENSION} dimensions here, seen {p}"
        )
    if p == 1:
        return log_normal_cdf(z[:, 0])
    if p == 2:
        return log_bivariate_normal_cdf(z[:, 0], z[:, 1], correlation[:, 0, 1].clamp(-1, 1))
    z = z.clamp(-LARGEST_LIMIT, LARGEST_LIMIT)
    if p <= 4:
        return _three_or_four(z, correlation)
    return lattice_log_probability(z, correlation, POINTS)


def _check_shapes(upper: Tensor, mean: Tensor, covariance: Tensor) -> None:
    p = covariance.shape[-1]
    if covariance.shape[-2:] != (p, p) or upper.shape[-1:] != (p,) or mean.shape[-1:] != (p,):
        raise ShapeError(
            f"upper {tuple(upper.shape)}, mean {tuple(mean.shape)} and covariance "
            f"{tuple(covariance.shape)} do not fit: expected (..., p), (..., p) and (..., p, p)"
        )


def log_multivariate_normal_cdf(upper: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """``log P(Z < upper)`` in all coordinates, ``Z ~ N_p(mean, covariance)``, ``p`` from 1 to 8.

    Parameters
    ----------
    upper, mean : Tensor (..., p)
        Infinite limits are allowed.
    covariance : Tensor (..., p, p)
        Positive definite; leading dimensions broadcast.

    Returns
    -------
    Tensor (...)
        Computed in float64, rounded to the dtype of the operands. Never NaN for a positive definite
        covariance, never the logarithm of a negative number. Differentiable to any order, also
        under ``torch.func.vmap``.

    Raises
    ------
    ShapeError
        Shapes do not fit, or ``p`` is not between 1 and 8.
    """
    _check_shapes(upper, mean, covariance)
    dtype = torch.promote_types(torch.promote_types(upper.dtype, mean.dtype), covariance.dtype)
    upper, mean, covariance = upper.double(), mean.double(), covariance.double()
    sd = torch.diagonal(covariance, dim1=-2, dim2=-1).sqrt()
    # an infinite limit would make NaN of a zero gradient
    z = (upper.clamp(-INFINITE, INFINITE) - mean) / sd
    correlation = covariance / (sd.unsqueeze(-1) * sd.unsqueeze(-2))
    p, batch = z.shape[-1], torch.broadcast_shapes(z.shape[:-1], correlation.shape[:-2])
    rows = z.expand(*batch, p).reshape(-1, p), correlation.expand(*batch, p, p).reshape(-1, p, p)
    value = log_orthant(*rows).view(batch).to(dtype)
    return torch.where((upper == -math.inf).any(-1), -math.inf, value)
