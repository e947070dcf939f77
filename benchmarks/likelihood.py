"""Time of the copula loss beside the empirical loss, and beside the older ways to compute it.

``python -m benchmarks.likelihood`` prints ratios from one run, all methods in turn, forward and
backward, one thread.

* ``--device cuda`` times both passes as Python launches them, and replayed as a CUDA graph.
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
from functools import partial
from pathlib import Path

import numpy as np
import scipy
import torch
from scipy.stats import multivariate_normal
from torch.nn import functional

from cevit_lib.copula import CopulaLoss, CopulaParameters
from cevit_lib.records import new_record, write_record

GAMMA = [[1, 0.75, 0.35, 0.3], [0.75, 1, 0.3, 0.35], [0.35, 0.3, 1, 0.569], [0.3, 0.35, 0.569, 1]]
STUDY = "likelihood-speed"
SEED = 20261127
MODES = ["eager", "captured"]


PARAMETERS = CopulaParameters(GAMMA, [1.0, 1.0])


def data(n: int, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs and responses drawn from the model: residuals and labels have the dependence
    of ``GAMMA``.
    """
    rng = np.random.default_rng(SEED)
    u = rng.multivariate_normal(np.zeros(4), GAMMA, n)
    outputs = rng.normal(0, 1, (n, 4))
    outputs[:, 2:] *= 1.5
    threshold = torch.special.ndtri(torch.sigmoid(torch.tensor(-outputs[:, 2:]))).numpy()
    y = np.concatenate([outputs[:, :2] + u[:, :2], u[:, 2:] >= threshold], 1)
    both = torch.tensor(np.stack([outputs, y]), dtype=dtype, device=device)
    return both[0], both[1]


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
    gamma = PARAMETERS.correlation.to(outputs)
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
    loss, gamma = parametricLoss(), PARAMETERS.correlation
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
    losses = {"heads": heads, "pairs": pairs, "copula": CopulaLoss(PARAMETERS, validate=False)}
    losses["copula, validated"] = CopulaLoss(PARAMETERS)
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
    """Return rows for steps launched by Python, and replayed."""
    rows, loss = [], CopulaLoss(PARAMETERS, validate=False).cuda()
    complete = CopulaLoss(PARAMETERS, validate=False, missing=False).cuda()
    losses = {"heads": heads, "pairs": pairs, "copula": complete, "copula, NaN allowed": loss}
    for mode, name, n in itertools.product(MODES, options.dtypes, options.batches):
        outputs, y = data(n, getattr(torch, name), "cuda")
        leaf = outputs.clone().requires_grad_()
        best = {}
        for key, own in losses.items():
            call = captured(own, outputs, y) if mode == "captured" else partial(step, own, leaf, y)
            best[key] = device_time(call, options.seconds)
        rows.append(row_of("cuda", mode, name, n, best))
    return rows


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
    add("--dtypes", nargs="+", choices=("float32", "float64"), default=["float32", "float64"])
    add("--record", action="store_true", help="write a record into results/")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> dict:
    """Run the tables that the arguments ask for and return the metrics."""
    options, began = arguments_of(given), time.perf_counter()
    torch.set_num_threads(1)
    metrics = {"table": (cuda_table if options.device == "cuda" else cpu_table)(options)}
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
        "modes": list(MODES) if options.device == "cuda" else ["eager"],
        "methods": sorted({name for row in metrics["table"] for name in row["ratio"]}),
    }
    dtype = " and ".join(options.dtypes)
    how = {"seconds": seconds, "device": options.device, "dtype": dtype}
    print("record:", write_record(new_record(STUDY, configuration, [SEED], metrics, **how)))


if __name__ == "__main__":
    main()
