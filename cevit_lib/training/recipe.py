"""How a network is optimised: a small, frozen, recordable description, with the paper's own
settings beside ours.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from cevit_lib.errors import ParameterError

CHOICES = {
    "optimizer": ("adamw", "adam"),
    "schedule": ("cosine", "step", "constant"),
    "precision": ("auto", "float32", "bf16"),
}


@dataclass(frozen=True)
class Recipe:
    """Settings of one stage of training.

    Attributes
    ----------
    epochs : int
        Passes over the patients.
    learning_rate : float
        The largest one.
    batch_size : int
        Patients (pairs) per step; the batches of an epoch differ by at most one patient.
    optimizer : {"adamw", "adam"}
        AdamW, or the paper's Adam.
    weight_decay : float
        On weight matrices; biases, norms and single numbers are never decayed.
    schedule : {"cosine", "step", "constant"}
        Linear rise over the first ``rise`` share of steps and then half a cosine down to 0; or
        multiplication by ``step_factor`` every ``step_epochs`` epochs (torch's StepLR, the
        paper's); or no change.
    rise : float
        Share of all steps in which the rate climbs (``"cosine"`` only).
    step_epochs, step_factor : int, float
        Of the ``"step"`` schedule.
    clip : float or None
        Largest norm of the gradient; ``None`` leaves it alone, as the paper.
    precision : {"auto", "float32", "bf16"}
        ``"auto"`` runs the network in bf16 autocast on CUDA and in float32 elsewhere. The loss
        never sees bf16.
    accumulation : int
        Parts in which a batch is computed, for less memory; the steps are the same up to rounding
        (and dropout).
    compiled : bool
        Compile the network's training pass, block by block, and on a CUDA device replay it. If its
        gradients are not the uncompiled network's, a warning says so and training goes on
        uncompiled.
    deterministic : bool
        Bit-equal reruns on one device; see :func:`cevit_lib.training.seeds.reproducible` for what
        it costs.

    Raises
    ------
    ParameterError
        A setting is out of range.
    """

    epochs: int = 25
    learning_rate: float = 1e-3
    batch_size: int = 48
    optimizer: Literal["adamw", "adam"] = "adamw"
    weight_decay: float = 0.05
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    rise: float = 0.1
    step_epochs: int = 4
    step_factor: float = 0.9
    clip: float | None = 1.0
    precision: Literal["auto", "float32", "bf16"] = "auto"
    accumulation: int = 1
    compiled: bool = False
    deterministic: bool = False

    def __post_init__(self) -> None:
        positive = {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "step_epochs": self.step_epochs,
            "step_factor": self.step_factor,
            "accumulation": self.accumulation,
            "clip": 1 if self.clip is None else self.clip,
        }
        wrong = [f"{name}={value}" for name, value in positive.items() if not value > 0]
        if self.weight_decay < 0 or not 0 <= self.rise < 1:
            wrong += [f"weight_decay={self.weight_decay}", f"rise={self.rise}"]
        if wrong:
            raise ParameterError(
                f"recipe out of range: {', '.join(wrong)}. Epochs, patients, parts, rates and "
                "factors are above 0, weight_decay at least 0, rise from 0 to below 1, clip above "
                "0 or None."
            )
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ParameterError(
                    f"{name}={getattr(self, name)!r}: give one of {', '.join(allowed)}."
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, for a record."""
        return asdict(self)

    def factor(self, step: int, steps_per_epoch: int) -> float:
        """Return what multiplies ``learning_rate`` at a step, counted from 0 over the stage."""
        if self.schedule == "constant":
            return 1.0
        if self.schedule == "step":
            return self.step_factor ** (step // steps_per_epoch // self.step_epochs)
        total = self.epochs * steps_per_epoch
        rise = round(self.rise * total)
        if step < rise:
            return (step + 1) / (rise + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, total - rise)))

    def build_optimizer(
        self, parameters: Iterable[Tensor], stacked: bool = False
    ) -> torch.optim.Optimizer:
        """Return the optimiser over the parameters that train.

        ``stacked`` weights, of networks side by side, have one dimension more than their own.
        """
        training = [parameter for parameter in parameters if parameter.requires_grad]
        matrices = [p for p in training if p.dim() >= 2 + stacked]
        others = [p for p in training if p.dim() < 2 + stacked]
        groups = [
            {"params": matrices, "weight_decay": self.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        kind = torch.optim.AdamW if self.optimizer == "adamw" else torch.optim.Adam
        fused = True if training[0].is_cuda else None
        return kind(
            [group for group in groups if group["params"]], lr=self.learning_rate, fused=fused
        )


PAPER_WARM_UP = Recipe(25, 1e-3, 48, "adam", 0.0, "step", step_epochs=4, step_factor=0.9, clip=None)
"""Step 1 of Algorithm 3 as Section 6 describes it."""

PAPER_COPULA = Recipe(60, 1e-4, 48, "adam", 0.0, "step", step_epochs=2, step_factor=0.9, clip=None)
"""Step 3 of Algorithm 3 as Section 6 describes it."""
