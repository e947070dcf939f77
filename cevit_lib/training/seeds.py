"""One root seed, and an independent stream of randomness for every purpose."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Streams:
    """Independent generators: who is drawn, how patients are split, initial weights, order of
    training, estimation.
    """

    data: np.random.Generator
    split: np.random.Generator
    weights: np.random.Generator
    order: np.random.Generator
    estimation: np.random.Generator


def streams(seed: int, *key: int) -> Streams:
    """Return the streams of a root seed; further integers (fold, run, ...) select independent
    families.

    ``numpy.random.SeedSequence`` spawns them, so that streams of near seeds are not alike and a
    fold's numbers do not depend on which folds were run before it.
    """
    children = np.random.SeedSequence(seed, spawn_key=key).spawn(5)
    return Streams(*(np.random.default_rng(child) for child in children))
