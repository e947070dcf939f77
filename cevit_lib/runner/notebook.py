"""A page as a notebook: find it, read it, find its parameters and its end."""

import hashlib
from pathlib import Path

from cevit_lib.edge import nearest
from cevit_lib.errors import NotebookError
from cevit_lib.paths import project_root
from cevit_lib.runner.parameters import declared_parameters

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}


def find_notebook(name: str) -> Path:
    """Return the path of a page named ``data``, or of a ``.md`` or ``.ipynb`` file.

    Raises
    ------
    NotebookError
        There is none; the message lists the pages that exist.
    """
    path, root = Path(name).expanduser(), project_root()
    for place in (path, root / path, root / "notebooks" / f"{path}.md"):
        if place.suffix in (".md", ".ipynb") and place.is_file():
            return place.resolve()
    pages = sorted(found.stem for found in (root / "notebooks").glob("*.md"))
    if not pages:
        raise NotebookError(
            f"no notebook {name!r}: the pages lie in a clone of the compendium, and {root} is "
            "none; go into one, set CEVIT_ROOT, or give the path of a file"
        )
    raise NotebookError(
        f"no notebook {name!r}{nearest(path.stem, pages)}: name a page ({', '.join(pages)}) or "
        "give the path of a .md or .ipynb file"
    )


def read_notebook(path: Path):
    """Return the notebook of a MyST Markdown or .ipynb file: no outputs, nothing that an earlier
    run injected, kernel ``python3``, ids that never change.

    A cell's id is the hash of its source, so regenerating an unchanged page gives the same bytes,
    and editing one cell changes one id.

    Raises
    ------
    NotebookError
        The file cannot be read as a notebook.
    """
    import jupytext
    import nbformat

    try:
        notebook = jupytext.read(path)
        notebook.metadata = nbformat.from_dict(
            {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
        )
        notebook = nbformat.v4.upgrade(notebook)
    except Exception as error:  # parsers raise what they like; the user needs the file's name
        raise NotebookError(
            f"{path} cannot be read as a notebook: {type(error).__name__}: {error}"
        ) from None
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.cells = [
        cell
        for cell in notebook.cells
        if "injected-parameters" not in cell.metadata.get("tags", [])
    ]
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        digest = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
        seen[digest] = seen.get(digest, 0) + 1
        cell["id"] = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def notebook_parameters(notebook, name: str) -> dict:
    """Return ``name -> (type, default)`` from the one cell tagged ``parameters``.

    Raises
    ------
    NotebookError
        There is not exactly one such cell.
    """
    found = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(found) != 1:
        raise NotebookError(
            f"{name} has {len(found)} cells tagged 'parameters', expected exactly one"
        )
    return declared_parameters(found[0].source)


def code_cells(notebook) -> list:
    """Return the cells of code that are not empty."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def has_sentinel(notebook) -> bool:
    """Tell whether the last code cell calls ``finished()``."""
    return any("finished()" in cell.source for cell in code_cells(notebook)[-1:])
