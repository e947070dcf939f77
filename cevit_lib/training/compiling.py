"""A network as a compiled program, replayed on a CUDA device; and whether it is the network: its
outputs and gradients beside the uncompiled one's.

A wrong gradient stops nothing: the network does not learn, and that looks like a finding. It was
met on one kind of card and not on another, with the same code, shapes and version of torch.
"""

import contextlib
import copy
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from cevit_lib.errors import WronglyCompiledWarning

WRONG_GRADIENT = 0.3  # of its norm: what a compiled program may differ by, in bf16
# SD of what the weights are moved by, for what starts at zero hides what it multiplies
MOVED = 0.02
LACK_OF_MEMORY = ("out of memory", "allocate memory", "not enough memory")
#: Networks that replay a pass -> their device, and the memory in which they do.
RECORDED: WeakKeyDictionary = WeakKeyDictionary()


def compiled(model: nn.Module, replay: bool = True) -> Callable:
    """Return the network as a compiled program with the same weights; the network is left as it is.

    The blocks of a Vision Transformer are compiled each by itself: those that are alike share one
    program, so that the compiler works on one block and not on twelve. On a CUDA device the whole
    training pass is recorded at the first call and then replayed, for inputs of that shape, since
    Python would start the kernels of so many blocks more slowly than they run. Another network is
    compiled whole.

    Parameters
    ----------
    model : torch.nn.Module
        The network.
    replay : bool
        Whether a pass may be replayed: not where the gradients of several passes are added up, for
        each replay overwrites the last one's.
    """
    shared = {id(value): value for value in chain(model.parameters(), model.buffers())}
    twin = copy.deepcopy(model, shared)
    blocks = getattr(getattr(twin, "backbone", None), "blocks", None)
    for part in [twin] if blocks is None else blocks:
        part.compile(dynamic=False)
    if blocks is not None:
        blocks.register_forward_pre_hook(want_gradient)
    to_record = replay and blocks is not None

    def run(*inputs: Tensor) -> Tensor:
        nonlocal to_record
        if twin.training != model.training:
            twin.train(model.training)
        if to_record and twin.training and inputs[0].is_cuda:
            to_record = False
            record(twin, inputs)
        return twin(*inputs)

    return run


def lacks_memory(error: RuntimeError) -> bool:
    """Say whether a device's memory did not suffice; torch's own error is for one kind of device
    only."""
    return any(words in str(error) for words in LACK_OF_MEMORY)


def wake_compiler(device: torch.device) -> None:
    """Start the processes that build a GPU's kernels: they need seconds, in which images can be
    read, and until then kernels are built one after the other."""
    if device.type == "cuda":
        with contextlib.suppress(ImportError):  # torch promises nothing about this name
            from torch._inductor.async_compile import maybe_warm_pool

            maybe_warm_pool()


def want_gradient(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Let the first block be like the others, whose inputs have a gradient."""
    inputs[0].requires_grad_()


def record(model: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Let a network replay its training pass, forward and backward, in place.

    Recorded passes share memory, for each ends before another begins.

    Warns
    -----
    RuntimeWarning
        The network does what cannot be recorded, such as waiting for the device; it is left as it
        is.
    """
    device = inputs[0].device
    alive = ((other, pool) for other, (where, pool) in RECORDED.items() if where == device)
    # the other network is held until the end: memory without a recorded pass is given back
    _other, pool = next(alive, (None, None))
    pool = pool or torch.cuda.graph_pool_handle()
    kind, sample = device.type, tuple(value.clone() for value in inputs)
    dtype, reduced = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
    try:
        # weights that autocast keeps in half precision would be those of the recording for ever
        with torch.autocast(kind, dtype, reduced, cache_enabled=False):
            torch.cuda.make_graphed_callables(model, sample, allow_unused_input=True, pool=pool)
    except RuntimeError as error:
        if lacks_memory(error):
            raise
        told = "a training pass cannot be recorded; it will be as fast as Python starts its kernels"
        warnings.warn(f"{told}: {str(error)[:160]}", RuntimeWarning, stacklevel=2)
    else:
        RECORDED[model] = device, pool


@contextlib.contextmanager
def moved(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Move weights a little inside the block, always by the same numbers; afterwards they are what
    they were.
    """
    parameters, generator = list(parameters), torch.Generator().manual_seed(0)
    before = [value.detach().clone() for value in parameters]
    try:
        for value in parameters:
            noise = MOVED * torch.randn(value.shape, generator=generator).to(value)
            value.detach().add_(noise)
        yield
    finally:
        for value, old in zip(parameters, before, strict=True):
            value.detach().copy_(old)


def relative_difference(
    outputs: tuple[Tensor, Tensor],
    gradients: tuple[dict[str, Tensor], dict[str, Tensor]],
    members: int = 1,
) -> float:
    """Return how far a compiled program is from the networks.

    Parameters
    ----------
    outputs : tuple of Tensor
        The program's and the networks' own.
    gradients : tuple of dict
        By name of the weight, likewise; one that the program lacks counts as zero.
    members : int
        How many networks have their gradients stacked along the first dimension.

    Returns
    -------
    float
        Largest relative difference of the outputs, or of a weight's gradient over the norm of that
        gradient (and a tenth of the member's whole gradient, where its own is small). Rounding to
        bf16 makes some hundredths; infinite where something is NaN.
    """
    (ran, right), (found, wanted) = outputs, gradients
    norms = {name: g.reshape(members, -1).norm(dim=1) for name, g in wanted.items()}
    whole = torch.stack(list(norms.values())).square().sum(0).sqrt()
    far = float(((ran - right).norm() / right.norm()).nan_to_num(nan=math.inf))
    for name, own in wanted.items():
        gap = (found.get(name, torch.zeros_like(own)) - own).reshape(members, -1).norm(dim=1)
        far = max(far, float((gap / (norms[name] + 0.1 * whole)).nan_to_num(nan=math.inf).max()))
    return far


def compare_compiled(
    program: Callable,
    model: nn.Module,
    images: Tensor,
    precision: contextlib.AbstractContextManager,
    chunk: int = 16,
) -> float:
    """Return the :func:`relative_difference` of a compiled network; its weights and mode are left
    as they were.

    Parameters
    ----------
    program : callable
        What was compiled of the network.
    model : torch.nn.Module
        The network. One that drops units or normalises by batch is compared in evaluation mode,
        where it answers alike every time; others as they train, so that nothing is compiled twice.
    images : Tensor
        ``(b, domains, channels, height, width)``: a batch as in training.
    precision : context manager
        In which the network runs; it can be entered again.
    chunk : int
        Patients at a time through the uncompiled network, which needs more memory.

    Returns
    -------
    float
        Zero where the network's own outputs or gradients are not finite: then nothing is said of
        the compiler.
    """
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    was_training = model.training
    model.train(not any(_varies(part) for part in model.modules()))
    try:
        with moved(trained.values()):
            ran, found = run_and_differentiate(program, trained, [images], precision)
            right, wanted = run_and_differentiate(model, trained, images.split(chunk), precision)
    finally:
        model.train(was_training)
    if not all(torch.isfinite(value).all() for value in (right, *wanted.values())):
        return 0.0  # the network itself is wrong, or its images: the first step says which
    return relative_difference((ran, right), (found, wanted))


def run_and_differentiate(
    run: Callable,
    trained: dict[str, Tensor],
    parts: Iterable[Tensor],
    precision: contextlib.AbstractContextManager,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return outputs, and the gradients of their sum of squares by name.

    Patients stand in the outputs' last dimension but one.
    """
    names = [name for name, value in trained.items() if value.requires_grad]
    outputs, weights = [], [trained[name] for name in names]
    total = [torch.zeros_like(value) for value in weights]
    for part in parts:
        with precision:
            value = run(part).float()
        found = torch.autograd.grad(value.square().sum(), weights, materialize_grads=True)
        total = [before + more for before, more in zip(total, found, strict=True)]
        outputs.append(value.detach().clone())
    return torch.cat(outputs, -2), dict(zip(names, total, strict=True))


def _varies(part: nn.Module) -> bool:
    # of Dropout, PatchDropout, DropPath
    rates = [getattr(part, name, None) for name in ("p", "prob", "drop_prob")]
    by_batch = getattr(part, "running_mean", None) is not None
    return by_batch or any(isinstance(rate, float) and rate > 0 for rate in rates)


def wrongly_compiled(far: float, device: torch.device) -> bool:
    """Say whether a compiled program is not to be used; a warning tells why."""
    if far <= WRONG_GRADIENT:
        return False
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
    warnings.warn(
        "the compiled network's outputs or gradients differ from the uncompiled one's by "
        f"{far:.2g} of their norm (up to {WRONG_GRADIENT:g} is rounding); training goes on "
        f"uncompiled, slower and right. torch {torch.__version__} on {card} compiles it wrongly.",
        WronglyCompiledWarning,
        stacklevel=3,
    )
    return True
