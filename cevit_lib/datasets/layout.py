"""How a group's own table is laid out: a small YAML file that names columns, rules and codes."""

import json
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import jsonschema

from cevit_lib.datasets.rules import NUMBER, Criterion, folded
from cevit_lib.edge import nearest, read_mapping
from cevit_lib.errors import DataError

EYES = ("OS", "OD")  # the paper's order: left eye first
#: Codes of an eye that mean the same everywhere. Numbers do not: a layout must declare them.
LATERALITY = {
    **dict.fromkeys(("od", "r", "re", "right", "right eye", "右"), "OD"),
    **dict.fromkeys(("os", "l", "le", "left", "left eye", "左"), "OS"),
}
MISSING = ("", "/", "-", ".", "na", "n/a", "nan", "null", "#n/a", "<na>")
#: Names that are known without a layout, where one row is an eye.
USUAL = {
    "patient": ("patient", "patient_id", "subject", "subject_id", "id"),
    "eye": ("eye", "laterality", "exam_eye"),
    "image": ("image", "image_id", "file", "filename"),
    "continuous": ("axial_length", "al"),
    "binary": ("high_myopia", "hm"),
}
EXAMPLE = (
    "A layout for one row an eye: 'patient: id', 'eye: laterality', 'image: file', "
    "'continuous: {AL: axial_length}', 'binary: {HM: se <= -6}'; for one row a patient the columns "
    "hold {eye}: 'continuous: {AL: \"axial_length_{eye}\"}' with 'eyes: {OS: left, OD: right}'."
)


@dataclass(frozen=True)
class Layout:
    """What the columns of a table of paired eyes mean. Every attribute is a key of the YAML file.

    Attributes
    ----------
    patient : str
        Column of the patient's identity, kept as text.
    visit : str, optional
        Column of the visit, where the table holds several of a patient; a fold never parts them.
    organ : str
        What there are two of, in messages: ``eye``, ``knee``, ``ear``, ``breast`` ...
    domains : tuple of str
        The names of the left and of the right one: OS and OD of eyes, left and right of others.
    eye : str, optional
        Column of the laterality in a long table (one row an eye). Without it the table is wide (one
        row a patient), and ``{eye}`` in a column's name stands for the entries of ``eyes``.
    eyes : dict
        What stands for ``{eye}`` in wide tables and in ``file``: ``{OS: left, OD: right}``. Columns
        whose names follow no pattern are named one by one, as ``AL: {OS: Left AL, OD: AL right}``.
    laterality : dict
        Further codes of ``eye``, such as ``{1: OD, 2: OS}``.
    image : str, optional
        Column of the file names; in a wide table with ``{eye}``.
    suffix : str, optional
        What a file's name has behind what stands in ``image``, such as ``.jpg`` or ``_fundus.png``.
    file : str, optional
        Instead of ``image``: how a file is called, such as ``"{patient}_{eye}.jpg"``; ``{visit}``
        may stand in it, too.
    continuous, binary, covariates : dict
        Name to column or rule. A continuous response is a column; a binary one a rule
        (:mod:`cevit_lib.datasets.rules`), or a column of 0 and 1.
    patient_level : tuple of str
        Responses that hold for the patient, not for an eye: one column of ``y``. In a long table
        both rows must agree.
    limits : dict
        Name of a response or covariate to ``[lowest, highest]``; a number outside is an error.
    where : dict
        Only rows whose column has that text, such as ``{visit: 1}``; the others are counted.
    missing : tuple of str
        Further cells that mean "not observed", whatever their case; ``-9`` is also ``-9.00``.
    encoding, separator, decimal, sheet : str, optional
        Of the file, where they are not recognised.
    size : int
        Height and width of the images after reading.
    mirror : bool
        Flip left eyes onto right ones.
    """

    patient: str
    visit: str | None = None
    organ: str = "eye"
    domains: tuple[str, ...] = EYES
    eye: str | None = None
    eyes: dict[str, str] = field(default_factory=lambda: {"OS": "OS", "OD": "OD"})
    laterality: dict[str, str] = field(default_factory=dict)
    image: str | dict[str, str] | None = None
    suffix: str | None = None
    file: str | None = None
    continuous: dict[str, str | dict[str, str]] = field(default_factory=dict)
    binary: dict[str, str | dict[str, str]] = field(default_factory=dict)
    covariates: dict[str, str | dict[str, str]] = field(default_factory=dict)
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
        """The whole map from a code (lower case) to the name of a domain."""
        usual = {code: self.domains[EYES.index(eye)] for code, eye in LATERALITY.items()}
        own = {folded(name): name for name in self.domains}
        return usual | own | {folded(code): eye for code, eye in self.laterality.items()}

    @property
    def one(self) -> str:
        """One of the two, in words: an eye, a knee."""
        return f"{'an' if self.organ[:1].casefold() in tuple('aeiou') else 'a'} {self.organ}"

    def column(self, text: str | dict[str, str], eye: str) -> str:
        """Return a column or rule of one eye: its own, or ``{eye}`` filled in in a wide table."""
        if isinstance(text, dict):
            return text[eye]
        return str(text) if self.eye else str(text).replace("{eye}", self.eyes[eye])

    def criterion(self, text: str | dict[str, str], eye: str) -> Criterion:
        """Return what is read for one eye."""
        return Criterion.parse(self.column(text, eye))

    def meaning(self, response: str) -> tuple:
        """Return what a response says, whatever its column is called, and of whom."""
        text = (self.continuous | self.binary)[response]
        return self.criterion(text, self.domains[0]).meaning, response in self.patient_level

    def eye_of(self, response: str) -> str:
        """Return the eye to which a column of ``y`` belongs, ``""`` for one of the patient."""
        ends = (name for name in self.domains if response.endswith(f"_{name}"))
        return "" if response in self.patient_level else max(ends, key=len)

    def image_column(self, eye: str) -> str | None:
        """Return the column that holds the file name of an eye's photograph."""
        return self.column(self.image, eye) if self.image else None

    def is_missing(self, text: str) -> bool:
        """Tell whether a cell says that nothing was observed; numbers are compared as numbers."""
        text = text.casefold()
        coded = [float(word) for word in self.missing if NUMBER.fullmatch(word)]
        return text in self.missing or bool(NUMBER.fullmatch(text) and float(text) in coded)


_TEXT = {"type": ["string", "number", "boolean"], "description": "text"}
_LIST = {"type": "array", "description": "a list"}
_MAP = {"type": "object", "additionalProperties": _TEXT, "description": "a map, name: text"}
_SIDED = {"anyOf": [_TEXT, _MAP], "description": "text, or the two eyes' columns: {OS: a, OD: b}"}
_COLUMNS = {
    "type": "object",
    "additionalProperties": _SIDED,
    "description": "a map, name: column, rule, or {OS: column, OD: column}",
}
_KINDS = {  # JSON Schema; every other key is text
    **dict.fromkeys(("patient_level", "missing", "domains"), _LIST),
    **dict.fromkeys(("continuous", "binary", "covariates"), _COLUMNS),
    **dict.fromkeys(("where", "eyes", "laterality"), _MAP),
    "image": _SIDED,
    "limits": {
        "additionalProperties": {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "items": {"type": "number"},
        },
        "description": "name: [lowest, highest], two numbers",
        "type": "object",
    },
    "size": {"type": "integer", "minimum": 1, "description": "a positive whole number"},
    "mirror": {"type": "boolean", "description": "true or false"},
    "separator": {"pattern": r"^(.|tab|\\t)$", "description": "one character, or tab"},
    "decimal": {"enum": [".", ","], "description": "'.' or ','"},
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
        source = read_mapping(Path(source), "layout", DataError)
    if not isinstance(source, dict) or not source.get("patient"):
        raise DataError(f"{where} must name at least the column of the patient. {EXAMPLE}")
    known = [each.name for each in fields(Layout)]
    for key in source:
        if key not in known:
            raise DataError(
                f"{where}: unknown key {key!r}{nearest(key, known)}; keys are {', '.join(known)}."
            )
    # through JSON: tuples become lists, and codes such as 1 text
    plain = json.loads(json.dumps(source, default=str))
    values = {key: _typed(where, key, value) for key, value in plain.items() if value is not None}
    layout = Layout(**_sided(values, where))
    _check(layout, where)
    return layout


def _sided(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Put the domains' names where OS and OD, or left and right, may stand for them."""
    usual = EYES if values.get("organ", "eye") == "eye" else ("left", "right")
    names = values.setdefault("domains", usual)
    if len(set(names)) != 2 or "" in names:
        raise DataError(
            f"{where}, 'domains': {', '.join(names)}; two only, the left and the right one."
        )
    known = {code: names[EYES.index(eye)] for code, eye in LATERALITY.items()}
    known |= {folded(name): name for name in names}

    def renamed(key: str, mapping: dict[str, str]) -> dict[str, str]:
        found = {known.get(folded(name), name): text for name, text in mapping.items()}
        if set(found) != set(names):
            raise DataError(
                f"{where}, {key!r}: {', '.join(mapping)}; two only, {names[0]} and {names[1]}."
            )
        return found

    values["eyes"] = renamed("eyes", values.get("eyes") or {name: name for name in names})
    codes = values.get("laterality", {})
    if strange := [eye for eye in codes.values() if eye not in (*names, *EYES)]:
        raise DataError(
            f"{where}, 'laterality': {strange[0]!r}; expected what maps codes to {names[0]} or "
            f"{names[1]}."
        )
    values["laterality"] = {code: known.get(folded(eye), eye) for code, eye in codes.items()}
    maps = [values.get(key, {}) for key in ("continuous", "binary", "covariates")]
    for place, name in [(values, "image"), *((each, name) for each in maps for name in each)]:
        if isinstance(place.get(name), dict):
            place[name] = renamed(name, place[name])
    return values


def _typed(where: str, key: str, value: Any) -> Any:
    """Bring a value of YAML to the attribute's type."""
    kind = _KINDS.get(key, _TEXT)
    if not jsonschema.Draft202012Validator(kind).is_valid(value):
        raise DataError(f"{where}, {key!r}: expected {kind['description']}.")
    if kind is _LIST:
        words = tuple(str(each).strip() for each in value)
        further = (word.casefold() for word in words)
        return tuple(dict.fromkeys((*MISSING, *further))) if key == "missing" else words
    if kind in (_TEXT, _MAP, _SIDED, _COLUMNS):
        return _as_text(value)
    return value


def _as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_text(each) for name, each in value.items()}
    return str(value)


def _check(layout: Layout, where: str) -> None:
    """Compare the attributes with each other."""
    names = [*layout.continuous, *layout.binary]
    if not names:
        raise DataError(
            f"{where} names no response: give 'continuous', 'binary' or both. {EXAMPLE}"
        )
    strange = [name for name in layout.patient_level if name not in names]
    names += layout.covariates
    strange += [name for name in layout.limits if name not in names]
    if strange or "" in names or len(set(names)) < len(names):
        raise DataError(
            f"{where}: {strange or names}: each response and covariate has its own name, and only "
            "responses have a level, they and covariates limits."
        )
    _refuse_answers(layout, where)
    for name, text in layout.continuous.items():
        if any(layout.criterion(text, eye).comparison for eye in layout.domains):
            raise DataError(
                f"{where}, continuous response {name!r}: {text!r} is a rule; put it under 'binary'."
            )
    if layout.image and layout.file:
        raise DataError(
            f"{where}: give 'image' (a column) or 'file' (a pattern of names), not both."
        )
    columns = layout.continuous | layout.binary | {"image": layout.image or "{eye}"}
    for name, text in columns.items() if layout.eye is None else ():
        own = "{eye}" in text or isinstance(text, dict)
        if own == (name in layout.patient_level):
            raise DataError(
                f"{where}, {name!r}: {text!r} in a table of one row a patient: the column of "
                f"{layout.one} holds {{eye}}, or is named for each as {{{layout.domains[0]}: a, "
                f"{layout.domains[1]}: b}}, that of a response under 'patient_level' does not; or "
                "name the column 'eye' of a long table."
            )


def _refuse_answers(layout: Layout, where: str) -> None:
    """Refuse a covariate from which a response could be read off."""
    made = {
        layout.criterion(text, eye).column: name
        for name, text in (layout.continuous | layout.binary).items()
        for eye in layout.domains
    }
    for name, text in layout.covariates.items():
        for column in {layout.criterion(text, eye).column for eye in layout.domains} & set(made):
            raise DataError(
                f"{where}, covariate {name!r}: the response {made[column]!r} is made from its "
                f"column {column!r}, so nothing would be left to predict; take it out."
            )


def differences(layout: Layout, other: Layout) -> list[str]:
    """Return, one sentence each, where two layouts give a response of one name another meaning."""
    ours, theirs = (each.continuous | each.binary for each in (layout, other))
    return [
        f"{name!r} is {ours[name]!r} in this layout and {theirs[name]!r} in the model's"
        for name in ours
        if name in theirs and layout.meaning(name) != other.meaning(name)
    ]


def guess_layout(header: list[str]) -> Layout:
    """Recognise the usual names of a table with one row an eye (``patient``, ``eye``, ``image``,
    ``axial_length``, ``HM``).

    Raises
    ------
    DataError
        Patient, eye or responses are not recognised; the message shows a layout.
    """
    written = {name.casefold(): name for name in header}
    known = {
        kind: [written[name] for name in names if name in written] for kind, names in USUAL.items()
    }
    found = {kind: names[0] for kind, names in known.items() if names}
    measured = {"continuous": "AL", "binary": "HM"}
    if not {"patient", "eye"} <= set(found) or not set(measured) & set(found):
        raise DataError(
            f"the columns {', '.join(header)} are not understood without a layout. {EXAMPLE}"
        )
    return read_layout(found | {k: {measured[k]: found[k]} for k in measured if k in found})
