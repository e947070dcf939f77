"""Training: Algorithm 3 step by step, units undone, bit-equal reruns, clear stops, models that
survive a process.
"""

import copy
import dataclasses
import json
import math
import shutil
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import timm
import torch

from cevit_lib.copula import CopulaLoss, CopulaParameters, EmpiricalLoss
from cevit_lib.datasets import SyntheticPairs
from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import DataError, ParameterError, TrainingError
from cevit_lib.estimation import ExactEM
from cevit_lib.training import (
    PAPER_COPULA,
    PAPER_WARM_UP,
    Recipe,
    Standardisation,
    fit_copula,
    fit_feasible_cevit,
    fit_warm_up,
    load_model,
    predict,
    predict_outputs,
    save_model,
    streams,
)
from cevit_lib.training import whole as module

NAME = "vit_tiny_patch16_224"
SMALL = dict(img_size=9, patch_size=3, in_chans=1, embed_dim=24, depth=1, num_heads=2)
QUICK = Recipe(epochs=2, learning_rate=1e-3, batch_size=40)

pytestmark = pytest.mark.filterwarnings("ignore::cevit_lib.errors.NotConvergedWarning")


def build(**changes) -> BiChannelViT:
    how = {"normalise": False, "lora_rank": 0, "rng": np.random.default_rng(0)}
    return BiChannelViT(NAME, pretrained=False, **how | SMALL | changes)


def draw(n: int = 160, seed: int = 0) -> SyntheticPairs:
    return SyntheticPairs(n, np.random.default_rng(seed), window=9)


def linear(size: int) -> torch.nn.Module:
    """The smallest network: every output is linear in the means of both images."""
    mean = torch.nn.AvgPool3d((1, size, size))
    return torch.nn.Sequential(mean, torch.nn.Flatten(), torch.nn.Linear(2, 4))


# ---- recipes and units
# ----------------------------------------------------------------------------------------------


def test_schedules_are_torchs_steps_or_rise_and_fall():
    recipe, rate = PAPER_WARM_UP, torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([rate], lr=recipe.learning_rate)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.9)
    for epoch in range(recipe.epochs):
        mine = recipe.learning_rate * recipe.factor(epoch * 7 + 3, 7)
        assert mine == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    printed = PAPER_COPULA.epochs, PAPER_COPULA.learning_rate, PAPER_COPULA.step_epochs
    assert printed == (60, 1e-4, 2)
    cosine = [Recipe(epochs=10, rise=0.1).factor(step, 10) for step in range(100)]
    assert cosine[:10] == sorted(cosine[:10]) and cosine[10:] == sorted(cosine[10:], reverse=True)
    assert max(cosine) == cosine[10] == 1.0 and cosine[-1] < 1e-3


def test_biases_and_single_numbers_are_never_decayed():
    groups = Recipe(weight_decay=0.3).build_optimizer(build().parameters()).param_groups
    decayed = {p.dim() >= 2: group["weight_decay"] for group in groups for p in group["params"]}
    assert decayed == {True: 0.3, False: 0.0}


def test_standardisation_uses_what_is_observed_and_is_undone():
    y = torch.tensor(
        [[1.0, 10, 0, 1], [3.0, float("nan"), 1, 1], [5.0, 30, 0, 0]], dtype=torch.float64
    )
    scale = Standardisation.of(y, 2)
    torch.testing.assert_close(scale.mean, torch.tensor([3.0, 20.0], dtype=torch.float64))
    torch.testing.assert_close(scale.sd, torch.tensor([2.0, math.sqrt(200)], dtype=torch.float64))
    torch.testing.assert_close(scale.undo(scale.apply(y)), y, equal_nan=True)
    again = Standardisation.from_dict(json.loads(json.dumps(scale.to_dict())))
    torch.testing.assert_close(again.sd, scale.sd)


def test_copula_loss_in_standard_units_differs_by_a_constant_only():
    data = draw(50)
    scale = Standardisation.of(data.y, 2)
    outputs = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parameters = CopulaParameters(
        data.truth.correlation, torch.tensor([1.3, 0.8], dtype=torch.float64)
    )
    raw = CopulaLoss(parameters, reduction="none")(scale.undo(outputs), data.y)
    inside = CopulaLoss(scale.parameters_inside(parameters), reduction="none")(
        outputs, scale.apply(data.y)
    )
    torch.testing.assert_close(
        raw - inside, torch.full((50,), float(scale.sd.log().sum()), dtype=torch.float64)
    )


def test_streams_are_independent_and_do_not_depend_on_each_other():
    first, again, fold = streams(3), streams(3), streams(3, 1)
    first.data.random(1000)
    assert first.order.random() == again.order.random() != fold.order.random()


# ---- the loop ------------------------------------------------------------------------------------
# -------------------


def test_one_step_is_the_gradient_step_of_the_mean_loss():
    data, model = draw(30), linear(9)
    recipe, rng = Recipe(1, 0.1, 30, "adam", 0.0, "constant", clip=None), np.random.default_rng(0)
    fit = fit_warm_up(copy.deepcopy(model), data, recipe, rng=rng, standardise=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    loss = EmpiricalLoss(2, reduction="sum")(model(data.load()), data.y.float()) / 30
    loss.backward()
    optimizer.step()
    for got, expected in zip(fit.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    assert fit.trace[0]["loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_training_improves_on_the_mean_and_nears_the_truth():
    data, test = draw(500), draw(300, seed=9)
    fit = fit_warm_up(
        build(embed_dim=32),
        data,
        Recipe(12, 4e-3, 32),
        rng=np.random.default_rng(0),
        validation=test,
    )
    error = (predict_outputs(fit, test) - test.y)[:, :2].square().mean(0)
    spread, noise = test.y[:, :2].var(0), 1.0
    assert (error < 0.5 * spread).all() and (error > 0.8 * noise).all()
    assert fit.trace[-1]["loss"] < fit.trace[0]["loss"] and fit.trace[-1]["validation_loss"] < 2.9
    assert [entry["epoch"] for entry in fit.trace] == list(range(1, 13))


def test_reruns_are_equal_bit_for_bit_and_leave_torchs_randomness_alone():
    data = draw()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first, again, other = (
        predict_outputs(
            fit_warm_up(build(proj_drop_rate=0.1), data, QUICK, rng=np.random.default_rng(seed)),
            data,
        )
        for seed in (4, 4, 5)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.rand(3), expected)


BROKEN = draw(40).images.clone()
BROKEN[17, 1, 0, 4, 4] = float("nan")


@pytest.mark.parametrize(
    "changes, recipe, told",
    [
        (
            {"images": BROKEN},
            QUICK,
            r"warm-up: .* epoch 1, batch 1 of 1: the images of patient 'S00017'",
        ),
        (
            {},
            Recipe(5, 1e30, 20, "adam", 0.0, "constant", clip=None),
            r"epoch \d, batch \d of 2.*learning rate 1e\+30 is too large",
        ),
        (
            {"images": torch.zeros(40, 2, 1, 9, 9)},
            Recipe(6, 1e-3, 30),
            r"epoch 3 .*same for every patient.*carry no signal",
        ),
    ],
)
@pytest.mark.parametrize("watched", [False, True])
def test_a_fit_that_cannot_succeed_stops_and_says_why(changes, recipe, told, watched):
    data, rng = draw(40).replace(**changes), np.random.default_rng(0)
    with pytest.raises(TrainingError, match=told):
        fit_warm_up(build(), data, recipe, rng=rng, validation=data if watched else None)


# ---- Algorithm 3 ---------------------------------------------------------------------------------
# -------------------


def patients(fit, part: str):
    return fit.steps.networks.parts.get(part)


@pytest.fixture(scope="module")
def feasible():
    recipes = {"warm_up": Recipe(5, 3e-3, 40), "copula": Recipe(2, 3e-4, 40)}
    return fit_feasible_cevit(build(), draw(300), rng=np.random.default_rng(0), **recipes)


def test_stages_follow_each_other_and_the_estimate_is_of_held_out_patients(feasible):
    assert [e["stage"] for e in feasible.copula.trace] == ["warm-up"] * 5 + ["copula"] * 2
    assert len(feasible.warm_up.trace) == 5 and len(patients(feasible, "held-out")) == 30
    assert set(patients(feasible, "train").ids).isdisjoint(patients(feasible, "held-out").ids)
    data = draw(20, seed=3)
    both = (predict_outputs(fit, data) for fit in (feasible.warm_up, feasible.copula))
    assert not torch.equal(*both)
    outputs = predict_outputs(feasible.warm_up, patients(feasible, "held-out"))
    again = ExactEM().fit(outputs, patients(feasible, "held-out").y).parameters_
    torch.testing.assert_close(feasible.parameters.correlation, again.correlation)
    torch.testing.assert_close(feasible.parameters.scale, again.scale)  # raw units


def test_an_arm_with_the_same_loss_is_the_same_fit(feasible):
    data = draw(20, seed=3)
    arm = feasible.arm(feasible.parameters, "again")
    assert torch.equal(predict_outputs(arm, data), predict_outputs(feasible.copula, data))
    control = feasible.arm(None, "empirical")
    assert not torch.equal(predict_outputs(control, data), predict_outputs(feasible.copula, data))
    assert len(control.trace) == len(feasible.copula.trace)


def test_other_places_to_estimate_on(monkeypatch):
    data, recipes = draw(120), {"warm_up": QUICK, "copula": QUICK}
    monkeypatch.setattr(module, "PAPER_WARM_UP", QUICK)
    monkeypatch.setattr(module, "PAPER_COPULA", QUICK)
    crossed = recipes | {"estimate_on": "cross-fitted", "folds": 2}
    for options, where in ((crossed, "cross-fitted"), ({"preset": "paper"}, "train")):
        fit = fit_feasible_cevit(build(), data, rng=np.random.default_rng(0), **options)
        assert patients(fit, "held-out") is None and len(patients(fit, "train")) == 120
        assert fit.copula.notes["estimate_on"] == where
    assert type(fit.estimator).__name__ == "FastMCEM"
    assert fit.copula.standardisation.sd.tolist() == [1.0, 1.0]  # raw units


def test_a_near_singular_estimate_is_shrunk_and_said():
    matrix = torch.full((4, 4), 0.9999, dtype=torch.float64).fill_diagonal_(1.0)
    extreme = Mock(converged_=True, parameters_=CopulaParameters(matrix, [1.0, 1.0]))
    extreme.fit.return_value = extreme
    how = {"estimator": extreme, "warm_up": QUICK, "copula": QUICK}
    fit = fit_feasible_cevit(build(), draw(60), rng=np.random.default_rng(0), **how)
    assert fit.copula.notes["shrunk"] > 0
    assert fit.parameters.smallest_eigenvalue() == pytest.approx(0.05)


def test_a_warm_up_that_knows_its_patients_by_heart_is_refused():
    """The images' means are the lengths, ten times, and the network starts with a slope of 0.1."""
    data, model = draw(60), linear(4)
    model[-1].weight.data, model[-1].bias.data = 0.1 * torch.eye(4, 2), torch.zeros(4)
    lengths = 10 * Standardisation.of(data.y, 2).apply(data.y)[:, :2].float()
    images = lengths[..., None, None, None].expand(-1, -1, 1, 4, 4)
    known = {"estimate_on": "train", "warm_up": Recipe(1, 1e-6, 60)}
    with pytest.raises(TrainingError, match="by heart"):
        fit_feasible_cevit(
            model, data.replace(images=images), rng=np.random.default_rng(0), **known
        )


# ---- predictions ---------------------------------------------------------------------------------
# -------------------


def test_predictions_are_coherent(feasible):
    test = draw(50, seed=8)
    got = predict(feasible.copula, test)
    torch.testing.assert_close(got.joint[:, 1].sum(1), got.probabilities[:, 0])
    best = got.joint.flatten(1).argmax(1)
    torch.testing.assert_close(got.classes(), torch.stack([best // 2, best % 2], 1))
    table = got.table()
    assert list(table["id"]) == list(test.ids) and table.shape == (50, 11)
    alone = predict(dataclasses.replace(feasible.copula, parameters=None), test)
    torch.testing.assert_close(alone.joint[:, 1, 1], alone.probabilities.prod(1))


# ---- saving --------------------------------------------------------------------------------------
# -------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An adapter model on a file of weights: what is not stored comes from that file."""
    folder, data = tmp_path_factory.mktemp("saved"), draw(40)
    for name, seed in (("base.pth", 0), ("other.pth", 1)):
        torch.manual_seed(seed)
        base = timm.create_model(NAME, pretrained=False, num_classes=0, **SMALL)
        torch.save(base.state_dict(), folder / name)
    model = build(weights=folder / "base.pth", lora_rank=2, lora="separate")
    warm = fit_warm_up(model, data, QUICK, rng=np.random.default_rng(0))
    parameters = CopulaParameters(data.truth.correlation, data.truth.scale)
    fit = fit_copula(warm, data, parameters, QUICK, rng=np.random.default_rng(1))
    save_model(fit, folder / "model")
    return fit, folder


def test_a_saved_model_gives_identical_predictions_and_refuses_another_base(saved):
    (fit, folder), data = saved, draw(25, seed=5)
    stored = torch.load(folder / "model" / "tensors.pt", weights_only=True)
    assert set(stored) == {name for name, p in fit.model.named_parameters() if p.requires_grad}
    again = load_model(folder / "model", weights=folder / "base.pth")
    mine, theirs = predict(fit, data), predict(again, data)
    assert torch.equal(theirs.outputs, mine.outputs) and torch.equal(theirs.joint, mine.joint)
    described = json.loads((folder / "model" / "model.json").read_text())
    assert described["use"] == "not for clinical use"
    assert described["labels"].keys() == set(data.responses[2:])
    with pytest.raises(ParameterError, match="never overwritten"):
        save_model(fit, folder / "model")
    with pytest.raises(DataError, match="was trained on base weights"):
        load_model(folder / "model", weights=folder / "other.pth")


def without(part, folder):
    stored = torch.load(folder / "tensors.pt", weights_only=True)
    torch.save({k: v for k, v in stored.items() if part not in k}, folder / "tensors.pt")


def with_content(file, content, folder):
    (folder / file).write_bytes(content or (folder / file).read_bytes()[:99])


@pytest.mark.parametrize(
    "alter, told",
    [
        (partial(without, "heads."), "8 missing, such as heads.binary_1.bias"),
        (partial(without, "lora_B"), "missing, such as backbone.*lora_B"),
        (partial(with_content, "tensors.pt", None), "tensors.pt cannot be read .* cut off"),
        (partial(with_content, "tensors.pt", b"<!DOCTYPE html>"), "tensors.pt cannot be read"),
        (partial(with_content, "model.json", None), "model.json is not as"),
        (partial(with_content, "model.json", b"[]"), "model.json is not as"),
        (partial(with_content, "model.json", b"{}"), "model.json is not as .*KeyError: 'encoder'"),
        (partial(with_content, "model.json", b"\xff\xfe"), "model.json is not as"),
    ],
)
def test_a_model_of_which_a_part_is_missing_torn_or_foreign_is_refused(
    saved, tmp_path, alter, told
):
    _, folder = saved
    shutil.copytree(folder / "model", tmp_path / "model")
    alter(tmp_path / "model")
    with pytest.raises(DataError, match=told):
        load_model(tmp_path / "model", weights=folder / "base.pth")
