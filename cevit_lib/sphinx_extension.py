"""What this book adds to Sphinx; loaded by ``_config.yml`` and by nothing else.

- theorems and exercises can be written into one HTML file, from which the PDF is printed;
- fields of named tuples stand in the reference without Python's own remark on their number;
- a page made from a notebook gets a button that opens it on Colab, if the book is built for a public repository
  (``CEVIT_REPOSITORY=owner/name``, which the publishing workflow sets); without one there is no such button.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import Any

COLAB = "https://colab.research.google.com/github"
BRANCH = "colab"  # where the publishing workflow puts the notebooks with their set-up cell


def colab_address(page: str, repository: str, version: str) -> str | None:
    """Return where Colab finds the notebook of a page, or None for a page that is no notebook.

    Raises
    ------
    ValueError
        ``repository`` is not ``owner/name``.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ValueError(f"CEVIT_REPOSITORY is {repository!r}; expected owner/name, as in 'owner/name'")
    path = PurePosixPath(page)
    if path.parent.name != "executed":
        return None
    return f"{COLAB}/{repository}/blob/{BRANCH}/v{version}/{path.name}.ipynb"


def _add_button(app, pagename: str, templatename: str, context: dict, doctree) -> None:
    repository = os.environ.get("CEVIT_REPOSITORY")
    address = colab_address(pagename, repository, app.config.release) if repository else None
    if address:
        context.setdefault("header_buttons", []).append(
            {"type": "link", "url": address, "text": "Colab", "tooltip": "Open this notebook on Colab",
             "icon": "fas fa-rocket", "label": "colab-button"})  # fmt: skip


def _share_with_one_file(app) -> None:
    """Give the builder of one HTML file the handlers that extensions registered for ``html`` alone."""
    handlers = app.registry.translation_handlers
    for node, pair in handlers.get("html", {}).items():
        handlers.setdefault("singlehtml", {}).setdefault(node, pair)


def _quiet_fields(app, what: str, name: str, thing, options, lines: list[str]) -> None:
    """Python's own words for a named tuple's fields say nothing that a reader wants; the class tells what they are."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def setup(app) -> dict[str, Any]:
    """Connect the above; Sphinx calls it."""
    app.connect("builder-inited", _share_with_one_file, priority=1)
    app.connect("autodoc-process-docstring", _quiet_fields)
    app.connect("html-page-context", _add_button)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
