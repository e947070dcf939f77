"""Slides, made from the chapters and never written (``tools.publication`` has the command).

A slide is a section: its first sentences, its first equation and its figures; parameters and code
stay in the notebook.
"""

from __future__ import annotations

import base64
import re
import shutil
from html import escape
from pathlib import Path

import nbformat

from cevit_lib.errors import NotebookError
from cevit_lib.paths import project_root
from tools.handout import places, plain_markdown
from tools.pages import EXECUTED, chapters
from tools.sphinx_extension import copy_mathjax

_DIRECTIVE = re.compile(r"^```\{(?!math)[^}]*\}.*?^```$", re.MULTILINE | re.DOTALL)
_SOURCE = re.compile(r' <a class="cevit-source".*?</a>')  # to a fold that no slide has
_TASK = re.compile(
    r"^(\*\*.+?\*\* \((?:easy|medium|hard)\)\. .*?)(?=^```)", re.MULTILINE | re.DOTALL
)
# a last line that introduces what a cell prints
_TO_AN_OUTPUT = re.compile(r"\n\n[^\n*-][^\n]*:\s*\Z")


def plain(text: str) -> str:
    """Return a section's words and equations, links as the titles that they lead to."""
    return plain_markdown(_DIRECTIVE.sub("", text))


def gist(text: str) -> str:
    """The first two sentences of the first paragraph of prose, and the first displayed equation."""
    text = plain(text)
    # an equation of a subsection needs its words
    equation = re.search(r"\$\$.*?\$\$", text.partition("\n### ")[0], re.DOTALL)
    prose = re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)
    paragraph = re.search(r"^[^|>#\s](?:.+\n?)+", prose, re.MULTILINE)
    words = " ".join(paragraph[0].split()) if paragraph else ""
    sentences = re.split(r"(?<=[.?!])\s+(?=[A-Z*`$])", words)
    return f"{' '.join(sentences[:2])}\n\n{equation[0] if equation else ''}"


def sections(notebook) -> list[tuple[str, str, list[str]]]:
    """Title, prose and figures (as HTML) of each section; the first is the head."""
    found = [["", "", []]]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            head, *rest = re.split(r"^## ", cell.source, flags=re.MULTILINE)
            found[-1][1] += "\n\n" + head
            found += [[*part.partition("\n")[::2], []] for part in rest]
        else:
            found[-1][2] += _figures(cell)
    return [(title.strip(), text, figures) for title, text, figures in found]


def _figures(cell) -> list[str]:
    options = cell.metadata.get("mystnb", {})
    caption = _SOURCE.sub("", options.get("figure", {}).get("caption", ""))
    alt = escape(options.get("image", {}).get("alt", ""), quote=True)
    made = []
    for data in (output.get("data", {}) for output in cell.outputs):
        for kind in {"image/png", "image/svg+xml"} & set(data):
            content = "".join(data[kind]).strip()
            if kind == "image/svg+xml":
                content = base64.b64encode(content.encode()).decode()
            image = f'<img src="data:{kind};base64,{content}" alt="{alt}">'
            made.append(f'{image}<div class="caption">{_html(plain(caption))}</div>')
    return made


def slide_deck(notebook) -> str:
    """Return one self-standing HTML page for a chapter; it loads ``reveal/`` and ``mathjax/``
    beside it."""
    (_, head, _), *rest = sections(notebook)
    title = re.search(r"^# (.+)$", head, re.MULTILINE).group(1)
    question = re.search(r"^\*\*.+?[?.]\*\*.*$", head, re.MULTILINE)
    slides = [
        f"<section><h1>{_html(title, inline=True)}</h1>"
        f"{_html(plain(question[0]) if question else '')}</section>"
    ]
    for name, text, figures in rest:
        heading = f"<h2>{_html(name, inline=True)}</h2>"
        if name == "Exercises":
            inner = [f"<h2>Exercise</h2>{_html(plain(task))}" for task in _TASK.findall(text)]
        elif name == "Three lines to remember":
            inner = [heading + _html(_TO_AN_OUTPUT.sub("", plain(text))), *figures]
        else:
            inner = [heading + _html(gist(text)), *figures]
        each = "".join(f"<section>{one}</section>" for one in inner)
        slides.append(f"<section>{each}</section>")
    page = Path(__file__).with_name("slides.html").read_text(encoding="utf-8")
    page = page.replace("@title@", escape(title))
    return page.replace("@slides@", "\n".join(slides))


def _html(text: str, inline: bool = False) -> str:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    def formula(content, options):
        left, right = ("\\[", "\\]") if options["display_mode"] else ("\\(", "\\)")
        return f"{left}{escape(content.strip())}{right}"

    parser = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin, renderer=formula)
    return parser.renderInline(text) if inline else parser.render(text)


def write_slides(folder: Path) -> list[Path]:
    """Write one HTML page for every chapter, their index, and what they load beside them.

    Raises
    ------
    NotebookError
        A chapter was not executed yet; ``make book`` does it.
    """
    root = project_root()
    pages = [root / EXECUTED / f"{source.stem}.ipynb" for source in chapters()]
    if missing := [page.stem for page in pages if not page.is_file()]:
        raise NotebookError(
            "slides show the figures of executed pages; "
            f"not executed: {', '.join(missing)}. Run make book first"
        )
    shutil.copytree(root / "assets" / "reveal", folder / "reveal", dirs_exist_ok=True)
    copy_mathjax(folder / "mathjax")
    written = [folder / f"{page.stem}.html" for page in pages]
    for page, path in zip(pages, written, strict=True):
        path.write_text(slide_deck(nbformat.read(page, 4)), encoding="utf-8")
    decks = [f"[{places(root)[path.stem][0]}]({path.name})" for path in written]
    listed = _html("# Slides\n\n" + "\n".join(f"1. {deck}" for deck in decks))
    page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Slides</title>{listed}'
    (folder / "index.html").write_text(page, encoding="utf-8")
    return [*written, folder / "index.html"]
