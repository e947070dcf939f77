"""Time of the copula loss beside the empirical loss, and beside the older ways to compute it.

``python -m benchmarks.likelihood`` prints ratios from one run, all methods in turn, forward and
backward, one thread.

* ``--device cuda`` adds CUDA graphs, ``torch.compile`` and the share of a ViT-B/16 training step.
* ``--reference FOLDER`` adds the earlier public code's loss class from a checkout of its repository
  (it imports
  ``mvnorm``, which needs SciPy <= 1.13.1 and NumPy < 2: run this script in such an environment with
  this project on ``PYTHONPATH``).
* ``--record`` writes ``results/likelihood-speed/…json``; from a clean commit it can be published.

The baseline is BCE + MSE on the same outputs: two squared errors and two cross entropies, one for
each head, summed (``heads``); the same in two calls over column pairs (``pairs``) is shown too,
since it has half the operations.
"""

import argparse
import itertools
import sys
import time
from pathlib import Path

import numpy as np
import torch
from scipy.stats import multivariate_normal
from torch.nn import functional

from cevit_lib.copula import CopulaLoss, CopulaParameters, EmpiricalLoss

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


# --- the baseline and the competitors: each takes outputs and y and returns a scalar to differentiate -----------------


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


class _ScipyCdf(torch.autograd.Function):
    """One bivariate normal probability by SciPy, on the CPU, with its closed-form gradient: the
    style of the loops.
    """

    @staticmethod
    def forward(ctx, upper, mean, covariance):
        ctx.save_for_backward(upper, mean, covariance)
        value = multivariate_normal.cdf(upper.numpy(), mean.numpy(), covariance.numpy())
        return torch.tensor(float(value), dtype=upper.dtype)

    @staticmethod
    def backward(ctx, slope):
        upper, mean, covariance = ctx.saved_tensors
        sd = covariance.diagonal().sqrt()
        z, r = (upper - mean) / sd, covariance[0, 1] / sd.prod()
        normal = torch.distributions.Normal(torch.zeros(()), 1.0)
        density = (
            normal.log_prob(z).exp() / sd * normal.cdf((z.flip(0) - r * z) / (1 - r * r).sqrt())
        )
        return slope * density, -slope * density, None


def scipy_loop(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the negative log-likelihood patient by patient, inclusion-exclusion over a SciPy
    probability.
    """
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
        both = _ScipyCdf.apply(threshold, mean, covariance)
        y3, y4 = response[2], response[3]
        probability = (
            (1 - 2 * y3) * (1 - 2 * y4) * both
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


def unbatched_mvnorm():
    """Return the loop over ``mvnorm`` itself where it can be imported, else None."""
    try:
        from mvnorm import multivariate_normal_cdf
    except ImportError:
        return None

    class Probability:
        apply = staticmethod(
            lambda upper, mean, covariance: multivariate_normal_cdf(upper, mean, covariance)
        )

    def call(outputs, y):
        global _ScipyCdf
        kept, _ScipyCdf = _ScipyCdf, Probability
        try:
            return scipy_loop(outputs, y)
        finally:
            _ScipyCdf = kept

    return call


# --- timing -----------------------------------------------------------------------------------------------------------


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
    leaf, best = outputs.clone().requires_grad_(), float("inf")
    step(loss, leaf[:2].detach().requires_grad_(), y[:2])  # first calls make tables and caches
    start = time.perf_counter()
    while True:
        began = time.perf_counter()
        step(loss, leaf, y)
        best = min(best, time.perf_counter() - began)
        if time.perf_counter() - start > seconds:
            return best


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


def cpu_table(options: argparse.Namespace, loops: dict) -> list[dict]:
    """Return one row for each dtype and batch: milliseconds of each method and ratios to the
    baseline.

    A loop is timed on at most ``--loop-limit`` observations and its time multiplied up (they grow
    in proportion at least).
    """
    seconds, limit = options.seconds, options.loop_limit
    ours = CopulaLoss(parameters(), validate=False)
    checked = CopulaLoss(parameters())
    losses = {"heads": heads, "pairs": pairs, "copula": ours, "copula, validated": checked}
    rows = []
    for dtype in options.dtypes:
        for n in options.batches:
            outputs, y = data(n, getattr(torch, dtype), "cpu")
            best = interleaved(losses, outputs, y, seconds)
            for name, loop in loops.items():
                few = min(n, limit)
                best[name] = once(loop, outputs[:few], y[:few], seconds) * n / few
            row = {"device": "cpu", "mode": "eager", "dtype": dtype, "n": n, **_ratios(best)}
            rows.append({**row, "loops_timed_on": min(n, limit)})
            _show(rows[-1])
    return rows


def _ratios(best: dict[str, float]) -> dict:
    return {
        "milliseconds": {name: 1e3 * value for name, value in best.items()},
        "ratio": {name: value / best["heads"] for name, value in best.items()},
        "ratio_to_pairs": best["copula"] / best["pairs"],
    }


def _show(row: dict) -> None:
    cells = ", ".join(
        f"{name} {value:.2f}x" for name, value in row["ratio"].items() if name != "heads"
    )
    baseline = row["milliseconds"]["heads"]
    print(
        f"{row['device']:5s}{row['mode']:10s}{row['dtype']:8s} n={row['n']:<7d} BCE+MSE {baseline:9.4f} ms | {cells}",
        flush=True,
    )


def many_labels(seconds: float, n: int = 512) -> dict[str, float]:
    """Return microseconds for each observation, forward and backward, with three and four labels in
    float64.
    """
    found = {}
    for p1 in (3, 4):
        outputs, y = data(n, torch.float64, "cpu", p1)
        loss = CopulaLoss(parameters(p1), validate=False)
        found[f"p1={p1}"] = 1e6 * once(loss, outputs, y, seconds) / n
        print(
            f"p1 = {p1}, batch {n}: {found[f'p1={p1}']:.1f} microseconds for each observation",
            flush=True,
        )
    return found


# --- CUDA -------------------------------------------------------------------------------------------------------------


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


def agreement() -> dict[str, float]:
    """Return the largest difference of the GPU's numbers from the CPU's in float64: value and
    gradient, relative.

    Responses are missing in places, and outputs are drawn out to a hundred standard deviations.
    """
    found = {}
    for name, factor in (("bulk", 1.0), ("tails", 30.0)):
        outputs, y = data(4096, torch.float64, "cpu")
        outputs = outputs * factor
        y[::7, 0] = y[3::11, 2] = y[5::13] = torch.nan
        results = []
        for device in ("cpu", "cuda"):
            leaf = outputs.detach().to(device).clone().requires_grad_()
            values = CopulaLoss(parameters(), reduction="none", validate=False).to(device)(
                leaf, y.to(device)
            )
            values.sum().backward()
            results.append((values.detach().cpu(), leaf.grad.cpu()))
        for kind, one, other in zip(("value", "gradient"), *results, strict=True):
            error = (one - other).abs() / one.abs().clamp_min(1e-3)
            found[f"{name}, {kind}"] = float(error.max())
    print("largest relative difference from the CPU:", found, flush=True)
    return found


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


def cuda_table(options: argparse.Namespace, deadline: float) -> list[dict]:
    """Return rows for eager, captured, and compiled and captured steps; loss and baseline always
    alike.

    What takes longest, compiling, comes last; after the deadline the rest is left out.
    """
    rows = []
    for mode, name, n in itertools.product(options.only, options.dtypes, options.batches):
        if time.perf_counter() > deadline:
            print(f"time is up: {mode}, {name}, n={n} left out", flush=True)
            continue
        outputs, y = data(n, getattr(torch, name), "cuda")
        losses = {
            "heads": heads,
            "pairs": pairs,
            "copula": CopulaLoss(parameters(), validate=False, missing=False).cuda(),
            "copula, NaN allowed": CopulaLoss(parameters(), validate=False).cuda(),
        }
        try:
            best = {
                key: device_time(_call(loss, outputs, y, mode), options.seconds)
                for key, loss in losses.items()
            }
        except (
            Exception
        ) as error:  # one mode that this PyTorch cannot do takes none of the others' numbers away
            print(f"{mode}, {name}, n={n} failed: {type(error).__name__}: {error}", flush=True)
            continue
        rows.append({"device": "cuda", "mode": mode, "dtype": name, "n": n, **_ratios(best)})
        _show(rows[-1])
    return rows


def _call(loss, outputs: torch.Tensor, y: torch.Tensor, mode: str):
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
    if device == "cuda":
        times = {
            "step": device_time(whole, seconds),
            "loss": device_time(lambda: step(loss, leaf, y), seconds),
        }
    else:
        whole()
        began = time.perf_counter()
        whole()
        times = {"step": time.perf_counter() - began, "loss": once(loss, leaf.detach(), y, 0.2)}
    times["share"] = times["loss"] / times["step"]
    print(
        f"ViT-B/16, batch {batch}, {device}: step {1e3 * times['step']:.1f} ms, loss {1e3 * times['loss']:.3f} ms, "
        f"{100 * times['share']:.3f} %",
        flush=True,
    )
    return times


def main(arguments: list[str] | None = None) -> dict:
    """Run the tables that the arguments ask for and return the metrics."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=[48, 512, 8192, 100_000])
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="least time for each cell of the table"
    )
    parser.add_argument("--reference", type=Path, help="a checkout of the earlier public code")
    parser.add_argument(
        "--no-loops", action="store_true", help="leave out the per-observation loops"
    )
    parser.add_argument(
        "--loop-limit", type=int, default=512, help="observations that the loops are timed on"
    )
    parser.add_argument(
        "--vit-batch", type=int, default=0, help="also time a ViT-B/16 training step of this batch"
    )
    parser.add_argument(
        "--dtypes", nargs="+", choices=("float32", "float64"), default=["float32", "float64"]
    )
    parser.add_argument(
        "--only", nargs="+", choices=MODES, default=MODES, help="modes on CUDA, in this order"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=float("inf"),
        help="seconds after which CUDA cells are left out",
    )
    parser.add_argument("--results", help="folder for the record (default: the compendium's own)")
    parser.add_argument("--record", action="store_true", help="write a record into results/")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    torch.set_num_threads(1)
    metrics: dict = {
        "saved_bytes": {
            "copula": saved_bytes(CopulaLoss(parameters(), validate=False)),
            "BCE + MSE": saved_bytes(heads),
            "EmpiricalLoss": saved_bytes(EmpiricalLoss()),
        }
    }
    print("saved for backward, bytes for each observation:", metrics["saved_bytes"], flush=True)
    if options.vit_batch:
        try:
            metrics["vit_step"] = vit_step(options.device, options.vit_batch, options.seconds)
        except ImportError as error:  # timm belongs to an extra
            print(f"no ViT-B/16 step: {error}", flush=True)
    if options.device == "cuda":
        metrics["agreement"] = agreement()
        metrics["one_kernel"] = isinstance(
            CopulaLoss(parameters()).cuda().tables[False].fast, torch.Tensor
        )
        metrics["table"] = cuda_table(options, began + options.limit)
    else:
        metrics["table"] = cpu_table(options, {} if options.no_loops else _loops(options))
        metrics["many_labels"] = many_labels(options.seconds)
    if options.record:
        _record(options, metrics, time.perf_counter() - began)
    return metrics


def _loops(options: argparse.Namespace) -> dict:
    loops = {"loop over SciPy": scipy_loop}
    if unbatched_mvnorm():
        loops["loop over torch-mvnorm"] = unbatched_mvnorm()
    if options.reference:
        loops["earlier public class"] = reference_loss(options.reference)
    return loops


def _record(options: argparse.Namespace, metrics: dict, seconds: float) -> None:
    import scipy

    from cevit_lib.records import new_record, write_record

    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    configuration = {
        "device": name,
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
    record = new_record(
        STUDY,
        configuration,
        [SEED],
        metrics,
        seconds=seconds,
        device=options.device,
        dtype=" and ".join(options.dtypes),
    )
    print("record:", write_record(record, options.results))


if __name__ == "__main__":
    main()
