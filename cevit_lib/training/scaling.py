"""Continuous responses in units of their own spread: set on the training patients, undone on every
output.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cevit_lib.copula import CopulaParameters
from cevit_lib.errors import DataError


@dataclass(frozen=True)
class Standardisation:
    """Mean and standard deviation of each continuous response among the patients of the fit, both
    ``(p0,)``.
    """

    mean: Tensor
    sd: Tensor

    @classmethod
    def of(
        cls, y: Tensor, continuous: int, responses: tuple[str, ...] | None = None
    ) -> "Standardisation":
        """Measure them on ``y (n, p)``, missing values left out.

        Raises
        ------
        DataError
            A continuous response is constant or observed in fewer than two patients.
        """
        values = y[:, :continuous].double()
        observed = torch.isfinite(values)
        count = observed.sum(0)
        mean = torch.where(observed, values, 0.0).sum(0) / count.clamp_min(1)
        squares = torch.where(observed, values - mean, 0.0).square().sum(0)
        sd = (squares / (count - 1).clamp_min(1)).sqrt()
        bad = torch.nonzero((count < 2) | ~(sd > 1e-12 * (1 + mean.abs()))).flatten().tolist()
        if bad:
            name = responses[bad[0]] if responses else f"number {bad[0] + 1}"
            raise DataError(
                f"continuous response {name!r} is constant or observed in {int(count[bad[0]])} "
                "patients; "
                "nothing can be learnt from it."
            )
        return cls(mean, sd)

    @classmethod
    def none(cls, continuous: int) -> "Standardisation":
        """Return mean 0 and SD 1: raw units, as the paper trains."""
        return cls(
            torch.zeros(continuous, dtype=torch.float64),
            torch.ones(continuous, dtype=torch.float64),
        )

    @classmethod
    def stacked(cls, each: Sequence["Standardisation"], device: torch.device) -> "Standardisation":
        """Return that of networks side by side: ``(members, 1, p0)``, for ``(members, n, p)``."""
        moments = (torch.stack([getattr(one, name) for one in each]) for name in ("mean", "sd"))
        return cls(*(moment[:, None].to(device) for moment in moments))

    def apply(self, y: Tensor) -> Tensor:
        """Return ``y (..., n, p)`` with its continuous columns in standard units."""
        p0 = self.sd.shape[-1]
        inside = (y[..., :p0] - self.mean.to(y)) / self.sd.to(y)
        return torch.cat([inside, y[..., p0:]], dim=-1)

    def undo(self, outputs: Tensor) -> Tensor:
        """Return ``outputs (..., n, p)``, means in the responses' own units; logits stay."""
        p0 = self.sd.shape[-1]
        means = outputs[..., :p0] * self.sd.to(outputs) + self.mean.to(outputs)
        return torch.cat([means, outputs[..., p0:]], dim=-1)

    def parameters_inside(self, parameters: CopulaParameters) -> CopulaParameters:
        """Return copula parameters in standard units; a correlation has none."""
        return CopulaParameters(
            parameters.correlation, parameters.scale / self.sd.to(parameters.scale), validate=False
        )

    def to_dict(self) -> dict[str, list[float]]:
        """Return plain lists, for a record."""
        return {"mean": self.mean.tolist(), "sd": self.sd.tolist()}

    @classmethod
    def from_dict(cls, stored: dict[str, list[float]]) -> "Standardisation":
        """Return what :meth:`to_dict` stored."""
        return cls(*(torch.tensor(stored[key], dtype=torch.float64) for key in ("mean", "sd")))
