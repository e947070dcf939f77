r"""The bivariate normal probability where it is not small: Plackett's integral on a few fixed nodes.

    Phi_2(x, y; rho) = Phi(x) Phi(y) + 1/(2 pi) int_0^{asin rho} exp{-(x^2 + y^2 - 2 x y sin t) / (2 cos^2 t)} dt

(Plackett 1954; in this form Drezner and Wesolowsky 1990). Gauss-Legendre nodes make it right to a unit of the last
place of 1 for ``|rho| <= 0.925``: an absolute, not a relative accuracy. ``bivariate`` uses it above a threshold only.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor

from .univariate import SQRT_HALF

LARGEST_CORRELATION = 0.925

# (largest |rho|, nodes): absolute error at most 3e-16, and 1e-11 for a result with single digits
_ENOUGH = {
    torch.float64: ((0.2, 6), (0.5, 10), (0.75, 13), (0.85, 16), (1.0, 22)),
    torch.float32: ((0.2, 4), (0.5, 6), (0.75, 8), (0.85, 10), (1.0, 13)),
}


def _legendre(number: int) -> tuple[list[float], list[float]]:
    node, weight = np.polynomial.legendre.leggauss(number)
    return ((node + 1) / 2).tolist(), (weight / 2).tolist()


# plain numbers, made once at import: torch.compile cannot trace NumPy's routine
_LEGENDRE = {number: _legendre(number) for number in range(1, 65)}


@functools.lru_cache(maxsize=64)
def gauss_nodes(number: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes and weights on [0, 1]."""
    node, weight = _LEGENDRE[number]
    return torch.tensor(node, dtype=dtype, device=device), torch.tensor(
        weight, dtype=dtype, device=device
    )


def number_of_nodes(size: Tensor, dtype: torch.dtype = torch.float64) -> int:
    """How many nodes the largest ``|rho|`` of the batch needs (reads one value)."""
    largest = float(size.max()) if size.numel() else 0.0
    return next(number for bound, number in _ENOUGH[dtype] if bound == 1.0 or largest <= bound)


def normal_cdf(x: Tensor) -> Tensor:
    """``Phi(x)`` from the complementary error function (PyTorch's ``ndtr`` flushes the lower tail to zero)."""
    return 0.5 * torch.special.erfc(-SQRT_HALF * x)


def central_probability(x: Tensor, y: Tensor, correlation: Tensor, number: int) -> Tensor:
    """``Phi_2`` for vectors ``(n,)``; correlations beyond 0.925 are cut there (the caller replaces them)."""
    node, weight = gauss_nodes(number, x.dtype, x.device)
    angle = correlation.clamp(-LARGEST_CORRELATION, LARGEST_CORRELATION).asin()
    sine = torch.outer(angle, node).sin_()
    exponent = torch.addcmul((-0.5 * (x * x + y * y)).unsqueeze(-1), sine, (x * y).unsqueeze(-1))
    exponent /= sine.mul_(sine).neg_().add_(1)
    cdf = normal_cdf(torch.stack((x, y)))
    return torch.addcmul(cdf[0] * cdf[1], exponent.exp_() @ weight, angle, value=0.5 / math.pi)


def central_derivatives(
    x: Tensor, y: Tensor, correlation: Tensor, probability: Tensor
) -> list[Tensor]:
    """Derivatives of ``log Phi_2`` in ``x``, ``y`` and the correlation, for ``|rho| <= 0.925``."""
    precision = (1 - correlation * correlation).rsqrt_()
    limits = torch.stack((x, y))
    conditional = (limits.flip(0) - correlation * limits) * precision  # (k_1, k_2) of ``bivariate``
    density = torch.exp(-0.5 * torch.cat((limits, conditional[:1])).square()) * (
        1 / math.sqrt(2 * math.pi)
    )
    scaled = density / probability
    by_limits = scaled[:2] * normal_cdf(conditional)
    return [by_limits[0], by_limits[1], scaled[0] * density[2] * precision]
