"""Any group's own paired eyes: a wide or long table, with photographs or not, as ``PairedEyes``."""

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from cevit_lib.datasets.cells import Cells, Problem, decimal_mark, read_cells
from cevit_lib.datasets.images import ImageFiles
from cevit_lib.datasets.layout import Layout, guess_layout, read_layout
from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.datasets.rows import chosen_rows, placed_rows
from cevit_lib.datasets.rules import Criterion
from cevit_lib.datasets.values import Values
from cevit_lib.edge import nearest
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
        Line of the table of each row of the data and eye, ``NaN`` where that eye has no line.
    problems : list of Problem
        In the order of lines and columns.
    numbers : dict
        Column that a response is read from to its numbers, by line.
    """

    data: PairedEyes
    layout: Layout
    cells: Cells
    lines: pd.DataFrame
    problems: list[Problem]
    numbers: dict[str, pd.Series]

    def image_paths(self, folder: Path) -> Paths:
        """Return the file of each row and eye.

        ``None`` where the table names none, or its pattern finds none.
        """
        if not folder.is_dir():
            raise DataError(
                f"the folder of photographs {folder} does not exist; give the right one by "
                "--images FOLDER."
            )
        return [[self._path(folder, row, eye) for eye in self.lines] for row in self.lines.index]

    def line(self, row: int, eye: str | None = None) -> int | None:
        """Return the line of an eye in a row of the data, or the first one of the row."""
        line = self.lines.loc[row].min() if eye is None else self.lines.at[row, eye]
        return None if line != line else int(line)

    def file_name(self, row: int, eye: str) -> str:
        """Return what the file of an eye is called, by its cell or by the layout's pattern."""
        layout, line = self.layout, self.lines.at[row, eye]
        if layout.file:
            visit = self.data.visits[row] if layout.visit else ""
            fills = {"{patient}": self.data.ids[row], "{eye}": layout.eyes[eye], "{visit}": visit}
            return functools.reduce(
                lambda text, fill: text.replace(*fill), fills.items(), layout.file
            )
        column = layout.image_column(eye)
        name = self.cells.frame.at[line, column] if column and line == line else ""
        name = "" if layout.is_missing(name) else name.replace("\\", "/")
        suffix = layout.suffix or ""
        return name if not name or name.casefold().endswith(suffix.casefold()) else name + suffix

    def _path(self, folder: Path, row: int, eye: str) -> Path | None:
        name = self.file_name(row, eye)
        there = name and (not self.layout.file or (folder / name).exists())
        return folder / name if there else None

    def with_photographs(self, paths: Paths) -> PairedEyes:
        """Return the patients of whom at least one eye has a photograph.

        What belongs to an eye without one is set to ``NaN``.
        """
        seen = np.array([path is not None for row in paths for path in row], dtype=bool)
        seen = seen.reshape(-1, 2)
        y, layout, keep = self.data.y.clone(), self.layout, seen.any(1)
        for k, response in enumerate(self.data.responses):
            eye = layout.eye_of(response)
            if eye:
                y[~seen[:, layout.domains.index(eye)], k] = torch.nan
        blanked = (torch.isfinite(self.data.y) & ~torch.isfinite(y)).numpy()[keep]
        flow = {
            **self.data.notes["flow"],
            "photographs": int(seen.sum()),
            "patients with one photograph only": int((seen.sum(1) == 1).sum()),
            "patients without any photograph, left out": int((~keep).sum()),
            f"responses set to not observed, their {layout.organ} has no photograph": int(
                blanked.sum()
            ),
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
        data = arranged.with_photographs(arranged.image_paths(Path(images)))
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
    problems, frame = [*table.problems, *_misnamed(table, layout)], chosen_rows(table.frame, layout)
    lines, owners, rejected = placed_rows(frame, layout, problems)
    used = frame[frame.index.isin(lines.to_numpy().ravel())]
    numeric = {criterion.column for criterion in _criteria(layout) if not criterion.of_text}
    mark = decimal_mark(used[sorted(numeric & set(used))].stack(), layout.decimal)
    values = Values(used, lines, layout, mark, problems)
    columns = _responses(values)
    covariates = [
        [values.read(name, text, eye) for eye in layout.domains]
        for name, text in layout.covariates.items()
    ]
    problems += values.doubts(error=responses)
    problems.sort(key=lambda problem: (problem.line or 0, problem.column or ""))
    out = len(table.frame) - len(frame)
    flow = {"rows": len(table.frame)} | ({"rows left out by 'where'": out} if out else {})
    flow |= rejected | _observed(owners, columns, layout)
    data = PairedEyes(
        images=None,
        y=torch.from_numpy(np.column_stack(list(columns.values()))),
        ids=tuple(patient for patient, _ in owners),
        visits=tuple(visit for _, visit in owners) if layout.visit else (),
        responses=tuple(columns),
        continuous=sum(1 if n in layout.patient_level else 2 for n in layout.continuous),
        domains=layout.domains,
        notes={
            "flow": flow,
            "laterality": layout.codes if layout.eye else dict(layout.eyes),
            "table": {**table.facts, "decimal": mark},
            "layout": {k: v for k, v in vars(layout).items() if v and k not in NOTED_APART},
            "labels": values.told(),
            "size": layout.size,
            "mirror_left": layout.mirror,
            "warnings": [str(problem) for problem in problems],
        },
        covariates=torch.tensor(np.array(covariates)).permute(2, 1, 0) if covariates else None,
        covariate_names=tuple(layout.covariates),
    )
    return Arranged(data, layout, table, lines, problems, values.numbers)


def _responses(values: Values) -> dict[str, np.ndarray]:
    """Return the columns of ``y`` by name."""
    layout, columns = values.layout, {}
    for name, text in {**layout.continuous, **layout.binary}.items():
        if name in layout.patient_level:
            columns[name] = values.patient(name, text)
        else:
            columns |= {f"{name}_{eye}": values.read(name, text, eye) for eye in layout.domains}
    return columns


def _require_columns(cells: Cells, layout: Layout, responses: bool) -> None:
    wanted = {layout.patient, layout.visit, layout.eye, *layout.where}
    wanted |= set(map(layout.image_column, layout.domains))
    if responses:
        wanted |= {criterion.column for criterion in _criteria(layout)}
    lacking = sorted(wanted - {None} - set(cells.frame))
    if lacking:
        named = ", ".join(f"{name}{nearest(name, cells.frame)}" for name in lacking)
        raise DataError(
            f"table {cells.facts['file']} lacks the columns {named}; it has "
            f"{', '.join(cells.frame)}. Correct the layout: names are compared letter by letter."
        )


def _misnamed(cells: Cells, layout: Layout) -> Iterator[Problem]:
    """Yield which columns that may be lacking seem to be there under another name."""
    for name in sorted({criterion.column for criterion in _criteria(layout)} - set(cells.frame)):
        if near := nearest(name, cells.frame, 0.8):
            yield Problem(f"no column {name!r}{near}: nothing of it is observed", error=False)


def _criteria(layout: Layout) -> set[Criterion]:
    texts = [*layout.continuous.values(), *layout.binary.values(), *layout.covariates.values()]
    return {layout.criterion(text, eye) for text in texts for eye in layout.domains}


def _observed(
    owners: list[tuple[str, str]], columns: dict[str, np.ndarray], layout: Layout
) -> dict[str, int]:
    """Count patients, and whose responses were observed."""
    seen = {name: np.isfinite(values) for name, values in columns.items()}
    by_eye = [[s for n, s in seen.items() if layout.eye_of(n) == eye] for eye in layout.domains]
    flow = {"patients": len({patient for patient, _ in owners})}
    flow |= {"visits": len(owners)} if layout.visit else {}
    if all(by_eye):
        eyes, organ = sum(np.any(each, axis=0).astype(int) for each in by_eye), layout.organ
        who = "visits" if layout.visit else "patients"
        flow[f"{who} with responses of both {organ}s"] = int((eyes == 2).sum())
        flow[f"{who} with responses of one {organ} only"] = int((eyes == 1).sum())
        flow[f"{who} without a response of {layout.one}"] = int((eyes == 0).sum())
    return flow | {f"{name} not observed": int((~s).sum()) for name, s in seen.items()}
