"""A trained network with what its outputs need to be read, and single stages of its training."""

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from cevit_lib.copula import (
    CopulaParameters,
    EmpiricalLoss,
    UncertaintyWeightedLoss,
    copula_loss,
)
from cevit_lib.datasets import PairedEyes
from cevit_lib.training.loop import Batches, Stage, Task, find_device, outputs_of, train
from cevit_lib.training.objective import Objective
from cevit_lib.training.processes import processes
from cevit_lib.training.recipe import Recipe
from cevit_lib.training.scaling import Standardisation

if TYPE_CHECKING:
    from cevit_lib.training.network import NetworkRenewing


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

    def loss(self, objective: Objective) -> nn.Module:
        """Return the mean loss of a stage over patients, in units of training."""
        p0, p1 = self.continuous, len(self.responses) - self.continuous
        if objective.learned_weights:
            return UncertaintyWeightedLoss(p0, p1)
        if objective.parameters is None:
            return EmpiricalLoss(p0=p0, reduction="mean")
        (parameters,) = objective.parameters
        scaled = self.standardisation.parameters_inside(parameters)
        return copula_loss(scaled)

    def trained(
        self,
        data: PairedEyes,
        objective: Objective,
        recipe: Recipe,
        rng: Any,
        stage: Stage,
        renewing: "NetworkRenewing | None" = None,
    ) -> "Fit":
        """Train the network in place; return the fit with the longer trace."""
        inside, unseen = self.standardisation.apply, stage.validation
        loss = self.loss(objective)
        sets = [data] if unseen is None else [data, unseen]
        # a loss takes the data as PairedEyes has checked them, or each step would wait twice
        loss.validate = False
        loss.missing = any(not bool(own.complete.all()) for own in sets)
        seen = unseen and (unseen, inside(unseen.y))
        trace = train(
            self.model, Task(data, inside(data.y), loss, seen, renewing), recipe, rng, stage
        )
        recipes = {**self.notes.get("recipes", {}), stage.stage: recipe.to_dict()}
        found = objective.parameters[0] if objective.parameters else self.parameters
        if renewing is not None:
            found = renewing.found(trace)
        return replace(
            self,
            parameters=found,
            trace=[*self.trace, *trace],
            notes={**self.notes, "recipes": recipes},
        )


def fit_warm_up(
    model: nn.Module | Fit,
    data: PairedEyes,
    recipe: Recipe = Recipe(),  # noqa: B008 - frozen
    *,
    rng: np.random.Generator,
    standardise: bool = True,
    **stage: Any,
) -> Fit:
    """Step 1 of Algorithm 3: train under the empirical loss of Eq. (14), mean over patients.

    Given a :class:`Fit`, goes on from a copy of it (the control that trains as long without a
    copula).

    Parameters
    ----------
    model : torch.nn.Module or Fit
        A network with outputs ``(n, p)``, trained in place; a ``Fit`` is copied.
    data : PairedEyes
        Training patients.
    recipe : Recipe
        Optimisation.
    rng : numpy.random.Generator
        Order of patients, dropout.
    standardise : bool
        Train the continuous responses in units of their own spread; ``False`` trains in raw units,
        as the paper.
    **stage
        ``stage`` (its name), ``validation``, ``device``, ``checkpoint``: see
        :class:`~cevit_lib.training.loop.Stage`.

    Returns
    -------
    Fit
        Of a network: without copula parameters; of a ``Fit``: with those that it had.

    Raises
    ------
    TrainingError
        The fit diverged or collapsed.
    """
    start = model.copy() if isinstance(model, Fit) else Fit.fresh(model, data, standardise)
    return start.trained(data, Objective(), recipe, rng, Stage(**{"stage": "warm-up", **stage}))


def fit_copula(
    warm_up: Fit,
    data: PairedEyes,
    parameters: CopulaParameters,
    recipe: Recipe = Recipe(60, 1e-4),  # noqa: B008 - frozen
    *,
    rng: np.random.Generator,
    **stage: Any,
) -> Fit:
    """Step 3 of Algorithm 3: train a copy of the warm-up under the copula loss of Eq. (11).

    Parameters
    ----------
    warm_up : Fit
        Where to start; it is left as it is, so that several arms can start from it.
    data : PairedEyes
        Training patients.
    parameters : CopulaParameters
        In the responses' own units; held fixed.
    recipe, rng, **stage
        As in :func:`fit_warm_up`.

    Returns
    -------
    Fit
        Of its own network, with ``parameters``.

    Raises
    ------
    NotPositiveDefiniteError
        The correlation matrix is near-singular; shrink it.
    TrainingError
        The fit diverged or collapsed.
    """
    where, objective = Stage(**{"stage": "copula", **stage}), Objective([parameters])
    return warm_up.copy().trained(data, objective, recipe, rng, where)


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
