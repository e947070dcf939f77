"""How a group's own table is laid out: a small YAML file that names its columns, its rules and what codes an eye."""

import difflib
import os
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cevit_lib.errors import DataError

EYES = ("OS", "OD")  # the paper's order: left eye first
#: Codes of an eye that mean the same everywhere. Numbers do not: a layout must declare them.
LATERALITY = {
    "od": "OD",
    "r": "OD",
    "re": "OD",
    "right": "OD",
    "右": "OD",
    "os": "OS",
    "l": "OS",
    "le": "OS",
    "left": "OS",
    "左": "OS",
}
MISSING = ("", "/", "-", ".", "na", "n/a", "nan", "null")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_RULE = re.compile(r"(.+?)\s*(<=|>=|==|!=|<|>)\s*(.+)")
_NO_RULE = re.compile(rf"(=<|=>|(?<![<>=!])=(?=\s*{NUMBER.pattern}$))")
_COMPARE = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
_PATIENT = ("patient", "patient_id", "subject", "subject_id", "id")
_EYE = ("eye", "laterality", "exam_eye")
_IMAGE = ("image", "image_id", "file", "filename")
_CONTINUOUS = ("axial_length", "al")
_BINARY = ("high_myopia", "hm")
_SUFFIXES = (("os", "od"), ("left", "right"), ("l", "r"))
EXAMPLE = (
    "A layout for one row an eye: 'patient: id', 'eye: laterality', 'image: file', 'continuous: {AL: axial_length}', "
    "'binary: {HM: se <= -6}'; for one row a patient the columns hold {eye}: 'continuous: {AL: \"axial_length_{eye}\"}'"
    " with 'eyes: {OS: left, OD: right}'."
)


@dataclass(frozen=True)
class Rule:
    """One column, or a comparison of it with a limit: ``se <= -6``, ``sex == F``.

    Attributes
    ----------
    column : str
    operator, limit : str or None
        Both ``None`` for a plain column.
    """

    column: str
    operator: str | None = None
    limit: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Read a rule; one without an operator is a plain column."""
        text = str(text).strip().replace("≤", "<=").replace("≥", ">=").replace("−", "-")
        strange = _NO_RULE.search(text)
        if strange:
            raise DataError(
                f"rule {text!r}: {strange[1]!r} is no comparison; write <=, >=, <, >, == or !=."
            )
        match = _RULE.fullmatch(text)
        rule = cls(*match.groups()) if match else cls(text)
        if rule.operator in ("<", "<=", ">", ">=") and not NUMBER.fullmatch(rule.limit):
            raise DataError(
                f"rule {text!r}: {rule.limit!r} is no number to compare with; write it as 'se <= -6'."
            )
        return rule

    @property
    def of_text(self) -> bool:
        """The rule compares text (``sex == F``), not numbers."""
        return self.operator is not None and not NUMBER.fullmatch(self.limit)

    def holds(self, value: float | str) -> float:
        """Return 1.0 or 0.0."""
        limit = self.limit.casefold() if self.of_text else float(self.limit)
        return float(_COMPARE[self.operator](value.casefold() if self.of_text else value, limit))


@dataclass(frozen=True)
class Layout:
    """What the columns of a table of paired eyes mean. Every attribute is a key of the YAML file.

    Attributes
    ----------
    patient : str
        Column of the patient's identity, kept as text.
    eye : str, optional
        Column of the laterality in a long table (one row an eye). Without it the table is wide (one row a patient), and
        ``{eye}`` in a column's name stands for the entries of ``eyes``.
    eyes : dict
        What stands for ``{eye}``, such as ``{OS: left, OD: right}``; in wide tables and in ``file``.
    laterality : dict
        Further codes of ``eye``, such as ``{1: OD, 2: OS}``.
    image : str, optional
        Column of the file names; in a wide table with ``{eye}``.
    file : str, optional
        Instead of ``image``: how a file is called, such as ``"{patient}_{eye}.jpg"``.
    continuous, binary, covariates : dict
        Name to column or rule. A continuous response is a column; a binary one a rule, or a column of 0 and 1.
    patient_level : tuple of str
        Responses that hold for the patient, not for an eye: one column of ``y``. In a long table both rows must agree.
    limits : dict
        Name of a continuous response to ``[lowest, highest]``; a cell outside is an error.
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
        return {
            **LATERALITY,
            **{key.strip().casefold(): eye for key, eye in self.laterality.items()},
        }

    def rule(self, text: str, eye: str) -> Rule:
        """Return the rule for one eye: ``{eye}`` filled in where the table is wide."""
        return Rule.parse(text if self.eye else str(text).replace("{eye}", self.eyes[eye]))


def read_layout(source: str | os.PathLike | dict[str, Any]) -> Layout:
    """Read a layout from a YAML file (or the dictionary that it would hold) and check its keys and types.

    Raises
    ------
    DataError
        The file is unreadable, a key is unknown or a value has the wrong type; the message names it.
    """
    where = "layout"
    if not isinstance(source, dict):
        import yaml

        where = str(source)
        try:
            source = yaml.safe_load(Path(source).read_text(encoding="utf-8-sig"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise DataError(
                f"layout {where} cannot be read: {' '.join(str(error).split())}"
            ) from None
    if not isinstance(source, dict) or not source.get("patient"):
        raise DataError(f"{where} must name at least the column of the patient. {EXAMPLE}")
    known = [f.name for f in fields(Layout)]
    for key in source:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            hint = f", perhaps {near[0]!r}" if near else ""
            raise DataError(f"{where}: unknown key {key!r}{hint}; keys are {', '.join(known)}.")
    layout = Layout(
        **{key: _typed(where, key, value) for key, value in source.items() if value is not None}
    )
    _check(layout, where)
    return layout


def _typed(where: str, key: str, value: Any) -> Any:
    """Bring a value of YAML to the attribute's type; codes such as 1 become text."""
    if key in ("size", "mirror"):
        good = isinstance(value, bool) if key == "mirror" else isinstance(value, int) and value > 0
        expected = "true or false" if key == "mirror" else "a positive whole number"
    elif key in ("patient_level", "missing"):
        good, expected = isinstance(value, list | tuple), "a list"
        value = tuple(str(v).strip() for v in value) if good else ()
        value = tuple(v.casefold() for v in value) if key == "missing" else value
    elif key == "limits":
        good = isinstance(value, dict) and all(
            isinstance(v, list | tuple) and len(v) == 2 for v in value.values()
        )
        expected = "name: [lowest, highest]"
    elif isinstance(getattr(_DEFAULT, key), dict):
        good, expected = isinstance(value, dict), "a map, name: text"
        value = {str(k): str(v) for k, v in value.items()} if good else 0
    else:
        good, expected, value = not isinstance(value, list | dict), "text", str(value)
    if not good:
        raise DataError(f"{where}, {key!r}: expected {expected}.")
    return value


_DEFAULT = Layout(patient="")


def _check(layout: Layout, where: str) -> None:
    names = [*layout.continuous, *layout.binary]
    if not names:
        raise DataError(
            f"{where} names no response: give 'continuous', 'binary' or both. {EXAMPLE}"
        )
    strange = [name for name in (*layout.patient_level, *layout.limits) if name not in names]
    if strange or len(set(names)) < len(names):
        raise DataError(
            f"{where}: {strange or names}: each response has its own name, and only responses have a level or limits."
        )
    for name, text in layout.continuous.items():
        if Rule.parse(text).operator:
            raise DataError(
                f"{where}, continuous response {name!r}: {text!r} is a rule; put it under 'binary'."
            )
    if set(layout.eyes) != set(EYES) or not set(layout.laterality.values()) <= set(EYES):
        raise DataError(
            f"{where}: 'eyes' gives OS and OD one text each, and 'laterality' maps codes to OS or OD."
        )
    if layout.image and layout.file:
        raise DataError(
            f"{where}: give 'image' (a column) or 'file' (a pattern of names), not both."
        )
    if layout.eye is None:
        for name, text in {
            **layout.continuous,
            **layout.binary,
            "image": layout.image or "{eye}",
        }.items():
            if ("{eye}" in text) == (name in layout.patient_level):
                raise DataError(
                    f"{where}, {name!r}: {text!r} in a table of one row a patient: the column of an eye holds {{eye}}, "
                    "that of a response under 'patient_level' does not; or name the column 'eye' of a long table."
                )


def guess_layout(header: list[str]) -> Layout:
    """Recognise usual names of columns (``patient``, ``eye``, ``image``, ``axial_length``, ``HM``; wide or long).

    Raises
    ------
    DataError
        Patient or responses are not recognised; the message shows a layout.
    """
    lower = {name.casefold(): name for name in header}

    def first(names: tuple[str, ...]) -> str | None:
        return next((lower[name] for name in names if name in lower), None)

    patient, eye = first(_PATIENT), first(_EYE)
    found: dict[str, Any] = {"patient": patient, "eye": eye}
    if eye:
        kinds = {"image": _IMAGE, "continuous": _CONTINUOUS, "binary": _BINARY}
        found |= {kind: first(names) for kind, names in kinds.items()}
    else:
        for pair in _SUFFIXES:
            for kind, names in (
                ("image", _IMAGE),
                ("continuous", _CONTINUOUS),
                ("binary", _BINARY),
            ):
                for name in names:
                    both = [lower.get(f"{name}_{suffix}") for suffix in pair]
                    if (
                        all(both)
                        and both[0][: len(name)] == both[1][: len(name)]
                        and not found.get(kind)
                    ):
                        found[kind] = both[0][: len(name)] + "_{eye}"
                        found["eyes"] = {
                            e: b[len(name) + 1 :] for e, b in zip(EYES, both, strict=True)
                        }
    if not patient or not (found.get("continuous") or found.get("binary")):
        raise DataError(
            f"the columns {', '.join(header)} are not understood without a layout. {EXAMPLE}"
        )
    names = {"continuous": "AL", "binary": "HM"}
    return read_layout({k: {names[k]: v} if k in names and v else v for k, v in found.items()})
