r"""The mixed Gaussian copula log-likelihood: one probability per observation, whatever the labels.

Equation (10), Theorem 2.1 and Corollary A.1, with one normal probability for all label cells:

.. math::
   \log f(y) = -\tfrac{p_0}{2} \log 2\pi - \sum_j \log\sigma_j - \tfrac12 \log|\Gamma_{11}|
               - \tfrac12 e^\top \Gamma_{11}^{-1} e
               + \log \Phi_{p_1}\{ s \circ (\tilde\mu - c);\, 0,\, S \tilde V S \}

with :math:`e = (y - \mu)/\sigma`, :math:`c = \Phi^{-1}\{\mathcal S(-\mu)\}`, :math:`s = 2y - 1`,
:math:`S = diag(s)` and the conditional moments of ``cevit_lib.copula.conditioning``. The paper's
inclusion-exclusion subtracts probabilities and loses every digit once the cell is less likely than
the rounding error; the sign flip subtracts nothing.

``log_density_of_scores`` is the formula, and what runs, unless ``fast_route`` has the same numbers
sooner.
"""

import inspect
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from cevit_lib.copula.conditioning import (
    LikelihoodConstants,
    Table,
    likelihood_constants,
    pattern_index,
    tabulate,
)
from cevit_lib.copula.parameters import CopulaParameters, check_not_near_singular
from cevit_lib.copula.validation import check_labels, check_pair
from cevit_lib.normal import normal_score
from cevit_lib.normal.bivariate import log_cdf_of_pairs
from cevit_lib.normal.central import PlackettNodes
from cevit_lib.normal.multivariate import log_orthant
from cevit_lib.normal.univariate import has_memory, may_branch, score_slope, score_value

UNBOUNDED = 40.0
"""Stands for a limit of +inf: Phi(40) is 1 in every floating type, and the score there is
decorrelated first.
"""


class Scores(NamedTuple):
    """Observations on the scale of the latent scores; a missing one has residual and sign 0.

    Attributes
    ----------
    residual : tensor, shape (n, p0)
        ``e``.
    score : tensor, shape (n, p1)
        ``-c``, the normal score of a positive label's probability.
    sign : tensor, shape (n, p1)
        ``s``.
    """

    residual: Tensor
    score: Tensor
    sign: Tensor


def log_density_of_scores(at: Scores, c: LikelihoodConstants) -> Tensor:
    """Return the log density of each observation (n,), equation (10) put right, for any number of
    labels.
    """
    mean = _times(c.loading, at.residual)  # of the latent scores given the residuals, in their SDs
    upper = at.sign * (mean + at.score * c.inverse_sd)
    upper = torch.where(at.sign == 0, UNBOUNDED, upper)
    correlation = at.sign[..., :, None] * c.correlation * at.sign[..., None, :]
    cell = log_cell(upper, correlation + torch.diag_embed((at.sign == 0).to(upper)))
    quadratic = (_times(c.precision, at.residual) * at.residual).sum(-1)
    return cell - 0.5 * quadratic + c.constant


def log_cell(upper: Tensor, correlation: Tensor) -> Tensor:
    """Return the log probability (n,) that standard scores lie below ``upper`` (n, p1)."""
    if upper.shape[-1] == 0:
        return upper.sum(-1)
    correlation = correlation.double().expand(*upper.shape, -1)
    return log_orthant(upper.double(), correlation).to(upper.dtype)


def _times(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Return ``matrices @ vectors`` for one matrix (1, a, b) or one for each row; vectors (n,
    b).
    """
    if matrices.shape[0] == 1:
        return linear(vectors, matrices[0])
    return (matrices @ vectors.unsqueeze(-1)).squeeze(-1)


def residuals_and_signs(
    outputs: Tensor, y: Tensor, inverse_scale: Tensor, missing: bool
) -> tuple[Tensor, Tensor]:
    """Return standardised residuals (n, p0) and the labels' signs (n, p1), 0 where not
    observed.
    """
    p0 = inverse_scale.shape[-1]
    if not missing:
        return (y[..., :p0] - outputs[..., :p0]) * inverse_scale, 2 * y[..., p0:] - 1
    observed = ~torch.isnan(y)
    y = torch.where(observed, y, 0.5)  # before any arithmetic: no NaN can reach a gradient
    residual, sign = residuals_and_signs(outputs, y, inverse_scale, False)
    return torch.where(observed[..., :p0], residual, 0.0), sign


def scores(outputs: Tensor, y: Tensor, inverse_scale: Tensor, missing: bool = True) -> Scores:
    """Return the observations as scores, differentiable in the outputs."""
    residual, sign = residuals_and_signs(outputs, y, inverse_scale, missing)
    return Scores(residual, normal_score(outputs[..., inverse_scale.shape[-1] :]), sign)


def log_density(
    outputs: Tensor,
    y: Tensor,
    parameters: CopulaParameters,
    *,
    validate: bool = True,
    missing: bool | None = None,
    tables: dict[bool, Table | None] | None = None,
) -> Tensor:
    r"""Return the log density of each observation, with all its constants (equation (10), put
    right).

    Parameters
    ----------
    outputs : tensor, shape (n, p)
        Conditional means of the continuous responses, then logits of the binary ones.
    y : tensor, shape (n, p)
        Responses, continuous first, in the same units; binary ones 0 or 1; NaN where not observed.
    parameters : CopulaParameters
        Gradients flow into its scale and correlation where those require them.
    validate : bool
        Check labels and the smallest eigenvalue. On CUDA that waits for the device: pass False in a
        training step.
    missing : bool, optional
        True: marginalise NaN responses. False: promise that ``y`` is complete. None: look on a CPU
        (cheap), assume True on an accelerator and under ``torch.compile`` or ``torch.func`` (where
        looking would wait or fail).
    tables : dict, optional
        ``tabulate(parameters, missing)`` by ``missing``, made once; ``CopulaLoss`` passes it.

    Returns
    -------
    tensor, shape (n,)
        In the dtype of ``outputs``; float32 for half precisions, also under autocast. An
        observation without a single observed response contributes 0.

    Raises
    ------
    ShapeError, LabelError, NotPositiveDefiniteError
        See ``cevit_lib.copula.validation`` and ``CopulaParameters``.

    Notes
    -----
    With two labels and fixed parameters the gradient is computed with the value (48 bytes saved for
    each observation in float32 at p = 4); second derivatives come from the reference. Works under
    ``torch.func.vmap``, ``torch.func.grad`` and ``torch.compile`` with ``validate=False``.
    """
    check_pair(outputs, y, parameters)
    if validate:
        check_labels(y, parameters.p0)
        if tables is None:
            check_not_near_singular(parameters)
    with without_autocast(outputs):
        outputs, y = same_dtype(outputs, y)
        missing = may_be_missing(y) if missing is None else missing
        table = tables[missing] if tables else tabulate(parameters, missing)
        if table is None:
            c = likelihood_constants(parameters, ~torch.isnan(y[..., : parameters.p0])).to(outputs)
            return log_density_of_scores(scores(outputs, y, c.inverse_scale), c)
        pair = fast_route(outputs.detach(), y, table, missing)
        if pair is None:
            return _reference(outputs, y, table, missing)
        return _WithGradient.apply(outputs, y, *pair, table, missing)


def without_autocast(outputs: Tensor):
    """Return a context in which ``torch.autocast`` casts nothing down (entered only where it is
    on).
    """
    kind = outputs.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def same_dtype(outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in the dtype of ``outputs``, float32 at least."""
    dtype = outputs.dtype if outputs.dtype in (torch.float32, torch.float64) else torch.float32
    return outputs.to(dtype), y.to(device=outputs.device, dtype=dtype)


def may_be_missing(y: Tensor) -> bool:
    """Say whether ``y`` may hold NaN: looked at on a CPU, assumed elsewhere (never a wait for the
    device).
    """
    return not may_branch(y) or bool(torch.isnan(y).any())


def _reference(outputs: Tensor, y: Tensor, table: Table, missing: bool) -> Tensor:
    """Return the log density by the formula, with each row's constants."""
    c = table.constants.to(outputs)
    at = scores(outputs, y, c.inverse_scale, missing)
    return log_density_of_scores(at, c.at(pattern_index(y, c)) if missing else c)


def fast_route(
    outputs: Tensor, y: Tensor, table: Table, missing: bool
) -> tuple[Tensor, Tensor] | None:
    """Return the formula's value (n,) and gradient (n, p) sooner, or None where there is no such
    way.

    There is one for two labels and fixed parameters: on a GPU one kernel, on a CPU in closed form,
    with an integral whose nodes all observations of a pattern share.
    """
    if isinstance(table.fast, Tensor) and (torch.compiler.is_compiling() or has_memory(outputs)):
        from cevit_lib.copula.kernel import density_and_gradient  # imports Triton

        return density_and_gradient(outputs, y, table.fast, missing)
    if isinstance(table.fast, PlackettNodes) and may_branch(outputs):
        # on a CPU float64 costs no more than casting there and back where it is needed
        digits = 12 if outputs.dtype == torch.float64 else 8
        found = _in_closed_form(outputs.double(), y.double(), table, missing, digits)
        return tuple(part.to(outputs.dtype) for part in found)
    return None


def _in_closed_form(
    outputs: Tensor, y: Tensor, table: Table, missing: bool, digits: int
) -> tuple[Tensor, Tensor]:
    """Return value and gradient of ``log_density_of_scores`` on a CPU, in float64."""
    c, nodes = table
    if missing:
        index = pattern_index(y, c)
        c, nodes = c.at(index), nodes.at(index)
    residual, sign = residuals_and_signs(outputs, y, c.inverse_scale, missing)
    logits = outputs[..., residual.shape[-1] :]
    score = score_value(logits)
    upper = sign * (_times(c.loading, residual) + score * c.inverse_sd)
    if missing:
        upper = torch.where(sign == 0, UNBOUNDED, upper)
    cell, pull = log_cdf_of_pairs(upper, sign[..., 0] * sign[..., 1], nodes, digits)
    pull = pull * sign  # derivative in the standardised conditional mean; 0 for a missing label
    weighted = _times(c.precision, residual)
    by_mean = (weighted - _times(c.loading.mT, pull)) * c.inverse_scale
    gradient = torch.cat((by_mean, pull * c.inverse_sd * score_slope(logits, score)), -1)
    # a matrix product: a sum over so short a dimension is slow
    quadratic = (weighted * residual) @ residual.new_ones(residual.shape[-1])
    return torch.add(cell + c.constant, quadratic, alpha=-0.5), gradient


class _WithGradient(torch.autograd.Function):
    """A value whose gradient is known; saves that, ``outputs`` and ``y``."""

    @staticmethod
    def forward(outputs, y, value, gradient, table, missing):
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        outputs, y, _, gradient, *ctx.how = inputs
        ctx.save_for_backward(outputs, y, gradient)

    @staticmethod
    def backward(ctx, slope: Tensor):
        outputs, y, gradient = ctx.saved_tensors
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # a second derivative may be wanted, and the saved gradient is a constant
            value = _reference(outputs, y, *ctx.how).sum()
            (gradient,) = torch.autograd.grad(value, outputs, create_graph=True)
        return slope.unsqueeze(-1) * gradient, None, None, None, None, None


# PyTorch binds the arguments at every call by looking at the signature; stored, that costs nothing
_WithGradient.forward.__signature__ = inspect.signature(_WithGradient.forward)
