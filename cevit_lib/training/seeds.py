"""Randomness: one root seed with a stream for every purpose, torch's seeds, bit-equal reruns."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

# :func:`reproducible` needs it, and cuBLAS reads it only once, when it starts
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


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
def reproducible() -> Iterator[None]:
    """Let only algorithms run whose sums have a fixed order, so that one seed on one device gives
    one result.

    Without it a CPU with a fixed number of threads repeats itself all the same; an accelerator need
    not: the backward pass of its fused attention may add in the order in which its blocks end. With
    it attention is computed step by step ("math"), which costs time and, by holding every attention
    matrix, memory: for ViT-B/16 the script ``benchmarks/training.py --deterministic`` measures how
    much, and the page on the simulation has what it found. Other devices, other versions of torch
    and other numbers of processes still give other last digits.

    cuBLAS reads ``CUBLAS_WORKSPACE_CONFIG`` when it starts. This module sets it where nobody did:
    import it before anything is on a GPU.
    """
    before = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)


@contextlib.contextmanager
def torch_seeded(rng: np.random.Generator, process: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators (dropout draws from them) from ``rng`` inside the block only.

    ``process`` is the number of one of several that train together: each drops other units. After
    the block the CPU and a CUDA ``device`` are as they were; other devices stay seeded.
    """
    seed = (int(rng.integers(2**63)) + process) % 2**63
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
