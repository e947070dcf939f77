"""Moments of truncated normals, computed in log space."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .bivariate import log_bivariate_normal_cdf_with_gradients
from .univariate import hazard_excess, normal_hazard

FAR = 28.0


class TruncatedMoments(NamedTuple):
    """Mean ``(..., 2)``, covariance ``(..., 2, 2)`` and log probability ``(...)`` of a truncated bivariate normal."""

    mean: Tensor
    covariance: Tensor
    log_probability: Tensor


def truncated_normal_mean(upper: Tensor, mean=0.0, standard_deviation=1.0) -> Tensor:
    """``E(Z | Z < upper)`` for ``Z ~ N(mean, standard_deviation^2)``; for ``Z > lower`` flip the signs of all three.

    Parameters
    ----------
    upper : Tensor, any shape
    mean, standard_deviation : Tensor or float, broadcast

    Returns
    -------
    Tensor of the broadcast shape, right in the last digits at any distance (the naive ratio fails beyond 8 SD).
    """
    return mean - standard_deviation * normal_hazard((upper - mean) / standard_deviation)


def truncated_normal_variance(upper: Tensor, mean=0.0, standard_deviation=1.0) -> Tensor:
    """``Var(Z | Z < upper)`` for ``Z ~ N(mean, standard_deviation^2)``; see :func:`truncated_normal_mean`.

    ``1 - h (x + h)``, ``h`` the hazard; where that cancels, below -28 SD, its asymptotic series.
    """
    x = (upper - mean) / standard_deviation
    h = normal_hazard(x)
    v = x.clamp_max(-FAR).square().reciprocal()
    series = v * (1 - v * (6 - v * (50 - v * (518 - v * (6354 - v * 89782)))))
    return standard_deviation**2 * torch.where(x < -FAR, series, 1 - h * hazard_excess(x, h))


def truncated_bivariate_normal_moments(
    upper: Tensor, mean: Tensor, covariance: Tensor
) -> TruncatedMoments:
    """Moments of ``Z ~ N_2(mean, covariance)`` given ``Z < upper`` in both coordinates (Tallis 1961, put right).

    With ``g`` the gradient of ``log Phi_2`` at the standardised limits ``x``, ``d`` its derivative in the correlation:
    ``E Z = -R g`` and ``E ZZ' = R + R H R``, ``H_jj = -x_j g_j - rho d``, ``H_12 = d``, ``R`` the correlation matrix.

    Parameters
    ----------
    upper, mean : Tensor (..., 2)
    covariance : Tensor (..., 2, 2)

    Returns
    -------
    TruncatedMoments
        Computed in float64 and in log space, rounded to the dtype of ``upper``. At 40 SD the means keep 11 digits, the
        variances (which are differences of numbers near 1600) six.

    Notes
    -----
    A coordinate truncated from below is one with the signs of its limit, mean and covariance flipped.
    """
    dtype = upper.dtype
    upper, mean, covariance = (v.double() for v in (upper, mean, covariance))
    sd = torch.diagonal(covariance, dim1=-2, dim2=-1).sqrt()
    x, y = ((upper - mean) / sd).unbind(-1)
    r = covariance[..., 0, 1] / (sd[..., 0] * sd[..., 1])
    value, by_x, by_y, by_r = log_bivariate_normal_cdf_with_gradients(
        *torch.broadcast_tensors(x, y, r)
    )
    z = -torch.stack((by_x + r * by_y, r * by_x + by_y), -1)
    h11, h22 = (
        -torch.where(g > 0, limit * g, 0.0) - r * by_r for limit, g in ((x, by_x), (y, by_y))
    )
    second = (
        1 + h11 + r * (2 * by_r + r * h22),
        r * (1 + h11 + h22) + (1 + r * r) * by_r,
        1 + h22 + r * (2 * by_r + r * h11),
    )
    second = torch.stack((second[0], second[1], second[1], second[2]), -1).unflatten(-1, (2, 2))
    spread = (second - z.unsqueeze(-1) * z.unsqueeze(-2)) * sd.unsqueeze(-1) * sd.unsqueeze(-2)
    return TruncatedMoments(*(v.to(dtype) for v in (mean + sd * z, spread, value)))
