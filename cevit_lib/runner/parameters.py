"""Parameters of a notebook: what its ``parameters`` cell declares, and whether a value fits the
declaration."""

import ast
import contextlib
import json
import types
from difflib import get_close_matches
from typing import Literal, Union, get_args, get_origin

from cevit_lib.errors import ParameterError

_NAMES = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "tuple": tuple}
_NAMES |= {"dict": dict, "Literal": Literal}
_WORDS = {"true": "true", "false": "false", "none": "null", "null": "null"}
_HUGE = 1e300  # neither infinity nor NaN nor an integer that no float can hold
#: What ``check_parameters`` let pass in this process, by name.
CHECKED: dict = {}
_AS_JSON = str.maketrans({"'": '"', "(": "[", ")": "]"})


def check_parameters(spec: dict, namespace: dict) -> None:
    """Validate the parameters of a notebook in its first cell after the ``parameters`` cell, before
    any work.

    Values that have one clear reading are converted in place: ``"1e-4"`` (what YAML makes of ``lr:
    1e-4``) becomes a float, ``"false"`` the boolean, ``"[3, 4]"`` a list. Names that papermill
    injected and the notebook does not know are refused, so a misspelt name stops the run under
    plain papermill too.

    Parameters
    ----------
    spec : dict
        One entry per parameter: ``name: type`` or ``name: (type, rule)``. The type is ``str``,
        ``int``, ``float``, ``bool``, ``list[int]`` and the like, ``dict``, or any of these ``|
        None``. The rule is, for a number (or the numbers in a list), ``(lowest, highest)``, both
        included, ``None`` for an open end; for a string the collection of allowed words; a list or
        set always lists the allowed values.
    namespace : dict
        The notebook's ``globals()``; converted values are written back to it.

    Raises
    ------
    ParameterError
        A parameter is missing, unknown, ill-typed or out of range; all faults are listed at once.

    Examples
    --------
    The two cells at the head of a page, the first one tagged ``parameters``::

        scale: str = "stored"
        learning_rate: float = 1e-4
        seeds: list[int] = [0, 1]

        from cevit_lib.runner import check_parameters, finished
        check_parameters({
            "scale": (str, ("stored", "smoke", "paper")),
            "learning_rate": (float, (0.0, 1.0)),
            "seeds": (list[int], (0, None)),
        }, globals())
    """
    faults = [
        unknown_parameter(name, spec) for name in _injected_names(namespace) if name not in spec
    ]
    for name, entry in spec.items():
        kind, rule = entry if isinstance(entry, tuple) else (entry, None)
        try:
            if name not in namespace:
                raise ParameterError(f"parameter {name!r} is not defined in the parameters cell")
            namespace[name] = coerce(name, namespace[name], kind)
            _check_rule(name, namespace[name], rule)
        except ParameterError as error:
            faults.append(str(error))
    if faults:
        raise ParameterError("; ".join(faults))
    CHECKED.update({name: namespace[name] for name in spec})


def unknown_parameter(name: str, known) -> str:
    """Say that a name is unknown, with the nearest known one."""
    close = get_close_matches(name, list(known), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"unknown parameter {name!r}{hint} This notebook takes: {', '.join(known) or 'none'}"


def coerce(name: str, value, kind):
    """Return ``value`` as ``kind`` where there is one clear reading.

    Raises
    ------
    ParameterError
        There is none; the message names the parameter, what came and how to write what was
        expected.
    """
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is Literal:
        return _one_of(name, value, inner)
    if origin in (Union, types.UnionType):
        return _coerce_union(name, value, inner)
    read = _read(value) if isinstance(value, str) and origin is not str else value
    if origin in (list, tuple) and isinstance(read, (list, tuple)):
        each = [(f"{name}[{index}]", element) for index, element in enumerate(read)]
        return origin(coerce(*one, inner[0]) if inner else one[1] for one in each)
    number = isinstance(read, (int, float)) and not isinstance(read, bool) and abs(read) < _HUGE
    if origin is float and number:
        return float(read)
    if origin is int and number and read == int(read):
        return int(read)
    if origin in (str, bool, dict, type(None)) and isinstance(read, origin):
        return read
    raise _ill_typed(name, value, str(kind) if inner else origin.__name__)


def _read(text: str):
    """Return what a word from a command line or a YAML file means: a number, a truth value, None, a
    list."""
    word = text.strip()
    with contextlib.suppress(ValueError):
        return json.loads(_WORDS.get(word.lower(), word.translate(_AS_JSON)))
    return text


def _coerce_union(name, value, kinds):
    # None first, so that the word "none" is not taken for a string
    for kind in sorted(kinds, key=lambda kind: kind is not type(None)):
        try:
            return coerce(name, value, kind)
        except ParameterError as error:
            fault = error
    raise fault


def _ill_typed(name, value, wanted: str) -> ParameterError:
    how = ""
    if wanted.startswith(("list", "tuple")):
        how = f'; write -p {name} "[3, 4]" or, in a file for -f, {name}: [3, 4]'
    elif wanted == "bool":
        how = f"; write -p {name} true or -p {name} false"
    return ParameterError(
        f"parameter {name!r} must be {wanted}, got {type(value).__name__} {value!r}{how}"
    )


def _one_of(name, value, allowed):
    if value not in allowed:
        raise ParameterError(
            f"parameter {name!r} must be one of {', '.join(map(repr, allowed))}, got {value!r}"
        )
    return value


def _check_rule(name, value, rule) -> None:
    if rule is None or value is None:
        return
    if isinstance(value, (list, tuple)):
        for index, element in enumerate(value):
            _check_rule(f"{name}[{index}]", element, rule)
    elif isinstance(value, (int, float)) and isinstance(rule, tuple):
        low, high = rule
        if (low is not None and value < low) or (high is not None and value > high):
            raise ParameterError(f"parameter {name!r} must lie in [{low}, {high}], got {value!r}")
    else:
        _one_of(name, value, sorted(rule, key=str) if isinstance(rule, (set, frozenset)) else rule)


def _injected_names(namespace: dict) -> list[str]:
    """Return the names assigned by the cell that papermill injected, found in IPython's history of
    inputs."""
    for source in reversed(namespace.get("In") or []):
        if source.startswith("# Parameters\n"):
            return [
                target.id
                for node in ast.parse(source).body
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name)
            ]
    return []


def declared_parameters(source: str) -> dict:
    """Return ``name -> (type, default)`` from the source of a ``parameters`` cell, without running
    it.

    The type is the annotation, or that of the literal default where there is none.

    Raises
    ------
    ParameterError
        A line is not ``name: type = literal``.
    """
    declared = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        target = getattr(node, "target", None) or (getattr(node, "targets", None) or [None])[0]
        if not isinstance(target, ast.Name) or node.value is None:
            raise ParameterError(
                "the parameters cell may hold only 'name: type = default', "
                f"got {ast.unparse(node)!r}"
            )
        try:
            default = ast.literal_eval(node.value)
        except ValueError:
            raise ParameterError(
                f"the default of parameter {target.id!r} must be a literal, got "
                f"{ast.unparse(node.value)!r}"
            ) from None
        kind = _named_type(node.annotation) if isinstance(node, ast.AnnAssign) else type(default)
        declared[target.id] = (kind, default)
    return declared


def _named_type(annotation: ast.expr):
    """Return the type that an annotation names."""
    text = ast.unparse(annotation)
    try:
        return eval(text, {"__builtins__": {}}, _NAMES)
    except (NameError, TypeError, AttributeError):
        raise ParameterError(
            f"the annotation {text!r} is none of {', '.join(_NAMES)}, list[...], ... | None"
        ) from None
