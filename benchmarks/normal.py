"""Accuracy and time of the normal probabilities beside SciPy's.

``python -m benchmarks.normal`` prints them; ``--record`` writes ``results/normal-accuracy/…json``.

* Bivariate: largest relative error of P by size of P, on the stored mpmath grid
  (``tests/reference``).
* Three to eight dimensions: error, microseconds an observation,
  against an exact one-factor integral. SciPy has no gradient, so its time is of the value alone;
  ours is forward and backward.
* Time of the bivariate log probability and its three derivatives by batch size.
"""

import argparse
import json
import math
import time
import timeit
from pathlib import Path

import numpy as np
import scipy
import torch
from scipy.stats import multivariate_normal

from cevit_lib.normal import (
    log_bivariate_normal_cdf,
    log_multivariate_normal_cdf,
)
from cevit_lib.records import new_record, write_record

STUDY = "normal-accuracy"
GRID = Path(__file__).parents[1] / "tests" / "reference" / "bivariate_normal.json"
BINS = [0, -3, -10, -37, -300]  # decimal exponents of P


def by_scipy(x, y, r):
    """Return log P by SciPy, row by row (possibly -inf or NaN)."""
    covariances = [[[1, c], [c, 1]] for c in r.tolist()]
    limits = torch.stack((x, y), 1).tolist()
    values = [
        multivariate_normal.cdf(limit, cov=covariance, allow_singular=True)
        for limit, covariance in zip(limits, covariances, strict=True)
    ]
    return torch.tensor(values, dtype=torch.float64).log()


def in_single(x, y, r):
    """Return our log P of the rounded arguments, in float32."""
    return log_bivariate_normal_cdf(x.float(), y.float(), r.float()).double()


METHODS = {
    "ours, float64": log_bivariate_normal_cdf,
    "ours, float32": in_single,
    f"SciPy {scipy.__version__}": by_scipy,
}


def bivariate_accuracy() -> dict:
    """Return the largest relative error of P for each method and bin; inf where a value is not
    finite.
    """
    rows = json.loads(GRID.read_text())
    x, y, r = torch.tensor([row[:3] for row in rows], dtype=torch.float64).unbind(1)
    exact = np.array([float(row[3]) for row in rows])
    table = {}
    for name, method in METHODS.items():
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

    Given the common factor the coordinates are independent: one integral for any p,
    with 1500 nodes.
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
    return min(timeit.repeat(function, number=1, repeat=repeats))


def multivariate_accuracy(n: int = 512) -> dict:
    """Return, by dimension, errors of log P where P > 1e-8 and microseconds an observation."""
    table = {}
    for p in (3, 4, 5, 6, 8):
        z, correlation, exact = one_factor(p, n, p)
        mean = torch.zeros(p, dtype=torch.float64)
        difference = (log_multivariate_normal_cdf(z, mean, correlation) - exact).abs()
        likely = exact > math.log(1e-8)

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
            leaves = [each.requires_grad_() for each in (x, y, r)]

            def both_ways(leaves=leaves):
                torch.autograd.grad(log_bivariate_normal_cdf(*leaves).sum(), leaves)

            table[f"{str(dtype)[6:]}, {n}"] = 1e6 * seconds(both_ways, 10) / n
    return table


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
    print(
        "Largest relative error of P where it is 1e-3..1, 1e-10.., 1e-37.., 1e-300..;",
        "by dimension: errors, microseconds; microseconds of log P and its slopes",
        json.dumps(metrics, indent=1),
        sep="\n",
    )
    if arguments.record:
        configuration = {"bins": BINS, "threads": 1, "batch": 512}
        seeds, spent = [0, 3, 4, 5, 6, 8], time.perf_counter() - start
        record = new_record(STUDY, configuration, seeds, metrics, seconds=spent, device="cpu")
        print(write_record(record))


if __name__ == "__main__":
    main()
