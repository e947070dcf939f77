"""The univariate normal: log distribution function, hazard, and the normal score of a logit.

Everything rests on the scaled complementary error function ``erfcx(t) = exp(t^2) erfc(t)``, which
neither underflows nor cancels where ``Phi(x)`` does both: ``Phi(x) = exp(-x^2 / 2) erfcx(-x / sqrt
2) / 2``.
"""

import math

import torch
from torch import Tensor

SQRT_HALF = math.sqrt(0.5)
SQRT_HALF_PI = math.sqrt(math.pi / 2)
SQRT_TWO_PI = math.sqrt(2 * math.pi)
LOG_TWO_PI = math.log(2 * math.pi)
HALF_LOG_TWO_PI = 0.5 * LOG_TWO_PI
FAR_LOGIT = 600.0  # beyond it a label's smaller probability is no float64 number


def has_memory(tensor: Tensor) -> bool:
    """Say whether the tensor has values, which those of ``torch.func`` have not."""
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return True


def may_branch(tensor: Tensor) -> bool:
    """Say whether its values may be looked at: on a CPU, not under ``torch.compile`` or
    ``torch.func``.
    """
    return not torch.compiler.is_compiling() and tensor.device.type == "cpu" and has_memory(tensor)


def normal_cdf(x: Tensor) -> Tensor:
    """``Phi(x)`` by ``erfc`` (PyTorch's ``ndtr`` flushes the lower tail to zero)."""
    return 0.5 * torch.special.erfc(-SQRT_HALF * x)


def mills_ratio(x: Tensor) -> Tensor:
    """``(1 - Phi(x)) / phi(x)``, finite for every ``x`` above -37 (float64) or -13 (float32),
    infinite below.
    """
    return SQRT_HALF_PI * torch.special.erfcx(SQRT_HALF * x)


def radial_mass(c: Tensor) -> Tensor:
    """``int_0^inf r exp(-r^2/2 - c r) dr = 1 - c M(c)`` for ``c >= 0``, ``M`` the Mills ratio.

    The difference loses ``c^2`` units of the last place, so that far out its asymptotic series
    takes over.
    """
    direct = 1 - c * mills_ratio(c)
    v = c.clamp_min(1.0).square().reciprocal()
    series = v * (1 - 3 * v * (1 - 5 * v * (1 - 7 * v * (1 - 9 * v * (1 - 11 * v)))))
    return torch.where(c > (12.0 if c.dtype == torch.float32 else 60.0), series, direct)


def hazard_excess(x: Tensor, hazard: Tensor) -> Tensor:
    """``x + h(x)``, about ``1 / |x|`` far out, where the sum would cancel: ``h R(-x)`` there, as
    ``h = 1 / M(-x)``.
    """
    far = x < -3.0
    return torch.where(
        far, hazard * radial_mass(torch.where(far, -x, 3.0)), torch.where(far, 0.0, x) + hazard
    )


class Elementwise(torch.autograd.Function):
    """A function of tensors of one shape, that of its value; saves them and the value for
    ``backward``.
    """

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*(v for v in inputs if isinstance(v, Tensor)), output)

    @classmethod
    def vmap(cls, info, in_dims, *operands):
        whole = list(operands)
        for i, (operand, dim) in enumerate(zip(operands, in_dims, strict=True)):
            if dim is not None:
                whole[i] = operand.movedim(dim, 0)
            elif isinstance(operand, Tensor):
                whole[i] = operand.expand(info.batch_size, *operand.shape)
        return cls.apply(*whole), 0


class _LogNormalCDF(Elementwise):
    """``log Phi`` with its hazard as derivative (PyTorch's own is wrong in float32 below about
    -100).
    """

    @staticmethod
    def forward(x):
        return torch.special.log_ndtr(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * _Hazard.apply(ctx.saved_tensors[0])


class _Hazard(Elementwise):
    """``h(x) = phi(x) / Phi(x)``; ``h' = -h (x + h)``, where ``x + h`` is computed without
    cancellation.
    """

    @staticmethod
    def forward(x):
        return 1 / mills_ratio(-x)

    @staticmethod
    def backward(ctx, grad):
        x, hazard = ctx.saved_tensors
        return -grad * hazard * hazard_excess(x, hazard)


def log_normal_cdf(x: Tensor) -> Tensor:
    """``log Phi(x)``, elementwise, with derivatives that are right in float32 and float64 at any
    distance.

    Parameters
    ----------
    x : Tensor, any shape

    Returns
    -------
    Tensor, the shape of ``x``; ``-inf`` only at ``-inf`` or where ``x^2 / 2`` overflows.
    """
    return _LogNormalCDF.apply(x)


def normal_hazard(x: Tensor) -> Tensor:
    """``phi(x) / Phi(x)``, the derivative of ``log Phi`` and the mean of ``-Z`` given ``Z < x``."""
    return _Hazard.apply(x)


class _NormalScore(Elementwise):
    """``Phi^{-1}(S(mu))`` of float64 logits."""

    @staticmethod
    def forward(logits):
        return score_value(logits)

    @staticmethod
    def backward(ctx, grad):
        return grad * score_slope(*ctx.saved_tensors)


def score_value(logits: Tensor) -> Tensor:
    """``Phi^{-1}(S(mu))`` of float64 logits from the smaller tail, without autograd."""
    size = logits.abs()
    score = -torch.special.ndtri(torch.sigmoid(-size.clamp_max(FAR_LOGIT)))
    if not (may_branch(logits) and bool((size <= FAR_LOGIT).all())):
        score = torch.where(size > FAR_LOGIT, _far_score(size.clamp_min(FAR_LOGIT)), score)
    return torch.copysign(score, logits)


def score_slope(logits: Tensor, score: Tensor) -> Tensor:
    """``dq / dmu = S(-|mu|) S(|mu|) / phi(q)`` at ``q = Phi^{-1}(S(mu))``, without overflow: 0.6267
    at zero, about ``1 / |q|`` far out.
    """
    size = logits.abs()
    above = torch.sigmoid(size)
    return torch.exp(0.5 * score * score - size) * (above * above) * SQRT_TWO_PI


def _far_score(size: Tensor) -> Tensor:
    """Solve ``log Phi(-q) = -size`` by Newton's method from the first term of the asymptotic
    series.
    """
    q = (2 * size - torch.log(4 * math.pi * size)).sqrt()
    for _ in range(2):
        log_mills = torch.log(mills_ratio(q))
        q = q + (size - 0.5 * q.square() - HALF_LOG_TWO_PI + log_mills) * torch.exp(log_mills)
    return q


def log_normal_quantile(log_probability: Tensor) -> Tensor:
    """``Phi^{-1}(exp(l))`` without autograd, finite however small the probability."""
    near = torch.special.ndtri(torch.exp(log_probability.clamp_min(-FAR_LOGIT)))
    size = -log_probability.clamp_max(-FAR_LOGIT)
    return torch.where(log_probability < -FAR_LOGIT, -_far_score(size), near)


def normal_score(logits: Tensor) -> Tensor:
    """The normal score ``q = Phi^{-1}(S(mu))`` of a logit ``mu`` (``S`` the logistic function),
    elementwise.

    The threshold of a binary response is ``c = -q`` (the paper's ``Phi^{-1}(S(-mu))``). The naive
    formula saturates at ``mu = 17`` in float32 and 37 in float64; this one is right to a unit of
    the last place, or of 1 near zero, for every finite logit, and so are its first and second
    derivatives.

    Parameters
    ----------
    logits : Tensor, any shape

    Returns
    -------
    Tensor, the shape and dtype of ``logits``; computed in float64.
    """
    return _NormalScore.apply(logits.double()).to(logits.dtype)
