"""The bivariate normal distribution function: value, logarithm and slopes, by the quicker way that
is exact.

On a CPU most probabilities come from Plackett's integral (``central``); small ones, and
correlations close to one, from the formula that holds everywhere (``wedge``). Elsewhere, and under
``torch.compile`` and ``vmap``, all come from the latter: to pick observations is to wait for the
device.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cevit_lib.normal.central import ACCURACY, central_probability, nodes_for, nodes_for_number
from cevit_lib.normal.univariate import (
    HALF_LOG_TWO_PI,
    Elementwise,
    log_normal_cdf,
    may_branch,
)
from cevit_lib.normal.wedge import finite, log_wedge_slopes, log_wedge_value

DIGITS = {torch.float32: 6, torch.float64: 12}
SQRT_TWO_PI = math.sqrt(2 * math.pi)


class BivariateDerivatives(NamedTuple):
    """``log Phi_2`` and its three partial derivatives, each of the broadcast shape."""

    value: Tensor
    x: Tensor
    y: Tensor
    correlation: Tensor


def log_bivariate_value(x: Tensor, y: Tensor, correlation: Tensor, digits: int) -> Tensor:
    """``log Phi_2`` of float64 tensors of one shape, to 6, 8 or 12 digits of ``Phi_2``, without
    autograd.
    """
    accuracy = ACCURACY[digits]
    if not may_branch(correlation):
        return log_wedge_value(x, y, correlation, accuracy.panel)
    shape = correlation.shape
    x, y, correlation = (v.reshape(-1) for v in (x, y, correlation))
    probability, trusted = central_probability(*finite(x, y), correlation, accuracy)
    value = probability.log()
    if not bool(trusted.all()):
        hard = (~trusted).nonzero().squeeze(-1)
        value[hard] = log_wedge_value(x[hard], y[hard], correlation[hard], accuracy.panel)
    return value.view(shape)


class _LogBivariate(Elementwise):
    """Value by quadrature, derivatives in closed form; operands are float64 and already
    broadcast.
    """

    @staticmethod
    def forward(x, y, correlation, digits):
        return log_bivariate_value(x, y, correlation, digits)

    @staticmethod
    def backward(ctx, grad):
        return *(grad * slope for slope in log_wedge_slopes(*ctx.saved_tensors)), None


def _in_double(*operands) -> tuple[list[Tensor], torch.dtype]:
    """The operands in float64 and of one shape, and the dtype of the result."""
    tensors = [v for v in operands if isinstance(v, Tensor)]
    dtypes = {v.dtype for v in tensors} or {torch.get_default_dtype()}
    device = next((v.device for v in sorted(tensors, key=Tensor.dim, reverse=True)), None)
    exact = [torch.as_tensor(v, device=device, dtype=torch.float64) for v in operands]
    return torch.broadcast_tensors(
        *exact
    ), torch.float64 if torch.float64 in dtypes else torch.float32


def log_bivariate_normal_cdf(x, y, correlation) -> Tensor:
    """``log P(Z_1 < x, Z_2 < y)`` of standard normals with the given correlation, elementwise.

    Parameters
    ----------
    x, y : Tensor or float
        Upper limits, any shapes that broadcast; infinite limits are exact.
    correlation : Tensor or float
        Within [-1, 1], broadcasts too.

    Returns
    -------
    Tensor
        Of the broadcast shape, float64 if any input is, float32 otherwise. ``-inf`` only where a
        limit is ``-inf``; derivatives there and with respect to infinite limits are zero.
    """
    operands, dtype = _in_double(x, y, correlation)
    return _LogBivariate.apply(*operands, DIGITS[dtype]).to(dtype)


def bivariate_normal_cdf(x, y, correlation) -> Tensor:
    """``P(Z_1 < x, Z_2 < y)``; see :func:`log_bivariate_normal_cdf`.

    Examples
    --------
    >>> round(float(bivariate_normal_cdf(0.0, 0.0, 0.5)), 6)  # 1/4 + arcsin(1/2) / (2 pi)
    0.333333
    """
    return torch.exp(log_bivariate_normal_cdf(x, y, correlation))


def absolute_probability(x: Tensor, y: Tensor, correlation: Tensor) -> Tensor:
    """``Phi_2`` of float64 tensors of one shape to 1e-15 in absolute terms, for integrals over
    it.
    """
    return _LogBivariate.apply(x, y, correlation, 8).exp()


def log_bivariate_normal_cdf_with_gradients(
    x: Tensor, y: Tensor, correlation: Tensor | float
) -> BivariateDerivatives:
    """``log Phi_2`` and its derivatives in one pass, without autograd, elementwise.

    Parameters
    ----------
    x, y : Tensor
        Upper limits.
    correlation : Tensor or float
        Broadcasts with them. For pairs that share its size see :func:`log_cdf_of_pairs`.

    Returns
    -------
    BivariateDerivatives
        Computed in float64 and rounded to the dtype of the operands.
    """
    with torch.no_grad():
        (x, y, correlation), dtype = _in_double(x, y, correlation)
        value = log_bivariate_value(x, y, correlation, DIGITS[dtype])
        slopes = log_wedge_slopes(x, y, correlation, value)
        return BivariateDerivatives(*(v.to(dtype) for v in (value, *slopes)))


def log_cdf_of_pairs(
    limits: Tensor, sign: Tensor, correlation: float | Tensor, digits: int
) -> tuple[Tensor, Tensor]:
    """``log Phi_2`` (..., n) and its slopes in the limits (..., n, 2), float64, on a CPU, without
    autograd.

    All rows share ``|rho|``, hence the nodes of Plackett's integral: one matrix product, one
    exponential for each node, another product. Rows that it is not to be trusted with are computed
    by the wedge.

    Parameters
    ----------
    limits : Tensor (..., n, 2)
    sign : Tensor (..., n)
        1, -1 or 0, times ``correlation`` the row's own.
    correlation : float, or Tensor (..., 1)
        One for all, or one for each set of ``n`` rows.
    digits : {6, 8, 12}
        How many digits of ``Phi_2`` are right. The slope in the correlation, where it is wanted, is
        ``cevit_lib.normal.wedge.correlation_slope``.
    """
    rho = sign * correlation
    many = isinstance(correlation, Tensor)
    nodes = nodes_for(correlation) if many else nodes_for_number(correlation)
    if nodes is None:
        x, y = limits.unbind(-1)
        value = log_bivariate_value(x, y, rho, digits)
        return value, torch.stack(log_wedge_slopes(x, y, rho, value)[:2], -1)
    exponents, weights = nodes
    accuracy = ACCURACY[digits]
    standard = torch.rsqrt(1 - rho * rho).unsqueeze(-1)
    other = torch.addcmul(limits.flip(-1), rho.unsqueeze(-1), limits, value=-1) * standard
    below = torch.special.erfc(
        torch.cat((limits, other), -1).mul_(-math.sqrt(0.5))
    )  # 2 Phi, (..., n, 4)
    square = limits * limits
    features = torch.stack(
        (square[..., 0] + square[..., 1], limits[..., 0] * limits[..., 1] * sign), -1
    )  # (..., n, 2)
    integral = ((features @ exponents).exp_() @ weights).squeeze(-1)
    probability = 0.25 * torch.addcmul(below[..., 0] * below[..., 1], sign, integral)
    slopes = square.mul_(-0.5).exp_().mul_(below[..., 2:]).div_(probability.unsqueeze(-1))
    slopes.mul_(0.5 / SQRT_TWO_PI)
    value = probability.log()
    hard = ~(probability > accuracy.least)
    if hard.any():
        few = limits[hard]
        far = log_wedge_value(few[:, 0], few[:, 1], rho[hard], accuracy.panel)
        exponent = log_normal_cdf(other[hard]) - 0.5 * few * few - HALF_LOG_TWO_PI
        value[hard], slopes[hard] = far, torch.exp(exponent - far.unsqueeze(-1))
    return value, slopes
