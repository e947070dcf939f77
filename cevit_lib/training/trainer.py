"""An epoch of training, step by step: the same for one network and for many side by side."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cevit_lib.errors import TrainingError
from cevit_lib.training.processes import processes
from cevit_lib.training.recipe import Recipe


class Trainer(ABC):
    """A stage of training; a subclass knows its networks, patients and loss.

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

    def epoch(self) -> Any:
        """Let every patient take part once; return the epoch's entry of the trace.

        Raises
        ------
        TrainingError
            A loss or a gradient is not finite.
        """
        batches, losses, norms = self.draw(), [], []
        for number, rows in enumerate(batches):
            self._set_rate(self.done * len(batches) + number, len(batches))
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
        return self.entry(total, norm)

    def _set_rate(self, step: int, steps_per_epoch: int) -> None:
        self.rate = self.recipe.learning_rate * self.recipe.factor(step, steps_per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate

    @abstractmethod
    def draw(self) -> Sequence[Any]:
        """Return the patients' rows of each step, in a new order."""

    @abstractmethod
    def backward(self, number: int, rows: Any) -> Tensor:
        """Add the gradient of a batch's mean loss; return what the batch adds to the trace."""

    @abstractmethod
    def clip(self) -> Tensor:
        """Shorten the gradient where the recipe says so; return its norm before."""

    @abstractmethod
    def entry(self, losses: Tensor, norms: Tensor) -> Any:
        """Return the entry of the trace for an epoch's losses and norms, step by step."""

    @abstractmethod
    def divergence(self, first: list[int], batches: Sequence[Any], losses: Tensor) -> str:
        """Say where the first value that is not finite arose, and the likely cause."""
