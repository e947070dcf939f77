"""Algorithm 3 of the paper, feasible CeViT, and its controls: over one network or many side by side.

Step 1 trains under the empirical loss, step 2 estimates the copula parameters from the outputs, step
3 trains on under the copula loss with these parameters held fixed. What else starts from the same
warm-up, with the same patients, epochs and order, is another *arm*: more epochs of the empirical
loss, independence, other estimates, the truth. An arm's numbers do not depend on which others run.

:class:`~cevit_lib.training.feasible.OneNetwork` and
:class:`~cevit_lib.training.ensemble.SideBySide` are the two kinds of networks that it runs over.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

import numpy as np
from torch import Tensor, full_like, nan

from cevit_lib.copula import MINIMUM_EIGENVALUE, CopulaParameters
from cevit_lib.training.recipe import Recipe

SHRINK_TO = 0.05  # smallest eigenvalue to which a refused correlation matrix is lifted
WARM_UP, FURTHER, CROSS_FIT = 0, 1, 2  # orders of the patients; each cross-fit has a further one

Parameters = Sequence[CopulaParameters]
"""One a network, in the responses' own units."""


class Estimator(Protocol):
    """What the second step needs of an estimator of ``cevit_lib.estimation``."""

    parameters_: CopulaParameters

    def fit(self, outputs: Tensor, y: Tensor) -> "Estimator": ...


class Networks(Protocol):
    """One network or many side by side, with their patients."""

    def copy(self) -> Self:
        """Return networks with the same weights that train on their own."""

    def train(
        self, stage: str, recipe: Recipe, parameters: Parameters | None, order: int
    ) -> list[list[dict[str, Any]]]:
        """Train in place, under the empirical loss or a copula's; return each network's trace."""

    def outputs(self, part: str) -> list[Tensor]:
        """Return each network's outputs ``(n, p)`` for a part of its patients, in their units."""

    def responses(self, part: str) -> list[Tensor]:
        """Return the responses ``(n, p)`` that belong to :meth:`outputs`."""

    def cross_fits(self) -> Iterable[tuple[Self, list[np.ndarray]]]:
        """Yield copies that train on all but one ``"left-out"`` part of the training patients.

        With each copy come the left-out patients' numbers among the training patients.
        """

    def estimate(
        self, source: "Source", outputs: list[Tensor], responses: list[Tensor]
    ) -> Parameters:
        """Return each network's copula parameters."""


@dataclass(frozen=True)
class Source:
    """Where an estimate comes from: the estimator, and whose outputs it sees."""

    estimator: Callable[[], Estimator]
    part: Literal["held-out", "train", "cross-fitted"]


@dataclass(frozen=True)
class Arm:
    """A training that differs from the others by its loss alone.

    Attributes
    ----------
    name : str
        Of the stage.
    estimate : str or None
        Which copula parameters it trains under; ``None`` is the empirical loss.
    independent : bool
        Of the estimate only the scales are used.
    from_scratch : bool
        It starts from the initial weights and takes the place of the warm-up.
    order : int
        Which order of the patients it sees; every arm after the warm-up should see the same.
    """

    name: str
    estimate: str | None = None
    independent: bool = False
    from_scratch: bool = False
    order: int = FURTHER

    def parameters(self, estimates: Mapping[str, Parameters]) -> Parameters | None:
        """Return the copula parameters of the arm's loss, if it has any."""
        if self.estimate is None:
            return None
        chosen = estimates[self.estimate]
        if not self.independent:
            return chosen
        return [CopulaParameters.independent(own.scale, own.p1) for own in chosen]


@dataclass(frozen=True)
class Plan:
    """What the three steps are made with.

    Attributes
    ----------
    warm_up, further : Recipe
        Of step 1, and of step 3 and its controls.
    sources : mapping of str to Source
        The estimates of step 2, by name.
    arms : sequence of Arm
        What is to be trained; those that have a record already need not be named.
    known : mapping of str to Parameters
        Copula parameters that are not estimated, such as the truth of drawn data.
    """

    warm_up: Recipe
    further: Recipe
    sources: Mapping[str, Source]
    arms: Sequence[Arm] = ()
    known: Mapping[str, Parameters] = field(default_factory=dict)

    @property
    def needs_fresh(self) -> bool:
        """Whether something starts from the initial weights besides the warm-up."""
        crossed = any(source.part == "cross-fitted" for source in self.sources.values())
        return crossed or any(arm.from_scratch for arm in self.arms)


class AlgorithmThree:
    """Algorithm 3, step by step.

    Parameters
    ----------
    networks : Networks
        Fresh ones; the warm-up trains them in place.
    plan : Plan
        Recipes, estimates, arms.

    Attributes
    ----------
    outputs : dict
        What the estimates saw, by part of the patients.
    estimates : dict
        Copula parameters by name.
    traces : dict
        By stage, one a network.
    """

    def __init__(self, networks: Networks, plan: Plan) -> None:
        self.networks, self.plan = networks, plan
        self.fresh = networks.copy() if plan.needs_fresh else None
        self.outputs: dict[str, list[Tensor]] = {}
        self.estimates: dict[str, Parameters] = {}
        self.traces: dict[str, list[list[dict[str, Any]]]] = {}

    def warm_up(self) -> Networks:
        """Step 1: train under the empirical loss."""
        return self._train(self.networks, Arm("warm-up", from_scratch=True, order=WARM_UP))

    def cross_fit(self) -> list[Tensor]:
        """Return outputs for every training patient from a warm-up that has not seen him.

        These warm-ups start from the initial weights. For data so small that a part of it says
        nothing about six correlations, while residuals of patients who were seen are no errors.
        """
        found = [full_like(y, nan) for y in self.fresh.responses("train")]
        for number, (networks, places) in enumerate(self.fresh.cross_fits()):
            name, order = f"cross-fit {number + 1}", CROSS_FIT + number
            self._train(networks, Arm(name, from_scratch=True, order=order))
            for own, place, outputs in zip(
                found, places, networks.outputs("left-out"), strict=True
            ):
                own[place] = outputs
        self.outputs["cross-fitted"] = found
        return found

    def estimate(self) -> dict[str, Parameters]:
        """Step 2: estimate the copula parameters, from every source of the plan."""
        for name, source in self.plan.sources.items():
            if source.part not in self.outputs:
                crossed = source.part == "cross-fitted"
                seen = self.cross_fit() if crossed else self.networks.outputs(source.part)
                self.outputs[source.part] = seen
            responses = self.networks.responses(source.part.replace("cross-fitted", "train"))
            outputs = self.outputs[source.part]
            self.estimates[name] = self.networks.estimate(source, outputs, responses)
        self.estimates |= self.plan.known
        return self.estimates

    def train(self, arm: Arm) -> Networks:
        """Step 3, or a control: train copies of the warm-up, under the arm's loss."""
        start = self.fresh if arm.from_scratch else self.networks
        return self._train(start.copy(), arm)

    def _train(self, networks: Networks, arm: Arm) -> Networks:
        recipe = self.plan.warm_up if arm.from_scratch else self.plan.further
        parameters = arm.parameters(self.estimates)
        self.traces[arm.name] = networks.train(arm.name, recipe, parameters, arm.order)
        return networks


def estimated(
    estimator: Estimator, outputs: Tensor, y: Tensor
) -> tuple[CopulaParameters, dict[str, Any]]:
    """Fit an estimator; return its copula parameters, and what is to be said of them.

    A matrix so close to singular that the copula loss would refuse it is shrunk.
    """
    parameters = estimator.fit(outputs, y).parameters_
    smallest = parameters.smallest_eigenvalue()
    remarks = {
        "converged": bool(getattr(estimator, "converged_", True)),
        "smallest_eigenvalue": smallest,
        "shrunk": 0.0,
    }
    if smallest < MINIMUM_EIGENVALUE:
        remarks["shrunk"] = (SHRINK_TO - smallest) / (1 - smallest)
        parameters = parameters.shrink(remarks["shrunk"])
    return parameters, remarks
