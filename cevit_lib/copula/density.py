r"""The mixed Gaussian copula log-likelihood: one probability per observation, whatever the labels.

Theorem 2.1 and Corollary A.1, written with one normal probability for all label cells:

.. math::
   \log f(y) = -\tfrac{p_0}{2} \log 2\pi - \sum_j \log\sigma_j - \tfrac12 \log|\Gamma_{11}|
               - \tfrac12 e^\top \Gamma_{11}^{-1} e + \log \Phi_{p_1}\{ s \circ (\tilde\mu - c);\, 0,\, S \tilde V S \}

with :math:`e = (y - \mu)/\sigma`, :math:`c = \Phi^{-1}\{\mathcal S(-\mu)\}`, :math:`s = 2y - 1`, :math:`S = diag(s)`
and the conditional moments of ``cevit_lib.copula.conditional``. The paper's inclusion-exclusion subtracts probabilities
and loses every digit once the cell is less likely than the rounding error; the sign flip subtracts nothing.
"""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from math import log, pi
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from cevit_lib.copula.conditional import (
    LARGEST_TABLE,
    Conditional,
    Table,
    Tables,
    all_patterns,
    condition,
    pattern_index,
    tabulate_one,
)
from cevit_lib.copula.parameters import CopulaParameters, check_not_near_singular
from cevit_lib.copula.printed import printed_log_density
from cevit_lib.copula.quadrant import (
    RELIABLE,
    Rule,
    exact_cell_with_slopes,
    log_cells_by_pattern,
    quick_score,
)
from cevit_lib.copula.validation import check_labels, check_pair
from cevit_lib.normal import (
    log_bivariate_normal_cdf,
    log_multivariate_normal_cdf,
    log_normal_cdf,
    normal_hazard,
    normal_score,
)
from cevit_lib.normal.univariate import score_slope, score_value

UNBOUNDED = 40.0
"""Stands for an upper limit of +inf: Phi(40) is 1 in every floating type, and the score there is decorrelated first."""

HALF_LOG_2PI = 0.5 * log(2 * pi)


def log_density(
    outputs: Tensor,
    y: Tensor,
    parameters: CopulaParameters,
    *,
    validate: bool = True,
    missing: bool | None = None,
    formula: str = "right",
    tables: Tables | None = None,
) -> Tensor:
    r"""Return the log density of each observation, with all its constants (the paper's equation (10), put right).

    Parameters
    ----------
    outputs : tensor, shape (n, p)
        Conditional means of the continuous responses, then logits of the binary ones.
    y : tensor, shape (n, p)
        Responses, continuous first, in the same units; binary ones 0 or 1; NaN where not observed.
    parameters : CopulaParameters
        Gradients flow into its scale and correlation where those require them.
    validate : bool
        Check labels and the smallest eigenvalue. On CUDA that waits for the device: pass False in a training step.
    missing : bool, optional
        True: marginalise NaN responses. False: promise that ``y`` is complete. None: look on a CPU (cheap), assume True
        on an accelerator and under ``torch.compile`` or ``torch.func`` (where looking would wait or fail).
    formula : {"right", "printed", "printed-corollary"}
        The printed formulas are kept to show where they fail; they can be the logarithm of a negative number (NaN).
    tables : Tables, optional
        ``tabulate(parameters)`` made once; ``CopulaLoss`` passes it.

    Returns
    -------
    tensor, shape (n,)
        In the dtype of ``outputs``; float32 for half precisions, also under autocast. An observation without a single
        observed response contributes 0.

    Raises
    ------
    ShapeError, LabelError, NotPositiveDefiniteError
        See ``cevit_lib.copula.validation`` and ``CopulaParameters``.

    Notes
    -----
    With ``p1 <= 2`` and fixed parameters the gradient is computed with the value (48 bytes saved for each observation
    in float32 at p = 4); second derivatives recompute. Works under ``torch.func.vmap``, ``torch.func.grad`` and
    ``torch.compile`` with ``validate=False``.
    """
    check_pair(outputs, y, parameters)
    if validate:
        check_labels(y, parameters.p0)
        if tables is None:
            check_not_near_singular(parameters)
    with without_autocast(outputs):
        outputs, y = same_dtype(outputs, y)
        if formula != "right":
            return printed_log_density(outputs, y, parameters, formula)
        if missing is None:
            missing = may_be_missing(y)
        table = (tables.patterns if missing else tables.complete) if tables else None
        if table is None and not parameters.requires_grad:
            table = tabulate_one(parameters, missing)
        if parameters.requires_grad or parameters.p1 > 2 or table is None:
            return _composite(outputs, y, _rows(outputs, y, parameters, table, missing), missing)
        if torch.compiler.is_compiling() or not table.rules:  # the rules would branch on values
            return _LogDensity.apply(
                outputs, y, missing, table.packed, *table.constants.to(outputs)
            )[0]
        return _LogDensity.apply(
            outputs, y, missing, table.rules, *table.constants.to(torch.float64)
        )[0]


def without_autocast(outputs: Tensor):
    """Return a context in which ``torch.autocast`` casts nothing down (entered only where it is on: it costs time)."""
    kind = outputs.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def same_dtype(outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return both in the dtype of ``outputs``, float32 at least."""
    dtype = outputs.dtype if outputs.dtype in (torch.float32, torch.float64) else torch.float32
    return outputs.to(dtype), y.to(device=outputs.device, dtype=dtype)


def may_be_missing(y: Tensor) -> bool:
    """Say whether ``y`` may hold NaN: looked at on a CPU, assumed elsewhere (never a wait for the device)."""
    if y.device.type != "cpu" or torch.compiler.is_compiling():
        return True
    try:
        return bool(torch.isnan(y).any())
    except RuntimeError:  # inside torch.func.vmap no value can be looked at
        return True


def _rows(
    outputs: Tensor, y: Tensor, parameters: CopulaParameters, table: Table | None, missing: bool
) -> Conditional:
    """Return the constants: one shared row, or one for each observation where responses may be missing."""
    constants = table.constants if table else None
    if not missing:
        return (constants or condition(parameters)).to(outputs)
    observed = ~torch.isnan(y[..., : parameters.p0])
    if constants is None and parameters.p0 <= LARGEST_TABLE:
        constants = condition(parameters, all_patterns(parameters.p0, y.device))
    if constants is None:
        return condition(parameters, observed).to(outputs)
    return constants.to(outputs).at(pattern_index(observed))


def _residuals_and_signs(
    outputs: Tensor, y: Tensor, c: Conditional, missing: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return standardised residuals (n, p0), signs (n, p1) and what is observed (n, p); missing ones enter as 0."""
    p0 = c.inverse_scale.shape[-1]
    observed = None
    if missing:
        observed = ~torch.isnan(y)
        y = torch.where(
            observed, y, 0.5
        )  # sign 0; the residual is replaced below, before any NaN can reach a gradient
    residual = (y[..., :p0] - outputs[..., :p0]) * c.inverse_scale
    if missing:
        residual = torch.where(observed[..., :p0], residual, 0.0)
    return residual, 2 * y[..., p0:] - 1, observed


def _apply(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Return ``matrices @ vectors`` for one matrix (1, a, b) or one for each row (n, a, b); vectors (n, b)."""
    if matrices.shape[0] == 1:
        return linear(vectors, matrices[0])
    return (matrices @ vectors.unsqueeze(-1)).squeeze(-1)


def _standardise(
    score: Tensor, residual: Tensor, sign: Tensor, c: Conditional, observed: Tensor | None
) -> Tensor:
    """Return the standardised upper limits ``s (mu~ - c) / sd`` (n, p1), unbounded where a label is missing."""
    upper = sign * (_apply(c.loading, residual) + score * c.inverse_sd)
    return (
        upper
        if observed is None
        else torch.where(observed[..., c.inverse_scale.shape[-1] :], upper, UNBOUNDED)
    )


def upper_limits(
    outputs: Tensor, y: Tensor, c: Conditional, missing: bool
) -> tuple[Tensor, Tensor]:
    """Return upper limits and signs (n, p1): in the label cell the flipped, standardised scores stay below them."""
    residual, sign, observed = _residuals_and_signs(outputs, y, c, missing)
    return _standardise(
        normal_score(outputs[..., c.inverse_scale.shape[-1] :]), residual, sign, c, observed
    ), sign


def log_cell(upper: Tensor, sign: Tensor, c: Conditional) -> Tensor:
    """Return the log probability of each observation's label cell (n,)."""
    p1 = upper.shape[-1]
    if p1 == 0:
        return upper.new_zeros(upper.shape[:-1])
    if p1 == 1:
        return log_normal_cdf(upper[..., 0])
    if p1 == 2:
        return log_bivariate_normal_cdf(upper[..., 0], upper[..., 1], _flipped_correlation(sign, c))
    # a missing label has sign 0, hence no correlation with the others: its factor is Phi(40) = 1
    flipped = c.correlation * sign[..., :, None] * sign[..., None, :] + torch.diag_embed(
        1 - sign * sign
    )
    return log_multivariate_normal_cdf(upper, torch.zeros_like(upper), flipped)


def _flipped_correlation(sign: Tensor, c: Conditional) -> Tensor:
    return sign[..., 0] * sign[..., 1] * c.correlation[:, 0, 1]


def _composite(outputs: Tensor, y: Tensor, c: Conditional, missing: bool) -> Tensor:
    """Return the log density by operations that autograd knows: any p1, gradients in the parameters."""
    p0 = c.inverse_scale.shape[-1]
    residual, sign, observed = _residuals_and_signs(outputs, y, c, missing)
    upper = _standardise(normal_score(outputs[..., p0:]), residual, sign, c, observed)
    quadratic = (_apply(c.precision, residual) * residual).sum(-1)
    return log_cell(upper, sign, c) - 0.5 * quadratic + c.constant


class _Fast(NamedTuple):
    """How the fused route finds a cell: the tabled nodes and each row's pattern (both None: by the exact routine)."""

    rules: tuple[Rule | None, ...] | None
    index: Tensor | None
    least: float  # probabilities below it go to the exact routine


def _log_cell_and_slopes(
    upper: Tensor, sign: Tensor, c: Conditional, fast: _Fast | None
) -> tuple[Tensor, Tensor]:
    r"""Return the log probability of the cell (n,) and its derivatives in the upper limits (n, p1), for p1 <= 2.

    The derivative in x of log Phi2(x, y; r) is :math:`\phi(x) \Phi\{(y - r x)/\sqrt{1 - r^2}\} / \Phi_2`, in logs.
    With ``fast`` value and slopes come from a routine that autograd cannot see through.
    """
    p1 = upper.shape[-1]
    if p1 == 0:
        return upper.new_zeros(upper.shape[:-1]), upper
    if p1 == 1:
        return log_normal_cdf(upper[..., 0]), normal_hazard(upper)
    rho = _flipped_correlation(sign, c)
    if fast and fast.rules:
        product = sign[..., 0] * sign[..., 1]
        return log_cells_by_pattern(upper, product, c.correlation[:, 0, 1], *fast)
    if fast:
        return exact_cell_with_slopes(upper, rho)
    value = log_bivariate_normal_cdf(upper[..., 0], upper[..., 1], rho)
    rho = rho.unsqueeze(-1)
    other = (upper.flip(-1) - rho * upper) * torch.rsqrt(1 - rho * rho)
    return value, torch.exp(
        log_normal_cdf(other) - 0.5 * upper * upper - HALF_LOG_2PI - value.unsqueeze(-1)
    )


def _value_and_gradient(
    outputs: Tensor, y: Tensor, c: Conditional, missing: bool, fast: _Fast | None
) -> tuple[Tensor, Tensor]:
    """Return the log density (n,) and its gradient in the outputs (n, p), in closed form, for p1 <= 2."""
    p0 = c.inverse_scale.shape[-1]
    residual, sign, observed = _residuals_and_signs(outputs, y, c, missing)
    logit = outputs[..., p0:]
    if fast and fast.rules:
        score, slope = quick_score(logit)
    else:
        score = score_value(logit) if fast else normal_score(logit)
        slope = score_slope(logit, score)
    upper = _standardise(score, residual, sign, c, observed)
    value, slopes = _log_cell_and_slopes(upper, sign, c, fast)
    pull = (
        slopes * sign
    )  # derivative in the standardised conditional mean; 0 where the label is missing
    weighted = _apply(c.precision, residual)
    by_mean = (weighted - _apply(c.loading.mT, pull)) * c.inverse_scale
    gradient = torch.cat((by_mean, pull * c.inverse_sd * slope), -1)
    quadratic = (weighted * residual) @ residual.new_ones(
        p0
    )  # a sum over so short a dimension is slow
    return torch.add(value + c.constant, quadratic, alpha=-0.5), gradient


class _LogDensity(torch.autograd.Function):
    """Log density with its gradient computed in the forward pass; saves ``outputs``, ``y`` and that gradient only.

    ``rules`` are the tabled nodes on a CPU, the packed constants (a tensor) for the kernel on a GPU, or None.
    """

    @staticmethod
    def forward(
        outputs: Tensor, y: Tensor, missing: bool, rules: tuple | Tensor | None, *parts: Tensor
    ):
        if isinstance(rules, Tensor):
            from cevit_lib.copula.kernel import density_and_gradient  # imports Triton

            return density_and_gradient(outputs, y, rules, missing)
        dtype = outputs.dtype
        if rules:  # on a CPU float64 costs no more than casting there and back where it is needed
            outputs, y = outputs.double(), y.double()
        c, index = _gathered(y, missing, parts)
        value, gradient = _value_and_gradient(
            outputs, y, c, missing, _Fast(rules, index, RELIABLE[dtype])
        )
        return value.to(dtype), gradient.to(dtype)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        outputs, y, missing, _, *parts = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(outputs, y, output[1], *parts)
        ctx.missing = missing

    @staticmethod
    def backward(ctx, value_gradient: Tensor, _: Tensor):
        outputs, y, gradient, *parts = ctx.saved_tensors
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # a second derivative may be wanted: the saved gradient is a constant, so compute it again
            c = _gathered(y, ctx.missing, Conditional(*parts).to(outputs))[0]
            gradient = _value_and_gradient(outputs, y, c, ctx.missing, None)[1]
        return value_gradient.unsqueeze(-1) * gradient, None, None, None, *(None for _ in parts)

    @staticmethod
    def vmap(
        info,
        in_dims,
        outputs: Tensor,
        y: Tensor,
        missing: bool,
        rules: tuple | None,
        *parts: Tensor,
    ):
        if any(dim is not None for dim in in_dims[4:]):
            raise NotImplementedError(
                "vmap over copula parameters works only where they require gradients; vmap over outputs and y works"
            )
        size, shape = info.batch_size, None
        flat = []
        for tensor, dim in ((outputs, in_dims[0]), (y, in_dims[1])):
            tensor = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            shape = tensor.shape
            flat.append(tensor.reshape(-1, shape[-1]))
        value, gradient = _LogDensity.apply(*flat, missing, rules, *parts)
        return (value.reshape(shape[:-1]), gradient.reshape(shape)), (0, 0)


# PyTorch binds the arguments at every call by looking at the signature; stored, that costs nothing
_LogDensity.forward.__signature__ = inspect.signature(_LogDensity.forward)


def _gathered(
    y: Tensor, missing: bool, parts: tuple[Tensor, ...]
) -> tuple[Conditional, Tensor | None]:
    """Return the constants row by row with the row's pattern, or the one complete row."""
    c = Conditional(*parts)
    if not missing:
        return c, None
    index = pattern_index(~torch.isnan(y[..., : c.inverse_scale.shape[-1]]))
    return c.at(index), index
