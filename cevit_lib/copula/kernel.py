r"""The loss on a GPU as one Triton kernel: log density and gradient of each observation, for two binary responses.

Operation by operation the likelihood is some two hundred launches of a few microseconds each, whatever the batch. Here
one kernel does the algebra of ``cevit_lib.copula.density`` in float64, with the formulas of ``cevit_lib.normal`` that
hold everywhere (nothing branches on a probability), and rounds at the end. An observation has one row of threads: each
thread evaluates the wedge's integrand at one node, the row's sum is the integral.

Import this module only where Triton is installed; ``device_table`` in ``cevit_lib.copula.conditional`` does.
"""

from __future__ import annotations

import math
from functools import lru_cache
from warnings import warn

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import libdevice

from cevit_lib.normal.bivariate import KAPPA, LARGEST, SERIES_FROM, SMALLEST
from cevit_lib.normal.central import gauss_nodes
from cevit_lib.normal.univariate import HALF_LOG_TWO_PI, LOG_TWO_PI, SQRT_HALF, SQRT_HALF_PI

PANEL = 16
"""Nodes in each of the wedge's two panels, as ``cevit_lib.normal`` takes in float64."""

FEW = 1024
"""Up to so many rows sixteen threads share one (what counts is the time of one thread), beyond four (work counts)."""

_PANEL = tl.constexpr(PANEL)
_KAPPA = tl.constexpr(KAPPA)
_LARGEST = tl.constexpr(LARGEST)
_SMALLEST = tl.constexpr(SMALLEST)
_SERIES_FROM = tl.constexpr(SERIES_FROM)
_HALF_LOG_TWO_PI = tl.constexpr(HALF_LOG_TWO_PI)
_LOG_TWO_PI = tl.constexpr(LOG_TWO_PI)
_SQRT_HALF = tl.constexpr(SQRT_HALF)
_SQRT_HALF_PI = tl.constexpr(SQRT_HALF_PI)
_SQRT_TWO = tl.constexpr(math.sqrt(2))
_FOUR_PI = tl.constexpr(4 * math.pi)
_UNBOUNDED = tl.constexpr(40.0)
_FAR_LOGIT = tl.constexpr(600.0)


def pack(c) -> Tensor:
    """Return all that the kernel reads, one float64 vector: nodes, weights, 1 / sigma, then one row for each pattern.

    ``c`` is a ``Conditional``; a row holds precision (p0 p0), loading (2 p0), 1 / sd (2), correlation and constant.
    """
    node, weight = gauss_nodes(PANEL, torch.float64, c.constant.device)
    rows = (
        c.precision.flatten(1), c.loading.flatten(1), c.inverse_sd, c.correlation[:, :1, 1], c.constant.unsqueeze(-1)
    )
    return torch.cat((node, weight, c.inverse_scale, torch.cat(rows, 1).flatten())).detach()


@triton.jit
def _far_score(size):
    """Newton's method for ``log Phi(-q) = -size``, as in ``cevit_lib.normal.univariate``."""
    q = tl.sqrt(2 * size - tl.log(size * _FOUR_PI))
    for _ in tl.static_range(2):
        log_mills = tl.log(libdevice.erfcx(q * _SQRT_HALF) * _SQRT_HALF_PI)
        q += (size - 0.5 * q * q - _HALF_LOG_TWO_PI + log_mills) * tl.exp(log_mills)
    return q


@triton.jit
def _score_and_slope(logit):
    """``Phi^{-1}(S(mu))`` and its derivative."""
    size = tl.abs(logit)
    central = libdevice.erfinv(libdevice.tanh(0.5 * tl.minimum(size, 1.0))) * _SQRT_TWO
    tail = -libdevice.normcdfinv(1 / (1 + tl.exp(tl.minimum(tl.maximum(size, 1.0), _FAR_LOGIT))))
    score = tl.where(size < 1, central, tail)
    if tl.max(size) > _FAR_LOGIT:
        score = tl.where(size > _FAR_LOGIT, _far_score(tl.maximum(size, _FAR_LOGIT)), score)
    slope = libdevice.erfcx(score * _SQRT_HALF) * _SQRT_HALF_PI / (1 + tl.exp(-size))
    score = tl.where(logit < 0, -score, score)
    return tl.where(logit == logit, score, logit), slope  # minimum and maximum have dropped a NaN


@triton.jit
def _log_normal_cdf(t):
    mills = 0.5 * libdevice.erfcx(tl.abs(t) * _SQRT_HALF)
    half_square = 0.5 * t * t
    return tl.log(tl.where(t < 0, mills, 1 - mills * tl.exp(-half_square))) - tl.where(t < 0, half_square, 0.0)


@triton.jit
def _slope(limit, k, value):
    """``phi(limit) Phi(k) / Phi_2``, where ``value`` is the logarithm of ``Phi_2``."""
    mills = 0.5 * libdevice.erfcx(tl.abs(k) * _SQRT_HALF)
    exponent = -0.5 * limit * limit - value - _HALF_LOG_TWO_PI
    # below zero the two exponentials are joined: each alone could underflow, or overflow
    joined = tl.exp(exponent - tl.where(k < 0, 0.5 * k * k, 0.0))
    return joined * tl.where(k < 0, mills, 1 - mills * tl.exp(-0.5 * k * k))


@triton.jit
def _mass(theta, ratio):
    """``R(c) (kappa^2 + c^2)`` at an angle; see ``_flattened_mass`` of ``cevit_lib.normal.bivariate``."""
    sine = tl.sin(theta)
    squared = ratio * sine * sine
    c2 = squared / (1 - squared) * (_KAPPA * _KAPPA)
    near2 = tl.minimum(c2, _SERIES_FROM)
    near = tl.sqrt(near2)
    mass = (1 - libdevice.erfcx(near * _SQRT_HALF) * near * _SQRT_HALF_PI) * (near2 + _KAPPA * _KAPPA)
    v = 1 / tl.maximum(c2, _SERIES_FROM)
    return tl.where(c2 > _SERIES_FROM, 1 + v * (6 - v * (12 - 30 * v)), mass)


@triton.jit
def _wedge(x, y, k1, k2, s, square, table, COLUMNS: tl.constexpr):
    """``int_0^omega R(|c(phi)|) dphi`` as in ``cevit_lib.normal.bivariate``; a row of threads shares the nodes."""
    total = square + _KAPPA * _KAPPA
    squeeze = libdevice.rsqrt(total) * _KAPPA
    one = (k1 > 0) == (k2 > 0)  # one panel, cut in the middle; or two, that meet where c is zero
    x_turned, y_turned = squeeze * tl.where(k1 > 0, x, -x), squeeze * tl.where(k2 > 0, y, -y)
    angle1 = libdevice.atan2(tl.abs(k1), tl.where(one, x_turned, -x_turned))
    angle2 = libdevice.atan2(
        tl.where(one, squeeze * s * square, tl.abs(k2)), tl.where(one, k1 * k2 - squeeze * squeeze * x * y, -y_turned))
    start1 = tl.where(one, angle1, 0.0)
    width2 = tl.where(one, 0.5 * angle2, angle2)
    width1 = tl.where(one, width2, angle1)
    start2 = tl.where(one, start1 + width2, 0.0)
    start1, start2, width1, width2 = start1[:, None], start2[:, None], width1[:, None], width2[:, None]
    ratio = (square / total)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    part = width1 * tl.zeros_like(column).to(tl.float64)
    for k in tl.static_range(0, _PANEL, COLUMNS):
        node, weight = tl.load(table + k + column), tl.load(table + _PANEL + k + column)
        part += weight * (width1 * _mass(start1 + width1 * node, ratio) + width2 * _mass(start2 + width2 * node, ratio))
    return tl.sum(part, 1) * squeeze / (_KAPPA * _KAPPA)


@triton.jit
def _log_quadrant(x, y, rho, table, COLUMNS: tl.constexpr):
    """``log Phi_2(x, y; rho)`` and its derivatives in ``x`` and ``y``."""
    undefined = (x != x) | (y != y)
    impossible = (x < -1e300) | (y < -1e300)
    x = tl.minimum(tl.maximum(x, -_LARGEST), _LARGEST) - _SMALLEST
    y = tl.minimum(tl.maximum(y, -_LARGEST), _LARGEST)
    sign = tl.where(rho < 0, -1.0, 1.0).to(tl.float64)
    gap = 1 - sign * rho
    s = tl.sqrt(gap * (1 + sign * rho))
    difference, shift = y - sign * x, sign * gap
    k1, k2 = (difference + shift * x) / s, (shift * y - sign * difference) / s
    square = x * x + k1 * k1
    wedge, log_factor = _wedge(x, y, k1, k2, s, square, table, COLUMNS), -0.5 * square - _LOG_TWO_PI
    first, second = k1 > 0, k2 > 0
    mixed = first != second
    log_upper = _log_normal_cdf(tl.where(mixed, tl.where(first, x, y), tl.minimum(x, y)))
    log_lower = _log_normal_cdf(tl.where(mixed, -tl.sqrt(square), -tl.maximum(x, y)))
    # Phi(upper) - Phi(lower) + wedge, all over Phi(upper); or the wedge alone
    relative = wedge * tl.exp(log_factor - log_upper) - libdevice.expm1(tl.minimum(log_lower - log_upper, 0.0))
    value = tl.log(tl.where(first | second, relative, wedge)) + tl.where(first | second, log_upper, log_factor)
    by_x, by_y = _slope(x, k1, value), _slope(y, k2, value)
    value = tl.where(impossible, float("-inf"), tl.where(undefined, float("nan"), value))
    by_x = tl.where(impossible, 0.0, tl.where(undefined, float("nan"), by_x))
    return value, by_x, tl.where(impossible, 0.0, tl.where(undefined, float("nan"), by_y))


@triton.jit
def _residual(outputs, y, table, at, y_at, inside, MISSING: tl.constexpr):
    """One standardised residual for each row, 0 where the response was not observed."""
    response = tl.load(y + y_at, mask=inside, other=0.0).to(tl.float64)
    residual = (response - tl.load(outputs + at, mask=inside, other=0.0).to(tl.float64)) * tl.load(table)
    if MISSING:
        residual = tl.where(response == response, residual, 0.0)
    return residual


@triton.jit
def _label(outputs, y, at, y_at, inside, MISSING: tl.constexpr):
    """Score, its slope, sign of the label (0: missing) and whether it was observed."""
    score, slope = _score_and_slope(tl.load(outputs + at, mask=inside, other=0.0).to(tl.float64))
    label = tl.load(y + y_at, mask=inside, other=0.0).to(tl.float64)
    observed = label == label
    if MISSING:
        label = tl.where(observed, label, 0.5)
    return score, slope, 2 * label - 1, observed


@triton.jit
def _density_kernel(
    outputs, y, table, value, gradient, n, row_stride, column_stride, y_row_stride, y_column_stride,
    P0: tl.constexpr, MISSING: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
):
    P: tl.constexpr = P0 + 2
    WIDTH: tl.constexpr = P0 * P0 + 2 * P0 + 4
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = row < n
    at, y_at = row * row_stride, row * y_row_stride
    scales = table + 2 * _PANEL
    pattern = tl.zeros([BLOCK], dtype=tl.int32)
    if MISSING:
        for i in tl.static_range(P0):
            response = tl.load(y + y_at + i * y_column_stride, mask=inside, other=0.0)
            pattern += tl.where(response == response, 1 << i, 0)
    c = scales + P0 + pattern * WIDTH
    loading1, loading2 = c + P0 * P0, c + P0 * P0 + P0
    others = c + P0 * P0 + 2 * P0
    inverse_sd1, inverse_sd2 = tl.load(others), tl.load(others + 1)
    score1, slope1, sign1, seen1 = _label(
        outputs, y, at + P0 * column_stride, y_at + P0 * y_column_stride, inside, MISSING)
    score2, slope2, sign2, seen2 = _label(
        outputs, y, at + (P0 + 1) * column_stride, y_at + (P0 + 1) * y_column_stride, inside, MISSING)
    mean1, mean2, quadratic = score1 * inverse_sd1, score2 * inverse_sd2, tl.zeros([BLOCK], dtype=tl.float64)
    for i in tl.static_range(P0):
        e = _residual(outputs, y, scales + i, at + i * column_stride, y_at + i * y_column_stride, inside, MISSING)
        mean1 += tl.load(loading1 + i) * e
        mean2 += tl.load(loading2 + i) * e
        for j in tl.static_range(P0):
            f = _residual(
                outputs, y, scales + j, at + j * column_stride, y_at + j * y_column_stride, inside, MISSING)
            quadratic += tl.load(c + i * P0 + j) * e * f
    upper1, upper2 = sign1 * mean1, sign2 * mean2
    if MISSING:
        upper1, upper2 = tl.where(seen1, upper1, _UNBOUNDED), tl.where(seen2, upper2, _UNBOUNDED)
    cell, pull1, pull2 = _log_quadrant(upper1, upper2, sign1 * sign2 * tl.load(others + 2), table, COLUMNS)
    pull1, pull2 = pull1 * sign1, pull2 * sign2  # derivatives in the standardised conditional means
    kind = value.dtype.element_ty
    tl.store(value + row, (cell - 0.5 * quadratic + tl.load(others + 3)).to(kind), mask=inside)
    for i in tl.static_range(P0):
        by_mean = -tl.load(loading1 + i) * pull1 - tl.load(loading2 + i) * pull2
        for j in tl.static_range(P0):
            f = _residual(
                outputs, y, scales + j, at + j * column_stride, y_at + j * y_column_stride, inside, MISSING)
            by_mean += tl.load(c + i * P0 + j) * f
        tl.store(gradient + row * P + i, (by_mean * tl.load(scales + i)).to(kind), mask=inside)
    tl.store(gradient + row * P + P0, (pull1 * inverse_sd1 * slope1).to(kind), mask=inside)
    tl.store(gradient + row * P + P0 + 1, (pull2 * inverse_sd2 * slope2).to(kind), mask=inside)


def launch(outputs: Tensor, y: Tensor, table: Tensor, missing: bool) -> tuple[Tensor, Tensor]:
    """Return the log density (n,) and its gradient (n, p) in the dtype of ``outputs``; ``table`` is from ``pack``."""
    n, p = outputs.shape
    value, gradient = outputs.new_empty(n), outputs.new_empty(n, p)
    columns = 16 if n <= FEW else 4
    with torch.cuda.device_of(outputs):
        _density_kernel[(max(1, triton.cdiv(n, 32 // columns)),)](
            outputs, y, table, value, gradient, n, *outputs.stride(), *y.stride(),
            P0=p - 2, MISSING=missing, BLOCK=32 // columns, COLUMNS=columns, num_warps=1,
        )
    return value, gradient


# torch.compile takes the kernel as one opaque operation (replayed in a CUDA graph like any other)
_operation = torch.library.custom_op(
    "cevit_lib::log_density", launch, mutates_args=(),
    schema="(Tensor outputs, Tensor y, Tensor table, bool missing) -> (Tensor, Tensor)",
)


@_operation.register_fake
def _(outputs, y, table, missing):
    return outputs.new_empty(outputs.shape[0]), outputs.new_empty(outputs.shape)


def density_and_gradient(outputs: Tensor, y: Tensor, table: Tensor, missing: bool) -> tuple[Tensor, Tensor]:
    """Return what ``launch`` does; under ``torch.compile`` by a registered operation."""
    return (_operation if torch.compiler.is_compiling() else launch)(outputs, y, table, missing)


@lru_cache
def works(device: torch.device, p0: int) -> bool:
    """Say whether the kernel can be built and run on a device, by doing so once; a warning says why not."""
    table = torch.full((2 * PANEL + p0 + p0 * p0 + 2 * p0 + 4,), 0.5, device=device, dtype=torch.float64)
    zeros = table.new_zeros(1, p0 + 2)
    try:
        return bool(launch(zeros, zeros, table, False)[0].isfinite().all())
    except Exception as error:  # no C compiler, a card or driver that Triton does not know, ...
        warn(f"the copula loss runs operation by operation on {device}: Triton's kernel cannot be built ({error})",
             RuntimeWarning, stacklevel=2)
        return False
