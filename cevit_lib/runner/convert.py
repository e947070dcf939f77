"""From a page in Markdown to a notebook: read it, check its form, write the clean copy for papermill and Colab."""

import ast
import hashlib
from difflib import get_close_matches
from pathlib import Path

from cevit_lib.errors import NotebookError, ParameterError
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
    path = Path(name).expanduser()
    if path.suffix in (".md", ".ipynb"):
        for candidate in (path, project_root() / path):
            if candidate.is_file():
                return candidate.resolve()
    page = project_root() / "notebooks" / f"{path.name}.md"
    if path.suffix == "" and page.is_file():
        return page
    pages = sorted(found.stem for found in page.parent.glob("*.md"))
    close = get_close_matches(path.stem, pages, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise NotebookError(
        f"no notebook {name!r}: {hint}Name a page ({', '.join(pages) or 'there is none yet'}) or give "
        "the path of a .md or .ipynb file"
    )


def read_notebook(path: Path):
    """Return the notebook of a MyST Markdown or .ipynb file: no outputs, kernel ``python3``, ids that never change.

    A cell's id is the hash of its source, so regenerating an unchanged page gives the same bytes, and editing one
    cell changes one id.

    Raises
    ------
    NotebookError
        The file cannot be read as a notebook.
    """
    try:
        import jupytext
        import nbformat
    except ImportError as error:
        raise NotebookError(
            f"{error}; running notebooks needs the extra 'book': pip install 'cevit-lib[book]'"
        ) from None
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
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        digest = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
        seen[digest] = seen.get(digest, 0) + 1
        cell["id"] = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def tagged(notebook, tag: str) -> list[int]:
    """Return the positions of the cells that carry a tag."""
    return [
        index for index, cell in enumerate(notebook.cells) if tag in cell.metadata.get("tags", [])
    ]


def notebook_parameters(notebook, name: str) -> dict:
    """Return ``name -> (type, default)`` from the one cell tagged ``parameters``.

    Raises
    ------
    NotebookError
        There is not exactly one such cell.
    """
    found = tagged(notebook, "parameters")
    if len(found) != 1:
        raise NotebookError(
            f"{name} has {len(found)} cells tagged 'parameters', expected exactly one"
        )
    return declared_parameters(notebook.cells[found[0]].source)


def form_faults(notebook, name: str) -> list[str]:
    """Return what a page lacks of the form that every page has; an empty list is a well-formed page."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    try:
        declared = notebook_parameters(notebook, name)
    except (NotebookError, ParameterError) as error:
        return [str(error)]
    faults = [
        f"{name}: {line.strip()!r} is a shell line or magic, whose failure would go unnoticed"
        for cell in code
        for line in cell.source.splitlines()
        if line.lstrip().startswith(("!", "%"))
    ]
    faults += [
        f"{name} imports myst_nb, which Colab lacks" for cell in code if "myst_nb" in cell.source
    ]
    head = code.index(notebook.cells[tagged(notebook, "parameters")[0]])
    checked = _checked_names(code[head + 1].source) if head + 1 < len(code) else None
    if checked is None:
        faults.append(
            f"{name}: the cell after the parameters does not call check_parameters({{...}}, globals())"
        )
    elif checked != set(declared):
        faults.append(
            f"{name}: check_parameters names {sorted(checked)}, the parameters cell {sorted(declared)}"
        )
    if not has_sentinel(notebook):
        faults.append(f"{name}: the last code cell does not call finished()")
    elif "remove-cell" not in code[-1].metadata.get("tags", []):
        faults.append(f"{name}: the cell of finished() is not tagged remove-cell")
    return faults


def has_sentinel(notebook) -> bool:
    """Tell whether the last code cell calls ``finished()``."""
    code = [
        cell.source for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()
    ]
    return bool(code) and "finished()" in code[-1]


def _checked_names(source: str) -> set[str] | None:
    """Return the keys of the dict that a cell passes to ``check_parameters``; None where it makes no such call."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:
        return None
    for node in nodes:
        called = getattr(node, "func", None)
        if getattr(called, "id", getattr(called, "attr", None)) == "check_parameters" and node.args:
            keys = getattr(node.args[0], "keys", [])
            return {key.value for key in keys if isinstance(key, ast.Constant)}
    return None


def clean_copies(root: Path | None = None) -> dict[Path, str]:
    """Return ``path -> text`` of ``notebooks/ipynb/NAME.ipynb`` for every page, made in memory."""
    import nbformat

    folder = (root or project_root()) / "notebooks"
    return {
        folder / "ipynb" / f"{page.stem}.ipynb": nbformat.writes(read_notebook(page)) + "\n"
        for page in sorted(folder.glob("*.md"))
    }


def write_clean_copies(check: bool = False) -> int:
    """Write the clean copies, or with ``check`` only list those that differ; return how many differed."""
    copies = clean_copies()
    folder = project_root() / "notebooks" / "ipynb"
    changed = [
        path
        for path, text in copies.items()
        if not path.is_file() or path.read_text("utf-8") != text
    ]
    stale = [path for path in folder.glob("*.ipynb") if path not in copies]
    for path in [*changed, *stale]:
        print(
            f"{path.relative_to(project_root())} {'differs from its page' if check else 'written'}"
            if path in copies
            else f"{path.relative_to(project_root())} has no page any more"
        )
        if not check:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(copies[path], "utf-8") if path in copies else path.unlink()
    return len(changed) + len(stale)
