"""One network with its patients, as the algorithms of training see it; single stages of it."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cevit_lib.copula import CopulaParameters, EmpiricalLoss, UncertaintyWeightedLoss, copula_loss
from cevit_lib.datasets import PairedEyes, split_by_patient
from cevit_lib.errors import TrainingError
from cevit_lib.training.algorithm import CROSS_FIT, WARM_UP, Networks, Stage
from cevit_lib.training.checkpoint import Checkpoint
from cevit_lib.training.fit import Fit, predict_outputs
from cevit_lib.training.loop import NetworkTrainer, train
from cevit_lib.training.objective import Objective, Parameters, Source, estimated
from cevit_lib.training.processes import processes
from cevit_lib.training.recipe import Recipe
from cevit_lib.training.scaling import Standardisation


@dataclass
class OneNetwork(Networks):
    """One network with its patients, as the algorithms see it.

    Attributes
    ----------
    fit : Fit
        How far it is.
    parts : dict
        Patients by part: ``"train"``; ``"held-out"`` ones are watched in every stage.
    order : callable
        ``order(number)`` returns the generator of a stage: order of the patients, dropout.
    device : str or torch.device, optional
        Default: the accelerator that is there.
    checkpoint : path, optional
        Folder of the fit's state after every epoch; the same call goes on where it was interrupted.
    folds : int
        Parts into which cross-fitting divides the training patients.
    standardise : bool
        Whether a cross-fit trains in units of its patients' spread.
    """

    fit: Fit
    parts: dict[str, PairedEyes]
    order: Callable[[int], np.random.Generator]
    device: str | torch.device | None = None
    checkpoint: str | os.PathLike | None = None
    folds: int = 3
    standardise: bool = True

    def copy(self) -> "OneNetwork":
        """Return networks with the same weights that train on their own."""
        return replace(self, fit=self.fit.copy())

    def train(
        self, stage: str, recipe: Recipe, objective: Objective | None, order: int
    ) -> list[list[dict[str, Any]]]:
        """Train in place, under the empirical loss or another; return each network's trace."""
        made = Stage(self, stage, recipe, objective, order)
        trace = train(made, self.checkpoint and Checkpoint(self.checkpoint))
        recipes = {**self.fit.notes.get("recipes", {}), stage: recipe.to_dict()}
        self.fit = replace(
            self.fit,
            parameters=made.last[0] if made.last else self.fit.parameters,
            trace=[*self.fit.trace, *trace],
            notes={**self.fit.notes, "recipes": recipes},
        )
        return [trace]

    def trainer(self, stage: str, recipe: Recipe, loss: nn.Module, order: int) -> NetworkTrainer:
        """Return what trains it, epoch by epoch."""
        return NetworkTrainer(self, loss, recipe, self.order(order), stage)

    def loss(self, objective: Objective) -> nn.Module:
        """Return the mean loss over patients, in units of training."""
        p0, p1 = self.fit.continuous, len(self.fit.responses) - self.fit.continuous
        if objective.learned_weights:
            loss = UncertaintyWeightedLoss(p0, p1)
        elif objective.parameters is None:
            loss = EmpiricalLoss(p0=p0, reduction="mean")
        else:
            loss = copula_loss(*self.inside(objective.parameters))
        # a loss takes the data as PairedEyes has checked them, or each step would wait twice
        loss.validate = False
        seen = [self.parts[part] for part in ("train", "held-out") if part in self.parts]
        loss.missing = any(not bool(data.complete.all()) for data in seen)
        return loss

    def first_parameters(self) -> Parameters:
        """Return each network's sigma = SD of the responses and Gamma = I."""
        train = self.parts["train"]
        scale = Standardisation.of(train.y, train.continuous, train.responses).sd
        return [CopulaParameters.independent(scale, train.y.shape[1] - train.continuous)]

    def inside(self, parameters: Parameters) -> Parameters:
        """Return copula parameters in each network's units of training."""
        return [self.fit.standardisation.parameters_inside(own) for own in parameters]

    def outputs(self, part: str) -> list[Tensor]:
        """Return each network's outputs ``(n, p)`` for a part of its patients, in their units."""
        return [predict_outputs(self.fit, self.parts[part], device=self.device)]

    def responses(self, part: str) -> list[Tensor]:
        """Return the responses ``(n, p)`` that belong to :meth:`outputs`."""
        return [self.parts[part].y]

    def cross_fits(self, same_units: bool = False) -> Iterator[tuple["OneNetwork", list[Any]]]:
        """Yield copies that train on all but one ``"left-out"`` part of the training patients, in
        units of their own patients or of all.

        With each copy come the left-out patients' numbers among the training patients.
        """
        data, rng = self.parts["train"], self.order(CROSS_FIT)
        for split in split_by_patient(data, self.folds, rng, require_classes=False):
            train, fit = data.subset(split.train), self.fit.copy()
            if not same_units:
                fit = Fit.fresh(fit.model, train, self.standardise)
            parts = {"train": train, "left-out": data.subset(split.test)}
            # the first of these orders was the division's
            own = {"fit": fit, "parts": parts, "order": lambda number: self.order(number + 1)}
            yield replace(self, **own), [split.test]

    def estimates(
        self,
        source: Source,
        outputs: list[Tensor],
        responses: list[Tensor],
        last: Parameters | None = None,
    ) -> list[tuple[CopulaParameters, dict[str, Any]]]:
        """Return each network's copula parameters, searched from the last ones, and remarks."""
        return processes().everyone(estimated(source.estimator(), outputs[0], responses[0]))[:1]

    def estimate(
        self, source: Source, outputs: list[Tensor], responses: list[Tensor]
    ) -> list[CopulaParameters]:
        """Estimate the copula parameters; the notes of the fit say how."""
        patients = self.parts[source.patients]
        _refuse_interpolation(outputs[0], patients)
        [(found, remarks)] = self.estimates(source, outputs, responses)
        if self.checkpoint:
            identity = {
                "estimator": source.name,
                "estimate on": source.part,
                "data": patients.hash,
                "outputs": list(outputs[0].shape),
            }
            # on an accelerator a second run's last digits may differ: the first estimate stays
            kept = Checkpoint(self.checkpoint).first(
                "estimate", identity, {"parameters": found.to_dict()}
            )
            found = CopulaParameters.from_dict(kept["parameters"])
        told = {"estimator": repr(source.estimator()), "estimate_on": source.part, **remarks}
        self.fit = replace(self.fit, parameters=found, notes={**self.fit.notes, **told})
        return [found]


def fit_warm_up(
    model: nn.Module | Fit,
    data: PairedEyes,
    recipe: Recipe = Recipe(),  # noqa: B008 - frozen
    *,
    rng: np.random.Generator,
    standardise: bool = True,
    stage: str = "warm-up",
    **where: Any,
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
    stage : str
        Name for the trace, for messages and for the checkpoint's file.
    **where
        ``validation`` (:class:`~cevit_lib.datasets.PairedEyes` whose loss is traced and never
        trained on), ``device``, ``checkpoint``: see
        :class:`~cevit_lib.training.network.OneNetwork`.

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
    return _stage(start, data, rng, (stage, recipe, Objective()), **where)


def fit_copula(
    warm_up: Fit,
    data: PairedEyes,
    parameters: CopulaParameters,
    recipe: Recipe = Recipe(60, 1e-4),  # noqa: B008 - frozen
    *,
    rng: np.random.Generator,
    stage: str = "copula",
    **where: Any,
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
    recipe, rng, stage, **where
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
    return _stage(warm_up.copy(), data, rng, (stage, recipe, Objective([parameters])), **where)


def _stage(
    fit: Fit,
    data: PairedEyes,
    rng: np.random.Generator,
    what: tuple[str, Recipe, Objective],
    validation: PairedEyes | None = None,
    **where: Any,
) -> Fit:
    parts = {"train": data} if validation is None else {"train": data, "held-out": validation}
    network = OneNetwork(fit, parts, lambda _: rng, **where)
    network.train(*what, WARM_UP)
    return network.fit


def _refuse_interpolation(outputs: Tensor, data: PairedEyes) -> None:
    continuous = slice(data.continuous)
    residual, spread = (
        np.nanstd(part[:, continuous].numpy(), 0) for part in (data.y - outputs, data.y)
    )
    known = np.flatnonzero(residual < 0.02 * spread)
    if len(known):
        raise TrainingError(
            f"the warm-up reproduces {data.responses[known[0]]!r} almost exactly (residual SD "
            f"{100 * (residual / spread)[known[0]]:.1f} % of the response's): it has learnt "
            "the patients by heart and leaves nothing to estimate correlations from. Train fewer "
            "epochs or estimate on held-out patients."
        )
