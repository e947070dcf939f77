"""One root seed, and an independent stream of randomness for every purpose."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch


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


@contextlib.contextmanager
def torch_seeded(
    rng: np.random.Generator, process: int = 0, device: torch.device | None = None
) -> Iterator[None]:
    """Seed torch's global generators (dropout draws from them) from ``rng`` inside the block only.

    ``process`` is the number of one of several that train together: each drops other units. Of
    several CUDA devices only ``device`` is seeded, and none is started without it. (MPS has no
    state to give back: it stays seeded.)
    """
    seed = (int(rng.integers(2**63)) + process) % 2**63
    cuda = device is not None and device.type == "cuda"
    index = (
        [device.index if device.index is not None else torch.cuda.current_device()] if cuda else []
    )
    with torch.random.fork_rng(devices=index):
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(index[0]):
                torch.cuda.manual_seed(seed)
        elif device is not None and device.type == "mps":
            torch.mps.manual_seed(seed)
        yield
