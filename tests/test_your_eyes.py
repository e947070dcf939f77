"""The page "Plug in your own eyes": its five commands, on a folder with every fault."""

import hashlib
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cevit_lib.clinic import cli
from studies.your_eyes import practice

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "notebooks" / "your_eyes.md").read_text(encoding="utf-8")
REVIEW = (ROOT / "book" / "reporting.md").read_text(encoding="utf-8")
CELLS = re.findall(r"^```\{code-cell\} ipython3\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHORT = "--folds 2 --epochs 2 --copula-epochs 1 --estimate-on train --size 24"

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::cevit_lib.errors.{name}")
    for name in ("NotConvergedWarning", "NearSingularWarning")
]


def commands() -> list[str]:
    """The commands of the page, with a fit of seconds."""
    cell = next(cell for cell in CELLS if "commands = " in cell)
    theirs = re.search(r'^theirs = "(.+)"$', cell, re.MULTILINE).group(1)
    lines = re.findall(r"^cevit .+$", cell, re.MULTILINE)
    return [line.format(short=SHORT, theirs=theirs) for line in lines]


@pytest.fixture
def clinic(tmp_path, monkeypatch):
    folder = practice.practice_eyes(tmp_path / "clinic", np.random.default_rng(1), 40)
    monkeypatch.chdir(folder)
    return folder


def run(line: str) -> int:
    return cli.main(shlex.split(line)[1:])


def mend(folder: Path) -> None:
    """Do what the page does to its table, by the page's own cell."""
    (cell,) = [cell for cell in CELLS if "rows.remove(find_row" in cell]
    names = {name: getattr(practice, name) for name in ("find_row", "read_rows", "write_rows")}
    exec(cell, {**names, "folder": folder})


def hashes(folder: Path) -> dict:
    return {
        path: hashlib.sha256(path.read_bytes()).digest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_there_are_five_commands_and_they_go_from_a_folder_to_predictions(clinic, capsys):
    check, fit, report, evaluate, update = commands()
    before = hashes(clinic)
    assert run(check) == 1
    out = capsys.readouterr().out
    assert "9 errors" in out and "20 warnings" in out
    assert run(fit) == 2
    said = capsys.readouterr().err
    assert (
        "9 errors in all" in said
        and "Nothing was fitted" in said
        and len(said.strip().splitlines()) == 1
    )
    assert hashes(clinic) == before
    mend(clinic)
    assert run(check) == 0 and "0 errors" in capsys.readouterr().out
    before = hashes(clinic)
    assert run(fit) == 0 and run(report) == 0
    practice.practice_eyes(clinic / "new", np.random.default_rng(2), 12, faults=False)
    rows = practice.read_rows(clinic / "new" / "eyes.csv")
    practice.write_rows(clinic / "new" / "eyes.csv", [[f"B{row[0]}", *row[1:]] for row in rows])
    assert run(evaluate) == 0 and run(update) == 0
    after = hashes(clinic)
    assert all(after[path] == digest for path, digest in before.items())
    for page in ("report.html", "evaluation-eyes.html"):
        assert "Not for clinical use" in (clinic / page).read_text()
    table = clinic / "updated.csv"
    assert table.read_text().startswith("# not for clinical use")
    updated = pd.read_csv(table, comment="#", dtype={"id": str})
    assert updated["id"].tolist() == [f"B{i:03d}" for i in range(12)]
    left = updated["updated upper AL_OS"] - updated["updated lower AL_OS"]
    assert (
        left.notna().all() and updated["updated mean AL_OD"].isna().all()
    )  # the right eyes are measured
    assert (left < updated["upper AL_OS"] - updated["lower AL_OS"]).mean() > 0.5


def test_the_checklists_link_to_evidence_or_say_not_met():
    table = REVIEW.split("| TRIPOD+AI | CLAIM 2024 |")[1].split("\n\n")[0]
    rows = [
        line.strip("|").split("|")
        for line in table.splitlines()
        if line.startswith("| ") and "---" not in line
    ]
    assert len(rows) > 25
    claim, tripod = set(), set()
    for row in rows:
        assert "{ref}" in row[3] or "**not met**" in row[3] or "no resampling" in row[3], row
        for found, cell in ((tripod, row[0]), (claim, row[1])):
            for first, last in re.findall(r"(\d+)(?:[a-g])?(?: to (\d+))?", cell):
                found |= set(range(int(first), int(last or first) + 1))
    assert tripod == set(range(1, 28)) and claim == set(range(1, 45)), (
        "an item of a checklist is not answered"
    )
    both = PAGE + REVIEW
    labels = set(re.findall(r"^\((own-[a-z]+)\)=$", both, re.MULTILINE))
    assert set(re.findall(r"\{ref\}`(own-[a-z]+)`", both)) <= labels
    assert "Nothing here is for clinical use" in PAGE
