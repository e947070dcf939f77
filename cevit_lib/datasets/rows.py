"""The rows of a table: which are chosen, whose they are, and why others cannot be used."""

import re
from collections import Counter

import pandas as pd

from cevit_lib.datasets.cells import Problem
from cevit_lib.datasets.layout import Layout
from cevit_lib.datasets.rules import folded, whole
from cevit_lib.datasets.values import counted
from cevit_lib.edge import nearest
from cevit_lib.errors import DataError


def chosen_rows(frame: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """Return the rows that ``where`` keeps.

    Raises
    ------
    DataError
        It keeps none.
    """
    for column, text in layout.where.items():
        kept = frame[frame[column].map(folded) == folded(text)]
        if kept.empty:
            there = frame[column]
            raise DataError(
                f"no row of the table has {column} = {text!r}{nearest(text, set(there))}; the "
                f"column holds {counted(there)}. Correct 'where' in the layout."
            )
        frame = kept
    return frame


def placed_rows(
    frame: pd.DataFrame, layout: Layout, problems: list[Problem]
) -> tuple[pd.DataFrame, list[tuple[str, str]], Counter]:
    """Return the line of each patient (and visit) and eye, whose they are, and what was rejected.

    Rows of nobody, of no eye or double are problems.
    """
    owners: dict[tuple[str, str], dict[str, int]] = {}
    rejected: Counter = Counter()
    for line, row in frame.iterrows():
        owner = row[layout.patient], whole(row[layout.visit]) if layout.visit else ""
        code = row[layout.eye] if layout.eye else ""
        eyes = [layout.codes.get(folded(code))] if layout.eye else layout.domains
        reason, *told = _wrong(owner, code, owners.get(owner, {}).get(eyes[0]), layout)
        if not reason:
            owners.setdefault(owner, {}).update(dict.fromkeys(eyes, line))
            continue
        rejected[reason] += 1
        problems.append(Problem(told[0], line, told[1]))
    lines = pd.DataFrame(list(owners.values()), columns=list(layout.domains), dtype=float)
    return lines, list(owners), rejected


def _wrong(
    owner: tuple[str, str], code: str, earlier: int | None, layout: Layout
) -> tuple[str, ...]:
    """Return why a row cannot be used, the sentence and the column; ``("",)`` where it can."""
    organ, (patient, visit) = layout.organ, owner
    if _nameless(patient, layout):
        said = "no patient's id; fill it in (also below merged cells) or delete the row"
        return "rows without a patient's id", said, layout.patient
    if re.fullmatch(r"\d([.,]\d+)?E\+?\d+", patient):
        said = f"{patient!r}: a spreadsheet program shortened this id; fetch the table again and "
        return "rows whose id was shortened", f"{said}keep the column as text", layout.patient
    if layout.visit and _nameless(visit, layout):
        return "rows without a visit", "no visit; fill it in or delete the row", layout.visit
    if layout.eye and folded(code) not in layout.codes:
        left, right = layout.domains
        said = (
            f"{code!r} is no known code of {layout.one}; write {right} or {left}, or declare it: "
            f"'laterality: {{{code or 1}: {right} or {left}, ...}}'"
        )
        return f"rows of no known {organ}, their code is {code!r}", said, layout.eye
    if earlier:
        what = f"{layout.codes[folded(code)]} of patient" if layout.eye else "patient"
        said = (
            f"{what} {patient!r} stands in line {earlier} already; keep one row, or name the "
            "column of several visits by 'visit', or choose one of them by 'where'"
        )
        return "rows that repeat another", said, layout.patient
    return ("",)


def _nameless(text: str, layout: Layout) -> bool:
    """Tell whether a name is missing; patient 999 is somebody where 999 is no measurement."""
    return layout.is_missing(text) and not text.isdigit()
