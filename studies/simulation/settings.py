"""What the simulation study fits: the paper's setting, the one for a laptop, and the grid of each
part of the study.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PAPER = {
    "n": 10_000,
    "data_seed": 0,
    "dataset": 0,
    "process": "text",
    "strength": 1.0,
    "folds": 5,
    "fold": 1,
    "held_out_share": 0.1,
    "adapters": False,
    "encoder": {"patch_size": 12, "embed_dim": 192, "depth": 6, "num_heads": 3},
    "warm_up": {"epochs": 8, "learning_rate": 7e-4, "batch_size": 144, "weight_decay": 0.05},
    "further": {"epochs": 10, "learning_rate": 1e-4, "batch_size": 144, "weight_decay": 0.05},
    "arms": ["empirical", "independence", "fmcem", "in-sample", "held-out", "true"],
    "from_scratch": [],
}
SMOKE = PAPER | {
    "n": 300,
    "folds": 2,
    "encoder": {"patch_size": 12, "embed_dim": 24, "depth": 2, "num_heads": 2},
    "window": 36,
    "warm_up": PAPER["warm_up"] | {"epochs": 2, "batch_size": 45},
    "further": PAPER["further"] | {"epochs": 1, "batch_size": 45},
}


def _crossed(datasets: int, folds: int, **changes: Any) -> list[dict[str, Any]]:
    return [{"dataset": d, "fold": f + 1, **changes} for d in range(datasets) for f in range(folds)]


def _main(base: dict, scale: str) -> list[dict]:
    return _crossed(10, 5) if scale == "paper" else _crossed(1, 2)


def _adapters(base: dict, scale: str) -> list[dict]:
    return [s | {"adapters": True, "arms": ["empirical", "held-out"]} for s in _main(base, scale)]


def _from_scratch(base: dict, scale: str) -> list[dict]:
    return [
        s | {"arms": [], "from_scratch": ["independence at the true scale", "true"]}
        for s in _main(base, scale)
    ]


def _tuning(base: dict, scale: str) -> list[dict]:
    """Warm-ups alone, on a data set that the study does not use (number 100): 5 folds of each
    candidate.
    """
    paper = [(rate, epochs) for rate in (3.5e-4, 7e-4, 1.4e-3) for epochs in (4, 8)] + [
        (3.5e-4, 16)
    ]
    return [
        {
            "dataset": 100,
            "fold": f + 1,
            "arms": [],
            "warm_up": base["warm_up"] | {"learning_rate": r, "epochs": e},
        }
        for r, e in (paper if scale == "paper" else [(7e-4, 1), (7e-4, 2)])
        for f in range(base["folds"])
    ]


def _size(base: dict, scale: str) -> list[dict]:
    sizes = (500, 1000, 2000, 5000) if scale == "paper" else (200,)
    return [
        {
            "dataset": 200 + d,
            "fold": f + 1,
            "n": n,
            "arms": ["empirical", "independence", "held-out", "true"],
        }
        for n in sizes
        for d in range(5 if scale == "paper" else 1)
        for f in range(2)
    ]


def _equal_steps(base: dict, scale: str) -> list[dict]:
    """Fewer patients at the main study's number of steps: ten times fewer patients are seen ten
    times as often.
    """
    grids = []
    for one in _size(base, scale):
        more = {
            stage: base[stage] | {"epochs": round(base[stage]["epochs"] * base["n"] / one["n"])}
            for stage in ("warm_up", "further")
        }
        grids.append(
            one
            | {
                "dataset": one["dataset"] + 300,
                "arms": ["independence", "held-out", "true"],
                **more,
            }
        )
    return grids


def _strength(base: dict, scale: str) -> list[dict]:
    strengths = (0.0, 0.25, 0.5, 0.75, 1.25) if scale == "paper" else (0.0,)  # 50 fits: one program
    return [
        {
            "dataset": 300 + d,
            "fold": f + 1,
            "strength": s,
            "arms": ["empirical", "independence", "held-out", "true"],
        }
        for s in strengths
        for d in range(5 if scale == "paper" else 1)
        for f in range(2)
    ]


def _overfitting(base: dict, scale: str) -> list[dict]:
    epochs = (4, 16, 32) if scale == "paper" else (1,)
    return [
        {
            "dataset": 400 + d,
            "fold": f + 1,
            "warm_up": base["warm_up"] | {"epochs": e},
            "arms": ["empirical", "fmcem", "in-sample", "held-out", "true"],
        }
        for e in epochs
        for d in range(5 if scale == "paper" else 1)
        for f in range(2)
    ]


GRIDS: dict[str, Callable[[dict, str], list[dict]]] = {
    "simulation": _main,
    "simulation-adapters": _adapters,
    "simulation-from-scratch": _from_scratch,
    "simulation-tuning": _tuning,
    "simulation-size": _size,
    "simulation-equal-steps": _equal_steps,
    "simulation-strength": _strength,
    "simulation-overfitting": _overfitting,
}


def grid(study: str = "simulation", scale: str = "paper") -> list[tuple[dict[str, Any], int]]:
    """Return (configuration, seed) of every fit of a study; ``study`` is a key of ``GRIDS``."""
    base = PAPER if scale == "paper" else SMOKE
    return [(base | setting, 0) for setting in GRIDS[study](base, scale)]
