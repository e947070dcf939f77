"""How far a stage has come: its trace, the best epoch so far, when to stop, and the checkpoint that holds it all."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cevit_lib.training import checkpoint as files
from cevit_lib.training.processes import processes
from cevit_lib.training.recipe import Recipe

FLAT_EPOCHS = 3  # so many constant epochs in a row are a collapse, not a slow start


class Progress:
    """State of one stage of training, epoch by epoch.

    Parameters
    ----------
    model, optimizer, recipe, rng, stage, device
        Those of :func:`cevit_lib.training.train`.
    checkpoint : Checkpoint or None
        Where the state is kept.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        recipe: Recipe,
        rng: np.random.Generator,
        stage: str,
        device: torch.device,
        checkpoint: files.Checkpoint | None,
    ) -> None:
        self.model, self.optimizer, self.recipe, self.rng = model, optimizer, recipe, rng
        self.stage, self.device, self.checkpoint = stage, device, checkpoint
        self.identity: dict[str, Any] = {}
        self.trace: list[dict[str, Any]] = []
        self.flat, self.finished = 0, False
        self.best: dict[str, Any] = {"epoch": 0, "loss": float("inf"), "weights": {}}

    def identify(self, data: Any, y: Tensor, loss: nn.Module) -> None:
        """Note what tells this stage from others, before its first step."""
        if self.checkpoint is not None:
            self.identity = files.identity_of(
                self.stage, self.model, data, y, loss, self.recipe, self.rng, processes().count
            )

    def resume(self) -> None:
        """Go to where the stage was interrupted; nothing happens where it never began."""
        stored = (
            self.checkpoint.load(self.stage, self.identity) if self.checkpoint is not None else None
        )
        if stored is None:
            return
        files.restore(self.model, stored["weights"])
        if stored["optimizer"]:
            self.optimizer.load_state_dict(stored["optimizer"])
        files.set_rng_state(self.rng, stored["order"])
        files.set_torch_state(stored["torch"][processes().index], self.device)
        for name in ("trace", "flat", "finished", "best"):
            setattr(self, name, stored[name])

    def add(self, entry: dict[str, Any], constant: bool) -> bool:
        """Take in an epoch and write the checkpoint; return whether the predictor has collapsed."""
        self.trace.append(entry)
        self.flat = self.flat + 1 if constant else 0
        last = len(self.trace) == self.recipe.epochs
        if self.flat and (self.flat == FLAT_EPOCHS or last):
            return True
        self.finished = last or self._waited_enough(entry)
        if self.finished and self.best["epoch"]:
            files.restore(self.model, self.best["weights"])
            entry["restored_epoch"] = self.best["epoch"]
        self._write()
        return False

    def _waited_enough(self, entry: dict[str, Any]) -> bool:
        if self.recipe.patience is None:
            return False
        if entry["validation_loss"] < self.best["loss"]:
            self.best = {
                "epoch": entry["epoch"],
                "loss": entry["validation_loss"],
                "weights": files.changing(self.model),
            }
        return entry["epoch"] - self.best["epoch"] >= self.recipe.patience

    def _write(self) -> None:
        if self.checkpoint is None or not (
            self.finished or len(self.trace) % self.checkpoint.every == 0
        ):
            return
        states = processes().everyone(files.torch_state(self.device))
        if not processes().main:
            return
        state = {
            "weights": files.changing(self.model),
            "optimizer": {} if self.finished else self.optimizer.state_dict(),
            "order": files.rng_state(self.rng),
            "torch": states,
            "trace": self.trace,
            "flat": self.flat,
            "finished": self.finished,
            "best": {**self.best, "weights": {}} if self.finished else self.best,
        }
        self.checkpoint.save(self.stage, self.identity, state)
