"""An executed notebook on its way to the page: what forbids it, and how it is dressed for the
reader."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path

import nbformat

from cevit_lib.paths import project_root
from cevit_lib.runner import declared_parameters

#: The badge's mark of a smoke run, and the one across a figure.
SMOKE_MARKS = ("SMOKE RUN", "smoke run: not a result")
DIRTY_MARK = "DIRTY ·"  # the badge of records made with uncommitted code
#: Bytes of an executed notebook: more is nearly always a progress bar or a photograph.
LARGEST_PAGE = 2_000_000
_SENTINEL = re.compile(r"^\s*(\w+\.)*finished\(\)\s*$", re.MULTILINE)
_BADGE = re.compile(r"^(\w+\.)*(live_)?badge\(.*\)\s*\Z", re.MULTILINE)  # the cell's last line
_OTHER_IMPORT = re.compile(r"^(?:import|from) (?!cevit_lib\.runner\b)", re.MULTILINE)
_LINK = re.compile(r"\]\((\.\./book/)?(\w+)\.md((?:#[\w-]+)?)\)")
_ANCHOR = '<span id="provenance"></span>'
_MACHINE = ("papermill", "execution")  # times and paths


def scan(path: Path) -> list[str]:
    """What forbids an executed notebook to be published; an empty list when nothing does.

    Looks for error outputs, cells that were not run, output of a smoke run or of uncommitted code,
    figures without name, caption or alternative text, and oversized output.
    """
    notebook = nbformat.read(path, as_version=4)
    faults = []
    if (size := path.stat().st_size) > LARGEST_PAGE:
        faults.append(f"is {size / 1e6:.1f} MB large, more than {LARGEST_PAGE / 1e6:.0f} MB")
    ran = notebook.metadata.get("papermill", {}).get("parameters", {})
    for name, value in ({"scale": "stored"} | _declared(notebook)).items():
        if ran.get(name, value) != value:
            faults.append(f"was run at {name}={ran[name]!r}, not as it is declared")
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and cell.source.strip():
            faults += [f"cell {number}: {fault}" for fault in _cell_faults(cell)]
    return faults


def _declared(notebook) -> dict[str, object]:
    """Return the defaults of a page's parameters, as JSON would have them."""
    cells = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    known = declared_parameters(cells[0].source) if cells else {}
    return json.loads(json.dumps({name: default for name, (_, default) in known.items()}))


def _cell_faults(cell) -> Iterable[str]:
    if cell.execution_count is None:
        yield f"was not executed ({cell.source.strip().splitlines()[0][:60]!r})"
    text = ""
    for output in cell.outputs:
        kinds = output.get("data", {})
        if output.output_type == "error":
            yield f"failed with {output.ename}: {output.evalue[:200]}"
        plain = "".join(kinds.get("text/plain", ""))
        text += "".join(output.get("text", "")) + plain
        if any(kind.startswith("image/") for kind in kinds):
            yield from _figure_faults(cell.metadata.get("mystnb", {}))
        elif plain.startswith("<Figure size"):
            yield "prints a figure's size and draws none (not under cevit_lib.clinic.style?)"
    if any(mark in text for mark in SMOKE_MARKS):
        yield "shows numbers of a smoke run"
    if DIRTY_MARK in text:
        yield "shows numbers made with uncommitted code"


def _figure_faults(options: dict) -> Iterable[str]:
    for part, key in (("figure", "name"), ("figure", "caption"), ("image", "alt")):
        if not options.get(part, {}).get(key):
            yield f"draws a figure without {part}: {key} in its mystnb metadata"


def dress(path: Path) -> None:
    """Make an executed notebook fit for the page, in place.

    What papermill injected, the check of the parameters and the closing cell are taken off the
    page. The lines that say where numbers come from are gathered in one fold at its end, to which
    each caption leads. Links between sources become links between pages. The paths and times that
    papermill wrote are removed, so that the file says nothing of the machine.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.cells += _provenance(notebook.cells)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(_link_on_the_page, cell.source)
        for key in _MACHINE:
            cell.metadata.pop(key, None)
        code = cell.source if cell.cell_type == "code" else ""
        if tags := tags_on_the_page(set(cell.metadata.pop("tags", [])), code):
            cell.metadata["tags"] = sorted(tags)
    for key in set(notebook.metadata) - {"kernelspec", "language_info"}:
        del notebook.metadata[key]
    nbformat.write(notebook, path)


def tags_on_the_page(tags: set[str], code: str) -> set[str]:
    """Return the tags with which a cell goes to the page: parameters are seen, machinery is not."""
    checks = "check_parameters(" in code and not _OTHER_IMPORT.search(code)
    if checks or "injected-parameters" in tags or _SENTINEL.search(code):
        tags = tags | {"remove-cell"}
    if "hide-input" in tags and _BADGE.search(code):
        tags = tags - {"hide-input"} | {"remove-input"}
    return tags


def _provenance(cells: list) -> list:
    """Take the badges out of the outputs; return the cell of the fold that has them all."""
    found: dict[str, list[str]] = {}
    place, figure = "", None
    for cell in cells:
        if cell.cell_type == "markdown":
            place = (re.findall(r"^##+ (.+)$", cell.source, re.MULTILINE) or [place])[-1]
            continue
        for output in [each for each in cell.outputs if _is_badge(each)]:
            cell.outputs.remove(output)
            said = "".join(output.data["text/plain"])
            found.setdefault(said, []).append(_credited(figure, said) if figure else place)
            figure = None
        drawn = cell.metadata.get("mystnb", {}).get("figure")
        figure = drawn if drawn and "name" in drawn else figure
    if not found:
        return []
    lines = [f"- {', '.join(dict.fromkeys(of))}: {said}" for said, of in found.items()]
    text = "\n".join(["```{dropdown} Where the numbers come from", _ANCHOR, "", *lines, "```"])
    return [nbformat.v4.new_markdown_cell(text, id="provenance")]


def _is_badge(output) -> bool:
    return "cevit-badge" in "".join(output.get("data", {}).get("text/html", ""))


def _credited(figure: dict, said: str) -> str:
    """Lead from the end of a caption to the fold; return the mention of the figure there."""
    link = f'<a class="cevit-source" href="#provenance" title="{escape(said)}">'
    figure["caption"] = f"{figure['caption'].strip()} {link}{said.split(' · ')[0]}</a>"
    return f"{{numref}}`{figure['name']}`"


def _link_on_the_page(found: re.Match) -> str:
    """A link between sources, as it must read on the executed page: chapters lie beside it, prose
    one folder up."""
    folder, name, rest = found.groups()
    if not folder and (project_root() / "notebooks" / f"{name}.md").is_file():
        return f"]({name}.ipynb{rest})"
    if (project_root() / "book" / f"{name}.md").is_file():
        return f"](../{name}.md{rest})"
    return found.group()  # the build will name it
