"""Time of the copula loss beside the empirical loss, and beside the older ways to compute it.

``python -m benchmarks.likelihood`` prints ratios from one run, all methods in turn, forward and
backward, one thread.

* ``--device cuda`` adds CUDA graphs, ``torch.compile`` and the share of a ViT-B/16 training step.
* ``--reference FOLDER`` adds the earlier public code's loss class from a checkout of its repository
  (it imports ``mvnorm``, which needs SciPy <= 1.13.1 and NumPy < 2: run this script in such an
  environment with this project on ``PYTHONPATH``).
* ``--record`` writes ``results/likelihood-speed/…json``; from a clean commit it can be published.

The baseline is BCE + MSE on the same outputs: two squared errors and two cross entropies, one for
each head, summed (``heads``); the same in two calls over column pairs (``pairs``) is shown too,
since it has half the operations.
"""

import argparse
import itertools
import sys
import time
import timeit
from pathlib import Path

import numpy as np
import scipy
import torch
from scipy.stats import multivariate_normal
from torch.nn import functional

from cevit_lib.copula import CopulaLoss, CopulaParameters, EmpiricalLoss
from cevit_lib.records import new_record, write_record

GAMMA = [[1, 0.75, 0.35, 0.3], [0.75, 1, 0.3, 0.35], [0.35, 0.3, 1, 0.569], [0.3, 0.35, 0.569, 1]]
STUDY = "likelihood-speed"
SEED = 20261127
MODES = ["eager", "captured", "compiled"]


def data(n: int, dtype: torch.dtype, device: str, p1: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs and responses drawn from the model: residuals and labels have the dependence
    of ``GAMMA``.
    """
    rng = np.random.default_rng(SEED)
    gamma = parameters(p1).correlation.numpy()
    u = rng.multivariate_normal(np.zeros(2 + p1), gamma, n)
    outputs = rng.normal(0, 1, (n, 2 + p1))
    outputs[:, 2:] *= 1.5
    threshold = torch.special.ndtri(torch.sigmoid(torch.tensor(-outputs[:, 2:]))).numpy()
    y = np.concatenate([outputs[:, :2] + u[:, :2], u[:, 2:] >= threshold], 1)
    return torch.tensor(outputs, dtype=dtype, device=device), torch.tensor(
        y, dtype=dtype, device=device
    )


def parameters(p1: int = 2) -> CopulaParameters:
    """Return the toy example's kind of parameters; for more labels an exchangeable block of 0.5."""
    if p1 == 2:
        return CopulaParameters(GAMMA, [1.0, 1.0])
    gamma = np.full((2 + p1, 2 + p1), 0.3)
    gamma[2:, 2:], gamma[0, 1], gamma[1, 0] = 0.5, 0.7, 0.7
    np.fill_diagonal(gamma, 1)
    return CopulaParameters(gamma, [1.0, 1.0])


# --- the baseline and the competitors: each takes outputs and y and returns a scalar ---


def heads(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return two squared errors and two cross entropies, one call for each of the four heads."""
    total = sum(functional.mse_loss(outputs[:, j], y[:, j], reduction="sum") for j in (0, 1))
    return total + sum(
        functional.binary_cross_entropy_with_logits(outputs[:, j], y[:, j], reduction="sum")
        for j in (2, 3)
    )


def pairs(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the same in two calls."""
    squared = functional.mse_loss(outputs[:, :2], y[:, :2], reduction="sum")
    return squared + functional.binary_cross_entropy_with_logits(
        outputs[:, 2:], y[:, 2:], reduction="sum"
    )


def by_scipy(upper: torch.Tensor, mean: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    """Return one bivariate normal probability by SciPy, with its closed-form gradient."""
    sd = covariance.diagonal().sqrt()
    z, r = ((upper - mean) / sd).detach(), covariance[0, 1] / sd.prod()
    normal = torch.distributions.Normal(torch.zeros((), dtype=z.dtype), 1.0)
    other = (z.flip(0) - r * z) / (1 - r * r).sqrt()
    slope = normal.log_prob(z).exp() / sd * normal.cdf(other)
    fixed = (upper.detach().numpy(), mean.detach().numpy(), covariance.numpy())
    linear = (slope * (upper - mean)).sum()
    return float(multivariate_normal.cdf(*fixed)) + linear - linear.detach()


def patient_by_patient(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the negative log-likelihood by a loop, with one probability each."""
    gamma = parameters().correlation.to(outputs)
    inverse = torch.inverse(gamma[:2, :2])
    covariance = gamma[2:, 2:] - gamma[2:, :2] @ inverse @ gamma[:2, 2:]
    normal = torch.distributions.Normal(torch.zeros((), dtype=outputs.dtype), 1.0)
    values = []
    for row, response in zip(outputs, y, strict=True):
        residual = response[:2] - row[:2]
        mean = gamma[2:, :2] @ inverse @ residual
        threshold = -normal.icdf(torch.sigmoid(row[2:]))
        below = normal.cdf((threshold - mean) / covariance.diagonal().sqrt())
        y3, y4 = response[2], response[3]
        probability = (
            (1 - 2 * y3) * (1 - 2 * y4) * by_scipy(threshold, mean, covariance)
            + y3 * (1 - 2 * y4) * below[1]
            + y4 * (1 - 2 * y3) * below[0]
        )
        values.append(torch.log(probability + y3 * y4) - residual @ inverse @ residual / 2)
    return -torch.stack(values).sum()


def reference_loss(folder: Path):
    """Return the earlier public code's loss on our columns; its class is imported from a checkout,
    unmodified.

    It numbers the columns (label left, length left, label right, length right), takes probabilities
    for the labels and calls ``.cuda()``, which is made to do nothing here.
    """
    sys.path.insert(0, str(folder))
    from utils.loss import parametricLoss

    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    loss, gamma = parametricLoss(), parameters().correlation
    order = [2, 0, 3, 1]

    def call(outputs, y):
        block = gamma.to(outputs)
        probability = torch.cat((outputs[:, :2], torch.sigmoid(outputs[:, 2:])), 1)
        one = torch.ones((), dtype=outputs.dtype)
        return loss(
            probability[:, order].T,
            y[:, order].T,
            block[:2, :2],
            block[2:, 2:],
            block[2:, :2],
            one,
            one,
        ).sum()

    return call


# --- timing ---


def step(loss, outputs: torch.Tensor, y: torch.Tensor) -> None:
    """Do one forward and backward pass with respect to the outputs."""
    outputs.grad = None
    loss(outputs, y).backward()


def interleaved(
    losses: dict, outputs: torch.Tensor, y: torch.Tensor, seconds: float
) -> dict[str, float]:
    """Return the least time in seconds of each loss's step, the losses taken in turn for
    ``seconds`` or 7 rounds.
    """
    leaf = outputs.clone().requires_grad_()
    for loss in losses.values():
        for _ in range(3 if len(outputs) <= 100_000 else 1):
            step(loss, leaf, y)
    best = dict.fromkeys(losses, float("inf"))
    start, rounds = time.perf_counter(), 0
    while rounds < 7 or time.perf_counter() - start < seconds:
        for name, loss in losses.items():
            began = time.perf_counter()
            step(loss, leaf, y)
            best[name] = min(best[name], time.perf_counter() - began)
        rounds += 1
    return best


def once(loss, outputs: torch.Tensor, y: torch.Tensor, seconds: float) -> float:
    """Return the least time of a slow loss's step, repeated while ``seconds`` last."""
    leaf = outputs.clone().requires_grad_()
    step(loss, leaf[:2].detach().requires_grad_(), y[:2])  # first calls make tables and caches
    timer = timeit.Timer(lambda: step(loss, leaf, y))
    first = timer.timeit(1)
    return min([first, *timer.repeat(int(seconds / first), 1)])


def saved_bytes(loss, n: int = 4096) -> float:
    """Return the bytes that a loss saves for backward, for each observation in float32."""
    outputs, y = data(n, torch.float32, "cpu")
    sizes = {}

    def pack(kept):
        sizes[kept.data_ptr()] = kept.numel() * kept.element_size()
        return kept

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        loss(outputs.requires_grad_(), y)
    return sum(sizes.values()) / n


def row_of(device: str, mode: str, dtype: str, n: int, best: dict[str, float]) -> dict:
    """Return, and print, one row of the table: milliseconds, and ratios to the baseline."""
    ratio = {name: value / best["heads"] for name, value in best.items()}
    milliseconds = {name: 1e3 * value for name, value in best.items()}
    print(
        device, mode, dtype, n, {name: round(value, 2) for name, value in ratio.items()}, flush=True
    )
    row = {"device": device, "mode": mode, "dtype": dtype, "n": n}
    return row | {"milliseconds": milliseconds, "ratio": ratio}


def cpu_table(options: argparse.Namespace) -> list[dict]:
    """Return one row for each dtype and batch: milliseconds of each method and ratios to the
    baseline.

    A loop is timed on at most ``--loop-limit`` observations and its time multiplied up (they grow
    in proportion at least).
    """
    seconds, limit = options.seconds, options.loop_limit
    losses = {"heads": heads, "pairs": pairs, "copula": CopulaLoss(parameters(), validate=False)}
    losses["copula, validated"] = CopulaLoss(parameters())
    loops = {"loop over SciPy": patient_by_patient} if limit else {}
    if options.reference:
        loops["earlier public class"] = reference_loss(options.reference)
    rows = []
    for dtype, n in itertools.product(options.dtypes, options.batches):
        outputs, y = data(n, getattr(torch, dtype), "cpu")
        best = interleaved(losses, outputs, y, seconds)
        few = min(n, limit)
        for name, loop in loops.items():
            best[name] = once(loop, outputs[:few], y[:few], seconds) * n / few
        rows.append(row_of("cpu", "eager", dtype, n, best) | {"loops_timed_on": few})
    return rows


def many_labels(seconds: float, n: int = 512) -> dict[str, float]:
    """Return microseconds an observation, both passes, with three and four labels in float64."""
    found = {}
    for p1 in (3, 4):
        loss = CopulaLoss(parameters(p1), validate=False)
        found[f"p1={p1}"] = 1e6 * once(loss, *data(n, torch.float64, "cpu", p1), seconds) / n
    print("microseconds an observation:", found, flush=True)
    return found


# --- CUDA ---


def captured(loss, outputs: torch.Tensor, y: torch.Tensor):
    """Return a call that replays one forward and backward pass as a CUDA graph; fails if the loss
    ever waits.
    """
    leaf = outputs.clone().requires_grad_()
    leaf.grad = torch.zeros_like(leaf)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            leaf.grad.zero_()
            loss(leaf, y).backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        leaf.grad.zero_()
        loss(leaf, y).backward()
    return graph.replay


def device_time(call, seconds: float) -> float:
    """Return the least mean time of a call over bursts of 20, by CUDA events."""
    for _ in range(5):
        call()
    best, start = float("inf"), time.perf_counter()
    while time.perf_counter() - start < seconds:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(20):
            call()
        last.record()
        torch.cuda.synchronize()
        best = min(best, first.elapsed_time(last) / 20e3)
    return best


def cuda_table(options: argparse.Namespace) -> list[dict]:
    """Return rows for steps launched by Python, replayed, and compiled before that."""
    rows, loss = [], CopulaLoss(parameters(), validate=False).cuda()
    complete = CopulaLoss(parameters(), validate=False, missing=False).cuda()
    losses = {"heads": heads, "pairs": pairs, "copula": complete, "copula, NaN allowed": loss}
    for mode, name, n in itertools.product(options.only, options.dtypes, options.batches):
        outputs, y = data(n, getattr(torch, name), "cuda")
        try:
            calls = {key: as_called(loss, outputs, y, mode) for key, loss in losses.items()}
            best = {key: device_time(call, options.seconds) for key, call in calls.items()}
        except Exception as error:  # what this PyTorch cannot do takes no other number away
            print(f"{mode}, {name}, n={n} failed: {type(error).__name__}: {error}", flush=True)
            continue
        rows.append(row_of("cuda", mode, name, n, best))
    return rows


def as_called(loss, outputs: torch.Tensor, y: torch.Tensor, mode: str):
    """Return one forward and backward pass as a call, in one of ``MODES``."""
    if mode == "eager":
        leaf = outputs.clone().requires_grad_()
        return lambda: step(loss, leaf, y)
    if mode == "compiled":
        torch.compiler.reset()
        loss = torch.compile(loss, fullgraph=True, dynamic=False)
    return captured(loss, outputs, y)


def vit_step(device: str, batch: int, seconds: float) -> dict[str, float]:
    """Return the loss's part of a ViT-B/16 training step (both passes and AdamW, bfloat16 autocast
    on CUDA).
    """
    import timm

    model = timm.create_model("vit_base_patch16_224", pretrained=False, num_classes=4).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5)
    images = torch.randn(batch, 3, 224, 224, device=device)
    _, y = data(batch, torch.float32, device)
    loss = CopulaLoss(parameters(), reduction="mean", validate=False).to(device)

    def whole(criterion=loss):
        optimiser.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            outputs = model(images)
        criterion(outputs.float(), y).backward()
        optimiser.step()

    leaf = torch.randn(batch, 4, device=device, requires_grad=True)
    timed = device_time if device == "cuda" else lambda call, _: timeit.timeit(call, number=2) / 2
    times = {
        "step": timed(whole, seconds),
        "loss": timed(lambda: step(loss, leaf, y), seconds),
    }
    times["share"] = times["loss"] / times["step"]
    print("ViT-B/16, seconds:", times, flush=True)
    return times


def arguments_of(given: list[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--batches", type=int, nargs="+", default=[48, 512, 8192, 100_000])
    add("--seconds", type=float, default=2.0, help="least time for each cell of the table")
    add("--reference", type=Path, help="a checkout of the earlier public code")
    add("--loop-limit", type=int, default=512, help="observations in the loops; 0 leaves them out")
    add("--vit-batch", type=int, default=0, help="time a ViT-B/16 training step of this batch, too")
    add("--dtypes", nargs="+", choices=("float32", "float64"), default=["float32", "float64"])
    add("--only", nargs="+", choices=MODES, default=MODES, help="modes on CUDA, in this order")
    add("--record", action="store_true", help="write a record into results/")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> dict:
    """Run the tables that the arguments ask for and return the metrics."""
    options, began = arguments_of(given), time.perf_counter()
    torch.set_num_threads(1)
    losses = {"copula": CopulaLoss(parameters(), validate=False), "BCE + MSE": heads}
    losses["EmpiricalLoss"] = EmpiricalLoss()
    metrics: dict = {"saved_bytes": {name: saved_bytes(loss) for name, loss in losses.items()}}
    print("saved for backward, bytes for each observation:", metrics["saved_bytes"], flush=True)
    if options.vit_batch:
        metrics["vit_step"] = vit_step(options.device, options.vit_batch, options.seconds)
    if options.device == "cuda":
        fast = CopulaLoss(parameters()).cuda().tables[False].fast
        metrics |= {"one_kernel": fast is not None, "table": cuda_table(options)}
    else:
        metrics |= {"table": cpu_table(options), "many_labels": many_labels(options.seconds)}
    if options.record:
        record(options, metrics, time.perf_counter() - began)
    return metrics


def record(options: argparse.Namespace, metrics: dict, seconds: float) -> None:
    """Write what was measured into results/."""
    configuration = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "batches": options.batches,
        "seconds": options.seconds,
        "threads": 1,
        "scipy": scipy.__version__,
        "loop_limit": options.loop_limit,
        "dtypes": options.dtypes,
        "modes": options.only if options.device == "cuda" else ["eager"],
        "methods": sorted({name for row in metrics["table"] for name in row["ratio"]}),
        "vit_batch": options.vit_batch,
    }
    dtype = " and ".join(options.dtypes)
    how = {"seconds": seconds, "device": options.device, "dtype": dtype}
    print("record:", write_record(new_record(STUDY, configuration, [SEED], metrics, **how)))


if __name__ == "__main__":
    main()
