r"""The loss on a GPU as one Triton kernel: log density and gradient of each observation, for two
binary responses.

Operation by operation the likelihood is some two hundred launches of a few microseconds each,
whatever the batch. Here one kernel does the algebra of ``cevit_lib.copula.density`` in float64,
with the formulas of ``cevit_lib.normal`` that hold everywhere (nothing branches on a probability),
and rounds at the end. An observation has one row of threads: its two labels are two columns, so
that each special function is called once for both, and the threads share the nodes of the wedge's
integral, which is the row's sum.

Import this module only where Triton is installed; ``prepared`` in
``cevit_lib.copula.conditioning`` does.
"""

import math
from functools import lru_cache
from warnings import warn

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import libdevice

from cevit_lib.normal.central import gauss_nodes
from cevit_lib.normal.univariate import (
    HALF_LOG_TWO_PI,
    LOG_TWO_PI,
    SQRT_HALF,
    SQRT_HALF_PI,
    SQRT_TWO_PI,
)
from cevit_lib.normal.wedge import KAPPA, LARGEST, PANEL, SERIES_FROM, SMALLEST

FULL, SINGLE = PANEL, 10
"""Nodes in each of the wedge's two panels, for float64 and for float32 (there where the work
counts).
"""

HEADER = 2 * FULL + 2 * SINGLE

FEW = 1024
"""Up to so many rows a warp of threads shares one (the time of a thread counts), beyond them four
(the work counts).
"""

_HEADER = tl.constexpr(HEADER)
_KAPPA = tl.constexpr(KAPPA)
_LARGEST = tl.constexpr(LARGEST)
_SMALLEST = tl.constexpr(SMALLEST)
_SERIES_FROM = tl.constexpr(SERIES_FROM)
_HALF_LOG_TWO_PI = tl.constexpr(HALF_LOG_TWO_PI)
_LOG_TWO_PI = tl.constexpr(LOG_TWO_PI)
_SQRT_HALF = tl.constexpr(SQRT_HALF)
_SQRT_HALF_PI = tl.constexpr(SQRT_HALF_PI)
_SQRT_TWO_PI = tl.constexpr(SQRT_TWO_PI)
_FOUR_PI = tl.constexpr(4 * math.pi)
_UNBOUNDED = tl.constexpr(40.0)
_FAR_LOGIT = tl.constexpr(600.0)


def pack(c) -> Tensor:
    """Return all that the kernel reads, one float64 vector: nodes, weights, 1 / sigma, then one row
    for each pattern.

    ``c`` is a ``LikelihoodConstants``; a row holds precision (p0 p0), loading (2 p0), 1 / sd (2),
    correlation and constant.
    """
    nodes = [part for number in (FULL, SINGLE) for part in gauss_nodes(number, c.constant.device)]
    rows = (
        c.precision.flatten(1),
        c.loading.flatten(1),
        c.inverse_sd,
        c.correlation[:, :1, 1],
        c.constant.unsqueeze(-1),
    )
    return torch.cat((*nodes, c.inverse_scale, torch.cat(rows, 1).flatten())).detach()


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
    """``Phi^{-1}(S(mu))``, right to an absolute unit of float64, which a limit of integration
    needs; its derivative.
    """
    size = tl.abs(logit)
    near = tl.minimum(size, _FAR_LOGIT)
    odds = tl.exp(-near)
    above = 1 / (1 + odds)
    score = -libdevice.normcdfinv(odds * above)
    slope = tl.exp(0.5 * score * score - near) * above * above * _SQRT_TWO_PI
    if tl.max(size) > _FAR_LOGIT:
        far = _far_score(tl.maximum(size, _FAR_LOGIT))
        score = tl.where(size > _FAR_LOGIT, far, score)
        slope = tl.where(
            size > _FAR_LOGIT, libdevice.erfcx(far * _SQRT_HALF) * _SQRT_HALF_PI, slope
        )
    score = tl.where(logit < 0, -score, score)
    return tl.where(logit == logit, score, logit), slope  # minimum and maximum have dropped a NaN


@triton.jit
def _log_normal_cdf(t):
    mills = 0.5 * libdevice.erfcx(tl.abs(t) * _SQRT_HALF)
    half_square = 0.5 * t * t
    return tl.log(tl.where(t < 0, mills, 1 - mills * tl.exp(-half_square))) - tl.where(
        t < 0, half_square, 0.0
    )


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
    """``R(c) (kappa^2 + c^2)`` at an angle; see ``_flattened_mass`` of
    ``cevit_lib.normal.wedge``.
    """
    sine = tl.sin(theta)
    squared = ratio * sine * sine
    c2 = squared / (1 - squared) * (_KAPPA * _KAPPA)
    near2 = tl.minimum(c2, _SERIES_FROM)
    near = tl.sqrt(near2)
    mass = (1 - libdevice.erfcx(near * _SQRT_HALF) * near * _SQRT_HALF_PI) * (
        near2 + _KAPPA * _KAPPA
    )
    v = 1 / tl.maximum(c2, _SERIES_FROM)
    return tl.where(c2 > _SERIES_FROM, 1 + v * (6 - v * (12 - 30 * v)), mass)


@triton.jit
def _split(pair):
    """The two columns of (n, 2), each (n,), exactly."""
    first = tl.arange(0, 2)[None, :] == 0
    return tl.sum(tl.where(first, pair, 0.0), 1), tl.sum(tl.where(first, 0.0, pair), 1)


@triton.jit
def _join(one, other):
    """Two columns (n,) as (n, 2)."""
    return tl.where(tl.arange(0, 2)[None, :] == 0, one[:, None], other[:, None])


@triton.jit
def _wedge(limits, k, product, s, square, nodes, PANEL: tl.constexpr, COLUMNS: tl.constexpr):
    """``int_0^omega R(|c(phi)|) dphi`` as in ``cevit_lib.normal.wedge``; a row of threads shares
    the nodes.
    """
    total = square + _KAPPA * _KAPPA
    squeeze = libdevice.rsqrt(total) * _KAPPA
    k1, k2 = _split(k)
    one = (k1 > 0) == (k2 > 0)  # one panel, cut in the middle; or two, that meet where c is zero
    turned = squeeze[:, None] * tl.where(k > 0, limits, -limits)
    opening = tl.where(one, squeeze * s * square, tl.abs(k2))
    height = _join(tl.abs(k1), opening)
    base = tl.where(
        one[:, None], _join(_split(turned)[0], k1 * k2 - squeeze * squeeze * product), -turned
    )
    angle1, angle2 = _split(libdevice.atan2(height, base))
    start1 = tl.where(one, angle1, 0.0)
    width2 = tl.where(one, 0.5 * angle2, angle2)
    width1 = tl.where(one, width2, angle1)
    start2 = tl.where(one, start1 + width2, 0.0)
    ratio = (square / total)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    part = tl.zeros_like(ratio + column)
    for at in tl.static_range(0, 2 * PANEL, COLUMNS):
        first = column + at < PANEL
        node = tl.load(nodes + (column + at) % PANEL)
        weight = tl.load(nodes + (column + at) % PANEL + PANEL)
        width = tl.where(first, width1[:, None], width2[:, None])
        part += (
            weight
            * width
            * _mass(tl.where(first, start1[:, None], start2[:, None]) + width * node, ratio)
        )
    return tl.sum(part, 1) * squeeze / (_KAPPA * _KAPPA)


@triton.jit
def _log_pair(limits, rho, nodes, PANEL: tl.constexpr, COLUMNS: tl.constexpr):
    """``log Phi_2`` (n,) and its derivatives in the limits, (n, 2) both."""
    raw1, raw2 = _split(limits)
    undefined = (raw1 != raw1) | (raw2 != raw2)
    impossible = (raw1 < -1e300) | (raw2 < -1e300)
    limits = tl.minimum(tl.maximum(limits, -_LARGEST), _LARGEST)
    limits = tl.where(tl.arange(0, 2)[None, :] == 0, limits - _SMALLEST, limits)
    x, y = _split(limits)
    sign = tl.where(rho < 0, -1.0, 1.0).to(tl.float64)
    gap = 1 - sign * rho
    s = tl.sqrt(gap * (1 + sign * rho))
    # (y - rho x) / s and (x - rho y) / s; nothing cancels at y close to +-x
    k = ((_join(y, x) - sign[:, None] * limits) + (sign * gap)[:, None] * limits) / s[:, None]
    k1, k2 = _split(k)
    square = x * x + k1 * k1
    wedge, log_factor = (
        _wedge(limits, k, x * y, s, square, nodes, PANEL, COLUMNS),
        -0.5 * square - _LOG_TWO_PI,
    )
    some, mixed = (k1 > 0) | (k2 > 0), (k1 > 0) != (k2 > 0)
    upper = tl.where(mixed, tl.where(k1 > 0, x, y), tl.minimum(x, y))
    lower = tl.where(mixed, -tl.sqrt(square), -tl.maximum(x, y))
    log_upper, log_lower = _split(_log_normal_cdf(_join(upper, lower)))
    # Phi(upper) - Phi(lower) + wedge, all over Phi(upper); or the wedge alone
    relative = wedge * tl.exp(log_factor - log_upper) - libdevice.expm1(
        tl.minimum(log_lower - log_upper, 0.0)
    )
    value = tl.log(tl.where(some, relative, wedge)) + tl.where(some, log_upper, log_factor)
    slopes = tl.where(impossible[:, None], 0.0, _slope(limits, k, value[:, None]))
    value = tl.where(impossible, float("-inf"), value)
    return tl.where(undefined, float("nan"), value), tl.where(
        undefined[:, None], float("nan"), slopes
    )


@triton.jit
def _residual(outputs, y, table, at, y_at, inside, MISSING: tl.constexpr):
    """One standardised residual for each row, 0 where the response was not observed."""
    response = tl.load(y + y_at, mask=inside, other=0.0).to(tl.float64)
    residual = (response - tl.load(outputs + at, mask=inside, other=0.0).to(tl.float64)) * tl.load(
        table
    )
    if MISSING:
        residual = tl.where(response == response, residual, 0.0)
    return residual


@triton.jit(do_not_specialize=["n"])  # one kernel for every number of patients
def _density_kernel(
    outputs,
    y,
    table,
    value,
    gradient,
    n,
    row_stride,
    column_stride,
    y_row_stride,
    y_column_stride,
    P0: tl.constexpr,
    MISSING: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    PANEL: tl.constexpr,
    NODES_AT: tl.constexpr,
):
    WIDTH: tl.constexpr = P0 * P0 + 2 * P0 + 4
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = row < n
    at, y_at = row * row_stride, row * y_row_stride
    scales = table + _HEADER
    pattern = tl.zeros([BLOCK], dtype=tl.int32)
    if MISSING:
        for i in tl.static_range(P0):
            response = tl.load(y + y_at + i * y_column_stride, mask=inside, other=0.0)
            pattern += tl.where(response == response, 1 << i, 0)
    c = scales + P0 + pattern * WIDTH
    which = tl.arange(0, 2)[None, :]  # of the two labels, side by side
    loading = (c + P0 * P0)[:, None] + which * P0
    others = c + P0 * P0 + 2 * P0
    inverse_sd = tl.load(others[:, None] + which)
    logit_at, label_at = (
        at[:, None] + (P0 + which) * column_stride,
        y_at[:, None] + (P0 + which) * y_column_stride,
    )
    score, slope = _score_and_slope(
        tl.load(outputs + logit_at, mask=inside[:, None], other=0.0).to(tl.float64)
    )
    label = tl.load(y + label_at, mask=inside[:, None], other=0.0).to(tl.float64)
    sign = 2 * label - 1
    mean, quadratic = score * inverse_sd, tl.zeros([BLOCK], dtype=tl.float64)
    for i in tl.static_range(P0):
        e = _residual(
            outputs,
            y,
            scales + i,
            at + i * column_stride,
            y_at + i * y_column_stride,
            inside,
            MISSING,
        )
        mean += tl.load(loading + i) * e[:, None]
        for j in tl.static_range(P0):
            f = _residual(
                outputs,
                y,
                scales + j,
                at + j * column_stride,
                y_at + j * y_column_stride,
                inside,
                MISSING,
            )
            quadratic += tl.load(c + i * P0 + j) * e * f
    limits = sign * mean
    if MISSING:
        limits = tl.where(label == label, limits, _UNBOUNDED)
        sign = tl.where(label == label, sign, 0.0)
    sign1, sign2 = _split(sign)
    cell, slopes = _log_pair(
        limits, sign1 * sign2 * tl.load(others + 2), table + NODES_AT, PANEL, COLUMNS
    )
    pull = slopes * sign  # derivatives in the standardised conditional means
    kind = value.dtype.element_ty
    tl.store(value + row, (cell - 0.5 * quadratic + tl.load(others + 3)).to(kind), mask=inside)
    to = gradient + row * (P0 + 2)
    tl.store(to[:, None] + P0 + which, (pull * inverse_sd * slope).to(kind), mask=inside[:, None])
    for i in tl.static_range(P0):
        by_mean = -tl.sum(tl.load(loading + i) * pull, 1)
        for j in tl.static_range(P0):
            f = _residual(
                outputs,
                y,
                scales + j,
                at + j * column_stride,
                y_at + j * y_column_stride,
                inside,
                MISSING,
            )
            by_mean += tl.load(c + i * P0 + j) * f
        tl.store(to + i, (by_mean * tl.load(scales + i)).to(kind), mask=inside)


def launch(outputs: Tensor, y: Tensor, table: Tensor, missing: bool) -> tuple[Tensor, Tensor]:
    """Return the log density (n,) and its gradient (n, p) in the dtype of ``outputs``; ``table`` is
    from ``pack``.
    """
    n, p = outputs.shape
    value, gradient = outputs.new_empty(n), outputs.new_empty(n, p)
    columns, warps = (32, 4) if n <= FEW else (4, 1)
    panel, nodes_at = (
        (SINGLE, 2 * FULL) if n > FEW and outputs.dtype == torch.float32 else (FULL, 0)
    )
    block = 32 * warps // columns
    with torch.cuda.device_of(outputs):
        _density_kernel[(max(1, triton.cdiv(n, block)),)](
            outputs,
            y,
            table,
            value,
            gradient,
            n,
            *outputs.stride(),
            *y.stride(),
            P0=p - 2,
            MISSING=missing,
            BLOCK=block,
            COLUMNS=columns,
            PANEL=panel,
            NODES_AT=nodes_at,
            num_warps=warps,
        )
    return value, gradient


# torch.compile takes the kernel as one opaque operation (replayed in a CUDA graph like any other)
_operation = torch.library.custom_op(
    "cevit_lib::log_density",
    launch,
    mutates_args=(),
    schema="(Tensor outputs, Tensor y, Tensor table, bool missing) -> (Tensor, Tensor)",
)


@_operation.register_fake
def _(outputs, y, table, missing):
    return outputs.new_empty(outputs.shape[0]), outputs.new_empty(outputs.shape)


def density_and_gradient(
    outputs: Tensor, y: Tensor, table: Tensor, missing: bool
) -> tuple[Tensor, Tensor]:
    """Return what ``launch`` does; under ``torch.compile`` by a registered operation."""
    return (_operation if torch.compiler.is_compiling() else launch)(outputs, y, table, missing)


@lru_cache
def works(device: torch.device, p0: int) -> bool:
    """Say whether the kernel can be built and run on a device, by doing so once; a warning says why
    not.
    """
    table = torch.full(
        (HEADER + p0 + p0 * p0 + 2 * p0 + 4,), 0.5, device=device, dtype=torch.float64
    )
    zeros = table.new_zeros(1, p0 + 2, dtype=torch.float32)  # as in training: it is built once
    try:
        return bool(launch(zeros, zeros, table, False)[0].isfinite().all())
    except Exception as error:  # no C compiler, a card or driver that Triton does not know, ...
        warn(
            f"the copula loss runs operation by operation on {device}: "
            f"Triton's kernel cannot be built ({error})",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
