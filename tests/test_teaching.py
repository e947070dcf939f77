"""Slides: decks from an author's hand, with panels of executed pages, without a network; and the
six sessions that they are for."""

import base64
import re
from html import unescape
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from cevit_lib.errors import NotebookError
from tools import handout, pages, teaching
from tools.sphinx_extension import copy_mathjax

ROOT = Path(__file__).resolve().parents[1]
DECKS = sorted((ROOT / teaching.DECKS).glob("*.md"))
SOURCES = "\n".join(page.read_text() for page in pages.chapters(ROOT))
PANEL = re.compile(r"^!\[.*?\]\(([\w-]+).*\)$", re.MULTILINE)
SLIDES = [
    each.partition("\nNote: ")[::2]
    for deck in DECKS
    for each in deck.read_text().split("\n## ")[1:]
]  # what is shown, and the notes
TOLD = [
    shown for shown, _ in SLIDES if not re.match("Exercise|Find the bug|Three lines|Move", shown)
]
KINDS = ["live figure", "exercise", "bug"]
SVG = '<svg width="200pt" height="100pt" viewBox="0 0 200 100"></svg>'


def figure(name: str, **data: str):
    options = {"figure": {"name": name}, "image": {"alt": 'A "rise"'}}
    outputs = [new_output("display_data", data=data)]
    return new_code_cell("draw()", outputs=outputs, metadata={"mystnb": options})


@pytest.fixture(scope="module")
def known(tmp_path_factory) -> dict:
    """Panels of a small executed page."""
    words = (
        "'''{math}\n:label: eq-a\na = \\given b\n'''\n\n'''{exercise-start}\n:label: ex-a\n'''\n"
        "**One** (easy).\n\n'''python\nbug()\n'''\n\n'''{exercise-end}\n'''\n\n'''{solution-start} "
        "ex-a\n'''\n42\n'''{solution-end}\n'''"
    )
    live = "<style></style><svg></svg><script>move()</script>"
    drawn = {"image/svg+xml": SVG, "text/plain": "Figure"}
    cells = [new_markdown_cell(words.replace("'''", "```")), figure("fig-a", **drawn)]
    cells.append(figure("fig-live", **{"text/html": live, "image/svg+xml": SVG}))
    page = tmp_path_factory.mktemp("page") / "page.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), page)
    return teaching.panels([page])


def test_a_slide_has_its_panel_and_its_notes_beside_it(known):
    html = teaching.slide_deck(
        "# T & U\n\n## A\n\n![](eq-a)\n\n![](ex-a)\n\nNote: Say *so*.", known
    )
    assert "<title>T &amp; U</title>" in html and r"\[a = \,|\, b\]" in html
    assert "<strong>One</strong> (easy)" in html and "bug()" in html and "42" not in html
    shown, notes = html.split('<aside class="notes">')
    assert "Say <em>so</em>." in notes and "Say" not in shown
    with pytest.raises(NotebookError, match="shows fig-none"):
        teaching.slide_deck("# T\n\n## A\n\n![](fig-none)", known)


def test_one_panel_of_a_figure_is_cut_out_and_a_live_one_stays_live(known):
    cut = "![only this](fig-a#xywh=percent:50,0,50,100)"
    html = teaching.slide_deck(f"# T\n\n![](fig-a)\n\n{cut}\n\n![](fig-live)", known)
    found = re.findall(r'base64,(\S+)" alt="([^"]+)"', html)
    boxes = [re.search('viewBox="(.*?)"', base64.b64decode(svg).decode())[1] for svg, _ in found]
    assert boxes == ["0 0 200 100", "100 0 100 100"]
    assert [unescape(alt) for _, alt in found] == ['A "rise"', "only this"]
    assert "<script>move()</script>" in html


def test_a_slide_has_a_finding_at_most_three_lines_and_notes():
    for shown, notes in SLIDES:
        lines = re.findall(r"^- ", shown, re.MULTILINE)
        assert len(lines) <= 3 and len(PANEL.findall(shown)) <= 1 and notes, shown


def test_a_slide_that_states_a_gain_says_where_it_fails():
    gains = re.compile(r"\b(gain(s|ed)?|better|helps?|settles|mends|foretells|can be learnt)\b")
    stated = [each for each in TOLD if gains.search(each)]
    assert len(stated) >= 6
    silent = [each for each in stated if not re.search(r"\*\*[^*]+:\*\*", each)]
    assert not silent, "a slide states a gain and no limit"


def test_what_a_slide_states_stands_in_a_chapter():
    """Code line by line, numbers, panels, and words of exercises that it leads to."""
    places = handout.places(ROOT)
    for shown, notes in SLIDES:
        code = re.findall(r"^```python\n(.*?)^```$", shown, re.MULTILINE | re.DOTALL)
        lines = [line.strip() for line in "".join(code).splitlines()]
        numbers = re.findall(r"\d*\.\d+|\d{3,}|\d+ %", re.sub("xywh.*", "", shown))
        lost = [each for each in lines + numbers if each not in SOURCES]
        assert not lost and set(PANEL.findall(shown)) <= set(places), shown
        for title, label in re.findall(r"\{ref\}`([^`<]+) <(ex-[\w-]+)>`", shown + notes):
            assert title.lower() in places[label][0].lower(), f"{label} has another title"


def test_no_space_is_eaten_where_lines_join(known):
    text = "It lies below\n.02 and *so*\n**on** for $x$\n`code`, {term}`a copula`\n{ref}`data`."
    html = teaching.slide_deck(f"# T\n\n{text}", known)
    said = re.sub(
        "<[^>]+>", "", html[html.index('<div class="slides">') : html.rindex("<script src")]
    )
    assert (
        said.split() == r"T It lies below .02 and so on for \(x\) code, a copula The data.".split()
    )


@pytest.mark.parametrize("deck", DECKS, ids=lambda path: path.stem)
def test_a_deck_leads_to_and_loads_what_is_there(deck, tmp_path):
    text = deck.read_text()
    html = teaching.slide_deck(text, dict.fromkeys(PANEL.findall(text), ("", "")))
    copy_mathjax(tmp_path / "mathjax")
    for address in re.findall(r'(?:src|href)="([^"]+)"', html):
        beside = [folder / address for folder in (ROOT / "assets", tmp_path)]
        own = ROOT / teaching.DECKS / address.replace(".html", ".md")
        assert any(path.is_file() for path in [*beside, own]), address
    for style in (ROOT / "assets" / "reveal").glob("*.css"):
        assert not re.search(r"url\((?!['\"]?data:)|@import", style.read_text())


def test_six_sessions_of_ninety_minutes_take_what_their_pages_state():
    text = (ROOT / "book" / "teaching_notes.md").read_text()
    found = re.findall(r"^### \d\. (.+)\n\n\|.*\n\|.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    task = r"^:label: (ex-[\w-]+)\n```\n\*\*(.+?)\*\* \(\w+, (\d+) minutes\)"
    tasks = {label: (title, int(m)) for label, title, m in re.findall(task, SOURCES, re.MULTILINE)}
    read = r"^\(([\w-]+)\)=\n# (?:(?!^# ).)*?Reading takes\s+(\w+)\s+minutes"
    reading = dict(re.findall(read, SOURCES, re.MULTILINE | re.DOTALL))
    for (title, table), deck in zip(found, DECKS[:6], strict=True):
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
        rows = [row[:3] + [row[2] if row[3] == "the same" else row[3]] for row in rows]
        *lesson, (stated, _, *home) = rows
        minutes = [int(row[0]) for row in lesson]
        assert sum(minutes) == 90 and [row[1] for row in lesson[1:4]] == KINDS, title
        for most, cell in [(int(row[0]), cell) for row in lesson[2:4] for cell in row[2:]]:
            own = re.findall(r"`([^`<]+) <(ex-[\w-]+)>`", cell)
            assert all(tasks[label][0] == words for words, label in own), cell
            needed = sum(tasks[label][1] for _, label in own)
            needed += sum(map(int, re.findall(r"(\d+) minutes", cell)))
            assert most - 5 <= needed <= most, cell
        for told, cell in zip(stated.split(", "), home, strict=True):
            pages_read = re.findall(r"<([\w-]+)>", cell)
            assert int(told) == sum(
                int(reading[label].replace("ten", "10")) for label in pages_read
            )
        deck = deck.read_text()
        assert deck.startswith(f"# {title}\n")
        assert list(map(int, re.findall(r"\d+", re.search("Note: (.*?)\\.", deck)[1]))) == minutes
        planned = set(re.findall("(?:ex|fig)-[\\w-]+", table))
        shown = set(
            re.findall(r"<(ex-[\w-]+)>`(?: instead)?\.?$|\]\((ex-[\w-]+)", deck, re.MULTILINE)
        )
        assert {label for pair in shown for label in pair if label} <= planned, title


def test_slides_before_the_book_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(teaching, "EXECUTED", Path("build/nowhere"))
    with pytest.raises(NotebookError, match="make book"):
        teaching.write_slides(tmp_path)
