"""Speed of the estimators: goals at n = 800, cost from n = 10^2 to 10^6, memory, ratios to the
Gibbs sampler.

    python -m benchmarks.estimation             writes results/estimation-speed/<id>.json
    python -m benchmarks.estimation --quick     a few seconds, prints only

Every ratio compares numbers of one run, interleaved. Times are processor seconds of one thread (the
minimum over repeats), so that other work on the machine disturbs them little; those of many members
at once are by the clock on the wall.
"""

import argparse
import functools
import platform
import re
import resource
import subprocess
import sys
import time
import timeit
import warnings
from pathlib import Path

import numpy as np
import torch

from cevit_lib.datasets.toy import ToyExample
from cevit_lib.estimation import (
    ExactEM,
    FastMCEM,
    MaximumLikelihood,
    RankLikelihoodMCMC,
    estimate_many,
)
from cevit_lib.records import new_record, write_record
from studies.estimation.plug_in import plug_in_outputs

STUDY = "estimation-speed"
SEED = 4500
BETA = (0.5, 0.5, 0.5)
#: Goal -> largest value (milliseconds at n = 800; or a ratio, where "at least" says so).
GOALS = {
    "FastMCEM, an iteration": ("ms", 0.4),
    "MaximumLikelihood": ("ms", 60.0),
    "MaximumLikelihood, standard errors": ("ms", 100.0),
    "ExactEM, cov2cor": ("ms", 120.0),
    "ExactEM, constrained": ("ms", 350.0),
    "FastMCEM, n = 10^6 / n = 10^4": ("ratio", 100.0),
    "n = 10^6, peak MiB beyond the imports": ("MiB", 1024.0),
    "Gibbs / FastMCEM": ("at least", 30.0),
    "Gibbs / MaximumLikelihood": ("at least", 8.0),
    "25 members": ("ms", 40.0),
    "50 members, an epoch later": ("ms", 50.0),
}


def contenders() -> dict:
    """Return the estimators that are timed at n = 800; the sampler last, because it takes
    longest."""
    return {
        "FastMCEM": FastMCEM(),
        "MaximumLikelihood": MaximumLikelihood(),
        "MaximumLikelihood, standard errors": MaximumLikelihood(standard_errors=True),
        "ExactEM, cov2cor": ExactEM(rescale=True),
        "ExactEM, constrained": ExactEM(),
        "Gibbs, 2,500 sweeps": RankLikelihoodMCMC(rng=SEED),
    }


def seconds_of(estimator, outputs, y) -> float:
    """Return processor seconds of one fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether it converged is not the question
        start = time.process_time()
        estimator.fit(outputs, y)
        return time.process_time() - start


def at_800(repeats: int) -> dict:
    """Return for each contender the least seconds over repeats (of one data set), and its
    iterations."""
    data = ToyExample(800, BETA, rng=SEED).sample()
    outputs, found = plug_in_outputs(data.covariates, data.y), {}
    for _ in range(repeats):
        for name, estimator in contenders().items():
            seconds = seconds_of(estimator, outputs, data.y)
            best = min(seconds, found[name]["seconds"] if name in found else seconds)
            found[name] = {"seconds": best, "iterations": estimator.n_iter_}
    return found


def against_n(sizes, repeats: int) -> dict:
    """Return columns of seconds and iterations against n; the Gibbs sampler stops at 10^4, where it
    takes seconds."""
    columns = {"n": list(sizes)}
    for label, name in {
        "FastMCEM": "FastMCEM",
        "ExactEM": "ExactEM, cov2cor",
        "MaximumLikelihood": "MaximumLikelihood",
        "Gibbs": "Gibbs, 2,500 sweeps",
    }.items():
        rows = []
        for n in sizes:
            data, estimator = ToyExample(n, BETA, rng=SEED).sample(), contenders()[name]
            if label == "Gibbs" and n > 10_000:
                rows.append((None, None))
                continue
            many = repeats if n <= 100_000 and label != "Gibbs" else 1
            seconds = min(seconds_of(estimator, data.outputs, data.y) for _ in range(many))
            rows.append((seconds, estimator.n_iter_))
        columns[f"{label}.seconds"], columns[f"{label}.iterations"] = map(
            list, zip(*rows, strict=True)
        )
    return columns


def side_by_side(repeats: int) -> dict:
    """Return the least milliseconds of 25 and 50 estimates at n = 800, from scratch and from those
    of an epoch before, when each output was off by 0.1."""
    samples = [ToyExample(800, BETA, rng=SEED + member).sample() for member in range(50)]
    late, y = (
        torch.tensor(np.array(side))
        for side in ([each.outputs for each in samples], [each.y for each in samples])
    )
    early = late + 0.1 * torch.randn(late.shape, generator=torch.manual_seed(SEED)).to(late)
    found = {}
    for members in (25, 50):
        data = late[:members], y[:members]
        before = estimate_many(early[:members], y[:members]).parameters
        for when, start in (("", None), (", an epoch later", before)):
            times = timeit.repeat(
                functools.partial(estimate_many, *data, start), repeat=repeats, number=1
            )
            found[f"{members} members{when}"] = 1e3 * min(times)
    return found


def peak_mib(n: int) -> float:
    """Return by how many MiB the peak memory of a fresh process rises from its imports to the end
    of a fit."""
    code = f"import benchmarks.estimation as b; print(b.measure_memory({n}))"
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure_memory(n: int) -> float:
    """Draw n patients and fit FastMCEM here; return by how many MiB the peak memory rose, inputs
    included."""
    before = high_water_mark()
    rng = np.random.default_rng(SEED)
    outputs = rng.standard_normal((n, 4))
    y = rng.standard_normal((n, 4))
    y += outputs
    np.greater(y[:, 2:], 0, out=y[:, 2:])
    FastMCEM().fit(outputs, y)
    return high_water_mark() - before


def high_water_mark() -> float:
    """Return this process' peak memory in MiB; Linux's getrusage would report that of the parent
    where it is larger."""
    status = Path("/proc/self/status")
    if status.is_file():
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def verdicts(small: dict, large: dict, memory: dict, members: dict) -> dict:
    """Return goal -> (measured, goal, met)."""
    milliseconds = {name: 1e3 * found["seconds"] for name, found in small.items()}
    gibbs = small["Gibbs, 2,500 sweeps"]["seconds"]
    at = dict(zip(large["n"], large["FastMCEM.seconds"], strict=True))
    measured = {
        "FastMCEM, an iteration": milliseconds["FastMCEM"] / small["FastMCEM"]["iterations"],
        **{name: ms for name, ms in (milliseconds | members).items() if name in GOALS},
        "Gibbs / FastMCEM": gibbs / small["FastMCEM"]["seconds"],
        "Gibbs / MaximumLikelihood": gibbs / small["MaximumLikelihood"]["seconds"],
    }
    if 10**6 in at:
        measured["FastMCEM, n = 10^6 / n = 10^4"] = at[10**6] / at[10**4]
        measured["n = 10^6, peak MiB beyond the imports"] = memory["mib"][-1]
    found = {}
    for name, value in measured.items():
        kind, goal = GOALS[name]
        met = bool(value >= goal if kind == "at least" else value <= goal)
        found[name] = {"measured": value, "goal": goal, "kind": kind, "met": met}
    return found


def main() -> None:
    """Measure, print, and write the record unless ``--quick``."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    quick = options.quick
    torch.set_num_threads(options.threads)
    start = time.perf_counter()
    members = side_by_side(5 if quick else 50)
    print({name: round(ms, 1) for name, ms in members.items()})
    small = at_800(1 if quick else 7)
    large = against_n((100, 1_000) if quick else [10**k for k in range(2, 7)], 1 if quick else 3)
    sizes = [10_000] if quick else [10_000, 100_000, 1_000_000]
    memory = {"n": sizes, "mib": [peak_mib(n) for n in sizes]}
    found = verdicts(small, large, memory, members)
    for name, line in found.items():
        word = "met" if line["met"] else "MISSED"
        print(f"{name:42s} {line['measured']:9.3g}  goal {line['kind']} {line['goal']:g}  {word}")
    print(f"n = 800: {small}; memory {memory}")
    if quick:
        return
    configuration = {
        "beta_latent": list(BETA),
        "n": 800,
        "sweeps": 2500,
        "machine": platform.machine(),
        "threads": options.threads,
        "clock": "process time, minimum over repeats",
    }
    content = {
        "columns": large | {"memory.n": memory["n"], "memory.mib": memory["mib"]},
        "seconds": time.perf_counter() - start,
        "device": "cpu",
    }
    metrics = {"at 800": small, "members": members, "goals": found}
    print(write_record(new_record(STUDY, configuration, [SEED], metrics, **content)))


if __name__ == "__main__":
    main()
