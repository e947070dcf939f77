"""The cells of a table file as text, each with its line: CSV in any sane encoding, or Excel."""

import csv
import hashlib
import io
import re
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from cevit_lib.datasets.kinds import WORKBOOK, kind_of
from cevit_lib.errors import DataError

SEPARATORS = (",", ";", "\t", "|")
EXCEL = (".xlsx", ".xlsm")
MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
Line = tuple[int, list[str]]


@dataclass(frozen=True)
class Problem:
    """Something wrong in a table or a folder.

    Attributes
    ----------
    message : str
        What was seen, what was expected, what to do.
    line : int, optional
        Line of the table, as an editor counts.
    column : str, optional
    error : bool
        ``False`` for a warning: the data can be used.
    """

    message: str
    line: int | None = None
    column: str | None = None
    error: bool = True

    def __str__(self) -> str:
        place = [f"line {self.line}"] if self.line else []
        place += [f"column {self.column!r}"] if self.column else []
        return f"{', '.join(place)}: {self.message}" if place else self.message


@dataclass(frozen=True)
class Cells:
    """A table as it was read.

    Attributes
    ----------
    frame : pandas.DataFrame
        Cells as text without spaces around; the index is the line of the file.
    facts : dict
        File name, SHA-256, encoding and separator, or the sheet.
    problems : list of Problem
    """

    frame: pd.DataFrame
    facts: dict[str, str]
    problems: list[Problem] = field(default_factory=list)


def read_cells(
    path: Path, encoding: str | None = None, separator: str | None = None, sheet: str | None = None
) -> Cells:
    """Read a table; encoding and separator are recognised unless given.

    A byte-order mark is honoured; then UTF-8 is tried, then Windows-1252 (with a warning). The
    separator is the one of comma, semicolon, tabulator and bar that the header holds most often.
    In Excel a number whose format has leading zeros (``000``) keeps them.

    Raises
    ------
    DataError
        The file is absent, empty, of another kind, or its header repeats a name.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"table {path} cannot be read: {error.strerror or error}.") from None
    facts = {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()[:16]}
    problems: list[Problem] = []
    _require_table(content, path)
    if path.suffix.lower() in EXCEL:
        lines, facts["sheet"] = excel_lines(content, path, sheet)
    else:
        text, facts["encoding"] = _decoded(content, path, encoding, problems)
        lines, facts["separator"] = _text_lines(text, path, separator)
    lines = [(number, cells) for number, cells in lines if any(cells)]
    while len(lines) > 2 and _above_header(lines[0][1], lines[1][1]):
        number, cells = lines.pop(0)
        text = f"{', '.join(filter(None, cells))!r} stands above the header and is not read"
        problems.append(Problem(text, number, error=False))
    if len(lines) < 2:
        raise DataError(
            f"table {path} has {len(lines)} lines with text; expected a header and at least one "
            "row."
        )
    return Cells(_framed(lines, path, problems), facts, problems)


def decimal_mark(cells: pd.Series, declared: str | None) -> str:
    """Return the decimal mark of cells, whose index is line and column.

    Raises
    ------
    DataError
        Both marks occur, or a comma could as well part thousands.
    """
    cells = cells.astype(str)
    forms = (r"[+−-]?\d+,\d+", r"[+−-]?\d*\.\d+")
    commas, points = (cells[cells.str.fullmatch(form)] for form in forms)
    if declared or commas.empty:
        return declared or "."
    (line, column), text = commas.index[0], commas.iloc[0]
    if len(points):
        raise DataError(
            f"line {line}, column {column!r}: {text!r} has a comma, line {points.index[0][0]} has "
            f"{points.iloc[0]!r}: use one decimal mark."
        )
    if commas.str.fullmatch(r"[+−-]?[1-9]\d{0,2},\d{3}").all():
        raise DataError(
            f"line {line}, column {column!r}: the comma of {text!r} may be a decimal mark or part "
            "thousands; say 'decimal: \",\"' or 'decimal: \".\"' in the layout."
        )
    return ","


def _require_table(content: bytes, path: Path) -> None:
    """Refuse a file of another kind, by what it is, with the way out."""
    kind, suffix = kind_of(content), path.suffix.lower()
    if path.name.startswith(("~$", ".~lock")):
        kind = ("what Office leaves beside a workbook that is open", "name the workbook itself")
    if kind and kind[0] == WORKBOOK and suffix not in EXCEL:
        kind = (WORKBOOK, f"name it {path.stem}.xlsx")
    if kind is None and suffix in EXCEL:
        kind = ("plain text under the name of an Excel workbook", f"name it {path.stem}.csv")
    if kind and (kind[0] != WORKBOOK or suffix not in EXCEL):
        raise DataError(f"table {path} is {kind[0]}: {kind[1]}.")


def _above_header(cells: list[str], below: list[str]) -> bool:
    """Tell a title, or names of groups of columns, by the header that follows."""
    filled, wider = (sum(map(bool, each)) for each in (cells, below))
    words = not any(re.search(r"\d", cell) for cell in below)
    return filled < wider and (filled == 1 or (words and "" in cells[:wider]))


def _framed(lines: list[Line], path: Path, problems: list[Problem]) -> pd.DataFrame:
    """Lay the rows below their header; what has more cells than the header is a problem."""
    (first, header), *rows = lines
    width = max(k for k, name in enumerate(header, 1) if name)
    header = header[:width]
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise DataError(
            f"table {path}, line {first}: column {twice[0]!r} stands twice; give each its own name."
        )
    good = {}
    for number, cells in rows:
        if any(cells[width:]):
            text = f"{len(cells)} cells for {width} columns: an unquoted separator?"
            problems.append(Problem(text, number))
        else:
            good[number] = cells[:width] + [""] * (width - len(cells))
    frame = pd.DataFrame.from_dict(good, orient="index", columns=header, dtype=object)
    return frame.loc[:, [name != "" for name in header]]


def _decoded(
    content: bytes, path: Path, encoding: str | None, problems: list[Problem]
) -> tuple[str, str]:
    """Return the text of a file and its encoding."""
    marked = next((name for mark, name in MARKS.items() if content.startswith(mark)), None)
    known = encoding or marked
    for name in [known] if known else ["utf-8", "cp1252"]:
        try:
            text = content.decode(name)
            break
        except LookupError:
            raise DataError(
                f"layout, 'encoding': {name!r} is unknown; give utf-8, cp1252, gb18030 ..."
            ) from None
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
    else:
        raise DataError(
            f"table {path}, line {line}: not {name} text; name its 'encoding' in the layout."
        )
    if "\0" in text:
        raise DataError(
            f"table {path} holds zero bytes: it is no text, or UTF-16 without its mark; save it as "
            "UTF-8 CSV."
        )
    if name == "cp1252":
        text_of_doubt = (
            "the table is no UTF-8 and was read as Windows-1252; name 'encoding' in the layout "
            "if letters look wrong"
        )
        problems.append(Problem(text_of_doubt, error=False))
    return text.removeprefix("\ufeff"), name


def _text_lines(text: str, path: Path, separator: str | None) -> tuple[list[Line], str]:
    """Return the cells of each line (where it begins), and the separator."""
    written = re.match(r'"?sep=(.)"?[;,]*\r?\n', text)  # a line that Excel writes for itself
    text = text[written.end() :] if written else text
    separator = {"tab": "\t", "\\t": "\t"}.get(separator, separator)
    separator = separator or (written[1] if written else _separator_of(text))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    lines, before = [], int(bool(written))
    start = before + 1
    try:
        for cells in reader:
            lines.append((start, [_clean(cell) for cell in cells]))
            start = before + reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"table {path}, line {start}: {error}; a quote that is not closed?"
        ) from None
    whole = [cells[0] for _, cells in lines if len(cells) == 1]  # lines quoted as a whole
    if len(whole) == len(lines) > 1 and any(mark in whole[0] for mark in SEPARATORS):
        return _text_lines("\n".join(whole), path, None)
    return lines, separator


def _separator_of(text: str) -> str:
    """Return the separator of the first line that holds one (a title holds none), the most
    frequent there.
    """
    lines = (re.sub(r'"[^"]*"', "", line) for line in text.splitlines())
    first = next((line for line in lines if any(mark in line for mark in SEPARATORS)), "")
    return max(SEPARATORS, key=first.count)


def _clean(cell: str) -> str:
    """Return a cell without spaces around, invisible marks, and what keeps Excel from changing it:
    ``="007"`` and ``'007``.
    """
    text = re.sub("[\u200b-\u200f\u2060\ufeff]", "", cell).strip()
    return re.sub(r"""^(?:="(.*)"|'(\d.*))$""", r"\1\2", text)


def excel_lines(content: bytes, path: Path, sheet: str | None) -> tuple[list[Line], str]:
    """Return the cells of each line, and the sheet's name (default: the first one's).

    Raises
    ------
    DataError
        It is no Excel file, or has no such sheet.
    """
    import openpyxl

    try:
        book, formulas = (
            openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=values)
            for values in (True, False)
        )
    except Exception as error:  # openpyxl lets errors of zip, XML and its own through
        raise DataError(
            f"table {path} is no readable Excel file ({error}); save it again or as CSV."
        ) from None
    if sheet not in (None, *book.sheetnames):
        raise DataError(
            f"table {path} has no sheet {sheet!r}; it has {', '.join(book.sheetnames)}."
        )
    page = book[sheet] if sheet is not None else book.worksheets[0]
    lines = []
    rows = zip(page.iter_rows(), formulas[page.title].iter_rows(), strict=True)
    for line, (row, written) in enumerate(rows, 1):
        for cell, formula in zip(row, written, strict=True):
            if cell.value is None and formula.value is not None:
                raise DataError(
                    f"table {path}, line {line}: {formula.value!r} is a formula whose result is "
                    "not stored; open the file in Excel and save it, or save it as CSV."
                )
        lines.append((line, [_excel_text(cell) for cell in row]))
    return lines, page.title


def _excel_text(cell) -> str:
    """Return a cell of a sheet as text: whole numbers without a point and with the zeros of their
    format, an empty cell as ``""``.
    """
    value = "" if cell.value is None or cell.value != cell.value else cell.value
    whole = isinstance(value, float) and value.is_integer()
    text = str(int(value) if whole else value).strip()
    zeros = re.fullmatch("0+", getattr(cell, "number_format", None) or "")
    return text.zfill(len(zeros[0])) if zeros and text.isdigit() else text
