"""The simulation study at smoke size: a fit does not depend on its neighbours, is found again, and
knows its floor.
"""

import numpy as np
import pytest
import torch

from cevit_lib.copula import CopulaParameters
from cevit_lib.records.verify import numbers
from studies.simulation import fits as simulation
from studies.simulation import settings

SIMULATION = simulation.STUDIES["simulation"]


@pytest.fixture(scope="module")
def records():
    """Those that the page made at smoke scale, where it was this very code."""
    return SIMULATION.collect("smoke").records


def test_every_arm_is_recorded_at_three_epochs_and_differs_in_its_loss_alone(records):
    """Matched weights and independence are the one stage's own estimates with less in them."""
    assert [r["configuration"]["fold"] for r in records] == [1, 2]
    arms = settings.SMOKE["arms"]
    read = [f"{a}, {when}" for a in arms for when in simulation.BEST.values()]
    for record in records:
        trace = record["trace"]
        assert set(record["metrics"]) == {"truth", *arms, *read}
        assert set(record["parameters"]) == {"true", *arms}
        assert list(record["arms"]) == list(trace) == arms
        # same patients, order and start: a loss in other units is the same loss for one epoch
        same = [trace[arm] for arm in ("independence", "matched", "one stage")]
        assert {own["loss"][0] for own in same} == {trace["matched"]["loss"][0]}
        assert trace["empirical"]["loss"][0] != trace["matched"]["loss"][0]
        assert len({own["sigma1"][0] for own in same}) == 1  # one epoch, one network
        assert len({own["loss"][1] for own in same}) == 3
        # of two epochs: the other is the warm-up
        assert [len(trace[arm]["loss"]) for arm in simulation.SOURCES] == [1, 1]


def test_a_fit_made_alone_has_the_numbers_of_the_same_fit_made_with_others(records):
    few = dict.fromkeys(("independence", "one stage"))
    again = SIMULATION.refit(records[1] | {"arms": few})
    found, known = numbers(again), numbers(records[1])
    assert again["id"] == records[1]["id"] and len(found) > 20
    assert found == pytest.approx({name: known[name] for name in found}, rel=2e-3, abs=2e-4)


def test_the_bayes_optimal_row_is_what_theory_says():
    c = settings.SMOKE | {"n": 20_000, "window": 9, "pixel_correlation": 0.5}
    own = simulation.draw(c, 0)
    truth = CopulaParameters(own.truth.correlation, own.truth.scale)
    found = simulation.scores(own.truth.outputs, own.y, truth)
    half_normal = np.sqrt(2 / np.pi)  # mean of |e| for a standard normal error
    for name in ("MAE y1", "MAE y2"):
        assert abs(found[name] - half_normal) < 4 * np.sqrt((1 - 2 / np.pi) / 20_000)
    assert abs(found["RMSE y1"] - 1) < 4 * np.sqrt(2 / 20_000) / 2
    worse = simulation.scores(own.truth.outputs, own.y, CopulaParameters.independent([1.0, 1.0], 2))
    # Gibbs' inequality, by hundreds of standard errors
    assert worse["log-likelihood"] < found["log-likelihood"]


def test_parts_of_a_fit_are_disjoint_and_strength_scales_the_printed_gamma():
    c, seed = settings.grid("simulation", "smoke")[0]
    part = simulation.split(simulation.draw(c, seed), c, seed)
    rows = np.concatenate(list(part.values()))
    assert len(set(rows.tolist())) == len(rows) == c["n"]
    kept = len(part["train"]) + len(part["held-out"])
    assert len(part["held-out"]) == round(c["held_out_share"] * kept)
    for strength in (0.0, 1.0, 1.25):
        found = simulation.correlation_at(strength)
        assert found[2, 3] == pytest.approx(0.569 * strength) and np.linalg.eigvalsh(found)[0] > 0


def test_a_shared_program_never_brings_the_networks_it_was_compiled_for(monkeypatch):
    """On an accelerator later fits reuse what was compiled; their networks are their own, fresh
    from their seeds.
    """

    class Recorded:
        def __init__(self, models, device, compiled=False, program=None):
            self.models, self.program = models, program or object()

    monkeypatch.setattr(simulation, "Ensemble", Recorded)
    monkeypatch.setattr(simulation, "_PROGRAMS", {})
    monkeypatch.setattr(simulation, "WORTH_COMPILING", 1)
    fits = settings.grid("simulation", "smoke")
    first, second, other = (
        simulation._ensemble(part, torch.device("cuda"))
        for part in (fits[:1], fits[1:], [(fits[0][0] | {"window": 24}, 0)])
    )
    assert (
        first is not second
        and first.program is second.program
        and other.program is not first.program
    )
    one, two = (e.models[0].heads["continuous_1"].weight for e in (first, second))
    assert not torch.equal(one, two)


def test_a_redraw_has_the_images_and_other_errors_and_r_is_the_pixels_correlation():
    c = settings.SMOKE | {"n": 4000, "window": 9}
    own, again, other = (simulation.draw(c | {"redraw": k}, 0) for k in (1, 1, 2))
    assert torch.equal(own.images, other.images) and torch.equal(own.y, again.y)
    parts = [simulation.split(each, c | {"redraw": 1}, 0) for each in (own, other)]
    assert all(np.array_equal(rows, parts[1][name]) for name, rows in parts[0].items())
    errors = [(d.y - d.truth.outputs)[:, 0] for d in (own, other)]
    assert abs(float(torch.corrcoef(torch.stack(errors))[0, 1])) < 4 / np.sqrt(4000)
    for r in (0.0, 0.9, 1.0):
        pixels = simulation.draw(c | {"pixel_correlation": r}, 0).images[:, :, 0, 1, 1]
        found = float(torch.corrcoef(pixels.T)[0, 1])
        assert abs(found - r) < 4 * (1 - r**2) / np.sqrt(4000) + 1e-6


def test_no_data_set_is_tuned_on_and_compared():
    sets = {study: {c["dataset"] for c, _ in settings.grid(study)} for study in settings.GRIDS}
    for study, own in sets.items():
        others = sets.keys() - {study, study.removesuffix("-again"), f"{study}-again"}
        assert not any(own & sets[name] for name in others)
    assert len(sets["simulation-tuning"]) >= 3 and len(settings.CANDIDATES) <= 6


def test_fits_whose_program_lost_its_gradients_on_the_way_are_made_again_uncompiled(monkeypatch):
    """The check before training passes, the one after it does not; what is returned was made
    without the program.
    """
    c, seed = settings.grid("simulation", "smoke")[0]
    fits, gaps = [(c | {"arms": ["empirical"]}, seed)], iter((0.0, 2.0))
    (alone,) = simulation.fit(fits, "smoke", "cpu")
    real = simulation._ensemble

    def compiled_once(fits, device, compiled=True):
        found = real(fits, device, compiled)
        found.compiled = compiled
        return found

    monkeypatch.setattr(simulation, "_ensemble", compiled_once)
    monkeypatch.setattr(simulation.Ensemble, "trust_compiler", lambda *_, **__: next(gaps))
    (record,) = simulation.fit(fits, "smoke", "cpu")
    assert record["notes"].endswith("; not compiled") and next(gaps, None) is None
    assert record["metrics"] == alone["metrics"]


def test_the_features_correlation_is_that_of_the_two_eyes():
    """A shared factor of a feature makes the correlation; the mean and the scale do not count."""
    rng = torch.Generator().manual_seed(0)
    shared, own = torch.randn(20_000, 1, 3, generator=rng), torch.randn(20_000, 2, 3, generator=rng)
    features = 5 + torch.tensor([1.0, 2.0, 3.0]) * (0.8**0.5 * shared + 0.2**0.5 * own)
    found = simulation.correlation_of_features(features)
    assert abs(found - 0.8) < 4 * 0.36 / np.sqrt(20_000)
