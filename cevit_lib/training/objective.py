"""What a stage of training minimises, and where its copula parameters come from."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from cevit_lib.copula import MINIMUM_EIGENVALUE, CopulaParameters

SHRINK_TO = 0.05  # smallest eigenvalue to which a refused correlation matrix is lifted

Parameters = Sequence[CopulaParameters]
"""One a network, in the responses' own units."""


@dataclass(frozen=True)
class Source:
    """Where an estimate comes from.

    Attributes
    ----------
    estimator : callable
        Returns a fresh estimator of ``cevit_lib.estimation``.
    part : {"held-out", "train", "cross-fitted"}
        Whose outputs it sees.
    """

    estimator: Callable[[], Any]
    part: Literal["held-out", "train", "cross-fitted"]

    @property
    def patients(self) -> str:
        """The part of the patients whom these outputs belong to."""
        return "train" if self.part == "cross-fitted" else self.part

    @property
    def name(self) -> str:
        """The estimator as text, equal in every process; a generator prints its address."""
        return re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(self.estimator()))


@dataclass(frozen=True)
class Renewal:
    """How copula parameters are estimated again while a stage trains.

    Attributes
    ----------
    source : Source
        The estimate; cross-fitted outputs come from networks that train along, each without a
        part of the patients.
    every : int
        Epochs from one estimate to the next.
    first : int, optional
        The epoch after which the first estimate is made (default ``every``).
    use : callable
        ``use(estimates) -> parameters``: what of the estimates the loss takes. All of it, or
        :func:`independent` or :func:`matched` controls.
    """

    source: Source
    every: int = 1
    use: Callable[[Parameters], Parameters] = list
    first: int | None = None

    def __str__(self) -> str:  # tells a checkpoint's stage from others
        begin = f" from {self.first}" if self.first else ""
        return f"{self.source.name} on {self.source.part} outputs every {self.every}{begin}"

    def due(self, epoch: int) -> bool:
        """Whether an estimate is made after an epoch, counted from 1."""
        first = self.first or self.every
        return epoch >= first and (epoch - first) % self.every == 0


@dataclass(frozen=True)
class Objective:
    """What a stage minimises: the empirical loss of Eq. (14), unless something is named.

    Attributes
    ----------
    parameters : sequence of CopulaParameters, optional
        The copula loss of Eq. (11) under these, one a network.
    renewal : Renewal, optional
        The copula loss under parameters that are estimated again along the way. Without
        ``parameters`` it begins with sigma = SD of the responses and Gamma = I: the empirical loss
        in other units.
    learned_weights : bool
        The responses' weights are learnt with the network (Kendall et al. 2018).
    """

    parameters: Parameters | None = None
    renewal: Renewal | None = None
    learned_weights: bool = False


def independent(parameters: Parameters) -> Parameters:
    """Return the scales of copula parameters with no correlation: the control for their weights."""
    return [CopulaParameters.independent(own.scale, own.p1) for own in parameters]


def matched(parameters: Parameters) -> Parameters:
    """Return no correlation and the copula's weight on each continuous response.

    In the copula loss a residual's square has the weight of its variance given the other continuous
    responses, which for two is ``sigma_j^2 (1 - rho_12^2)``: the control for that weight alone.
    """
    found = []
    for own in parameters:
        precision = torch.linalg.inv(own.correlation[: own.p0, : own.p0]).diagonal()
        found.append(CopulaParameters.independent(own.scale / precision.sqrt(), own.p1))
    return found


def estimated(
    estimator: Any, outputs: Tensor, y: Tensor
) -> tuple[CopulaParameters, dict[str, Any]]:
    """Fit an estimator; return its copula parameters, and what is to be said of them."""
    found = estimator.fit(outputs, y).parameters_
    return usable(found, bool(getattr(estimator, "converged_", True)))


def usable(
    parameters: CopulaParameters, converged: bool
) -> tuple[CopulaParameters, dict[str, Any]]:
    """Return copula parameters that the loss takes, and what is to be said of them.

    A matrix so close to singular that the copula loss would refuse it is shrunk.
    """
    smallest = parameters.smallest_eigenvalue()
    remarks = {"converged": converged, "smallest_eigenvalue": smallest, "shrunk": 0.0}
    if smallest < MINIMUM_EIGENVALUE:
        remarks["shrunk"] = (SHRINK_TO - smallest) / (1 - smallest)
        parameters = parameters.shrink(remarks["shrunk"])
    return parameters, remarks
