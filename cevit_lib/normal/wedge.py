r"""The bivariate normal distribution function in log space, by one positive integral.

The region ``{Z_1 < x, Z_2 < y}`` is, after whitening, a wedge with apex ``a`` and opening angle
``omega``, ``cos omega = -rho``. In polar coordinates round the apex the radial integral is known,
and the directions that look towards the origin give differences of univariate probabilities, so
that

    Phi_2(x, y; rho) = B + exp(-A^2 / 2) / (2 pi) * int_0^omega R(|c(phi)|) dphi
    R(c) = 1 - c M(c),  M the Mills ratio
    k_1 = (y - rho x) / s,  k_2 = (x - rho y) / s,  s^2 = 1 - rho^2,  A^2 = |a|^2 = x^2 + k_1^2
    c(phi) = -(sin(omega - phi) k_1 + sin(phi) k_2) / sin(omega)

    B = 0                       if k_1 <= 0 and k_2 <= 0 (the apex is the region's nearest point),
    B = Phi(x) - Phi(-A)        if k_1 > 0 >= k_2,
    B = Phi(y) - Phi(-A)        if k_2 > 0 >= k_1,
    B = Phi(x) + Phi(y) - 1     if both are positive.

Every term is positive for every correlation: nothing cancels, however small the probability, and
neither ``rho = 0``, ``rho = +-1`` nor ties are special. ``R`` falls from 1 to ``1 / c^2``; the
variable ``theta`` with ``tan(theta) = tan(angle from the direction c = 0) * sqrt(kappa^2 + A^2) /
kappa`` makes the integrand nearly constant, and a zero of ``c`` inside the wedge, where ``|c|`` has
a kink, splits the integral into two panels.
"""

import math

import torch
from torch import Tensor

from cevit_lib.normal.central import gauss_nodes
from cevit_lib.normal.univariate import (
    HALF_LOG_TWO_PI,
    LOG_TWO_PI,
    SQRT_HALF,
    SQRT_HALF_PI,
    log_normal_cdf,
)

KAPPA = 3.0
PANEL = 16  # nodes in each of the two panels
LARGEST = 1e10  # a limit as good as infinite
SMALLEST = 1e-30  # stands for zero in x, so that the apex has a direction
LEAST_GAP = 1e-40  # stands for zero in 1 - |rho|
SERIES_FROM = 600.0  # c^2 from which R(c) is computed by its asymptotic series


def conditional_limits(x: Tensor, y: Tensor, correlation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``k_1 = (y - rho x) / s``, ``k_2 = (x - rho y) / s`` and ``s``; nothing cancels at ``y``
    close to ``+-x``.
    """
    sign = torch.where(correlation < 0, -1.0, 1.0).to(x.dtype)
    size = sign * correlation
    gap = (1 - size).clamp_min(LEAST_GAP)
    s = (gap * (1 + size)).sqrt()
    difference, shift = y - sign * x, sign * gap
    return (difference + shift * x) / s, (shift * y - sign * difference) / s, s


def _flattened_mass(c2: Tensor) -> Tensor:
    """``R(c) (kappa^2 + c^2)``, ``kappa = 3``, between 9 and 1, from ``c^2``; an asymptotic series
    beyond ``c = 25``.

    ``exp`` times ``erfc`` costs a tenth of ``erfcx`` on a CPU, and its error, ``c^4`` units of the
    last place, is less than that of the series where the two meet (2e-11; ``log Phi_2`` is below
    -300 there).
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
    x: Tensor, y: Tensor, limits: tuple[Tensor, Tensor, Tensor], square: Tensor
) -> Tensor:
    """``int_0^omega R(|c(phi)|) dphi``; ``limits`` are ``k_1, k_2, s``, ``square`` is ``A^2``."""
    k1, k2, s = limits
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
    node, weight = gauss_nodes(PANEL, x.device)
    theta = torch.addcmul(starts.unsqueeze(-1), widths.unsqueeze(-1), node)
    sine2 = theta.sin_()
    sine2 = sine2.mul_(sine2)
    ratio = (square / total)[..., None, None]  # 1 - lambda^2
    c2 = (KAPPA**2 * ratio * sine2).div_(1 - ratio * sine2)
    return (_flattened_mass(c2) @ weight * widths).sum(-1) * squeeze / KAPPA**2


def finite(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Limits as good as the given ones, without infinities, the first one not zero."""
    return x.clamp(-LARGEST, LARGEST) - SMALLEST, y.clamp(-LARGEST, LARGEST)


def log_wedge_value(x: Tensor, y: Tensor, correlation: Tensor) -> Tensor:
    """``log Phi_2`` of float64 tensors of one shape, without autograd; nothing branches on
    values.
    """
    impossible = (torch.minimum(x, y) == -math.inf) | ((correlation == -1) & (x + y <= 0))
    x, y = finite(x, y)
    limits = k1, k2, _ = conditional_limits(x, y, correlation)
    square = x.square() + k1.square()
    log_wedge = _wedge_integral(x, y, limits, square).log() - 0.5 * square - LOG_TWO_PI
    first, second = k1 > 0, k2 > 0
    mixed = first != second
    upper = torch.where(mixed, torch.where(first, x, y), torch.minimum(x, y))
    lower = torch.where(mixed, -square.sqrt(), -torch.maximum(x, y))
    log_upper, log_lower = torch.special.log_ndtr(torch.stack((upper, lower)))
    log_base = log_upper + torch.log(-torch.expm1((log_lower - log_upper).clamp_max(0.0)))
    value = torch.where(first | second, torch.logaddexp(log_base, log_wedge), log_wedge)
    return torch.where(impossible, -math.inf, value)


def correlation_slope(x: Tensor, y: Tensor, correlation: Tensor, value: Tensor) -> Tensor:
    """``d log Phi_2 / drho = phi_2(x, y; rho) / Phi_2`` (Plackett), where ``value`` is ``log
    Phi_2``.
    """
    x, y = finite(x, y)
    k1, _, s = conditional_limits(x, y, correlation)
    return torch.exp(-0.5 * (x.square() + k1.square()) - LOG_TWO_PI - value) / s


def log_wedge_slopes(
    x: Tensor, y: Tensor, correlation: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Derivatives of ``log Phi_2`` in closed form, by differentiable operations (for the second
    order).

    ``d/dx = phi(x) Phi(k_1) / Phi_2``, ``d/dy`` alike, both in log space; zero where ``Phi_2`` is.
    """
    usable = value > -math.inf
    value = torch.where(usable, value, 0.0)
    by_correlation = correlation_slope(x, y, correlation, value)
    x, y = finite(x, y)
    k1, k2, _ = conditional_limits(x, y, correlation)
    by_x = torch.exp(log_normal_cdf(k1) - 0.5 * x.square() - HALF_LOG_TWO_PI - value)
    by_y = torch.exp(log_normal_cdf(k2) - 0.5 * y.square() - HALF_LOG_TWO_PI - value)
    return tuple(torch.where(usable, d, 0.0) for d in (by_x, by_y, by_correlation))


def log_wedge_curvatures(
    x: Tensor, y: Tensor, correlation: Tensor, slopes: tuple[Tensor, Tensor, Tensor]
) -> tuple[tuple[Tensor, ...], ...]:
    """Second derivatives of ``log Phi_2`` from its first, (3, 3) tensors of the shape of ``x``, in
    ``x``, ``y`` and ``correlation``.

    ``d^2 Phi_2 / dx^2 = -x phi(x) Phi(k_1) - rho phi_2``, ``d^2 / dx dy = phi_2``, and the slope in
    the correlation is ``phi_2`` itself.
    """
    by_x, by_y, by_r = slopes
    x, y = finite(x, y)
    k1, k2, s = conditional_limits(x, y, correlation)
    xx = -by_x * (x + by_x) - correlation * by_r
    yy = -by_y * (y + by_y) - correlation * by_r
    xy = by_r - by_x * by_y
    xr, yr = -by_r * (k2 / s + by_x), -by_r * (k1 / s + by_y)
    rr = by_r * ((correlation + k1 * k2) / (s * s) - by_r)
    return (xx, xy, xr), (xy, yy, yr), (xr, yr, rr)
