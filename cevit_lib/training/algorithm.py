"""The two algorithms, over one network or many side by side, and the epoch that both repeat.

**Algorithm 3 of the paper**, feasible CeViT, and its controls: step 1 trains under the empirical
loss, step 2 estimates the copula parameters from the outputs, step 3 trains on under the copula
loss with these parameters held fixed. What else starts from the same warm-up, with the same
patients, epochs and order, is another *arm*: more epochs of the empirical loss, independence, other
estimates, the truth. An arm's numbers do not depend on which others run.

**One stage** has no warm-up: it trains under the copula loss from the start, and what
:class:`Stage` does after every epoch gives the loss its next parameters.

:class:`~cevit_lib.training.network.OneNetwork` and
:class:`~cevit_lib.training.side_by_side.SideBySide` are the two kinds of networks.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cevit_lib.copula import CopulaParameters
from cevit_lib.errors import EstimateKeptWarning, TrainingError
from cevit_lib.training.objective import Objective, Parameters, Source
from cevit_lib.training.processes import processes
from cevit_lib.training.recipe import Recipe

WARM_UP, FURTHER, CROSS_FIT = 0, 1, 2  # orders of the patients; each cross-fit has a further one


class Trainer:
    """A stage of training; a subclass knows its networks, patients and loss.

    It gives ``draw``, ``backward``, ``clip``, ``means`` and ``divergence``; what each returns
    stands at :class:`~cevit_lib.training.loop.NetworkTrainer`.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Of the recipe, over what trains.
    recipe : Recipe
        How to optimise.
    stage : str
        Name for traces and messages.
    patients : int
        How many take part in an epoch.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, recipe: Recipe, stage: str, patients: int
    ) -> None:
        self.optimizer, self.recipe, self.stage = optimizer, recipe, stage
        self.patients, self.steps = patients, -(-patients // recipe.batch_size)
        self.done, self.rate = 0, 0.0
        self.trained = [p for group in optimizer.param_groups for p in group["params"]]

    def epoch(self) -> list[dict[str, Any]]:
        """Let every patient take part once; return each network's entry of the trace.

        Raises
        ------
        TrainingError
            A loss or a gradient is not finite.
        """
        batches, losses, norms = self.draw(), [], []
        for number, rows in enumerate(batches):
            step = self.done * len(batches) + number
            self.rate = self.recipe.learning_rate * self.recipe.factor(step, len(batches))
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate
            self.optimizer.zero_grad(set_to_none=True)
            losses.append(self.backward(number, rows))
            norms.append(self.clip())
            self.optimizer.step()
        total, norm = processes().add(torch.stack(losses)), torch.stack(norms)
        # One transfer an epoch, not one a step: an accelerator never waits for a check.
        finite = torch.isfinite(total) & torch.isfinite(norm)
        if not bool(finite.all()):
            first = (~finite).nonzero()[0].tolist()
            raise TrainingError(self.divergence(first, batches, total))
        self.done += 1
        told = {"stage": self.stage, "epoch": self.done, "learning_rate": self.rate}
        means = self.means(total, norm)
        return [told | {"loss": loss, "gradient_norm": length} for loss, length in means]


class Networks:
    """One network or many side by side, with their patients.

    What the algorithms ask of them stands, method by method, at
    :class:`~cevit_lib.training.network.OneNetwork`; of many, each answer is a list.
    """

    def estimate(
        self, source: Source, outputs: list[Tensor], responses: list[Tensor]
    ) -> Parameters:
        """Return each network's copula parameters."""
        return [own for own, _ in self.estimates(source, outputs, responses)]


class Stage:
    """A stage of training: epochs of networks under one loss.

    With a renewal it is the whole of training in one stage: after every epoch the copula parameters
    of the loss are estimated again.

    Parameters
    ----------
    networks : Networks
        Trained in place.
    name : str
        For traces, messages and the checkpoint's file.
    recipe : Recipe
        How to optimise.
    objective : Objective, optional
        Default: the empirical loss.
    order : int
        Which order of the patients.

    Attributes
    ----------
    loss
        Takes other parameters by ``set_parameters``, one a network, in units of training.
    last : sequence of CopulaParameters or None
        The parameters that it has now, in the responses' own units and before ``renewal.use``.
    trainers : list of Trainer
        Of the networks, then of those that leave a part of the patients out.
    """

    def __init__(
        self,
        networks: Networks,
        name: str,
        recipe: Recipe,
        objective: Objective | None,
        order: int,
    ) -> None:
        what = objective or Objective()
        if what.renewal and what.parameters is None:
            what = replace(what, parameters=networks.first_parameters())
        self.networks, self.recipe, self.renewal = networks, recipe, what.renewal
        self.loss, self.last = networks.loss(what), what.parameters
        crossed = what.renewal and what.renewal.source.part == "cross-fitted"
        # one loss for all: a cross-fit trains in the units of the networks that it serves
        self.twins = list(networks.cross_fits(same_units=True)) if crossed else []
        self.trainers = [networks.trainer(name, recipe, self.loss, order)]
        self.trainers += [
            twin.trainer(f"cross-fit {number + 1}", recipe, self.loss, CROSS_FIT + number)
            for number, (twin, _) in enumerate(self.twins)
        ]

    def epoch(self, watch: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """Train and watch the networks, then renew their loss; return each one's entry."""
        begun = time.perf_counter()
        entries, seen = [trainer.epoch() for trainer in self.trainers][0], watch()
        epoch, told = self.trainers[0].done, [{}] * len(entries)
        if self.renewal and (self.renewal.due(epoch) or epoch == self.recipe.epochs):
            told = self.renew(f"epoch {epoch}")
        seconds = {"seconds": (time.perf_counter() - begun) / len(entries)}
        return [a | b | c | seconds for a, b, c in zip(entries, seen, told, strict=True)]

    def renew(self, when: str) -> list[dict[str, Any]]:
        """Give the loss its next parameters; return what each network's trace says of them.

        Warns
        -----
        EstimateKeptWarning
            The estimator failed: the last one is kept.
        """
        try:
            found = self._estimates(self.renewal.source)
        except (ArithmeticError, ValueError, torch.linalg.LinAlgError) as error:
            told = f"{when}: no new estimate of the copula parameters ({error}); "
            warnings.warn(told + "the last one is kept.", EstimateKeptWarning, stacklevel=2)
            found = [(own, {"kept": True}) for own in self.last]
        self.last = [own for own, _ in found]
        self.loss.set_parameters(*self.networks.inside(self.renewal.use(self.last)))
        return [{"estimate": own.to_dict() | remarks} for own, remarks in found]

    def _estimates(self, source: Source) -> list[tuple[CopulaParameters, dict[str, Any]]]:
        networks, crossed = self.networks, source.part == "cross-fitted"
        outputs = (
            left_out_outputs(networks, self.twins) if crossed else networks.outputs(source.part)
        )
        return networks.estimates(source, outputs, networks.responses(source.patients), self.last)


@dataclass
class AlgorithmThree:
    """Algorithm 3, step by step.

    Attributes
    ----------
    networks : Networks
        Fresh ones; the warm-up trains them in place.
    first, further : Recipe
        Of step 1, and of step 3 and its controls.
    sources : mapping of str to Source
        The estimates of step 2, by name.
    fresh : Networks, optional
        A copy of the networks before the warm-up, from which cross-fits start.
    outputs : dict
        What the estimates saw, by part of the patients.
    estimates : dict
        Copula parameters by name.
    traces : dict
        By stage, one a network.
    """

    networks: Networks
    first: Recipe
    further: Recipe
    sources: Mapping[str, Source]
    fresh: Networks | None = None
    outputs: dict[str, list[Tensor]] = field(default_factory=dict)
    estimates: dict[str, Parameters] = field(default_factory=dict)
    traces: dict[str, list[list[dict[str, Any]]]] = field(default_factory=dict)

    def warm_up(self) -> Networks:
        """Step 1: train under the empirical loss."""
        self.traces["warm-up"] = self.networks.train("warm-up", self.first, None, WARM_UP)
        return self.networks

    def estimate(self) -> dict[str, Parameters]:
        """Step 2: estimate the copula parameters, from every source."""
        for name, source in self.sources.items():
            if source.part not in self.outputs:
                crossed = source.part == "cross-fitted"
                seen = self.cross_fit() if crossed else self.networks.outputs(source.part)
                self.outputs[source.part] = seen
            responses = self.networks.responses(source.patients)
            outputs = self.outputs[source.part]
            self.estimates[name] = self.networks.estimate(source, outputs, responses)
        return self.estimates

    def train(
        self, arm: str, parameters: Parameters | None = None, *, order: int = FURTHER
    ) -> Networks:
        """Step 3, or a control: train copies of the warm-up further.

        Parameters
        ----------
        arm : str
            Name of the stage.
        parameters : list of CopulaParameters, optional
            Held fixed, one a network; without them the loss is the empirical one.
        order : int
            Which order of the patients it sees; arms that are compared see the same.
        """
        twin = self.networks.copy()
        self.traces[arm] = twin.train(arm, self.further, Objective(parameters), order)
        return twin

    def cross_fit(self) -> list[Tensor]:
        """Return outputs for every training patient from a warm-up that has not seen him.

        These warm-ups start from the initial weights. For data so small that a part of it says
        nothing about six correlations, while residuals of patients who were seen are no errors.
        """

        def fitted() -> Iterator[tuple[Networks, list[np.ndarray]]]:
            for number, (networks, places) in enumerate(self.fresh.cross_fits()):
                stage = f"cross-fit {number + 1}"
                self.traces[stage] = networks.train(stage, self.first, None, CROSS_FIT + number)
                yield networks, places

        return left_out_outputs(self.fresh, fitted())


def left_out_outputs(
    networks: Networks, crossed: Iterable[tuple[Networks, list[np.ndarray]]]
) -> list[Tensor]:
    """Return each training patient's outputs by the cross-fit that left him out."""
    found = [torch.full_like(y, torch.nan) for y in networks.responses("train")]
    for twin, places in crossed:
        for own, place, outputs in zip(found, places, twin.outputs("left-out"), strict=True):
            own[place] = outputs
    return found
