"""The training loop: one function, a trace per epoch, and a clear stop when a fit cannot succeed."""

import contextlib
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cevit_lib.datasets import PairedEyes
from cevit_lib.errors import TrainingError
from cevit_lib.training.recipe import Recipe
from cevit_lib.training.seeds import torch_seeded

RESIDENT_BYTES = 2 * 2**30  # images up to this size are read once and stay on the device
COLLAPSED = 1e-3  # a predictor whose outputs vary less than this, in standard units, tells no patient from another
EVALUATION_BATCH = 256


def find_device(device: str | torch.device | None = None) -> torch.device:
    """Return the device to train on: the one named, else the first CUDA device, else the CPU."""
    if device is not None and str(device) != "auto":
        return torch.device(device)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Batches:
    """Images of a data set on a device, by row number; read once when they fit, else batch by batch."""

    def __init__(self, data: PairedEyes, device: torch.device) -> None:
        self.data, self.device = data, device
        small = 4 * int(np.prod(data.images.shape)) <= RESIDENT_BYTES
        self.resident = data.load().to(device) if small else None

    def __getitem__(self, rows: np.ndarray) -> Tensor:
        if self.resident is None:
            return self.data.load(rows).to(self.device, non_blocking=True)
        return self.resident[torch.as_tensor(rows, device=self.device)]


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager:
    """Return the context in which the network (never the loss) runs."""
    if precision == "float32" or (precision == "auto" and device.type != "cuda"):
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def train(
    model: nn.Module,
    data: PairedEyes,
    y: Tensor,
    loss: nn.Module,
    recipe: Recipe,
    rng: np.random.Generator,
    *,
    stage: str,
    validation: tuple[PairedEyes, Tensor] | None = None,
    device: str | torch.device | None = None,
) -> list[dict[str, Any]]:
    """Train ``model`` in place and return one entry per epoch.

    Parameters
    ----------
    model : torch.nn.Module
        Maps images ``(b, domains, channels, height, width)`` to outputs ``(b, p)``.
    data : PairedEyes
        Patients to train on.
    y : Tensor
        ``(n, p)`` their responses in the units of training.
    loss : torch.nn.Module
        ``loss(outputs, y)``: the mean over the patients of a batch.
    recipe : Recipe
        How to optimise.
    rng : numpy.random.Generator
        Order of the patients and dropout.
    stage : str
        Name for the trace and for messages.
    validation : (PairedEyes, Tensor), optional
        Patients whose loss is traced and never trained on.

    Returns
    -------
    list of dict
        ``stage, epoch, loss, validation_loss, learning_rate, gradient_norm, seconds``.

    Raises
    ------
    TrainingError
        A loss is not finite, or the outputs no longer differ between patients; the message names epoch, batch, cause.
    """
    device = find_device(device)
    model.to(device)
    images, y = Batches(data, device), y.to(device, torch.float32)
    checked = Batches(validation[0], device) if validation else None
    optimizer = recipe.build_optimizer(model.parameters())
    steps_per_epoch = -(-len(data) // recipe.batch_size)
    trace, flat = [], 0
    with torch_seeded(rng):
        for epoch in range(recipe.epochs):
            start = time.perf_counter()
            batches = np.array_split(rng.permutation(len(data)), steps_per_epoch)
            entry = {"stage": stage, "epoch": epoch + 1}
            entry |= _epoch(model, images, y, loss, recipe, optimizer, batches, epoch, stage)
            if checked is not None:
                entry["validation_loss"] = mean_loss(model, checked, validation[1], loss, recipe.precision)
            entry["seconds"] = time.perf_counter() - start
            trace.append(entry)
            flat = flat + 1 if _spread(model, images, y, recipe.precision) < COLLAPSED else 0
            if flat and (flat == 3 or epoch + 1 == recipe.epochs):
                raise TrainingError(_collapse_message(stage, epoch, recipe))
    return trace


def outputs_of(model: nn.Module, images: Batches, rows: np.ndarray, precision: str) -> Tensor:
    """Return the model's outputs ``(k, p)`` in evaluation mode, float32, on the model's device."""
    was_training = model.training
    model.eval()
    with torch.inference_mode(), autocast(images.device, precision):
        parts = [model(images[part]).float() for part in _chunks(rows, EVALUATION_BATCH)]
    model.train(was_training)
    return torch.cat(parts)


def mean_loss(model: nn.Module, images: Batches, y: Tensor, loss: nn.Module, precision: str) -> float:
    """Return the mean loss over patients, in evaluation mode."""
    outputs = outputs_of(model, images, np.arange(len(y)), precision)
    with torch.no_grad():
        return float(loss(outputs, y.to(outputs)))


def _epoch(model, images, y, loss, recipe, optimizer, batches, epoch, stage) -> dict[str, float]:
    model.train()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    losses, norms = [], []
    for number, rows in enumerate(batches):
        rate = recipe.learning_rate * recipe.factor(epoch * len(batches) + number, len(batches))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with autocast(images.device, recipe.precision):
            outputs = model(images[rows])
        value = loss(outputs.float(), y[torch.as_tensor(rows, device=y.device)])
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        norms.append(
            torch.nn.utils.clip_grad_norm_(parameters, recipe.clip if recipe.clip is not None else float("inf"))
        )
        optimizer.step()
        losses.append(value.detach() * len(rows))
    # One transfer an epoch, not one a step: an accelerator never waits for a check.
    finite = torch.isfinite(torch.stack(losses)) & torch.isfinite(torch.stack(norms))
    if not bool(finite.all()):
        raise TrainingError(
            _divergence_message(stage, epoch, int((~finite).nonzero()[0, 0]), batches, images, losses, recipe)
        )
    patients = sum(len(rows) for rows in batches)
    return {
        "loss": float(torch.stack(losses).sum()) / patients,
        "learning_rate": rate,
        "gradient_norm": float(torch.stack(norms).mean()),
    }


def _spread(model: nn.Module, images: Batches, y: Tensor, precision: str) -> float:
    """Return the largest SD of an output over (at most 256) training patients."""
    rows = np.arange(min(len(y), EVALUATION_BATCH))
    if len(rows) < 2:
        return float("inf")
    return float(outputs_of(model, images, rows, precision).std(0).max())


def _chunks(rows: np.ndarray, size: int) -> list[np.ndarray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _divergence_message(stage, epoch, number, batches, images, losses, recipe) -> str:
    where = (
        f"{stage}: the loss or its gradient is not finite in epoch {epoch + 1}, batch {number + 1} of {len(batches)}"
    )
    ids = [images.data.ids[i] for i in batches[number]]
    bad = ~torch.isfinite(images[batches[number]]).flatten(1).all(1)
    if bool(bad.any()):
        return f"{where}: the images of patient {ids[int(bad.nonzero()[0, 0])]!r} hold values that are not finite."
    shown = [f"{float(value) / len(rows):.3g}" for value, rows in zip(losses[:number], batches, strict=False)][-3:]
    before = f"; the losses before it were {', '.join(shown)}" if shown else ""
    return (
        f"{where}{before}. Likely cause: learning rate {recipe.learning_rate:g} is too large"
        f"{'' if recipe.clip else ' without gradient clipping'}, or a response in the batch of {ids[0]!r} lies far out."
    )


def _collapse_message(stage: str, epoch: int, recipe: Recipe) -> str:
    return (
        f"{stage}: after epoch {epoch + 1} the outputs are the same for every patient (SD below {COLLAPSED:g}): the "
        f"predictor has collapsed to a constant. Likely cause: learning rate {recipe.learning_rate:g} is too large, or "
        "the images carry no signal; try a tenth of it, schedule='cosine', or other initial weights."
    )
