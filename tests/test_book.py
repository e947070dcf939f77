"""The rendered book, read as a reader's browser reads it: from disk, without a network.

`make test` has built the book before; when these tests run by themselves they build it first. Each
page is parsed once and opened once, and all that is asked about it is answered then. The checks of
links, pictures and size need no browser. A missing browser fails under CI=true; elsewhere its tests
are skipped.
"""

import json
import os
import re
from functools import cache, lru_cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from bs4 import BeautifulSoup
from scipy.stats import multivariate_normal, norm

from cevit_lib import __version__
from studies.overview import cell_probabilities, four_cells
from studies.verdicts import CLAIMS, IN_PART, VerdictTable, judge_all
from tools import pages, publication, teaching

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
NAMES = pages.contents(ROOT)
ROOMS = [path.stem for path in (ROOT / "book" / "api").glob("*.md") if path.stem != "index"]
#: The pages of the reference are of one kind: one of them is tried for accessibility.
GENERATED = [f"book/api/{room}" for room in ROOMS[1:]]
#: Blocks of code look alike on all pages, and axe takes long over them: it reads those of this one.
CODE_READ_ON = "book/executed/only_the_loss"
LIMIT = 1_500_000  # bytes of a page without the shared MathJax and theme


@pytest.fixture(scope="module")
def book() -> Path:
    """The built book."""
    if stages := os.environ.get("CEVIT_STAGES"):
        faults = json.loads(Path(stages).read_text())["build"]
    else:
        faults = pages.build()
    if any(faults.values()):
        pytest.fail("the book was not built, see test_pages", pytrace=False)
    return HTML


@lru_cache(maxsize=1)
def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(path: Path) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', path.read_text(encoding="utf-8")))


@pytest.fixture(params=NAMES, scope="module")
def page(request, book) -> Path:
    """Each page of the table of contents; what is asked of it is asked in a row."""
    return book / f"{request.param}.html"


def test_every_internal_link_resolves(page):
    broken = []
    for tag in soup(page).find_all("a", href=True):
        link = urlsplit(tag["href"])
        if link.scheme or link.netloc:
            continue
        target = (page.parent / unquote(link.path)).resolve() if link.path else page
        if not target.is_file():
            broken.append(f"{tag['href']}: no such file")
        elif link.fragment and unquote(link.fragment) not in anchors(target):
            broken.append(f"{tag['href']}: no such place on that page")
    assert not broken, "\n".join(broken)


def test_a_page_is_small_says_what_its_pictures_show_and_has_one_title(page):
    """HTML and the pictures on it count; what all pages share (MathJax, the theme's styles and
    scripts) does not."""
    tree, size = soup(page), page.stat().st_size
    for picture in tree.find_all("img"):
        alt = (picture.get("alt") or "").strip()
        assert alt, f"{picture.get('src')} has no alternative text"
        assert not re.search(r"\.(png|svg|jpe?g)$", alt), (
            f"{alt!r} is a file's name and not what is to be seen"
        )
        if not picture["src"].startswith("data:"):
            size += (page.parent / unquote(picture["src"])).stat().st_size
    assert size < LIMIT, f"{size / 1e6:.2f} MB"
    assert tree.html["lang"] == "en" and f"Version {__version__}." in tree.get_text()
    picture = tree.find("meta", property="og:image")["content"]
    assert (HTML / picture[picture.index("_static") :]).is_file()
    levels = [int(tag.name[1]) for tag in tree.article.find_all(re.compile("^h[1-6]$"))]
    assert levels.count(1) == 1
    skips = [pair for pair in zip(levels, levels[1:], strict=False) if pair[1] > pair[0] + 1]
    assert not skips, f"headings skip a level: {levels}"


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_object_stands_in_the_reference(room, book):
    module = import_module(f"cevit_lib.{room}")
    own = [
        name
        for name, thing in vars(module).items()
        if getattr(thing, "__module__", "") == module.__name__
    ]
    names = {f"cevit_lib.{room}.{name}" for name in getattr(module, "__all__", own)}
    page = book / "book" / "api" / f"{room}.html"
    assert names <= anchors(page), sorted(names - anchors(page))


# --- in a browser


# What a reader could see of a formula that was not typeset: text outside of code and of typeset
# formulas.
VISIBLE_TEXT = """() => {
  const copy = document.querySelector("article").cloneNode(true);
  for (const node of copy.querySelectorAll("pre, code, script, style, mjx-container"))
    node.remove();
  return copy.textContent;
}"""
# Formulas and tables that are wider than their box, and cells in which a line is broken.
CUT = """() => {
  const wide = [], boxes = document.querySelectorAll(
    "article mjx-container[display=true], article .pst-scrollable-table-container, " +
    "article .cell_output .output");
  for (const box of boxes)
    if (box.scrollWidth > box.clientWidth + 1) wide.push(box.textContent.slice(0, 60));
  for (const cell of document.querySelectorAll("article .cell_input pre")) {
    const style = getComputedStyle(cell), lines = cell.textContent.trimEnd().split("\\n").length;
    const height = cell.clientHeight - 2 * parseFloat(style.paddingTop);
    if (height > (lines + 0.6) * parseFloat(style.lineHeight))
      wide.push(cell.textContent.slice(0, 60));
  }
  return wide;
}"""
RAW_LATEX = re.compile(r"\\\(|\\\)|\\\[|\\\]|\$\$|\\[a-zA-Z]{2,}|\\[{}]")
# All of axe's rules in the light theme; the dark one has other colours and nothing else, so there
# the rule on contrast.
AXE_RUN = """async ([theme, context, options]) => {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.mode = theme;
  const found = await axe.run(context, options);
  const kinds = ["passes", "violations", "incomplete", "inapplicable"];
  const why = node => (node.any[0] || node.all[0] || node.none[0] || {}).message;
  const grave = found.violations.filter(each => ["serious", "critical"].includes(each.impact));
  return {rules: kinds.reduce((sum, kind) => sum + found[kind].length, 0),
          faults: grave.map(each => `${each.impact}: ${each.id}: ` +
            each.nodes.slice(0, 3).map(node => `${node.target} ${why(node)}`).join("; "))};
}"""


def axe_faults(tab, theme: str, code: bool = True) -> list[str]:
    """What axe calls serious or critical on an open page, with or without its blocks of code."""
    if not tab.evaluate("() => 'axe' in window"):
        tab.add_style_tag(content="* { transition: none !important; animation: none !important; }")
        axe = files("axe_playwright_python") / "axe.min.js"
        tab.evaluate(axe.read_text(encoding="utf-8") + "; 0")
    options = {"resultTypes": ["violations"], "preload": False}
    context = {"exclude": [] if code else [[".highlight"]]}
    if theme == "dark":
        options["runOnly"] = {"type": "rule", "values": ["color-contrast"]}
    found = tab.evaluate(AXE_RUN, [theme, context, options])
    assert found["rules"] >= (60 if theme == "light" else 1), "axe ran fewer rules than it has"
    return found["faults"]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_as_a_browser_shows_it(name, book, browser):
    """No complaint, no request to the outside, all formulas typeset, nothing cut on a laptop or
    wider than a phone, no barrier (axe, with closed boxes opened)."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    heard, asked = [], []
    tab.on("console", lambda said: heard.append(said.text) if said.type == "error" else None)
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.on("requestfailed", lambda request: heard.append(f"failed: {request.url}"))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto((book / f"{name}.html").as_uri())
    tab.evaluate("() => window.MathJax?.startup?.promise")
    tab.wait_for_timeout(300)  # late scripts
    inside = ("file", "data", "blob", "about")
    written, typeset = (
        tab.locator(kind).count() for kind in ("span.math, div.math", "mjx-container")
    )
    found = {
        "complaints": list(heard),
        "asked of the outside": [url for url in asked if urlsplit(url).scheme not in inside],
        "raw formulas": RAW_LATEX.findall(tab.evaluate(VISIBLE_TEXT)),
        # MathJax shows a syntax error as text, and an unknown command in red
        "errors": tab.locator("mjx-merror, mjx-container [style*='color: red']").count(),
        "formulas not typeset": max(0, written - typeset),
    }
    found["cut on a laptop"] = tab.evaluate(CUT)
    if name not in GENERATED:
        tab.evaluate("() => document.querySelectorAll('details').forEach(box => box.open = true)")
        for theme in ("light", "dark"):
            found[theme] = axe_faults(tab, theme, code=name == CODE_READ_ON)
        tab.evaluate("() => document.querySelectorAll('details').forEach(box => box.open = false)")
    tab.set_viewport_size({"width": 390, "height": 844})
    found["wider than a phone by"] = max(
        0, tab.evaluate("document.documentElement.scrollWidth") - 390
    )
    tab.close()
    assert not any(found.values()), {what: each for what, each in found.items() if each}


def test_the_check_for_accessibility_sees_faults(browser):
    """The check itself is checked: pale text, a picture without words, a button without a name, no
    language."""
    tab = browser.new_page()
    tab.set_content(
        "<html><body><main><h1 style='color:#ccc'>pale</h1>"
        "<img src='data:,'><button></button></main></body></html>"
    )
    found = " ".join(axe_faults(tab, "light"))
    tab.close()
    assert all(
        rule in found for rule in ("color-contrast", "image-alt", "button-name", "html-has-lang")
    ), found


def test_verdicts_are_chosen_by_word_and_section(browser):
    """What the script leaves is what the rules say; a link to a hidden row shows it."""
    judged = judge_all(CLAIMS)
    tab = browser.new_page()
    tab.set_content(
        f"<style>[hidden] {{ display: none }}</style>{VerdictTable(judged)._repr_html_()}"
    )
    rows = tab.locator("tbody tr")
    assert rows.count() == len(judged) == tab.locator("tbody tr:visible").count()
    tab.select_option("select[name=word]", IN_PART)
    tab.select_option("select[name=section]", "Section 4")
    wanted = [
        f"claim-{claim.key}"
        for claim, verdict in judged
        if verdict.word == IN_PART and claim.place.startswith("Section 4")
    ]
    assert rows.evaluate_all("rows => rows.filter(r => !r.hidden).map(r => r.id)") == wanted
    assert tab.locator("output").inner_text() == f"{len(wanted)} of {len(judged)} claims"
    tab.evaluate("location.hash = 'claim-lora'")
    tab.wait_for_selector("#claim-lora:visible", timeout=5_000)
    tab.close()


def test_the_search_answers_from_disk(book, browser):
    tab = browser.new_page()
    tab.goto((book / "search.html").as_uri() + "?q=copula")
    tab.wait_for_selector("#search-results li a", timeout=10_000)
    tab.close()


@pytest.mark.parametrize("rho", [0.0, 0.569])
def test_the_picture_of_the_first_page_shows_the_probabilities_it_claims(rho):
    """Cells against scipy; margins that do not move with the correlation."""
    margins = (0.35, 0.45)
    cells = cell_probabilities(margins, rho)
    both = multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf(norm.ppf(margins))
    assert cells[1, 1] == pytest.approx(both, abs=1e-6)
    assert np.allclose([cells[1].sum(), cells[:, 1].sum(), cells.sum()], [*margins, 1])
    assert f"both\n{both:.0%}".replace("%", " %") in {
        text.get_text() for axes in four_cells().axes for text in axes.texts
    }


# --- slides and the PDF


@pytest.fixture(scope="module")
def slides(book, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "slides"
    teaching.write_slides(folder)
    return folder


# What reaches beyond the frame, or lies under the end of a box, on the slide that is shown.
BEYOND = """() => {
  const slide = Reveal.getCurrentSlide(), box = slide.querySelector(".slide"), beyond = [];
  if (box.scrollHeight > box.clientHeight + 1) beyond.push(`${box.scrollHeight} of 640 pixels`);
  for (const node of slide.querySelectorAll(".slide *")) {
    const at = node.getBoundingClientRect(), out = at.right > 1281 || at.bottom > 721;
    if (out || at.left < -1 || at.top < -1) beyond.push(node.textContent.slice(0, 40));
  }
  return beyond.concat(slide.textContent.match(/\\\\[([]/) ?? []);
}"""


@pytest.mark.parametrize("deck", [path.stem for path in (ROOT / teaching.DECKS).glob("*.md")])
def test_every_slide_fits_and_live_figures_move(deck, slides, browser):
    tab, faults = browser.new_page(viewport={"width": 1280, "height": 720}), []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.goto((slides / f"{deck}.html").as_uri())
    tab.evaluate("() => MathJax.startup.promise")
    for number in range(tab.evaluate("Reveal.getTotalSlides()")):
        tab.evaluate(f"Reveal.slide({number})")
        faults += [f"slide {number + 1}: {fault}" for fault in tab.evaluate(BEYOND)]
    for live in tab.query_selector_all(".cevit-moving"):
        before, slider = live.inner_html(), live.query_selector("input[type=range]")
        slider.evaluate(
            "it => { it.value = it.min; it.dispatchEvent(new Event('input', {bubbles: 1})) }"
        )
        assert live.inner_html() != before
    tab.close()
    assert not faults, "\n".join(faults)


SHEET = """<div id="jb-print-toc"></div><article class="bd-article"><section id="a"><h1>Book</h1>
<a href="#document-book/api/b#cevit">entry</a> <a href="c.html#x">x</a> <a href="#x">lost</a>
<span id="document-book/executed/b"></span><section id="b"><h2>Chapter</h2><b id="x"></b>
<section id="p"><h3>Part</h3>
<details class="hide above-input"><div class="cell_input">import hidden</div></details>
<details class="hide below-input"><div class="cell_output">a table</div></details>
<div class="exercise" id="ex"><p class="admonition-title">Exercise 1</p></div>
<div class="solution toggle-hidden"><p class="admonition-title">Solution</p>It is 42.</div>
</section></section>
<span id="document-book/executed/c"></span><section id="c"><h2>Next</h2><b id="x"></b>
<a href="../b.html">b</a> <a href="i.html#document-book/executed/b#x">x</a> <a href="#x">x</a>
<a href="https://a.b/c.html#x">web</a></section>
<span id="document-book/api/b"></span><section id="cevit">Reference</section>
</section></article>"""


def test_the_students_edition_ends_with_solutions_and_has_no_reference(browser, tmp_path):
    (tmp_path / "cevit.html").write_text(SHEET)
    tab = browser.new_page()
    tab.goto((tmp_path / "cevit.html").as_uri())
    tab.add_script_tag(path=ROOT / "tools" / "publication.js")
    tab.evaluate("fitForPaper()")
    words = tab.inner_text("body").split()
    links = [link.get_attribute("href") for link in tab.query_selector_all("article a")]
    contents = [link.get_attribute("href") for link in tab.query_selector_all("#jb-print-toc a")]
    tab.close()
    assert " ".join(words) == (
        "Contents Book Chapter Part Next Solutions Book entry x lost Chapter Part a table "
        "Exercise 1 Next b x x web Solutions Exercise 1 It is 42."
    )
    assert contents == ["#preface--a", "#b--b", "#b--p", "#c--c", "#solutions"]
    b, outside = "#document-book/executed/b", "https://a.b/c.html#x"
    assert links == [None, "#c--x", None, b, "#b--x", "#c--x", outside, "#b--ex"]


@pytest.mark.weekly
def test_the_pdf_has_at_most_160_pages_and_vector_figures(book, tmp_path):
    written = publication.write_pdf(tmp_path / "book.pdf").read_bytes()
    assert 100 < len(re.findall(rb"/Type /Page\b", written)) <= 160
    page = (ROOT / "_build" / "singlehtml" / "cevit.html").read_text()
    assert not re.findall(r"<img[^>]+(?:\.png|image/png)[^>]*>", page)
