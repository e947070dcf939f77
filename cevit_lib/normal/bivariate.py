"""The bivariate normal distribution function: value, logarithm and slopes, by the quicker way that
is exact.

On a CPU most probabilities come from Plackett's integral (``central``); small ones, and
correlations close to one, from the formula that holds everywhere (``wedge``). Elsewhere, and under
``torch.compile`` and ``vmap``, all come from the latter: to pick observations is to wait for the
device.
"""

import torch
from torch import Tensor

from cevit_lib.normal.central import LARGEST, PlackettNodes
from cevit_lib.normal.univariate import (
    HALF_LOG_TWO_PI,
    SQRT_HALF,
    SQRT_TWO_PI,
    Elementwise,
    log_normal_cdf,
    may_branch,
    normal_cdf,
)
from cevit_lib.normal.wedge import (
    conditional_limits,
    finite,
    log_wedge_slopes,
    log_wedge_value,
)

LEAST = {8: 1e-7, 12: 1e-3}
"""By digits of ``Phi_2`` that are right, the probability from which on Plackett's integral is to be
trusted.
"""
DIGITS = {torch.float32: 8, torch.float64: 12}


class _LogBivariate(Elementwise):
    """Value by quadrature, derivatives in closed form; operands are float64 and already
    broadcast.
    """

    @staticmethod
    def forward(x, y, correlation, digits):
        """Return ``log Phi_2``, to 8 or 12 digits of ``Phi_2``."""
        if not may_branch(correlation):
            return log_wedge_value(x, y, correlation)
        near = finite(x, y)
        first, second = normal_cdf(torch.stack(near))
        probability = first * second + PlackettNodes.of(correlation).integral(*near, 1.0)
        value = probability.log()
        hard = ~(probability > LEAST[digits]) | (correlation.abs() > LARGEST)
        if hard.any():
            value[hard] = log_wedge_value(x[hard], y[hard], correlation[hard])
        return value

    @staticmethod
    def backward(ctx, grad):
        return *(grad * slope for slope in log_wedge_slopes(*ctx.saved_tensors)), None


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
    operands = x, y, correlation
    tensors = sorted((v for v in operands if isinstance(v, Tensor)), key=Tensor.dim)
    dtypes = {v.dtype for v in tensors} or {torch.get_default_dtype()}
    dtype = torch.float64 if torch.float64 in dtypes else torch.float32
    device = tensors[-1].device if tensors else None
    exact = [torch.as_tensor(v, device=device, dtype=torch.float64) for v in operands]
    return _LogBivariate.apply(*torch.broadcast_tensors(*exact), DIGITS[dtype]).to(dtype)


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


def log_cdf_of_pairs(
    limits: Tensor, sign: Tensor, nodes: PlackettNodes, digits: int
) -> tuple[Tensor, Tensor]:
    """``log Phi_2`` (..., n) and its slopes in the limits (..., n, 2), float64, on a CPU, without
    autograd.

    Rows may share ``|rho|``, hence the nodes of Plackett's integral; those that it is not to be
    trusted with are computed by the wedge.

    Parameters
    ----------
    limits : Tensor (..., n, 2)
    sign : Tensor (..., n)
        1, -1 or 0, times the nodes' correlation the row's own.
    nodes : PlackettNodes
        Of correlations that broadcast with ``sign``.
    digits : {8, 12}
        How many digits of ``Phi_2`` are right. The slope in the correlation, where it is wanted, is
        ``cevit_lib.normal.wedge.correlation_slope``.
    """
    rho = sign * nodes.correlation
    standard = torch.rsqrt(1 - rho * rho).unsqueeze(-1)
    other = torch.addcmul(limits.flip(-1), rho.unsqueeze(-1), limits, value=-1) * standard
    below = torch.special.erfc(
        torch.cat((limits, other), -1).mul_(-SQRT_HALF)
    )  # 2 Phi, (..., n, 4)
    probability = torch.addcmul(
        nodes.integral(*limits.unbind(-1), sign), below[..., 0], below[..., 1], value=0.25
    )
    slopes = (limits * limits).mul_(-0.5).exp_().mul_(below[..., 2:])
    slopes.div_(probability.unsqueeze(-1)).mul_(0.5 / SQRT_TWO_PI)
    value = probability.log()
    hard = ~(probability > LEAST[digits]) | (rho.abs() > LARGEST)
    if hard.any():
        few, own = limits[hard], rho[hard]
        value[hard] = far = log_wedge_value(*few.unbind(-1), own)
        other = torch.stack(conditional_limits(*few.unbind(-1), own)[:2], -1)
        exponent = log_normal_cdf(other) - 0.5 * few * few - HALF_LOG_TWO_PI
        slopes[hard] = torch.exp(exponent - far.unsqueeze(-1))
    return value, slopes
