"""Photographs that are turned and coloured anew in every training step, by torchvision.

Nothing is flipped: a left eye that is flipped looks like a right one, and the network has adapters
and heads for each. A turn has the same law for an eye that was mirrored on reading.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def augment(network: nn.Module, rotation: float = 0.0, colour: float = 0.0) -> None:
    """Change what a network sees, each photograph on its own, as long as it trains.

    Parameters
    ----------
    network : torch.nn.Module
        Its first input are images ``(n, domains, 3, height, width)``, 0 to 1.
    rotation : float
        Largest turn in degrees, to either side; black comes where nothing was.
    colour : float
        Brightness, contrast and saturation are multiplied by numbers from 1 less this to 1 plus it.
    """
    from torchvision.transforms import v2

    turn = v2.RandomRotation(rotation, v2.InterpolationMode.BILINEAR)
    change = v2.Compose([turn, v2.ColorJitter(colour, colour, colour)])

    def changed(network: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not network.training:
            return None
        images, *further = inputs
        return (
            torch.stack([change(one) for one in images.flatten(0, 1)]).view_as(images),
            *further,
        )

    network.register_forward_pre_hook(changed)
