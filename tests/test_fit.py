"""The commands fit and predict: a record a fold, nothing fitted twice, a table of predictions."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from cevit_lib import clinic as fit
from cevit_lib.clinic import cli, commands
from cevit_lib.clinic.fold import build_model
from cevit_lib.clinic.options import ARMS
from cevit_lib.errors import NotConvergedWarning, OutputError, ParameterError
from cevit_lib.records import new_record, rounded
from cevit_lib.records.store import read_record

pytestmark = pytest.mark.filterwarnings("ignore::cevit_lib.errors.NotConvergedWarning")

SMALL = "--data synthetic --n 90 --window 9 --scale smoke".split()
LITTLE = [*SMALL, *"--epochs 1 --copula-epochs 1 --folds 3".split()]


def options(*words, command: str = "fit"):
    return cli.build_parser(command).parse_args([command, *map(str, words)])


def test_a_record_that_finds_no_room_is_kept_elsewhere(tmp_path, monkeypatch):
    record = new_record("fit-synthetic", {"n": 1}, [0], {}, scale="smoke")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "full").write_text("no folder")
    with pytest.raises(OutputError, match="cevit-kept.*move it there"):
        commands._write(record, tmp_path / "full")
    (kept,) = (tmp_path / "cevit-kept").rglob("*.json")
    assert read_record(kept)["id"] == record["id"]


@pytest.mark.parametrize(
    "words, message",
    [
        ("--fold 4", "--fold 4: there are folds 1 to 3"),
        ("--max-iter 9 --preset paper", "--max-iter does not go with --preset paper"),
        ("--max-iter 9 --estimator gaussian-score", "does not go with --estimator gaussian-score"),
        ("--algorithm one-stage --preset paper", "does not go with --algorithm one-stage"),
        ("--algorithm one-stage", "--copula-epochs does not go with --algorithm one-stage"),
        ("--data grape", "--n does not go with --data grape and would"),
        ("--layout x", "--layout does not go with"),
        ("--colour 1", "--colour does not go with"),
        ("--pretrained", "--backbone tiny, which has none"),
    ],
)
def test_impossible_options_are_named(words, message):
    with pytest.raises(ParameterError, match=message):
        fit.run_fit(options(*LITTLE, *words.split()))


def test_the_estimator_stops_where_it_is_told_and_a_plain_fit_keeps_its_identity(tmp_path):
    short = options(*LITTLE, "--fold", "1", "--max-iter", "2", "--results", tmp_path)
    with pytest.warns(NotConvergedWarning, match="2 iterations"):
        assert fit.run_fit(short) == 0
    assert "estimator_settings" not in fit.configuration_of(options(*LITTLE), 1)
    (record,) = (read_record(path) for path in (tmp_path / "fit-synthetic").glob("*.json"))
    assert record["configuration"]["estimator_settings"] == {"max_iter": 2}
    assert set(record["metrics"]) == set(ARMS)
    assert fit.refit(record)["parameters"] == record["parameters"]


def test_one_stage_trains_with_its_control_and_the_report_reads_it(tmp_path, capsys):
    words = "--epochs 2 --folds 2 --fold 1 --algorithm one-stage --estimate-on cross-fitted".split()
    places = ["--results", tmp_path, "--save", tmp_path / "models"]
    assert fit.run_fit(options(*SMALL, *words, *places)) == 0
    assert "one stage, epoch 2 of 2" in capsys.readouterr().err
    (record,) = (read_record(path) for path in (tmp_path / "fit-synthetic").glob("*.json"))
    assert list(record["metrics"]) == list(ARMS[1:])
    assert [entry["stage"] for entry in record["trace"]] == 2 * ["one stage"] + 2 * [ARMS[1]]
    estimates = [entry["estimate"]["correlation"] for entry in record["trace"][:2]]
    assert estimates[0] != estimates[1] == rounded(record["parameters"]["correlation"])
    page = ["--results", tmp_path, "--study", "fit-synthetic", "--output", tmp_path / "page.html"]
    assert fit.run_report(options(*page, command="report")) == 0
    assert "one stage: 2 epochs" in (tmp_path / "page.html").read_text()
    assert fit.refit(record)["predictions"] == record["predictions"]


def test_weights_are_known_by_their_hash_and_never_by_their_path(tmp_path):
    torch.save({}, tmp_path / "vit.pth")
    chosen = options(*LITTLE, "--weights", tmp_path / "vit.pth")
    configuration = fit.configuration_of(chosen, 1)
    assert (
        str(tmp_path) not in json.dumps(configuration)
        and len(configuration["encoder"]["weights"]) == 16
    )
    data = fit.load_data(configuration["data"])
    with pytest.raises(ParameterError, match="CEVIT_WEIGHTS"):
        build_model(configuration, data, np.random.default_rng(0))


def test_grape_ends_with_a_record_and_a_table(grape_folder, tmp_path):
    words = "--data grape --size 24 --epochs 1 --copula-epochs 1 --estimate-on train --fold 2"
    places = ["--data-folder", grape_folder, "--results", tmp_path]
    assert fit.run_fit(options(*words.split(), "--scale", "smoke", *places)) == 0
    record = read_record(next((tmp_path / "fit-grape").glob("*.json")))
    assert record["data"]["patients"] == 112 and len(record["predictions"]["id"]) in (22, 23)
    assert "folder" not in record["configuration"]["data"]
    table = pd.read_csv(next((tmp_path / "fit-grape").glob("*.csv")), comment="#")
    assert table["mean RNFL_OS (um)"].between(30, 150).all()
