"""Algorithm 3 for one network: its steps one by one, and whole."""

import copy
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from cevit_lib.copula import CopulaLoss, CopulaParameters, EmpiricalLoss
from cevit_lib.datasets import PairedEyes, hold_out, split_by_patient
from cevit_lib.errors import ParameterError, TrainingError
from cevit_lib.training.algorithm import (
    CROSS_FIT,
    AlgorithmThree,
    Parameters,
    Source,
    estimated,
)
from cevit_lib.training.checkpoint import Checkpoint, as_checkpoint, kept_estimate
from cevit_lib.training.loop import Batches, Stage, Task, find_device, outputs_of, train
from cevit_lib.training.processes import processes
from cevit_lib.training.recipe import PAPER_COPULA, PAPER_WARM_UP, Recipe
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

    def trained(
        self,
        data: PairedEyes,
        parameters: CopulaParameters | None,
        recipe: Recipe,
        rng: Any,
        stage: Stage,
    ) -> "Fit":
        """Train the network in place; return the fit with the longer trace.

        The mean loss in units of training is the empirical one (Eq. 14), or with ``parameters`` the
        copula's (Eq. 11).
        """
        inside, unseen = self.standardisation.apply, stage.validation
        loss: nn.Module = EmpiricalLoss(p0=self.continuous, reduction="mean")
        if parameters is not None:
            scaled = self.standardisation.parameters_inside(parameters)
            loss = CopulaLoss(scaled, reduction="mean")
        sets = [data] if unseen is None else [data, unseen]
        # a loss takes the data as PairedEyes has checked them, or each step would wait twice
        loss.validate = False
        loss.missing = any(not bool(own.complete.all()) for own in sets)
        task = Task(data, inside(data.y), loss, unseen and (unseen, inside(unseen.y)))
        trace = train(self.model, task, recipe, rng, stage)
        recipes = {**self.notes.get("recipes", {}), stage.stage: recipe.to_dict()}
        return replace(
            self,
            parameters=self.parameters if parameters is None else parameters,
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
    return start.trained(data, None, recipe, rng, Stage(**{"stage": "warm-up", **stage}))


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
    where = Stage(**{"stage": "copula", **stage})
    return warm_up.copy().trained(data, parameters, recipe, rng, where)


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


@dataclass(frozen=True)
class Settings:
    """What may be chosen of Algorithm 3; the arguments of :func:`fit_feasible_cevit`, by name.

    Attributes
    ----------
    estimator : optional
        Any of ``cevit_lib.estimation``; default ``ExactEM()``.
    estimate_on : {"held-out", "train", "cross-fitted"}
        Whose outputs the estimate is made from. ``"train"``: the patients that the warm-up has
        seen, as the paper does; its residuals are then too small. ``"held-out"``:
        ``held_out_share`` of the patients, whom the fit never trains on. ``"cross-fitted"``: every
        patient, predicted by one of ``folds`` further warm-ups that did not see him; for data so
        small that a tenth of it says nothing about six correlations.
    warm_up, copula : Recipe
        Of steps 1 and 3.
    held_out_share : float
        Share of the patients for ``"held-out"``.
    folds : int
        Parts for ``"cross-fitted"``.
    standardise : bool
        Train the continuous responses in units of their own spread.
    """

    estimator: Any = None
    estimate_on: Literal["held-out", "train", "cross-fitted"] = "held-out"
    warm_up: Recipe = Recipe()
    copula: Recipe = Recipe(60, 1e-4)
    held_out_share: float = 0.1
    folds: int = 3
    standardise: bool = True

    def __post_init__(self) -> None:
        if self.estimate_on not in ("held-out", "train", "cross-fitted"):
            raise ParameterError(
                f"estimate_on={self.estimate_on!r}: give 'held-out', 'train' or 'cross-fitted'."
            )
        if self.estimator is None:
            from cevit_lib.estimation import ExactEM

            object.__setattr__(self, "estimator", ExactEM())

    @classmethod
    def of(cls, preset: str | None, **given: Any) -> "Settings":
        """Return settings as they are given, or as a preset has them."""
        if preset is None:
            return cls(**given)
        if preset != "paper":
            raise ParameterError(f"preset {preset!r} is unknown; the one there is: 'paper'.")
        from cevit_lib.estimation import FastMCEM

        paper = {"estimate_on": "train", "warm_up": PAPER_WARM_UP, "copula": PAPER_COPULA}
        return cls(**{**given, **paper, "estimator": FastMCEM(), "standardise": False})


@dataclass(frozen=True)
class FeasibleFit:
    """The steps of Algorithm 3: the warm-up, the estimate made from it, and the copula's fit.

    Attributes
    ----------
    warm_up, copula : Fit
        Networks after step 1 and after step 3, both with the estimated parameters.
    estimator : Estimator
        As it was fitted in step 2.
    seen, held_out : PairedEyes, PairedEyes or None
        Patients of the training data on whom all stages trained, and those set aside for the
        estimate.
    recipe : Recipe
        Of step 3.
    order : int
        Seed of step 3.
    """

    warm_up: Fit
    copula: Fit
    estimator: Any
    seen: PairedEyes
    held_out: PairedEyes | None
    recipe: Recipe
    order: int

    @property
    def parameters(self) -> CopulaParameters:
        """The copula parameters that step 3 used."""
        return self.copula.parameters

    def arm(self, parameters: CopulaParameters | None, stage: str, **where: Any) -> Fit:
        """Train another arm from the same warm-up: same patients, epochs, recipe and order.

        ``parameters=None`` goes on with the empirical loss, which controls for the extra epochs;
        ``CopulaParameters.independent(scale, 2)`` controls for the re-weighting by the scales.
        ``device`` and ``checkpoint`` are those of :class:`~cevit_lib.training.loop.Stage`.
        """
        rng, start = np.random.default_rng(self.order), self.warm_up.copy()
        watched = Stage(**{"stage": stage, "validation": self.held_out, **where})
        return start.trained(self.seen, parameters, self.recipe, rng, watched)


@dataclass
class OneNetwork:
    """One network with its patients, as :class:`~cevit_lib.training.algorithm.AlgorithmThree` sees
    it.

    Attributes
    ----------
    fit : Fit
        How far it is.
    parts : dict
        Patients by part: ``"train"``; ``"held-out"`` ones are watched in every stage.
    order : callable
        ``order(number)`` returns the generator of a stage: order of the patients, dropout.
    stage : Stage
        Where every stage runs; its name is each stage's own.
    folds : int
        Parts into which cross-fitting divides the training patients.
    standardise : bool
        Whether a cross-fit trains in units of its patients' spread.
    """

    fit: Fit
    parts: dict[str, PairedEyes]
    order: Callable[[int], np.random.Generator]
    stage: Stage
    folds: int = 3
    standardise: bool = True

    def copy(self) -> "OneNetwork":
        return replace(self, fit=self.fit.copy())

    def train(
        self, stage: str, recipe: Recipe, parameters: Parameters | None, order: int
    ) -> list[list[dict[str, Any]]]:
        own, before = parameters and parameters[0], len(self.fit.trace)
        where = replace(self.stage, stage=stage, validation=self.parts.get("held-out"))
        self.fit = self.fit.trained(self.parts["train"], own, recipe, self.order(order), where)
        return [self.fit.trace[before:]]

    def outputs(self, part: str) -> list[Tensor]:
        return [predict_outputs(self.fit, self.parts[part], device=self.stage.device)]

    def responses(self, part: str) -> list[Tensor]:
        return [self.parts[part].y]

    def cross_fits(self) -> Iterator[tuple["OneNetwork", list[Any]]]:
        data, rng = self.parts["train"], self.order(CROSS_FIT)
        for split in split_by_patient(data, self.folds, rng, require_classes=False):
            train, model = data.subset(split.train), copy.deepcopy(self.fit.model)
            fit = Fit.fresh(model, train, self.standardise)
            parts = {"train": train, "left-out": data.subset(split.test)}
            yield replace(self, fit=fit, parts=parts), [split.test]

    def estimate(
        self, source: Source, outputs: list[Tensor], responses: list[Tensor]
    ) -> list[CopulaParameters]:
        """Estimate the copula parameters; the notes of the fit say how."""
        estimator = source.estimator()
        patients = self.parts[source.part if source.part == "held-out" else "train"]
        _refuse_interpolation(outputs[0], patients)
        identity = {  # a generator prints its address, another one in every process
            "estimator": re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(estimator)),
            "estimate on": source.part,
            "data": patients.hash,
            "outputs": list(outputs[0].shape),
        }
        crew, state = processes(), as_checkpoint(self.stage.checkpoint)
        found, remarks = crew.everyone(estimated(estimator, outputs[0], responses[0]))[0]
        found = kept_estimate(state, identity, found, crew.main)
        told = {"estimator": repr(estimator), "estimate_on": source.part, **remarks}
        self.fit = replace(self.fit, parameters=found, notes={**self.fit.notes, **told})
        return [found]


def fit_feasible_cevit(
    model: nn.Module,
    data: PairedEyes,
    *,
    rng: np.random.Generator,
    device: str | torch.device | None = None,
    checkpoint: Checkpoint | str | os.PathLike | None = None,
    preset: Literal["paper"] | None = None,
    **settings: Any,
) -> FeasibleFit:
    """Algorithm 3 whole: warm-up, estimate, copula training.

    Parameters
    ----------
    model : torch.nn.Module
        A fresh network, such as :class:`cevit_lib.encoder.BiChannelViT`; the warm-up trains it in
        place.
    data : PairedEyes
        Training patients.
    rng : numpy.random.Generator
        All randomness of the fit.
    device : str or torch.device, optional
        Default: the accelerator that is there.
    checkpoint : Checkpoint or path, optional
        Folder of the fit's state: killed at any moment and called again, with the same network,
        data and seed, the fit goes on after its last whole epoch; on a CPU it ends bit for bit as
        if it had never stopped.
    preset : {"paper"}, optional
        The paper's settings: its recipes, fMCEM, on the training residuals, raw units. It sets
        ``estimator``, ``estimate_on``, ``warm_up``, ``copula`` and ``standardise``.
    **settings
        ``estimator``, ``estimate_on``, ``warm_up``, ``copula``, ``held_out_share``, ``folds``,
        ``standardise``: see :class:`~cevit_lib.training.feasible.Settings`.

    Returns
    -------
    FeasibleFit

    Raises
    ------
    TrainingError
        A stage diverged or collapsed, or the warm-up interpolates so that nothing is left to
        estimate from.
    ParameterError
        ``estimate_on`` or ``preset`` is unknown.
    """
    chosen, parts = Settings.of(preset, **settings), {"train": data}
    if chosen.estimate_on == "held-out":
        split = hold_out(data, chosen.held_out_share, rng)
        parts = {"train": data.subset(split.train), "held-out": data.subset(split.test)}
    seen, unseen = parts["train"], parts.get("held-out")
    start, stage = Fit.fresh(model, seen, chosen.standardise), Stage("", None, device, checkpoint)
    network = OneNetwork(start, parts, lambda _: rng, stage, chosen.folds, chosen.standardise)
    source = Source(lambda: chosen.estimator, chosen.estimate_on)
    fresh = network.copy() if chosen.estimate_on == "cross-fitted" else None
    steps = AlgorithmThree(network, chosen.warm_up, chosen.copula, {"estimate": source}, fresh)
    steps.warm_up()
    steps.estimate()
    order = int(rng.integers(2**63))  # every arm's, whenever it is trained
    network.order = lambda _: np.random.default_rng(order)
    last = steps.train("copula", steps.estimates["estimate"]).fit
    return FeasibleFit(network.fit, last, chosen.estimator, seen, unseen, chosen.copula, order)


def _refuse_interpolation(outputs: Tensor, data: PairedEyes) -> None:
    p0 = data.continuous
    residual, spread = (data.y - outputs)[:, :p0], data.y[:, :p0]
    for k in range(p0):
        seen = torch.isfinite(residual[:, k])
        ratio = float(residual[seen, k].std() / spread[seen, k].std())
        if ratio < 0.02:
            raise TrainingError(
                f"the warm-up reproduces {data.responses[k]!r} almost exactly (residual SD "
                f"{100 * ratio:.1f} % of the response's): it has learnt the patients by heart and "
                "leaves nothing to estimate correlations from. Train fewer epochs or estimate on "
                "held-out patients."
            )
