"""A trained network with what its outputs need to be read, and its predictions: both means,
marginal and joint probabilities, and the joint Bayes rule (Section 3.3).
"""

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from cevit_lib.copula import (
    MOST_TOGETHER,
    CopulaParameters,
    bayes_classifier,
    class_probabilities,
)
from cevit_lib.datasets import PairedEyes
from cevit_lib.errors import ParameterError
from cevit_lib.training.loop import Batches, find_device, outputs_of
from cevit_lib.training.scaling import Standardisation

#: What stands in every saved model and in the first line of every table of predictions.
NOT_CLINICAL = "not for clinical use"


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
    images, rows = Batches(data, where), np.arange(len(data))
    outputs = outputs_of(fit.model.to(where), images, rows, "float32")
    return fit.standardisation.undo(outputs.cpu().double())  # not before: MPS has no float64


@dataclass(frozen=True)
class Predictions:
    """What a fit says of some patients.

    Attributes
    ----------
    ids : tuple of str
        Identities of the n patients.
    responses : tuple of str
        Names of the p columns of ``outputs``.
    outputs : Tensor
        ``(n, p)`` means in the responses' own units, then logits.
    parameters : CopulaParameters
        Those that join the margins.
    """

    ids: tuple[str, ...]
    responses: tuple[str, ...]
    outputs: Tensor
    parameters: CopulaParameters

    @property
    def means(self) -> Tensor:
        """``(n, p0)`` predicted continuous responses."""
        return self.outputs[:, : self.parameters.p0]

    @property
    def probabilities(self) -> Tensor:
        """``(n, p1)`` marginal probability of each binary response."""
        return torch.sigmoid(self.outputs[:, self.parameters.p0 :])

    @property
    def joint(self) -> Tensor:
        """``(n, 2, ..., 2)`` joint probabilities, indexed by the binary responses."""
        return class_probabilities(self.outputs, self.parameters)

    def classes(self, rule: str = "joint") -> Tensor:
        """``(n, p1)`` predicted binary responses: the most probable combination, or each by its own
        margin.

        Raises
        ------
        ParameterError
            ``rule`` is neither ``"joint"`` nor ``"marginal"``.
        """
        if rule not in ("joint", "marginal"):
            raise ParameterError(
                f"rule={rule!r}: give 'joint' (Section 3.3) or 'marginal' (each probability above "
                "1/2)."
            )
        if rule == "marginal":
            return (self.probabilities > 0.5).long()
        return bayes_classifier(self.outputs, self.parameters).long()

    def table(self) -> pd.DataFrame:
        """Return one row a patient: id, means, marginal and joint probabilities, and the joint
        Bayes class; of many labels no joint probabilities, and each by its own margin.
        """
        p0, p1 = self.parameters.p0, self.parameters.p1
        together = p1 <= MOST_TOGETHER  # more have too many cells to tell
        labels, cells = self.responses[p0:], range(2**p1) if together else ()
        columns = [f"mean {name}" for name in self.responses[:p0]]
        columns += [f"probability {name}" for name in labels]
        columns += [f"joint {cell:0{p1}b}" for cell in cells]
        parts = [
            self.means,
            self.probabilities,
            *([self.joint.reshape(len(self.ids), -1)] if together else ()),
        ]
        table = pd.DataFrame(torch.cat(parts, 1).numpy(), columns=columns)
        table.insert(0, "id", list(self.ids))
        classes = self.classes("joint" if together else "marginal").numpy()
        return table.assign(**{f"class {name}": classes[:, k] for k, name in enumerate(labels)})


def predict(
    fit: Fit,
    data: PairedEyes,
    *,
    parameters: CopulaParameters | None = None,
    device: str | torch.device | None = None,
) -> Predictions:
    """Return the predictions of a fit for the patients of ``data`` (their responses are not looked
    at).

    Parameters
    ----------
    fit : Fit
        Of a warm-up or of copula training.
    data : PairedEyes
        Patients.
    parameters : CopulaParameters, optional
        Joins the margins; default the fit's own, and independence where it has none.
    """
    alone = CopulaParameters.independent(
        fit.standardisation.sd, len(fit.responses) - fit.continuous
    )
    outputs = predict_outputs(fit, data, device=device)
    return Predictions(data.ids, fit.responses, outputs, parameters or fit.parameters or alone)
