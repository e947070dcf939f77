"""Accuracy and time of the normal probabilities beside SciPy's and, where importable, ``mvnorm``'s
and BoTorch's.

``python -m benchmarks.normal`` prints three tables; ``--record`` writes
``results/normal-accuracy/…json``.

* Bivariate: largest relative error of P by size of P, on the stored mpmath grid
  (``tests/reference``).
* Three to eight dimensions: error, honesty of the reported error, microseconds an observation,
  against an exact
  one-factor integral. SciPy has no gradient, so its time is of the value alone; all others are
  forward and backward.
* Time of the bivariate log probability and its three derivatives by batch size.

``mvnorm`` (torch-mvnorm) needs SciPy <= 1.13.1 and NumPy < 2: run this script in such an
environment with this project on ``PYTHONPATH`` to repeat its columns.
"""

import argparse
import importlib
import json
import math
import time
from pathlib import Path

import numpy as np
import scipy
import torch
from scipy.stats import multivariate_normal

from cevit_lib.normal import (
    log_bivariate_normal_cdf,
    log_bivariate_normal_cdf_with_gradients,
    log_multivariate_normal_cdf,
)

STUDY = "normal-accuracy"
GRID = Path(__file__).parents[1] / "tests" / "reference" / "bivariate_normal.json"
BINS = [0, -3, -10, -37, -300]  # decimal exponents of P


def optional(name: str):
    """Return a module, or None where it is missing or does not run with the installed SciPy and
    NumPy.
    """
    try:
        return importlib.import_module(name)
    except Exception:  # an old package may fail in any way
        return None


def bivariate_methods() -> dict:
    """Return functions of double tensors x, y, r that return log P (possibly -inf or NaN)."""

    def scipy_value(x, y, r):
        values = [
            multivariate_normal.cdf([a, b], cov=[[1, c], [c, 1]], allow_singular=True)
            for a, b, c in torch.stack((x, y, r), 1).tolist()
        ]
        return torch.tensor(values, dtype=torch.float64).log()

    methods = {
        "ours, float64": log_bivariate_normal_cdf,
        "ours, float32": lambda x, y, r: log_bivariate_normal_cdf(
            x.float(), y.float(), r.float()
        ).double(),
        f"SciPy {scipy.__version__}": scipy_value,
    }
    if mvnorm := optional("mvnorm"):

        def mvnorm_value(x, y, r):
            covariance = torch.stack((torch.ones_like(r), r, r, torch.ones_like(r)), 1).view(
                -1, 2, 2
            )
            return mvnorm.multivariate_normal_cdf(
                torch.stack((x, y), 1), torch.zeros(2).double(), covariance
            ).log()

        methods["torch-mvnorm"] = mvnorm_value
    if botorch := optional("botorch.utils.probability.bvn"):
        methods["BoTorch bvnu"] = lambda x, y, r: botorch.bvnu(r, -x, -y).log()
    return methods


def bivariate_accuracy() -> dict:
    """Return the largest relative error of P for each method and bin; inf where a value is not
    finite.
    """
    rows = json.loads(GRID.read_text())
    x, y, r = torch.tensor([row[:3] for row in rows], dtype=torch.float64).unbind(1)
    exact = np.array([float(row[3]) for row in rows])
    table = {}
    for name, method in bivariate_methods().items():
        error = np.abs(np.expm1(np.clip(method(x, y, r).numpy() - exact, -700, 700)))
        error[~np.isfinite(error)] = math.inf
        edges = np.array(BINS) * math.log(10)
        table[name] = [
            float(error[(exact <= a) & (exact > b)].max())
            for a, b in zip(edges, edges[1:], strict=False)
        ]
    return table


def one_factor(p: int, n: int, seed: int, largest: float = 0.9, spread: float = 1.2):
    """Return limits, correlation matrices ``l_i l_j``, and the exact log probability.

    Given the common factor the coordinates are independent: one integral for any p, with 1500 nodes.
    """
    rng = np.random.default_rng(seed)
    loading = torch.tensor(rng.uniform(-largest, largest, (n, p)))
    z = torch.tensor(spread * rng.normal(size=(n, p)))
    node, weight = (torch.tensor(9.5 * v) for v in np.polynomial.legendre.leggauss(1500))
    inner = torch.special.log_ndtr(
        (z[..., None] - loading[..., None] * node) / (1 - loading**2).sqrt()[..., None]
    )
    exact = torch.logsumexp(
        inner.sum(1) - node**2 / 2 - 0.5 * math.log(2 * math.pi) + weight.log(), -1
    )
    return z, loading[:, :, None] * loading[:, None, :] + torch.diag_embed(1 - loading**2), exact


def seconds(function, repeats: int) -> float:
    """Return the shortest of several runs, after one that warms up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def multivariate_accuracy(n: int = 512) -> dict:
    """Return, by dimension, errors of log P where P > 1e-8, honesty and microseconds an
    observation.
    """
    table = {}
    for p in (3, 4, 5, 6, 8):
        z, correlation, exact = one_factor(p, n, p)
        mean = torch.zeros(p, dtype=torch.float64)
        value, error = log_multivariate_normal_cdf(z, mean, correlation, return_error=True)
        likely, difference = exact > math.log(1e-8), (value - exact).abs()

        def both_ways(z=z, mean=mean, correlation=correlation):
            leaves = [z.clone().requires_grad_(), correlation.clone().requires_grad_()]
            log_multivariate_normal_cdf(leaves[0], mean, leaves[1]).sum().backward()

        few = 24
        start = time.perf_counter()
        other = [
            multivariate_normal.cdf(a.numpy(), cov=c.numpy())
            for a, c in zip(z[:few], correlation[:few], strict=True)
        ]
        table[str(p)] = {
            "median": float(difference[likely].median()),
            "largest": float(difference[likely].max()),
            "honest": float((difference <= error).double().mean()),
            "microseconds": 1e6 * seconds(both_ways, 5 if p < 5 else 1) / n,
            "scipy_median": float(
                np.median(np.abs(np.log(np.maximum(other, 1e-300)) - exact[:few].numpy()))
            ),
            "scipy_microseconds": 1e6 * (time.perf_counter() - start) / few,
        }
    return table


def bivariate_time() -> dict:
    """Return microseconds an observation of value and three derivatives, by dtype and batch
    size.
    """
    table, generator = {}, torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        for n in (48, 512, 8192, 100_000):
            x, y = 1.3 * torch.randn(2, n, dtype=dtype, generator=generator)
            r = torch.where(torch.rand(n, generator=generator) < 0.5, -0.43, 0.43).to(dtype)
            spent = seconds(
                lambda x=x, y=y, r=r: log_bivariate_normal_cdf_with_gradients(x, y, r), 10
            )
            table[f"{str(dtype)[6:]}, {n}"] = 1e6 * spent / n
    return table


def show(metrics: dict) -> None:
    print("Largest relative error of P, by size of P")
    print(
        f"{'':22}" + "".join(f"{f'1e{b}..1e{a}':>16}" for a, b in zip(BINS, BINS[1:], strict=False))
    )
    for name, errors in metrics["bivariate"].items():
        print(f"{name:22}" + "".join(f"{e:16.1e}" for e in errors))
    print(
        "\nDimensions: error of log P (median, largest), honest, us forward + backward | SciPy: median, us forward"
    )
    for p, row in metrics["multivariate"].items():
        print(
            f"{p}: {row['median']:.1e} {row['largest']:.1e}  {row['honest']:.3f}  {row['microseconds']:8.1f} | "
            f"{row['scipy_median']:.1e} {row['scipy_microseconds']:.0f}"
        )
    print("\nMicroseconds an observation, log probability with three derivatives")
    for name, value in metrics["time"].items():
        print(f"{name:22}{value:10.3f}")


def main() -> None:
    """Measure, print, and store on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write a record into results/")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    metrics = {
        "bivariate": bivariate_accuracy(),
        "multivariate": multivariate_accuracy(),
        "time": bivariate_time(),
    }
    show(metrics)
    if arguments.record:
        from cevit_lib.records import new_record, write_record

        configuration = {"bins": BINS, "threads": 1, "batch": 512}
        record = new_record(
            STUDY,
            configuration,
            [0, 3, 4, 5, 6, 8],
            metrics,
            seconds=time.perf_counter() - start,
            device="cpu",
        )
        print(write_record(record))


if __name__ == "__main__":
    main()
