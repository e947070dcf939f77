"""Any group's own paired eyes: a wide or long table, with photographs or without, becomes ``PairedEyes``."""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cevit_lib.datasets.cells import Cells, Problem, decimal_mark, read_cells
from cevit_lib.datasets.images import ImageFiles
from cevit_lib.datasets.layout import EYES, NUMBER, Layout, Rule, guess_layout, read_layout
from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.errors import DataError

Row = tuple[int, dict[str, str]]


@dataclass(frozen=True)
class Arranged:
    """A table put in order, one patient a row, with everything wrong in it.

    Attributes
    ----------
    ids : tuple of str
    lines : list of dict
        Eye to line of the table, for the eyes that have a row.
    y : (n, p) array
    responses : tuple of str
    continuous : int
    covariates : (n, 2, k) array
    images : list of dict
        Eye to file name, where one is named.
    layout : Layout
    facts, flow : dict
    codes : dict
        Codes of an eye that the table holds (lower case), to ``OS`` or ``OD``.
    problems : list of Problem
    """

    ids: tuple[str, ...]
    lines: list[dict[str, int]]
    y: np.ndarray
    responses: tuple[str, ...]
    continuous: int
    covariates: np.ndarray
    images: list[dict[str, str]]
    layout: Layout
    facts: dict[str, str]
    flow: dict[str, int]
    codes: dict[str, str]
    problems: list[Problem] = field(default_factory=list)


def load_paired_table(
    table: str | os.PathLike | Cells,
    images: str | os.PathLike | None = None,
    layout: str | os.PathLike | dict[str, Any] | None = None,
    *,
    name: str | None = None,
    responses: bool = True,
) -> PairedEyes:
    """Load paired eyes from a table of one row a patient or one row an eye.

    Nothing is dropped in silence. An eye or a response that is not there is ``NaN`` and enters the marginal likelihood
    of what is. With photographs, the responses of an eye without one are set to ``NaN``, for the encoder would see a
    black image, and a patient without any photograph is left out; ``notes["flow"]`` counts both.

    Parameters
    ----------
    table : path
        CSV (encoding, separator and decimal mark are recognised or declared) or Excel (``.xlsx``); or its cells, read
        before.
    images : path, optional
        Folder of the photographs. Without it the data set is a table only: ``images`` is ``None``, ``load`` refuses,
        and splits, hash and responses work as ever.
    layout : path or dict, optional
        YAML file (or what it would hold), see :class:`cevit_lib.datasets.layout.Layout`. Without it usual names of
        columns are recognised; ``notes["layout"]`` says what was taken for what.
    name : str, optional
        Name of the data set; default is the table's.
    responses : bool
        ``False`` lets the table lack columns of responses and covariates, as that of patients who are to be predicted:
        they are then not observed.

    Returns
    -------
    PairedEyes
        Domain 1 is the left eye (OS). ``notes`` holds the flow, the map of laterality codes, the columns and rules,
        encoding, separator and decimal mark, and warnings.

    Raises
    ------
    DataError
        Something in the table or the layout is wrong: the message names line and column, and how many more there are.
        ``cevit check-data`` lists them all.
    """
    arranged = arrange(table if isinstance(table, Cells) else Path(table), layout, responses)
    table = arranged.facts["file"] if isinstance(table, Cells) else table
    errors = [problem for problem in arranged.problems if problem.error]
    if errors:
        more = f" ({len(errors) - 1} more: cevit check-data lists all)" if len(errors) > 1 else ""
        raise DataError(f"{table}, {errors[0]}{more}")
    y, flow, files, keep = (
        arranged.y.copy(),
        dict(arranged.flow),
        None,
        np.ones(len(arranged.ids), dtype=bool),
    )
    layout = arranged.layout
    if images is not None:
        paths = image_paths(arranged, Path(images))
        _require_files(arranged, paths, table)
        keep = blank_unseen(arranged, paths, y, flow)
        files = ImageFiles(
            tuple(row for row, k in zip(paths, keep, strict=True) if k),
            layout.size,
            (layout.mirror, False),
        )
        if not keep.any():
            raise DataError(
                f"{table}: no patient has a photograph in {images}; give 'image' or 'file' in the layout."
            )
    flow["patients kept"] = int(keep.sum())
    return PairedEyes(
        images=files,
        y=torch.from_numpy(y[keep]),
        ids=tuple(np.asarray(arranged.ids, dtype=object)[keep]),
        responses=arranged.responses,
        continuous=arranged.continuous,
        name=name or Path(table).stem,
        notes={
            "flow": flow,
            "laterality": layout.codes if layout.eye else dict(layout.eyes),
            "table": arranged.facts,
            "layout": {
                k: v
                for k, v in vars(layout).items()
                if v and k not in ("size", "mirror", "laterality")
            },
            "size": layout.size,
            "mirror_left": layout.mirror,
            "warnings": [str(p) for p in arranged.problems],
        },
        covariates=torch.from_numpy(arranged.covariates[keep]) if layout.covariates else None,
        covariate_names=tuple(layout.covariates),
    )


def arrange(
    table: Path | Cells,
    layout: str | os.PathLike | dict[str, Any] | None = None,
    responses: bool = True,
) -> Arranged:
    """Read a table and put it in order; wrong rows are collected, not raised. Arguments as in ``load_paired_table``.

    Raises
    ------
    DataError
        The table cannot be read at all, or the layout does not fit it.
    """
    declared = Layout(patient="") if layout is None else read_layout(layout)
    cells = table if isinstance(table, Cells) else None
    cells = cells or read_cells(Path(table), declared.encoding, declared.separator, declared.sheet)
    layout = guess_layout(cells.header) if layout is None else declared
    _require_columns(cells, layout, responses)
    problems = list(cells.problems)
    rows = [row for row in cells.rows if all(row[1][k] == v for k, v in layout.where.items())]
    eyes = _by_patient(rows, layout, problems)
    names = [*layout.continuous, *layout.binary]
    columns = {**layout.continuous, **layout.binary}
    mark = decimal_mark(_numeric_cells(rows, layout), layout.decimal)
    read = _Reader(layout, mark, problems)
    slots = [
        (name, eye) for name in names for eye in ([""] if name in layout.patient_level else EYES)
    ]
    y = np.array(
        [
            [read.response(name, columns[name], eye, of) for name, eye in slots]
            for of in eyes.values()
        ]
    )
    y = y.reshape(len(eyes), len(slots))
    covariates = [
        [[read.covariate(text, eye, of) for text in layout.covariates.values()] for eye in EYES]
        for of in eyes.values()
    ]
    images = [_image_names(patient, of, layout) for patient, of in eyes.items()]
    continuous = sum(name in layout.continuous for name, _ in slots)
    return Arranged(
        ids=tuple(eyes),
        lines=[{eye: row[0] for eye, row in of.items()} for of in eyes.values()],
        y=y,
        responses=tuple(f"{name}_{eye}".rstrip("_") for name, eye in slots),
        continuous=continuous,
        covariates=np.array(covariates, dtype=float).reshape(len(eyes), 2, len(layout.covariates)),
        images=images,
        layout=layout,
        facts={**cells.facts, "decimal": mark},
        flow=_flow(cells, rows, eyes, y, slots),
        codes=_codes_used(rows, layout),
        problems=problems,
    )


def image_paths(arranged: Arranged, folder: Path) -> tuple[tuple[Path | None, ...], ...]:
    """Return the file of each patient and eye; ``None`` where the table names none, or its pattern finds none."""
    if not folder.is_dir():
        raise DataError(
            f"the folder of photographs {folder} does not exist; give the right one by --images FOLDER."
        )
    layout, rows = arranged.layout, []
    for of in arranged.images:
        paths = [folder / of[eye] if eye in of else None for eye in EYES]
        rows.append(
            tuple(None if layout.file and p is not None and not p.exists() else p for p in paths)
        )
    return tuple(rows)


def blank_unseen(
    arranged: Arranged, paths: tuple, y: np.ndarray, flow: dict[str, int]
) -> np.ndarray:
    """Set to ``NaN`` (in place) what belongs to an eye without photograph; return which patients have one at all."""
    seen = np.array([[path is not None for path in row] for row in paths]).reshape(len(paths), 2)
    blanked = 0
    for k, response in enumerate(arranged.responses):
        for j, eye in enumerate(EYES):
            if response.endswith(f"_{eye}") and response[:-3] not in arranged.layout.patient_level:
                gone = ~seen[:, j] & seen.any(1) & np.isfinite(y[:, k])
                y[gone, k] = np.nan
                blanked += int(gone.sum())
    flow["photographs"] = int(seen.sum())
    flow["patients with one photograph only"] = int((seen.sum(1) == 1).sum())
    flow["patients without any photograph, left out"] = int((~seen.any(1)).sum())
    flow["responses set to not observed, their eye has no photograph"] = blanked
    return seen.any(1)


def _require_columns(cells: Cells, layout: Layout, responses: bool) -> None:
    wanted = [layout.patient, layout.eye, *layout.where]
    for eye in EYES:
        texts = [*layout.continuous.values(), *layout.binary.values(), *layout.covariates.values()]
        wanted += [layout.rule(text, eye).column for text in texts if responses]
        wanted.append(image_column(layout, eye))
    lacking = sorted({column for column in wanted if column and column not in cells.header})
    if lacking:
        raise DataError(
            f"table {cells.facts['file']} lacks the columns {', '.join(lacking)}; it has {', '.join(cells.header)}. "
            "Correct the layout: names are compared letter by letter."
        )


def _codes_used(rows: list[Row], layout: Layout) -> dict[str, str]:
    if not layout.eye:
        return {code: eye for eye, code in layout.eyes.items()}
    found = sorted({cells[layout.eye].casefold() for _, cells in rows})
    return {code: layout.codes[code] for code in found if code in layout.codes}


def _by_patient(
    rows: list[Row], layout: Layout, problems: list[Problem]
) -> dict[str, dict[str, Row]]:
    """Group rows by patient, in the order of the table: patient to eye to row (both eyes the same one if wide)."""
    patients: dict[str, dict[str, Row]] = {}
    for line, cells in rows:
        patient = cells[layout.patient]
        if patient.casefold() in layout.missing:
            problems.append(
                Problem("no patient's id; fill it in or delete the row", line, layout.patient)
            )
            continue
        code = cells[layout.eye] if layout.eye else ""
        eyes = [layout.codes.get(code.casefold())] if layout.eye else list(EYES)
        if eyes[0] is None:
            problems.append(
                Problem(
                    f"{code!r} is no known code of an eye; write OD or OS, or declare it: "
                    f"'laterality: {{{code or 1}: OD, ...}}'",
                    line,
                    layout.eye,
                )
            )
            continue
        of = patients.setdefault(patient, {})
        if eyes[0] in of:
            what = f"{eyes[0]} of patient" if layout.eye else "patient"
            problems.append(
                Problem(
                    f"{what} {patient!r} stands in line {of[eyes[0]][0]} already; keep one row, for "
                    "several visits choose one by 'where'",
                    line,
                    layout.patient,
                )
            )
            continue
        of.update({eye: (line, cells) for eye in eyes})
    if not patients and not problems:
        raise DataError(f"no row of the table has {layout.where}; correct 'where' in the layout.")
    return patients


def _numeric_cells(rows: list[Row], layout: Layout) -> list[tuple[int, str, str]]:
    texts = [*layout.continuous.values(), *layout.binary.values(), *layout.covariates.values()]
    rules = {layout.rule(text, eye) for text in texts for eye in EYES}
    columns = sorted({rule.column for rule in rules if not rule.of_text})
    return [
        (line, column, cells[column])
        for line, cells in rows
        for column in columns
        if column in cells
    ]


class _Reader:
    """Turn cells into numbers; what is wrong goes to ``problems``, once a cell, and counts as not observed."""

    def __init__(self, layout: Layout, mark: str, problems: list[Problem]) -> None:
        self.layout, self.mark, self.problems = layout, mark, problems
        self.told: set[tuple[int, str]] = set()

    def response(self, name: str, text: str, eye: str, of: dict[str, Row]) -> float:
        """Return one entry of ``y``; with ``eye=""`` that of the patient, on which all rows must agree."""
        values = {}
        for side in [eye] if eye else of:
            if side in of:
                values[side] = self.value(name, self.layout.rule(text, side), of[side])
        seen = [value for value in values.values() if np.isfinite(value)]
        if len(set(seen)) > 1:
            lines = [of[side][0] for side in values]
            self.tell(
                f"the patient's rows (lines {lines[0]} and {lines[1]}) disagree on {name!r}; correct one, or "
                "take it from 'patient_level'",
                lines[-1],
                Rule.parse(text).column,
            )
        return seen[0] if seen else float("nan")

    def value(self, name: str, rule: Rule, row: Row) -> float:
        """Return the response, 0 or 1 if binary."""
        line, cells = row
        value = self.cell(rule, row)
        binary = name in self.layout.binary
        if binary and rule.operator is None and np.isfinite(value) and value not in (0, 1):
            return self.tell(
                f"{cells[rule.column]!r} is no binary response; write 0 or 1, or a rule in the layout",
                line,
                rule.column,
            )
        low, high = self.layout.limits.get(name, (-np.inf, np.inf))
        if not binary and not np.isnan(value) and not float(low) <= value <= float(high):
            message = f"{cells[rule.column]!r} is outside the limits {low} to {high} of {name!r}"
            return self.tell(message, line, rule.column)
        return value

    def covariate(self, text: str, eye: str, of: dict[str, Row]) -> float:
        """Return a covariate of one eye."""
        return self.cell(self.layout.rule(text, eye), of[eye]) if eye in of else float("nan")

    def cell(self, rule: Rule, row: Row) -> float:
        """Return a cell as a number, ``NaN`` where it is empty; a rule gives 0 or 1."""
        line, cells = row
        text = cells.get(rule.column, "")  # a column that need not be there, see `arrange`
        if text.casefold() in self.layout.missing:
            return float("nan")
        if rule.of_text:
            return rule.holds(text)
        # the other mark is left as something that is no number: "1.234,5" must not become 1.2345
        number = text.replace("−", "-")
        number = number.replace(".", "?").replace(",", ".") if self.mark == "," else number
        if not NUMBER.fullmatch(number):
            return self.tell(
                f"{text!r} is no number; correct it, or leave the cell empty for not observed",
                line,
                rule.column,
            )
        return rule.holds(float(number)) if rule.operator else float(number)

    def tell(self, message: str, line: int, column: str) -> float:
        """Note a problem and return ``NaN``."""
        if (line, column) not in self.told:
            self.told.add((line, column))
            self.problems.append(Problem(message, line, column))
        return float("nan")


def image_column(layout: Layout, eye: str) -> str | None:
    """Return the column that holds the file name of an eye's photograph."""
    return (
        layout.image.replace("{eye}", layout.eyes[eye])
        if layout.image and not layout.eye
        else layout.image
    )


def _image_names(patient: str, of: dict[str, Row], layout: Layout) -> dict[str, str]:
    names = {}
    for eye in EYES:
        if layout.file:
            names[eye] = layout.file.replace("{patient}", patient).replace(
                "{eye}", layout.eyes[eye]
            )
        elif layout.image and eye in of:
            column = image_column(layout, eye)
            if of[eye][1][column].casefold() not in layout.missing:
                names[eye] = of[eye][1][column]
    return names


def _flow(
    cells: Cells, rows: list[Row], eyes: dict, y: np.ndarray, slots: list[tuple[str, str]]
) -> dict[str, int]:
    flow = {"rows": len(cells.rows)}
    if len(rows) < len(cells.rows):
        flow["rows left out by 'where'"] = len(cells.rows) - len(rows)
    flow["patients"] = len(eyes)
    sides = Counter(
        sum(any(np.isfinite(y[i, k]) for k, (_, e) in enumerate(slots) if e == eye) for eye in EYES)
        for i in range(len(eyes))
    )
    if any(eye for _, eye in slots):
        flow["patients with responses of both eyes"] = sides[2]
        flow["patients with responses of one eye only"] = sides[1]
        flow["patients without a response of an eye"] = sides[0]
    for k, (name, eye) in enumerate(slots):
        flow[f"{name}_{eye}".rstrip("_") + " not observed"] = int(np.isnan(y[:, k]).sum())
    return flow


def _require_files(arranged: Arranged, paths: tuple, table: str | os.PathLike) -> None:
    for lines, row in zip(arranged.lines, paths, strict=True):
        for eye, path in zip(EYES, row, strict=True):
            if path is not None and not path.is_file():
                place = f"{table}, line {lines.get(eye)}"
                raise DataError(
                    f"{place}: image {path} does not exist; restore it or empty the cell."
                )
