"""Slides, made from the chapters: the gist of each section, without a network."""

import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell as code

from cevit_lib.errors import NotebookError
from tools import teaching
from tools.sphinx_extension import copy_mathjax

ROOT = Path(__file__).resolve().parents[1]


def markdown(text):
    """A cell in whose source three apostrophes stand for a fence."""
    return nbformat.v4.new_markdown_cell(text.replace("'''", "```"))


LINK = '<a class="cevit-source" href="#provenance" title="r">record</a>'
FIGURE = {"figure": {"caption": f"A curve $x^2$. {LINK}"}, "image": {"alt": "The curve rises"}}
PAGE = nbformat.v4.new_notebook(
    cells=[
        markdown(
            "(x)=\n# A title\n\n**What is asked?** An answer.\n\n"
            "'''{admonition} Goals\nNot on a slide.\n'''"
        ),
        code("scale: str = 'stored'", metadata={"tags": ["parameters"]}),
        markdown(
            "## Matter\n\nFirst {term}`copula`, see {eq}`eq-gain`. Second. "
            "Third sentence stays away.\n\n"
            "'''{math}\n:label: eq-a\na = \\given b\n'''"
        ),
        code(
            "draw()",
            outputs=[nbformat.v4.new_output("display_data", data={"image/png": "aGk="})],
            metadata={"mystnb": FIGURE},
        ),
        markdown(
            "## Exercises\n\n'''{exercise-start}\n:label: ex-a\n'''\n**One** (easy). Do it.\n"
            "'''{exercise-end}\n'''\n\n"
            "'''{solution-start} ex-a\n:class: dropdown\n'''\nThe answer is 42."
        ),
        code("secret = 42"),
        markdown(
            "'''{solution-end}\n'''\n\n"
            "'''{exercise-start}\n:label: ex-b\n'''\n**Two** (hard). In words.\n"
            "'''{exercise-end}\n'''\n\n"
            "'''{solution-start} ex-b\n:class: dropdown\n'''\nBecause 43.\n"
            "'''{solution-end}\n'''\n\n## Where to go\n\nHome."
        ),
        code("finished()"),
    ]
)


def test_a_slide_has_the_gist_the_equation_and_the_figure_and_no_code():
    html = teaching.slide_deck(PAGE)
    assert "What is asked?</strong> An answer." in html and "provenance" not in html
    assert "First copula, see <em>the equation</em>. Second." in html
    assert "Third sentence" not in html and r"\[a = \,|\, b\]" in html
    assert 'alt="The curve rises"' in html and r"\(x^2\)" in html
    assert "<strong>One</strong> (easy)" in html and "42" not in html and "43" not in html
    assert "draw()" not in html and "scale: str" not in html and "Not on a slide" not in html


def test_a_slide_ends_before_the_sentence_that_introduces_an_output():
    lines = "## Three lines to remember\n\n- One.\n- Two: three.\n\nThe answer, from the records:"
    html = teaching.slide_deck(nbformat.v4.new_notebook(cells=[PAGE.cells[0], markdown(lines)]))
    assert "Two: three." in html and "from the records" not in html


def test_an_equation_of_a_subsection_stays_there():
    assert "$$" not in teaching.gist("Words.\n\n### Below\n\nMore.\n\n$$\na\n$$")
    assert "$$" in teaching.gist("Words.\n\n$$\na\n$$\n\n### Below\n\nMore.")


def test_slides_load_nothing_from_elsewhere(tmp_path):
    html = teaching.slide_deck(PAGE)
    copy_mathjax(tmp_path / "mathjax")
    for address in re.findall(r'(?:src|href)="([^"]+)"', html):
        beside = [folder / address for folder in (ROOT / "assets", tmp_path)]
        assert address.startswith("data:") or any(path.is_file() for path in beside), address
    for style in (ROOT / "assets" / "reveal").glob("*.css"):
        assert not re.search(r"url\((?!['\"]?data:)|@import", style.read_text())


def test_slides_before_the_book_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(teaching, "EXECUTED", Path("build/nowhere"))
    with pytest.raises(NotebookError, match="make book"):
        teaching.write_slides(tmp_path)
