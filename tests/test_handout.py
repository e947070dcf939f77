"""What leaves the clone: notebooks without solutions that any Jupyter reads, and what they need."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from cevit_lib import __version__
from cevit_lib.runner.notebook import has_sentinel
from tools import handout, pages
from tools.form import parts

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = [page for page in pages.chapters(ROOT) if parts(ROOT)[page.stem] != "Appendix"]
ONLY_MYST = re.compile(r"\{[\w:+-]+\}`|^`{3,}\{|^:{3,}|^\([\w-]+\)=", re.MULTILINE)


def tick(text):
    return text.replace("'''", "```")


SOLVED = tick(
    "## Exercises\n\n'''{exercise-start}\n:label: ex-a\n'''\n**One** (easy). Do it.\n"
    "'''{exercise-end}\n'''\n\n'''{solution-start} ex-a\n:class: dropdown\n'''\n"
    "The answer is 42.\n\n"
    "'''{code-cell} ipython3\nsecret = 42\n'''\n\n'''{solution-end}\n'''\n\n## Where to go\n"
)


def test_a_blank_asks_for_the_numbers_that_a_solution_gives():
    solution = "x = f(2)\nassert check(\n    'ex-a', f((x + 1) * 3), -x, of=x\n)\nprint(x)"
    asks = tick(
        f"'''{{code-cell}} ipython3\n{handout.ANSWER}\n\ncheck(\"ex-a\", ..., ..., of=x)\n'''"
    )
    assert handout.blank(solution) == asks


def test_solutions_leave_empty_cells_and_nothing_else_is_lost():
    made = handout.without_solutions(SOLVED)
    assert "42" not in made and "{solution" not in made and "{exercise" not in made
    cell = tick(f"'''{{code-cell}} ipython3\n{handout.ANSWER}\n'''")
    assert made == f"## Exercises\n\n**One** (easy). Do it.\n\n{cell}\n\n## Where to go\n"


@pytest.fixture(scope="module")
def student(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("student")
    handout.write_handouts(folder, "owner/name", solutions=False)
    return folder


def test_no_chapter_uses_a_name_that_only_a_solution_makes(student):
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", student]
    done = subprocess.run(ruff, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_nothing_is_left_that_only_the_book_understands(chapter, student):
    made = nbformat.read(student / f"{chapter.stem}.ipynb", 4)
    answers = [cell for cell in made.cells if cell.source.startswith(handout.ANSWER)]
    assert has_sentinel(made) and len(answers) == chapter.read_text().count("{exercise-start}") >= 3
    text = "\n\n".join(cell.source for cell in made.cells if cell.cell_type == "markdown")
    assert not ONLY_MYST.findall(text)
    words = "|".join(handout.macros(ROOT))
    assert not re.findall(rf"\\\\(?:{words})(?![A-Za-z])", text)
    assert text.count("$$") % 2 == 0
    links = set(re.findall(r"\]\((?!http)([^)]*)\)", text))
    assert not links, f"a link to a file that is not there: {links}"


def test_a_seed_makes_a_sheet_and_its_key(tmp_path):
    read = {}
    for name, seed in {"one": 17, "again": 17, "other": 18}.items():
        sheet, key = handout.write_variants(tmp_path / name, seed)
        tasks = [each.source for each in nbformat.read(sheet, 4).cells if "minutes" in each.source]
        read[name] = tasks, key.read_text()
        assert not ONLY_MYST.findall("\n\n".join(tasks))
        assert len(tasks) == read[name][1].count("- Numbers: ") >= 12
    assert read["one"] == read["again"]
    assert all(a != b for a, b in zip(read["one"], read["other"], strict=True))


def test_links_lead_to_pages_of_the_book_and_labels_keep_their_words():
    said = handout.plain_markdown(
        "See {ref}`when-it-helps`, {ref}`its rule <verdicts>`, [loss](only_the_loss.md#x), "
        "{eq}`eq-gain`, {term}`floors <floor>` {cite}`kendall2018multi`.",
        "https://site/",
        ROOT,
    )
    pages_of = "https://site/book/executed"
    assert said == (
        f"See [When can a joint loss help?]({pages_of}/when_it_helps.html#when-it-helps), "
        f"[its rule]({pages_of}/verdicts.html#verdicts), [loss]({pages_of}/only_the_loss.html#x), "
        f"[the equation]({pages_of}/when_it_helps.html#equation-eq-gain), "
        "floors ([Kendall et al. 2018](https://site/book/references.html))."
    )
    assert handout.plain_markdown("{ref}`its rule <verdicts>`", root=ROOT) == "*its rule*"
    with pytest.raises(KeyError):
        handout.plain_markdown("{ref}`no-such-label`", root=ROOT)


def test_labels_are_those_of_pages_that_the_book_has():
    """A page that is being written has labels of its own, and no address."""
    written = {f"{name}.html" for name in pages.contents(ROOT)}
    assert {place.partition("#")[0] for _, place in handout.places(ROOT).values()} <= written


def test_a_notebook_away_from_its_folder_says_what_to_do(tmp_path, monkeypatch):
    """Nothing is fetched where the book has no address."""
    monkeypatch.setattr(os, "environ", {"CEVIT_ROOT": str(ROOT)})
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "google.colab", sys)
    monkeypatch.chdir(tmp_path)
    code = handout.handout(CHAPTERS[0]).cells[0].source.replace(f'"{__version__}"', '"9.9"')
    with pytest.raises(FileNotFoundError, match=f"unpack {handout.NAME}.zip and open"):
        exec(compile(code, "set-up", "exec"), {})


def test_boxes_equations_and_tables_are_markdown():
    text = """(a-b)=
'''{admonition} Goals
:class: tip
You will.
'''

'''{math}
:label: eq-x
\\E y = \\bm\\mu
'''

'''{list-table} Rows
:header-rows: 1

* - A
  - B
* - one

    two
  - $|x|$
'''
"""
    said = handout.plain_markdown(tick(text), root=ROOT)
    assert said.startswith("> **Goals**\n>\n> You will.\n")
    assert "$$\n\\operatorname{\\mathbb{E}} y = \\boldsymbol\\mu\n$$" in said
    table = "| A | B |\n| --- | --- |\n| one<br>two | $\\vert x\\vert $ |"
    assert f"**Rows**\n\n{table}" in said


def test_colab_keeps_solutions_and_asks_for_nothing_in_a_clone(monkeypatch):
    """What the cell installs elsewhere, test_students sees every week."""
    page = next(path for path in CHAPTERS if path.stem == "only_the_loss")
    made = handout.handout(page, "owner/name", solutions=True)
    assert handout.ANSWER not in {cell.source for cell in made.cells}
    code = made.cells[0].source
    assert "https://owner.github.io/name/student.zip" in code
    assert not re.search(r"^[!%]", code, re.MULTILINE)
    asked = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(ROOT / "notebooks")
    exec(compile(code, "set-up", "exec"), {})
    assert not asked and os.environ["CEVIT_ROOT"] == str(ROOT)


def test_what_students_get_runs_without_the_clone(tmp_path):
    """Unpacked elsewhere, the library from its wheel: one notebook to its end."""
    *_, archive = handout.write_student(tmp_path / "made")
    shutil.unpack_archive(archive, tmp_path)
    (wheel,) = (tmp_path / handout.NAME).glob("*.whl")
    site = tmp_path / "site"
    shutil.unpack_archive(wheel, site, "zip")
    tables = [path.relative_to(ROOT) for path in (ROOT / "cevit_lib").rglob("*.json")]
    assert all((site / table).is_file() for table in tables), "the library's tables come with it"
    run = (
        "import nbformat, nbclient; n = nbformat.read('only_the_loss.ipynb', 4); "
        "nbclient.NotebookClient(n, timeout=300, kernel_name='python3').execute()"
    )
    gone = {"CEVIT_ROOT", "CEVIT_RESULTS", "CEVIT_DATA"}
    env = {name: value for name, value in os.environ.items() if name not in gone}
    env |= {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    where = tmp_path / handout.NAME / "notebooks"
    done = subprocess.run(
        [sys.executable, "-c", run], cwd=where, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
