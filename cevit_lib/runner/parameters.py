"""Parameters of a notebook: what its ``parameters`` cell declares, and whether a value fits the
declaration."""

import ast
import contextlib
import json
from typing import get_args, get_origin

from cevit_lib.edge import nearest
from cevit_lib.errors import ParameterError

KINDS = {kind.__name__: kind for kind in (str, int, float, bool, list)}
KINDS |= {str(kind): kind for kind in (list[str], list[int], list[float], list[bool])}
"""What an annotation in a ``parameters`` cell may be."""
_WORDS = {"true": "true", "false": "false"}
_HUGE = 1e300  # neither infinity nor NaN nor an integer that no float can hold
_HOW = {
    list: '; write -p {0} "[3, 4]" or, in a file for -f, {0}: [3, 4]',
    bool: "; write -p {0} true or -p {0} false",
}
#: What ``check_parameters`` let pass in this process, by name.
CHECKED: dict = {}


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
        ``int``, ``float``, ``bool``, ``list``, or ``list[int]`` and the like. The rule is, for a
        number (or the numbers in a list), ``(lowest, highest)``, both included, ``None`` for an
        open end; for a word the collection of allowed ones.
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
            if rule is not None:
                _check_rule(name, namespace[name], rule)
        except ParameterError as error:
            faults.append(str(error))
    if faults:
        raise ParameterError("; ".join(faults))
    CHECKED.update({name: namespace[name] for name in spec})


def unknown_parameter(name: str, known) -> str:
    """Say that a name is unknown, with the nearest known one."""
    takes = ", ".join(known) or "none"
    return f"unknown parameter {name!r}{nearest(name, known)}. This notebook takes: {takes}"


def coerce(name: str, value, kind):
    """Return ``value`` as ``kind`` where there is one clear reading.

    Raises
    ------
    ParameterError
        There is none; the message names the parameter, what came and how to write what was
        expected.
    """
    origin, inner = get_origin(kind) or kind, get_args(kind)
    read = _read(value) if isinstance(value, str) and kind is not str else value
    if origin is list and isinstance(read, (list, tuple)):
        each = [(f"{name}[{index}]", element) for index, element in enumerate(read)]
        return [coerce(*one, inner[0]) if inner else one[1] for one in each]
    number = isinstance(read, (int, float)) and not isinstance(read, bool) and abs(read) < _HUGE
    if kind is float and number:
        return float(read)
    if kind is int and number and read == int(read):
        return int(read)
    if kind in (str, bool) and isinstance(read, kind):
        return read
    wanted = str(kind) if inner else kind.__name__
    seen = f"{type(value).__name__} {value!r}{_HOW.get(origin, '').format(name)}"
    raise ParameterError(f"parameter {name!r} must be {wanted}, got {seen}")


def _read(text: str):
    """Return what a word from a command line or a YAML file means: a number, a truth value, a
    list."""
    word = text.strip()
    with contextlib.suppress(ValueError):
        return json.loads(_WORDS.get(word.lower(), word.replace("'", '"')))
    return text


def _check_rule(name: str, value, rule) -> None:
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str):
            fits, told = each in rule, f"be one of {', '.join(map(repr, rule))}"
        else:
            low, high = rule
            fits = (low is None or low <= each) and (high is None or each <= high)
            told = f"lie in [{low}, {high}]"
        if not fits:
            raise ParameterError(f"parameter {name!r} must {told}, got {each!r}")


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

    Raises
    ------
    ParameterError
        A line is not ``name: type = literal``.
    """
    declared = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        try:
            declared[node.target.id] = (
                KINDS[ast.unparse(node.annotation)],
                ast.literal_eval(node.value),
            )
        except (AttributeError, KeyError, ValueError):
            raise ParameterError(
                f"the parameters cell may hold only 'name: type = default', the default a literal "
                f"and the type one of {', '.join(KINDS)}; got {ast.unparse(node)!r}"
            ) from None
    return declared
