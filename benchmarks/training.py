"""How long a whole fit takes at the paper's size, and what a second device brings inside one fit.

    python -m benchmarks.training --full-fit       ViT-B/16, 224 px, 25 + 60 epochs, 2,091 pairs
    python -m benchmarks.training --two-gpus       epochs of the same network on one device, on two
    python -m benchmarks.training --deterministic  what bit-equal reruns cost, and if they are so
    python -m benchmarks.training --full-fit --smoke      tiny, on a processor; shows that it runs

The images are noise whose brightness carries the responses, the weights are random: neither moves
the time of a step. The whole fit reads photographs as a camera stores them, JPEG of 3900 x 3072,
decoded once in parallel; a few distinct ones lie under many names. ``--scratch FOLDER`` keeps them
and their bytes for another run. Pages set the fit beside the 4.5 hours on two RTX 4090 that the
paper reports. Each part is one record.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from PIL import Image
from torch.utils.benchmark import Timer

from cevit_lib.datasets import ImageFiles, PairedEyes
from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import FrozenRandomWeightsWarning, TrainingError
from cevit_lib.estimation import ExactEM
from cevit_lib.paths import granted_cores, whole_file
from cevit_lib.records import new_record, write_record
from cevit_lib.training import Recipe, find_device, fit_feasible_cevit, fit_warm_up, processes
from cevit_lib.training.checkpoint import digest

STUDY = "training-speed"
PAPER_HOURS = 4.5  # of training on two RTX 4090, as Section 6 reports
VIT_B = {"backbone": "vit_base_patch16_224", "lora_rank": 8}
TINY = {
    "backbone": "vit_tiny_patch16_224",
    "lora_rank": 2,
    "img_size": 36,
    "patch_size": 12,
    "in_chans": 3,
    "embed_dim": 24,
    "depth": 2,
    "num_heads": 2,
}
PAPER = {
    "model": VIT_B,
    "size": 224,
    "pairs": 2091,
    "camera": [3900, 3072],
    "photographs": 64,
    "epochs": [25, 60],
    "batch": 48,
    "batches": [48, 192],
    "speed_pairs": 1920,
    "speed_epochs": 4,
}
SMOKE = {
    "model": TINY,
    "size": 36,
    "pairs": 90,
    "camera": [390, 307],
    "photographs": 4,
    "epochs": [2, 2],
    "batch": 12,
    "batches": [12],
    "speed_pairs": 48,
    "speed_epochs": 3,
}
#: A forward pass of ViT-B/16 at 224 px, whose last MLP sees the class token alone; the gradient of
#: its inputs costs as much again.
GFLOP_PER_IMAGE = 2 * 16.6
CORRELATION = 0.6


def responses(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return what the images of ``n`` patients show, ``(n, 2)``, and the responses ``(n, 4)``."""
    rng = np.random.default_rng(seed)
    signal = rng.standard_normal((n, 2)) @ np.linalg.cholesky([[1, 0.8], [0.8, 1]]).T
    errors = (
        rng.standard_normal((n, 4))
        @ np.linalg.cholesky(np.eye(4) * (1 - CORRELATION) + CORRELATION).T
    )
    return signal, np.concatenate([signal + errors[:, :2], signal + errors[:, 2:] > 0], axis=1)


def patients(images: torch.Tensor | ImageFiles, y: np.ndarray) -> PairedEyes:
    """Return images and responses as paired eyes."""
    names, ids = ("AL_OS", "AL_OD", "HM_OS", "HM_OD"), tuple(map(str, range(len(y))))
    return PairedEyes(images, torch.as_tensor(y), ids, names, 2, name="noise")


def pairs(n: int, size: int, seed: int = 0) -> PairedEyes:
    """Return ``n`` patients: noise as bytes, brighter where the continuous response is larger."""
    signal, y = responses(n, seed)
    generator = torch.Generator().manual_seed(seed)
    images = torch.empty(n, 2, 3, size, size, dtype=torch.uint8)
    for start in range(0, n, 256):  # float noise of all patients at once would be gigabytes
        level = torch.as_tensor(signal[start : start + 256], dtype=torch.float32)[
            ..., None, None, None
        ]
        noise = torch.randn(len(level), 2, 3, size, size, generator=generator)
        images[start : start + 256] = (128 + 20 * level + 30 * noise).clamp(0, 255).to(torch.uint8)
    return patients(images, y)


def take(path: Path, level: float, camera: list[int]) -> None:
    """Write a photograph of a camera's size whose brightness is ``level``."""
    if path.is_file():
        return
    rng = np.random.default_rng(0)
    rough = (128 + 20 * level + 30 * rng.standard_normal((96, 122, 3))).clip(0, 255)
    smooth = np.asarray(Image.fromarray(rough.astype(np.uint8)).resize(camera))
    grain = rng.integers(-6, 7, smooth.shape[:2], dtype=np.int16)[..., None]
    with whole_file(path) as stream:
        picture = Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8))
        picture.save(stream, "jpeg", quality=90)


def photographed(setting: dict, folder: Path) -> PairedEyes:
    """Return patients whose eyes are JPEG files: the distinct one nearest in brightness, under a
    name of its own.
    """
    signal, y = responses(setting["pairs"])
    levels = np.linspace(-3, 3, setting["photographs"])
    files = [folder / f"{k}.jpg" for k in range(len(levels))]
    Parallel(granted_cores(), prefer="threads")(
        delayed(take)(path, level, setting["camera"])
        for path, level in zip(files, levels, strict=True)
    )
    nearest = np.abs(signal[..., None] - levels).argmin(-1)
    names = tuple(tuple(folder / f"{i}-{j}.jpg" for j in range(2)) for i in range(len(y)))
    for i, j in np.ndindex(nearest.shape):
        if not names[i][j].exists():
            os.link(files[nearest[i, j]], names[i][j])
    return patients(ImageFiles(names, setting["size"], (False, False), folder / "bytes"), y)


def decode(data: PairedEyes) -> dict[str, float]:
    """Read all photographs twice: the first time decodes them, the second reads what was kept.

    Where a run before this one decoded some, only the reading is told.
    """
    begun_before, seconds = data.images.cache.exists(), []
    count, cores = data.images.shape[0] * data.images.shape[1], granted_cores()
    for _ in range(2):
        begun = time.perf_counter()
        data.images[np.arange(len(data))]
        seconds.append(time.perf_counter() - begun)
    found = {"read_per_second": count / seconds[1], "cores": cores}
    if not begun_before:
        found["decoding_seconds"] = seconds[0]
        found["decoded_per_second_and_core"] = count / seconds[0] / cores
    return found


def network(model: dict, seed: int = 0) -> BiChannelViT:
    """Return the library's encoder with adapters, LoRA and random weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FrozenRandomWeightsWarning)
        return BiChannelViT(
            pretrained=False, adapters=True, rng=np.random.default_rng(seed), **model
        )


def full_fit(setting: dict, kind: str, scratch: Path) -> tuple[dict, list[dict]]:
    """Decoding, warm-up, estimate and copula training; return seconds by stage, images a second,
    and the floor.
    """
    device, cuda = torch.device(kind), kind == "cuda"
    data = photographed(setting, scratch)
    decoded = decode(data)
    recipes = [
        Recipe(e, rate, setting["batch"], compiled=cuda)
        for e, rate in zip(setting["epochs"], (1e-3, 1e-4), strict=True)
    ]
    model = network(setting["model"])
    begun = time.perf_counter()
    fit = fit_feasible_cevit(
        model,
        data,
        estimator=ExactEM(),
        warm_up=recipes[0],
        copula=recipes[1],
        rng=np.random.default_rng(0),
        device=device,
    )
    whole = time.perf_counter() - begun
    epochs = {
        stage: [e["seconds"] for e in fit.copula.trace if e["stage"] == stage]
        for stage in ("warm-up", "copula")
    }
    images = len(data.domains) * len(fit.steps.networks.parts["train"])
    found: dict[str, Any] = decoded | {
        "whole_seconds": whole,
        "outside_epochs_seconds": whole - sum(map(sum, epochs.values())),
        "paper_hours": PAPER_HOURS,
        "times_paper": PAPER_HOURS * 3600 / whole,
        "images_per_epoch": images,
    }
    for stage, seconds in epochs.items():
        found |= {
            f"{stage}_seconds": sum(seconds),
            f"{stage}_first_epoch_seconds": seconds[0],
            f"{stage}_epoch_seconds": float(np.median(seconds)),
        }
    found |= {
        "images_per_second": images / found["copula_epoch_seconds"],
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if cuda else None,
        "correlation": fit.parameters.correlation.tolist(),
        "final_loss": {
            stage: fit.copula.trace[k]["loss"]
            for stage, k in (("warm-up", len(epochs["warm-up"]) - 1), ("copula", -1))
        },
    }
    if cuda:
        rate = matrix_rate(device)
        pflop = 2 * GFLOP_PER_IMAGE * images * sum(setting["epochs"]) / 1e6
        found |= {
            "matrix_tflops": rate,
            "pflop": pflop,
            "floor_seconds": 1e3 * pflop / rate,
            "times_floor": whole / (1e3 * pflop / rate),
        }
    return found, []


def matrix_rate(device: torch.device, size: int = 8192, repeats: int = 20) -> float:
    """Return TFLOP/s of a large bf16 matrix product: what the card gives at best."""
    pair = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    timer = Timer("a @ b", globals=dict(zip("ab", pair, strict=True)))
    timer.timeit(3)
    return 2 * size**3 / timer.timeit(repeats).mean / 1e12


def worker(setting: dict, task: dict) -> dict[str, Any]:
    """Train some epochs, alone or as one of several processes; return their seconds and a digest of
    the weights."""
    device = find_device(task["device"])
    data, model = pairs(setting["speed_pairs"], setting["size"]), network(setting["model"])
    recipe = Recipe(
        setting["speed_epochs"],
        1e-3,
        task["batch"],
        compiled=task["compiled"],
        deterministic=task["deterministic"],
    )
    try:
        fit = fit_warm_up(model, data, recipe, rng=np.random.default_rng(0), device=device)
    except (TrainingError, RuntimeError) as error:
        # no room for a deterministic arm; what a graph cannot capture
        return {**task, "error": str(error)}
    seconds = [entry["seconds"] for entry in fit.trace]
    training = [p for p in model.parameters() if p.requires_grad]
    peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
    return {
        **task,
        "processes": processes().count,
        "first_epoch_seconds": seconds[0],
        "epoch_seconds": float(np.median(seconds[1:])),
        "digest": digest(training),
        "images_per_second": 2 * len(data) / float(np.median(seconds[1:])),
        "peak_gib": peak,
        "final_loss": fit.trace[-1]["loss"],
    }


def launch(setting: dict, task: dict, count: int) -> dict[str, Any]:
    """Run a worker task in ``count`` new processes, as torchrun starts them."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "found.json"
        own = ["-m", "benchmarks.training", "--worker", json.dumps(task), "--target", str(target)]
        own += ["--smoke"] if setting is SMOKE else []
        # one alone is started as ever; torchrun would leave each of several a single thread
        several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
        command = [sys.executable, *(several if count > 1 else []), *own]
        threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
        ended = subprocess.run(command, env=os.environ | threads).returncode
        if ended or not target.is_file():
            raise SystemExit(f"the task {task} on {count} processes ended with {ended}")
        found = json.loads(target.read_text())
    print({k: v for k, v in found.items() if k != "digest"}, flush=True)
    return found


def two_devices(setting: dict, kind: str, scratch: Path) -> tuple[dict, list[dict]]:
    """Time epochs on one device and on two, the same batch in the same steps."""
    rows, ratio = [], {}
    for batch in setting["batches"]:
        task = {"batch": batch, "compiled": kind == "cuda", "deterministic": False, "device": kind}
        rows += [launch(setting, task, count) for count in (1, 2)]
        pair = [row.get("images_per_second") for row in rows[-2:]]
        ratio[f"batch {batch}"] = pair[1] / pair[0] if all(pair) else None
    return {"times_one_device": ratio}, rows


def repeated(setting: dict, kind: str, scratch: Path) -> tuple[dict, list[dict]]:
    """Time epochs with and without ``deterministic``, each twice, and compare the weights to the
    last bit.
    """
    rows, metrics = [], {}
    for compiled in (False, True) if kind == "cuda" else (False,):
        for deterministic in (False, True):
            task = {
                "batch": setting["batch"],
                "compiled": compiled,
                "deterministic": deterministic,
                "device": kind,
            }
            both = [launch(setting, task, 1) for _ in range(2)]
            rows += both
            name = "compiled, " if compiled else "eager, "
            name += "deterministic" if deterministic else "free"
            metrics[name] = {
                "bit_equal": both[0].get("digest") == both[1].get("digest") is not None,
                "epoch_seconds": both[0].get("epoch_seconds"),
                "peak_gib": both[0].get("peak_gib"),
                "error": both[0].get("error"),
            }
            print(name, metrics[name], flush=True)
    return metrics, rows


MEASURES = {
    "full-fit": full_fit,
    "two-gpus": two_devices,
    "deterministic": repeated,
}


def record_of(part: str, options: argparse.Namespace, setting: dict) -> dict:
    """Measure one part and return its record."""
    kind, begun = options.device, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        metrics, rows = MEASURES[part](setting, kind, Path(options.scratch or folder))
    print(
        json.dumps({k: v for k, v in metrics.items() if k != "correlation"}, indent=1), flush=True
    )
    cuda = kind == "cuda"
    machine = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    names = sorted({key for row in rows for key in row})
    return new_record(
        STUDY,
        {"part": part, "machine": machine, **setting},
        [0],
        metrics,
        columns={key: [row.get(key) for row in rows] for key in names} if rows else None,
        seconds=time.perf_counter() - begun,
        dtype="bf16 autocast" if cuda else "float32",
        device=torch.device(kind),
        scale="smoke" if options.smoke else "paper",
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for part in MEASURES:
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="tiny networks, few patients; the record is marked so"
    )
    parser.add_argument("--results", help="folder for the record (default: the compendium's own)")
    parser.add_argument("--scratch", help="folder for photographs and their bytes, kept")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--target", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    setting = SMOKE if options.smoke or options.device == "cpu" else PAPER
    if options.worker:
        found = worker(setting, json.loads(options.worker))
        if processes().main:
            options.target.write_text(json.dumps(found))
        return 0
    chosen = [part for part in MEASURES if getattr(options, part.replace("-", "_"))]
    if not chosen:
        parser.error(f"choose what to measure: {', '.join('--' + part for part in MEASURES)}")
    options.smoke = options.smoke or options.device == "cpu"  # a processor says nothing about this
    for part in chosen:
        print(write_record(record_of(part, options, setting), options.results), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
