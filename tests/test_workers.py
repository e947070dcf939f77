"""Fits shared out over devices: two workers make the records that one process makes; a killed job frees its device."""

import signal
import subprocess
import sys

import pytest

from cevit_lib.clinic.devices import claim
from cevit_lib.errors import ParameterError, TrainingError
from studies import workers


def numbers(record):
    return (
        record["id"],
        record["metrics"],
        record["parameters"],
        [e["loss"] for e in record["trace"]],
    )


def test_two_workers_make_the_records_of_one_process(tmp_path):
    from studies.simulation.fits import run_study

    told = []
    shared = workers.run_on_devices(
        "simulation", "smoke", ("cpu", "cpu"), folder=tmp_path / "two", report=told.append
    )
    alone = run_study("simulation", "smoke", device="cpu", at_once=1, folder=tmp_path / "one")
    assert [numbers(record) for record in shared] == [numbers(record) for record in alone]
    assert told == ["simulation: 2 fits to make by 2 workers on cpu"]
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "two").rglob("*.json")}
    again = workers.run_on_devices(
        "simulation", "smoke", ("cpu", "cpu"), folder=tmp_path / "two", report=told.append
    )
    assert [r["id"] for r in again] == [r["id"] for r in shared] and told[-1].startswith(
        "simulation: 0 fits"
    )
    assert made == {path: path.stat().st_mtime_ns for path in (tmp_path / "two").rglob("*.json")}


def test_a_fit_that_fails_is_listed_and_stops_no_other(tmp_path, monkeypatch):
    import joblib

    from studies.simulation import fits as simulation

    tried = []

    def one_fails(study, scale, *, only, **_):
        tried.extend(only)
        if only == [1]:
            raise TrainingError("the predictor has collapsed")

    monkeypatch.setattr(
        joblib, "Parallel", lambda **_: lambda tasks: [f(*a, **k) for f, a, k in tasks]
    )
    monkeypatch.setattr(simulation, "run_study", one_fails)
    with pytest.raises(
        TrainingError, match=r"numbers 0, 1\. cpu, fits 1: the predictor has collapsed"
    ):
        workers.run_on_devices("simulation", "smoke", folder=tmp_path, report=lambda *_: None)
    assert tried == [
        0,
        1,
    ]  # the second fit, which failed, did not take the first one's turn, nor the other way round


def test_shares_are_even_in_every_shape():
    fits = range(40)  # four sizes of data set, ten fits each
    shares = workers.deal("simulation-size", "paper", fits, 2)
    assert sorted(shares[0] + shares[1]) == list(fits)
    for start in range(0, 40, 10):
        assert [sum(start <= k < start + 10 for k in share) for share in shares] == [5, 5]


def test_the_list_of_a_study_and_numbers_out_of_it(tmp_path):
    entries = workers.listing("simulation", "paper", tmp_path)
    assert [entry["number"] for entry in entries] == list(range(50)) and not any(
        entry["done"] for entry in entries
    )
    assert len({entry["id"] for entry in entries}) == 50
    with pytest.raises(ParameterError, match="fits 0 to 1"):
        workers.run_number("simulation", 2, "smoke", folder=tmp_path)
    with pytest.raises(ParameterError, match="no grid of fits"):
        workers.listing("simulations")


def test_jobs_take_devices_in_turn(tmp_path):
    with (
        claim("cuda:0,cuda:1", 2, tmp_path) as first,
        claim("cuda:0,cuda:1", 2, tmp_path) as second,
    ):
        assert (first, second) == ("cuda:0", "cuda:1")
        with claim("cuda:0,cuda:1", 2, tmp_path) as third:
            assert third == "cuda:0"
    with claim("cuda:3", folder=tmp_path) as named:
        assert named == "cuda:3"


def test_a_killed_job_leaves_its_device_free(tmp_path, root):
    program = (
        "import pathlib, sys, time; from cevit_lib.clinic.devices import claim\n"
        "with claim('a,b', 1, pathlib.Path(sys.argv[1])) as name: print(name, flush=True); time.sleep(600)"
    )
    job = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], cwd=root, stdout=subprocess.PIPE, text=True
    )
    assert job.stdout.readline().strip() == "a"
    with claim("a,b", 1, tmp_path) as name:
        assert name == "b"
    job.send_signal(signal.SIGKILL)
    job.wait()
    with claim("a,b", 1, tmp_path) as name:
        assert name == "a"
