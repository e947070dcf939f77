"""Notebooks that leave the clone: for students, without solutions, and for Colab.

JupyterLab and Colab know Markdown and LaTeX only, so that no role, label or directive of MyST is
left and macros are written out. What leads to another place of the book becomes a link to the
published page, or its title where the book has no address. A first cell finds the folder that a
notebook came in and installs what is missing; torch is never replaced.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import nbformat
import numpy as np
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell
from pybtex.database import parse_file

from cevit_lib import __version__
from cevit_lib.errors import NotebookError
from cevit_lib.paths import project_root
from cevit_lib.runner.notebook import read_notebook
from studies.exercises import EXERCISES, variant
from tools.pages import chapters
from tools.sphinx_extension import site_address

ANSWER = "# your answer"
NAME = f"cevit-{__version__}-student"
PARTS = ("studies", "results")  # beside the library's wheel
_SOLUTION = re.compile(
    r"^```\{solution-start\}.*?^```\{solution-end\}\s*^```$", re.MULTILINE | re.DOTALL
)
# a call with parentheses inside parentheses at most
_CHECK = re.compile(r"\bcheck\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_EXERCISE = re.compile(
    r"^```\{exercise-start\}\n:label: (\S+)\n```\n(.*?)^```\{exercise-end\}",
    re.MULTILINE | re.DOTALL,
)
_EXERCISE_MARK = re.compile(r"^```\{exercise-(?:start|end)\}.*?^```\n?", re.MULTILINE | re.DOTALL)
_SET_UP = """# Finds the folder that this notebook came in, and installs what is missing.
import importlib.metadata as installed
import os
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

folder, name, archive = Path.cwd(), "{name}", "{archive}"
if archive and "google.colab" in sys.modules and not (folder / name).is_dir():
    urllib.request.urlretrieve(archive, "student.zip")
    zipfile.ZipFile("student.zip").extractall(folder)
places = [folder / name, folder, *folder.parents]
root = next((p for p in places if (p / "results").is_dir() and (p / "studies").is_dir()), folder)
os.environ.setdefault("CEVIT_ROOT", str(root))
sys.path.insert(0, os.environ["CEVIT_ROOT"])
have = {{each.metadata["Name"].lower(): each.version for each in installed.distributions()}}
if have.get("cevit-lib") != "{version}" or "peft" not in have:
    wheels = sorted(root.glob("cevit_lib-*.whl"))
    if not wheels:
        told = f"no library in {{root}} or above: unpack {{name}}.zip and open its notebooks there"
        raise FileNotFoundError(told)
    wanted = [f"{{wheels[0]}}[vit,clinic,notebook]"]
    wanted += [f"{{p}}=={{have[p]}}" for p in ("torch", "torchvision") if p in have]  # stay
    subprocess.run([sys.executable, "-m", "pip", "install", *wanted], check=True)

from studies.exercises import check  # of your numbers
"""

RUBRIC = """# Key

Half of the points for the numbers, half for the reasoning that the last line of each exercise
names. Numbers without a reasoning get no points; a slip that is carried on correctly costs a
quarter. Easy: 2 points, medium: 4, hard: 6.
"""
_KEY = """{title}.

- Numbers: {told}; accept what is within {own.within:g}, of the number where it is larger than one.
- Reasoning: {own.answer.__doc__}
"""

_TARGET = re.compile(r"^\([\w-]+\)=$\n?", re.MULTILINE)
_FENCED = re.compile(
    r"^```\{([\w-]+)\} *([^\n]*)\n((?::[\w-]+:[^\n]*\n)*)(.*?)^```$\n?", re.MULTILINE | re.DOTALL
)
_ROLE = re.compile(r"\{([\w:]+)\}`(?:([^`<]*?)\s*<)?([^`<>]+)>?`")  # kind, words <, label
_PAGE_LINK = re.compile(
    r"\[([^\]]+)\]\((?!\w+:)(?:\.\./)?(?:book/|notebooks/)?(\w+)\.md(#[\w-]+)?\)"
)
_MATH = re.compile(r"\$[^$]+\$")


@cache
def places(root: Path) -> dict[str, tuple[str, str]]:
    """Return label -> (what it is called, where it stands on the site), from the book's pages."""
    found: dict[str, tuple[str, str]] = {}
    for source in (*chapters(root), *root.glob("book/*.md")):
        folder = "book/executed" if source.parent.name == "notebooks" else "book"
        page, text = f"{folder}/{source.stem}.html", source.read_text(encoding="utf-8")
        for label, title in re.findall(r"^\(([\w-]+)\)=\n#+ (.+)$", text, re.MULTILINE):
            found.setdefault(label, (title, f"{page}#{label}"))
        for label, task in _EXERCISE.findall(text):
            found[label] = f"exercise “{task.split('**')[1]}”", f"{page}#{label}"
        for label in re.findall(r"^:label: (eq-[\w-]+)$", text, re.MULTILINE):
            found[label] = "the equation", f"{page}#equation-{label}"
        for label in re.findall(r"^ *:?name: ((?:fig|tab)-[\w-]+)$", text, re.MULTILINE):
            found[label] = "the figure" if label[:3] == "fig" else "the table", f"{page}#{label}"
        found.setdefault(source.stem, (re.search(r"^# (.+)$", text, re.MULTILINE)[1], page))
    return found


@cache
def macros(root: Path) -> dict[str, str]:
    """Return what each macro of the book's formulas stands for."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    named = config["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]
    # those with an argument wrap it in one command, which takes it as it is written
    return {k: (v if isinstance(v, str) else v[0].removesuffix("{#1}")) for k, v in named.items()}


@cache
def _works(root: Path) -> dict[str, str]:
    """Return citation key -> ``Kendall et al. 2018``."""
    told = {}
    for key, entry in parse_file(str(root / "book" / "references.bib")).entries.items():
        people = [" ".join(each.last_names) for each in entry.persons["author"]]
        names = people[0] + (
            " et al." if len(people) > 2 else "".join(f" and {p}" for p in people[1:])
        )
        told[key] = f"{names} {entry.fields['year']}"
    return told


def plain_markdown(text: str, site: str | None = None, root: Path | None = None) -> str:
    """Return a page's text, or a cell's, without anything that only MyST understands.

    Parameters
    ----------
    text : str
        MyST Markdown without code cells.
    site : str, optional
        Address of the published book, with its last slash.
    root : Path, optional
        The clone whose labels and macros count.
    """
    root = root or project_root()

    def link(words: str, place: str) -> str:
        return f"[{words}]({site}{place})" if site else f"*{words}*"

    def role(found: re.Match) -> str:
        kind, words, label = found.groups()
        if kind == "cite" or kind.startswith("cite:"):
            told = "; ".join(_works(root)[key.strip()] for key in label.split(","))
            return f"({link(told, 'book/references.html') if site else told})"
        if kind in ("ref", "eq", "numref", "doc"):
            title, place = places(root)[label.rsplit("/", 1)[-1]]
            return link(words or title, place)
        return words or label  # a term; what else there is reads as it stands

    text = _FENCED.sub(_directive, _TARGET.sub("", text))
    text = _ROLE.sub(role, text)
    text = _PAGE_LINK.sub(
        lambda m: link(m[1], places(root)[m[2]][1].split("#")[0] + (m[3] or "")), text
    )
    for name, body in macros(root).items():
        text = re.sub(rf"\\{name}(?![A-Za-z])", lambda _, body=body: body, text)
    return text


def _directive(found: re.Match) -> str:
    kind, title, _, body = found.groups()
    if kind == "math":
        return f"$$\n{body.strip()}\n$$\n"
    if kind == "list-table":
        return f"**{title}**\n\n{_table(body)}\n"
    if kind.startswith(("exercise", "solution")):
        return "**Solution.** " if kind == "solution-start" else ""
    said = f"**{title or kind.capitalize()}**\n\n{body.strip()}"
    return "".join(f"> {line}".rstrip() + "\n" for line in said.splitlines())


def _table(body: str) -> str:
    """Return the rows of a list-table as a Markdown table, each cell on one line."""
    rows = []
    for row in re.split(r"^\* - ", body, flags=re.MULTILINE)[1:]:
        cells = [
            re.sub(r"\s*\n\s*\n\s*", "<br>", cell.strip())
            for cell in re.split(r"^  - ", row, flags=re.MULTILINE)
        ]
        cells = [
            _MATH.sub(lambda m: m[0].replace("|", r"\vert "), " ".join(c.split())) for c in cells
        ]
        rows.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    rows.insert(1, "|" + " --- |" * (rows[0].count(" | ") + 1))
    return "\n".join(rows)


def caption(cell) -> str:
    """Return a figure's caption, which only the published page shows, as a line of Markdown."""
    said = cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", "")
    return f"*Figure.* {' '.join(said.split())}" if said else ""


def tasks(root: Path | None = None) -> dict[str, str]:
    """Return label -> text of every exercise, in the order of the book."""
    pages = (page.read_text(encoding="utf-8") for page in chapters(root))
    return dict(each for page in pages for each in _EXERCISE.findall(page))


def blank(solution: str) -> str:
    """Return an empty cell, with the check of a solution's numbers and without the numbers."""
    lines = [ANSWER]
    if found := _CHECK.search(solution):
        call = ast.parse(found[0], mode="eval").body
        call.args[1:] = [ast.Constant(...) for _ in call.args[1:]]
        lines += ["", ast.unparse(call).replace("'", '"')]
    return "\n".join(["```{code-cell} ipython3", *lines, "```"])


def without_solutions(text: str) -> str:
    """Return a page's text with an empty cell in the place of each solution."""
    return _EXERCISE_MARK.sub("", _SOLUTION.sub(lambda each: blank(each[0]), text))


def unsolved(page: Path):
    """Return a page as a notebook with an empty cell in the place of each solution."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / page.name
        copy.write_text(without_solutions(page.read_text(encoding="utf-8")), encoding="utf-8")
        return read_notebook(copy)


def set_up(site: str | None) -> str:
    """Return the code of a notebook's first cell; Colab fetches its archive from the site."""
    archive = f"{site}student.zip" if site else ""
    return _SET_UP.format(name=NAME, version=__version__, archive=archive)


def handout(page: Path, repository: str | None = None, solutions: bool = False):
    """Return a page as a notebook that runs without the clone.

    Parameters
    ----------
    page : Path
        A chapter's source.
    repository : str, optional
        ``owner/name`` on GitHub, to whose Pages links and Colab lead.
    solutions : bool
        Keep them; otherwise each leaves an empty cell.
    """
    site = site_address(repository) if repository else None
    notebook = read_notebook(page) if solutions else unsolved(page)
    cells = [new_code_cell(set_up(site), id="set-up")]
    for cell in notebook.cells:
        cells.append(cell)
        if cell.cell_type == "markdown":
            cell.source = plain_markdown(cell.source, site)
        elif said := caption(cell):
            cells.append(new_markdown_cell(plain_markdown(said, site), id=f"{cell.id}-c"))
        if {"hide-input", "remove-cell"} & set(cell.metadata.get("tags", [])):
            cell.metadata["jupyter"] = {"source_hidden": True}
    notebook.cells = cells
    nbformat.validate(notebook)
    return notebook


def write_variants(folder: Path, seed: int, repository: str | None = None) -> list[Path]:
    """Write a notebook of the exercises with other numbers, drawn from a seed, and its key."""
    rng, site = np.random.default_rng(seed), site_address(repository) if repository else None
    cells, key = [new_code_cell(set_up(site) + "from studies import theory\n")], [RUBRIC]
    for label, task in tasks().items():
        if label in EXERCISES and EXERCISES[label].vary:
            text, numbers = variant(label, plain_markdown(task, site), rng)
            cells += [new_markdown_cell(text), new_code_cell(ANSWER)]
            told = ", ".join(f"{each:.4g}" for each in numbers)
            key.append(_KEY.format(title=text.split(". ")[0], told=told, own=EXERCISES[label]))
    folder.mkdir(parents=True, exist_ok=True)
    sheet, answers = folder / f"exercises-{seed}.ipynb", folder / f"key-{seed}.md"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), sheet)
    answers.write_text("\n".join(key), encoding="utf-8")
    return [sheet, answers]


def write_handouts(folder: Path, repository: str | None, solutions: bool) -> list[Path]:
    """Write a notebook for every chapter of the book."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for source in chapters():
        written.append(folder / f"{source.stem}.ipynb")
        nbformat.write(handout(source, repository, solutions), written[-1])
    return written


def write_student(folder: Path, repository: str | None = None) -> list[Path]:
    """Write what students get: notebooks without solutions, and all that they need beside a Python
    with torch, as a folder and as its archive.

    Raises
    ------
    NotebookError
        The wheel was not built; the message ends with what pip said.
    """
    root, inside = project_root(), folder / NAME
    shutil.rmtree(inside, ignore_errors=True)
    written = write_handouts(inside / "notebooks", repository, solutions=False)
    for part in PARTS:
        shutil.copytree(root / part, inside / part, ignore=shutil.ignore_patterns("__pycache__"))
    with tempfile.TemporaryDirectory() as clean:  # setuptools packs what an earlier build left
        shutil.copytree(root / "cevit_lib", Path(clean) / "cevit_lib")
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(root / name, clean)
        pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
        done = subprocess.run([*pip, "-w", inside, clean], capture_output=True, text=True)
    if done.returncode:
        raise NotebookError("the library's wheel was not built:\n" + done.stderr[-2000:])
    return [*written, Path(shutil.make_archive(str(inside), "zip", folder, NAME))]
