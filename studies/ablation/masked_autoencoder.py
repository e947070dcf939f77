"""Weights without labels: a Vision Transformer of timm pre-trained by masked auto-encoding on the study's own images.

Three quarters of an image's patches are hidden; the encoder sees the rest, a small decoder guesses the hidden ones
(He et al., 2022). What the encoder has to learn for that serves where no published weights can be used.
"""

import math
import time

import numpy as np
import torch
from torch import Tensor, nn

ENCODER = {"backbone": "vit_small_patch16_224", "img_size": 128}
SMOKE_ENCODER = {
    "backbone": "vit_tiny_patch16_224",
    "img_size": 64,
    "embed_dim": 48,
    "depth": 3,
    "num_heads": 3,
}


def build_encoder(configuration: dict) -> nn.Module:
    """Return a timm Vision Transformer without classifier and with random weights."""
    import timm

    kwargs = {key: value for key, value in configuration.items() if key != "backbone"}
    return timm.create_model(configuration["backbone"], pretrained=False, num_classes=0, **kwargs)


class MaskedAutoencoder(nn.Module):
    """An encoder that sees a quarter of the patches and a decoder of four blocks that draws the others.

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
        """Return the mean squared error on hidden patches, each standardised by its own mean and SD.

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
    flip = torch.where(
        uniform(0, 1) < 0.5, -1.0, 1.0
    )  # both orientations, so that neither eye is the odd one
    theta = torch.stack(
        [
            torch.stack(
                [zoom * flip * angle.cos(), -zoom * angle.sin(), uniform(-0.1, 0.1)], dim=1
            ),
            torch.stack([zoom * flip * angle.sin(), zoom * angle.cos(), uniform(-0.1, 0.1)], dim=1),
        ],
        dim=1,
    )
    grid = nn.functional.affine_grid(theta, list(images.shape), align_corners=False)
    moved = nn.functional.grid_sample(images, grid, padding_mode="reflection", align_corners=False)
    return (moved * uniform(0.85, 1.15, 3, 1, 1) + uniform(-0.08, 0.08, 1, 1, 1)).clamp(0, 1)


def pretrain(
    encoder: nn.Module,
    images: Tensor,
    steps: int,
    seed: int,
    *,
    batch: int = 256,
    learning_rate: float = 1e-3,
    decoder: dict | None = None,
    device: torch.device | str = "cpu",
) -> list[dict]:
    """Train the encoder in place and return a trace: step, loss (mean since the last entry), learning rate, seconds.

    Parameters
    ----------
    encoder : torch.nn.Module
        Of timm, on the CPU; it comes back there.
    images : Tensor
        ``(n, 3, h, w)`` bytes; no label is ever seen.
    steps, batch, learning_rate : int, int, float
        AdamW with weight decay 0.05, 5 % rise, cosine decay; bf16 autocast on CUDA.
    seed : int
        Of weights, order, masks and augmentation.
    decoder : dict, optional
        ``width`` and ``depth``.
    """
    device = torch.device(device)
    torch.manual_seed(seed)
    model = MaskedAutoencoder(encoder, **(decoder or {})).to(device).train()
    images = images.to(device)
    generator = torch.Generator(device=device).manual_seed(seed + 1)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        learning_rate,
        (0.9, 0.95),
        weight_decay=0.05,
        fused=device.type == "cuda",
    )
    rise, trace, start, losses = max(1, steps // 20), [], time.perf_counter(), []
    for step in range(steps):
        factor = (
            (step + 1) / rise
            if step < rise
            else 0.5 * (1 + math.cos(math.pi * (step - rise) / (steps - rise)))
        )
        optimizer.param_groups[0]["lr"] = learning_rate * factor
        rows = torch.randint(len(images), (batch,), generator=generator, device=device)
        seen = (
            augment(images[rows].float() / 255, generator) * 2 - 1
        )  # as the backbone's own mean 0.5 and SD 0.5
        order = torch.rand(batch, model.patches, generator=generator, device=device).argsort(1)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = model(seen, order)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if (step + 1) % max(1, steps // 40) == 0 or step + 1 == steps:
            trace.append(
                {
                    "step": step + 1,
                    "loss": float(torch.stack(losses).mean()),
                    "learning_rate": learning_rate * factor,
                    "seconds": time.perf_counter() - start,
                }
            )
            losses = []
    model.to("cpu")
    if not np.isfinite(trace[-1]["loss"]):
        from cevit_lib.errors import TrainingError

        raise TrainingError(
            f"masked auto-encoding diverged in {steps} steps: lower learning_rate={learning_rate:g}."
        )
    return trace


def pretrain_together(
    encoder: dict,
    images: Tensor,
    rows: list[np.ndarray],
    steps: int,
    seeds: list[int],
    *,
    batch: int = 256,
    learning_rate: float = 1e-3,
    decoder: dict | None = None,
    device: torch.device | str = "cpu",
    most_seconds: float | None = None,
    compiled: bool = False,
    report=lambda line: None,
) -> tuple[list[dict[str, Tensor]], list[list[dict]]]:
    """Train one encoder for each set of images, all side by side; return their weights and traces.

    Each member draws, hides and recolours images of its own; only the program is shared, so that a step costs little
    more than that of a single small network. Settings as in :func:`pretrain`.

    Parameters
    ----------
    encoder : dict
        For :func:`build_encoder`.
    images : Tensor
        ``(n, 3, h, w)`` bytes of all patients; they lie on the device once.
    rows : list of ndarray
        For each member, the rows of the images that it may see.
    seeds : list of int
        Of each member.
    most_seconds : float, optional
        The learning rate decays by steps or by seconds, whichever is used up first: training then ends early, decayed.
    compiled : bool
        Compile the batched pass.
    report : callable
        Told the progress in one line, ten times.
    """
    device, size = torch.device(device), len(rows)
    program, parameters = _stacked(encoder, decoder or {}, seeds, device, compiled)
    patches = program.patches
    images = images.to(device)
    optimizer = torch.optim.AdamW(
        parameters.values(),
        learning_rate,
        (0.9, 0.95),
        weight_decay=0.05,
        fused=device.type == "cuda",
    )
    generator = torch.Generator(device=device).manual_seed(seeds[0] + 1)
    allowed = torch.as_tensor(
        np.stack([np.resize(own, max(map(len, rows))) for own in rows]), device=device
    )
    counts = torch.tensor([len(own) for own in rows], device=device)[:, None]
    rise, traces, losses, start, step, share = (
        max(1, steps // 20),
        [[] for _ in rows],
        [],
        time.perf_counter(),
        0,
        0.0,
    )
    while share < 1:
        factor = min(1.0, (step + 1) / rise) * 0.5 * (1 + math.cos(math.pi * share))
        optimizer.param_groups[0]["lr"] = learning_rate * factor
        drawn = (torch.rand(size, batch, generator=generator, device=device) * counts).long()
        seen = augment(images[allowed.gather(1, drawn).flatten()].float() / 255, generator) * 2 - 1
        order = torch.rand(size, batch, patches, generator=generator, device=device).argsort(-1)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = program(parameters, seen.view(size, batch, *seen.shape[1:]), order)
        optimizer.zero_grad(set_to_none=True)
        loss.sum().backward()  # members share no weight: each gets the gradient of its own mean
        optimizer.step()
        losses.append(loss.detach())
        step += 1
        spent = (time.perf_counter() - start) / most_seconds if most_seconds else 0.0
        share = max(step / steps, spent, share)
        if step % max(1, steps // 40) == 0 or share >= 1:
            mean, seconds = (
                torch.stack(losses).mean(0).tolist(),
                time.perf_counter() - start,
            )  # waits for the device
            for trace, value in zip(traces, mean, strict=True):
                trace.append(
                    {
                        "step": step,
                        "loss": value,
                        "learning_rate": learning_rate * factor,
                        "seconds": seconds,
                    }
                )
            losses = []
            report(
                f"step {step} of {steps}, {seconds:.0f} s, losses {', '.join(f'{value:.3f}' for value in mean)}"
            )
    _refuse_divergence(traces, learning_rate)
    own = {
        name.removeprefix("encoder."): v.detach().cpu()
        for name, v in parameters.items()
        if "encoder." in name
    }
    return [{name: value[k].clone() for name, value in own.items()} for k in range(size)], traces


def _stacked(encoder: dict, decoder: dict, seeds: list[int], device: torch.device, compiled: bool):
    """Return the batched program and the members' stacked weights on the device."""
    import copy

    from torch.func import functional_call, stack_module_state, vmap

    from cevit_lib.training.ensemble import prepare_for_vmap

    models = []
    for seed in seeds:
        torch.manual_seed(seed)
        models.append(MaskedAutoencoder(build_encoder(encoder), **decoder))
    stacked, buffers = stack_module_state(models)
    parameters = {
        name: value.detach().to(device).requires_grad_() for name, value in stacked.items()
    }
    buffers = {name: value.to(device) for name, value in buffers.items()}
    base = copy.deepcopy(models[0]).to("meta").train()
    prepare_for_vmap(base)

    def every(parameters, images, order):
        return vmap(lambda p, b, x, o: functional_call(base, (p, b), (x, o)))(
            parameters, buffers, images, order
        )

    program = torch.compile(every, dynamic=False) if compiled else every
    program.patches = models[0].patches
    return program, parameters


def _refuse_divergence(traces: list[list[dict]], learning_rate: float) -> None:
    bad = [
        k + 1 for k, trace in enumerate(traces) if not (trace and np.isfinite(trace[-1]["loss"]))
    ]
    if bad:
        from cevit_lib.errors import TrainingError

        raise TrainingError(
            f"masked auto-encoding of members {bad} diverged: lower learning_rate={learning_rate:g}."
        )
