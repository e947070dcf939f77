r"""Orthant probabilities in any dimension by separation of variables on a fixed randomised lattice (Genz 1992).

With the Cholesky factor ``L`` of the correlation matrix (coordinates with low limits first) the probability is the
mean over ``w`` uniform in the unit cube of ``prod_i Phi(b_i)``, ``b_i = (z_i - sum_{j<i} L_ij q_j) / L_ii`` and
``q_j = Phi^{-1}(w_j Phi(b_j))``: a product of probabilities, positive by construction, and taken in logarithms.
The cube is filled by a Richtmyer lattice, folded, with independent random shifts whose spread tells the error. The
shifts are drawn once with a fixed seed, so that the same arguments give the same number.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from .univariate import log_normal_cdf, log_normal_quantile, mills_ratio

SHIFTS = 8
HALF_WIDTH = 4.0  # standard errors of a mean of 8, with room for tails heavier than Student's
ROOM = 2**17  # points times observations worked on at a time
PRIMES = (2, 3, 5, 7, 11, 13, 17)


@functools.lru_cache(maxsize=16)
def _lattice(points: int, dimension: int, device: torch.device) -> Tensor:
    """Points in the unit cube, (dimension, shifts, points / shifts)."""
    each = points // SHIFTS
    generator = torch.Generator().manual_seed(20_041)
    shift = torch.rand(dimension, SHIFTS, 1, generator=generator, dtype=torch.float64)
    step = torch.tensor(PRIMES[:dimension], dtype=torch.float64).sqrt()[:, None, None]
    raw = torch.frac(step * torch.arange(1, each + 1, dtype=torch.float64) + shift)
    return (2 * raw - 1).abs().clamp(1e-12, 1 - 1e-12).to(device)


class _Quantile(torch.autograd.Function):
    """``Phi^{-1}(exp(l))``, slope ``exp(l) / phi(q) = M(-q)``."""

    @staticmethod
    def forward(ctx, log_probability):
        quantile = log_normal_quantile(log_probability)
        ctx.save_for_backward(quantile)
        return quantile

    @staticmethod
    def backward(ctx, grad):
        (quantile,) = ctx.saved_tensors
        return grad * mills_ratio(-quantile).clamp_max(1e150)


def _log_shift_means(z: Tensor, factor: Tensor, lattice: Tensor) -> Tensor:
    """Log of the mean over each shift's points, (n, shifts), for ``z`` (n, p) and the Cholesky factor (n, p, p)."""
    p = z.shape[-1]
    total, drawn = 0.0, []
    for i in range(p):
        limit = z[:, i, None, None]
        for j, q in enumerate(drawn):
            limit = limit - factor[:, i, j, None, None] * q
        log_cdf = log_normal_cdf(limit / factor[:, i, i, None, None])
        total = total + log_cdf
        if i < p - 1:
            drawn.append(_Quantile.apply(log_cdf + lattice[i].log()))
    return torch.logsumexp(total.expand(*z.shape[:1], *lattice.shape[1:]), -1) - math.log(
        lattice.shape[-1]
    )


def _ordered_factor(z: Tensor, correlation: Tensor) -> tuple[Tensor, Tensor]:
    order = z.argsort(-1)
    z = z.gather(-1, order)
    rows = correlation.gather(-2, order.unsqueeze(-1).expand_as(correlation))
    matrix = rows.gather(-1, order.unsqueeze(-2).expand_as(correlation))
    factor, failed = torch.linalg.cholesky_ex(matrix)
    safe = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
    # a matrix that is not positive definite has no probability: NaN says so, the validation upstream says why
    return z, torch.where(failed[:, None, None] == 0, factor, safe * math.nan)


def lattice_log_probability(
    z: Tensor, correlation: Tensor, points: int, slopes: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log probability and its error (n,), and the derivatives in ``z`` (n, p) and ``correlation`` (n, p, p)."""
    n, p = z.shape
    lattice = _lattice(points, p - 1, z.device)
    chunk = max(1, ROOM // points)
    parts = []
    for start in range(0, n, chunk):
        with torch.set_grad_enabled(slopes):
            leaves = [
                v[start : start + chunk].detach().requires_grad_(slopes) for v in (z, correlation)
            ]
            means = _log_shift_means(*_ordered_factor(*leaves), lattice)
            value = torch.logsumexp(means, -1) - math.log(SHIFTS)
            derivatives = (
                torch.autograd.grad(value.sum(), leaves)
                if slopes
                else [torch.zeros_like(v) for v in leaves]
            )
        spread = torch.exp(means.detach() - value.detach().unsqueeze(-1)).std(-1) * (
            HALF_WIDTH / math.sqrt(SHIFTS)
        )
        parts.append((value.detach(), spread, *derivatives))
    return (
        tuple(torch.cat(columns) for columns in zip(*parts, strict=True))
        if parts
        else _nothing(z, correlation)
    )


def _nothing(z: Tensor, correlation: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return z.new_zeros(0), z.new_zeros(0), torch.zeros_like(z), torch.zeros_like(correlation)
