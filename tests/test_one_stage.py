"""One stage of training, its controls, and the parameters that change along the way."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from checkpoint_program import network, weights

from cevit_lib.copula import CopulaLoss, CopulaParameters, UncertaintyWeightedLoss
from cevit_lib.datasets import SyntheticPairs, hold_out
from cevit_lib.errors import DataError, EstimateKeptWarning, ParameterError
from cevit_lib.estimation import MaximumLikelihood
from cevit_lib.training import (
    OneStage,
    Recipe,
    Standardisation,
    fit_copula,
    fit_one_stage,
    predict_outputs,
)
from cevit_lib.training.algorithm import Stage
from cevit_lib.training.ensemble import Ensemble, Members
from cevit_lib.training.fit import Fit
from cevit_lib.training.objective import Objective, Renewal, Source, independent, matched
from cevit_lib.training.side_by_side import SideBySide

RECIPE = Recipe(3, 2e-3, 32)
LARGER = OneStage(held_out_share=0.4)


@pytest.fixture(scope="module")
def data():
    return SyntheticPairs(160, np.random.default_rng(0), window=24)


def trained(data, chosen=LARGER, recipe=RECIPE, dropout=0.2, **where):
    rng, where = np.random.default_rng(3), {"device": "cpu"} | where
    return fit_one_stage(network(dropout=dropout), data, recipe, chosen, rng=rng, **where)


@pytest.fixture(scope="module")
def whole(data):
    return trained(data)


def held_out_of(data):
    split = hold_out(data, LARGER.held_out_share, np.random.default_rng(3))
    return data.subset(split.train), data.subset(split.test)


def close(found: CopulaParameters, wanted: CopulaParameters):
    torch.testing.assert_close(found.correlation, wanted.correlation, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.scale, wanted.scale, atol=1e-6, rtol=0)


def test_the_estimate_is_that_of_the_last_epoch_s_outputs_of_held_out_patients(data, whole):
    _, unseen = held_out_of(data)
    outputs = predict_outputs(whole, unseen, device="cpu")
    close(whole.parameters, MaximumLikelihood().fit(outputs, unseen.y).parameters_)
    each = [entry["estimate"]["correlation"] for entry in whole.trace]
    assert len(each) == 3 and each[0] != each[1] != each[2]


def test_the_first_epoch_has_the_responses_sd_and_no_correlation(data, whole):
    """It is the first epoch of a copula loss under those parameters, bit for bit."""
    seen, _ = held_out_of(data)
    start = CopulaParameters.independent(Standardisation.of(seen.y, 2).sd, 2)
    first = trained(data, dataclasses.replace(LARGER, every=3))
    fresh = Fit.fresh(network(), seen, True)
    # the same order: that of the one stage's own stream
    rng = np.random.default_rng(3)
    hold_out(data, LARGER.held_out_share, rng)
    order = np.random.default_rng([int(rng.integers(2**63)), 0])
    alone = fit_copula(fresh, seen, start, RECIPE, rng=order, device="cpu")
    losses = [[entry["loss"] for entry in fit.trace] for fit in (first, alone, whole)]
    assert losses[0] == losses[1]  # every=3: no estimate was used
    late = trained(data, dataclasses.replace(LARGER, first=2))
    assert ["estimate" in entry for entry in late.trace] == [False, True, True]
    told = [entry["loss"] for entry in late.trace]
    assert told[:2] == losses[0][:2] and told[2] != losses[0][2]
    assert losses[2][0] == losses[1][0] and losses[2][1] != losses[1][1]


def test_estimates_of_cross_fitted_outputs_come_from_networks_that_left_the_patients_out(data):
    found = trained(data, OneStage(estimate_on="cross-fitted", folds=2), Recipe(2, 2e-3, 32))
    seen = trained(data, OneStage(estimate_on="train"), Recipe(2, 2e-3, 32))
    assert "estimate" in found.trace[0]
    # in-sample residuals are smaller than those of patients who were left out
    assert (found.parameters.scale > seen.parameters.scale).all()
    outputs = predict_outputs(seen, data, device="cpu")
    close(seen.parameters, MaximumLikelihood().fit(outputs, data.y).parameters_)


def test_the_loss_has_the_last_estimate_and_all_networks_train_in_the_same_units(data):
    chosen = OneStage(estimate_on="cross-fitted", folds=2)
    one = chosen.network(network(), data, np.random.default_rng(3), device="cpu")
    stage = Stage(one, "one stage", RECIPE, Objective(renewal=Renewal(chosen.source)), 0)
    stage.epoch(lambda: [{}])
    torch.testing.assert_close(
        stage.loss.copula.scale * one.fit.standardisation.sd, stage.last[0].scale
    )
    whole, *parts = (trainer.y for trainer in stage.trainers)
    for own, (_, (left_out,)) in zip(parts, stage.twins, strict=True):
        assert torch.equal(own, whole[np.setdiff1d(np.arange(len(data)), left_out)])


class KilledError(Exception):
    pass


@pytest.mark.parametrize("part", ["held-out", "cross-fitted"])
def test_a_fit_that_was_stopped_ends_bit_for_bit_as_one_that_was_not(
    data, tmp_path, monkeypatch, part
):
    from cevit_lib.training import loop

    chosen = dataclasses.replace(LARGER, estimate_on=part, folds=2)
    uninterrupted, real = trained(data, chosen), loop.NetworkTrainer.epoch

    def stopped(trainer):
        if trainer.done == 2:
            raise KilledError
        return real(trainer)

    monkeypatch.setattr(loop.NetworkTrainer, "epoch", stopped)
    with pytest.raises(KilledError):
        trained(data, chosen, checkpoint=tmp_path)
    monkeypatch.undo()
    resumed = trained(data, chosen, checkpoint=tmp_path)
    again = trained(data, chosen, checkpoint=tmp_path)  # a finished stage is read
    for fit in (resumed, again):
        assert torch.equal(weights(fit), weights(uninterrupted))
        assert fit.parameters.to_dict() == uninterrupted.parameters.to_dict()
        assert fit.trace[1]["estimate"] == uninterrupted.trace[1]["estimate"]
    with pytest.raises(ParameterError, match="belongs to another fit"):
        trained(data, dataclasses.replace(chosen, every=2), checkpoint=tmp_path)


class Failing(MaximumLikelihood):
    """Fails at its second fit."""

    fits = 0

    def fit(self, outputs, y, continuous=None):
        type(self).fits += 1
        if type(self).fits == 2:
            raise DataError("planted")
        return super().fit(outputs, y, continuous)


def test_an_estimator_that_fails_in_one_epoch_leaves_the_last_good_estimate(data):
    Failing.fits = 0
    with pytest.warns(EstimateKeptWarning, match="epoch 2: .*planted.*the last one is kept"):
        found = trained(data, dataclasses.replace(LARGER, estimator=Failing()))
    first, second, third = (entry["estimate"] for entry in found.trace)
    assert second["kept"] and second["correlation"] == first["correlation"] != third["correlation"]


@pytest.mark.parametrize(
    ("chosen", "error", "message"),
    [
        ({"every": 4}, ParameterError, "every=4 exceeds the 3 epochs"),
        ({"first": 4}, ParameterError, "first=4 exceeds the 3 epochs"),
        ({"held_out_share": 0.05}, DataError, "8 held-out patients are too few for 6 corr"),
    ],
)
def test_what_cannot_be_estimated_is_refused_before_a_step(data, chosen, error, message):
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(error, match=message):
        fit_one_stage(model, data, RECIPE, OneStage(**chosen), rng=np.random.default_rng(0))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_many_networks_side_by_side_make_the_single_fits(data):
    """One function of an algorithm: the program for grids renews as a network alone does."""
    whole, (seen, unseen) = trained(data, dropout=0.0), held_out_of(data)
    rng = np.random.default_rng(3)
    hold_out(data, LARGER.held_out_share, rng)
    seed = int(rng.integers(2**63))
    members = Members(
        torch.cat([seen.images, unseen.images] * 2).float(),
        torch.cat([seen.y, unseen.y] * 2),
        np.stack([np.arange(len(seen)) + k * len(data) for k in range(2)]),
        [Standardisation.of(seen.y, 2)] * 2,
    )
    held = [np.arange(len(seen), len(data)) + k * len(data) for k in range(2)]
    networks = SideBySide(
        Ensemble([network(dropout=0.0), network(dropout=0.0)]),
        members,
        {"train": list(members.rows), "held-out": held},
        lambda number: [np.random.default_rng([seed, number]) for _ in range(2)],
    )
    renewal = Renewal(Source(MaximumLikelihood, "held-out"))
    trace = networks.train("one stage", RECIPE, Objective(renewal=renewal), 0)[1]
    for entry, alone in zip(trace, whole.trace, strict=True):
        assert math.isclose(entry["loss"], alone["loss"], rel_tol=1e-4)
        for name in ("correlation", "scale"):
            np.testing.assert_allclose(
                entry["estimate"][name], alone["estimate"][name], atol=2e-3, rtol=0
            )


# ---- controls ----


def test_matched_weights_are_the_copula_s_own_on_a_length():
    """Without labels the curvature of the copula loss in mu_j is 1 / {sigma_j^2 (1 - rho^2)}."""
    full = CopulaParameters([[1.0, 0.72], [0.72, 1.0]], [1.3, 0.8])
    (alone,) = matched([full])
    torch.testing.assert_close(alone.scale, full.scale * math.sqrt(1 - 0.72**2))
    assert torch.equal(alone.correlation, torch.eye(2, dtype=torch.float64))
    y = torch.zeros(1, 2, dtype=torch.float64)
    curvatures = [
        torch.autograd.functional.hessian(lambda o, own=own: CopulaLoss(own)(o, y), y.clone())
        for own in (full, alone)
    ]
    diagonals = [h[0, :, 0].diagonal() for h in curvatures]
    torch.testing.assert_close(*diagonals)
    (bare,) = independent([full])
    assert torch.equal(bare.scale, full.scale)


def test_learnt_weights_rest_at_the_residuals_rms_and_at_the_root_of_twice_the_cross_entropy():
    """Kendall's loss at fixed outputs is convex in the logarithms: where it is flat is known."""
    rng = torch.Generator().manual_seed(0)
    outputs = torch.randn(200, 4, generator=rng, dtype=torch.float64)
    y = torch.cat([torch.randn(200, 2, generator=rng), (outputs[:, 2:] > 0.3).double()], 1)
    y[:50, 1] = float("nan")
    loss = UncertaintyWeightedLoss().double()
    squares = (outputs[:, :2] - y[:, :2]).square().nanmean(0)
    crossed = torch.nn.functional.binary_cross_entropy_with_logits(
        outputs[:, 2:], y[:, 2:], reduction="none"
    ).mean(0)
    with torch.no_grad():
        loss.log_scale.copy_(torch.cat([squares, 2 * crossed]).log() / (2 * loss.PACE))
    (slope,) = torch.autograd.grad(loss(outputs, y), loss.log_scale)
    torch.testing.assert_close(slope, torch.zeros_like(slope), atol=1e-12, rtol=0)
