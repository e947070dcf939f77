"""The two algorithms, over one network or many side by side.

**Algorithm 3 of the paper**, feasible CeViT, and its controls: step 1 trains under the empirical
loss, step 2 estimates the copula parameters from the outputs, step 3 trains on under the copula
loss with these parameters held fixed. What else starts from the same warm-up, with the same
patients, epochs and order, is another *arm*: more epochs of the empirical loss, independence, other
estimates, the truth. An arm's numbers do not depend on which others run.

**One stage** has no warm-up: it trains under the copula loss from the start, and what
:class:`Renewing` does after every epoch gives the loss its next parameters.

:class:`~cevit_lib.training.network.OneNetwork` and
:class:`~cevit_lib.training.side_by_side.SideBySide` are the two kinds of networks.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
from torch import Tensor, full_like, isfinite, linalg, nan

from cevit_lib.copula import CopulaParameters
from cevit_lib.errors import EstimateKeptWarning
from cevit_lib.training.objective import Objective, Parameters, Source
from cevit_lib.training.recipe import Recipe
from cevit_lib.training.trainer import Trainer

WARM_UP, FURTHER, CROSS_FIT = 0, 1, 2  # orders of the patients; each cross-fit has a further one


class Networks(Protocol):
    """One network or many side by side, with their patients."""

    def copy(self) -> Self:
        """Return networks with the same weights that train on their own."""

    def train(
        self, stage: str, recipe: Recipe, objective: Objective | None, order: int
    ) -> list[list[dict[str, Any]]]:
        """Train in place, under the empirical loss or another; return each network's trace."""

    def trainer(self, stage: str, recipe: Recipe, loss: Any, order: int) -> Trainer:
        """Return what trains them, epoch by epoch."""

    def inside(self, parameters: Parameters) -> Parameters:
        """Return copula parameters in each network's units of training."""

    def outputs(self, part: str) -> list[Tensor]:
        """Return each network's outputs ``(n, p)`` for a part of its patients, in their units."""

    def responses(self, part: str) -> list[Tensor]:
        """Return the responses ``(n, p)`` that belong to :meth:`outputs`."""

    def cross_fits(self, same_units: bool = False) -> Iterable[tuple[Self, list[np.ndarray]]]:
        """Yield copies that train on all but one ``"left-out"`` part of the training patients, in
        units of their own patients or of all.

        With each copy come the left-out patients' numbers among the training patients.
        """

    def estimates(
        self,
        source: Source,
        outputs: list[Tensor],
        responses: list[Tensor],
        last: Parameters | None = None,
    ) -> list[tuple[CopulaParameters, dict[str, Any]]]:
        """Return each network's copula parameters, searched from the last ones, and remarks."""

    def estimate(
        self, source: Source, outputs: list[Tensor], responses: list[Tensor]
    ) -> Parameters:
        """Return each network's copula parameters, those of a fit that was resumed first."""


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
        A copy of the networks before the warm-up, for what else starts from the initial weights.
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
        self,
        arm: str,
        parameters: Parameters | None = None,
        *,
        from_scratch: bool = False,
        order: int = FURTHER,
    ) -> Networks:
        """Step 3, or a control: train copies of the warm-up further.

        Parameters
        ----------
        arm : str
            Name of the stage.
        parameters : list of CopulaParameters, optional
            Held fixed, one a network; without them the loss is the empirical one.
        from_scratch : bool
            The arm starts from the initial weights and takes the place of the warm-up.
        order : int
            Which order of the patients it sees; arms that are compared see the same.
        """
        twin = (self.fresh if from_scratch else self.networks).copy()
        recipe = self.first if from_scratch else self.further
        self.traces[arm] = twin.train(arm, recipe, Objective(parameters), order)
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


class Renewing:
    """One stage: the copula parameters of a loss, estimated again while its networks train.

    Parameters
    ----------
    networks : Networks
        Those of the stage.
    objective : Objective
        Its parameters are those of the first epoch; without a renewal they are held fixed.
    loss
        Takes its next ones by ``set_parameters``, one a network, in units of training.
    """

    def __init__(self, networks: Networks, objective: Objective, loss: Any) -> None:
        self.networks, self.renewal, self.loss = networks, objective.renewal, loss
        self.last = objective.parameters
        crossed = self.renewal and self.renewal.source.part == "cross-fitted"
        # one loss for all: a cross-fit trains in the units of the networks that it serves
        self.twins = list(networks.cross_fits(same_units=True)) if crossed else []

    def trainers(self, stage: str, recipe: Recipe, order: int) -> list[Trainer]:
        """Return what makes every epoch: the networks, then those that leave a part out."""
        first = self.networks.trainer(stage, recipe, self.loss, order)
        further = [
            twin.trainer(f"cross-fit {number + 1}", recipe, self.loss, CROSS_FIT + number)
            for number, (twin, _) in enumerate(self.twins)
        ]
        return [first, *further]

    def after(self, epoch: int, recipe: Recipe) -> list[dict[str, Any]]:
        """Give the loss its next parameters; return what each network's trace says of them, nothing
        where it is not time.

        Warns
        -----
        EstimateKeptWarning
            The estimator failed, or what it found is not finite: the last one is kept.
        """
        if not self.renewal or (epoch % self.renewal.every and epoch < recipe.epochs):
            return []
        try:
            found = self._estimates(self.renewal.source)
        except (ArithmeticError, ValueError, linalg.LinAlgError) as error:
            told = f"epoch {epoch}: no new estimate of the copula parameters ({error}); "
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
        found = networks.estimates(source, outputs, networks.responses(source.patients), self.last)
        numbers = [part for own, _ in found for part in (own.correlation, own.scale)]
        if not all(bool(isfinite(part).all()) for part in numbers):
            raise ArithmeticError("it is not finite")
        return found


def left_out_outputs(
    networks: Networks, crossed: Iterable[tuple[Networks, list[np.ndarray]]]
) -> list[Tensor]:
    """Return each training patient's outputs by the cross-fit that left him out."""
    found = [full_like(y, nan) for y in networks.responses("train")]
    for twin, places in crossed:
        for own, place, outputs in zip(found, places, twin.outputs("left-out"), strict=True):
            own[place] = outputs
    return found
