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


if __name__ == "__main__":
    made = clean_copies()
    for old in (project_root() / "notebooks" / "ipynb").glob("*.ipynb"):
        old.unlink()
    for path, text in made.items():
        path.write_text(text, "utf-8")
