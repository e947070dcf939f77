r"""A fast route to the cell's probability where the correlation is one number up to its sign, as in a loss.

All label cells share :math:`|r|`, the conditional correlation of the two scores, so the nodes of Plackett's integral

.. math::
   \Phi_2(x, y; \pm r) = \Phi(x)\Phi(y) \pm \frac{1}{2\pi} \int_0^{\arcsin r}
       \exp\Big\{-\frac{x^2 + y^2 \mp 2 x y \sin t}{2 \cos^2 t}\Big\}\, dt

are constants of the loss: a matrix product, one exponential for each node, another product. Its absolute error is a few
times 1e-16, so observations of small probability are handed to ``cevit_lib.normal``, which is right in the tails.
"""

from __future__ import annotations

from functools import lru_cache
from math import log, pi, sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cevit_lib.normal import log_bivariate_normal_cdf_with_gradients, log_normal_cdf
from cevit_lib.normal.univariate import score_slope, score_value
from cevit_lib.normal.wedge import log_wedge_value

RELIABLE = {torch.float32: 1e-7, torch.float64: 1e-3}
"""Least probability for the fast route: its relative error is then below 1e-8 (float32) and 1e-12 (float64)."""

NODES = ((0.5, 10), (0.75, 12), (0.925, 20), (0.97, 28), (0.99, 40))
"""Largest correlation and number of Gauss-Legendre nodes that reach the rounding error of float64 there."""


class Rule(NamedTuple):
    """Nodes of the integral for one correlation, in float64."""

    exponents: Tensor  # (2, k): factors of x^2 + y^2 and of +- x y
    weights: Tensor  # (k,), four times those of the integral
    correlation: Tensor  # ()


_legendre = lru_cache(maxsize=None)(np.polynomial.legendre.leggauss)


def rule(correlation: float) -> Rule | None:
    """Return the nodes for a conditional correlation, or None where it is too large for a plain rule."""
    size = abs(correlation)
    count = next((number for largest, number in NODES if size <= largest), None)
    if count is None:
        return None
    node, weight = _legendre(count)
    sine = np.sin(0.5 * np.arcsin(correlation) * (node + 1))
    exponents = np.stack((np.full(count, -0.5), sine)) / (1 - sine**2)
    weights = 0.5 * np.arcsin(correlation) * weight * 4 / (2 * pi)
    return Rule(
        *(torch.tensor(part, dtype=torch.float64) for part in (exponents, weights, correlation))
    )


def rules(correlation: Tensor) -> tuple[Rule | None, ...] | None:
    """Return the nodes for each conditional correlation matrix (m, 2, 2); None where the fast route is not taken.

    It looks at values, so not on an accelerator, under ``torch.compile`` or in ``torch.func.vmap``.
    """
    if (
        correlation.shape[-1] != 2
        or correlation.device.type != "cpu"
        or torch.compiler.is_compiling()
    ):
        return None
    try:
        return tuple(rule(value) for value in correlation[:, 0, 1].tolist())
    except RuntimeError:  # a tensor of torch.func.vmap has no values to look at
        return None


def log_cells_by_pattern(
    upper: Tensor,
    product: Tensor,
    correlation: Tensor,
    tabled: tuple[Rule | None, ...],
    index: Tensor | None,
    least: float,
) -> tuple[Tensor, Tensor]:
    """Return what ``log_cell_with_slopes`` does for rows of several patterns; ``index`` (n,) is each row's rule."""
    if index is None:
        return log_cell_with_slopes(upper, product, correlation, tabled[0], least)
    value, slopes = upper.new_empty(len(upper)), torch.empty_like(upper)
    for (
        pattern
    ) in index.unique().tolist():  # patterns of missing continuous responses, at most 2 ** p0
        rows = (index == pattern).nonzero().squeeze(-1)
        found = log_cell_with_slopes(
            upper[rows], product[rows], correlation[rows], tabled[pattern], least
        )
        value[rows], slopes[rows] = found
    return value, slopes


def quick_score(logit: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the score :math:`q = \Phi^{-1}\{\mathcal S(\mu)\}` and :math:`dq/d\mu`, float64 on a CPU.

    Close to zero the score's absolute, not its relative error is that of float64: a limit of integration needs no more.
    The slope is :math:`\mathcal S(-|\mu|) \mathcal S(|\mu|) / \phi(q)`, written without overflow.
    """
    size = logit.abs()
    if not bool((size <= 600.0).all()):  # a tail that is no float64 number
        score = score_value(logit)
        return score, score_slope(logit, score)
    below = torch.sigmoid(-size)
    score = torch.special.ndtri(below)
    slope = torch.exp(0.5 * score * score - size).mul_((1 - below).square_()).mul_(sqrt(2 * pi))
    return torch.copysign(score, logit), slope


def exact_cell_with_slopes(upper: Tensor, rho: Tensor) -> tuple[Tensor, Tensor]:
    """Return log probability and slopes from ``cevit_lib.normal``: right everywhere, no waiting on CUDA."""
    value, first, second, _ = log_bivariate_normal_cdf_with_gradients(
        upper[..., 0], upper[..., 1], rho
    )
    return value, torch.stack((first, second), -1)


def _far_cells(upper: Tensor, rho: Tensor, swapped: Tensor) -> tuple[Tensor, Tensor]:
    """Return log probability and slopes of a few rows by the one formula that holds everywhere."""
    value = log_wedge_value(upper[:, 0], upper[:, 1], rho, 16)
    return value, torch.exp(
        log_normal_cdf(swapped) - 0.5 * upper * upper - 0.5 * log(2 * pi) - value.unsqueeze(-1)
    )


def log_cell_with_slopes(
    upper: Tensor, product: Tensor, correlation: Tensor, nodes: Rule | None, least: float
) -> tuple[Tensor, Tensor]:
    """Return the log probability (n,) and its derivatives in the upper limits (n, 2), float64; no autograd, CPU only.

    Parameters
    ----------
    upper : tensor, shape (n, 2)
        Standardised upper limits.
    product : tensor, shape (n,)
        Product of the two labels' signs: 1, -1, or 0 where a label is missing.
    correlation : tensor, shape (1,) or (n,)
        Conditional correlation of the unflipped scores.
    nodes : Rule or None
        Its rule; None leaves everything to ``cevit_lib.normal``.
    least : float
        Probabilities below it are computed by ``cevit_lib.normal``.
    """
    if nodes is None:
        return exact_cell_with_slopes(upper, product * correlation)
    rho = product * nodes.correlation
    standard = torch.rsqrt(1 - rho * rho)
    swapped = torch.addcmul(
        upper.flip(-1), rho.unsqueeze(-1), upper, value=-1
    ) * standard.unsqueeze(-1)
    below = torch.special.erfc(torch.cat((upper, swapped), -1).mul_(-sqrt(0.5)))  # 2 Phi, (n, 4)
    square = upper * upper
    features = torch.stack(
        (square[:, 0] + square[:, 1], upper[:, 0] * upper[:, 1] * product), -1
    )  # (n, 2)
    integral = torch.mv(torch.mm(features, nodes.exponents).exp_(), nodes.weights)
    probability = 0.25 * torch.addcmul(below[:, 0] * below[:, 1], product, integral)
    slopes = (
        square.mul_(-0.5)
        .exp_()
        .mul_(below[:, 2:])
        .div_(probability.unsqueeze(-1))
        .mul_(0.5 / sqrt(2 * pi))
    )
    value = probability.log()
    hard = ~(probability > least)
    if hard.any():
        rows = hard.nonzero().squeeze(-1)
        value[rows], slopes[rows] = _far_cells(upper[rows], rho[rows], swapped[rows])
    return value, slopes
