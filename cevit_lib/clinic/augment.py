"""Photographs that are turned and coloured anew in every training step.

Nothing is flipped: a left eye that is flipped looks like a right one, and the network has adapters
and heads for each. A turn has the same law for an eye that was mirrored on reading.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Augmentation:
    """Changes images on their way into a network that trains, each on its own.

    Attributes
    ----------
    rotation : float
        Largest turn in degrees, to either side.
    colour : float
        Brightness, contrast and saturation are multiplied by numbers from 1 less this to 1 plus it.
    """

    rotation: float = 0.0
    colour: float = 0.0

    def watch(self, network: nn.Module) -> None:
        """Change what the network sees, as long as it trains."""
        network.register_forward_pre_hook(self._changed)

    def _changed(self, network: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not network.training:
            return None
        images, *further = inputs
        flat = images.flatten(0, 1)
        if self.rotation:
            flat = turned(flat, self._draw(len(flat), 1)[:, 0] * self.rotation)
        if self.colour:
            flat = coloured(flat, 1 + self.colour * self._draw(len(flat), 3))
        return (flat.view_as(images), *further)

    @staticmethod
    def _draw(count: int, numbers: int) -> Tensor:
        """Return numbers from -1 to 1, from torch's generator, which a fit seeds."""
        return 2 * torch.rand(count, numbers) - 1


def turned(images: Tensor, degrees: Tensor) -> Tensor:
    """Return square images ``(n, c, s, s)`` turned about their centre, black where nothing was."""
    angle = torch.deg2rad(degrees).to(images)
    cosine, sine, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    rows = torch.stack([cosine, -sine, zero, sine, cosine, zero], 1).view(-1, 2, 3)
    grid = nn.functional.affine_grid(rows, list(images.shape), align_corners=False)
    return nn.functional.grid_sample(images, grid, align_corners=False)


def coloured(images: Tensor, factors: Tensor) -> Tensor:
    """Return images in [0, 1] with other brightness, contrast and saturation.

    ``factors (n, 3)`` multiply the values, their distance from the image's mean, and from the
    pixel's grey; black stays black.
    """
    bright, contrast, saturation = factors.to(images).view(-1, 3, 1, 1, 1).unbind(1)
    images = images * bright
    mean = images.mean((1, 2, 3), keepdim=True)
    images = mean + (images - mean) * contrast
    grey = images.mean(1, keepdim=True)
    return (grey + (images - grey) * saturation).clamp(0, 1)
