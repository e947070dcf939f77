r"""The bivariate normal distribution function in log space, by one positive integral.

The quadrant ``{Z_1 < x, Z_2 < y}`` is, after whitening, a wedge with apex ``a`` and opening angle ``omega``,
``cos omega = -rho``. In polar coordinates round the apex the radial integral is known, and the directions that
look towards the origin give differences of univariate probabilities, so that

    Phi_2(x, y; rho) = B + exp(-A^2 / 2) / (2 pi) * int_0^omega R(|c(phi)|) dphi,     R(c) = 1 - c M(c),

with ``k_1 = (y - rho x) / s``, ``k_2 = (x - rho y) / s``, ``s^2 = 1 - rho^2``, ``A^2 = |a|^2 = x^2 + k_1^2``,
``c(phi) = -(sin(omega - phi) k_1 + sin(phi) k_2) / sin(omega)``, ``M`` the Mills ratio, and

    B = 0                          if k_1 <= 0 and k_2 <= 0  (the apex is the nearest point of the quadrant),
    B = Phi(x) - Phi(-A)           if k_1 > 0 >= k_2,
    B = Phi(y) - Phi(-A)           if k_2 > 0 >= k_1,
    B = Phi(x) + Phi(y) - 1        if both are positive.

Every term is positive for every correlation: nothing cancels, however small the probability, and neither ``rho = 0``,
``rho = +-1`` nor ties are special. ``R`` falls from 1 to ``1 / c^2``; the variable ``theta`` with
``tan(theta) = tan(angle from the direction c = 0) * sqrt(kappa^2 + A^2) / kappa`` makes the integrand nearly constant,
and a zero of ``c`` inside the wedge, where ``|c|`` has a kink, splits the integral into two panels.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from .central import (
    LARGEST_CORRELATION,
    central_derivatives,
    central_probability,
    gauss_nodes,
    number_of_nodes,
)
from .univariate import HALF_LOG_TWO_PI, LOG_TWO_PI, SQRT_HALF, SQRT_HALF_PI, log_normal_cdf

KAPPA = 3.0


LARGEST = 1e10  # a limit as good as infinite
SMALLEST = 1e-30  # stands for zero in x, so that the apex has a direction
LEAST_GAP = 1e-40  # stands for zero in 1 - |rho|
SERIES_FROM = 600.0  # c^2 from which R(c) is computed by its asymptotic series
NODES = {
    torch.float32: 10,
    torch.float64: 16,
}  # a panel; what the result's digits need, computed in float64 always
LEAST_CENTRAL = {
    torch.float32: 1e-5,
    torch.float64: 1e-4,
}  # probability below which the result's digits need more


class BivariateDerivatives(NamedTuple):
    """``log Phi_2`` and its three partial derivatives, each of the broadcast shape."""

    value: Tensor
    x: Tensor
    y: Tensor
    correlation: Tensor


def _conditional_limits(x: Tensor, y: Tensor, correlation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``k_1 = (y - rho x) / s``, ``k_2 = (x - rho y) / s`` and ``s``; nothing cancels at ``y`` close to ``+-x``."""
    sign = torch.where(correlation < 0, -1.0, 1.0).to(x.dtype)
    size = sign * correlation
    gap = (1 - size).clamp_min(LEAST_GAP)
    s = (gap * (1 + size)).sqrt()
    difference, shift = y - sign * x, sign * gap
    return (difference + shift * x) / s, (shift * y - sign * difference) / s, s


def _flattened_mass(c2: Tensor) -> Tensor:
    """``R(c) (kappa^2 + c^2)``, ``kappa = 3``, between 9 and 1, from ``c^2``; an asymptotic series beyond ``c = 25``.

    ``exp`` times ``erfc`` costs a tenth of ``erfcx`` on a CPU, and its error, ``c^4`` units of the last place, is less
    than that of the series where the two meet (2e-11; ``log Phi_2`` is below -300 there).
    """
    near2 = c2.clamp_max(SERIES_FROM)
    near = near2.sqrt()
    mass = 1 - torch.special.erfc(SQRT_HALF * near).mul_(near).mul_(SQRT_HALF_PI).mul_(
        torch.exp(0.5 * near2)
    )
    v = c2.clamp_min(SERIES_FROM).reciprocal_()
    series = 1 + v * (6 - v * (12 - 30 * v))
    return torch.where(c2 > SERIES_FROM, series, mass.mul_(KAPPA**2 + near2))


def _wedge_integral(
    x: Tensor, y: Tensor, k1: Tensor, k2: Tensor, s: Tensor, square: Tensor, nodes: int
) -> Tensor:
    """``int_0^omega R(|c(phi)|) dphi``; ``square`` is ``A^2``, all of one shape."""
    total = KAPPA**2 + square
    squeeze = KAPPA * total.rsqrt()  # lambda: tan(theta) = tan(angle) / lambda
    x_turned, y_turned = squeeze * torch.where(k1 > 0, x, -x), squeeze * torch.where(k2 > 0, y, -y)
    k1_size, k2_size = k1.abs(), k2.abs()
    one_panel = (k1 > 0) == (k2 > 0)
    start = torch.atan2(k1_size, x_turned)
    half = 0.5 * torch.atan2(squeeze * s * square, k1 * k2 - squeeze.square() * x * y)
    widths = torch.stack(
        (
            torch.where(one_panel, half, torch.atan2(k1_size, -x_turned)),
            torch.where(one_panel, half, torch.atan2(k2_size, -y_turned)),
        ),
        -1,
    )
    starts = torch.stack((start, start + half), -1) * one_panel.unsqueeze(-1)
    node, weight = gauss_nodes(nodes, x.dtype, x.device)
    theta = torch.addcmul(starts.unsqueeze(-1), widths.unsqueeze(-1), node)
    sine2 = theta.sin_()
    sine2 = sine2.mul_(sine2)
    ratio = (square / total)[..., None, None]  # 1 - lambda^2
    c2 = (KAPPA**2 * ratio * sine2).div_(1 - ratio * sine2)
    return (_flattened_mass(c2) @ weight * widths).sum(-1) * squeeze / KAPPA**2


def _log_value(x: Tensor, y: Tensor, k1: Tensor, k2: Tensor, s: Tensor, nodes: int) -> Tensor:
    """``log Phi_2`` of tensors of one shape, finite limits."""
    square = x.square() + k1.square()
    log_wedge = (
        torch.log(_wedge_integral(x, y, k1, k2, s, square, nodes)) - 0.5 * square - LOG_TWO_PI
    )
    first, second = k1 > 0, k2 > 0
    mixed = first != second
    upper = torch.where(mixed, torch.where(first, x, y), torch.minimum(x, y))
    lower = torch.where(mixed, -square.sqrt(), -torch.maximum(x, y))
    log_upper, log_lower = torch.special.log_ndtr(torch.stack((upper, lower)))
    log_base = log_upper + torch.log(-torch.expm1((log_lower - log_upper).clamp_max(0.0)))
    return torch.where(first | second, torch.logaddexp(log_base, log_wedge), log_wedge)


def _finite(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.clamp(-LARGEST, LARGEST) - SMALLEST, y.clamp(-LARGEST, LARGEST)


def log_wedge_value(x: Tensor, y: Tensor, correlation: Tensor, nodes: int) -> Tensor:
    """``log Phi_2`` of float64 tensors by the one formula, no autograd, free of data-dependent control flow."""
    impossible = (torch.minimum(x, y) == -math.inf) | ((correlation == -1) & (x + y <= 0))
    x, y = _finite(x, y)
    k1, k2, s = _conditional_limits(x, y, correlation)
    x, y, k1, k2, s = torch.broadcast_tensors(x, y, k1, k2, s)
    return torch.where(impossible, -math.inf, _log_value(x, y, k1, k2, s, nodes))


def _derivatives(
    x: Tensor, y: Tensor, correlation: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Closed-form derivatives of ``log Phi_2``, written in differentiable operations (for the second order).

    ``d/dx = phi(x) Phi(k_1) / Phi_2``, ``d/dy`` alike, ``d/drho = phi_2(x, y) / Phi_2`` (Plackett), in log space.
    """
    usable = value > -math.inf
    value = torch.where(usable, value, 0.0)
    x, y = _finite(x, y)
    k1, k2, s = _conditional_limits(x, y, correlation)
    by_x = torch.exp(log_normal_cdf(k1) - 0.5 * x.square() - HALF_LOG_TWO_PI - value)
    by_y = torch.exp(log_normal_cdf(k2) - 0.5 * y.square() - HALF_LOG_TWO_PI - value)
    by_correlation = torch.exp(-0.5 * (x.square() + k1.square()) - LOG_TWO_PI - value) / s
    return tuple(torch.where(usable, d, 0.0) for d in (by_x, by_y, by_correlation))


def _in_two_parts(
    operands: tuple[Tensor, Tensor, Tensor], dtype: torch.dtype, slopes: bool
) -> list[Tensor] | None:
    """Value, and derivatives on request: central formula where it is exact, the wedge elsewhere; None: not possible.

    Of use on a CPU only, where it takes a tenth of the time: elsewhere, to pick observations is to wait for the device.
    ``operands`` are float64 and share one shape; ``dtype`` is that of the result, whose digits decide where to change.
    """
    shape = operands[0].shape
    flat = [v.reshape(-1) for v in operands]
    if torch.compiler.is_compiling() or flat[0].device.type != "cpu":
        return None
    x, y, correlation = *_finite(*flat[:2]), flat[2]
    size = correlation.abs()
    try:
        probability = central_probability(x, y, correlation, number_of_nodes(size, dtype))
        hard = (
            ((probability < LEAST_CENTRAL[dtype]) | (size > LARGEST_CORRELATION))
            .nonzero()
            .squeeze(-1)
        )
    except RuntimeError:  # under torch.func.vmap no value can be looked at
        return None
    results = [probability.log()]
    if slopes:
        results += central_derivatives(x, y, correlation, probability)
    if hard.numel():
        few = [v[hard] for v in flat]
        value = log_wedge_value(*few, NODES[dtype])
        exact = (value, *_derivatives(*few, value)) if slopes else (value,)
        for result, replacement in zip(results, exact, strict=True):
            result[hard] = replacement
    return [result.view(shape) for result in results]


def log_bivariate_value(x: Tensor, y: Tensor, correlation: Tensor, dtype: torch.dtype) -> Tensor:
    """``log Phi_2`` of float64 tensors of one shape, to the digits of ``dtype``, without autograd."""
    parts = _in_two_parts((x, y, correlation), dtype, slopes=False)
    return log_wedge_value(x, y, correlation, NODES[dtype]) if parts is None else parts[0]


class _LogBivariate(torch.autograd.Function):
    """Value by quadrature, derivatives in closed form; operands are float64 and already broadcast."""

    @staticmethod
    def forward(x, y, correlation, dtype):
        return log_bivariate_value(x, y, correlation, dtype)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:3], output)

    @staticmethod
    def backward(ctx, grad):
        return *(grad * d for d in _derivatives(*ctx.saved_tensors)), None

    @staticmethod
    def vmap(info, in_dims, *operands):
        fronted = [
            o.expand(info.batch_size, *o.shape) if d is None else o.movedim(d, 0)
            for o, d in zip(operands[:3], in_dims[:3], strict=True)
        ]
        return _LogBivariate.apply(*fronted, operands[3]), 0


def _as_tensors(x, y, correlation) -> tuple[list[Tensor], torch.dtype]:
    """The operands in float64, and the dtype of the result."""
    tensors = [v for v in (x, y, correlation) if isinstance(v, Tensor)]
    dtype = functools.reduce(
        torch.promote_types, (t.dtype for t in tensors if t.is_floating_point()), torch.float32
    )
    if not tensors:
        dtype = torch.get_default_dtype()
    if dtype in (torch.float16, torch.bfloat16):
        dtype = torch.float32
    device = next((t.device for t in tensors if t.ndim), tensors[0].device if tensors else None)
    return [
        torch.as_tensor(v, device=device, dtype=torch.float64) for v in (x, y, correlation)
    ], dtype


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
        Of the broadcast shape, float64 if any input is, float32 otherwise. ``-inf`` only where a limit is ``-inf``;
        derivatives there and with respect to infinite limits are zero.
    """
    operands, dtype = _as_tensors(x, y, correlation)
    return _LogBivariate.apply(*torch.broadcast_tensors(*operands), dtype).to(dtype)


def bivariate_normal_cdf(x, y, correlation) -> Tensor:
    """``P(Z_1 < x, Z_2 < y)`` of standard normals with the given correlation; see :func:`log_bivariate_normal_cdf`.

    Examples
    --------
    >>> round(float(bivariate_normal_cdf(0.0, 0.0, 0.5)), 6)  # 1/4 + arcsin(1/2) / (2 pi)
    0.333333
    """
    return torch.exp(log_bivariate_normal_cdf(x, y, correlation))


def log_bivariate_normal_cdf_with_gradients(
    x: Tensor, y: Tensor, correlation: Tensor
) -> BivariateDerivatives:
    """``log Phi_2`` and its derivatives in one pass, without autograd: for a custom loss that saves gradients.

    Computed in float64 and rounded to the dtype of the operands.
    """
    with torch.no_grad():
        operands, dtype = _as_tensors(x, y, correlation)
        parts = _in_two_parts(torch.broadcast_tensors(*operands), dtype, slopes=True)
        if parts is None:
            value = log_wedge_value(*operands, NODES[dtype])
            parts = (value, *_derivatives(*operands, value))
        return BivariateDerivatives(*(v.to(dtype) for v in parts))
