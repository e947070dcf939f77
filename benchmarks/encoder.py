"""How fast the bi-channel ViT trains: one product per layer, peft's three, and the older styles.

    python -m benchmarks.encoder --device cuda     ViT-B/16, 224 px, LoRA rank 8, bf16
    python -m benchmarks.encoder --device cpu      one step of the tiny smoke model, 8 pairs
    python -m benchmarks.encoder --smoke           a few steps; shows only that it runs
    python -m benchmarks.encoder --arms peft-192   some arms only, in a record of their own

A step is forward, backward and AdamW under the empirical loss, on images that lie on the device:
what it costs to read them is another matter. Every arm is a process of its own; they compile side
by side, are timed one after the other, and then train from three starts, since a faster product
that learns less would be none. "By blocks" compiles as a fit does, and starts every kernel from
Python where a fit replays a recorded pass. The two-pass style is that of the authors' earlier
public code: one pass an eye, adapters chosen by ``if``, nothing compiled. It gets the same
precision as ours, so that the ratio measures the style alone.
"""

import argparse
import sys
import time
import traceback
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import timm
import torch
from torch import Tensor, nn
from torch.multiprocessing import get_context

from benchmarks.training import GFLOP_PER_IMAGE, TINY, VIT_B, matrix_rate, pairs
from cevit_lib.copula import EmpiricalLoss
from cevit_lib.encoder import BiChannelViT, add_lora
from cevit_lib.encoder.lora import lora_layers
from cevit_lib.errors import FrozenRandomWeightsWarning
from cevit_lib.records import new_record, write_record
from cevit_lib.training.compiling import compiled

STUDY = "encoder-speed"
#: Images a second with 48 and 192 pairs, the share that adapters may cost.
GOALS = {"ours-48": 4000.0, "ours-192": 4400.0, "adapter_cost": 0.04}
#: What is timed: adapters, and whose product or style.
ARMS = {
    "ours": (True, "one product"),
    "by blocks": (True, "one product"),
    "peft": (True, "peft"),
    "without adapters": (False, "one product"),
    "adapters alone": (True, "none"),
    "two passes": (True, "two passes"),
}
SIZES = {"ours": (48, 192), "by blocks": (48, 192), "peft": (48, 192)}
SEEDS = 3
LEARNING_STEPS = 200


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


def network(model: dict, adapters: bool, lora: str) -> nn.Module:
    """Return an arm's network with random weights: speed does not depend on their values."""
    if lora == "two passes":
        return TwoPassViT(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FrozenRandomWeightsWarning)
        rank = {"lora_rank": 0} if lora == "none" else {}
        own = BiChannelViT(pretrained=False, adapters=adapters, normalise=False, **model | rank)
    for layer in lora_layers(own).values():
        layer.one_product = lora == "one product"
    if lora == "none":
        for name, parameter in own.backbone.named_parameters():
            parameter.requires_grad_(".adapter." in name)
    return own


def make_step(
    model: nn.Module, precision: str, blocks: bool = False
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function that makes one training step on images and responses and returns its
    loss."""
    run = compiled(model, replay=False) if blocks else model
    training = [p for p in model.parameters() if p.requires_grad]
    device, loss_of = training[0].device, EmpiricalLoss(2, "mean", validate=False)
    optimizer = torch.optim.AdamW(training, lr=1e-3, fused=device.type == "cuda")
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")

    def step(images: Tensor, y: Tensor) -> Tensor:
        if images.is_cuda:
            # a replayed graph may overwrite the last step's outputs
            torch.compiler.cudagraph_mark_step_begin()
        with autocast:
            outputs = run(images)
        loss = loss_of(outputs.float(), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def timed(step: Callable, batch: tuple[Tensor, Tensor], steps: int) -> float:
    """Return the seconds that some steps take."""
    wait = torch.cuda.synchronize if batch[0].is_cuda else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(steps):
        step(*batch)
    wait()
    return time.perf_counter() - start


def learn(model: nn.Module, precision: str, batches: list, steps: int) -> list[float]:
    """Return the mean loss of the last twenty of some steps, from :data:`SEEDS` starts of what
    trains."""
    found = []
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        for name, value in model.named_parameters():
            if value.requires_grad:
                start = torch.randn(value.shape, generator=generator) * value.shape[-1] ** -0.5
                zero = any(part in name for part in ("lora_B", "v2", "d1", "d2", "bias", "logit"))
                value.data.copy_(0 * start if zero else start)
        step = make_step(model, precision)
        losses = [step(*batches[k % len(batches)]).clone() for k in range(steps)]
        found.append(float(torch.stack(losses[-20:]).mean()))
    return found


def prepare(arm: dict, setting: dict) -> tuple[nn.Module, Callable, list, float]:
    """Build an arm and make its first steps, which compile it; return it with its batches and the
    seconds of these."""
    torch.manual_seed(0)
    device = torch.device(setting["device"])
    data = pairs(arm["pairs"] * (8 if arm["learning_steps"] else 1), setting["size"])
    images = (data.images.float() / 255 - 0.5).to(device)
    parts = images.split(arm["pairs"]), data.y.float().to(device).split(arm["pairs"])
    batches = list(zip(*parts, strict=True))
    model = network(setting["model"], arm["adapters"], arm["lora"]).to(device)
    if arm["compile"] == "reduce-overhead":
        model.compile(mode="reduce-overhead", fullgraph=True)
    step = make_step(model, arm["precision"], arm["compile"] == "blocks")
    return model, step, batches, timed(step, batches[0], 3)


def run_arm(arm: dict, setting: dict, ready, alone) -> dict:
    """Prepare an arm beside the others; when all are ready, time it alone on the device."""
    try:
        model, step, batches, first = prepare(arm, setting)
    finally:
        ready.wait(setting["patience"])
    groups, per_group = setting["repeats"]
    with alone:
        seconds = [timed(step, batches[0], per_group) / per_group for _ in range(groups)]
        low, middle, high = (float(value) for value in np.percentile(seconds, [25, 50, 75]))
        row = arm | {"milliseconds": 1e3 * middle, "first_steps_seconds": first}
        row |= {"milliseconds_low": 1e3 * low, "milliseconds_high": 1e3 * high}
        row["images_per_second"] = 2 * arm["pairs"] / middle
        cuda = batches[0][0].is_cuda
        row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30 if cuda else None
        steps = arm["learning_steps"]
        row["losses"] = learn(model, arm["precision"], batches, steps) if steps else None
    return row


def work(arm: dict, setting: dict, ready, alone, results) -> None:
    """Entry of an arm's process; what fails costs its own row only."""
    try:
        results.put(run_arm(arm, setting, ready, alone))
    except Exception:
        traceback.print_exc()
        results.put({"left out": arm["name"]})


def run_arms(arms: list[dict], setting: dict) -> tuple[list[dict], list[str]]:
    """Run every arm in its own process; return the rows of those that ran, and the others'
    names."""
    context = get_context("spawn")
    ready, alone, results = context.Barrier(len(arms)), context.Lock(), context.Queue()
    running = [
        context.Process(target=work, args=(arm, setting, ready, alone, results)) for arm in arms
    ]
    for process in running:
        process.start()
    found = []
    for _ in running:
        found.append(results.get())
        print(found[-1], file=sys.stderr, flush=True)
    for process in running:
        process.join()
    rows = [row for row in found if "left out" not in row]
    return rows, [row["left out"] for row in found if "left out" in row]


def arms_of(cuda: bool, smoke: bool, names: list[str] | None) -> list[dict]:
    """Return the arms of these names, or all; on a processor nothing is compiled."""
    found = []
    for name, (adapters, lora) in ARMS.items():
        for size in SIZES.get(name, (48,)) if cuda and not smoke else (8,):
            arm = {"name": f"{name}-{size}", "arm": name, "adapters": adapters, "lora": lora}
            how = {"two passes": "none", "by blocks": "blocks"}.get(name, "reduce-overhead")
            arm |= {"pairs": size, "precision": "bf16", "compile": how}
            arm |= {} if cuda else {"precision": "float32", "compile": "none"}
            learns = name in ("ours", "peft") and size <= 48
            arm["learning_steps"] = (3 if smoke else LEARNING_STEPS if cuda else 0) * learns
            found.append(arm)
    chosen = [arm for arm in found if not names or arm["name"] in names]
    if len(chosen) < len(names or []):
        raise SystemExit(f"arms {names}: give some of {', '.join(arm['name'] for arm in found)}.")
    return chosen


def summarise(rows: list[dict]) -> dict:
    """Return images a second by arm, what the adapters cost, and the losses where there are any."""
    speed = {row["name"]: row["images_per_second"] for row in rows}
    summary = {"images_per_second": speed}
    both = [speed.get(name) for name in ("without adapters-48", "ours-48")]
    summary["adapter_cost"] = both[0] / both[1] - 1 if all(both) else None
    summary["losses"] = {row["arm"]: row["losses"] for row in rows if row["losses"]}
    return summary


def speeds(options: argparse.Namespace) -> dict:
    """Time the arms and return the record."""
    cuda, smoke, begin = options.device == "cuda", options.smoke, time.perf_counter()
    large = cuda and not smoke
    setting = {
        "device": options.device,
        "model": VIT_B if large else TINY,
        "size": 224 if large else 36,
        "repeats": (3, 1) if smoke else (10, 5 if cuda else 3),
        "patience": 240,
    }
    arms = arms_of(cuda, smoke, options.arms)
    rows, left_out = run_arms(arms, setting)
    metrics = summarise(rows) | {"left_out": left_out}
    if large:
        rate = matrix_rate(torch.device("cuda"))
        metrics |= {"matrix_tflops": rate, "floor": 1e3 * rate / (2 * GFLOP_PER_IMAGE)}
    print(pd.DataFrame(rows).round(3).to_string(), metrics, f"goals: {GOALS}", sep="\n")
    name = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    return new_record(
        STUDY,
        configuration={"part": "speed", "machine": name, "arms": arms, "goals": GOALS, **setting},
        seeds=list(range(SEEDS)),
        metrics=metrics,
        columns={key: [row[key] for row in rows] for key in rows[0]},
        seconds=time.perf_counter() - begin,
        dtype="bf16 autocast" if cuda else "float32",
        device=torch.device(options.device),
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
    add("--arms", nargs="+", help="names of arms, such as ours-48 peft-48; default: all")
    add("--results", help="folder for the record (default: the compendium's own)")
    options = parser.parse_args(arguments)
    print(write_record(speeds(options), options.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
