"""``cevit verify``: a record that comes back passes, a planted wrong number is found."""

import json

import numpy as np
import pytest

from cevit_lib.clinic.cli import main
from cevit_lib.errors import DataError
from cevit_lib.records import new_record, verify, write_record
from cevit_lib.records.recipes import STUDIES, refit_name

STUDY = "planted-study"
GAMMA = np.array([[1.0, 0.6], [0.6, 1.0]])


def estimate(seed: int, noise: int = 0) -> dict:
    """Estimate a correlation from 400 draws: a cheap study with a sampling error of about 0.03."""
    draws = np.random.default_rng([seed, noise]).multivariate_normal(np.zeros(2), GAMMA, size=400)
    gamma = np.corrcoef(draws.T)
    record = new_record(
        STUDY,
        {"n": 400},
        [seed],
        {
            "mean_absolute": float(np.abs(draws).mean()),
            "fit_seconds": float(np.random.default_rng().random()),
        },
        parameters={"correlation": gamma},
        seconds=0.0,
    )
    return record | {"commit": "0" * 40, "dirty": False}


def refit(record: dict) -> dict:
    """Repeat a record exactly: the same seed."""
    return estimate(record["seeds"][0])


def refit_elsewhere(record: dict) -> dict:
    """Repeat a record on a machine whose arithmetic differs so much that the draws are others."""
    return estimate(record["seeds"][0], noise=1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setitem(STUDIES, STUDY, {"recipe": 1, "refit": f"{__name__}:refit"})
    for seed in range(8):
        write_record(estimate(seed), tmp_path)
    return tmp_path


def alter(folder, edit, seed: int = 3) -> str:
    records = {path: json.loads(path.read_text()) for path in (folder / STUDY).glob("*.json")}
    path, record = next(pair for pair in records.items() if pair[1]["seeds"] == [seed])
    edit(record)
    path.write_text(json.dumps(record))
    return record["id"]


def command(folder, *options) -> int:
    return main(["verify", "--folder", str(folder), "--sample", "8", *options])


def refit_without_data(record: dict) -> dict:
    """Repeat a record where its real eyes are not."""
    raise DataError("set CEVIT_DATA")


def test_data_that_are_not_here_stop_only_who_asked_for_that_study(folder, monkeypatch, capsys):
    monkeypatch.setitem(STUDIES[STUDY], "refit", f"{__name__}:refit_without_data")
    assert command(folder) == 0
    assert "not fitted again, for its data are not here: set CEVIT_DATA" in capsys.readouterr().out
    assert command(folder, "--study", STUDY) == 2


@pytest.mark.parametrize("how", ["refit", "refit_elsewhere"])
def test_numbers_come_back_and_may_move_within_the_spread_of_seeds(
    folder, monkeypatch, capsys, how
):
    monkeypatch.setitem(STUDIES[STUDY], "refit", f"{__name__}:{how}")
    assert command(folder) == 0, capsys.readouterr().out
    assert "every number came back" in capsys.readouterr().out


@pytest.mark.parametrize(
    "seeds, origin", [(8, "from 7 other seeds"), (1, "fewer than three other seeds")]
)
def test_a_planted_wrong_gamma_is_found_and_named(folder, capsys, seeds, origin):
    def plant(record):
        record["parameters"]["correlation"][0][1] += 0.25

    identity = alter(folder, plant)
    others = [path for path in (folder / STUDY).glob("*.json") if path.stem != identity]
    for path in others[seeds - 1 :]:
        path.unlink()
    assert command(folder) == 1
    out = capsys.readouterr().out
    assert f"DIFFERS  {STUDY}/{identity}: parameters.correlation.0.1 is 0." in out
    assert out.count("DIFFERS") == 1 and origin in out


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (
            lambda record: record["metrics"].pop("mean_absolute"),
            "metrics.mean_absolute is missing in the record",
        ),
        (
            lambda record: record["metrics"].update(extra=1.0),
            "metrics.extra is 1 in the record, missing now",
        ),
        (lambda record: record["configuration"].update(n=500), "its id should be"),
        (lambda record: record.update(dirty=True), "is dirty"),
        (lambda record: record.update(recipe=7), "is outdated"),
    ],
)
def test_other_edits_of_a_record_are_found(folder, edit, words, capsys):
    alter(folder, edit)
    assert command(folder) == 1
    assert words in capsys.readouterr().out


def test_a_monte_carlo_mean_may_move_by_its_standard_error():
    stored = {"study": STUDY, "id": "0", "metrics": {"bias": {"mean": 0.1, "se": 0.01}}}
    near = {"metrics": {"bias": {"mean": 0.15, "se": 0.01}}}
    far = {"metrics": {"bias": {"mean": 0.16, "se": 0.01}}}  # 4 sqrt(2) 0.01 = 0.0566
    assert verify.compare(stored, near, []) == []
    (line,) = verify.compare(stored, far, [])
    assert "metrics.bias.mean is 0.1 in the record, 0.16 now" in line


def test_a_study_without_refit_is_an_error_for_who_asked_for_it(folder, monkeypatch, capsys):
    monkeypatch.delitem(STUDIES[STUDY], "refit")
    assert command(folder, "--study", STUDY) == 2
    assert "has no refit function; name it in" in capsys.readouterr().err
    assert command(folder) == 0
    assert "8 records are whole, but none is fitted again" in capsys.readouterr().out


def test_every_registered_study_can_be_fitted_again():
    for study in filter(refit_name, STUDIES):
        assert callable(verify.refit_function(study))


def test_a_fold_may_move_by_two_standard_deviations_of_a_difference_of_two_folds():
    """Folds share their configuration but for what numbers them; another size is no repetition."""
    one, sibling, other = (
        {"study": "simulation", "configuration": {"dataset": number, "fold": 1, "n": n}}
        for number, n in ((0, 100), (3, 100), (0, 200))
    )
    assert verify._setting(one) == verify._setting(sibling) != verify._setting(other)
    allowed, origin = verify.tolerance("simulation", 0.9, [0.8, 0.9, 1.0])
    assert (allowed, origin[-13:]) == (pytest.approx(0.2 * 2**0.5), "3 other folds")


@pytest.mark.parametrize(
    ("moved", "times", "lines"), [(5, 1.5, 0), (6, 1.5, 6), (1, 3.9, 0), (1, 4.1, 1)]
)
def test_a_few_of_a_fold_s_numbers_move_by_more_and_none_by_far(moved, times, lines, capsys):
    allowed, _ = verify.tolerance("simulation", 0.9, [0.8, 0.9, 1.0])
    others = [{"metrics": {f"m{k}": value for k in range(100)}} for value in (0.8, 0.9, 1.0)]
    stored = {"study": "simulation", "id": "0"} | others[1]
    again = {"metrics": stored["metrics"] | {f"m{k}": 0.9 + times * allowed for k in range(moved)}}
    assert len(verify.compare(stored, again, others)) == lines
    assert capsys.readouterr().out.count("now (allowed") == moved - lines  # told, if no fault


def test_where_a_curve_has_its_minimum_is_not_compared_but_what_it_reaches_there_is():
    stored, again = (
        {"study": STUDY, "id": "0", "metrics": {"best epoch": {"epoch": k, "criterion": value}}}
        for k, value in ((6, 1.0), (8, 1.1))
    )
    (line,) = verify.compare(stored, again, [])
    assert "criterion is 1 in the record, 1.1 now" in line
