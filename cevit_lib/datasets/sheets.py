"""The Excel sheets of GRAPE's and PAPILA's archives, with two or three rows of header, as text."""

from pathlib import Path

import pandas as pd

from cevit_lib.datasets.cells import excel_lines
from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.errors import DataError, ParameterError


def find_file(root: Path, name: str) -> Path | None:
    """Return the file of that name in a folder or below it."""
    return next(iter(sorted(root.rglob(name))), None)


def read_sheet(path: Path, sheet: str | None, wanted: tuple[str, ...]) -> tuple[pd.DataFrame, dict]:
    """Return a sheet as text, its index the line of the file, and which column each name heads.

    Names are looked for in the first three rows, in lower case; ``wanted`` must be among them.

    Raises
    ------
    DataError
        The file cannot be read, or a wanted name is not there.
    """
    lines, sheet = excel_lines(path.read_bytes(), path, sheet)
    table = pd.DataFrame([cells for _, cells in lines], [line for line, _ in lines]).fillna("")
    place: dict[str, int] = {}
    for column in reversed(table.columns):
        place |= {name.casefold(): column for name in table[column].iloc[:3] if name}
    lacking = [name for name in wanted if name.casefold() not in place]
    if lacking:
        raise DataError(
            f"{path}, sheet {sheet!r} lacks {', '.join(lacking)}; it has {', '.join(place)}."
        )
    return table, place


def require_word(word: str, *words: str) -> None:
    """Refuse what is none of the words that an argument may be."""
    if word not in words:
        raise ParameterError(f"{word!r}: give {' or '.join(map(repr, words))}.")


def observed(data: PairedEyes, missing: str, flow: dict, notes: dict) -> PairedEyes:
    """Return the patients with all responses (``missing="drop"``) or with any (``"keep"``).

    The flow, as far as it is known, and the notes are completed.
    """
    require_word(missing, "drop", "keep")
    keep = data.complete if missing == "drop" else ~data.y.isnan().all(1).numpy()
    left = "without all four responses" if missing == "drop" else "without a response"
    flow = {**flow, left: int((~keep).sum()), "kept": int(keep.sum())}
    return data.subset(keep).replace(notes={**notes, "flow": flow, "missing": missing})
