"""Weights without labels: a Vision Transformer of timm pre-trained by masked auto-encoding on the
study's own images.

Three quarters of an image's patches are hidden; the encoder sees the rest, a small decoder guesses
the hidden ones (He et al., 2022). What the encoder has to learn for that serves where no published
weights can be used.
"""

import copy
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from cevit_lib.errors import TrainingError
from cevit_lib.training.ensemble import prepare_for_vmap


@dataclass(frozen=True)
class Pretraining:
    """How long and how fast: AdamW with weight decay 0.05, a short rise, cosine decay; bf16 on
    CUDA.

    Attributes
    ----------
    steps, batch, learning_rate : int, int, float
    decoder : dict
        ``width``, ``depth`` and ``masked`` of :class:`MaskedAutoencoder`.
    """

    steps: int
    batch: int = 256
    learning_rate: float = 1e-3
    decoder: dict[str, Any] = field(default_factory=dict)


def build_encoder(configuration: dict) -> nn.Module:
    """Return a timm Vision Transformer without classifier and with random weights."""
    import timm

    kwargs = {key: value for key, value in configuration.items() if key != "backbone"}
    return timm.create_model(configuration["backbone"], pretrained=False, num_classes=0, **kwargs)


class MaskedAutoencoder(nn.Module):
    """An encoder that sees a quarter of the patches and a decoder of four blocks that draws the
    others.

    Parameters
    ----------
    encoder : torch.nn.Module
        A timm Vision Transformer with a class token.
    width, depth : int
        Of the decoder.
    masked : float
        Share of hidden patches.
    """

    def __init__(
        self, encoder: nn.Module, width: int = 192, depth: int = 4, masked: float = 0.75
    ) -> None:
        super().__init__()
        from timm.models.vision_transformer import Block

        self.encoder, self.patch = encoder, encoder.patch_embed.patch_size[0]
        self.patches = encoder.patch_embed.num_patches
        self.kept = round((1 - masked) * self.patches)
        self.enter = nn.Linear(encoder.embed_dim, width)
        self.hidden_token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.position = nn.Parameter(torch.randn(1, self.patches + 1, width) * 0.02)
        self.blocks = nn.Sequential(
            *(Block(width, num_heads=max(1, width // 64), qkv_bias=True) for _ in range(depth))
        )
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3 * self.patch**2))

    def forward(self, images: Tensor, order: Tensor) -> Tensor:
        """Return the mean squared error on hidden patches, each standardised by its own mean and
        SD.

        Parameters
        ----------
        images : Tensor
            ``(b, 3, h, w)``, normalised.
        order : Tensor
            ``(b, patches)`` a random permutation for each image; the first ``kept`` are seen.
        """
        e = self.encoder
        tokens = e.patch_embed(images) + e.pos_embed[:, 1:]  # (b, patches, d)
        seen = order[:, : self.kept, None].expand(-1, -1, tokens.shape[-1])
        start = (e.cls_token + e.pos_embed[:, :1]).expand(len(images), -1, -1)
        z = e.norm(e.blocks(torch.cat([start, tokens.gather(1, seen)], dim=1)))
        z = self.enter(z)
        rest = self.hidden_token.expand(len(images), self.patches - self.kept, -1).to(z.dtype)
        back = order.argsort(1)[..., None].expand(-1, -1, z.shape[-1])
        full = torch.cat([z[:, :1], torch.cat([z[:, 1:], rest], dim=1).gather(1, back)], dim=1)
        drawn = self.leave(self.blocks(full + self.position))[:, 1:].float()
        error = ((drawn - self.targets(images)) ** 2).mean(-1)  # (b, patches)
        return error.gather(1, order[:, self.kept :]).mean()

    def targets(self, images: Tensor) -> Tensor:
        """Return the patches as rows ``(b, patches, 3 * patch^2)``, each with mean 0 and SD 1."""
        rows = nn.functional.unfold(images.float(), self.patch, stride=self.patch).transpose(1, 2)
        return (rows - rows.mean(-1, keepdim=True)) / (rows.var(-1, keepdim=True) + 1e-6).sqrt()


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Turn, zoom, shift, flip and recolour a batch a little; images ``(b, 3, h, w)`` in [0, 1]."""
    b, device = len(images), images.device

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(b, *shape, generator=generator, device=device)

    angle, zoom = uniform(-0.35, 0.35), uniform(0.75, 1.1)
    # both orientations, so that neither eye is the odd one
    flip = torch.where(uniform(0, 1) < 0.5, -1.0, 1.0)
    across = [zoom * flip * angle.cos(), -zoom * angle.sin(), uniform(-0.1, 0.1)]
    down = [zoom * flip * angle.sin(), zoom * angle.cos(), uniform(-0.1, 0.1)]
    theta = torch.stack([torch.stack(across, dim=1), torch.stack(down, dim=1)], dim=1)
    grid = nn.functional.affine_grid(theta, list(images.shape), align_corners=False)
    moved = nn.functional.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    return (moved * uniform(0.85, 1.15, 3, 1, 1) + uniform(-0.08, 0.08, 1, 1, 1)).clamp(0, 1)


def pretrain_together(
    encoder: dict,
    images: Tensor,
    rows: list[np.ndarray],
    settings: Pretraining,
    seeds: list[int],
    device: torch.device | str = "cpu",
) -> tuple[list[dict[str, Tensor]], list[list[dict]]]:
    """Train one encoder for each set of images, all side by side; return their weights and traces.

    Each member draws, hides and recolours images of its own; only the program is shared, so that a
    step costs little more than that of a single small network.

    Parameters
    ----------
    encoder : dict
        For :func:`build_encoder`.
    images : Tensor
        ``(n, 3, h, w)`` bytes of all patients; they lie on the device once.
    rows : list of ndarray
        For each member, the rows of the images that it may see.
    settings : Pretraining
    seeds : list of int
        Of each member.
    device : torch.device

    Raises
    ------
    TrainingError
        A member's loss is not finite at the end.
    """
    models = []
    for seed in seeds:
        torch.manual_seed(seed)
        models.append(MaskedAutoencoder(build_encoder(encoder), **settings.decoder))
    program, parameters = side_by_side(models, device)
    images, size, batch, patches = images.to(device), len(rows), settings.batch, models[0].patches
    chance = {"generator": torch.Generator(device).manual_seed(seeds[0] + 1), "device": device}
    longest = max(map(len, rows))
    allowed = torch.as_tensor(np.stack([np.resize(own, longest) for own in rows]), device=device)
    counts = torch.tensor([len(own) for own in rows], device=device)[:, None]

    def draw() -> tuple[Tensor, Tensor]:
        drawn = (torch.rand(size, batch, **chance) * counts).long()
        whole = images[allowed.gather(1, drawn).flatten()].float() / 255
        seen = augment(whole, chance["generator"]) * 2 - 1  # as the backbone expects them
        seen = seen.view(size, batch, *images.shape[1:])
        return seen, torch.rand(size, batch, patches, **chance).argsort(-1)

    def rate(step: int) -> float:
        fall = 0.5 * (1 + math.cos(math.pi * (step / settings.steps)))
        return min(1.0, (step + 1) / max(1, settings.steps // 20)) * fall

    trace = _descend(program, parameters.values(), draw, rate, settings)
    own = {n.removeprefix("encoder."): v for n, v in parameters.items() if "encoder." in n}
    states = [{n: v[k].detach().cpu().clone() for n, v in own.items()} for k in range(size)]
    return states, [[row | {"loss": row["loss"][k]} for row in trace] for k in range(size)]


def side_by_side(
    models: list[MaskedAutoencoder], device: torch.device | str
) -> tuple[Callable[[Tensor, Tensor], Tensor], dict[str, Tensor]]:
    """Return the batched program, which maps images and orders to each member's loss, and the
    stacked weights."""
    stacked, buffers = stack_module_state(models)
    parameters = {n: v.detach().to(device).requires_grad_() for n, v in stacked.items()}
    buffers = {name: value.to(device) for name, value in buffers.items()}
    base = copy.deepcopy(models[0]).to("meta").train()
    prepare_for_vmap(base)

    def one(p: dict, b: dict, images: Tensor, order: Tensor) -> Tensor:
        return functional_call(base, (p, b), (images, order))

    return lambda images, order: vmap(one)(parameters, buffers, images, order), parameters


def _descend(
    program: Callable[..., Tensor],
    parameters: Iterable[Tensor],
    draw: Callable[[], tuple[Tensor, Tensor]],
    rate: Callable[[int], float],
    settings: Pretraining,
) -> list[dict]:
    """Minimise the sum of what the program returns; members share no weight, so each follows its
    own mean."""
    parameters = list(parameters)
    device, start = parameters[0].device, time.perf_counter()
    cuda, every = device.type == "cuda", max(1, settings.steps // 40)
    optimizer = torch.optim.AdamW(
        parameters, settings.learning_rate, (0.9, 0.95), weight_decay=0.05, fused=cuda
    )
    trace, losses = [], []
    for step in range(settings.steps):
        optimizer.param_groups[0]["lr"] = learning_rate = settings.learning_rate * rate(step)
        batch = draw()
        with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            loss = program(*batch)
        optimizer.zero_grad(set_to_none=True)
        loss.sum().backward()
        optimizer.step()
        losses.append(loss.detach())
        if (step + 1) % every == 0 or step + 1 == settings.steps:
            entry = {"step": step + 1, "loss": torch.stack(losses).mean(0).tolist()}
            spent = time.perf_counter() - start
            trace.append(entry | {"learning_rate": learning_rate, "seconds": spent})
            losses = []
    if not np.isfinite(trace[-1]["loss"]).all():
        raise TrainingError(
            f"masked auto-encoding diverged in {settings.steps} steps, losses {trace[-1]['loss']}: "
            f"lower learning_rate={settings.learning_rate:g}."
        )
    return trace
