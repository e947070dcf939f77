"""The probability of an orthant under a normal in up to eight dimensions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import ShapeError
from .bivariate import log_bivariate_normal_cdf
from .univariate import log_normal_cdf


class LogProbability(NamedTuple):
    """A log probability and the estimated standard error of it, both ``(...)``."""

    value: Tensor
    error: Tensor


def log_multivariate_normal_cdf(upper: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """``log P(Z < upper)`` in all coordinates, ``Z ~ N_p(mean, covariance)``.

    Parameters
    ----------
    upper, mean : Tensor (..., p)
    covariance : Tensor (..., p, p)
    """
    p = covariance.shape[-1]
    if upper.shape[-1] != p:
        raise ShapeError(f"upper has {upper.shape[-1]} coordinates, covariance {p}")
    sd = torch.diagonal(covariance, dim1=-2, dim2=-1).sqrt()
    z = (upper - mean) / sd
    if p == 1:
        return log_normal_cdf(z[..., 0])
    correlation = covariance / (sd.unsqueeze(-1) * sd.unsqueeze(-2))
    if p == 2:
        return log_bivariate_normal_cdf(z[..., 0], z[..., 1], correlation[..., 0, 1])
    raise NotImplementedError("p > 2 follows")
