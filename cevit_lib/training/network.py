"""One network with its patients, as the algorithms of training see it."""

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cevit_lib.copula import CopulaLoss, CopulaParameters
from cevit_lib.datasets import PairedEyes, split_by_patient
from cevit_lib.errors import TrainingError
from cevit_lib.training.algorithm import CROSS_FIT, left_out_outputs
from cevit_lib.training.checkpoint import as_checkpoint, kept_estimate
from cevit_lib.training.fit import Fit, predict_outputs
from cevit_lib.training.loop import NetworkTrainer, Stage, Task
from cevit_lib.training.objective import Objective, Parameters, Source, estimated, renewed
from cevit_lib.training.processes import processes
from cevit_lib.training.recipe import Recipe
from cevit_lib.training.scaling import Standardisation


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
        self, stage: str, recipe: Recipe, objective: Objective | None, order: int
    ) -> list[list[dict[str, Any]]]:
        what, before = objective or Objective(), len(self.fit.trace)
        where = replace(self.stage, stage=stage, validation=self.parts.get("held-out"))
        train, rng, renewing = self.parts["train"], self.order(order), None
        if what.renewal is not None:
            what = replace(what, parameters=what.parameters or [self.first_parameters()])
            renewing = NetworkRenewing(self, what)
        self.fit = self.fit.trained(train, what, recipe, rng, where, renewing)
        return [self.fit.trace[before:]]

    def first_parameters(self) -> CopulaParameters:
        """Return sigma = SD of the responses and Gamma = I."""
        train = self.parts["train"]
        scale = Standardisation.of(train.y, train.continuous, train.responses).sd
        return CopulaParameters.independent(scale, train.y.shape[1] - train.continuous)

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
        identity = {
            "estimator": named(estimator),
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


@dataclass
class NetworkRenewing:
    """The copula parameters of one network's stage, estimated again along the way.

    Attributes
    ----------
    network : OneNetwork
        Before the stage.
    objective : Objective
        With first parameters and a renewal.
    """

    network: OneNetwork
    objective: Objective
    twins: list[tuple[OneNetwork, list[np.ndarray]]] = field(default_factory=list)

    def __repr__(self) -> str:  # tells a checkpoint's stage from others
        renewal = self.objective.renewal
        estimator = named(renewal.source.estimator())
        return f"{estimator} on {renewal.source.part} outputs every {renewal.every}"

    def companions(self, task: Task, recipe: Recipe, device: torch.device) -> list[NetworkTrainer]:
        if self.objective.renewal.source.part != "cross-fitted":
            return []
        network, trainers = self.network, []
        for number, (twin, places) in enumerate(network.cross_fits()):
            # one loss for all: a cross-fit trains in the units of the network that it serves
            twin.fit = replace(twin.fit, standardisation=network.fit.standardisation)
            train, rng = twin.parts["train"], network.order(CROSS_FIT + 1 + number)
            own = Task(train, twin.fit.standardisation.apply(train.y), task.loss)
            twin.fit.model.to(device)
            stage = f"cross-fit {number + 1}"
            trainers.append(NetworkTrainer(twin.fit.model, own, recipe, rng, stage, device))
            self.twins.append((twin, places))
        return trainers

    def after(self, loss: CopulaLoss, trace: list[dict[str, Any]], last: bool) -> dict[str, Any]:
        renewal, network = self.objective.renewal, self.network
        epoch = len(trace) + 1
        if epoch % renewal.every and not last:
            return {}
        remarks: dict[str, Any] = {}

        def estimate() -> Parameters:
            outputs, responses = self._outputs(renewal.source.part)
            estimator = renewal.source.estimator()
            found = processes().everyone(estimated(estimator, outputs, responses))[0]
            remarks.update(found[1])
            return [found[0]]

        (found,) = renewed(estimate, [self.found(trace)], f"epoch {epoch}")
        (used,) = renewal.use([found])
        loss.set_parameters(network.fit.standardisation.parameters_inside(used))
        return {"estimate": found.to_dict() | (remarks or {"kept": True})}

    def found(self, trace: list[dict[str, Any]]) -> CopulaParameters:
        """Return the last estimate of a stage, or what it began with."""
        told = [entry["estimate"] for entry in trace if "estimate" in entry]
        if not told:
            return self.objective.parameters[0]
        return CopulaParameters.from_dict({key: told[-1][key] for key in ("correlation", "scale")})

    def _outputs(self, part: str) -> tuple[Tensor, Tensor]:
        network = self.network
        if part == "cross-fitted":
            return left_out_outputs(network, self.twins)[0], network.parts["train"].y
        return network.outputs(part)[0], network.parts[part].y


def named(estimator: Any) -> str:
    """Return an estimator as text; a generator prints its address, another in every process."""
    return re.sub(r" at 0x[0-9A-Fa-f]+", "", repr(estimator))


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
