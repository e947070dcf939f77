"""The simulation study at smoke size: a fit does not depend on its neighbours, is found again, and
knows its floor.
"""

import numpy as np
import pytest
import torch

from cevit_lib.records.verify import numbers
from studies.simulation import fits as simulation
from studies.simulation import settings

SIMULATION = simulation.STUDIES["simulation"]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return SIMULATION.run("smoke", tmp_path_factory.mktemp("records"), ("cpu",))


def test_every_arm_of_every_fold_is_recorded(records):
    made = records
    assert [r["configuration"]["fold"] for r in made] == [1, 2]
    for record in made:
        arms = ["warm-up", *record["configuration"]["arms"]]
        assert {*arms, *(f"{a}, at its best epoch" for a in arms), "Bayes-optimal"} == set(
            record["metrics"]
        )
        stages = [entry["stage"] for entry in record["trace"]]
        assert stages.count("warm-up") == 2 and all(stages.count(arm) == 1 for arm in arms[1:])
        assert set(record["parameters"]) == {"true", *simulation.SOURCES}
        # same patients, order and start: the two controls differ by the weights of the loss alone
        first = {entry["stage"]: entry["loss"] for entry in record["trace"] if entry["epoch"] == 1}
        assert first["independence"] != first["empirical"]


def test_a_fit_made_alone_has_the_numbers_of_the_same_fit_made_with_others(records):
    made = records
    again = SIMULATION.refit(made[1])
    assert again["id"] == made[1]["id"]
    together, alone = numbers(made[1]), numbers(again)
    assert together.keys() == alone.keys()
    np.testing.assert_allclose(
        [alone[k] for k in together], [together[k] for k in together], rtol=2e-3, atol=2e-4
    )


def test_the_bayes_optimal_row_is_what_theory_says():
    c = settings.SMOKE | {"n": 20_000, "window": 9}
    own = simulation.draw(c, 0)
    from cevit_lib.copula import CopulaParameters

    truth = CopulaParameters(own.truth.correlation, own.truth.scale)
    found = simulation.scores(own.truth.outputs, own.y, truth)
    half_normal = np.sqrt(2 / np.pi)  # mean of |e| for a standard normal error
    for name in ("MAE y1", "MAE y2"):
        assert abs(found[name] - half_normal) < 4 * np.sqrt((1 - 2 / np.pi) / 20_000)
    assert abs(found["RMSE y1"] - 1) < 4 * np.sqrt(2 / 20_000) / 2
    worse = simulation.scores(own.truth.outputs, own.y, CopulaParameters.independent([1.0, 1.0], 2))
    assert (
        worse["log-likelihood"] < found["log-likelihood"]
    )  # Gibbs' inequality, by hundreds of standard errors


def test_parts_of_a_fit_are_disjoint_and_strength_scales_the_printed_gamma():
    c, seed = settings.grid("simulation", "smoke")[0]
    part = simulation.split(simulation.draw(c, seed), c, seed)
    rows = np.concatenate(list(part.values()))
    assert len(set(rows.tolist())) == len(rows) == c["n"]
    assert len(part["held-out"]) == round(0.1 * (len(part["train"]) + len(part["held-out"])))
    assert np.array_equal(simulation.true_correlation(0.0), np.eye(4))
    assert simulation.true_correlation(1.0)[2, 3] == 0.569
    assert np.linalg.eigvalsh(simulation.true_correlation(1.25))[0] > 1e-3
    assert len(settings.grid("simulation")) == 50


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
        for part in (fits[:1], fits[1:], [(fits[0][0] | {"adapters": True}, 0)])
    )
    assert (
        first is not second
        and first.program is second.program
        and other.program is not first.program
    )
    one, two = (e.models[0].heads["continuous_1"].weight for e in (first, second))
    assert not torch.equal(one, two)


def test_fewer_patients_at_equal_steps_are_seen_as_much_more_often():
    main = settings.grid("simulation")[0][0]
    for c, _ in settings.grid("simulation-equal-steps"):
        for stage in ("warm_up", "further"):
            assert c["n"] * c[stage]["epochs"] == main["n"] * main[stage]["epochs"]
    used = {
        c["dataset"]
        for study in settings.GRIDS
        if study != "simulation-equal-steps"
        for c, _ in settings.grid(study)
    }
    assert not used & {c["dataset"] for c, _ in settings.grid("simulation-equal-steps")}


def test_fits_whose_program_lost_its_gradients_on_the_way_are_made_again_uncompiled(monkeypatch):
    """The check before training passes, the one after it does not; what is returned was made
    without the program.
    """
    fits, gaps = settings.grid("simulation", "smoke")[:1], iter((0.0, 2.0))
    real = simulation._ensemble

    def compiled_once(fits, device, compiled=True):
        found = real(fits, device, compiled)
        found.compiled = compiled
        return found

    monkeypatch.setattr(simulation, "_ensemble", compiled_once)
    monkeypatch.setattr(simulation.Ensemble, "trust_compiler", lambda *_, **__: next(gaps))
    (record,) = simulation.fit(fits, "smoke", "cpu")
    assert record["notes"].endswith("; not compiled") and next(gaps, None) is None
    monkeypatch.undo()
    (alone,) = simulation.fit(fits, "smoke", "cpu")
    assert record["metrics"] == alone["metrics"]
