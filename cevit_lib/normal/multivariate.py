"""The probability of an orthant under a normal in up to eight dimensions, in log space, with derivatives.

One and two dimensions are exact in relative terms; three and four are one-dimensional integrals of those, exact in
absolute terms, with the lattice taking over where the probability is below 1e-9; five to eight use the lattice.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import ShapeError
from .bivariate import log_bivariate_normal_cdf
from .lattice import SHIFTS, lattice_log_probability
from .plackett import LEAST_VARIANCE, plackett_probability
from .univariate import HALF_LOG_TWO_PI, LOG_TWO_PI, log_normal_cdf, may_branch

LARGEST_DIMENSION = 8
LEAST_PLACKETT = 2e-9
LARGEST_LIMIT = 1e6
INFINITE = 1e30
LARGEST_LOG_SLOPE = (
    25.0  # keeps derivatives finite where the lattice's own error, far out, exceeds every bound
)
RARE_POINTS = 256  # of the lattice, where it stands in for Plackett's integral


class LogProbability(NamedTuple):
    """A log probability and a bound of its error that holds in at least 95 of 100 cases, both ``(...)``."""

    value: Tensor
    error: Tensor


def _rows(z: Tensor, correlation: Tensor) -> tuple[Tensor, Tensor]:
    p = z.shape[-1]
    return z.reshape(-1, p).clamp(-LARGEST_LIMIT, LARGEST_LIMIT), correlation.reshape(-1, p, p)


def _plackett_value(z: Tensor, correlation: Tensor) -> tuple[Tensor, Tensor]:
    """Log probability and its error for rows, p = 3 or 4."""
    probability = plackett_probability(z, correlation)
    rare = ~(probability > LEAST_PLACKETT)
    value = torch.where(rare, -math.inf, probability).clamp_min(LEAST_PLACKETT).log()
    error = 1e-15 / probability.clamp_min(LEAST_PLACKETT) + 1e-12
    chosen = rare.nonzero().squeeze(-1) if may_branch(z) else torch.arange(len(z), device=z.device)
    if chosen.numel():
        far, far_error, _, _ = lattice_log_probability(
            z[chosen], correlation[chosen], RARE_POINTS, slopes=False
        )
        value[chosen] = torch.where(rare[chosen], far, value[chosen])
        error[chosen] = torch.where(rare[chosen], far_error, error[chosen])
    return value, error


def _given(z: Tensor, correlation: Tensor, fixed: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Log density of the ``fixed`` coordinates at their limits; standardised limits and correlation of the others."""
    others = [k for k in range(z.shape[-1]) if k not in fixed]
    fixed = list(fixed)
    cross = correlation[..., others, :][..., fixed]
    if len(fixed) == 1:
        weights, log_density = cross, -0.5 * z[..., fixed[0]].square() - HALF_LOG_TWO_PI
    else:
        r = correlation[..., fixed[0], fixed[1]]
        variance = (1 - r * r).clamp_min(LEAST_VARIANCE)
        first, second = cross.unbind(-1)
        r_ = r.unsqueeze(-1)
        weights = (
            torch.stack((first - r_ * second, second - r_ * first), -1) / variance[..., None, None]
        )
        x, y = z[..., fixed[0]], z[..., fixed[1]]
        log_density = (
            -0.5 * (x.square() + (y - r * x).square() / variance)
            - 0.5 * variance.log()
            - LOG_TWO_PI
        )
    limit = z[..., others] - (weights * z[..., fixed].unsqueeze(-2)).sum(-1)
    covariance = correlation[..., others, :][..., others] - weights @ cross.transpose(-1, -2)
    sd = torch.diagonal(covariance, dim1=-2, dim2=-1).clamp_min(LEAST_VARIANCE).sqrt()
    return log_density, limit / sd, covariance / (sd.unsqueeze(-1) * sd.unsqueeze(-2))


def _given_each(z: Tensor, correlation: Tensor, sets: list[tuple[int, ...]]) -> list[Tensor]:
    return [
        torch.stack(v) for v in zip(*(_given(z, correlation, fixed) for fixed in sets), strict=True)
    ]


def _ratio(log_density: Tensor, limit: Tensor, given: Tensor, value: Tensor) -> Tensor:
    return torch.exp(
        (log_density + log_orthant(limit, given).value - value).clamp_max(LARGEST_LOG_SLOPE)
    )


def _plackett_derivatives(z: Tensor, correlation: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Derivatives of ``log Phi_p`` in closed form: densities times probabilities of two dimensions less (or one)."""
    p = z.shape[-1]
    z = z.clamp(-LARGEST_LIMIT, LARGEST_LIMIT)
    density, limit, given = _given_each(z, correlation, [(i,) for i in range(p)])
    by_z = _ratio(density, limit, given, value).movedim(0, -1)
    pairs = [(i, j) for i in range(p) for j in range(i)]
    density, limit, given = _given_each(z, correlation, pairs)
    by_pair = _ratio(density, limit, given, value)
    zero = torch.zeros_like(value)
    half = {pair: 0.5 * d for pair, d in zip(pairs, by_pair.unbind(0), strict=True)}
    rows = [
        torch.stack([half.get((max(i, j), min(i, j)), zero) for j in range(p)], -1)
        for i in range(p)
    ]
    return by_z, torch.stack(rows, -2)


def _front(info, in_dims, operands) -> list[Tensor]:
    return [
        o.expand(info.batch_size, *o.shape) if d is None else o.movedim(d, 0)
        for o, d in zip(operands, in_dims, strict=False)
    ]


class _Plackett(torch.autograd.Function):
    """p = 3 and 4; the backward pass is made of differentiable functions, so that second derivatives exist."""

    @staticmethod
    def forward(z, correlation):
        value, error = _plackett_value(*_rows(z, correlation))
        return value.view(z.shape[:-1]), error.view(z.shape[:-1])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[0])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad, _):
        by_z, by_correlation = _plackett_derivatives(*ctx.saved_tensors)
        return grad[..., None] * by_z, grad[..., None, None] * by_correlation

    @staticmethod
    def vmap(info, in_dims, *operands):
        return _Plackett.apply(*_front(info, in_dims, operands)), (0, 0)


class _Lattice(torch.autograd.Function):
    """p = 5 to 8; derivatives are those of the lattice sum itself, computed with it (first order only)."""

    @staticmethod
    def forward(z, correlation, points):
        p, batch = z.shape[-1], z.shape[:-1]
        value, error, by_z, by_r = lattice_log_probability(
            *_rows(z, correlation), points, slopes=True
        )
        return value.view(batch), error.view(batch), by_z.view(*batch, p), by_r.view(*batch, p, p)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*output[2:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad, *_):
        by_z, by_correlation = ctx.saved_tensors
        return grad[..., None] * by_z, grad[..., None, None] * by_correlation, None

    @staticmethod
    def vmap(info, in_dims, *operands):
        return _Lattice.apply(*_front(info, in_dims, operands[:2]), operands[2]), (0, 0, 0, 0)


def log_orthant(z: Tensor, correlation: Tensor, points: int = 1024) -> LogProbability:
    """``log Phi_p(z; correlation)`` of float64 tensors ``(..., p)`` and ``(..., p, p)`` of one batch shape."""
    p = z.shape[-1]
    if p == 1:
        value = log_normal_cdf(z[..., 0])
    elif p == 2:
        value = log_bivariate_normal_cdf(z[..., 0], z[..., 1], correlation[..., 0, 1].clamp(-1, 1))
    elif p <= 4:
        return LogProbability(*_Plackett.apply(z, correlation))
    else:
        return LogProbability(*_Lattice.apply(z, correlation, points)[:2])
    return LogProbability(value, 1e-13 * (1 + value.detach().abs()))


def _check_shapes(upper: Tensor, mean: Tensor, covariance: Tensor) -> int:
    p = covariance.shape[-1]
    if (
        covariance.ndim < 2
        or covariance.shape[-2] != p
        or upper.shape[-1:] != (p,)
        or mean.shape[-1:] != (p,)
    ):
        raise ShapeError(
            f"upper {tuple(upper.shape)}, mean {tuple(mean.shape)} and covariance {tuple(covariance.shape)} do not "
            "fit: expected (..., p), (..., p) and (..., p, p)"
        )
    if not 1 <= p <= LARGEST_DIMENSION:
        raise ShapeError(
            f"the normal probability is implemented for 1 to {LARGEST_DIMENSION} dimensions, seen {p}"
        )
    return p


def log_multivariate_normal_cdf(
    upper: Tensor,
    mean: Tensor,
    covariance: Tensor,
    *,
    points: int = 1024,
    return_error: bool = False,
) -> Tensor | LogProbability:
    """``log P(Z < upper)`` in all coordinates, ``Z ~ N_p(mean, covariance)``, ``p`` from 1 to 8.

    Parameters
    ----------
    upper, mean : Tensor (..., p)
        Infinite limits are allowed.
    covariance : Tensor (..., p, p)
        Positive definite; leading dimensions broadcast.
    points : int
        Lattice points where the lattice is used; a multiple of 8.
    return_error : bool
        Also return a bound of the error of the log probability, honest in at least 95 of 100 cases.

    Returns
    -------
    Tensor (...) or LogProbability
        Computed in float64, rounded to the dtype of the operands. Never NaN for a positive definite covariance, never
        the logarithm of a negative number.

    Raises
    ------
    ShapeError
        Shapes do not fit, or ``p`` is not between 1 and 8.

    Notes
    -----
    Second derivatives up to ``p = 4``. ``torch.func.vmap`` works throughout; ``torch.compile`` breaks the graph from
    ``p = 5`` on.
    """
    _check_shapes(upper, mean, covariance)
    dtype = torch.promote_types(torch.promote_types(upper.dtype, mean.dtype), covariance.dtype)
    upper, mean, covariance = upper.double(), mean.double(), covariance.double()
    sd = torch.diagonal(covariance, dim1=-2, dim2=-1).sqrt()
    impossible = (upper == -math.inf).any(-1)
    z = (
        upper.clamp(-INFINITE, INFINITE) - mean
    ) / sd  # an infinite limit would make NaN of a zero gradient
    correlation = covariance / (sd.unsqueeze(-1) * sd.unsqueeze(-2))
    batch = torch.broadcast_shapes(z.shape[:-1], correlation.shape[:-2])
    z, correlation = (
        z.expand(*batch, z.shape[-1]),
        correlation.expand(*batch, *correlation.shape[-2:]),
    )
    value, error = log_orthant(z, correlation, max(SHIFTS, points // SHIFTS * SHIFTS))
    value = torch.where(impossible, -math.inf, value).to(dtype)
    return LogProbability(value, error.to(dtype)) if return_error else value
