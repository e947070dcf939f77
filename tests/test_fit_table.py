"""Fit and predict on a table of one's own: any responses, absent eyes, intervals, updates."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

from cevit_lib.clinic import cli
from cevit_lib.clinic.tables import (
    conditional_interval,
    marginal_interval,
    patient_table,
)
from cevit_lib.copula import (
    CopulaLoss,
    CopulaParameters,
    EmpiricalLoss,
    class_probabilities,
    condition_on,
)
from cevit_lib.datasets import SyntheticPairs
from cevit_lib.records.store import read_record
from cevit_lib.training import Fit, Predictions, Standardisation, predict_outputs
from studies.your_eyes.practice import find_row, practice_eyes, read_rows, write_rows

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::cevit_lib.errors.{name}")
    for name in ("NotConvergedWarning", "NearSingularWarning")
]
NAN = float("nan")
GAMMA = [
    [1.0, 0.7, -0.5, -0.3],
    [0.7, 1.0, -0.35, -0.45],
    [-0.5, -0.35, 1.0, 0.6],
    [-0.3, -0.45, 0.6, 1.0],
]
PARAMETERS = CopulaParameters(
    torch.tensor(GAMMA, dtype=torch.float64), torch.tensor([0.8, 1.1], dtype=torch.float64)
)
NAMES = ("AL_OS", "AL_OD", "HM_OS", "HM_OD")
OUTPUTS = torch.tensor(
    [[24.0, 24.5, 0.4, -0.3], [26.0, 25.0, 2.0, -1.5], [23.0, 23.2, -3.0, 0.1]], dtype=torch.float64
)
SHORT = "--folds 2 --epochs 2 --copula-epochs 1 --estimate-on train --size 24 --max-iter 20".split()


def cevit(*words) -> int:
    return cli.main([str(word) for word in words])


def said_by(capsys, *words) -> str:
    assert cevit(*words) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and "Traceback" not in lines[0]
    return lines[0]


@pytest.fixture(scope="module")
def eyes(tmp_path_factory):
    """Thirty pairs: 001 has a photograph of the left eye only, 002 no length of the right one."""
    folder = practice_eyes(
        tmp_path_factory.mktemp("eyes") / "own", np.random.default_rng(0), 30, faults=False
    )
    rows = read_rows(folder / "eyes.csv")
    find_row(rows, "001", "R")[4] = ""
    find_row(rows, "002", "R")[2] = ""
    write_rows(folder / "eyes.csv", rows)
    return folder


@pytest.fixture(scope="module")
def places(eyes):
    """The same pairs in a table with more columns."""
    rows = [(*row, "MF"[int(row[0]) % 2], 50 + int(row[0])) for row in read_rows(eyes / "eyes.csv")]
    table = pd.DataFrame(rows, columns="id side axial_length se photo sex age".split())
    table["site"] = ["AABAC"[int(patient) % 5] for patient in table["id"]]
    table.to_csv(eyes.parent / "table.csv", index=False)
    return ["--csv", eyes.parent / "table.csv", "--images", eyes / "photos"]


@pytest.fixture(scope="module")
def done(eyes):
    """Both folds and a model of all patients."""
    before, out = hashes(eyes), eyes.parent / "out"
    words = ["--results", out, "--final", "--save", out / "models", "--table", out / "cv.csv"]
    assert cevit("fit", *own(eyes), *SHORT, *words) == 0
    assert hashes(eyes) == before, "a command changed somebody's files"
    return out


def hashes(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: hashlib.sha256(path.read_bytes()).digest() for path in files}


def own(folder) -> list:
    """The options that name a table, its photographs and its layout."""
    table, photos, layout = folder / "eyes.csv", folder / "photos", folder / "eyes.yml"
    return ["--csv", table, "--images", photos, "--layout", layout]


def read(path) -> pd.DataFrame:
    assert path.read_text().startswith("# not for clinical use")
    return pd.read_csv(path, comment="#", dtype={"id": str}).set_index("id")


def test_every_patient_is_predicted_and_nothing_is_said_of_an_eye_that_was_not_seen(done):
    table = read(done / "cv.csv")
    assert list(table.index) == [f"{i:03d}" for i in range(30)]
    one = table.loc["001"]
    assert (
        one["photographs"] == "OS"
        and np.isfinite(one["mean AL_OS"])
        and np.isfinite(one["probability HM_OS"])
    )
    assert (
        one[["mean AL_OD", "lower AL_OD", "probability HM_OD", "joint 00", "any HM", "class HM_OS"]]
        .isna()
        .all()
    )
    assert table.drop(index="001").notna().all().all()


def test_the_record_names_no_place_and_the_same_command_again_fits_nothing(done, eyes, capsys):
    records = [read_record(path) for path in (done / "fit-table").glob("*.json")]
    assert sorted(record["configuration"]["fold"] for record in records) == [0, 1, 2]
    assert not any(str(eyes) in json.dumps(record) for record in records)
    assert len({record["data"]["split"] for record in records}) == 3
    words = ["fit", *own(eyes), *SHORT, "--results", done]
    assert cevit(*words, "--fold", "2", "--fold", "2") == 0  # no patient counts twice
    said = capsys.readouterr().out
    assert "exists, skipped" in said and "1 of 2 folds; predictions of 15 patients" in said
    assert cevit(*words, "--batch-size", "7", "--save", done / "models") == 2
    assert "is the model of another fit" in capsys.readouterr().err


def test_patients_without_responses_are_read_by_the_models_own_layout(done, eyes, tmp_path, capsys):
    lines = (eyes / "eyes.csv").read_text(encoding="utf-8-sig").splitlines()
    slim = [",".join((row[0], row[1], row[4])) for row in (line.split(";") for line in lines)]
    (tmp_path / "new.csv").write_text("\n".join(slim) + "\n")
    words = ["predict", "--model", done / "models" / "all", "--images", eyes / "photos"]
    tables = []
    for table in (tmp_path / "new.csv", eyes / "eyes.csv"):
        assert cevit(*words, "--csv", table, "--table", tmp_path / "p.csv") == 0
        tables.append(read(tmp_path / "p.csv"))
    pd.testing.assert_frame_equal(*tables)
    assert cevit("check-data", *words[1:], "--csv", tmp_path / "new.csv") == 0
    assert "30 of 30 patients have ids of patients on whom" in capsys.readouterr().out


def test_a_table_is_checked_beside_a_model(done, eyes, tmp_path, capsys):
    (tmp_path / "other.yml").write_text((eyes / "eyes.yml").read_text().replace("-6", "-3"))
    words = ["--model", done / "models" / "all", "--layout", tmp_path / "other.yml"]
    assert cevit("check-data", *words, *own(eyes)[:4]) == 1
    assert "use the model's rule" in capsys.readouterr().out


def test_what_is_measured_updates_the_rest_and_only_that(done, eyes, tmp_path, capsys):
    words = ["predict", "--model", done / "models" / "all", *own(eyes)[:4]]
    assert cevit(*words, "--table", tmp_path / "plain.csv") == 0
    assert "30 of 30 patients have ids of patients on whom" in capsys.readouterr().out
    assert cevit(*words, "--table", tmp_path / "right.csv", "--measured", "OD") == 0
    assert cevit(*words, "--table", tmp_path / "all.csv", "--measured") == 0
    plain, right, whole = (read(tmp_path / f"{name}.csv") for name in ("plain", "right", "all"))
    pd.testing.assert_frame_equal(right[plain.columns], plain)
    seen = right.drop(index=["001", "002"])
    assert seen["updated mean AL_OS"].notna().all() and right[
        "updated mean AL_OD"
    ].dropna().index.tolist() == ["002"]
    # nothing measured there but the eye without photograph
    assert right.filter(like="updated").loc["001"].isna().all()
    # all other lengths are measured
    assert whole["updated mean AL_OD"].dropna().index.tolist() == ["002"]


def test_a_report_is_complete_in_itself_and_replaces_only_a_report(done, tmp_path):
    path = tmp_path / "report.html"
    asked = ["--within", "AL=0.5", "--prevalence", "HM=0.05"]
    assert cevit("report", "--results", done, "--output", path, *asked) == 0
    text = path.read_text()
    told = ["Not for clinical use", "no skill", "share within 0.5", "<td>0.05", "HM: se &lt;= -6"]
    assert [words for words in told if words not in text] == []
    assert text.count("<img alt=") == 3 and 'src="http' not in text
    assert cevit("report", "--results", done, "--output", path) == 0


def test_another_clinics_patients_are_judged_and_those_of_the_fit_recognised(
    done, tmp_path, capsys
):
    new = practice_eyes(tmp_path / "new", np.random.default_rng(9), 24, faults=False)
    page = tmp_path / "page.html"
    words = ["evaluate", "--model", done / "models" / "all", *own(new)[:4], "--output", page]
    rows = read_rows(new / "eyes.csv")
    for row in rows:
        # without zeros or as a spreadsheet's number he is still known
        row[0] = {"007": "7", "008": "8.0"}.get(row[0], f"B{row[0]}")
    write_rows(new / "eyes.csv", rows)
    assert cevit(*words) == 0
    said = capsys.readouterr().out
    assert "2 of 24 patients have ids of patients on whom the model was fitted (7, 8.0)" in said
    assert "in the large" in page.read_text()
    seen = [[*row[:2], *((row[2], "-1") if row[1] == "R" else ("", "")), row[4]] for row in rows]
    write_rows(new / "eyes.csv", seen)  # another clinic may have measured right eyes only
    assert cevit(*words) == 0
    said = capsys.readouterr().out
    assert "nobody has it observed: AL_OS, HM_OS" in said and "nan" not in said
    write_rows(new / "eyes.csv", [[*row[:2], "", "", row[4]] for row in rows])
    assert "no response was observed" in said_by(capsys, *words)


@pytest.mark.parametrize(
    "words, told",
    [
        ("predict {model} {eyes} --table {csv}", "left as it is"),
        ("predict {model} {eyes} --table {models}/all/model.json", "left as it is"),
        ("fit {eyes} {layout} --table {layout_file}", "left as it is"),
        ("predict {model} {eyes} --table {photos}", "is a folder"),
        ("fit {eyes} {layout} --save {photos}", "is read by this command and left as it is"),
        ("fit --csv {csv} {layout}", "--csv needs --images"),
        ("fit --csv {csv} --data synthetic", "--data grape or synthetic"),
        ("predict --model {models} {eyes} {new}", "{models}/all"),
        ("predict --model {nowhere} {eyes} {new}", "is no saved model"),
        ("predict {model} {eyes} {new} --layout {other}", "Use the model's own layout"),
        ("fit {eyes} {layout} --final", "--final"),
        ("fit --csv {csv} --images {nowhere} {layout}", "does not exist"),
        ("fit {eyes} --layout {nowhere}", "nowhere cannot be read"),
        ("fit {eyes} {layout} --folds 15", "fewer folds"),
        ("fit {eyes} {layout} --backbone vit_nosuch", "vit_nosuch"),
        ("fit {eyes} {layout} --weights {nowhere}", "nowhere: No such file"),
        ("fit {eyes} {layout} --device quantum", "device 'quantum' cannot be used here"),
        ("report --results {nowhere} --output {report}", "no record of study 'fit-table'"),
        ("report --results {out} --output {other}", "left as it is"),
        ("report --results {out} --output {report} --within HM=1", "the names here are AL, AL_OS"),
        ("evaluate {model} {eyes} --layout {higher} --output {report}", "use the model's rule"),
        ("predict {model} {eyes} {new} --measured --layout {higher}", "use the model's rule"),
        ("evaluate {model} {eyes} --output {csv}", "left as it is"),
        ("evaluate {model} {eyes} --output {report} --within HM=1", "the names here are AL, AL_OS"),
    ],
)
def test_bad_input_is_a_sentence_and_nothing_is_overwritten(
    done, eyes, tmp_path, capsys, words, told
):
    places = {
        "csv": eyes / "eyes.csv",
        "photos": eyes / "photos",
        "layout_file": eyes / "eyes.yml",
        "models": done / "models",
        "out": done,
        "nowhere": tmp_path / "nowhere",
        "higher": tmp_path / "higher.yml",
        "other": tmp_path / "other.yml",
        "report": tmp_path / "report.html",
        "model": f"--model {done / 'models' / 'all'}",
        "eyes": f"--csv {eyes / 'eyes.csv'} --images {eyes / 'photos'}",
        "layout": f"--layout {eyes / 'eyes.yml'}",
        "new": f"--table {tmp_path / 'x.csv'}",
    }
    places["higher"].write_text((eyes / "eyes.yml").read_text().replace("-6", "-3"))
    places["other"].write_text((eyes / "eyes.yml").read_text().replace("HM:", "myopia:"))
    more = [*SHORT, "--results", tmp_path] if words.startswith("fit") else []
    command, *rest = words.format(**places).split()
    before, told = hashes(tmp_path), told.format(**places)
    assert told in said_by(capsys, command, *more, *rest) and hashes(tmp_path) == before


@pytest.mark.parametrize(
    "layout, tasks, responses",
    [
        (
            {"continuous": {"SE": "se", "se": "axial_length"}},
            ("continuous", "continuous"),
            ("SE_OS", "SE_OD", "se_OS", "se_OD"),  # names differ in case only
        ),
        ({"binary": {"HM": "se <= -6"}}, ("binary",), ("HM_OS", "HM_OD")),
        (
            {
                "continuous": {"AL": "axial_length"},
                "binary": {"HM": "se <= -6", "male": "sex == M"},
                "patient_level": ["male"],
            },
            ("continuous", "binary", "patient binary"),
            ("AL_OS", "AL_OD", "HM_OS", "HM_OD", "male"),
        ),
    ],
)
def test_any_declared_responses_have_their_heads(places, tmp_path, layout, tasks, responses):
    (tmp_path / "eyes.yml").write_text(
        json.dumps({"patient": "id", "eye": "side", "image": "photo", **layout})
    )
    longer = [*SHORT, *"--epochs 6 --learning-rate 3e-3 --max-iter 5".split()]
    more = ["--layout", tmp_path / "eyes.yml", "--results", tmp_path, "--save", tmp_path]
    assert cevit("fit", *places, *longer, *more, "--table", tmp_path / "cv.csv") == 0
    stored = json.loads((tmp_path / "fold-1" / "model.json").read_text())
    assert tuple(stored["encoder"]["tasks"]) == tasks and tuple(stored["responses"]) == responses
    new = ["--table", tmp_path / "new.csv", "--measured", "OS"]
    assert cevit("predict", "--model", tmp_path / "fold-2", *places, *new) == 0
    table = read(tmp_path / "new.csv")
    assert len(table) == 30 and table.filter(like="updated").notna().any().any()
    assert cevit("report", "--results", tmp_path, "--output", tmp_path / "report.html") == 0


KNEES = """\
patient: id
organ: knee
eye: side
image: photo
continuous: {gap: axial_length}
binary: {pain: se < -5}
covariates: {age: age, site: site}
size: 24
"""


@pytest.mark.weekly
def test_knees_are_knees_in_every_message_and_page(places, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("knees.yml").write_text(KNEES)
    for line in (
        "check-data --layout knees.yml --folds 2",
        "fit --layout knees.yml --folds 2 --final --save models --epochs 2 --copula-epochs 1 "
        "--estimate-on train --max-iter 20 --rotation 10 --colour 0.2",
        "predict --model models/all --table predicted.csv --measured left",
        "evaluate --model models/all --output evaluation.html",
    ):
        assert cevit(*line.split(), *places) == 0
    assert cevit(*"report --results cevit-results --output report.html".split()) == 0
    said = "".join(capsys.readouterr())
    pages = [Path(name).read_text() for name in ("report.html", "evaluation.html")]
    # the layout, as it was written, names its keys
    written = re.compile('src="[^"]*"|<td>patient:.*?</td>', re.DOTALL)
    words = [written.sub("", page) for page in pages]
    texts = [said, Path("predicted.csv").read_text(), *words]
    assert all("gap_left" in text and "both pain" in text for text in texts[1:])
    for text in texts:
        # but in names of photographs
        assert not re.findall(r".{0,40}(?:\beyes?\b|[a-z]_O[SD]\b|\bO[SD]\b)", text)
    assert "beside them age, site b, site c" in words[0]
    stored = json.loads(Path("models/all/model.json").read_text())
    assert stored["domains"] == ["left", "right"] and len(stored["encoder"]["covariates"]) == 3


def test_intervals_are_normal_before_and_exact_after_a_measurement():
    low, high = marginal_interval(OUTPUTS, PARAMETERS, 0.9)
    torch.testing.assert_close(
        norm.cdf(high - OUTPUTS[:, :2], scale=PARAMETERS.scale), np.full((3, 2), 0.95)
    )
    torch.testing.assert_close(low + high, 2 * OUTPUTS[:, :2])
    y = torch.tensor([[NAN, 25.9, NAN, NAN]] * 3, dtype=torch.float64)
    low, high = conditional_interval(
        OUTPUTS, y, PARAMETERS, 0, 0.8
    )  # two normals: the textbook's formula
    mean = OUTPUTS[:, 0] + 0.7 * 0.8 / 1.1 * (25.9 - OUTPUTS[:, 1])
    half = norm.ppf(0.9) * 0.8 * np.sqrt(1 - 0.7**2)
    torch.testing.assert_close(low, mean - half, atol=2e-3, rtol=0)
    torch.testing.assert_close(high, mean + half, atol=2e-3, rtol=0)


def test_intervals_given_labels_agree_with_simulated_patients():
    """Draw patients of the model, keep those with the labels, and read the quantiles off."""
    rng = np.random.default_rng(5)
    z = rng.multivariate_normal(np.zeros(4), GAMMA, size=2_000_000)
    labels = z[:, 2:] > norm.ppf(1 / (1 + np.exp(OUTPUTS[0, 2:].numpy())))
    kept = 24.0 + 0.8 * z[labels[:, 0] & ~labels[:, 1], 0]
    y = torch.tensor([[NAN, NAN, 1.0, 0.0]], dtype=torch.float64)
    low, high = conditional_interval(OUTPUTS[:1], y, PARAMETERS, 0, 0.9)
    for end, at in ((low, 0.05), (high, 0.95)):
        below = (kept <= float(end)).mean()
        assert abs(below - at) < 4 * np.sqrt(at * (1 - at) / len(kept))


def test_any_and_both_are_sums_of_cells_and_updates_are_conditional_probabilities():
    y = torch.tensor(
        [[NAN, 25.0, NAN, 1.0], [NAN] * 4, [23.0, 23.5, NAN, NAN]], dtype=torch.float64
    )
    predictions = Predictions(("a", "b", "c"), NAMES, OUTPUTS, PARAMETERS)
    table = patient_table(predictions, measured=y).set_index("id")
    cells = class_probabilities(OUTPUTS, PARAMETERS)
    expected = np.stack([1 - cells[:, 0, 0], cells[:, 1, 1]], 1)
    np.testing.assert_allclose(table[["any HM", "both HM"]], expected, atol=1e-12)
    known = condition_on(OUTPUTS, y, PARAMETERS)
    assert table.loc["a", "updated mean AL_OS"] == pytest.approx(float(known.mean[0, 0]), abs=1e-12)
    assert table.loc["a", "updated both HM"] == pytest.approx(
        float(known.probability[0, 0]), abs=1e-12
    )
    assert table.loc["a", "updated any HM"] == 1  # the right eye's label is 1
    assert table.filter(like="updated").loc["b"].isna().all()
    given = class_probabilities(OUTPUTS, PARAMETERS, y)[
        2
    ]  # lengths measured, no label: the joint cells are exact
    assert table.loc["c", "updated both HM"] == pytest.approx(float(given[1, 1]), abs=1e-9)


class OnAppleGpu(torch.Tensor):
    """Stands for a tensor on a device that refuses float64; only ``cpu`` brings it away."""

    @property
    def device(self):
        return torch.device("mps", 0)

    def double(self):
        raise TypeError("float64 on the device")

    def cpu(self):
        return self.as_subclass(torch.Tensor)


@pytest.mark.parametrize("missing", [False, True])
def test_the_losses_ask_an_apple_gpu_for_no_float64(missing):
    here = OUTPUTS.float().clone().requires_grad_()
    y = torch.tensor([[24.0, NAN if missing else 25.0, 1.0, 0.0]] * 3)
    assert EmpiricalLoss(p0=2, validate=False)(here, y).dtype == torch.float32
    loss = CopulaLoss(PARAMETERS, reduction="mean")
    expected = loss(here, y)
    expected.backward()
    there = here.detach().clone().as_subclass(OnAppleGpu).requires_grad_()
    found = loss(there, y.as_subclass(OnAppleGpu))  # brought to the CPU, or `double` would refuse
    found.backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(there.grad.as_subclass(torch.Tensor), here.grad)


def test_outputs_leave_the_device_before_they_become_float64(monkeypatch):
    data = SyntheticPairs(6, np.random.default_rng(0), window=9)
    monkeypatch.setattr(
        "cevit_lib.training.fit.outputs_of",
        lambda *a: torch.zeros(6, 4).as_subclass(OnAppleGpu),
    )
    known = Fit(
        torch.nn.Identity(), Standardisation.none(2), None, [], data.responses, 2, data.domains
    )
    assert predict_outputs(known, data).dtype == torch.float64
