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

NODES = ((0.5, 10), (0.75, 12), (0.925, 20), (0.97, 28), (0.99, 40))
"""Largest ``|rho|`` and the nodes that bring the absolute error to 1e-15."""
LARGEST, MOST = NODES[-1]

# numbers, made once at import: torch.compile cannot trace NumPy's routine
_LEGENDRE = {
    number: np.array(np.polynomial.legendre.leggauss(number)).tolist() for number in range(1, 65)
}


@functools.lru_cache(maxsize=64)
def gauss_nodes(number: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes and weights on [0, 1], float64."""
    node, weight = torch.tensor(_LEGENDRE[number], dtype=torch.float64, device=device)
    return (node + 1) / 2, weight / 2


class PlackettNodes(NamedTuple):
    """What the integral needs of correlations, whatever the limits; on a CPU.

    Attributes
    ----------
    correlation : Tensor (...)
    inverse, tilt : Tensor (..., k)
        Factors of ``-(x^2 + y^2) / 2`` and of ``x y`` in the logarithm of the integrand.
    weight : Tensor (k,)
    angle : Tensor (...)
        ``asin rho / (2 pi)``, the integral's length.
    """

    correlation: Tensor
    inverse: Tensor
    tilt: Tensor
    weight: Tensor
    angle: Tensor

    @classmethod
    def of(cls, correlation: Tensor) -> "PlackettNodes":
        """Return the nodes of these correlations, as many as the largest of them needs; beyond
        ``LARGEST`` they are those of ``LARGEST``.
        """
        inside = correlation.clamp(-LARGEST, LARGEST)
        size = float(inside.abs().max()) if inside.numel() else 0.0
        number = next(number for largest, number in NODES if size <= largest)
        node, weight = gauss_nodes(number, correlation.device)
        angle = inside.asin()
        sine = (angle.unsqueeze(-1) * node).sin_()
        inverse = (sine * sine).neg_().add_(1).reciprocal_()
        return cls(correlation, inverse, sine.mul_(inverse), weight, angle * (0.5 / math.pi))

    def at(self, index: Tensor) -> "PlackettNodes":
        """Return the nodes of the correlations ``index`` (n,)."""
        correlation, inverse, tilt, weight, angle = self
        return PlackettNodes(correlation[index], inverse[index], tilt[index], weight, angle[index])

    def integral(self, x: Tensor, y: Tensor, sign: Tensor | float) -> Tensor:
        """``Phi_2(x, y; sign rho) - Phi(x) Phi(y)``, ``sign`` being 1, -1 or 0."""
        square, product = -0.5 * (x * x + y * y), sign * x * y
        exponent = square.unsqueeze(-1) * self.inverse
        exponent.addcmul_(product.unsqueeze(-1), self.tilt)
        return (exponent.exp_() @ self.weight) * (sign * self.angle)
