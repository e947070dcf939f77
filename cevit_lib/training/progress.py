"""How far a stage has come: its trace, the best epoch so far, when to stop, where it is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cevit_lib.training import checkpoint as files
from cevit_lib.training.processes import processes

if TYPE_CHECKING:
    from cevit_lib.training.loop import NetworkTrainer

FLAT_EPOCHS = 3  # so many constant epochs in a row are a collapse, not a slow start


class Progress:
    """State of one stage of training, epoch by epoch.

    Parameters
    ----------
    trainer : NetworkTrainer
        Before its first step: what it holds now tells this stage from others.
    checkpoint : Checkpoint or None
        Where the state is kept.
    """

    def __init__(self, trainer: NetworkTrainer, checkpoint: files.Checkpoint | None) -> None:
        self.trainer, self.checkpoint = trainer, checkpoint
        self.identity = files.identity_of(trainer, processes().count) if checkpoint else {}
        self.trace: list[dict[str, Any]] = []
        self.flat, self.finished = 0, False
        self.best: dict[str, Any] = {"epoch": 0, "loss": float("inf"), "weights": {}}

    def resume(self) -> None:
        """Go to where the stage was interrupted; nothing happens where it never began."""
        if self.checkpoint is None:
            return
        trainer, stored = self.trainer, self.checkpoint.load(self.trainer.stage, self.identity)
        if stored is None:
            return
        files.restore(trainer.model, stored["weights"])
        if stored["optimizer"]:
            trainer.optimizer.load_state_dict(stored["optimizer"])
        files.set_rng_state(trainer.rng, stored["order"])
        files.set_torch_state(stored["torch"][processes().index], trainer.device)
        for name in ("trace", "flat", "finished", "best"):
            setattr(self, name, stored[name])
        trainer.done = len(self.trace)

    def add(self, entry: dict[str, Any], constant: bool) -> bool:
        """Take in an epoch and write the checkpoint; return whether the predictor collapsed."""
        recipe = self.trainer.recipe
        self.trace.append(entry)
        self.flat = self.flat + 1 if constant else 0
        last = len(self.trace) == recipe.epochs
        if self.flat and (self.flat == FLAT_EPOCHS or last):
            return True
        if recipe.patience is not None and entry["validation_loss"] < self.best["loss"]:
            weights = files.changing(self.trainer.model)
            self.best = {
                "epoch": entry["epoch"],
                "loss": entry["validation_loss"],
                "weights": weights,
            }
        waited = entry["epoch"] - self.best["epoch"]
        self.finished = last or (recipe.patience is not None and waited >= recipe.patience)
        if self.finished and self.best["epoch"]:
            files.restore(self.trainer.model, self.best["weights"])
            entry["restored_epoch"] = self.best["epoch"]
        if self.checkpoint is not None:
            self._write()
        return False

    def _write(self) -> None:
        trainer = self.trainer
        states = processes().everyone(files.torch_state(trainer.device))
        state = {
            "weights": files.changing(trainer.model),
            "optimizer": {} if self.finished else trainer.optimizer.state_dict(),
            "order": files.rng_state(trainer.rng),
            "torch": states,
            "trace": self.trace,
            "flat": self.flat,
            "finished": self.finished,
            "best": {**self.best, "weights": {}} if self.finished else self.best,
        }
        if processes().main:
            self.checkpoint.save(trainer.stage, self.identity, state)
