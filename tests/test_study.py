"""One object for a study: it fits what is missing and says what a page may draw."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cevit_lib.errors import DataError, ParameterError, ProvenanceError, TrainingError
from cevit_lib.records import add_arms, load_records
from cevit_lib.records.recipes import STUDIES
from cevit_lib.records.store import refuse_unpublishable
from studies.__main__ import main
from studies.simulation.settings import SMOKE
from studies.study import Study, find, replications

NAME = "planted-study"


def settings(scale):
    return [({"n": n, "fold": fold}, 7) for n in (10, 20) for fold in (1, 2)]


def fit(configuration, seed, scale):
    if configuration["n"] == 20 and configuration["fold"] == 2 and scale == "paper":
        raise TrainingError("the predictor has collapsed")
    return {"metrics": {"sum": configuration["n"] + configuration["fold"]}}


def fit_together(fits, scale, device):
    return [{"metrics": {"beside": len(fits)}, "device": "cpu"} for _ in fits]


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    monkeypatch.setitem(STUDIES, NAME, {"recipe": 1, "study": f"{__name__}:PLANTED"})


PLANTED = Study(NAME, settings, fit, device="cpu")


def test_only_what_is_missing_is_fitted(tmp_path):
    told = []
    made = PLANTED.run("smoke", tmp_path, only=[1, 0], report=told.append)
    assert [record["metrics"]["sum"] for record in made] == [12, 11]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    again = PLANTED.run("smoke", tmp_path, ("cpu",), report=told.append)
    assert [record["metrics"]["sum"] for record in again] == [11, 12, 21, 22]
    assert again[0]["device"]["type"] == "cpu" and again[0]["times"]["total_seconds"] >= 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert f"{NAME}: 2 of 4 fits have a record" in told and "hours left" in "".join(told)


def test_two_workers_make_the_records_of_one_process(tmp_path):
    study, told = find("linear-overfit"), []
    shared = study.run("smoke", tmp_path / "two", ("cpu", "cpu"), report=told.append)
    alone = study.collect("smoke", tmp_path / "one").whole()
    assert told == ["linear-overfit: 0 of 4 fits have a record"]
    for one, other in zip(alone, shared, strict=True):
        assert all(one[key] == other[key] for key in ("id", "metrics", "columns", "seeds"))


def test_a_fit_that_fails_is_listed_and_stops_no_other(tmp_path, monkeypatch):
    with pytest.raises(TrainingError, match=r"3 of 4 .* numbers 3\. the predictor has"):
        PLANTED.run("paper", tmp_path, only=[3, 0, 1, 2])
    made = load_records(NAME, publication=False, folder=tmp_path)
    monkeypatch.setattr("studies.study.load_records", lambda *a, **k: made)
    grid = PLANTED.collect("stored", tmp_path)
    assert grid.note == "3 of 4 folds" and not grid.smoke
    with pytest.raises(ProvenanceError, match="has 3 of 4 records; make it from a clean commit"):
        grid.whole()


def test_fits_of_one_shape_are_made_side_by_side(tmp_path):
    together = Study(NAME, settings, fit_together, together=("fold",))
    made = together.run("smoke", tmp_path, only=[0, 2, 3])
    assert [record["metrics"]["beside"] for record in made] == [1, 2, 2]
    shares = Study(NAME, settings, fit_together, together=("fold",)).deal("smoke", range(4), 2)
    assert sorted(shares[0] + shares[1]) == [0, 1, 2, 3]
    assert all(len({k // 2 for k in share}) == 2 for share in shares), "evenly in every shape"


ARMS = ["one", "two"]


def settings_with_arms(scale):
    return [({"n": 10, "fold": fold, "arms": list(ARMS)}, 7) for fold in (1, 2)]


def fit_arms(fits, scale, device):
    """Warm-ups with their arms: each arm has numbers of its own, and starts from the warm-up's."""
    contents = []
    for c, seed in fits:
        warm = np.random.default_rng([seed, c["fold"]]).normal()
        own = {arm: {"value": warm + len(arm), "beside": c["arms"]} for arm in c["arms"]}
        trace = {"warm-up": [warm], **{arm: [warm, 0.0] for arm in c["arms"]}}
        contents.append({"metrics": {"warm-up": {"value": warm}} | own, "trace": trace})
    return contents


def test_a_new_arm_is_added_and_nothing_else_moves(tmp_path, monkeypatch):
    monkeypatch.setitem(STUDIES[NAME], "arms", {})
    study = Study(NAME, settings_with_arms, fit_arms, together=("fold",))
    before = study.run("smoke", tmp_path)
    assert list(before[0]["arms"]) == ARMS and "arms" not in before[0]["configuration"]
    monkeypatch.setattr(f"{__name__}.ARMS", [*ARMS, "three"])
    after = study.run("smoke", tmp_path)
    assert all(entry["done"] for entry in study.listing("smoke", tmp_path))
    for old, new in zip(before, after, strict=True):
        assert new["metrics"].pop("three")["beside"] == ["three"], "only the missing one was fitted"
        assert new["trace"].pop("three")[0] == old["trace"]["warm-up"][0]
        assert new["arms"].pop("three")["recipe"] == 1 and new == old


def test_every_fit_gets_its_first_arms_before_any_gets_another(tmp_path, monkeypatch):
    monkeypatch.setitem(STUDIES[NAME], "arms", {})

    def stopped(fits, scale, device):
        if fits[0][0]["arms"] != ["two"]:
            raise KeyboardInterrupt
        return fit_arms(fits, scale, device)

    study = Study(NAME, settings_with_arms, stopped, together=("fold",), first=("two",), at_once=1)
    with pytest.raises(KeyboardInterrupt):
        study.run("smoke", tmp_path)
    assert [list(r["arms"]) for r in load_records(NAME, False, folder=tmp_path)] == [["two"]] * 2
    monkeypatch.setattr("studies.study.load_records", partial(load_records, publication=False))
    with pytest.raises(ProvenanceError, match="has 0 of 2 records; .* python -m studies"):
        study.collect("stored", tmp_path)
    whole = replace(study, fit=fit_arms).run("smoke", tmp_path)
    assert [set(record["arms"]) for record in whole] == [set(ARMS)] * 2


def test_what_another_process_made_meanwhile_stays(tmp_path, monkeypatch):
    monkeypatch.setitem(STUDIES[NAME], "arms", {})
    other = Study(NAME, settings_with_arms, fit_arms, together=("fold",))

    def slower(fits, scale, device):
        made.append(other.run(scale, tmp_path))
        return fit_arms(fits, scale, device)

    made = []
    assert replace(other, fit=slower).run("smoke", tmp_path) == made[0]


def test_what_a_record_has_is_not_replaced_and_an_outdated_arm_is_not_published(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(STUDIES[NAME], "arms", {})
    study = Study(NAME, settings_with_arms, fit_arms, together=("fold",))
    (record,) = study.run("smoke", tmp_path, only=[0])
    other = {"arms": {"four": {"recipe": 1}}, "metrics": {"warm-up": {"value": 9.0}}}
    assert add_arms(record, record | other, tmp_path / "other")["metrics"] == record["metrics"]
    with pytest.raises(ProvenanceError, match="none is replaced"):
        add_arms(record, record | {"arms": {"two": {"recipe": 1}}}, tmp_path)
    monkeypatch.setitem(STUDIES[NAME], "arms", {"two": 2})
    with pytest.raises(ProvenanceError, match="has outdated arms: two"):
        refuse_unpublishable(record | {"scale": "paper", "dirty": False}, tmp_path)
    assert study.refit(record)["metrics"] == record["metrics"]


def test_an_arm_that_is_fitted_later_is_the_arm_of_a_fit_of_all(tmp_path):
    arms, last = ["empirical", "independence", "fmcem"], "fmcem"
    asked = [({**SMOKE, "dataset": 100, "n": 200, "arms": some}, 0) for some in (arms[:2], arms)]
    study = find("simulation-tuning")
    few, whole = (replace(study, settings=lambda _, fit=fit: [fit]) for fit in asked)
    (before,) = few.run("smoke", tmp_path / "grown", ("cpu",))
    (grown,) = whole.run("smoke", tmp_path / "grown", ("cpu",))
    (at_once,) = whole.run("smoke", tmp_path / "at once", ("cpu",))
    assert list(grown["arms"]) == arms and grown["id"] == before["id"] == at_once["id"]
    for part in ("metrics", "parameters", "predictions", "columns"):
        assert grown[part] == at_once[part], part
        own = before[part] or {}
        assert {key: grown[part][key] for key in own} == own, "nothing of it moves"
    assert grown["trace"][last]["loss"] == at_once["trace"][last]["loss"]
    assert grown["trace"]["empirical"] == before["trace"]["empirical"]


def test_a_page_gets_stored_records_or_smoke_ones_made_now(tmp_path):
    grid = PLANTED.collect("smoke", tmp_path)
    assert grid.complete and grid.smoke and grid.note == "4 folds" and len(grid.whole()) == 4
    with pytest.raises(ProvenanceError, match=f"by python -m studies {NAME}, and commit"):
        PLANTED.collect("stored", tmp_path / "none")


def test_a_record_is_fitted_again_where_its_data_are_the_same(tmp_path):
    study = Study(NAME, settings, fit, device="cpu", facts=lambda c: {"hash": "one"})
    (record,) = study.run("smoke", tmp_path, only=[0])
    assert study.refit(record)["metrics"] == record["metrics"]
    with pytest.raises(DataError, match="data are not those of the record"):
        study.refit(record | {"data": {"hash": "another"}})


def test_the_one_entry_lists_makes_and_refuses(tmp_path, capsys):
    here = ["--scale", "smoke", "--results", str(tmp_path)]
    assert main([NAME, "--number", "2", "--device", "cpu", *here]) == 0
    capsys.readouterr()
    assert main([NAME, "--list", *here]) == 0
    assert '{"number": 2, "id": "' in (listed := capsys.readouterr().out)
    assert listed.count("true") == 1 and listed.count("false") == 3
    assert main([NAME, "--number", "4", *here]) == 1
    assert "has fits 0 to 3 at scale 'smoke', not 4" in capsys.readouterr().err
    with pytest.raises(ParameterError, match="'nosuch' has no grid of fits"):
        find("nosuch")


def test_replications_have_streams_of_their_own():
    columns = replications(lambda c, stream: {"key": stream.spawn_key}, {"replications": 3}, 5)
    assert columns == {"key": [(0,), (1,), (2,)]}
