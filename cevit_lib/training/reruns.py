"""Bit-equal reruns on one device: torch's seeds, and sums in a fixed order."""

import contextlib
import os
from collections.abc import Iterator

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from cevit_lib.errors import ParameterError

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
DETERMINISTIC_WORKSPACES = (":4096:8", ":16:8")


def fix_workspace() -> None:
    """Give cuBLAS the fixed workspace that :func:`reproducible` needs, before anything is on a GPU.

    Raises
    ------
    ParameterError
        CUDA runs already without the variable.
    """
    if not torch.cuda.is_available() or os.environ.get(WORKSPACE) in DETERMINISTIC_WORKSPACES:
        return
    if torch.cuda.is_initialized():
        raise ParameterError(
            f"deterministic=True: CUDA has started in this process without {WORKSPACE}, and cuBLAS "
            "reads it only "
            "once. Call cevit_lib.training.reruns.fix_workspace() before anything is on the GPU, "
            "or set "
            f"{WORKSPACE}={DETERMINISTIC_WORKSPACES[0]} before the program or the kernel starts."
        )
    os.environ[WORKSPACE] = DETERMINISTIC_WORKSPACES[0]


@contextlib.contextmanager
def reproducible(wanted: bool = True, device: torch.device | None = None) -> Iterator[None]:
    """Let only algorithms run whose sums have a fixed order, so that one seed on one device gives
    one result.

    Without it a CPU with a fixed number of threads repeats itself all the same; an accelerator need
    not: the backward pass of its fused attention may add in the order in which its blocks end. With
    it attention is computed step by step ("math"), which costs time and, by holding every attention
    matrix, memory: for ViT-B/16 the script ``benchmarks/training.py --deterministic`` measures how
    much, and the page on the simulation has what it found. Other devices, other versions of torch
    and other numbers of processes still give other last digits.

    cuBLAS reads ``CUBLAS_WORKSPACE_CONFIG`` when it starts: see :func:`fix_workspace`, which every
    fit calls before its network is on the device, and ``cevit run`` before its kernel starts.

    Raises
    ------
    ParameterError
        CUDA runs already without the variable.
    """
    if not wanted:
        yield
        return
    if device is None or device.type == "cuda":
        fix_workspace()
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=only_warned)
        torch.backends.cudnn.benchmark = before[1]


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
