r"""The bivariate normal probability where it is not small: Plackett's integral on a few fixed
nodes.

    Phi_2(x, y; rho) = Phi(x) Phi(y)
        + 1/(2 pi) int_0^{asin rho} exp{-(x^2 + y^2 - 2 x y sin t) / (2 cos^2 t)} dt

(Plackett 1954; in this form Drezner and Wesolowsky 1990). Gauss-Legendre nodes make it right to a
few 1e-16 for ``|rho| <= 0.99``: an absolute, not a relative accuracy, so that ``bivariate`` uses it
for those that are not small only.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cevit_lib.normal.univariate import normal_cdf

FEW = ((0.2, 4), (0.5, 6), (0.75, 8), (0.85, 10), (0.925, 13))
MANY = ((0.5, 10), (0.75, 12), (0.925, 20), (0.97, 28), (0.99, 40))
"""Largest ``|rho|`` and the nodes that bring the absolute error to 1e-11 (few) and to 1e-15 (many).
"""


class Accuracy(NamedTuple):
    """What it takes to have so many digits of a probability, not of its logarithm, right."""

    nodes: tuple[tuple[float, int], ...]  # of Plackett's integral
    least: float  # probability that the integral is trusted with
    panel: int  # nodes in each panel of the wedge's integral, elsewhere

    def enough(self, size: float) -> int | None:
        """How many nodes a correlation of this size needs; None where it is too large."""
        return next((number for largest, number in self.nodes if size <= largest), None)


ACCURACY = {6: Accuracy(FEW, 1e-5, 10), 8: Accuracy(MANY, 1e-7, 16), 12: Accuracy(MANY, 1e-3, 16)}
"""By digits: 6 for elementwise float32, 8 for rows that share their nodes, 12 for float64."""


def _legendre(number: int) -> tuple[list[float], list[float]]:
    node, weight = np.polynomial.legendre.leggauss(number)
    return ((node + 1) / 2).tolist(), (weight / 2).tolist()


# numbers, made once at import: torch.compile cannot trace NumPy's routine
_LEGENDRE = {number: _legendre(number) for number in range(1, 65)}


@functools.lru_cache(maxsize=64)
def gauss_nodes(number: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes and weights on [0, 1]."""
    node, weight = (torch.tensor(part, dtype=dtype, device=device) for part in _LEGENDRE[number])
    return node, weight


def nodes_for(correlation: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the integral's nodes for correlations (..., 1) and any limits; None where one of them
    is too large.

    Returns
    -------
    exponents : Tensor (..., 2, k), float64
        Factors of ``x^2 + y^2`` and of ``x y`` in the logarithm of the integrand.
    weights : Tensor (..., k, 1)
        Four times those of the integral.
    """
    number = ACCURACY[12].enough(float(correlation.abs().max()))
    if number is None:
        return None
    node, weight = gauss_nodes(number, correlation.dtype, correlation.device)
    angle = correlation.asin()
    sine = (angle * node).sin()
    exponents = torch.stack((torch.full_like(sine, -0.5), sine), -2)
    exponents /= (1 - sine * sine).unsqueeze(-2)
    return exponents, (angle * weight * (2 / math.pi)).unsqueeze(-1)


@functools.lru_cache(maxsize=64)
def nodes_for_number(correlation: float) -> tuple[Tensor, Tensor] | None:
    """Return :func:`nodes_for` one correlation, computed once."""
    return nodes_for(torch.tensor([correlation], dtype=torch.float64))


def central_probability(
    x: Tensor, y: Tensor, correlation: Tensor, accuracy: Accuracy
) -> tuple[Tensor, Tensor]:
    """``Phi_2`` for vectors ``(n,)``, and where it is to be trusted (n,)."""
    largest, most = accuracy.nodes[-1]
    inside = correlation.clamp(-largest, largest)
    number = accuracy.enough(float(inside.abs().max())) if len(inside) else None
    node, weight = gauss_nodes(number or most, x.dtype, x.device)
    angle = inside.asin()
    sine = torch.outer(angle, node).sin_()
    exponent = torch.addcmul((-0.5 * (x * x + y * y)).unsqueeze(-1), sine, (x * y).unsqueeze(-1))
    exponent /= sine.mul_(sine).neg_().add_(1)
    cdf = normal_cdf(torch.stack((x, y)))
    tilted = exponent.exp_() @ weight
    probability = torch.addcmul(cdf[0] * cdf[1], tilted, angle, value=0.5 / math.pi)
    return probability, (probability > accuracy.least) & (inside == correlation)
