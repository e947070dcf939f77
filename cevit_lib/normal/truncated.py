"""Moments of truncated normal scores, computed in log space."""

from typing import NamedTuple

import torch
from torch import Tensor

from cevit_lib.normal.bivariate import log_bivariate_value
from cevit_lib.normal.univariate import hazard_excess, normal_hazard
from cevit_lib.normal.wedge import finite, log_wedge_curvatures, log_wedge_slopes

FAR = 28.0


class TruncatedMoments(NamedTuple):
    """Mean ``(..., 2)``, covariance ``(..., 2, 2)`` and log probability ``(...)`` of truncated
    pairs.
    """

    mean: Tensor
    covariance: Tensor
    log_probability: Tensor


def truncated_normal_mean(limit: Tensor, mean=0.0, standard_deviation=1.0, side=-1.0) -> Tensor:
    """``E(Z | Z < limit)``, or ``E(Z | Z > limit)``, for ``Z ~ N(mean, standard_deviation^2)``.

    Parameters
    ----------
    limit : Tensor, any shape
    mean, standard_deviation : Tensor or float, broadcast
    side : Tensor or float, broadcast
        -1 where ``Z`` lies below its limit, +1 where it lies above.

    Returns
    -------
    Tensor of the broadcast shape, right in the last digits at any distance (the naive ratio fails
    beyond 8 SD).
    """
    hazard = normal_hazard(side * (mean - limit) / standard_deviation)
    return mean + side * standard_deviation * hazard


def truncated_normal_variance(limit: Tensor, mean=0.0, standard_deviation=1.0, side=-1.0) -> Tensor:
    """``Var(Z | Z < limit)``, or ``Var(Z | Z > limit)``; see :func:`truncated_normal_mean`.

    ``1 - h (x + h)``, ``h`` the hazard; where that cancels, below -28 SD, its asymptotic series.
    """
    x = side * (mean - limit) / standard_deviation
    h = normal_hazard(x)
    v = x.clamp_max(-FAR).square().reciprocal()
    series = v * (1 - v * (6 - v * (50 - v * (518 - v * (6354 - v * 89782)))))
    return standard_deviation**2 * torch.where(x < -FAR, series, 1 - h * hazard_excess(x, h))


def truncated_bivariate_normal_moments(
    limit: Tensor,
    mean: Tensor,
    covariance: Tensor,
    side: Tensor | float = -1.0,
) -> TruncatedMoments:
    """Moments of pairs ``Z ~ N_2(mean, covariance)``, each coordinate truncated on one side.

    With ``w_j = side_j (Z_j - mean_j) / sd_j`` the event is ``-w < b`` and has probability
    ``Phi_2(b; r)``. With ``g`` and ``H`` the gradient and Hessian of its logarithm in ``b``, ``E w
    = R g`` and ``Var w = R + R H R``, ``R`` the matrix of correlation ``r`` (Tallis 1961, put
    right).

    Parameters
    ----------
    limit, mean : Tensor (..., 2)
    covariance : Tensor (..., 2, 2)
    side : Tensor (..., 2) or float
        -1 where a coordinate lies below its limit, +1 where it lies above.

    Returns
    -------
    TruncatedMoments
        Computed in float64 and in log space, rounded to the dtype of ``limit``. At 40 SD the means
        keep 11 digits, the variances (which are differences of numbers near 1600) six.
    """
    dtype = limit.dtype
    limit, mean, covariance = limit.double(), mean.double(), covariance.double()
    side = torch.as_tensor(side, dtype=torch.float64, device=limit.device).expand_as(limit)
    sd = torch.diagonal(covariance, dim1=-2, dim2=-1).sqrt()
    x, y = finite(*(side * (mean - limit) / sd).unbind(-1))
    flip = torch.diag_embed(side / sd)
    standard = flip @ covariance @ flip  # R
    rho = standard[..., 0, 1].expand_as(x)
    value = log_bivariate_value(x, y, rho, 12)
    slopes = log_wedge_slopes(x, y, rho, value)
    (xx, xy, _), (_, yy, _), _ = log_wedge_curvatures(x, y, rho, slopes)
    curvature = torch.stack((xx, xy, xy, yy), -1).unflatten(-1, (2, 2))
    back = torch.diag_embed(side * sd) @ standard
    shift = (back @ torch.stack(slopes[:2], -1).unsqueeze(-1)).squeeze(-1)
    spread = covariance + back @ curvature @ back.mT
    return TruncatedMoments(*(v.to(dtype) for v in (mean + shift, spread, value)))
