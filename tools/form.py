"""How long a page is and what it is made of: words, figures, tables, folded cells, cells that do
not fit on a screen. ``python -m tools.form`` prints one line a page.

Counted is what a reader sees before opening anything: solutions are left out, and so are live
figures, the line below a figure and the cells that `tools.dress` takes off the page. A formula in a
sentence is one word, a displayed one is none.
"""

import ast
import re
from pathlib import Path

import pandas as pd
from sphinx_external_toc.parsing import parse_toc_yaml

from cevit_lib.paths import project_root
from tools.dress import tags_on_the_page
from tools.handout import unsolved
from tools.pages import chapters

LINES, CHARACTERS = 20, 88  # of a visible cell
_NO_WORDS = re.compile(
    r"^```\{math\}.*?^```|\$\$.*?\$\$(?: \(.*?\))?|^(?:```|:\w+:|\(.*\)=$).*?$|^[|:-]+$",
    re.MULTILINE | re.DOTALL,
)
_TABLE = re.compile(r"DataFrame|Series|[Tt]able|\.pivot|\.style\b")


def parts(root: Path | None = None) -> dict[str, str]:
    """Return chapter -> part of the book that it stands in."""
    trees = parse_toc_yaml((root or project_root()) / "_toc.yml").root.subtrees
    return {Path(name).name: tree.caption for tree in trees for name in tree.items}


def form(page: Path) -> dict[str, int]:
    """Count what a page shows.

    Returns
    -------
    counts : dict
        ``words``, ``figures``, ``tables``, ``folded`` and ``long``, the number of visible cells
        with more than 20 lines or a line of more than 88 characters.
    """
    found = dict.fromkeys(("words", "figures", "tables", "folded", "long"), 0)
    for cell in unsolved(page).cells:
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


def main() -> None:
    """Print one line a page, in the order of the book, and the sum of the words."""
    table = pd.DataFrame({page.stem: form(page) for page in chapters()}).T
    table.loc["all", "words"] = table["words"].sum()
    print(table.to_string(na_rep="", float_format="%.0f"))


if __name__ == "__main__":
    main()
