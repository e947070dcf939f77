"""The training of one network: a trace per epoch, and a clear stop when it cannot succeed."""

from __future__ import annotations

import contextlib
import gc
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from cevit_lib.datasets import PairedEyes
from cevit_lib.datasets.paired import numbers
from cevit_lib.errors import ParameterError, TrainingError
from cevit_lib.training.algorithm import Stage, Trainer
from cevit_lib.training.checkpoint import Checkpoint, Progress
from cevit_lib.training.compiling import (
    compare_compiled,
    compiled,
    lacks_memory,
    wake_compiler,
    wrongly_compiled,
)
from cevit_lib.training.processes import processes
from cevit_lib.training.recipe import Recipe
from cevit_lib.training.seeds import reproducible, torch_seeded

if TYPE_CHECKING:
    from cevit_lib.training.network import OneNetwork

LOG = logging.getLogger(__name__)  # one line an epoch: stage, epoch, of how many
RESIDENT_BYTES = 2 * 2**30  # images up to this size are read once and stay on the device
COLLAPSED = 1e-3  # outputs that vary less, in standard units, tell no patient from another
EVALUATION_BATCH = 256


def find_device(device: str | torch.device | None = None) -> torch.device:
    """Return the device to train on: the one named, else the first CUDA device, else the CPU.

    Of several processes that train one fit together each has its own, whatever was named.

    Raises
    ------
    ParameterError
        No device has that name, or this machine has none of that kind.
    """
    if processes().device is not None:
        return processes().device
    if device is None or str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:  # a torch without a device's library asserts
        raise ParameterError(
            f"device {str(device)!r} cannot be used here ({str(error).splitlines()[0][:120]}); "
            "take auto or cpu; 'cevit doctor' lists what this machine has."
        ) from None


class Batches:
    """Images of a data set by row number; they lie on the device, as bytes if they are, when they
    fit, and are else read by batch."""

    def __init__(self, data: PairedEyes, device: torch.device) -> None:
        self.data, self.device, room = data, device, RESIDENT_BYTES
        if device.type == "cuda":  # a quarter of what is free, if that is more
            room = max(room, torch.cuda.mem_get_info(device)[0] // 4)
        each = min(data.images.dtype.itemsize, 4)
        small = each * int(np.prod(data.images.shape)) <= room
        self.resident = data.stored().to(device) if small else None

    def __getitem__(self, rows: np.ndarray) -> Tensor:
        if self.resident is None:
            return numbers(self.data.stored(rows).to(self.device, non_blocking=True))
        return numbers(self.resident[on(self.device, rows)])

    def inputs(self, model: nn.Module, rows: np.ndarray) -> tuple[Tensor, ...]:
        """Return what a network takes: images, and covariates where it has a place for them."""
        images, further = self[rows], self.data.covariates
        wants = further is not None and getattr(model, "covariates", False)
        return (images, further[torch.as_tensor(rows)].to(images)) if wants else (images,)


def on(device: torch.device, rows: np.ndarray) -> Tensor:
    """Return row numbers on a device; a plain copy would wait for all that the device still has to
    do, in every step."""
    return torch.as_tensor(rows).to(device, non_blocking=True)


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager:
    """Return the context in which the network (never the loss) runs."""
    if precision == "float32" or (precision == "auto" and device.type != "cuda"):
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def train(stage: Stage, checkpoint: Checkpoint | None) -> list[dict[str, Any]]:
    """Train one network through a stage and return one entry per epoch.

    Parameters
    ----------
    stage : Stage
        Of one network.
    checkpoint : Checkpoint, optional
        Of the fit.

    Returns
    -------
    list of dict
        ``stage, epoch, loss, validation_loss, learning_rate, gradient_norm, seconds``.

    Raises
    ------
    TrainingError
        A loss is not finite, the outputs no longer differ between patients, or the memory does not
        suffice; the message names epoch, batch, cause.
    ParameterError
        The checkpoint belongs to another fit.

    Warns
    -----
    WronglyCompiledWarning
        The compiled network's gradients are not the network's; it is trained uncompiled.
    RuntimeWarning
        Its training pass cannot be recorded, and is not replayed.
    """
    recipe, trainer = stage.recipe, stage.trainers[0]
    progress = Progress(stage, checkpoint)
    same = reproducible() if recipe.deterministic else contextlib.nullcontext()
    seeded = torch_seeded(trainer.rng, processes().index, trainer.device)
    with seeded, same, _room_to_compile(recipe.compiled):
        progress.resume()
        while not progress.finished:
            (entry,) = stage.epoch(trainer.validate)
            if progress.add(entry, trainer.spread() < COLLAPSED):
                raise TrainingError(
                    f"{trainer.stage}: after epoch {trainer.done} the outputs are the same for "
                    f"every patient (SD below {COLLAPSED:g}): the predictor has collapsed to a "
                    f"constant. Likely cause: learning rate {recipe.learning_rate:g} is too large, "
                    "or the images carry no signal; try a tenth of it, schedule='cosine', or other "
                    "initial weights."
                )
            said = spoken(entry)
            done = (trainer.stage, entry["epoch"], recipe.epochs)
            LOG.info(f"%s: epoch %d of %d{said}", *done, extra={"said": said})
    if recipe.compiled:  # what was recorded holds the memory of a whole pass
        for each in stage.trainers:
            each.forward = None
        gc.collect()
    return progress.trace


class NetworkTrainer(Trainer):
    """A stage of one network.

    Parameters
    ----------
    network : OneNetwork
        With its patients; those of its part ``"held-out"`` are watched.
    loss : torch.nn.Module
        ``loss(outputs, y)``: the mean over the patients of a batch, in units of training.
    recipe : Recipe
        How to optimise.
    rng : numpy.random.Generator
        Order of the patients and dropout.
    stage : str
        Name for the trace and for messages.
    """

    def __init__(
        self,
        network: OneNetwork,
        loss: nn.Module,
        recipe: Recipe,
        rng: np.random.Generator,
        stage: str,
    ) -> None:
        self.model, self.loss, self.rng = network.fit.model, loss, rng
        self.device = find_device(network.device)
        if recipe.compiled:
            wake_compiler(self.device)
        self.model.to(self.device)
        processes().same(self.model)
        loss.to(self.device)
        optimizer = recipe.build_optimizer([*self.model.parameters(), *loss.parameters()])
        self.images, self.y = self._patients(network, "train")
        super().__init__(optimizer, recipe, stage, len(self.y))
        self.checked = self._patients(network, "held-out") if "held-out" in network.parts else None
        self.seen: Tensor | None = None  # outputs of the watched patients, where there are some
        self.forward: Callable | None = None if recipe.compiled else self.model
        self.room = 0  # patients whom the compiled program takes, which is made for one size

    def _patients(self, network: OneNetwork, part: str) -> tuple[Batches, Tensor]:
        """Return the images of a part of the patients, and their responses in units of training."""
        data, units = network.parts[part], network.fit.standardisation
        return Batches(data, self.device), units.apply(data.y).to(self.device, torch.float32)

    def draw(self) -> list[np.ndarray]:
        """Return the patients' rows of each step, in a new order."""
        self.model.train()
        return np.array_split(self.rng.permutation(self.patients), self.steps)

    def backward(self, number: int, rows: np.ndarray) -> Tensor:
        """Add the gradient of a batch's mean loss; return what the batch adds to the trace."""
        try:
            return self._backward(rows)
        except RuntimeError as error:  # torch's own OutOfMemoryError is one; the CPU has none
            if not lacks_memory(error):
                raise
            lack = str(error).splitlines()[0]
        # raised out here, where no frame of the failed step holds its tensors any more
        self.optimizer.zero_grad(set_to_none=True)
        recipe = self.recipe
        raise TrainingError(
            f"{self.stage}: out of memory in epoch {self.done + 1}, batch {number + 1} "
            f"({len(rows)} "
            f"patients in {recipe.accumulation} part(s)): {lack[:160]}. Make "
            f"batch_size={recipe.batch_size} smaller, or keep it and set "
            f"accumulation={2 * recipe.accumulation}: the same steps in smaller parts, for less "
            "memory and more time."
        )

    def _backward(self, rows: np.ndarray) -> Tensor:
        """Add the gradient in ``recipe.accumulation`` parts; return the batch's sum of losses."""
        total, parts = torch.zeros((), device=self.device), self._parts(rows)
        if self.forward is None:  # not before: a stage that had ended needs no program
            self.forward = self._compile(parts)
        for part in parts:
            with autocast(self.device, self.recipe.precision):
                empty = max(0, self.room - len(part))
                filled = np.pad(part, (0, empty), mode="edge") if empty else part
                outputs = self.forward(*self.images.inputs(self.model, filled))[: len(part)]
            y = self.y[on(self.device, part)]
            value = self.loss(outputs.float(), y)
            (value if len(part) == len(rows) else value * (len(part) / len(rows))).backward()
            total = total + value.detach() * len(part)
        return total

    def _parts(self, rows: np.ndarray) -> list[np.ndarray]:
        """Return this process's share of a batch in the parts that are computed, none empty."""
        mine = processes().share(rows)
        return np.array_split(mine, min(self.recipe.accumulation, len(mine))) if len(mine) else []

    def clip(self) -> Tensor:
        """Shorten the gradient where the recipe says so; return its norm before."""
        processes().add_gradients(self.trained)
        largest = self.recipe.clip if self.recipe.clip is not None else float("inf")
        return torch.nn.utils.clip_grad_norm_(self.trained, largest)

    def means(self, losses: Tensor, norms: Tensor) -> list[tuple[float, float]]:
        """Return each network's mean loss and norm, from those of an epoch's steps."""
        return [(float(losses.sum()) / self.patients, float(norms.mean()))]

    def divergence(self, first: list[int], batches: list[np.ndarray], losses: Tensor) -> str:
        """Say where the first value that is not finite arose, and the likely cause."""
        (number,) = first
        where = (
            f"{self.stage}: the loss or its gradient is not finite in epoch {self.done + 1}, "
            f"batch {number + 1} of {len(batches)}"
        )
        ids = [self.images.data.ids[i] for i in batches[number]]
        bad = ~torch.isfinite(self.images[batches[number]]).flatten(1).all(1)
        if bool(bad.any()):
            broken = ids[int(bad.nonzero()[0, 0])]
            return f"{where}: the images of patient {broken!r} hold values that are not finite."
        return (
            f"{where}. Likely cause: learning rate {self.recipe.learning_rate:g} is too large"
            f"{'' if self.recipe.clip else ' without gradient clipping'}, or a response in the "
            f"batch of {ids[0]!r} lies far out."
        )

    def validate(self) -> list[dict[str, float]]:
        """Return the mean loss over the validation patients, where there are some."""
        if self.checked is None:
            return [{}]
        images, y = self.checked
        self.seen = outputs_of(self.model, images, np.arange(len(y)), self.recipe.precision)
        with torch.no_grad():
            return [{"validation_loss": float(self.loss(self.seen, y))}]

    def spread(self) -> float:
        """Return the largest SD of an output over the patients who were just watched, or over (at
        most 32) training patients."""
        outputs = self.seen
        if outputs is None:
            rows = np.arange(min(self.patients, 32))
            outputs = outputs_of(self.model, self.images, rows, self.recipe.precision)
        return float(outputs.std(0).max()) if len(outputs) > 1 else float("inf")

    def _compile(self, parts: list[np.ndarray]) -> Callable:
        """Return the compiled network, or the network where what was compiled is not it."""
        program, far = compiled(self.model, replay=self.recipe.accumulation == 1), 0.0
        context = autocast(self.device, self.recipe.precision)
        for part in parts[:1]:
            far = compare_compiled(program, self.model, self.images[part], context)
        if wrongly_compiled(max(processes().everyone(far)), self.device):
            return self.model
        self.room = max(map(len, parts), default=0)  # of an epoch's first batch, the largest
        return program


def spoken(entry: dict[str, Any]) -> str:
    """Return what an epoch's estimate says, empty where nothing was estimated."""
    if "estimate" not in entry:
        return ""
    gamma, scale = (np.array(entry["estimate"][name]) for name in ("correlation", "scale"))
    above = gamma[np.triu_indices(len(gamma), 1)]
    told = [" ".join(f"{value:.2f}" for value in values) for values in (scale, above)]
    return f", sigma {told[0]}, Gamma {told[1]}"


def _room_to_compile(compiled: bool) -> contextlib.AbstractContextManager:
    """Let every stage of every fold compile its networks, beyond torch's limit."""
    if not compiled:
        return contextlib.nullcontext()
    import torch._dynamo

    return torch._dynamo.config.patch(recompile_limit=256, accumulated_recompile_limit=1024)


def outputs_of(model: nn.Module, images: Batches, rows: np.ndarray, precision: str) -> Tensor:
    """Return the model's outputs ``(k, p)`` in evaluation mode, float32, on the model's device.

    Several processes take a share each, and every one gets all.
    """
    crew, was_training = processes(), model.training
    shared = crew.count > 1 and len(rows) >= crew.count
    mine = crew.share(rows) if shared else rows
    model.eval()
    chunks = [mine[k : k + EVALUATION_BATCH] for k in range(0, len(mine), EVALUATION_BATCH)]
    with torch.inference_mode(), autocast(images.device, precision):
        parts = [model(*images.inputs(model, part)).float() for part in chunks]
    model.train(was_training)
    if shared:
        parts = [own.to(images.device) for own in crew.everyone(torch.cat(parts).cpu())]
    return torch.cat(parts)
