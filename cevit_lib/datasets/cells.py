"""The cells of a table file as text, each with its line: CSV in any sane encoding and separator, or Excel."""

import csv
import hashlib
import io
import re
from dataclasses import dataclass, field
from pathlib import Path

from cevit_lib.errors import DataError

SEPARATORS = (",", ";", "\t", "|")
EXCEL = (".xlsx", ".xlsm")


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
    header : list of str
    rows : list of (int, dict)
        Line and cells of each row, as text without spaces around.
    facts : dict
        File name, SHA-256, encoding and separator, or the sheet.
    problems : list of Problem
    """

    header: list[str]
    rows: list[tuple[int, dict[str, str]]]
    facts: dict[str, str]
    problems: list[Problem] = field(default_factory=list)


def read_cells(
    path: Path, encoding: str | None = None, separator: str | None = None, sheet: str | None = None
) -> Cells:
    """Read a table; encoding and separator are recognised unless given.

    A byte-order mark is honoured; then UTF-8 is tried, then Windows-1252 (with a warning). The separator is the one of
    comma, semicolon, tabulator and bar that the header holds most often. In Excel a number whose format has leading
    zeros (``000``) keeps them.

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
    if path.suffix.lower() in EXCEL:
        lines = _excel_lines(content, path, sheet, facts)
    elif content.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise DataError(f"table {path} is no text file; save it as CSV or as .xlsx.")
    else:
        lines = _text_lines(
            _decoded(content, path, encoding, facts, problems), path, separator, facts
        )
    lines = [(number, cells) for number, cells in lines if any(cells)]
    if len(lines) < 2:
        raise DataError(
            f"table {path} has {len(lines)} lines with text; expected a header and at least one row."
        )
    header = lines[0][1]
    while header and not header[-1]:
        header.pop()
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise DataError(
            f"table {path}, line {lines[0][0]}: column {twice[0]!r} stands twice; give each its own name."
        )
    rows = []
    for number, cells in lines[1:]:
        if any(cells[len(header) :]):
            problems.append(
                Problem(
                    f"{len(cells)} cells for {len(header)} columns: an unquoted separator?", number
                )
            )
            continue
        cells = cells + [""] * (len(header) - len(cells))
        rows.append(
            (number, {name: cell for name, cell in zip(header, cells, strict=False) if name})
        )
    return Cells([name for name in header if name], rows, facts, problems)


def decimal_mark(texts: list[tuple[int, str, str]], declared: str | None) -> str:
    """Return the decimal mark of the cells ``(line, column, text)``.

    Raises
    ------
    DataError
        Both marks occur, or a comma could as well part thousands.
    """
    if declared is not None:
        if declared not in (".", ","):
            raise DataError(f"layout, 'decimal': {declared!r}; give '.' or ','.")
        return declared
    commas = [cell for cell in texts if re.fullmatch(r"[+−-]?\d+,\d+", cell[2])]
    points = [cell for cell in texts if re.fullmatch(r"[+−-]?\d*\.\d+", cell[2])]
    if commas and points:
        (line, column, text), (other, _, point) = commas[0], points[0]
        raise DataError(
            f"line {line}, column {column!r}: {text!r} has a comma, line {other} has {point!r}: use one decimal mark."
        )
    if commas and all(re.fullmatch(r"[+−-]?[1-9]\d{0,2},\d{3}", text) for *_, text in commas):
        line, column, text = commas[0]
        raise DataError(
            f"line {line}, column {column!r}: the comma of {text!r} may be a decimal mark or part thousands; "
            "say 'decimal: \",\"' or 'decimal: \".\"' in the layout."
        )
    return "," if commas else "."


def _decoded(
    content: bytes, path: Path, encoding: str | None, facts: dict[str, str], problems: list[Problem]
) -> str:
    marks = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
    marked = next((name for mark, name in marks if content.startswith(mark)), None)
    for name in [encoding or marked] if encoding or marked else ["utf-8", "cp1252"]:
        try:
            text = content.decode(name)
        except LookupError:
            raise DataError(
                f"layout, 'encoding': {name!r} is unknown; give utf-8, cp1252, gb18030 ..."
            ) from None
        except UnicodeDecodeError as error:
            wrong = error
            continue
        if name == "cp1252":
            problems.append(
                Problem(
                    "the table is no UTF-8 and was read as Windows-1252; name 'encoding' in the layout "
                    "if letters look wrong",
                    error=False,
                )
            )
        facts["encoding"] = name
        if "\0" in text:
            break
        return text.removeprefix("\ufeff")
    else:
        line = content[: wrong.start].count(b"\n") + 1
        raise DataError(
            f"table {path}, line {line}: not {name} text; name its 'encoding' in the layout."
        )
    raise DataError(
        f"table {path} holds zero bytes: it is no text, or UTF-16 without its mark; save it as UTF-8 CSV."
    )


def _text_lines(
    text: str, path: Path, separator: str | None, facts: dict[str, str]
) -> list[tuple[int, list[str]]]:
    first = re.sub(r'"[^"]*"', "", next((line for line in text.splitlines() if line.strip()), ""))
    separator = {"tab": "\t", "\\t": "\t"}.get(separator, separator) or max(
        SEPARATORS, key=first.count
    )
    if len(separator) != 1:
        raise DataError(f"layout, 'separator': {separator!r}; give one character, or tab.")
    facts["separator"] = separator
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    lines, start = [], 1
    try:
        for cells in reader:
            lines.append((start, [cell.strip() for cell in cells]))
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"table {path}, line {start}: {error}; a quote that is not closed?"
        ) from None
    return lines


def _excel_lines(
    content: bytes, path: Path, sheet: str | None, facts: dict[str, str]
) -> list[tuple[int, list[str]]]:
    import openpyxl

    try:
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    except Exception as error:  # openpyxl lets errors of zip, XML and its own through
        raise DataError(
            f"table {path} is no readable Excel file ({error}); save it again or as CSV."
        ) from None
    if sheet is not None and sheet not in book.sheetnames:
        raise DataError(
            f"table {path} has no sheet {sheet!r}; it has {', '.join(book.sheetnames)}."
        )
    page = book[sheet] if sheet is not None else book.worksheets[0]
    facts["sheet"] = page.title
    return [
        (number, [_excel_text(cell) for cell in row])
        for number, row in enumerate(page.iter_rows(), 1)
    ]


def _excel_text(cell) -> str:
    value = cell.value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and re.fullmatch("0+", cell.number_format or "")
    ):
        return str(value).zfill(len(cell.number_format))
    return "" if value is None else str(value).strip()
