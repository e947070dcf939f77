"""What this book adds to Sphinx; loaded by ``_config.yml`` and by nothing else.

- theorems and exercises can be written into one HTML file, from which the PDF is printed;
- fields of classes stand in the reference once, with what the docstring says of them;
- in the text, the first mention of a public name on a page leads to its entry in the reference;
- MathJax comes from an installed package and not from a network;
- a page gets buttons that lead to its source, and to Colab where it is a notebook, if the book is
  built for a public repository (``CEVIT_REPOSITORY=owner/name``, which the publishing workflow
  sets).
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
from collections import Counter
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from docutils import nodes
from sphinx import addnodes

COLAB = "https://colab.research.google.com/github"
BRANCH = "colab"  # where the publishing workflow puts the notebooks with their set-up cell


def site_address(repository: str) -> str:
    """Return where Pages shows the book of ``owner/name``."""
    owner, _, name = repository.partition("/")
    return f"https://{owner.lower()}.github.io/{name}/"


def copy_mathjax(folder: Path) -> None:
    """Copy from its package what the pages load: one component of MathJax 3.2.2, and its fonts."""
    packed = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
    fonts = packed.glob("output/chtml/fonts/woff-v2/*.woff")
    for part in (
        packed / "tex-mml-chtml.js",
        packed / "input/tex/extensions/boldsymbol.js",
        *fonts,
    ):
        target = folder / part.relative_to(packed)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(part, target)


def _bring_mathjax(app, failed: Exception | None) -> None:
    if not failed and app.builder.format == "html":
        copy_mathjax(Path(app.outdir) / "_static" / "mathjax")


def colab_address(page: str, repository: str) -> str | None:
    """Return where Colab finds the notebook of a page, or None for a page that is no notebook."""
    path = PurePosixPath(page)
    if path.parent.name != "executed":
        return None
    return f"{COLAB}/{repository}/blob/{BRANCH}/{path.name}.ipynb"


def source_address(page: str, repository: str) -> str | None:
    """Return where a page's text is edited, or None for a page that is made from the library."""
    path = PurePosixPath(page)
    if path.parent.name == "executed":
        path = PurePosixPath("notebooks") / path.name
    elif path.parent.name != "book":
        return None
    return f"https://github.com/{repository}/edit/main/{path}.md"


def _add_buttons(app, pagename: str, templatename: str, context: dict, doctree) -> None:
    if not (repository := os.environ.get("CEVIT_REPOSITORY")):
        return
    colab = colab_address(pagename, repository)
    home, edit = f"https://github.com/{repository}", source_address(pagename, repository)
    for address, text, tooltip, icon in (
        (colab, "Colab", "Open this notebook on Colab", "fas fa-rocket"),
        (edit, "Edit", "Suggest a change of this page", "fas fa-pencil"),
        (home, "Repository", "Code, records and issues", "fab fa-github"),
    ):
        button = {"type": "link", "url": address, "text": text, "tooltip": tooltip, "icon": icon}
        if address:
            label = f"{text.lower()}-button"
            context.setdefault("header_buttons", []).append(button | {"label": label})


def _share_with_one_file(app) -> None:
    """Give the builder of one HTML file the handlers that extensions registered for ``html``
    alone."""
    handlers = app.registry.translation_handlers
    for node, pair in handlers.get("html", {}).items():
        handlers.setdefault("singlehtml", {}).setdefault(node, pair)
    if (
        app.builder.name == "singlehtml"
    ):  # keep which page an anchor is on: several have the same; see publication.js
        app.builder.fix_refuris = lambda tree: None


def _skip_undescribed(app, what: str, name: str, thing, skip: bool, options) -> bool | None:
    """Leave out members of a class that are but values: its docstring and signature tell what they
    are."""
    own = not (
        inspect.isclass(thing)
        or inspect.isroutine(thing)
        or isinstance(thing, property | cached_property)
    )
    return True if what == "class" and own else None


def _fields_as_written(app, what: str, name: str, thing, options, lines: list[str]) -> None:
    """Keep names that share one description together, and the underscore at the end of a name; a
    constant has its value and not what Python says of its type."""
    if what == "data":
        lines.clear()
    for number, line in enumerate(lines):
        found = re.match(r":(ivar|vartype) ([^:]+):(.*)", line)
        if found:
            names = re.sub(r"_(?=,|$)", r"\\_", found[2].replace(", ", ","))
            lines[number] = f":{found[1]} {names}:{found[3]}"


def _space_names(app, doctree) -> None:
    """Put back the space between names that `_fields_as_written` kept together."""
    for node in doctree.findall(addnodes.literal_strong):
        if "," in node.astext():
            node.children = [nodes.Text(node.astext().replace(",", ", "))]


def _public(domain) -> dict[str, tuple[str, str]]:
    """Text of a mention -> page and anchor in the reference; names that are common words too are
    left out."""
    places = {
        name: (entry.docname, entry.node_id)
        for name, entry in domain.objects.items()
        if entry.objtype in ("class", "function", "exception", "data") and not entry.aliased
    }
    places |= {name: (module.docname, module.node_id) for name, module in domain.modules.items()}
    short = Counter(name.rsplit(".", 1)[-1] for name in places)
    return places | {
        word: place
        for name, place in places.items()
        if short[word := name.rsplit(".", 1)[-1]] == 1 and re.search("[A-Z_]", word)
    }


def _link_names(app, doctree, docname: str) -> None:
    """Lead from the first mention of a public name on a page to its entry in the reference."""
    if app.builder.name != "html" or docname.startswith("book/api/"):
        return
    places, seen = _public(app.env.get_domain("py")), set()
    for node in list(doctree.findall(nodes.literal)):
        name, up = node.astext().removesuffix("()"), node.parent
        while up is not None and not isinstance(up, nodes.reference | nodes.title | addnodes.desc):
            up = up.parent
        if up is not None or name not in places or name in seen:
            continue
        seen.add(name)
        target, anchor = places[name]
        address = f"{app.builder.get_relative_uri(docname, target)}#{anchor}"
        link = nodes.reference("", "", internal=True, refuri=address)
        node.replace_self(link)
        link += node


def setup(app) -> dict[str, Any]:
    """Connect the above; Sphinx calls it."""
    if repository := os.environ.get("CEVIT_REPOSITORY"):
        app.tags.add("published")  # what stands beside the pages has a place to be linked to
        site = {"html_baseurl": site_address(repository), "ogp_site_url": site_address(repository)}
        app.connect("config-inited", lambda app, config: vars(config).update(site))
    app.connect("builder-inited", _share_with_one_file, priority=1)
    app.connect("autodoc-skip-member", _skip_undescribed)
    app.connect("autodoc-process-docstring", _fields_as_written, priority=600)  # after napoleon
    app.connect("doctree-read", _space_names)
    app.connect("doctree-resolved", _link_names)
    app.connect("html-page-context", _add_buttons)
    app.connect("build-finished", _bring_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
