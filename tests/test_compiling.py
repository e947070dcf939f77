"""A compiled network is compared with the uncompiled one before it is trained: a wrong gradient
stops nothing.
"""

import contextlib
import warnings

import numpy as np
import pytest
import torch
from checkpoint_program import network, weights

from cevit_lib.datasets import SyntheticPairs
from cevit_lib.errors import TrainingError, WronglyCompiledWarning
from cevit_lib.training import Recipe, fit_warm_up
from cevit_lib.training.compiling import WRONG_GRADIENT, compare_compiled, relative_difference


@pytest.fixture
def data():
    return SyntheticPairs(80, np.random.default_rng(0), window=24)


def fit(data, checkpoint=None, **recipe):
    recipe, stage = Recipe(2, 1e-3, 16, **recipe), {"device": "cpu", "checkpoint": checkpoint}
    return fit_warm_up(network(), data, recipe, rng=np.random.default_rng(5), **stage)


def forgetful(model, **_):
    """Compile a program with the right outputs, and no gradient for what the adapters hold."""

    def program(images):
        kept = {k: v.detach() if "adapter" in k else v for k, v in model.named_parameters()}
        return torch.func.functional_call(model, kept, (images,))

    return program


@pytest.fixture(scope="module")
def plain():
    """The fit that nothing was compiled for."""
    return fit(SyntheticPairs(80, np.random.default_rng(0), window=24))


def test_a_program_that_forgets_gradients_is_not_used(data, plain, monkeypatch):
    monkeypatch.setattr(torch, "compile", forgetful)
    told = "goes on uncompiled, slower and right. torch .* on a CPU compiles it wrongly"
    with pytest.warns(WronglyCompiledWarning, match=told):
        warned = fit(data, compiled=True)
    assert torch.equal(
        weights(warned), weights(plain)
    )  # weights, dropout and order are as if nothing was compared


def test_a_right_program_is_used_and_its_comparison_leaves_nothing_behind(data, plain, monkeypatch):
    used = []

    def right(model, **_):
        def program(images):
            used.append((model.training, len(images)))
            return model(images)

        return program

    monkeypatch.setattr(torch, "compile", right)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = fit(data, compiled=True)
    assert torch.equal(weights(compiled), weights(plain))
    assert list(compiled.model.state_dict()) == list(plain.model.state_dict())
    # compared once, without dropout and on a batch of training's size; then every step of two
    # epochs
    assert used == [(False, 16)] + [(True, 16)] * 10


def test_a_finished_stage_compiles_nothing_when_its_fit_is_resumed(data, tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    first = fit(data, tmp_path, compiled=True)
    monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.fail("compiled for no step"))
    assert torch.equal(weights(fit(data, tmp_path, compiled=True)), weights(first))


def test_a_batch_in_parts_is_compared_in_the_size_of_a_part(data, monkeypatch):
    """What a step never runs would be compiled for the comparison alone."""
    sizes = []

    def noted(model, **_):
        return lambda images: sizes.append(len(images)) or model(images)

    monkeypatch.setattr(torch, "compile", noted)
    fit(data, compiled=True, accumulation=3)
    assert sizes[0] == 6 and set(sizes[1:]) == {5, 6}


def test_what_varies_by_batch_is_compared_in_evaluation_mode_and_left_as_it_was():
    rng = torch.Generator().manual_seed(0)
    images = torch.randn(24, 5, generator=rng)
    layers = torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)
    model = torch.nn.Sequential(*layers).train()
    layers[0].bias.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    # chunks of other sizes have other means and variances: in training mode they would differ
    assert compare_compiled(model, model, images, contextlib.nullcontext(), chunk=7) < 1e-5
    assert model.training and all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(value.grad is None for value in model.parameters())


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

    assert compare_compiled(program, model, images, contextlib.nullcontext()) > WRONG_GRADIENT
    assert not second.any()


def test_relative_difference_by_hand():
    """Two members; the second's small gradient is measured against a tenth of its whole."""
    right = {"a": torch.tensor([[3.0], [10.0]]), "b": torch.tensor([[4.0], [0.0]])}
    outputs = torch.ones(2, 1, 1)
    wrong = {"a": torch.tensor([[3.0], [10.0]]), "b": torch.tensor([[4.0], [0.5]])}

    def far(ran, found):
        return relative_difference((ran, outputs), (found, right), members=2)

    assert far(outputs, right) == 0.0
    assert far(outputs, wrong) == pytest.approx(0.5 / (0.0 + 0.1 * 10))
    # a gradient that is missing counts as zero: 10 / (10 + 1) for the second member, more than 3 /
    # (3 + .5)
    assert far(outputs, {"b": right["b"]}) == pytest.approx(10 / 11)
    assert far(1.5 * outputs, right) == pytest.approx(0.5)
    wrong["a"][0] = float("nan")
    assert far(outputs, wrong) == float("inf")


def test_what_is_wrong_with_the_data_or_the_memory_is_not_laid_at_the_compilers_door(
    data, monkeypatch
):
    monkeypatch.setattr(torch, "compile", lambda model, **_: model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        broken = data.load()
        broken[3] = float("nan")
        monkeypatch.setattr(type(data), "load", lambda self, rows=slice(None): broken[rows])
        with pytest.raises(TrainingError, match="images of patient"):
            fit(data, compiled=True)

        def full(*_, **__):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

        monkeypatch.setattr(torch, "compile", lambda model, **_: full)
        with pytest.raises(
            TrainingError, match="out of memory in epoch 1, batch 1 .16 patients.*accumulation=2"
        ):
            fit(data, compiled=True)
