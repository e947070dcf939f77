r"""The distribution of the latent binary scores given the continuous responses, for every pattern of missing ones.

With :math:`\Gamma` cut after the ``p0`` continuous responses, the scores are
:math:`u_{2} \mid u_{1} = e \sim N(\tilde\mu, \tilde V)`, :math:`\tilde\mu = \Gamma_{21} \Gamma_{11}^{-1} e` and
:math:`\tilde V = \Gamma_{22} - \Gamma_{21} \Gamma_{11}^{-1} \Gamma_{12}` (Theorem 2.1). A continuous response that
was not observed is marginalised by leaving it out of :math:`\Gamma_{11}`; nothing here loops over observations.
"""

from __future__ import annotations

from importlib.util import find_spec
from math import log, pi
from typing import NamedTuple

import torch
from torch import Tensor

from cevit_lib.copula.parameters import CopulaParameters
from cevit_lib.copula.quadrant import Rule, rules

LARGEST_TABLE = 6
"""Up to this many continuous responses all ``2 ** p0`` patterns are tabled; beyond, each observation is solved for."""


class Conditional(NamedTuple):
    """What the likelihood needs to know of the parameters; ``m`` is 1 (complete), ``2 ** p0`` (table) or ``n``.

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

    precision: Tensor  # (m, p0, p0)  inverse of Gamma_11, zero rows and columns where a response is missing
    loading: Tensor  # (m, p1, p0)  Gamma_21 Gamma_11^{-1} / sd
    inverse_sd: Tensor  # (m, p1)  1 / sd
    correlation: Tensor  # (m, p1, p1)  V scaled to unit diagonal
    constant: Tensor  # (m,)  -(p0/2) log 2 pi - sum log sigma - 1/2 log |Gamma_11|, over the observed responses
    inverse_scale: Tensor  # (p0,)  1 / sigma

    def at(self, index: Tensor) -> Conditional:
        """Return the rows ``index`` (n,) of a table."""
        return Conditional(*(part.index_select(0, index) for part in self[:-1]), self.inverse_scale)

    def to(self, *args, **kwargs) -> Conditional:
        """Return the tensors moved or cast as ``torch.Tensor.to`` would."""
        return Conditional(*(part.to(*args, **kwargs) for part in self))


def all_patterns(p0: int, device: torch.device | None = None) -> Tensor:
    """Return the ``(2 ** p0, p0)`` patterns of observed (1) and missing (0) responses; row i has the bits of i."""
    numbers = torch.arange(2**p0, device=device)
    return (numbers[:, None] >> torch.arange(p0, device=device)) & 1


def pattern_index(observed: Tensor) -> Tensor:
    """Return the row of ``all_patterns`` for each row of ``observed`` (n, p0)."""
    weights = 2 ** torch.arange(observed.shape[-1], device=observed.device)
    return (observed * weights).sum(-1)


def condition(parameters: CopulaParameters, observed: Tensor | None = None) -> Conditional:
    """Return the conditional distribution's constants, in float64 and differentiable in the parameters.

    Parameters
    ----------
    parameters : CopulaParameters
    observed : tensor of 0/1, shape (m, p0), optional
        Which continuous responses are observed, one row for each pattern; by default one pattern, all observed.
    """
    p0 = parameters.p0
    gamma = parameters.correlation.double()
    scale = parameters.scale.double()
    observed = torch.ones(1, p0, device=gamma.device) if observed is None else observed
    kept = observed.to(gamma)  # (m, p0)
    gamma11, gamma21, gamma22 = gamma[:p0, :p0], gamma[p0:, :p0], gamma[p0:, p0:]
    # a missing response becomes an independent standard normal that nothing else sees
    block = gamma11 * kept[:, :, None] * kept[:, None, :] + torch.diag_embed(
        1 - kept
    )  # (m, p0, p0)
    factor = torch.linalg.cholesky(block)
    inverse = torch.cholesky_inverse(factor)
    loading = (gamma21 * kept[:, None, :]) @ inverse  # (m, p1, p0)
    covariance = gamma22 - loading @ (gamma21 * kept[:, None, :]).mT  # (m, p1, p1)
    inverse_sd = torch.diagonal(covariance, dim1=-2, dim2=-1).rsqrt()  # (m, p1)
    log_scales = (kept * (scale.log() + 0.5 * log(2 * pi))).sum(-1)
    return Conditional(
        precision=inverse * kept[:, :, None] * kept[:, None, :],
        loading=loading * inverse_sd[:, :, None],
        inverse_sd=inverse_sd,
        correlation=covariance * inverse_sd[:, :, None] * inverse_sd[:, None, :],
        constant=-log_scales - torch.diagonal(factor, dim1=-2, dim2=-1).log().sum(-1),
        inverse_scale=scale.reciprocal(),
    )


class Table(NamedTuple):
    """Constants for one or several patterns, with what the device's fast route needs."""

    constants: Conditional
    rules: tuple[Rule | None, ...] | None = None  # the quadrature nodes of each, on a CPU
    packed: Tensor | None = None  # all of it in one float64 vector, for the kernel on a GPU

    def to(self, *args, **kwargs) -> Table:
        """Return the constants moved or cast as ``torch.Tensor.to`` would."""
        constants = self.constants.to(*args, **kwargs)
        stays = constants.constant.device == self.constants.constant.device
        return Table(constants, self.rules if stays else None, self.packed if stays else None)


def packed_for_gpu(constants: Conditional) -> Tensor | None:
    """Return the constants as the GPU's kernel reads them; None where it is not taken (two binary responses, CUDA)."""
    device = constants.constant.device
    if (
        device.type != "cuda"
        or constants.inverse_sd.shape[-1] != 2
        or torch.compiler.is_compiling()
    ):
        return None
    if torch.version.hip or find_spec("triton") is None:
        return None
    from cevit_lib.copula import kernel  # imports Triton

    return (
        kernel.pack(constants) if kernel.works(device, constants.inverse_scale.shape[-1]) else None
    )


class Tables(NamedTuple):
    """The conditional distribution for complete rows, and for every pattern of missing continuous responses."""

    complete: Table
    patterns: Table | None  # None beyond LARGEST_TABLE continuous responses

    def to(self, *args, **kwargs) -> Tables:
        """Return the tables moved or cast as ``torch.Tensor.to`` would."""
        return Tables(
            self.complete.to(*args, **kwargs), self.patterns and self.patterns.to(*args, **kwargs)
        )


def tabulate_one(parameters: CopulaParameters, missing: bool) -> Table | None:
    """Return one of the two tables; None for every pattern of more than ``LARGEST_TABLE`` continuous responses."""
    if not missing:
        constants = condition(parameters)
    elif parameters.p0 <= LARGEST_TABLE:
        constants = condition(
            parameters, all_patterns(parameters.p0, parameters.correlation.device)
        )
    else:
        return None
    return Table(constants, rules(constants.correlation.detach()), packed_for_gpu(constants))


def tabulate(parameters: CopulaParameters) -> Tables:
    """Return the constants for complete rows and, for up to six continuous responses, for every pattern."""
    return Tables(tabulate_one(parameters, False), tabulate_one(parameters, True))
