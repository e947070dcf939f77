"""One fit on several devices: what its processes share, through accelerate; with one process
nothing of it is used.

``accelerate launch --num_processes 2 -m cevit_lib.clinic.cli fit ...`` starts the same program once
a device. (On processors accelerate starts one only; there any launcher does that sets RANK,
LOCAL_RANK, WORLD_SIZE and MASTER_ADDR.) Every process holds the whole network and the same order of
patients, takes its share of every batch, and adds its gradients to the others' before the step, so
that a fit on several devices makes the steps of a fit on one.

Why the gradients are added here and the network is not wrapped by ``Accelerator.prepare``: its
DistributedDataParallel averages the processes' *mean* losses, which is another step where shares
differ by a patient; it stops or hangs when a trainable parameter gets no gradient in one process;
and it renames the parameters. What trains is small (1.2 million numbers at LoRA rank 8), so that
one sum a step costs less than a millisecond. ``prepare`` also fixes one precision and one device
for the life of the process, while a :class:`~cevit_lib.training.Recipe` names a precision for each
stage.
"""

import atexit
import functools
import os
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Alone:
    """One process: nothing is shared, and accelerate is not imported."""

    count, index, device = 1, 0, None

    @property
    def main(self) -> bool:
        """Whether this process writes files."""
        return self.index == 0

    def share(self, rows: np.ndarray) -> np.ndarray:
        """Return this process's part of some rows; parts differ by at most one row."""
        return np.array_split(rows, self.count)[self.index]

    def add(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over processes."""
        return value

    def add_gradients(self, parameters: list[torch.nn.Parameter]) -> None:
        """Replace every gradient by its sum over processes."""

    def same(self, model: torch.nn.Module) -> None:
        """Give every process the first one's weights."""

    def everyone(self, value: Any) -> list[Any]:
        """Return the values of all processes, the first one's first; tensors must be on the CPU."""
        return [value]


class Together(Alone):
    """Several processes, one device each, started by ``accelerate launch`` (or torchrun)."""

    def __init__(self) -> None:
        from accelerate import Accelerator

        # the recipe's own autocast decides on the precision, stage by stage
        self.accelerator = Accelerator(mixed_precision="no", cpu=not torch.cuda.is_available())
        # leaves the group of processes before the program ends
        atexit.register(self.accelerator.end_training)
        self.count, self.index = self.accelerator.num_processes, self.accelerator.process_index
        self.device = self.accelerator.device

    def add(self, value: Tensor) -> Tensor:
        return self.accelerator.reduce(value, reduction="sum")

    def add_gradients(self, parameters: list[torch.nn.Parameter]) -> None:
        # what no patient of this share reached has no gradient here, and one elsewhere: it counts 0
        own = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        total = self.add(torch.cat([part.flatten() for part in own]))  # one message for all
        for parameter, part in zip(parameters, total.split([p.numel() for p in own]), strict=True):
            parameter.grad = part.view_as(parameter)

    def same(self, model: torch.nn.Module) -> None:
        from accelerate.utils import broadcast

        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                tensor.copy_(broadcast(tensor.detach().clone().contiguous()))

    def everyone(self, value: Any) -> list[Any]:
        from accelerate.utils import gather_object

        return gather_object([value])


@functools.cache
def processes() -> Alone:
    """Return the processes of this fit: several where a launcher started them, else one."""
    launched = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "LOCAL_RANK" in os.environ
    return Together() if launched else Alone()
