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


def test_there_are_five_commands_and_the_page_mends_what_the_first_one_finds(
    tmp_path, monkeypatch, capsys
):
    (cell,) = [cell for cell in CELLS if "commands = " in cell]
    theirs = re.search(r'^theirs = "(.+)"$', cell, re.MULTILINE).group(1)
    lines = re.findall(r"^cevit .+$", cell, re.MULTILINE)
    known = [line.format(short="--folds 2", theirs=theirs).split()[1:] for line in lines]
    assert [words[0] for words in known] == ["check-data", "fit", "report", "evaluate", "predict"]
    for words in known:
        cli.build_parser(words[0]).parse_args(words)
    folder = practice.practice_eyes(tmp_path / "clinic", np.random.default_rng(1), 40)
    monkeypatch.chdir(folder)
    check, fit, *_ = known
    assert (cli.main(check), cli.main(fit)) == (1, 2)
    assert "9 errors" in capsys.readouterr().out
    (cell,) = [cell for cell in CELLS if "rows.remove(find_row" in cell]
    names = {name: getattr(practice, name) for name in ("find_row", "read_rows", "write_rows")}
    exec(cell, {**names, "folder": folder})
    assert cli.main(check) == 0


def test_the_checklists_link_to_evidence_or_say_not_met():
    """Every item of TRIPOD+AI (27) and CLAIM 2024 (44) is answered."""
    table = REVIEW.split("| TRIPOD+AI | CLAIM 2024 |")[1].split("\n\n")[0]
    rows = [line.strip("|").split("|") for line in re.findall(r"^\| (?!---).*", table, re.M)]
    for items, last, column in (("TRIPOD+AI", 27, 0), ("CLAIM", 44, 1)):
        spans = re.findall(r"(\d+)[a-g]?(?: to (\d+))?", " ".join(row[column] for row in rows))
        found = {k for low, high in spans for k in range(int(low), int(high or low) + 1)}
        assert found == set(range(1, last + 1)), f"an item of {items} is not answered"
    assert not [row for row in rows if not re.search(r"\{ref\}|\*\*not met|no resampling", row[3])]
