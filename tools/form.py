"""How long a page is and what it is made of: words, figures, tables, folded cells, cells that do
not fit on a screen. ``python -m tools.form`` prints one line a page.

Counted is what a reader sees before opening anything: solutions are left out, and so are live
figures, the line below a figure and the cells that `tools.dress` takes off the page. A formula in a
sentence is one word, a displayed one is none.
"""

import ast
import re
from pathlib import Path

import nbformat
import yaml

from cevit_lib.paths import project_root
from cevit_lib.runner.notebook import read_notebook
from tools.dress import tags_on_the_page
from tools.pages import all_notebooks

LINES, CHARACTERS = 20, 88  # of a visible cell
_SOLUTION = re.compile(r"^```\{solution-(start|end)\}", re.MULTILINE)
_NO_WORDS = re.compile(
    r"^```\{math\}.*?^```|\$\$.*?\$\$(?: \(.*?\))?|^(?:```|:\w+:|\(.*\)=$).*?$|^[|:-]+$",
    re.MULTILINE | re.DOTALL,
)
_TABLE = re.compile(r"DataFrame|Series|[Tt]able|\.pivot|\.style\b")


def parts(root: Path | None = None) -> dict[str, str]:
    """Return chapter -> part of the book that it stands in."""
    path = (root or project_root()) / "_toc.yml"
    table = yaml.safe_load(path.read_text(encoding="utf-8"))["parts"]
    return {Path(each["file"]).name: p["caption"] for p in table for each in p["chapters"]}


def form(page: Path) -> dict[str, int]:
    """Count what a page shows.

    Returns
    -------
    counts : dict
        ``words``, ``figures``, ``tables``, ``folded`` and ``long``, the number of visible cells
        with more than 20 lines or a line of more than 88 characters.
    """
    found = dict.fromkeys(("words", "figures", "tables", "folded", "long"), 0)
    for cell in _outside_solutions(read_notebook(page).cells):
        if cell.cell_type == "markdown":
            found["words"] += words(cell.source)
            found["figures"] += cell.source.count("```{figure}")
            continue
        tags = tags_on_the_page(set(cell.metadata.get("tags", [])), cell.source)
        if tags & {"remove-cell", "remove-input"}:
            continue
        folded = bool(tags & {"hide-input", "hide-cell"})
        figure = "figure" in cell.metadata.get("mystnb", {})
        found["folded"] += folded
        found["figures"] += figure and "moving_" not in cell.source
        found["tables"] += not figure and shows_a_table(cell.source)
        found["long"] += not folded and is_long(cell.source)
    return found


def words(text: str) -> int:
    """Number of words of a page's text."""
    return len(re.sub(r"\$[^$]+\$", "x", _NO_WORDS.sub("", text)).split())


def shows_a_table(source: str) -> bool:
    """Whether a cell ends in an expression that Jupyter shows as a table."""
    body = ast.parse(source).body
    last = body[-1] if body else None
    return isinstance(last, ast.Expr) and bool(_TABLE.search(ast.unparse(last)))


def is_long(source: str) -> bool:
    """Whether a cell has more lines, or a longer one, than fit on a screen."""
    lines = source.splitlines()
    return len(lines) > LINES or any(len(line) > CHARACTERS for line in lines)


def _outside_solutions(cells: list) -> list:
    """Cells that stand in no solution; text of a cell that holds a part of one is cut."""
    seen, inside = [], False
    for cell in cells:
        if cell.cell_type != "markdown":
            seen += [] if inside else [cell]
            continue
        pieces = _SOLUTION.split(cell.source)
        kept = "" if inside else pieces[0]
        for mark, text in zip(pieces[1::2], pieces[2::2], strict=True):
            inside = mark == "start"
            kept += "" if inside else text
        seen.append(nbformat.v4.new_markdown_cell(kept))
    return seen


def main() -> None:
    """Print one line a page, in the order of the book, and the sum of the words."""
    pages = {page.stem: page for page in all_notebooks()}
    counted = {name: form(pages[name]) for name in parts() if name in pages}
    print(f"{'':21s}" + "".join(f"{name:>9s}" for name in next(iter(counted.values()))))
    for name, found in counted.items():
        print(f"{name:21s}" + "".join(f"{number:9d}" for number in found.values()))
    print(f"{'all':21s}{sum(found['words'] for found in counted.values()):9d}")


if __name__ == "__main__":
    main()
