"""Algorithm 3 of the paper, feasible CeViT, and its controls: over one network or many side by
side.

Step 1 trains under the empirical loss, step 2 estimates the copula parameters from the outputs,
step 3 trains on under the copula loss with these parameters held fixed. What else starts from the
same warm-up, with the same patients, epochs and order, is another *arm*: more epochs of the
empirical loss, independence, other estimates, the truth. An arm's numbers do not depend on which
others run.

:class:`~cevit_lib.training.network.OneNetwork` and
:class:`~cevit_lib.training.side_by_side.SideBySide` are the two kinds of networks it runs over.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
from torch import Tensor, full_like, nan

from cevit_lib.training.objective import Objective, Parameters, Source
from cevit_lib.training.recipe import Recipe

WARM_UP, FURTHER, CROSS_FIT = 0, 1, 2  # orders of the patients; each cross-fit has a further one


class Networks(Protocol):
    """One network or many side by side, with their patients."""

    def copy(self) -> Self:
        """Return networks with the same weights that train on their own."""

    def train(
        self, stage: str, recipe: Recipe, objective: Objective | None, order: int
    ) -> list[list[dict[str, Any]]]:
        """Train in place, under the empirical loss or another; return each network's trace."""

    def outputs(self, part: str) -> list[Tensor]:
        """Return each network's outputs ``(n, p)`` for a part of its patients, in their units."""

    def responses(self, part: str) -> list[Tensor]:
        """Return the responses ``(n, p)`` that belong to :meth:`outputs`."""

    def cross_fits(self) -> Iterable[tuple[Self, list[np.ndarray]]]:
        """Yield copies that train on all but one ``"left-out"`` part of the training patients.

        With each copy come the left-out patients' numbers among the training patients.
        """

    def estimate(
        self, source: Source, outputs: list[Tensor], responses: list[Tensor]
    ) -> Parameters:
        """Return each network's copula parameters."""


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

    def estimate(self) -> dict[str, Parameters]:
        """Step 2: estimate the copula parameters, from every source."""
        for name, source in self.sources.items():
            crossed = source.part == "cross-fitted"
            if source.part not in self.outputs:
                seen = self.cross_fit() if crossed else self.networks.outputs(source.part)
                self.outputs[source.part] = seen
            responses = self.networks.responses("train" if crossed else source.part)
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


def left_out_outputs(
    networks: Networks, crossed: Iterable[tuple[Networks, list[np.ndarray]]]
) -> list[Tensor]:
    """Return each training patient's outputs by the cross-fit that left him out."""
    found = [full_like(y, nan) for y in networks.responses("train")]
    for twin, places in crossed:
        for own, place, outputs in zip(found, places, twin.outputs("left-out"), strict=True):
            own[place] = outputs
    return found
