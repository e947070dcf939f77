"""How fast the bi-channel ViT trains: one batched, compiled pass for both eyes against two eager
ones.

    python -m benchmarks.encoder --device cuda     ViT-B/16, 224 px, LoRA rank 8, 48 pairs, bf16
    python -m benchmarks.encoder --device cpu      one step of the tiny smoke model, 8 pairs
    python -m benchmarks.encoder --smoke           a few steps; shows only that it runs

A step is forward, backward and AdamW under the empirical loss, on images that lie on the device:
what it costs to read them is another matter. The two-pass style is that of the authors' earlier
public code: one pass an eye, adapters chosen by ``if``, nothing compiled. It gets the same
precision as ours, so that the ratio measures the style alone.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import timm
import torch
from torch import Tensor, nn

from cevit_lib.copula import EmpiricalLoss
from cevit_lib.encoder import BiChannelViT, add_lora
from cevit_lib.errors import FrozenRandomWeightsWarning
from cevit_lib.records import new_record, write_record

STUDY = "encoder-speed"
GOALS = {
    "images_per_second": 2400.0,
    "times_two_pass": 1.6,
    "adapter_cost": 0.10,
    "peak_gib": 8.0,
    "cpu_step_seconds": 0.5,
}
VIT_B = {"backbone": "vit_base_patch16_224", "lora_rank": 8}
TINY = {
    "backbone": "vit_tiny_patch16_224",
    "lora_rank": 8,
    "img_size": 72,
    "patch_size": 12,
    "in_chans": 1,
    "embed_dim": 96,
    "depth": 4,
    "num_heads": 3,
}


class TwoPassViT(nn.Module):
    """The style of the earlier public code: each eye by itself through the encoder, its adapters
    picked on the way."""

    def __init__(self, model: dict) -> None:
        super().__init__()
        kwargs = {
            key: value for key, value in model.items() if key not in ("backbone", "lora_rank")
        }
        self.backbone = timm.create_model(model["backbone"], num_classes=0, **kwargs)
        add_lora(self.backbone, model["lora_rank"])
        width = self.backbone.embed_dim
        for block in self.backbone.blocks:
            block.mlp = PickedMLP(block.mlp, block.norm2, width)
            block.norm2 = nn.Identity()
        self.heads = nn.ModuleList(nn.Linear(width, 1) for _ in range(4))

    def forward(self, images: Tensor) -> Tensor:
        eyes = []
        for j in range(2):
            for block in self.backbone.blocks:
                block.mlp.eye = j
            eyes.append(self.backbone(images[:, j]))
        return torch.cat([self.heads[k](eyes[k % 2]) for k in range(4)], dim=1)


class PickedMLP(nn.Module):
    """A block's MLP with one small network for each eye, weight 0.1 and fixed, input before the
    layer norm."""

    def __init__(self, mlp: nn.Module, norm: nn.Module, width: int) -> None:
        super().__init__()
        self.mlp, self.norm, self.eye = mlp, norm, 0
        self.adapters = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 1), nn.ReLU(), nn.Linear(1, width)) for _ in range(2)
        )

    def forward(self, z: Tensor) -> Tensor:
        return self.mlp(self.norm(z)) + 0.1 * self.adapters[self.eye](z)


def ours(model: dict, adapters: bool) -> nn.Module:
    """The library's encoder with random weights: speed does not depend on their values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FrozenRandomWeightsWarning)
        return BiChannelViT(pretrained=False, adapters=adapters, normalise=False, **model)


def make_step(model: nn.Module, images: Tensor, y: Tensor, precision: str) -> Callable[[], Tensor]:
    """Return a function that makes one training step and returns the outputs."""
    cuda, loss_of = images.is_cuda, EmpiricalLoss(2, "mean", False, False)
    training = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(training, lr=1e-4, fused=cuda)
    autocast = torch.autocast(images.device.type, torch.bfloat16, enabled=precision == "bf16")

    def step() -> Tensor:
        if cuda:
            # a replayed graph may overwrite the last step's outputs
            torch.compiler.cudagraph_mark_step_begin()
        with autocast:
            outputs = model(images)
        loss = loss_of(outputs.float(), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return outputs.detach()

    return step


def time_step(
    step: Callable[[], Tensor], device: torch.device, groups: int, per_group: int
) -> dict:
    """Time ``groups`` runs of ``per_group`` steps after three unmeasured ones (which compile, where
    asked for)."""
    cuda = device.type == "cuda"
    wait = torch.cuda.synchronize if cuda else lambda: None

    def timed(steps: int) -> float:
        start = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        return time.perf_counter() - start

    first = timed(3)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    seconds = [timed(per_group) / per_group for _ in range(groups)]
    low, middle, high = (float(value) for value in np.percentile(seconds, [25, 50, 75]))
    return {
        "milliseconds": 1e3 * middle,
        "milliseconds_low": 1e3 * low,
        "milliseconds_high": 1e3 * high,
        "first_steps_seconds": first,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if cuda else float("nan"),
    }


def arms_of(cuda: bool) -> list[dict]:
    """What is timed, the least fast first; on a processor nothing is compiled, a page could not
    wait for it."""

    def arm(name: str, adapters: bool, precision: str, mode: str = "none") -> dict:
        return {"arm": name, "adapters": adapters, "precision": precision, "compile": mode}

    own = "bf16" if cuda else "float32"
    two = [arm("two passes", True, precision) for precision in dict.fromkeys(("float32", own))]
    modes = ("none", "default", "reduce-overhead") if cuda else ("none",)
    return two + [arm("one pass", a, own, mode) for mode in modes for a in (False, True)]


def run_arm(arm: dict, model: dict, images: Tensor, y: Tensor, groups: int, per_group: int) -> dict:
    """Build, time and forget one arm."""
    torch.manual_seed(0)
    network = TwoPassViT(model) if arm["arm"] == "two passes" else ours(model, arm["adapters"])
    network.to(images.device)
    if arm["compile"] != "none":
        torch._dynamo.reset()
        mode = None if arm["compile"] == "default" else arm["compile"]
        network.compile(mode=mode, fullgraph=True)
    step = make_step(network, images, y, arm["precision"])
    row = arm | time_step(step, images.device, groups, per_group)
    row["images_per_second"] = 1e3 * images.shape[0] * images.shape[1] / row["milliseconds"]
    return row


def summarise(rows: list[dict], device: torch.device) -> dict:
    """The numbers that the goals speak of, from the fastest arm with adapters."""
    table = pd.DataFrame(rows).sort_values("images_per_second")
    one = table["arm"] == "one pass"
    precision = "bf16" if device.type == "cuda" else "float32"
    with_adapters = table[one & table["adapters"]].iloc[-1]
    two = table[~one & (table["precision"] == precision)].iloc[-1]
    alike = table["compile"] == with_adapters["compile"]
    without = table[one & ~table["adapters"] & alike].iloc[-1]
    return {
        "images_per_second": with_adapters["images_per_second"],
        "times_two_pass": with_adapters["images_per_second"] / two["images_per_second"],
        "adapter_cost": with_adapters["milliseconds"] / without["milliseconds"] - 1,
        "peak_gib": with_adapters["peak_gib"],
        "step_seconds": with_adapters["milliseconds"] / 1e3,
        "compile": with_adapters["compile"],
    }


def benchmark(device: torch.device, smoke: bool, seconds: float) -> dict:
    """Time every arm and return the record; arms that would start after ``seconds`` are left out
    and named."""
    cuda = device.type == "cuda"
    model, pairs, channels, size = (VIT_B, 48, 3, 224) if cuda and not smoke else (TINY, 8, 1, 72)
    groups, per_group = (3, 1) if smoke else (10, 5 if cuda else 3)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(pairs, 2, channels, size, size, generator=generator).to(device)
    y = torch.randn(pairs, 4, generator=generator)
    y[:, 2:] = (y[:, 2:] > 0).float()
    arms = arms_of(cuda)
    begin, rows = time.perf_counter(), []
    for arm in arms:
        if time.perf_counter() - begin > seconds and rows:
            break
        print("timing", arm, file=sys.stderr, flush=True)
        try:
            rows.append(run_arm(arm, model, images, y.to(device), groups, per_group))
        except RuntimeError as error:  # what this card or version cannot run costs its own row only
            print(f"{arm} failed: {error}", file=sys.stderr)
        if cuda:
            torch.cuda.empty_cache()
    timed = [[row[key] for key in arms[0]] for row in rows]
    left_out = [" ".join(map(str, arm.values())) for arm in arms if [*arm.values()] not in timed]
    summary = summarise(rows, device)
    print(pd.DataFrame(rows).round(3).to_string(), summary, f"goals: {GOALS}", sep="\n")
    name = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    return new_record(
        STUDY,
        configuration={
            "machine": name,
            "model": model,
            "pairs": pairs,
            "size": size,
            "arms": arms,
            "goals": GOALS,
        },
        seeds=[0],
        metrics=summary | {"left_out": left_out},
        columns={key: [row[key] for row in rows] for key in rows[0]},
        seconds=time.perf_counter() - begin,
        dtype="bf16 autocast" if cuda else "float32",
        device=device,
        scale="smoke" if smoke else "paper",
    )


def main(arguments: list[str] | None = None) -> int:
    """Entry of ``python -m benchmarks.encoder``."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    here = "cuda" if torch.cuda.is_available() else "cpu"
    add("--device", choices=("cuda", "cpu"), default=here)
    add("--smoke", action="store_true", help="tiny models, few steps; marked as smoke")
    add("--results", help="folder for the record (default: the compendium's own)")
    add("--seconds", type=float, default=420, help="start no further arm after this time")
    options = parser.parse_args(arguments)
    if options.device == "cuda":
        # the float32 arm is float32; bf16 arms do not care
        torch.set_float32_matmul_precision("highest")
    record = benchmark(torch.device(options.device), options.smoke, options.seconds)
    print(write_record(record, options.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
