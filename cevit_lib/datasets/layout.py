"""How a group's own table is laid out: a small YAML file that names columns, rules and codes."""

import difflib
import json
import operator
import os
import re
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd

from cevit_lib.errors import DataError

EYES = ("OS", "OD")  # the paper's order: left eye first
#: Codes of an eye that mean the same everywhere. Numbers do not: a layout must declare them.
LATERALITY = {
    **dict.fromkeys(("od", "r", "re", "right", "右"), "OD"),
    **dict.fromkeys(("os", "l", "le", "left", "左"), "OS"),
}
MISSING = ("", "/", "-", ".", "na", "n/a", "nan", "null")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
#: Names that are known without a layout; those of an eye with a suffix where one row is a patient.
USUAL = {
    "patient": ("patient", "patient_id", "subject", "subject_id", "id"),
    "eye": ("eye", "laterality", "exam_eye"),
    "image": ("image", "image_id", "file", "filename"),
    "continuous": ("axial_length", "al"),
    "binary": ("high_myopia", "hm"),
}
SUFFIXES = (("_os", "_od"), ("_left", "_right"), ("_l", "_r"))
EXAMPLE = (
    "A layout for one row an eye: 'patient: id', 'eye: laterality', 'image: file', "
    "'continuous: {AL: axial_length}', 'binary: {HM: se <= -6}'; for one row a patient the columns "
    "hold {eye}: 'continuous: {AL: \"axial_length_{eye}\"}' with 'eyes: {OS: left, OD: right}'."
)
_CRITERION = re.compile(r"(.+?)\s*(<=|>=|==|!=|<|>)\s*(.+)")
_STRANGE = re.compile(rf"(=<|=>|(?<![<>=!])=(?=\s*{NUMBER.pattern}$))")
_COMPARE = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Criterion:
    """One column, or a comparison of it with a limit: ``se <= -6``, ``sex == F``.

    Attributes
    ----------
    column : str
    comparison, limit : str or None
        Both ``None`` for a plain column.
    """

    column: str
    comparison: str | None = None
    limit: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Criterion":
        """Read a criterion; one without a comparison is a plain column."""
        text = str(text).strip().replace("≤", "<=").replace("≥", ">=").replace("−", "-")
        strange = _STRANGE.search(text)
        if strange:
            raise DataError(
                f"rule {text!r}: {strange[1]!r} is no comparison; write <=, >=, <, >, == or !=."
            )
        match = _CRITERION.fullmatch(text)
        found = cls(*match.groups()) if match else cls(text)
        if found.of_text and found.comparison not in ("==", "!="):
            raise DataError(
                f"rule {text!r}: {found.limit!r} is no number to compare with; "
                "write it as 'se <= -6'."
            )
        return found

    @property
    def of_text(self) -> bool:
        """It compares text (``sex == F``), not numbers."""
        return self.comparison is not None and not NUMBER.fullmatch(self.limit)

    def holds(self, values: pd.Series) -> pd.Series:
        """Return 1.0 where the comparison holds and 0.0 where not, of text or of numbers."""
        compare = _COMPARE[self.comparison]
        if self.of_text:
            return compare(values.str.casefold(), self.limit.casefold()).astype(float)
        return compare(values, float(self.limit)).astype(float)


@dataclass(frozen=True)
class Layout:
    """What the columns of a table of paired eyes mean. Every attribute is a key of the YAML file.

    Attributes
    ----------
    patient : str
        Column of the patient's identity, kept as text.
    eye : str, optional
        Column of the laterality in a long table (one row an eye). Without it the table is wide (one
        row a patient), and ``{eye}`` in a column's name stands for the entries of ``eyes``.
    eyes : dict
        What stands for ``{eye}`` in wide tables and in ``file``: ``{OS: left, OD: right}``.
    laterality : dict
        Further codes of ``eye``, such as ``{1: OD, 2: OS}``.
    image : str, optional
        Column of the file names; in a wide table with ``{eye}``.
    file : str, optional
        Instead of ``image``: how a file is called, such as ``"{patient}_{eye}.jpg"``.
    continuous, binary, covariates : dict
        Name to column or rule. A continuous response is a column; a binary one a rule, or a column
        of 0 and 1.
    patient_level : tuple of str
        Responses that hold for the patient, not for an eye: one column of ``y``. In a long table
        both rows must agree.
    limits : dict
        Name of a response to ``[lowest, highest]``; a number outside is an error.
    where : dict
        Only rows whose column has that text, such as ``{visit: 1}``; the others are counted.
    missing : tuple of str
        Cells that mean "not observed", whatever their case.
    encoding, separator, decimal, sheet : str, optional
        Of the file, where they are not recognised.
    size : int
        Height and width of the images after reading.
    mirror : bool
        Flip left eyes onto right ones.
    """

    patient: str
    eye: str | None = None
    eyes: dict[str, str] = field(default_factory=lambda: {"OS": "OS", "OD": "OD"})
    laterality: dict[str, str] = field(default_factory=dict)
    image: str | None = None
    file: str | None = None
    continuous: dict[str, str] = field(default_factory=dict)
    binary: dict[str, str] = field(default_factory=dict)
    covariates: dict[str, str] = field(default_factory=dict)
    patient_level: tuple[str, ...] = ()
    limits: dict[str, tuple[float, float]] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = MISSING
    encoding: str | None = None
    separator: str | None = None
    decimal: str | None = None
    sheet: str | None = None
    size: int = 224
    mirror: bool = False

    @property
    def codes(self) -> dict[str, str]:
        """The whole map from a code (lower case) to ``OS`` or ``OD``."""
        return LATERALITY | {key.strip().casefold(): eye for key, eye in self.laterality.items()}

    def criterion(self, text: str, eye: str) -> Criterion:
        """Return what is read for one eye: ``{eye}`` filled in where the table is wide."""
        return Criterion.parse(text if self.eye else str(text).replace("{eye}", self.eyes[eye]))

    def eye_of(self, response: str) -> str:
        """Return the eye to which a column of ``y`` belongs, ``""`` for one of the patient."""
        return "" if response in self.patient_level else response[-2:]

    def image_column(self, eye: str) -> str | None:
        """Return the column that holds the file name of an eye's photograph."""
        wide = self.image and not self.eye
        return self.image.replace("{eye}", self.eyes[eye]) if wide else self.image


_TEXT = {"type": ["string", "number", "boolean"], "description": "text"}
_LIST = {"type": "array", "description": "a list"}
_MAP = {"type": "object", "additionalProperties": _TEXT, "description": "a map, name: text"}
_KINDS = {  # JSON Schema; every other key is text
    **dict.fromkeys(("patient_level", "missing"), _LIST),
    **dict.fromkeys(("continuous", "binary", "covariates", "where"), _MAP),
    "eyes": _MAP
    | {"required": EYES, "maxProperties": 2, "description": "OS and OD: one text each"},
    "laterality": {
        "additionalProperties": {"enum": EYES},
        "description": "what maps codes to OS or OD",
        "type": "object",
    },
    "limits": {
        "additionalProperties": {"type": "array", "minItems": 2, "maxItems": 2},
        "description": "name: [lowest, highest]",
        "type": "object",
    },
    "size": {"type": "integer", "minimum": 1, "description": "a positive whole number"},
    "mirror": {"type": "boolean", "description": "true or false"},
}


def read_layout(source: str | os.PathLike | dict[str, Any]) -> Layout:
    """Read a layout from a YAML file (or the dictionary that it would hold) and check it.

    Raises
    ------
    DataError
        The file is unreadable, a key is unknown or a value has the wrong type; the message names
        it.
    """
    where = "layout" if isinstance(source, dict) else str(source)
    if not isinstance(source, dict):
        import yaml

        try:
            source = yaml.safe_load(Path(source).read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            said = " ".join(str(error).split())
            raise DataError(f"layout {where} cannot be read: {said}") from None
    if not isinstance(source, dict) or not source.get("patient"):
        raise DataError(f"{where} must name at least the column of the patient. {EXAMPLE}")
    known = [each.name for each in fields(Layout)]
    for key in source:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            hint = f", perhaps {near[0]!r}" if near else ""
            raise DataError(f"{where}: unknown key {key!r}{hint}; keys are {', '.join(known)}.")
    # through JSON: tuples become lists, and codes such as 1 text
    plain = json.loads(json.dumps(source, default=str))
    values = {key: _typed(where, key, value) for key, value in plain.items() if value is not None}
    layout = Layout(**values)
    _check(layout, where)
    return layout


def _typed(where: str, key: str, value: Any) -> Any:
    """Bring a value of YAML to the attribute's type."""
    kind = _KINDS.get(key, _TEXT)
    if not jsonschema.Draft202012Validator(kind).is_valid(value):
        raise DataError(f"{where}, {key!r}: expected {kind['description']}.")
    if kind is _LIST:
        words = tuple(str(each).strip() for each in value)
        return tuple(word.casefold() for word in words) if key == "missing" else words
    if kind is _TEXT:
        return str(value)
    textual = isinstance(value, dict) and key != "limits"
    return {name: str(text) for name, text in value.items()} if textual else value


def _check(layout: Layout, where: str) -> None:
    """Compare the attributes with each other."""
    names = [*layout.continuous, *layout.binary]
    if not names:
        raise DataError(
            f"{where} names no response: give 'continuous', 'binary' or both. {EXAMPLE}"
        )
    strange = [name for name in (*layout.patient_level, *layout.limits) if name not in names]
    if strange or len(set(names)) < len(names):
        raise DataError(
            f"{where}: {strange or names}: each response has its own name, and only responses have "
            "a level or limits."
        )
    for name, text in layout.continuous.items():
        if Criterion.parse(text).comparison:
            raise DataError(
                f"{where}, continuous response {name!r}: {text!r} is a rule; put it under 'binary'."
            )
    if layout.image and layout.file:
        raise DataError(
            f"{where}: give 'image' (a column) or 'file' (a pattern of names), not both."
        )
    columns = layout.continuous | layout.binary | {"image": layout.image or "{eye}"}
    for name, text in columns.items() if layout.eye is None else ():
        if ("{eye}" in text) == (name in layout.patient_level):
            raise DataError(
                f"{where}, {name!r}: {text!r} in a table of one row a patient: the column of an "
                "eye holds {eye}, that of a response under 'patient_level' does not; or name the "
                "column 'eye' of a long table."
            )


def guess_layout(header: list[str]) -> Layout:
    """Recognise usual names (``patient``, ``eye``, ``image``, ``axial_length``, ``HM``).

    Raises
    ------
    DataError
        Patient or responses are not recognised; the message shows a layout.
    """
    written = {name.casefold(): name for name in header}

    def first(kind: str, suffix: str = "") -> str | None:
        return next((written[n + suffix] for n in USUAL[kind] if n + suffix in written), None)

    found: dict[str, Any] = {kind: first(kind) for kind in ("patient", "eye")}
    places = product(("image", "continuous", "binary"), [("", "")] if found["eye"] else SUFFIXES)
    for kind, (left, right) in places:
        os, od = first(kind, left), first(kind, right)
        if not os or not od or kind in found:
            continue
        found[kind] = os[: len(os) - len(left)] + ("_{eye}" if left else "")
        if left:
            found["eyes"] = {"OS": os[1 - len(left) :], "OD": od[1 - len(right) :]}
    if not found["patient"] or not {"continuous", "binary"} & set(found):
        raise DataError(
            f"the columns {', '.join(header)} are not understood without a layout. {EXAMPLE}"
        )
    names = {"continuous": "AL", "binary": "HM"}
    return read_layout(found | {k: {names[k]: found[k]} for k in names if k in found})
