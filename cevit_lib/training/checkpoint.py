"""Checkpoints: a fit that is killed at any moment goes on after its last whole epoch, to one end.

A fit has stages (warm-up, estimate, copula training, controls), each with a file of its own in the
fit's folder. On a second run every stage finds its file: a finished one is read, an unfinished one
goes on. What happens between stages is computed again from the same numbers, so that on a CPU a
resumed fit is bit for bit the uninterrupted one.

A file holds tensors and plain Python values only and is read with ``weights_only=True``: it can run
no code. It appears whole or not at all: until it is there, the one before it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from cevit_lib.copula import CopulaParameters
from cevit_lib.errors import DataError, ParameterError
from cevit_lib.paths import whole_file
from cevit_lib.training.processes import processes

if TYPE_CHECKING:
    from cevit_lib.training.algorithm import Stage
    from cevit_lib.training.loop import NetworkTrainer
    from cevit_lib.training.objective import Renewal

FORMAT = 2
FLAT_EPOCHS = 3  # so many constant epochs in a row are a collapse, not a slow start


class Checkpoint:
    """The folder of one fit.

    Parameters
    ----------
    folder : path
        Made when first written to. One fit, one folder: its stages are told apart by name.
    """

    def __init__(self, folder: str | os.PathLike) -> None:
        self.folder = Path(folder)

    def path(self, stage: str) -> Path:
        """Return the file of a stage."""
        return self.folder / f"{re.sub('[^a-z0-9]+', '-', stage.lower()).strip('-')}.pt"

    def load(self, stage: str, identity: dict[str, Any]) -> dict[str, Any] | None:
        """Return what the stage last wrote, or ``None`` if it never did.

        Raises
        ------
        ParameterError
            It was written by another fit: the message names what differs; or it cannot be read.
        """
        path = self.path(stage)
        if not path.is_file():
            return None
        try:
            stored = torch.load(path, map_location="cpu", weights_only=True)
            if stored["format"] != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
        except Exception as error:  # a torn file, or one of another kind, fails in many ways
            raise ParameterError(
                f"checkpoint {path} cannot be read ({type(error).__name__}: {str(error)[:200]}); "
                f"remove {self.folder} to start anew."
            ) from error
        there = stored["identity"]
        differ = [key for key in {**there, **identity} if there.get(key) != identity.get(key)]
        if differ:
            pairs = (f"{key}: {there.get(key)} there, {identity.get(key)} here" for key in differ)
            raise ParameterError(
                f"checkpoint {path} belongs to another fit ({'; '.join([*pairs][:4])}). Name "
                "another folder for this fit, or remove that one."
            )
        return stored

    def save(self, stage: str, identity: dict[str, Any], state: dict[str, Any]) -> None:
        """Write the state of a stage, whole or not at all; of several processes the first does.

        Raises
        ------
        OutputError
            The disk is full; the state before is still there, and a second run goes on from it.
        """
        if processes().main:
            with whole_file(self.path(stage)) as stream:
                torch.save({"format": FORMAT, "identity": identity, **state}, stream)

    def first(self, stage: str, identity: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        """Return the state that a stage was saved with first; save it where nothing is."""
        stored = self.load(stage, identity)
        if stored is None:
            self.save(stage, identity, state)
        return stored or state

    def remove(self) -> None:
        """Delete what this class wrote: the fit has its record."""
        for path in self.folder.glob("*.pt*"):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()


class Progress:
    """State of one stage of training, epoch by epoch.

    Parameters
    ----------
    stage : Stage
        Of one network, before its first step: what it holds now tells it from others.
    checkpoint : Checkpoint or None
        Where the state is kept.
    """

    def __init__(self, stage: Stage, checkpoint: Checkpoint | None) -> None:
        self.stage, self.trainer, self.checkpoint = stage, stage.trainers[0], checkpoint
        self.identity = identity_of(self.trainer, stage.renewal) if checkpoint else {}
        self.trace: list[dict[str, Any]] = []
        self.flat = 0

    @property
    def finished(self) -> bool:
        """Whether all epochs are made."""
        return len(self.trace) == self.trainer.recipe.epochs

    def resume(self) -> None:
        """Go to where the stage was interrupted; nothing happens where it never began."""
        trainer = self.trainer
        stored = self.checkpoint and self.checkpoint.load(trainer.stage, self.identity)
        if stored is None:
            return
        source = self.checkpoint.path(trainer.stage)
        self.trace, self.flat = stored["trace"], stored["flat"]
        trainer.loss.load_state_dict(stored["loss"])
        for entry in self.trace:
            if "estimate" in entry:
                self.stage.last = [CopulaParameters.from_dict(entry["estimate"])]
        for each, own in zip(self.stage.trainers, stored["trainers"], strict=True):
            restore(each.model, own["weights"], changing(each.model).keys(), source)
            if own["optimizer"]:
                each.optimizer.load_state_dict(own["optimizer"])
            each.rng.bit_generator.state = json.loads(own["order"])
            each.done = len(self.trace)
        set_torch_state(stored["torch"][processes().index], trainer.device)

    def add(self, entry: dict[str, Any], constant: bool) -> bool:
        """Take in an epoch and write the checkpoint; return whether the predictor collapsed."""
        self.trace.append(entry)
        self.flat = self.flat + 1 if constant else 0
        if self.flat == FLAT_EPOCHS or (constant and self.finished):
            return True
        if self.checkpoint is not None:
            self._write()
        return False

    def _write(self) -> None:
        trainer = self.trainer
        trainers = [
            {
                "weights": changing(each.model),
                "optimizer": {} if self.finished else each.optimizer.state_dict(),
                "order": rng_state(each.rng),
            }
            for each in self.stage.trainers
        ]
        torch_states = processes().everyone(torch_state(trainer.device))
        state = {"trainers": trainers, "loss": trainer.loss.state_dict(), "torch": torch_states}
        state |= {"trace": self.trace, "flat": self.flat}
        self.checkpoint.save(trainer.stage, self.identity, state)


def identity_of(trainer: NetworkTrainer, renewal: Renewal | None) -> dict[str, Any]:
    """Return what tells a stage's training from any other, by name: equal ones do equal steps."""
    data, recipe = trainer.images.data, trainer.recipe
    loss, copula = type(trainer.loss).__name__, getattr(trainer.loss, "copula", None)
    under = f" {digest([copula.correlation, copula.scale])}" if copula is not None else ""
    return {
        "stage": trainer.stage,
        "data": data.hash,
        "patients": len(data),
        "responses": digest([trainer.y]),
        "loss": f"{loss}{under}",
        "renewal": "none" if renewal is None else str(renewal),
        **{f"recipe {key}": value for key, value in recipe.to_dict().items()},
        "initial weights": digest(trainer.model.state_dict().values()),
        "order": hashlib.sha256(rng_state(trainer.rng).encode()).hexdigest()[:16],
        "processes": processes().count,
    }


def changing(model: nn.Module) -> dict[str, Tensor]:
    """Return CPU copies of what training changes: trainable parameters and stored buffers."""
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    return {
        name: tensor.detach().cpu().clone()
        for name, tensor in model.state_dict().items()
        if name not in frozen
    }


def restore(model: nn.Module, stored: Any, expected: Set[str], source: Any) -> None:
    """Put stored tensors back into a network, in place: each that is expected, and no other.

    Raises
    ------
    DataError
        Some are missing, unknown, of another shape or not finite; the message names the file.
    """
    from cevit_lib.encoder.weights import counted, misfits  # no other network needs the encoder

    stored = stored if isinstance(stored, dict) else {}
    if told := counted(misfits(model.state_dict(), stored, expected)):
        raise DataError(
            f"{source} does not hold what it should ({told}): take the file as it was written, or "
            "make it again."
        )
    model.load_state_dict(stored, strict=False)


def rng_state(rng: np.random.Generator) -> str:
    """Return a NumPy generator's state as text (its integers are too long for other formats)."""
    return json.dumps(rng.bit_generator.state, default=np.ndarray.tolist, sort_keys=True)


def torch_state(device: torch.device) -> dict[str, Tensor]:
    """Return the states of torch's generators: the CPU's, and the device's own."""
    cuda = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"cpu": torch.get_rng_state(), **cuda}


def set_torch_state(states: dict[str, Tensor], device: torch.device) -> None:
    """Bring torch's generators back to their states."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def digest(tensors: Any) -> str:
    """Return 16 digits of the SHA-256 of tensors."""
    total = hashlib.sha256()
    for tensor in tensors:
        content = tensor.detach().cpu().contiguous().flatten()
        total.update(content.view(torch.uint8).numpy().data if content.numel() else b"")
    return total.hexdigest()[:16]
