"""What the commands can be told (``commands.toml``, for argparse), and what they take otherwise.

Imported before any command runs, so nothing heavy is imported here.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cevit_lib.edge import at_least

TABLE = tomllib.loads(Path(__file__).with_name("commands.toml").read_text("utf-8"))
COMMANDS: dict[str, dict[str, Any]] = TABLE["commands"]


def named(number: Callable[[str], float]) -> Callable[[str], tuple[str, float]]:
    """Return a reader of ``NAME=NUMBER``."""
    return lambda word: (word.rpartition("=")[0], number(word.rpartition("=")[2]))


#: Type of an option in ``commands.toml`` -> what reads its words.
READERS = {
    "path": Path,
    "count": at_least(1),
    "whole": at_least(0),
    "folds": at_least(2),
    "rate": at_least(1e-12, whole=False),
    "seconds": at_least(0.1, whole=False),
    "degrees": at_least(0, False, 180),
    "share": at_least(0, False, 1),
    "spread": at_least(1e-12, False, 1),
    "level": at_least(0.01, False, 0.999),
    "limit": named(at_least(1e-12, False)),
    "prevalence": named(at_least(1e-12, False, 1)),
}
#: A Vision Transformer for a laptop's processor.
TINY = {"embed_dim": 64, "depth": 3, "num_heads": 2}
#: Word after ``--estimator`` -> class of :mod:`cevit_lib.estimation`.
ESTIMATORS = {
    "exact-em": "ExactEM",
    "fast-mcem": "FastMCEM",
    "monte-carlo-em": "MonteCarloEM",
    "maximum-likelihood": "MaximumLikelihood",
    "gaussian-score": "GaussianScoreCorrelation",
    "pairwise": "PairwiseLikelihood",
}
#: What one fit holds: the warm-up, and from it the same epochs without and with the copula loss.
ARMS = ("warm-up", "empirical, same epochs", "copula")
_PHOTOGRAPHS: dict[str, Any] = {
    "size": 48,
    "epochs": 40,
    "copula_epochs": 10,
    "learning_rate": 1e-3,
    "copula_learning_rate": 1e-4,
    "batch_size": 24,
    "estimate_on": "cross-fitted",
}
#: Data set -> settings that an option leaves open.
DEFAULTS: dict[str, dict[str, Any]] = {
    "grape": _PHOTOGRAPHS,
    "table": _PHOTOGRAPHS,
    "synthetic": {
        "window": 12,
        "epochs": 15,
        "copula_epochs": 6,
        "learning_rate": 2e-3,
        "copula_learning_rate": 3e-4,
        "batch_size": 64,
        "estimate_on": "held-out",
    },
}
FULL_SIZE = 224  # pixels, of every backbone but the tiny one, unless the layout says otherwise


def declare(command: str, parser: argparse.ArgumentParser) -> None:
    """Declare the options of a command."""
    about = COMMANDS[command]
    for group in about["options"]:
        for names, option in TABLE[group].items():
            given = dict(option)
            if "type" in option:
                given["type"] = READERS[option["type"]]
            if names in about.get("required", ()):
                given["required"] = True
            parser.add_argument(*names.split(), **given)
