"""A trained network with what its outputs need to be read, and these outputs."""

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import PairedEyes
from cevit_lib.training.loop import Batches, find_device, outputs_of
from cevit_lib.training.processes import processes
from cevit_lib.training.scaling import Standardisation


@dataclass(frozen=True)
class Fit:
    """A trained network with all that its outputs need to be read.

    Attributes
    ----------
    model : torch.nn.Module
        The network, in standard units.
    standardisation : Standardisation
        Undone on every output.
    parameters : CopulaParameters or None
        In the responses' own units; ``None`` after a warm-up that has no estimate yet.
    trace : list of dict
        One entry per epoch, of all stages so far.
    responses, continuous, domains
        Of the data: names and count of the columns, names of the domains.
    notes : dict
        Recipes, what the estimate was made on, what was shrunk.
    """

    model: nn.Module
    standardisation: Standardisation
    parameters: CopulaParameters | None
    trace: list[dict[str, Any]]
    responses: tuple[str, ...]
    continuous: int
    domains: tuple[str, ...]
    notes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def fresh(cls, model: nn.Module, data: PairedEyes, standardise: bool) -> "Fit":
        """Return a network that has not trained, with the units of the patients it will see."""
        scale = Standardisation.none(data.continuous)
        if standardise:
            scale = Standardisation.of(data.y, data.continuous, data.responses)
        return cls(model, scale, None, [], data.responses, data.continuous, data.domains)

    def copy(self) -> "Fit":
        """Return the same fit with a network of its own."""
        return replace(self, model=copy.deepcopy(self.model))


def predict_outputs(
    fit: Fit, data: PairedEyes, *, device: str | torch.device | None = None
) -> Tensor:
    """Return the outputs ``(n, p)`` in the responses' own units: means, logits; float64, CPU."""
    where = find_device(device)
    fit.model.to(where)
    crew, rows = processes(), np.arange(len(data))
    shared = crew.count > 1 and len(data) >= crew.count
    mine = crew.share(rows) if shared else rows
    outputs = outputs_of(fit.model, Batches(data, where), mine, "float32").cpu()
    whole = torch.cat(crew.everyone(outputs)) if shared else outputs
    return fit.standardisation.undo(whole.double())  # not before: MPS has no float64
