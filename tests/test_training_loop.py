"""The training of one network: a fit that is killed goes on and ends with what it would have been;
parts, lack of memory; what was compiled is compared before it is trained.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from checkpoint_program import fit, network, weights
from torch._dynamo.testing import CompileCounter

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import SyntheticPairs
from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import (
    FrozenRandomWeightsWarning,
    OutputError,
    ParameterError,
    WronglyCompiledWarning,
)
from cevit_lib.training import Checkpoint, Fit, Recipe, fit_copula, fit_warm_up, loop
from cevit_lib.training.compiling import RECORDED, WRONG_GRADIENT, compare_compiled, record
from cevit_lib.training.compiling import compiled as compile_blocks
from cevit_lib.training.loop import Batches
from cevit_lib.training.seeds import reproducible

QUICK, COMPILED = Recipe(2, 1e-3, 16), Recipe(2, 1e-3, 16, compiled=True)


@pytest.fixture(scope="module")
def whole():
    return fit(None)


@pytest.fixture
def data():
    return SyntheticPairs(80, np.random.default_rng(0), window=24)


def warm_up(data, recipe, model=None, seed=5, **stage):
    """Train a small network on the processor."""
    rng, stage = np.random.default_rng(seed), {"device": "cpu"} | stage
    return fit_warm_up(model or network(), data, recipe, rng=rng, **stage)


def timeless(trace):
    return [{key: value for key, value in entry.items() if key != "seconds"} for entry in trace]


def killed_when(stage, folder, root):
    """Run the program in a process of its own and kill it when the stage has its first epoch."""
    program = [sys.executable, root / "tests" / "checkpoint_program.py", folder]
    process = subprocess.Popen(program, cwd=root, env=os.environ | {"PYTHONPATH": str(root)})
    while process.poll() is None and not stage.is_file():
        time.sleep(0.002)
    assert process.poll() is None, "ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_killed_fit_ends_bit_for_bit_as_one_that_was_not(tmp_path, root, whole):
    folder = tmp_path / "state"
    copula = Checkpoint(folder).path("copula")
    killed_when(copula, folder, root)
    first = torch.load(Checkpoint(folder).path("warm-up"), weights_only=True)
    assert len(first["trace"]) == 12
    assert len(torch.load(copula, weights_only=True)["trace"]) < 50, "killed too late"
    again = fit(folder)
    for one, other in ((again.copula, whole.copula), (again.warm_up, whole.warm_up)):
        assert torch.equal(weights(one), weights(other))
    assert torch.equal(again.parameters.correlation, whole.parameters.correlation)
    assert timeless(again.copula.trace) == timeless(whole.copula.trace)
    arms = [one.arm(None, "empirical, same epochs") for one in (again, whole)]
    assert torch.equal(*(weights(arm) for arm in arms))


@pytest.mark.parametrize(
    "change, named",
    [
        ({"recipe": Recipe(3, 1e-3, 16)}, "recipe epochs: 2 there, 3 here"),
        ({"data": SyntheticPairs(80, np.random.default_rng(9), window=24)}, "data:"),
        ({"seed": 6}, "order:"),
        ({"model": 2}, "initial weights:"),
        ({"rho": 0.4}, "loss: C"),
    ],
)
def test_a_checkpoint_of_another_fit_is_refused_by_name(tmp_path, data, change, named):
    def train(data=data, recipe=QUICK, model=1, seed=5, rho=0.3):
        fresh, rng = Fit.fresh(network(model), data, True), np.random.default_rng(seed)
        parameters = CopulaParameters(torch.eye(4) * (1 - rho) + rho, [1.0, 1.0])
        fit_copula(fresh, data, parameters, recipe, rng=rng, device="cpu", checkpoint=tmp_path)

    train()
    with pytest.raises(ParameterError, match=named):
        train(**change)


def test_a_torn_file_is_named(tmp_path):
    state = Checkpoint(tmp_path / "fit")
    state.save("warm-up", {}, {"number": 1})
    state.path("warm-up").write_bytes(state.path("warm-up").read_bytes()[:100])
    with pytest.raises(ParameterError, match="warm-up.pt cannot be read .*to start anew"):
        state.load("warm-up", {})


def test_a_write_that_fails_leaves_the_checkpoint_as_it_was(tmp_path, monkeypatch):
    state = Checkpoint(tmp_path)
    state.save("warm-up", {}, {"number": 1})
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "no space left")))
    with pytest.raises(OutputError, match="the disk is full: could not write .*warm-up.pt"):
        state.save("warm-up", {}, {"number": 2})
    assert state.load("warm-up", {})["number"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["warm-up.pt"]


def test_a_batch_in_parts_makes_the_same_step(data):
    whole, parts = (
        warm_up(data, Recipe(2, 1e-3, 30, accumulation=parts), network(dropout=0.0))
        for parts in (1, 4)
    )
    # sums of a few dozen float32 numbers in another order, and Adam's first steps, which divide by
    # small numbers
    torch.testing.assert_close(weights(parts), weights(whole), rtol=0, atol=2e-5)
    assert parts.trace[-1]["loss"] == pytest.approx(whole.trace[-1]["loss"], rel=1e-5)


def test_deterministic_sets_what_cublas_and_torch_read():
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] in (":4096:8", ":16:8")
    with reproducible():
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()


# ---- a compiled network beside the uncompiled one: a wrong gradient stops nothing ----


def forgetful(model, **_):
    """Compile a program with the right outputs, and no gradient for what the adapters hold."""

    def program(images):
        kept = {k: v.detach() if "adapter" in k else v for k, v in model.named_parameters()}
        return torch.func.functional_call(model, kept, (images,))

    return program


@pytest.fixture
def plain(data):
    """The fit that nothing was compiled for."""
    return warm_up(data, QUICK)


def test_a_program_that_forgets_gradients_is_not_used(data, plain, monkeypatch):
    monkeypatch.setattr(loop, "compiled", forgetful)
    told = "goes on uncompiled, slower and right. torch .* on a CPU compiles it wrongly"
    with pytest.warns(WronglyCompiledWarning, match=told):
        warned = warm_up(data, COMPILED)
    assert torch.equal(
        weights(warned), weights(plain)
    )  # weights, dropout and order are as if nothing was compared


@pytest.mark.parametrize("patients", [80, 78])
def test_a_right_program_is_used_for_one_size_and_its_comparison_leaves_nothing_behind(
    data, monkeypatch, patients
):
    used, data = [], data.subset(np.arange(patients))

    def right(call, **_):
        def block(x):
            used.append((call.__self__.training, len(x)))
            return call(x)

        return block

    found = []
    for recipe in (QUICK, COMPILED):
        monkeypatch.setattr(torch, "compile", right)
        found.append(warm_up(data, recipe, network(dropout=0.2 if patients == 80 else 0.0)))
    plain, compiled = map(weights, found)
    # another size may be summed in another order
    torch.testing.assert_close(compiled, plain, atol=0 if patients == 80 else 1e-6, rtol=0)
    assert list(found[1].model.state_dict()) == list(found[0].model.state_dict())
    # its one block is compared once, without dropout and on a batch of training's size; then every
    # step of two epochs, two images a patient
    assert used == [(patients != 80, 32)] + [(True, 32)] * 10


def test_blocks_that_are_alike_share_one_program(monkeypatch):
    counter = CompileCounter()
    compiler = partial(torch.compile, backend=counter)
    monkeypatch.setattr(torch, "compile", compiler)
    tiny = {"img_size": 24, "in_chans": 1, "patch_size": 12, "embed_dim": 12, "num_heads": 2}
    rng, images = np.random.default_rng(0), torch.rand(3, 2, 1, 24, 24)
    with pytest.warns(FrozenRandomWeightsWarning):
        model = BiChannelViT("vit_tiny_patch16_224", False, rng=rng, depth=6, lora_rank=2, **tiny)
    for _ in range(2):  # a second stage compiles nothing
        program = compile_blocks(model)
        torch.testing.assert_close(program(images), model(images))
        # the last, which works for the class token alone, and the others
        assert counter.frame_count == 2


def test_recorded_passes_share_memory_while_one_of_them_lives(monkeypatch):
    """Memory that no pass is recorded in any more cannot be taken again."""
    used, networks = [], [torch.nn.Linear(1, 1) for _ in range(3)]
    keep = Mock(side_effect=lambda *_, pool, **__: used.append(pool))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", keep)
    record(networks[0], (torch.zeros(1),))
    record(networks[1], (torch.zeros(1),))
    del networks[:2]
    keep.reset_mock()  # it knows the networks
    record(networks[0], (torch.zeros(1),))
    assert used[0] is used[1] and used[2] is not used[1]


def test_a_network_that_cannot_be_recorded_is_left_as_it_is_and_one_without_room_is_not(
    monkeypatch,
):
    model, inputs = torch.nn.Linear(1, 1), (torch.zeros(1),)
    refuse = Mock(side_effect=RuntimeError("operation not permitted when stream is capturing\n"))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", refuse)
    with pytest.warns(RuntimeWarning, match="cannot be recorded.*: operation not permitted"):
        record(model, inputs)
    assert model not in RECORDED
    refuse.side_effect = torch.OutOfMemoryError("CUDA out of memory.")
    with pytest.raises(torch.OutOfMemoryError):
        record(model, inputs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("parts", [1, 2])
def test_a_pass_that_is_replayed_trains_as_one_that_is_not(data, parts):
    """In float32, in two stages that share memory; no gradient of an earlier replay is left."""
    found = []
    for compiled in (False, True):
        recipe = Recipe(2, 1e-3, 16, precision="float32", accumulation=parts, compiled=compiled)
        first = warm_up(data, recipe, network(dropout=0.0), device="cuda")
        found.append(weights(warm_up(data, recipe, first, device="cuda")))
    torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=0)
    assert not RECORDED  # and their memory is free again


def test_what_zero_weights_hide_is_seen_since_they_are_moved():
    """Low-rank adaptation starts with B = 0, so that a program that forgets A's gradient is right
    at the start.
    """
    model = torch.nn.Sequential(
        torch.nn.Linear(768, 8, bias=False), torch.nn.Linear(8, 768, bias=False)
    )
    first, second = model[0].weight, model[1].weight
    torch.nn.init.zeros_(second)
    images = torch.randn(24, 768, generator=torch.Generator().manual_seed(0))
    model.register_forward_hook(lambda _, inputs, outputs: inputs[0] + outputs)

    def program(x):
        return x + x @ first.detach().T @ second.T

    assert compare_compiled(program, model, images, nullcontext()) > WRONG_GRADIENT
    assert not second.any()


def test_bytes_lie_on_the_device_as_bytes_and_are_read_as_the_same_numbers(data, monkeypatch):
    stored = torch.randint(0, 256, data.images.shape, dtype=torch.uint8)
    rows, data = np.array([5, 0]), data.replace(images=stored)
    images = Batches(data, torch.device("cpu"))
    assert images.resident.dtype == torch.uint8 and torch.equal(images[rows], data.load(rows))
    monkeypatch.setattr("cevit_lib.training.loop.RESIDENT_BYTES", stored.numel() - 1)
    by_batch = Batches(data, torch.device("cpu"))
    assert by_batch.resident is None and torch.equal(by_batch[rows], data.load(rows))
