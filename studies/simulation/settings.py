"""What the simulation study fits: the paper's setting, the one for a laptop, and the grid of each
part of the study.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

ARMS = (
    "empirical",
    "uncertainty",
    "independence",
    "matched",
    "algorithm 3, paper",
    "algorithm 3, exact",
    "one stage",
    "one stage, true Gamma",
)
"""Every arm starts from the same weights and sees the patients in the same order, with as many
epochs in all: the two stages of Algorithm 3 share them.
"""
FURTHER = ("empirical, further", "algorithm 3, paper, further", "algorithm 3, exact, further")
"""After all the epochs of the empirical loss, as many further ones at a lower rate as the paper."""
FURTHER_RECIPE = {"epochs": 10, "learning_rate": 1e-4}
LATER = 4
"""One stage, later: the epoch after which the first estimate is made."""
CANDIDATES = tuple(product((6, 9), (5e-4, 7e-4, 1e-3)))
"""Epochs in all and rate: what every arm may choose from, on other data sets."""
TUNED: dict[str, dict[str, Any]] = {
    "empirical": {"epochs": 9, "learning_rate": 1e-3},
    "uncertainty": {"epochs": 9, "learning_rate": 1e-3},
    "independence": {"epochs": 9, "learning_rate": 1e-3},
    "matched": {"epochs": 6, "learning_rate": 7e-4},
    "algorithm 3, paper": {"epochs": 9, "learning_rate": 7e-4},
    "algorithm 3, exact": {"epochs": 9, "learning_rate": 1e-3},
    "one stage": {"epochs": 6, "learning_rate": 1e-3},
    "one stage, true Gamma": {"epochs": 6, "learning_rate": 1e-3},
}
"""Each arm's choice: lowest mean held-out criterion of the last epoch in ``simulation-tuning``."""

PAPER = {
    "n": 10_000,
    "data_seed": 0,
    "dataset": 0,
    "process": "text",
    "strength": 1.0,
    "pixel_correlation": 0.5,
    "redraw": 0,
    "folds": 5,
    "fold": 1,
    "held_out_share": 0.1,
    "encoder": {"patch_size": 12, "embed_dim": 192, "depth": 6, "num_heads": 3},
    "recipe": {"epochs": 8, "learning_rate": 7e-4, "batch_size": 144, "weight_decay": 0.05},
    "arms": list(ARMS),
}
SMOKE = PAPER | {
    "n": 320,
    "folds": 2,
    "held_out_share": 0.25,
    "encoder": {"patch_size": 12, "embed_dim": 24, "depth": 2, "num_heads": 2},
    "window": 36,
    "recipe": PAPER["recipe"] | {"epochs": 2, "batch_size": 40},
}


def recipe_of(arm: str, recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the recipe of an arm: the study's, with as many epochs and the rate that it chose."""
    kind = arm.removesuffix(", tuned")
    return recipe if kind == arm else recipe | TUNED.get(kind, {})


def _crossed(sets: range, folds: int, **changes: Any) -> list[dict[str, Any]]:
    return [{"dataset": d, "fold": f + 1, **changes} for d in sets for f in range(folds)]


def _again(base: dict, scale: str) -> list[dict]:
    """The eight arms once more, with the same seeds, by a later program that rounds otherwise."""
    return _crossed(range(1), 2) if scale == "smoke" else _crossed(range(10), 5)


def _main(base: dict, scale: str) -> list[dict]:
    more = {"arms": [*ARMS, *FURTHER, *(f"{arm}, tuned" for arm in TUNED)]}
    return [one | ({} if scale == "smoke" else more) for one in _again(base, scale)]


def _tuning(base: dict, scale: str) -> list[dict]:
    small = scale == "smoke"
    return [
        one | {"recipe": base["recipe"] | {"epochs": epochs, "learning_rate": rate}}
        for epochs, rate in ([(2, 7e-4)] if small else CANDIDATES)
        for one in _crossed(range(100, 101 if small else 103), 1 if small else 3)
    ]


def _size(base: dict, scale: str) -> list[dict]:
    """Fewer patients, seen more often: at each size two numbers of epochs."""
    epochs = {1000: (20, 40), 2500: (14, 24), 5000: (10, 16)} if scale == "paper" else {}
    return [
        one | {"n": n, "recipe": base["recipe"] | {"epochs": count}}
        for n, counts in epochs.items()
        for count in counts
        for one in _crossed(range(200, 205), 2, arms=["empirical", "matched", "one stage"])
    ]


def _gain(base: dict, scale: str) -> list[dict]:
    """Predicted against measured: dependence of the images, strength of that of the errors."""
    cells = product((0.0, 0.5, 0.9, 1.0), (0.0, 1.0, 1.25)) if scale == "paper" else [(0.5, 1.0)]
    return [
        one | {"pixel_correlation": r, "strength": strength}
        for r, strength in cells
        for one in _crossed(
            range(300, 310 if scale == "paper" else 301),
            1,
            arms=["independence", "matched", "one stage", "one stage, later"],
        )
    ]


def _redraws(base: dict, scale: str) -> list[dict]:
    """The same images with five draws of errors: which share of the error is variance."""
    return [
        one | {"pixel_correlation": r, "redraw": draw + 1}
        for r in ((0.0, 0.5, 0.9) if scale == "paper" else (0.5,))
        for draw in range(5 if scale == "paper" else 2)
        for one in _crossed(
            range(400, 404 if scale == "paper" else 401), 1, arms=["matched", "one stage"]
        )
    ]


def _long(base: dict, scale: str) -> list[dict]:
    arms = ["empirical", "uncertainty", "independence", "one stage"]
    recipe = base["recipe"] | {"epochs": 32 if scale == "paper" else 3}
    sets, folds = (range(500, 505), 5) if scale == "paper" else (range(500, 501), 1)
    return _crossed(sets, folds, arms=arms, recipe=recipe)


GRIDS: dict[str, Callable[[dict, str], list[dict]]] = {
    "simulation": _main,
    "simulation-again": _again,
    "simulation-tuning": _tuning,
    "simulation-gain": _gain,
    "simulation-redraws": _redraws,
    "simulation-size": _size,
    "simulation-long": _long,
}


def grid(study: str = "simulation", scale: str = "paper") -> list[tuple[dict[str, Any], int]]:
    """Return (configuration, seed) of every fit of a study; ``study`` is a key of ``GRIDS``."""
    base = PAPER if scale == "paper" else SMOKE
    return [(base | setting, 0) for setting in GRIDS[study](base, scale)]
