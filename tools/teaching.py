"""What a teacher takes from the chapters: notebooks without solutions, and slides. Both are made, never written.

    python -m tools.teaching student    build/student/NAME.ipynb, from notebooks/NAME.md
    python -m tools.teaching slides     build/slides/NAME.html, from the executed pages; they work offline

A student's notebook has an empty cell where a solution was. A slide is a section: its first sentences, its first
equation and its figures; parameters and code stay in the notebook.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from functools import cache
from html import escape
from pathlib import Path

from cevit_lib.errors import NotebookError
from cevit_lib.paths import project_root
from cevit_lib.runner.notebook import read_notebook
from tools.pages import EXECUTED, chapters

ANSWER = "# your answer"
_SOLUTION_START = re.compile(r"^```\{solution-start\}.*?^```$", re.MULTILINE | re.DOTALL)
_SOLUTION_END = re.compile(r"^```\{solution-end\}\s*```\s*", re.MULTILINE)
_EXERCISE_MARK = re.compile(r"^```\{exercise-(?:start|end)\}.*?^```\n?", re.MULTILINE | re.DOTALL)
_ROLE = re.compile(r"\{(\w+)(?::\w+)?\}`([^`<]*?)(?:\s*<[^`>]*>)?`")
_MATH = re.compile(r"^```\{math\}\n(?::label: [^\n]*\n)?(.*?)^```$", re.MULTILINE | re.DOTALL)
_DIRECTIVE = re.compile(r"^```\{(?!math)[^}]*\}.*?^```$", re.MULTILINE | re.DOTALL)
_LABEL = re.compile(r"^\([\w-]+\)=\n", re.MULTILINE)
# a link to a page of the book, which does not lie beside the slides
_PAGE_LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)[^)]*\.md[^)]*\)")
_TO_AN_OUTPUT = re.compile(
    r"\n\n[^\n*-][^\n]*:\s*\Z"
)  # a last line that introduces what a cell prints


# --- notebooks without solutions


def without_solutions(notebook):
    """Return the notebook with an empty cell in the place of each solution.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        A page as `read_notebook` returns it.

    Raises
    ------
    NotebookError
        A solution has a beginning and no end.
    """
    import nbformat

    cells, inside = [], False
    for cell in notebook.cells:
        if cell.cell_type == "code":
            if not inside:
                cells.append(cell)
            continue
        kept, inside, answers = _outside_solutions(cell.source, inside)
        for number, text in enumerate(kept):
            if text := _EXERCISE_MARK.sub("", text).strip():
                cells.append(nbformat.v4.new_markdown_cell(text))
            if number < answers:
                cells.append(nbformat.v4.new_code_cell(ANSWER))
    if inside:
        raise NotebookError("a solution begins and does not end")
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return nbformat.from_dict({**notebook, "cells": cells})


def _outside_solutions(text: str, inside: bool) -> tuple[list[str], bool, int]:
    """Pieces of a Markdown cell that belong to no solution; whether one is open at its end; how many began in it."""
    pieces, began = [], 0
    while text:
        mark = _SOLUTION_END.search(text) if inside else _SOLUTION_START.search(text)
        if mark is None:
            break
        if not inside:
            pieces.append(text[: mark.start()])
            began += 1
        text, inside = text[mark.end() :], not inside
    return (pieces if inside else [*pieces, text]), inside, began


def write_student(folder: Path) -> list[Path]:
    """Write a notebook without solutions for every chapter of the book."""
    import nbformat

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for source in chapters():
        path = folder / f"{source.stem}.ipynb"
        path.write_text(
            nbformat.writes(without_solutions(read_notebook(source))) + "\n", encoding="utf-8"
        )
        written.append(path)
    return written


# --- slides


@cache
def _titles() -> dict[str, str]:
    """Label -> what a reader knows it by: the heading or the exercise that it stands at."""
    heading = re.compile(r"^\(([\w-]+)\)=\n#+ (.+)$", re.MULTILINE)
    exercise = re.compile(
        r"^```\{exercise-start\}\n:label: ([\w-]+)\n(?:.*\n)*?\*\*(.+?)\*\*", re.MULTILINE
    )
    pages = [*chapters(), *sorted((project_root() / "book").glob("*.md"))]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return {
        label: title.strip()
        for found in (heading, exercise)
        for label, title in found.findall(text)
    }


def plain(text: str) -> str:
    """Markdown without roles, labels and directives; equations stay."""
    text = _MATH.sub(lambda found: f"$$\n{found.group(1).strip()}\n$$", text)
    text = _PAGE_LINK.sub(r"*\1*", _LABEL.sub("", _DIRECTIVE.sub("", text)))

    def role(found: re.Match) -> str:
        kind, said = found.groups()
        if kind == "ref":  # with words of its own, or the title of what it points to
            title = _titles().get(said.strip())
            return f"*{title}*" if title and "<" not in found.group() else said.strip()
        return {"cite": "", "eq": "the equation", "numref": "the figure"}.get(kind, said.strip())

    text = re.sub(r" +([.,;:)])", r"\1", _ROLE.sub(role, text))
    return re.sub(r"(\A|[.?!] |\n\n)the (figure|equation)", r"\1The \2", text)


def gist(text: str) -> str:
    """The first two sentences of the first paragraph of prose, and the first displayed equation."""
    text = plain(text)
    equation = re.search(
        r"\$\$.*?\$\$", text.partition("\n### ")[0], re.DOTALL
    )  # one of a subsection needs its words
    prose = re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)
    blocks = (block.strip() for block in re.split(r"\n\s*\n", prose))
    paragraphs = [block for block in blocks if block and block[0] not in "|>#"]
    sentences = (
        re.split(r"(?<=[.?!])\s+(?=[A-Z*`$])", " ".join(paragraphs[0].split()))
        if paragraphs
        else []
    )
    return "\n\n".join(
        part for part in (" ".join(sentences[:2]), equation.group() if equation else "") if part
    )


def sections(notebook) -> list[tuple[str, str, list]]:
    """Title, prose and figures (caption, data address, alt) of each section; the first is the head."""
    found = [["", "", []]]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            head, *rest = re.split(r"^## ", cell.source, flags=re.MULTILINE)
            found[-1][1] += "\n\n" + head
            found += [[*part.partition("\n")[::2], []] for part in rest]
        elif picture := _picture(cell):
            found[-1][2].append(picture)
    return [(title.strip(), text, pictures) for title, text, pictures in found]


def _picture(cell) -> tuple[str, str, str] | None:
    options = cell.metadata.get("mystnb", {})
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if png := data.get("image/png"):
            source = f"data:image/png;base64,{''.join(png).strip()}"
        elif svg := data.get("image/svg+xml"):
            import base64

            source = f"data:image/svg+xml;base64,{base64.b64encode(''.join(svg).encode()).decode()}"
        else:
            continue
        return (
            options.get("figure", {}).get("caption", ""),
            source,
            options.get("image", {}).get("alt", ""),
        )
    return None


def slide_deck(notebook, macros: dict) -> str:
    """Return one self-standing HTML page for a chapter; it loads ``reveal/`` and ``mathjax/`` beside it."""
    import json

    (_, head, _), *rest = sections(notebook)
    title = re.search(r"^# (.+)$", head, re.MULTILINE).group(1)
    question = re.search(r"^\*\*(.+\?)\*\*$", head, re.MULTILINE)
    slides = [
        f"<section><h1>{_html(title, inline=True)}</h1>{_html(question.group(1) if question else '')}</section>"
    ]
    for name, text, pictures in rest:
        if name == "Exercises":
            tasks = re.findall(
                r"^(\*\*.+?\*\* \((?:easy|medium|hard)\)\. .*?)(?=^```)",
                text,
                re.MULTILINE | re.DOTALL,
            )
            inner = [f"<h2>Exercise</h2>{_html(plain(task))}" for task in tasks]
        else:
            whole = name in ("Three lines to remember",)
            said = _TO_AN_OUTPUT.sub("", plain(text)) if whole else gist(text)
            inner = [f"<h2>{_html(name, inline=True)}</h2>{_html(said)}"]
            inner += [_figure(*picture) for picture in pictures]
        slides.append(
            "<section>" + "".join(f"<section>{one}</section>" for one in inner) + "</section>"
        )
    return _PAGE.format(title=escape(title), slides="\n".join(slides), macros=json.dumps(macros))


def _figure(caption: str, source: str, alt: str) -> str:
    return f'<img src="{source}" alt="{escape(alt, quote=True)}"><div class="caption">{_html(plain(caption))}</div>'


def _html(text: str, inline: bool = False) -> str:
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    def formula(content, options):
        left, right = ("\\[", "\\]") if options["display_mode"] else ("\\(", "\\)")
        return f"{left}{escape(content.strip())}{right}"

    parser = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin, renderer=formula)
    return parser.renderInline(text) if inline else parser.render(text)


_PAGE = r"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="reveal/reset.css">
<link rel="stylesheet" href="reveal/reveal.css">
<style>
.reveal {{ font: 30px/1.35 system-ui, sans-serif; color: #1a1a1a; background: #fff; }}
.reveal h1 {{ font-size: 1.9em; margin-bottom: 0.6em; }}
.reveal h2 {{ font-size: 1.3em; margin-bottom: 0.6em; color: #0b4f7a; }}
.reveal section > p, .reveal section > ol, .reveal section > ul {{ text-align: left; margin: 0.6em 0; }}
.reveal section section > ul, .reveal section section > ol {{ padding-left: 1.2em; list-style: disc; }}
.reveal strong {{ font-weight: 700; }}
.reveal code {{ font-family: ui-monospace, monospace; font-size: 0.85em; }}
.reveal pre {{ text-align: left; }}
.reveal mjx-container[display="true"] {{ font-size: 112% !important; max-width: 100%; }}
.reveal img {{ width: 100%; height: 520px; object-fit: contain; }}
.reveal .caption {{ font-size: 0.6em; text-align: left; margin-right: 110px; }}  /* room for the arrows */
</style>
<script>
MathJax = {{ tex: {{ inlineMath: [["\\(", "\\)"]], macros: {macros} }}, options: {{ enableMenu: false }} }};
</script>
<script src="mathjax/es5/tex-mml-chtml.js"></script>
</head>
<body>
<div class="reveal"><div class="slides">
{slides}
</div></div>
<script src="reveal/reveal.js"></script>
<script>
Reveal.initialize({{ hash: true, slideNumber: true, transition: "none", width: 1100, height: 700 }});
const size = (box, wide) => `${{0.98 * parseFloat(getComputedStyle(box).fontSize) / wide}}px`;
const fit = () => {{  // an equation that is wider than the slide is set smaller
  for (const box of Reveal.getCurrentSlide().querySelectorAll("mjx-container[display]")) {{
    const wide = box.scrollWidth / box.clientWidth;
    if (wide > 1) box.style.setProperty("font-size", size(box, wide), "important");
  }}
}};
Reveal.on("slidechanged", fit);
Reveal.on("ready", () => MathJax.startup.promise.then(fit));
</script>
</body>
</html>
"""


def write_slides(folder: Path) -> list[Path]:
    """Write one HTML page for every chapter, with what they load beside them.

    Raises
    ------
    NotebookError
        A chapter was not executed yet; ``make book`` does it.
    """
    import nbformat
    import yaml

    root = project_root()
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    macros = config["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]
    missing = [s.stem for s in chapters() if not (root / EXECUTED / f"{s.stem}.ipynb").is_file()]
    if missing:
        named = ", ".join(missing)
        raise NotebookError(
            f"slides show the figures of executed pages; not executed: {named}. Run make book first"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("reveal", "mathjax"):
        shutil.copytree(root / "assets" / name, folder / name, dirs_exist_ok=True)
    written = []
    for source in chapters():
        path = folder / f"{source.stem}.html"
        page = nbformat.read(root / EXECUTED / f"{source.stem}.ipynb", 4)
        path.write_text(slide_deck(page, macros), encoding="utf-8")
        written.append(path)
    return written


def main(arguments: list[str] | None = None) -> int:
    """Entry of ``python -m tools.teaching``."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.teaching", description=__doc__.splitlines()[0]
    )
    parser.add_argument("what", choices=("student", "slides"))
    what = parser.parse_args(arguments).what
    try:
        written = {"student": write_student, "slides": write_slides}[what](
            project_root() / "build" / what
        )
    except NotebookError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(written)} files in {written[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
