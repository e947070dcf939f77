r"""Orthant probabilities in any dimension by separation of variables on a randomised lattice (Genz
1992).

With the Cholesky factor ``L`` of the correlation matrix (coordinates with low limits first) the
probability is the mean over ``w`` uniform in the unit cube of ``prod_i Phi(b_i)``,
``b_i = (z_i - sum_{j<i} L_ij q_j) / L_ii`` and ``q_j = Phi^{-1}(w_j Phi(b_j))``: a product of
probabilities, positive by construction, and taken in logarithms. The cube is filled by a Richtmyer
lattice, folded, with independent random shifts. The shifts are drawn once with a fixed seed, so
that the same arguments give the same number.
"""

import functools
import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cevit_lib.normal.univariate import (
    Elementwise,
    log_normal_cdf,
    log_normal_quantile,
    mills_ratio,
)

SHIFTS = 8
ROOM = 2**17  # points times observations worked on at a time
PRIMES = (2, 3, 5, 7, 11, 13, 17)
# drawn at import: torch.func.vmap allows no random numbers
SHIFT = torch.rand(
    len(PRIMES), SHIFTS, 1, generator=torch.Generator().manual_seed(20_041), dtype=torch.float64
)


@functools.lru_cache(maxsize=16)
def _lattice(points: int, dimension: int, device: torch.device) -> Tensor:
    """Points in the unit cube, (dimension, points)."""
    each = points // SHIFTS
    step = torch.tensor(PRIMES[:dimension], dtype=torch.float64).sqrt()[:, None, None]
    raw = torch.frac(step * torch.arange(1, each + 1, dtype=torch.float64) + SHIFT[:dimension])
    return (2 * raw - 1).abs().clamp(1e-12, 1 - 1e-12).flatten(1).to(device)


class _Quantile(Elementwise):
    """``Phi^{-1}(exp(l))``, slope ``exp(l) / phi(q) = M(-q)``."""

    @staticmethod
    def forward(log_probability):
        return log_normal_quantile(log_probability)

    @staticmethod
    def backward(ctx, grad):
        return grad * mills_ratio(-ctx.saved_tensors[1]).clamp_max(1e150)


def _log_mean(z: Tensor, correlation: Tensor, lattice: Tensor) -> Tensor:
    """Log of the mean over the lattice's points, (n,), for ``z`` (n, p)."""
    z, matrix = reordered(z, correlation, z.argsort(-1))
    factor, failed = torch.linalg.cholesky_ex(matrix)
    # a matrix that is not positive definite has no probability: NaN says so, validation says why
    factor = torch.where(failed[:, None, None] == 0, factor, math.nan)
    p = z.shape[-1]
    total, drawn = 0.0, []
    for i in range(p):
        limit = z[:, i, None]
        for j, q in enumerate(drawn):
            limit = limit - factor[:, i, j, None] * q
        log_cdf = log_normal_cdf(limit / factor[:, i, i, None])
        total = total + log_cdf
        if i < p - 1:
            drawn.append(_Quantile.apply(log_cdf + lattice[i].log()))
    return torch.logsumexp(total, -1) - math.log(lattice.shape[-1])


def reordered(z: Tensor, correlation: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Limits (n, p) and correlation matrices (n, p, p) with each row's coordinates in a new order
    (n, p).
    """
    rows = correlation.gather(-2, order.unsqueeze(-1).expand_as(correlation))
    return z.gather(-1, order), rows.gather(-1, order.unsqueeze(-2).expand_as(correlation))


def lattice_log_probability(z: Tensor, correlation: Tensor, points: int) -> Tensor:
    """Log probability (n,) for ``z`` (n, p) and ``correlation`` (n, p, p); differentiable."""
    lattice = _lattice(points, z.shape[-1] - 1, z.device)
    rows = max(1, ROOM // points)
    if len(z) <= rows:
        return _log_mean(z, correlation, lattice)
    # in parts, each computed again in the backward pass: memory does not grow
    parts = zip(z.split(rows), correlation.split(rows), strict=True)
    return torch.cat([checkpoint(_log_mean, *part, lattice, use_reentrant=False) for part in parts])
