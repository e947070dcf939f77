"""Slides: decks that an author wrote, in ``book/slides`` (``tools.publication`` has the command).

A deck is Markdown. ``## A finding`` begins a slide; a picture whose address is a label of the book,
``![](fig-gain)``, ``![](eq-gain)`` or ``![](ex-gain)``, is its panel: a figure, an equation or an
exercise of an executed page, live where the page's is. One panel of a figure is named as in the
W3C's media fragments, ``![what it shows](fig-gain#xywh=percent:0,0,50,100)``: left, top, width,
height. What follows ``Note:`` is the speaker's.
"""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Iterable
from html import escape
from pathlib import Path

import nbformat

from cevit_lib.errors import NotebookError
from cevit_lib.paths import project_root
from tools.handout import plain_markdown
from tools.pages import EXECUTED, chapters
from tools.sphinx_extension import copy_mathjax, site_address

DECKS = Path("book/slides")
_BEFORE_A_SLIDE = re.compile(r"^(?=## )", re.MULTILINE)
_PICTURE = re.compile(r'<p><img src="([^"#]+)(?:#xywh=percent:([\d.,]+))?" alt="([^"]*)" /></p>')
_SIZE = re.compile(r'width="[\d.]+pt" height="[\d.]+pt" viewBox="0 0 ([\d.]+) ([\d.]+)"')
_LABELLED = (
    re.compile(r"^```\{math\}\n:label: ([\w-]+)\n.*?^```$", re.MULTILINE | re.DOTALL),
    re.compile(
        r"^```\{exercise-start\}\n:label: ([\w-]+)\n.*?^```\{exercise-end\}\n```$",
        re.MULTILINE | re.DOTALL,
    ),
)


def panels(pages: Iterable[Path], site: str | None = None) -> dict[str, tuple[str, str]]:
    """Return label -> HTML or SVG, and alternative text, of each figure, equation and exercise of
    executed pages."""
    found = {}
    for cell in (cell for page in pages for cell in nbformat.read(page, 4).cells):
        options = cell.metadata.get("mystnb", {})
        if cell.cell_type == "markdown":
            for each in (each for kind in _LABELLED for each in kind.finditer(cell.source)):
                found[each[1]] = _html(plain_markdown(each[0], site)), ""
        elif name := options.get("figure", {}).get("name"):
            data = {kind: content for each in cell.outputs for kind, content in each.data.items()}
            if drawn := data.get("text/html") or data.get("image/svg+xml"):
                found[name] = "".join(drawn), options["image"]["alt"]
    return found


def slide_deck(text: str, known: dict[str, tuple[str, str]], site: str | None = None) -> str:
    """Return a deck as one HTML page; it loads ``reveal/`` and ``mathjax/`` beside it.

    Parameters
    ----------
    text : str
        The deck's Markdown.
    known : dict
        What `panels` found.
    site : str, optional
        Address of the published book, to which links lead.

    Raises
    ------
    NotebookError
        A slide shows what no executed page has.
    """
    made = "\n".join(_slide(each, known, site) for each in _BEFORE_A_SLIDE.split(text))
    page = Path(__file__).with_name("slides.html").read_text(encoding="utf-8")
    title = escape(text.splitlines()[0].removeprefix("# "))
    return page.replace("@title@", title).replace("@slides@", made)


def _slide(text: str, known: dict[str, tuple[str, str]], site: str | None) -> str:
    def panel(found: re.Match) -> str:
        label, part, said = found.groups()
        if label not in known:
            raise NotebookError(
                f"a slide shows {label}, and no executed page has it: {text[:60]!r}"
            )
        content, alt = known[label]
        if not (size := _SIZE.search(content)):
            live = " live beside" if "<script>" in content else ""
            return f'<div class="panel{live}">{content}</div>'
        box = _share(part or "0,0,100,100", size)
        svg = base64.b64encode(content.replace(size[0], f'viewBox="{box}"').encode()).decode()
        *_, width, height = map(float, box.split())
        tall = ' class="beside"' if width < 1.7 * height else ""
        alt = said or escape(alt, quote=True)
        return f'<img{tall} src="data:image/svg+xml;base64,{svg}" alt="{alt}">'

    shown, _, notes = text.partition("\nNote: ")
    html = _PICTURE.sub(panel, _html(plain_markdown(shown, site)))
    aside = f'<aside class="notes">{_html(plain_markdown(notes, site))}</aside>' if notes else ""
    return f'<section><div class="slide">{html}</div>{aside}</section>'


def _share(part: str, size: re.Match) -> str:
    """Return the view box of a part, given in per cent, of a drawing of some size."""
    pairs = zip(part.split(","), size.groups() * 2, strict=True)
    return " ".join(f"{float(share) / 100 * float(side):g}" for share, side in pairs)


def _html(text: str) -> str:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    ends = {True: ("\\[", "\\]"), False: ("\\(", "\\)")}
    parser = MarkdownIt("commonmark").enable("table")
    parser.use(
        dollarmath_plugin,
        renderer=lambda tex, options: escape(tex.strip()).join(ends[options["display_mode"]]),
    )
    return parser.render(text)


def write_slides(folder: Path, repository: str | None = None) -> list[Path]:
    """Write one HTML page for every deck, with what they load beside them.

    Raises
    ------
    NotebookError
        A chapter was not executed yet; ``make book`` does it.
    """
    root, site = project_root(), site_address(repository) if repository else None
    pages = [root / EXECUTED / f"{source.stem}.ipynb" for source in chapters()]
    if missing := [page.stem for page in pages if not page.is_file()]:
        raise NotebookError(
            "slides show the figures of executed pages; "
            f"not executed: {', '.join(missing)}. Run make book first"
        )
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "assets" / "reveal", folder / "reveal")
    copy_mathjax(folder / "mathjax")
    known, decks = panels(pages, site), sorted((root / DECKS).glob("*.md"))
    for deck in decks:
        html = slide_deck(deck.read_text(encoding="utf-8"), known, site)
        (folder / f"{deck.stem}.html").write_text(html, encoding="utf-8")
    return [folder / f"{deck.stem}.html" for deck in decks]
