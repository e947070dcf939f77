"""The page "Plug in your own eyes": its five commands, on a folder with every fault."""

import re
from pathlib import Path

import numpy as np

from cevit_lib.clinic import cli
from studies.your_eyes import practice

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "notebooks" / "your_eyes.md").read_text(encoding="utf-8")
REVIEW = (ROOT / "book" / "reporting.md").read_text(encoding="utf-8")
CELLS = re.findall(r"^```\{code-cell\} ipython3\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """The words of the page's commands, with a fit of seconds."""
    cell = next(cell for cell in CELLS if "commands = " in cell)
    theirs = re.search(r'^theirs = "(.+)"$', cell, re.MULTILINE).group(1)
    lines = re.findall(r"^cevit .+$", cell, re.MULTILINE)
    return [line.format(short="--folds 2", theirs=theirs).split()[1:] for line in lines]


def test_there_are_five_commands_and_the_page_mends_what_the_first_one_finds(
    tmp_path, monkeypatch, capsys
):
    check, fit, *_ = known = commands()
    assert [words[0] for words in known] == ["check-data", "fit", "report", "evaluate", "predict"]
    for words in known:
        cli.build_parser(words[0]).parse_args(words)
    folder = practice.practice_eyes(tmp_path / "clinic", np.random.default_rng(1), 40)
    monkeypatch.chdir(folder)
    assert cli.main(check) == 1
    out = capsys.readouterr().out
    assert "9 errors" in out and "20 warnings" in out
    assert cli.main(fit) == 2
    said = capsys.readouterr().err
    assert "9 errors in all. Nothing was fitted" in said and len(said.strip().splitlines()) == 1
    (cell,) = [cell for cell in CELLS if "rows.remove(find_row" in cell]
    names = {name: getattr(practice, name) for name in ("find_row", "read_rows", "write_rows")}
    exec(cell, {**names, "folder": folder})
    assert cli.main(check) == 0 and "0 errors" in capsys.readouterr().out


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
