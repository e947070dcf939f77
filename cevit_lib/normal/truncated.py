"""Moments of truncated normals, computed in log space."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .bivariate import log_bivariate_normal_cdf_with_gradients
from .univariate import normal_hazard


class TruncatedMoments(NamedTuple):
    """Mean ``(..., 2)``, covariance ``(..., 2, 2)`` and log probability ``(...)`` of a truncated bivariate normal."""

    mean: Tensor
    covariance: Tensor
    log_probability: Tensor


def truncated_normal_mean(upper: Tensor, mean=0.0, standard_deviation=1.0) -> Tensor:
    """``E(Z | Z < upper)`` for ``Z ~ N(mean, standard_deviation^2)``; for ``Z > lower`` flip the signs."""
    return mean - standard_deviation * normal_hazard((upper - mean) / standard_deviation)


def truncated_normal_variance(upper: Tensor, mean=0.0, standard_deviation=1.0) -> Tensor:
    """``Var(Z | Z < upper)`` for ``Z ~ N(mean, standard_deviation^2)``."""
    x = (upper - mean) / standard_deviation
    h = normal_hazard(x)
    return standard_deviation**2 * (1 - h * (x + h))


def truncated_bivariate_normal_moments(upper: Tensor, mean: Tensor, covariance: Tensor) -> TruncatedMoments:
    """Moments of ``Z ~ N_2(mean, covariance)`` given ``Z < upper`` in both coordinates (Tallis).

    Parameters
    ----------
    upper, mean : Tensor (..., 2)
    covariance : Tensor (..., 2, 2)
    """
    sd = torch.diagonal(covariance, dim1=-2, dim2=-1).sqrt()
    x, y = ((upper - mean) / sd).unbind(-1)
    r = covariance[..., 0, 1] / (sd[..., 0] * sd[..., 1])
    value, gx, gy, gr = log_bivariate_normal_cdf_with_gradients(*torch.broadcast_tensors(x, y, r))
    m1, m2 = -(gx + r * gy), -(r * gx + gy)
    # second moments: E ZZ' = R - R D R with D the Hessian terms
    h11, h22, h12 = -x * gx - r * gr, -y * gy - r * gr, gr
    e11 = 1 + h11 + 2 * r * h12 + r**2 * h22
    e22 = 1 + r**2 * h11 + 2 * r * h12 + h22
    e12 = r + r * h11 + (1 + r**2) * h12 + r * h22
    z = torch.stack((m1, m2), -1)
    second = torch.stack((e11, e12, e12, e22), -1).reshape(*z.shape, 2)
    cov = second - z.unsqueeze(-1) * z.unsqueeze(-2)
    return TruncatedMoments(mean + sd * z, cov * sd.unsqueeze(-1) * sd.unsqueeze(-2), value)
