"""The training loop: one function, a trace per epoch, and a clear stop when a fit cannot succeed."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cevit_lib.datasets import PairedEyes
from cevit_lib.errors import ParameterError, TrainingError
from cevit_lib.training.checkpoint import Checkpoint
from cevit_lib.training.compiling import WRONG_GRADIENT, compare_compiled, warn_of_compiler
from cevit_lib.training.processes import processes
from cevit_lib.training.progress import Progress
from cevit_lib.training.recipe import Recipe
from cevit_lib.training.reruns import fix_workspace, reproducible
from cevit_lib.training.seeds import torch_seeded

RESIDENT_BYTES = 2 * 2**30  # images up to this size are read once and stay on the device
COLLAPSED = 1e-3  # a predictor whose outputs vary less than this, in standard units, tells no patient from another
EVALUATION_BATCH = 256


def find_device(device: str | torch.device | None = None) -> torch.device:
    """Return the device to train on: the one named, else the first CUDA device, else the CPU.

    Of several processes that train one fit together each has its own, whatever was named. A CUDA device is looked
    for and not started: ``deterministic=True`` has something to set before that.

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
        named = torch.device(device)
        if named.type != "cuda":
            torch.empty(0, device=named)
        elif (named.index or 0) >= (count := torch.cuda.device_count()):
            raise RuntimeError(f"CUDA devices here: {count}")
    except (
        RuntimeError,
        AssertionError,
    ) as error:  # a torch built without a device's library asserts
        raise ParameterError(
            f"device {str(device)!r} cannot be used here ({str(error).splitlines()[0][:120]}); take auto or cpu; "
            "'cevit doctor' lists what this machine has."
        ) from None
    return named


class Batches:
    """Images of a data set on a device, by row number; read once when they fit, else batch by batch."""

    def __init__(self, data: PairedEyes, device: torch.device) -> None:
        self.data, self.device = data, device
        small = 4 * int(np.prod(data.images.shape)) <= _room(device)
        self.resident = data.load().to(device) if small else None

    def __getitem__(self, rows: np.ndarray) -> Tensor:
        if self.resident is None:
            return self.data.load(rows).to(self.device, non_blocking=True)
        return self.resident[torch.as_tensor(rows, device=self.device)]


def _room(device: torch.device) -> int:
    """Return how many bytes of images may stay on a device: on CUDA a quarter of what is free, if that is more."""
    return max(
        RESIDENT_BYTES, torch.cuda.mem_get_info(device)[0] // 4 if device.type == "cuda" else 0
    )


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
    checkpoint: Checkpoint | None = None,
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
    checkpoint : Checkpoint, optional
        Where the state is written after each epoch; a stage that was interrupted goes on from there.

    Returns
    -------
    list of dict
        ``stage, epoch, loss, validation_loss, learning_rate, gradient_norm, seconds``.

    Raises
    ------
    TrainingError
        A loss is not finite, the outputs no longer differ between patients, or the memory does not suffice; the
        message names epoch, batch, cause.
    ParameterError
        The checkpoint belongs to another fit; or the recipe's ``patience`` has no validation loss to watch.

    Warns
    -----
    WronglyCompiledWarning
        The compiled network's gradients are not the network's; it is trained uncompiled.
    """
    if recipe.patience is not None and validation is None:
        raise ParameterError(
            f"{stage}: patience={recipe.patience} watches the validation loss; pass validation=..."
        )
    device = find_device(device)
    if recipe.deterministic and device.type == "cuda":
        fix_workspace()  # before anything is on the GPU
    crew = processes()
    model.to(device)
    crew.same(model)
    images, y = Batches(data, device), y.to(device, torch.float32)
    checked = Batches(validation[0], device) if validation else None
    optimizer = recipe.build_optimizer(model.parameters())
    steps_per_epoch = -(-len(data) // recipe.batch_size)
    progress = Progress(model, optimizer, recipe, rng, stage, device, checkpoint)
    progress.identify(data, y, loss)
    same = reproducible(recipe.deterministic, device)
    with torch_seeded(rng, crew.index, device), same, _room_to_compile(recipe.compiled):
        progress.resume()
        forward = None if recipe.compiled else model
        while not progress.finished:
            start, epoch = time.perf_counter(), len(progress.trace)
            if (
                forward is None
            ):  # not before: a stage that was finished when it was interrupted needs no program
                forward = _compile(model, images, steps_per_epoch, recipe)
            batches = np.array_split(rng.permutation(len(data)), steps_per_epoch)
            entry = {"stage": stage, "epoch": epoch + 1}
            entry |= _epoch(
                forward, model, images, y, loss, recipe, optimizer, batches, epoch, stage
            )
            if checked is not None:
                entry["validation_loss"] = mean_loss(
                    model, checked, validation[1], loss, recipe.precision
                )
            entry["seconds"] = time.perf_counter() - start
            constant = _spread(model, images, y, recipe.precision) < COLLAPSED
            if progress.add(entry, constant):
                raise TrainingError(_collapse_message(stage, epoch, recipe))
    return progress.trace


def _compile(model: nn.Module, images: Batches, steps: int, recipe: Recipe) -> Callable:
    """Return the compiled network, or the network where what was compiled is not it; the model's own names stay."""
    program, far = torch.compile(model, dynamic=False), 0.0
    try:
        for part in _parts(np.array_split(np.arange(len(images.data)), steps)[0], recipe)[:1]:
            far = compare_compiled(
                program, model, images[part], autocast(images.device, recipe.precision)
            )
    except RuntimeError as error:
        if not _is_lack_of_memory(error):  # the first step says it better
            raise
    far = processes().largest(far)
    if far > WRONG_GRADIENT:
        warn_of_compiler(far, images.device)
        return model
    return program


def _room_to_compile(compiled: bool) -> contextlib.AbstractContextManager:
    """Let every stage of every fold compile its two sizes of batch; beyond its limit torch runs them uncompiled."""
    if not compiled:
        return contextlib.nullcontext()
    import torch._dynamo

    return torch._dynamo.config.patch(recompile_limit=256, accumulated_recompile_limit=1024)


def outputs_of(model: nn.Module, images: Batches, rows: np.ndarray, precision: str) -> Tensor:
    """Return the model's outputs ``(k, p)`` in evaluation mode, float32, on the model's device."""
    was_training = model.training
    model.eval()
    with torch.inference_mode(), autocast(images.device, precision):
        parts = [model(images[part]).float() for part in _chunks(rows, EVALUATION_BATCH)]
    model.train(was_training)
    return torch.cat(parts)


def mean_loss(
    model: nn.Module, images: Batches, y: Tensor, loss: nn.Module, precision: str
) -> float:
    """Return the mean loss over patients, in evaluation mode; several processes take a share each."""
    crew = processes()
    rows = crew.share(np.arange(len(y)))
    total = torch.zeros(
        (), dtype=torch.float64, device=images.device if images.device.type != "mps" else "cpu"
    )
    if len(rows):
        outputs = outputs_of(model, images, rows, precision)
        with torch.no_grad():
            total += float(loss(outputs, y[torch.as_tensor(rows)].to(outputs))) * len(rows)
    return float(crew.add(total)) / len(y)


def _epoch(
    forward, model, images, y, loss, recipe, optimizer, batches, epoch, stage
) -> dict[str, float]:
    model.train()
    crew = processes()
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    losses, norms, lack = [], [], None
    for number, rows in enumerate(batches):
        rate = recipe.learning_rate * recipe.factor(epoch * len(batches) + number, len(batches))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        try:
            losses.append(_backward(forward, images, y, loss, rows, recipe))
        except RuntimeError as error:  # torch's own OutOfMemoryError is one
            if not _is_lack_of_memory(error):
                raise
            lack = str(error).splitlines()[0]
        if lack:  # raised out here, where no frame of the failed step holds its tensors any more
            optimizer.zero_grad(set_to_none=True)
            raise TrainingError(_memory_message(stage, epoch, number, rows, recipe, lack))
        crew.add_gradients(parameters)
        norms.append(
            torch.nn.utils.clip_grad_norm_(
                parameters, recipe.clip if recipe.clip is not None else float("inf")
            )
        )
        optimizer.step()
    losses = list(crew.add(torch.stack(losses)))
    # One transfer an epoch, not one a step: an accelerator never waits for a check.
    finite = torch.isfinite(torch.stack(losses)) & torch.isfinite(torch.stack(norms))
    if not bool(finite.all()):
        raise TrainingError(
            _divergence_message(
                stage, epoch, int((~finite).nonzero()[0, 0]), batches, images, losses, recipe
            )
        )
    patients = sum(len(rows) for rows in batches)
    return {
        "loss": float(torch.stack(losses).sum()) / patients,
        "learning_rate": rate,
        "gradient_norm": float(torch.stack(norms).mean()),
    }


def _backward(forward, images, y, loss, rows, recipe) -> Tensor:
    """Add the gradient of a batch's mean loss, in ``recipe.accumulation`` parts; return the sum of its losses."""
    total = torch.zeros((), device=y.device)
    for part in _parts(rows, recipe):
        with autocast(images.device, recipe.precision):
            outputs = forward(images[part])
        value = loss(outputs.float(), y[torch.as_tensor(part, device=y.device)])
        (value if len(part) == len(rows) else value * (len(part) / len(rows))).backward()
        total = total + value.detach() * len(part)
    return total


def _parts(rows: np.ndarray, recipe: Recipe) -> list[np.ndarray]:
    """Return this process's share of a batch in the parts in which it is computed, none of them empty."""
    mine = processes().share(rows)
    return np.array_split(mine, min(recipe.accumulation, len(mine))) if len(mine) else []


def _is_lack_of_memory(error: RuntimeError) -> bool:
    said = (
        "allocate memory",
        "not enough memory",
    )  # of the CPU, which has no error of its own for it
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in said)


def _spread(model: nn.Module, images: Batches, y: Tensor, precision: str) -> float:
    """Return the largest SD of an output over (at most 256) training patients."""
    rows = processes().share(np.arange(min(len(y), EVALUATION_BATCH)))
    if len(y) < 2 * processes().count:
        return float("inf")
    return processes().largest(float(outputs_of(model, images, rows, precision).std(0).max()))


def _chunks(rows: np.ndarray, size: int) -> list[np.ndarray]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _divergence_message(stage, epoch, number, batches, images, losses, recipe) -> str:
    where = f"{stage}: the loss or its gradient is not finite in epoch {epoch + 1}, batch {number + 1} of {len(batches)}"
    ids = [images.data.ids[i] for i in batches[number]]
    bad = ~torch.isfinite(images[batches[number]]).flatten(1).all(1)
    if bool(bad.any()):
        return f"{where}: the images of patient {ids[int(bad.nonzero()[0, 0])]!r} hold values that are not finite."
    shown = [
        f"{float(value) / len(rows):.3g}"
        for value, rows in zip(losses[:number], batches, strict=False)
    ][-3:]
    before = f"; the losses before it were {', '.join(shown)}" if shown else ""
    return (
        f"{where}{before}. Likely cause: learning rate {recipe.learning_rate:g} is too large"
        f"{'' if recipe.clip else ' without gradient clipping'}, or a response in the batch of {ids[0]!r} lies far out."
    )


def _memory_message(stage, epoch, number, rows, recipe, said) -> str:
    return (
        f"{stage}: out of memory in epoch {epoch + 1}, batch {number + 1} ({len(rows)} patients in "
        f"{recipe.accumulation} part(s)): {said[:160]}. Make batch_size={recipe.batch_size} smaller, or keep it and "
        f"set accumulation={2 * recipe.accumulation}: the same steps in smaller parts, for less memory and more time."
    )


def _collapse_message(stage: str, epoch: int, recipe: Recipe) -> str:
    return (
        f"{stage}: after epoch {epoch + 1} the outputs are the same for every patient (SD below {COLLAPSED:g}): the "
        f"predictor has collapsed to a constant. Likely cause: learning rate {recipe.learning_rate:g} is too large, or "
        "the images carry no signal; try a tenth of it, schedule='cosine', or other initial weights."
    )
