r"""Maximum likelihood for many members at once: networks side by side, folds, replications.

``estimate_many(outputs, y, initial=None)`` takes each member's patients, ``(n, p)`` tensors, and
returns ``Estimates(parameters, converged, n_iter)``: a list of ``CopulaParameters`` (float64, on
the CPU) and two tensors. Each is the maximum that :class:`MaximumLikelihood` finds.
``initial``, such as the ``parameters`` of an epoch before, saves iterations.

Whitened residuals :math:`w = W (y - \mu)`, ``W`` lower triangular, make the likelihood of a member
plain: the residuals add :math:`\log|W| - \tfrac12 \|w\|^2`, and a label's limit in :math:`\Phi_2`
is :math:`s_j (v_j'w + d_j q_j)`, :math:`d_j^2 = 1 + \|v_j\|^2`, with one correlation
:math:`\tanh z` for the pair. ``W``, ``v`` and ``z`` are free, so that Newton's method needs no
bounds; and since the limits are linear in :math:`(W'v_j, d_j)`, a pass over the patients ends in
one small gradient and Hessian a member.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from cevit_lib.copula import CopulaParameters
from cevit_lib.errors import DataError
from cevit_lib.estimation.correlation import EIGENVALUE_FLOOR, cov2cor, keep_positive_definite
from cevit_lib.estimation.observed import observe
from cevit_lib.normal.bivariate import log_cdf_of_pairs
from cevit_lib.normal.central import PlackettNodes
from cevit_lib.normal.wedge import correlation_slope, log_wedge_curvatures

#: Newton's last step gains less than this in the mean log-likelihood; it leaves an error of this
#: order in the parameters.
LEAST_GAIN = 1e-8
#: Curvature that a step reckons with at least, and its largest coordinate at most.
LEAST_CURVATURE, LARGEST_STEP = 1e-10, 1.0


class Estimates(NamedTuple):
    """What :func:`estimate_many` found.

    Attributes
    ----------
    parameters : list of CopulaParameters
        Of each member, float64 on the CPU.
    converged : tensor, shape (members,)
        Whether a member's search came to rest inside; its parameters are finite in any case.
    n_iter : tensor, shape (members,)
        Passes over a member's patients.
    """

    parameters: list[CopulaParameters]
    converged: Tensor
    n_iter: Tensor


class _Patients(NamedTuple):
    """All members' patients, filled up with rows of zeros, which add a constant.

    Attributes
    ----------
    first, second : tensors, shape (members, n, p0 + 1)
        Of each label, its sign times residuals (in their ``scale``) and normal score.
    flip : tensor, shape (members, n)
        Product of the signs.
    covariance : tensor, shape (members, p0, p0)
        Mean outer product of the residuals.
    scale : tensor, shape (members, p0)
        Root mean square of the residuals in the units of ``y``.
    count : tensor, shape (members, 1)
    """

    first: Tensor
    second: Tensor
    flip: Tensor
    covariance: Tensor
    scale: Tensor
    count: Tensor

    def of(self, members: Tensor) -> "_Patients":
        """Return the patients of these members."""
        if len(members) == len(self.count):
            return self
        return _Patients(*(each[members] for each in self))


def _gathered(outputs: Sequence[Tensor], y: Sequence[Tensor]) -> _Patients:
    """Check the members' patients and lay them side by side."""
    parts = []
    for number, (one, own) in enumerate(zip(outputs, y, strict=True)):
        seen = observe(one, own, continuous=np.shape(one)[-1] - 2)
        seen.residual_scale()  # raises where there is none
        part = seen.patterns[0]
        if len(part) < len(one) or len(part.missing):
            raise DataError(
                f"responses of member {number} are missing; complete ones are needed. Fit "
                "MaximumLikelihood one by one where responses are missing"
            )
        parts.append(part)
    residual, threshold, sign = (
        pad_sequence([torch.from_numpy(getattr(part, name)) for part in parts], True)
        for name in ("residual", "threshold", "sign")
    )
    count = torch.tensor([[len(part)] for part in parts], dtype=torch.float64)
    covariance = residual.mT @ residual / count[:, :, None]
    scale = covariance.diagonal(dim1=1, dim2=2).sqrt()
    residual, covariance = (
        residual / scale[:, None],
        covariance / scale[:, :, None] / scale[:, None],
    )
    features = [
        sign[..., j, None] * torch.cat((residual, -threshold[..., j, None]), -1) for j in (0, 1)
    ]
    return _Patients(*features, sign.prod(-1), covariance, scale, count)


def _cells(at: _Patients, linear: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the labels' mean log probability (members,), and its slopes (members, k) and
    curvatures (members, k, k) in ``linear`` (members, 2, p0 + 1) and ``r`` (members,).
    """
    parts = at.first, at.second, at.flip.unsqueeze(-1)
    limits = torch.cat(
        [f @ c[..., None] for f, c in zip(parts, linear.unbind(1), strict=False)], -1
    )
    nodes = PlackettNodes.of(r[:, None])
    value, by_limits = log_cdf_of_pairs(limits, at.flip, nodes, 8)
    point = *limits.unbind(-1), at.flip * r[:, None]
    slopes = *by_limits.unbind(-1), correlation_slope(*point, value)
    gradient = torch.cat([(d[:, None] @ f)[:, 0] for d, f in zip(slopes, parts, strict=True)], -1)
    rows = [
        torch.cat(
            [(c.unsqueeze(-1) * left).mT @ right for c, right in zip(row, parts, strict=True)], -1
        )
        for left, row in zip(parts, log_wedge_curvatures(*point, slopes), strict=True)
    ]
    curvature = torch.cat(rows, -2) / at.count[:, None]
    return value.sum(-1) / at.count[:, 0], gradient / at.count, curvature


def _unpacked(point: Tensor, p0: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``W`` (members, p0, p0), ``v`` (members, 2, p0) and ``tanh z`` (members,)."""
    rows, columns = torch.tril_indices(p0, p0)
    whitening = point.new_zeros(len(point), p0, p0)
    whitening[:, rows, columns] = point[:, : len(rows)]
    return whitening, point[:, len(rows) : -1].unflatten(1, (2, p0)), point[:, -1].tanh()


@torch.enable_grad()
def _expansion(at: _Patients, point: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean log-likelihood (members,), up to a constant, with gradient and Hessian in
    ``point`` (members, k)."""
    point = point.detach().requires_grad_()
    whitening, v, r = _unpacked(point, at.scale.shape[-1])
    d = (1 + v.square().sum(-1, keepdim=True)).sqrt()
    linear = torch.cat((v @ whitening, d), -1)
    value, slope, curvature = _cells(at, linear.detach(), r.detach())
    # what the cells are to second order in their own coordinates; autograd goes on from there
    shift = torch.cat((linear.flatten(1), r[:, None]), -1)
    shift = shift - shift.detach()
    value = value + (shift * (slope + 0.5 * (shift[:, None] @ curvature)[:, 0])).sum(-1)
    value = value + whitening.diagonal(dim1=1, dim2=2).log().sum(-1)
    value = value - 0.5 * (whitening @ at.covariance * whitening).sum((1, 2))
    (gradient,) = torch.autograd.grad(value.sum(), point, create_graph=True)
    rows = [torch.autograd.grad(one, point, retain_graph=True)[0] for one in gradient.sum(0)]
    return value.detach(), gradient.detach(), torch.stack(rows, 1)


def _newton_step(gradient: Tensor, hessian: Tensor) -> tuple[Tensor, Tensor]:
    """Return the steps (members, k), uphill where the likelihood is not concave, too, and whether
    they are the last, with next to nothing to gain."""
    values, vectors = torch.linalg.eigh(hessian)
    along = (gradient[:, None] @ vectors)[:, 0] / values.abs().clamp_min(LEAST_CURVATURE)
    step = (vectors @ along.unsqueeze(-1)).squeeze(-1)
    last = (gradient * step).sum(-1) < 2 * LEAST_GAIN
    return step / (step.abs().amax(-1, keepdim=True) / LARGEST_STEP).clamp_min(1.0), last


def _start(at: _Patients, initial: Sequence[CopulaParameters] | None) -> Tensor:
    """Return the points (members, k) of given parameters, or of labels that depend on nothing."""
    members, p0 = at.scale.shape
    if initial is None:
        correlation, scale = torch.eye(p0 + 2).double().repeat(members, 1, 1), at.scale
        correlation[:, :p0, :p0].lerp_(at.covariance, 1 - 1e-3)
    else:
        correlation = torch.stack([one.correlation.detach().double().cpu() for one in initial])
        scale = torch.stack([one.scale.detach().double().cpu() for one in initial])
    root = torch.linalg.cholesky(correlation)
    own = root[:, p0:, p0:]
    sd = own.norm(dim=-1)
    rows, columns = torch.tril_indices(p0, p0)
    whitening = torch.linalg.inv(root[:, :p0, :p0] * (scale / at.scale)[:, :, None])
    v, r = root[:, p0:, :p0] / sd[:, :, None], (own @ own.mT)[:, 0, 1] / sd.prod(-1)
    return torch.cat((whitening[:, rows, columns], v.flatten(1), r.atanh()[:, None]), -1)


def _parameters(at: _Patients, point: Tensor) -> list[CopulaParameters]:
    """Return the copula parameters of the points."""
    whitening, v, r = _unpacked(point, at.scale.shape[-1])
    root = torch.linalg.inv(whitening)
    label = torch.eye(2, dtype=r.dtype) + r[:, None, None] * (1 - torch.eye(2, dtype=r.dtype))
    mixed = torch.cat((root, v), 1)  # of (y - mu, d u): factors that they share
    covariance = mixed @ mixed.mT
    covariance[:, -2:, -2:] += label
    scale = at.scale * root.norm(dim=-1)
    return [
        CopulaParameters(
            torch.from_numpy(keep_positive_definite(cov2cor(one))), own, validate=False
        )
        for one, own in zip(covariance.numpy(), scale, strict=True)
    ]


def estimate_many(
    outputs: Sequence[Tensor],
    y: Sequence[Tensor],
    initial: Sequence[CopulaParameters] | None = None,
    max_iter: int = 50,
) -> Estimates:
    """Return each member's maximum likelihood estimate of ``sigma`` and ``Gamma``.

    Parameters
    ----------
    outputs, y : sequences of tensors or arrays (n, p), or tensors (members, n, p)
        Of each member: continuous responses first, the last two binary, none missing. Members may
        have different ``n``.
    initial : sequence of CopulaParameters, optional
        Where the search starts, such as the estimates of an epoch before.
    max_iter : int
        Passes over the patients.

    Raises
    ------
    ShapeError, LabelError, DataError, ScaleError
        As of ``fit``; a response that is missing.

    Examples
    --------
    >>> from cevit_lib.datasets.toy import ToyExample
    >>> data = [ToyExample(n=800, rng=seed).sample() for seed in (0, 1)]
    >>> found = estimate_many([each.outputs for each in data], [each.y for each in data])
    >>> found.converged.tolist(), tuple(found.parameters[0].correlation.shape)
    ([True, True], (4, 4))
    """
    at = _gathered(outputs, y)
    point = _start(at, initial)
    step, length = torch.zeros_like(point), torch.ones(len(point), 1)
    value = torch.full((len(point),), -torch.inf, dtype=torch.float64)
    n_iter, rests = torch.zeros(len(point), dtype=torch.long), torch.zeros(len(point)).bool()
    while len(searching := (~rests & (n_iter < max_iter)).nonzero()[:, 0]):
        trial = point[searching] + length[searching] * step[searching]
        found, gradient, hessian = _expansion(at.of(searching), trial)
        n_iter[searching] += 1
        length[searching] *= 0.5  # of those that do not ascend
        up = found > value[searching]
        here = searching[up]
        step[here], rests[here] = _newton_step(gradient[up], hessian[up])
        point[here], value[here], length[here] = trial[up], found[up], 1.0
    point = torch.where(rests[:, None], point + step, point)
    parameters = _parameters(at, point)
    inside = [one.smallest_eigenvalue() > 2 * EIGENVALUE_FLOOR for one in parameters]
    return Estimates(parameters, rests & torch.tensor(inside), n_iter)
