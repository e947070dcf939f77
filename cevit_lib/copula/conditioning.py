r"""One block of scores given another, and what the likelihood needs of it for every pattern of
missing responses.

With :math:`\Gamma` cut after the ``p0`` continuous responses, the latent scores of the binary ones
are
:math:`u_{2} \mid u_{1} = e \sim N(\tilde\mu, \tilde V)`, :math:`\tilde\mu = \Gamma_{21}
\Gamma_{11}^{-1} e` and :math:`\tilde V = \Gamma_{22} - \Gamma_{21} \Gamma_{11}^{-1} \Gamma_{12}`
(Theorem 2.1). A continuous response that was not observed is marginalised by leaving it out of
:math:`\Gamma_{11}`; nothing here loops over observations.
"""

from importlib.util import find_spec
from math import log, pi
from typing import NamedTuple

import torch
from torch import Tensor

from cevit_lib.copula.parameters import CopulaParameters
from cevit_lib.normal.central import PlackettNodes
from cevit_lib.normal.univariate import may_branch

LARGEST_TABLE = 6
"""Up to so many continuous responses all ``2 ** p0`` patterns are tabled; beyond, each row is
solved for.
"""


class ScoresGiven(NamedTuple):
    """The law of one block of scores given another: ``u_target | u_given ~ N(slope u_given,
    covariance)``.

    Attributes
    ----------
    slope : tensor, shape (..., b, a)
        ``Gamma_ba Gamma_aa^{-1}``.
    covariance : tensor, shape (..., b, b)
        ``Gamma_bb - slope Gamma_ab``, whatever the given scores are.
    precision : tensor, shape (..., a, a)
        ``Gamma_aa^{-1}``.
    log_determinant : tensor, shape (...)
        ``log |Gamma_aa|``.
    """

    slope: Tensor
    covariance: Tensor
    precision: Tensor
    log_determinant: Tensor


def scores_given(correlation: Tensor, target, given) -> ScoresGiven:
    """Return the law of the scores ``target`` given the scores ``given``, in float64 and
    differentiable.

    Parameters
    ----------
    correlation : tensor or array, shape (..., p, p)
    target, given : slice, list or integer array
        Which of the ``p`` scores.

    Examples
    --------
    >>> law = scores_given([[1.0, 0.5], [0.5, 1.0]], [1], [0])
    >>> law.slope.item(), law.covariance.item()
    (0.5, 0.75)
    """
    correlation = torch.as_tensor(correlation).double()
    cross = correlation[..., target, :][..., given]
    factor = torch.linalg.cholesky(correlation[..., given, :][..., given])
    precision = torch.cholesky_inverse(factor)
    slope = cross @ precision
    return ScoresGiven(
        slope=slope,
        covariance=correlation[..., target, :][..., target] - slope @ cross.mT,
        precision=precision,
        log_determinant=2 * torch.diagonal(factor, dim1=-2, dim2=-1).log().sum(-1),
    )


class LikelihoodConstants(NamedTuple):
    """What the likelihood needs to know of the parameters; ``m`` is 1 (complete), ``2 ** p0`` or
    ``n``.

    The latent scores enter standardised: ``(B e + q) / sd`` with ``sd = sqrt(diag(V))``.

    Attributes
    ----------
    precision : tensor, shape (m, p0, p0)
        Inverse of ``Gamma_11``, with zero rows and columns where a response is missing.
    loading : tensor, shape (m, p1, p0)
        ``B / sd`` with ``B = Gamma_21 Gamma_11^{-1}``.
    inverse_sd : tensor, shape (m, p1)
        ``1 / sd``.
    correlation : tensor, shape (m, p1, p1)
        ``V`` of Theorem 2.1, scaled to a unit diagonal.
    constant : tensor, shape (m,)
        ``-(p0 / 2) log 2 pi - sum log sigma - log |Gamma_11| / 2``, over the observed responses.
    inverse_scale : tensor, shape (p0,)
        ``1 / sigma``.
    """

    precision: Tensor
    loading: Tensor
    inverse_sd: Tensor
    correlation: Tensor
    constant: Tensor
    inverse_scale: Tensor

    def at(self, index: Tensor) -> "LikelihoodConstants":
        """Return the rows ``index`` (n,)."""
        rows = (part.index_select(0, index) for part in self[:-1])
        return LikelihoodConstants(*rows, self.inverse_scale)

    def to(self, *args, **kwargs) -> "LikelihoodConstants":
        """Return the tensors moved or cast as ``torch.Tensor.to`` would."""
        return LikelihoodConstants(*(part.to(*args, **kwargs) for part in self))


def likelihood_constants(
    parameters: CopulaParameters, observed: Tensor | None = None
) -> LikelihoodConstants:
    """Return the likelihood's constants, in float64 and differentiable in the parameters.

    Parameters
    ----------
    parameters : CopulaParameters
    observed : tensor of 0/1, shape (m, p0), optional
        Which continuous responses are observed, one row for each pattern; by default one, all
        observed.
    """
    p0, correlation = parameters.p0, parameters.correlation.double()
    scale = parameters.scale.double()
    observed = torch.ones(1, p0, device=scale.device) if observed is None else observed
    observed = observed.to(scale)
    # a missing response becomes an independent standard normal that nothing else sees
    kept = torch.nn.functional.pad(observed, (0, parameters.p1), value=1.0)
    masked = correlation * kept[:, :, None] * kept[:, None, :] + torch.diag_embed(1 - kept)
    law = scores_given(masked, slice(p0, None), slice(p0))
    inverse_sd = torch.diagonal(law.covariance, dim1=-2, dim2=-1).rsqrt()
    log_scales = (observed * (scale.log() + 0.5 * log(2 * pi))).sum(-1)
    return LikelihoodConstants(
        precision=law.precision * observed[:, :, None] * observed[:, None, :],
        loading=law.slope * inverse_sd[:, :, None],
        inverse_sd=inverse_sd,
        correlation=law.covariance * inverse_sd[:, :, None] * inverse_sd[:, None, :],
        constant=-log_scales - 0.5 * law.log_determinant,
        inverse_scale=scale.reciprocal(),
    )


def all_patterns(p0: int, device: torch.device | None = None) -> Tensor:
    """Return the ``(2 ** p0, p0)`` patterns of observed (1) and missing (0); row i has the bits of
    i.
    """
    numbers = torch.arange(2**p0, device=device)
    return (numbers[:, None] >> torch.arange(p0, device=device)) & 1


def pattern_index(y: Tensor, c: LikelihoodConstants) -> Tensor:
    """Return which row of the constants of ``all_patterns`` each observation ``y`` (n, p) has."""
    observed = ~torch.isnan(y[..., : c.inverse_scale.shape[-1]])
    return (observed * 2 ** torch.arange(observed.shape[-1], device=observed.device)).sum(-1)


class Table(NamedTuple):
    """The constants for complete rows, or for every pattern, and what a faster route makes of them.

    Attributes
    ----------
    constants : LikelihoodConstants
    fast : PlackettNodes, tensor or None
        On a CPU the nodes of Plackett's integral for each pattern's conditional correlation of the
        two labels, on a GPU all that the kernel reads; None where the reference is all there is.
    """

    constants: LikelihoodConstants
    fast: PlackettNodes | Tensor | None


def tabulate(parameters: CopulaParameters, missing: bool) -> Table | None:
    """Return the constants for complete rows or, if responses may be missing, for every pattern.

    None if they may be, and there are more than ``LARGEST_TABLE`` continuous ones.
    """
    if not missing:
        constants = likelihood_constants(parameters)
    elif parameters.p0 <= LARGEST_TABLE:
        device = parameters.correlation.device
        constants = likelihood_constants(parameters, all_patterns(parameters.p0, device))
    else:
        return None
    two_labels = parameters.p1 == 2 and not parameters.requires_grad
    return Table(constants, prepared(constants) if two_labels else None)


def prepared(constants: LikelihoodConstants) -> PlackettNodes | Tensor | None:
    """Return what the faster route of this device needs of the constants; None where there is
    none.
    """
    if may_branch(constants.constant):
        return PlackettNodes.of(constants.correlation[:, 0, 1])
    device, there = constants.constant.device, find_spec("triton") and not torch.version.hip
    if device.type != "cuda" or torch.compiler.is_compiling() or not there:
        return None
    from cevit_lib.copula import kernel  # imports Triton

    works = kernel.works(device, constants.inverse_scale.shape[-1])
    return kernel.pack(constants) if works else None
