"""Checkpoints: a fit that is killed at any moment goes on after its last whole epoch, to one end.

A fit has stages (warm-up, estimate, copula training, controls), each with a file of its own in the
fit's folder. On a second run every stage finds its file: a finished one is read, an unfinished one
goes on. What happens between stages is computed again from the same numbers, so that on a CPU a
resumed fit is bit for bit the uninterrupted one.

A file holds tensors and plain Python values only and is read with ``weights_only=True``: it can run
no code. It appears whole or not at all, and the one before it is kept until the next is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import warnings
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from cevit_lib.copula import CopulaParameters
from cevit_lib.encoder.weights import counted, misfits
from cevit_lib.errors import DataError, ParameterError
from cevit_lib.paths import whole_file
from cevit_lib.training.processes import processes

if TYPE_CHECKING:
    from cevit_lib.training.algorithm import Renewing
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

    @classmethod
    def of(cls, given: Checkpoint | str | os.PathLike | None) -> Checkpoint | None:
        """Return the checkpoint in a folder that was named, and what is one already as it is."""
        return cls(given) if isinstance(given, str | os.PathLike) else given

    def path(self, stage: str) -> Path:
        """Return the file of a stage."""
        return self.folder / f"{re.sub('[^a-z0-9]+', '-', stage.lower()).strip('-')}.pt"

    def load(self, stage: str, identity: dict[str, Any]) -> dict[str, Any] | None:
        """Return what the stage last wrote, or ``None`` if it never did.

        Raises
        ------
        ParameterError
            It was written by another fit: the message names what differs; or no writing of it can
            be read.
        """
        path = self.path(stage)
        present = [one for one in (path, _before(path)) if one.is_file()]
        for one in present:
            stored = _read(one)
            if stored is not None:
                _refuse_other(stored["identity"], identity, one)
                return stored
        if present:
            raise ParameterError(
                f"{path} cannot be read, nor the one before it; remove {self.folder} to start anew."
            )
        return None

    def save(self, stage: str, identity: dict[str, Any], state: dict[str, Any]) -> None:
        """Write the state of a stage, whole or not at all.

        Raises
        ------
        OutputError
            The disk is full; the state before is still there, and a second run goes on from it.
        """
        path = self.path(stage)
        with whole_file(path, before=_before(path)) as stream:
            torch.save({"format": FORMAT, "identity": identity, **state}, stream)

    def remove(self) -> None:
        """Delete what this class wrote: the fit has its record."""
        for pattern in ("*.pt", "*.pt.before", ".*.pt.*.tmp"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()


class Progress:
    """State of one stage of training, epoch by epoch.

    Parameters
    ----------
    trainers : sequence of NetworkTrainer
        That of the network before its first step, which tells this stage from others, and those
        that make every epoch too, for cross-fitted outputs.
    renewing : Renewing
        Goes on from the last estimate.
    checkpoint : Checkpoint or None
        Where the state is kept.
    """

    def __init__(
        self,
        trainers: Sequence[NetworkTrainer],
        renewing: Renewing,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.trainer, self.trainers = trainers[0], trainers
        self.renewing, self.checkpoint = renewing, checkpoint
        self.identity = identity_of(self.trainer, renewing.renewal) if checkpoint else {}
        self.trace: list[dict[str, Any]] = []
        self.flat, self.finished = 0, False
        self.best: dict[str, Any] = {"epoch": 0, "loss": float("inf"), "weights": {}}

    def resume(self) -> None:
        """Go to where the stage was interrupted; nothing happens where it never began."""
        trainer = self.trainer
        stored = self.checkpoint and self.checkpoint.load(trainer.stage, self.identity)
        if stored is None:
            return
        source = self.checkpoint.path(trainer.stage)
        for name in ("trace", "flat", "finished", "best"):
            setattr(self, name, stored[name])
        trainer.loss.load_state_dict(stored["loss"])
        for entry in self.trace:
            if "estimate" in entry:
                self.renewing.last = [CopulaParameters.from_dict(entry["estimate"])]
        for each, own in zip(self.trainers, stored["trainers"], strict=True):
            restore(each.model, own["weights"], changing(each.model).keys(), source)
            if own["optimizer"]:
                each.optimizer.load_state_dict(own["optimizer"])
            each.rng.bit_generator.state = json.loads(own["order"])
            each.done = len(self.trace)
        set_torch_state(stored["torch"][processes().index], trainer.device)

    def add(self, entry: dict[str, Any], constant: bool) -> bool:
        """Take in an epoch and write the checkpoint; return whether the predictor collapsed."""
        recipe = self.trainer.recipe
        self.trace.append(entry)
        self.flat = self.flat + 1 if constant else 0
        last = len(self.trace) == recipe.epochs
        if self.flat and (self.flat == FLAT_EPOCHS or last):
            return True
        if recipe.patience is not None and entry["validation_loss"] < self.best["loss"]:
            self.best = {
                "epoch": entry["epoch"],
                "loss": entry["validation_loss"],
                "weights": changing(self.trainer.model),
            }
        waited = entry["epoch"] - self.best["epoch"]
        self.finished = last or (recipe.patience is not None and waited >= recipe.patience)
        if self.finished and self.best["epoch"]:
            self.trainer.model.load_state_dict(self.best["weights"], strict=False)
            entry["restored_epoch"] = self.best["epoch"]
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
            for each in self.trainers
        ]
        state = {
            "trainers": trainers,
            "loss": trainer.loss.state_dict(),
            "torch": processes().everyone(torch_state(trainer.device)),
            "trace": self.trace,
            "flat": self.flat,
            "finished": self.finished,
            "best": {**self.best, "weights": {}} if self.finished else self.best,
        }
        if processes().main:
            self.checkpoint.save(trainer.stage, self.identity, state)


def kept_estimate(
    checkpoint: Checkpoint | None, identity: dict[str, Any], parameters: CopulaParameters
) -> CopulaParameters:
    """Return the copula parameters that a fit's later stages know: those of its first run.

    A second run estimates again from the same numbers; on an accelerator the last digits may
    differ, and the stages that were trained under the first estimate go on under it.
    """
    if checkpoint is None:
        return parameters
    stored = checkpoint.load("estimate", identity)
    if stored is not None:
        return CopulaParameters.from_dict(stored["parameters"])
    if processes().main:
        checkpoint.save("estimate", identity, {"parameters": parameters.to_dict()})
    return parameters


def identity_of(trainer: NetworkTrainer, renewal: Renewal | None) -> dict[str, Any]:
    """Return what tells a stage's training from any other, by name: equal ones do equal steps."""
    data, recipe = trainer.images.data, trainer.recipe
    return {
        "stage": trainer.stage,
        "data": data.hash,
        "patients": len(data),
        "responses": digest([trainer.y]),
        "loss": describe_loss(trainer.loss),
        "renewal": "none" if renewal is None else str(renewal),
        **{f"recipe {key}": value for key, value in recipe.to_dict().items()},
        "initial weights": digest(trainer.model.state_dict().values()),
        "order": hashlib.sha256(rng_state(trainer.rng).encode()).hexdigest()[:16],
        "processes": processes().count,
    }


def describe_loss(loss: nn.Module) -> str:
    """Return a loss and, where it has them, its copula parameters, as text."""
    copula, name = getattr(loss, "copula", None), type(loss).__name__
    return name if copula is None else f"{name} {digest([copula.correlation, copula.scale])}"


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
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


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


def _before(path: Path) -> Path:
    return path.with_name(f"{path.name}.before")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a torn file fails in many ways; the one before it may be whole
        told = f"checkpoint {path} cannot be read ({type(error).__name__}: {error})"
        warnings.warn(told[:300], stacklevel=3)
        return None
    if not isinstance(stored, dict) or stored.get("format") != FORMAT or "identity" not in stored:
        raise ParameterError(
            f"{path} is not a checkpoint of this version (format {FORMAT}); remove it to start "
            "anew."
        )
    return stored


def _refuse_other(stored: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    differ = [key for key in {**stored, **wanted} if stored.get(key) != wanted.get(key)]
    if differ:
        pairs = (f"{key}: {stored.get(key)} there, {wanted.get(key)} here" for key in differ[:4])
        raise ParameterError(
            f"checkpoint {path} belongs to another fit ({'; '.join(pairs)}). Name another folder "
            "for this fit, or remove that one."
        )
