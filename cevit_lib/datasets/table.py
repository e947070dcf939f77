"""Any group's own paired eyes: a wide or long table, with photographs or not, as ``PairedEyes``."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from cevit_lib.datasets.cells import Cells, Problem, decimal_mark, read_cells
from cevit_lib.datasets.images import ImageFiles
from cevit_lib.datasets.layout import EYES, NUMBER, Criterion, Layout, guess_layout, read_layout
from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.errors import DataError

Paths = list[list[Path | None]]
NOTED_APART = ("size", "mirror", "laterality")  # of a layout, in the notes


@dataclass(frozen=True)
class Arranged:
    """A table put in order, one patient a row, with everything wrong in it.

    Attributes
    ----------
    data : PairedEyes
        Without photographs; what is wrong counts as not observed.
    layout : Layout
    cells : Cells
    lines : pandas.DataFrame
        Line of the table of each patient and eye, ``NaN`` where that eye has no row.
    problems : list of Problem
        In the order of lines and columns.
    """

    data: PairedEyes
    layout: Layout
    cells: Cells
    lines: pd.DataFrame
    problems: list[Problem]

    def image_paths(self, folder: Path) -> Paths:
        """Return the file of each patient and eye.

        ``None`` where the table names none, or its pattern finds none.
        """
        if not folder.is_dir():
            raise DataError(
                f"the folder of photographs {folder} does not exist; give the right one by "
                "--images FOLDER."
            )
        return [[self._image(folder, patient, eye) for eye in EYES] for patient in self.data.ids]

    def line(self, patient: str, eye: str | None = None) -> int | None:
        """Return the line of a patient's eye, or the first one of the patient."""
        line = self.lines.loc[patient].min() if eye is None else self.lines.at[patient, eye]
        return None if line != line else int(line)

    def _image(self, folder: Path, patient: str, eye: str) -> Path | None:
        layout, line = self.layout, self.lines.at[patient, eye]
        if layout.file:
            name = layout.file.replace("{patient}", patient).replace("{eye}", layout.eyes[eye])
            return folder / name if (folder / name).exists() else None
        column = layout.image_column(eye)
        name = self.cells.frame.at[line, column] if column and line == line else ""
        return None if name.casefold() in {"", *layout.missing} else folder / name

    def with_photographs(self, paths: Paths) -> PairedEyes:
        """Return the patients of whom at least one eye has a photograph.

        What belongs to an eye without one is set to ``NaN``.
        """
        seen = np.array([[path is not None for path in row] for row in paths]).reshape(-1, 2)
        y, layout, keep = self.data.y.clone(), self.layout, seen.any(1)
        for k, response in enumerate(self.data.responses):
            eye = layout.eye_of(response)
            if eye:
                y[~seen[:, EYES.index(eye)], k] = torch.nan
        blanked = (torch.isfinite(self.data.y) & ~torch.isfinite(y)).numpy()[keep]
        flow = {
            **self.data.notes["flow"],
            "photographs": int(seen.sum()),
            "patients with one photograph only": int((seen.sum(1) == 1).sum()),
            "patients without any photograph, left out": int((~keep).sum()),
            "responses set to not observed, their eye has no photograph": int(blanked.sum()),
        }
        files = ImageFiles(tuple(map(tuple, paths)), layout.size, (layout.mirror, False))
        notes = {**self.data.notes, "flow": flow}
        return self.data.replace(y=y, images=files, notes=notes).subset(keep)


def load_paired_table(
    table: str | os.PathLike | Cells,
    images: str | os.PathLike | None = None,
    layout: str | os.PathLike | dict[str, Any] | None = None,
    *,
    name: str | None = None,
    responses: bool = True,
) -> PairedEyes:
    """Load paired eyes from a table of one row a patient or one row an eye.

    Nothing is dropped in silence. An eye or a response that is not there is ``NaN`` and enters the
    marginal likelihood of what is. With photographs, the responses of an eye without one are set to
    ``NaN``, for the encoder would see a black image, and a patient without any photograph is left
    out; ``notes["flow"]`` counts both.

    Parameters
    ----------
    table : path
        CSV (encoding, separator and decimal mark are recognised or declared) or Excel (``.xlsx``);
        or its cells, read before.
    images : path, optional
        Folder of the photographs. Without it the data set is a table only: ``images`` is ``None``,
        ``load`` refuses, and splits, hash and responses work as ever.
    layout : path or dict, optional
        YAML file (or what it would hold), see :class:`cevit_lib.datasets.layout.Layout`. Without it
        usual names of columns are recognised; ``notes["layout"]`` says what was taken for what.
    name : str, optional
        Name of the data set; default is the table's.
    responses : bool
        ``False`` lets the table lack columns of responses and covariates, as that of patients who
        are to be predicted: they are then not observed.

    Returns
    -------
    PairedEyes
        Domain 1 is the left eye (OS). ``notes`` holds the flow, the map of laterality codes, the
        columns and rules, encoding, separator and decimal mark, and warnings.

    Raises
    ------
    DataError
        Something in the table or the layout is wrong: the message names line and column, and how
        many more there are. ``cevit check-data`` lists them all.
    """
    arranged = arrange(table if isinstance(table, Cells) else Path(table), layout, responses)
    table = arranged.cells.facts["file"] if isinstance(table, Cells) else table
    errors = [problem for problem in arranged.problems if problem.error]
    if errors:
        more = f" ({len(errors) - 1} more: cevit check-data lists all)" if len(errors) > 1 else ""
        raise DataError(f"{table}, {errors[0]}{more}")
    data = arranged.data
    if images is not None:
        paths = arranged.image_paths(Path(images))
        for patient, row in zip(data.ids, paths, strict=True):
            for eye, path in zip(EYES, row, strict=True):
                if path is not None and not path.is_file():
                    raise DataError(
                        f"{table}, line {arranged.line(patient, eye)}: image {path} does not "
                        "exist; restore it or empty the cell."
                    )
        data = arranged.with_photographs(paths)
        if not len(data):
            raise DataError(
                f"{table}: no patient has a photograph in {images}; give 'image' or 'file' in the "
                "layout."
            )
    flow = {**data.notes["flow"], "patients kept": len(data)}
    return data.replace(name=name or Path(table).stem, notes={**data.notes, "flow": flow})


def arrange(
    table: Path | Cells,
    layout: str | os.PathLike | dict[str, Any] | None = None,
    responses: bool = True,
) -> Arranged:
    """Read a table and put it in order; arguments as in ``load_paired_table``.

    Wrong rows and cells are collected, not raised.

    Raises
    ------
    DataError
        The table cannot be read at all, or the layout does not fit it.
    """
    layout = None if layout is None else read_layout(layout)
    if isinstance(table, Path):
        known = (layout.encoding, layout.separator, layout.sheet) if layout else ()
        table = read_cells(table, *known)
    layout = layout or guess_layout(list(table.frame))
    _require_columns(table, layout, responses)
    problems, frame = list(table.problems), table.frame
    for column, text in layout.where.items():
        frame = frame[frame[column] == text]
    lines = _lines(frame, layout, problems)
    if lines.empty and not problems:
        raise DataError(f"no row of the table has {layout.where}; correct 'where' in the layout.")
    used = frame[frame.index.isin(lines.to_numpy().ravel())]
    mark = decimal_mark(_numeric_cells(used, layout), layout.decimal)
    measure = _measure(used, lines, layout, mark, problems)
    columns = _responses(measure, lines, layout, problems)
    covariates = [[measure("", t, eye) for eye in EYES] for t in layout.covariates.values()]
    problems.sort(key=lambda problem: (problem.line or 0, problem.column or ""))
    data = PairedEyes(
        images=None,
        y=torch.from_numpy(np.column_stack(list(columns.values()))),
        ids=tuple(lines.index),
        responses=tuple(columns),
        continuous=sum(1 if n in layout.patient_level else 2 for n in layout.continuous),
        notes={
            "flow": _flow(len(table.frame), len(frame), columns, layout),
            "laterality": layout.codes if layout.eye else dict(layout.eyes),
            "table": {**table.facts, "decimal": mark},
            "layout": {k: v for k, v in vars(layout).items() if v and k not in NOTED_APART},
            "size": layout.size,
            "mirror_left": layout.mirror,
            "warnings": [str(problem) for problem in problems],
        },
        covariates=torch.tensor(np.array(covariates)).permute(2, 1, 0) if covariates else None,
        covariate_names=tuple(layout.covariates),
    )
    return Arranged(data, layout, table, lines, problems)


def _responses(
    measure: Callable, lines: pd.DataFrame, layout: Layout, problems: list[Problem]
) -> dict[str, np.ndarray]:
    """Return the columns of ``y`` by name."""
    columns: dict[str, np.ndarray] = {}
    for name, text in {**layout.continuous, **layout.binary}.items():
        values = {f"{name}_{eye}": measure(name, text, eye) for eye in EYES}
        if name in layout.patient_level:
            column = layout.criterion(text, "OS").column
            values = {name: _agreed([*values.values()], lines, name, column, problems)}
        columns |= values
    return columns


def _require_columns(cells: Cells, layout: Layout, responses: bool) -> None:
    wanted = {layout.patient, layout.eye, *layout.where, *map(layout.image_column, EYES)}
    if responses:
        wanted |= {criterion.column for criterion in _criteria(layout)}
    lacking = sorted(wanted - {None} - set(cells.frame))
    if lacking:
        raise DataError(
            f"table {cells.facts['file']} lacks the columns {', '.join(lacking)}; it has "
            f"{', '.join(cells.frame)}. Correct the layout: names are compared letter by letter."
        )


def _criteria(layout: Layout) -> set[Criterion]:
    texts = [*layout.continuous.values(), *layout.binary.values(), *layout.covariates.values()]
    return {layout.criterion(text, eye) for text in texts for eye in EYES}


def _lines(frame: pd.DataFrame, layout: Layout, problems: list[Problem]) -> pd.DataFrame:
    """Return the line of each patient and eye; rows of nobody, of no eye or double are problems."""
    patients: dict[str, dict[str, int]] = {}
    for line, row in frame.iterrows():
        patient, code = row[layout.patient], row[layout.eye] if layout.eye else ""
        eyes = [layout.codes.get(code.casefold())] if layout.eye else EYES
        earlier = patients.get(patient, {}).get(eyes[0])
        if not patient:
            told = ("no patient's id; fill it in or delete the row", line, layout.patient)
        elif eyes[0] is None:
            text = (
                f"{code!r} is no known code of an eye; write OD or OS, or declare it: "
                f"'laterality: {{{code or 1}: OD, ...}}'"
            )
            told = (text, line, layout.eye)
        elif earlier:
            what = f"{eyes[0]} of patient" if layout.eye else "patient"
            text = (
                f"{what} {patient!r} stands in line {earlier} already; keep one row, for several "
                "visits choose one by 'where'"
            )
            told = (text, line, layout.patient)
        else:
            patients.setdefault(patient, {}).update(dict.fromkeys(eyes, line))
            continue
        problems.append(Problem(*told))
    return pd.DataFrame(list(patients.values()), list(patients), list(EYES), dtype=float)


def _numeric_cells(frame: pd.DataFrame, layout: Layout) -> list[tuple[int, str, str]]:
    numeric = {each.column for each in _criteria(layout) if not each.of_text}
    columns = sorted(numeric & set(frame))
    return [(line, column, frame.at[line, column]) for line in frame.index for column in columns]


def _measure(
    frame: pd.DataFrame, lines: pd.DataFrame, layout: Layout, mark: str, problems: list[Problem]
) -> Callable[[str, str, str], np.ndarray]:
    """Return what reads a response (or, without its name, a covariate) of one eye of everybody.

    What is wrong goes to ``problems``, once a cell, and counts as not observed.
    """

    def cells(column: str) -> tuple[pd.Series, pd.Series]:
        """Return the cells of a column, and where they say that nothing was observed."""
        empty = pd.Series("", frame.index, dtype=object)  # a column that need not be there
        texts = frame.get(column, empty)
        return texts, texts.str.casefold().isin(layout.missing)

    def without(values: pd.Series, wrong: pd.Series, column: str, message: str) -> pd.Series:
        for line, text in frame.get(column, values)[wrong].items():
            problems.append(Problem(f"{text!r} {message}", line, column))
        return values.mask(wrong)

    @functools.cache
    def numbers(column: str) -> pd.Series:
        texts, absent = cells(column)
        written = texts.str.replace("−", "-")
        if mark == ",":
            # the other mark is left as something that is no number: "1.234,5" is not 1.2345
            written = written.str.replace(".", "?").str.replace(",", ".")
        wrong = ~absent & ~written.str.fullmatch(NUMBER.pattern).astype(bool)
        message = "is no number; correct it, or leave the cell empty for not observed"
        return without(written.mask(absent), wrong, column, message).astype(float)

    @functools.cache
    def values_of(name: str, criterion: Criterion) -> pd.Series:
        column = criterion.column
        if criterion.of_text:
            texts, absent = cells(column)
            return criterion.holds(texts).mask(absent)
        values = numbers(column)
        low, high = layout.limits.get(name, (-np.inf, np.inf))
        outside = (values < float(low)) | (values > float(high))
        message = f"is outside the limits {low} to {high} of {name!r}"
        values = without(values, outside, column, message)
        if criterion.comparison:
            return criterion.holds(values).mask(values.isna())
        odd = values.notna() & ~values.isin([0, 1]) & (name in layout.binary)
        message = "is no binary response; write 0 or 1, or a rule in the layout"
        return without(values, odd, column, message)

    def measure(name: str, text: str, eye: str) -> np.ndarray:
        return values_of(name, layout.criterion(text, eye)).reindex(lines[eye]).to_numpy()

    return measure


def _agreed(
    values: list[np.ndarray],
    lines: pd.DataFrame,
    name: str,
    column: str,
    problems: list[Problem],
) -> np.ndarray:
    """Return a response of the patient, on which the rows of both eyes must agree."""
    left, right = values
    differ = np.isfinite(left) & np.isfinite(right) & (left != right)
    for one, two in np.sort(lines.to_numpy()[differ]).astype(int).tolist():
        text = (
            f"the patient's rows (lines {one} and {two}) disagree on {name!r}; correct one, or "
            "take it from 'patient_level'"
        )
        problems.append(Problem(text, two, column))
    return np.where(np.isnan(left), right, left)


def _flow(rows: int, kept: int, columns: dict[str, np.ndarray], layout: Layout) -> dict[str, int]:
    """Count rows, patients, and whose responses were observed."""
    seen = {name: np.isfinite(values) for name, values in columns.items()}
    by_eye = {eye: [s for n, s in seen.items() if layout.eye_of(n) == eye] for eye in EYES}
    flow = {"rows": rows} | ({"rows left out by 'where'": rows - kept} if kept < rows else {})
    flow["patients"] = len(next(iter(seen.values())))
    if all(by_eye.values()):
        eyes = sum(np.any(observed, axis=0).astype(int) for observed in by_eye.values())
        flow["patients with responses of both eyes"] = int((eyes == 2).sum())
        flow["patients with responses of one eye only"] = int((eyes == 1).sum())
        flow["patients without a response of an eye"] = int((eyes == 0).sum())
    return flow | {f"{name} not observed": int((~s).sum()) for name, s in seen.items()}
