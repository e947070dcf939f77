"""Which page of the book introduces a public object: ``page_of("copula", "CopulaLoss")``, and the page of all names.

    python -m tools.where    writes book/names.md

Only the page of each package is written down here. A name stands on that page if the page mentions it, otherwise on the
first page that does; a name that no page mentions belongs to its package's page.
"""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from pathlib import Path

from cevit_lib.paths import project_root
from tools.pages import EXECUTED, _files

#: Package -> the page that introduces it.
PAGE_OF = {
    "normal": "copula_loss",
    "copula": "copula_loss",
    "estimation": "estimation",
    "theory": "proofs",
    "datasets": "data",
    "encoder": "encoder",
    "training": "fit",
    "metrics": "axial_length",
    "comparison": "axial_length",
    "fit": "your_eyes",
    "verdicts": "verdicts",
    "records": "how_to_read_and_rerun",
    "runner": "how_to_read_and_rerun",
    "figures": "how_to_read_and_rerun",
    "errors": "how_to_read_and_rerun",
}
NAMES = Path("book/names.md")
REFERENCE = Path("book/api")
HEAD = """# Names in the library

Every public object of `cevit_lib`, with the page that introduces it. Made by `python -m tools.where`
from the docstrings; {doc}`notation` goes the other way, from symbols to names.
"""


def public_names(package: str) -> list[str]:
    """Names in a package's ``__all__``; of a module without one, its own classes and functions."""
    module = importlib.import_module(f"cevit_lib.{package}")
    if hasattr(module, "__all__"):
        return sorted(module.__all__, key=str.lower)
    own = (
        name
        for name, thing in vars(module).items()
        if getattr(thing, "__module__", "") == module.__name__
    )
    return sorted((name for name in own if not name.startswith("_")), key=str.lower)


@cache
def texts() -> dict[str, str]:
    """Page -> the code on it (cells, other fenced code, and `code` in the text), in the order of the book.

    The reference introduces nothing, and its pages are called like chapters.
    """
    import yaml

    root = project_root()
    names = [
        Path(name)
        for name in _files(yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8")))
    ]
    sources = {
        name.stem: root
        / ("notebooks" if name.parent == EXECUTED else name.parent)
        / f"{name.stem}.md"
        for name in names
        if name != NAMES.with_suffix("") and name.parent != REFERENCE
    }
    return {page: _code(path.read_text(encoding="utf-8")) for page, path in sources.items()}


def _code(text: str) -> str:
    fenced = re.compile(
        r"^```(?:\{code-cell\}.*?|python|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL
    )
    inline = re.findall(r"(?<![}`])`([^`\n]+)`(?!`)", fenced.sub("", text))
    return "\n".join([*fenced.findall(text), *inline])


def mentions(page: str, name: str) -> bool:
    """Whether a page has the name in its code or as code in its text."""
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", texts().get(page, "")) is not None


def page_of(package: str, name: str) -> str:
    """Return the page that introduces a public object.

    Raises
    ------
    KeyError
        The package has no page; give it one in `PAGE_OF`.
    """
    home = PAGE_OF[package]
    if mentions(home, name):
        return home
    return next((page for page in texts() if mentions(page, name)), home)


def summary(package: str, name: str) -> str:
    """The first line of an object's docstring; for a constant, its type."""
    thing = getattr(importlib.import_module(f"cevit_lib.{package}"), name)
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return f"a constant ({type(thing).__name__})"
    line = (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")
    line = re.sub(r":\w+:`([^`]*)`", r"`\1`", line).replace("``", "`").replace("|", "\\|")
    return re.split(r"(?<=\.)(?<!Eq\.)(?<!al\.)\s", line)[0]


def names_page() -> str:
    """Return the text of ``book/names.md``."""
    parts = [HEAD]
    for package in PAGE_OF:
        rows = []
        for name in public_names(package):
            page = page_of(package, name)
            target = (
                f"executed/{page}"
                if (project_root() / "notebooks" / f"{page}.md").is_file()
                else page
            )
            rows.append(f"| `{name}` | {summary(package, name)} | {{doc}}`{target}` |")
        head = f"## `cevit_lib.{package}`\n\n| Name | What it is | Page |\n|---|---|---|\n"
        parts.append(head + "\n".join(rows) + "\n")
    return "\n".join(parts)


def main() -> None:
    """Write the page."""
    (project_root() / NAMES).write_text(names_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
