"""Clean copies of the pages, for papermill and Colab: ``notebooks/ipynb/NAME.ipynb``.

``python -m tools.convert`` writes them; a test keeps them equal to their source.
"""

from __future__ import annotations

from pathlib import Path

import nbformat

from cevit_lib.paths import project_root
from cevit_lib.runner.notebook import read_notebook


def clean_copies(root: Path | None = None) -> dict[Path, str]:
    """Return ``path -> text`` of the copy of every page, made in memory."""
    folder = (root or project_root()) / "notebooks"
    return {
        folder / "ipynb" / f"{page.stem}.ipynb": nbformat.writes(read_notebook(page)) + "\n"
        for page in sorted(folder.glob("*.md"))
    }


def write_clean_copies(root: Path | None = None) -> list[Path]:
    """Write the copies that differ from their page, remove those without one, and return all
    these."""
    folder = (root or project_root()) / "notebooks" / "ipynb"
    folder.mkdir(parents=True, exist_ok=True)
    copies = clean_copies(root)
    there = {path: path.read_text("utf-8") for path in folder.glob("*.ipynb")}
    for path in there.keys() - copies.keys():
        path.unlink()
    changed = [path for path, text in copies.items() if there.get(path) != text]
    for path in changed:
        path.write_text(copies[path], "utf-8")
    return [*changed, *(there.keys() - copies.keys())]


if __name__ == "__main__":
    for written in write_clean_copies():
        print(written.relative_to(project_root()))
