"""Moments of truncated normal scores, computed in log space."""

import torch
from torch import Tensor

from cevit_lib.normal.univariate import hazard_excess, normal_hazard

FAR = 28.0


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
