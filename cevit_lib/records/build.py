"""Building a record: its identity and its contents."""

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime

import numpy as np

from cevit_lib.errors import ProvenanceError
from cevit_lib.records.provenance import provenance
from cevit_lib.records.recipes import arms_of, recipe_of

SCALES = ("paper", "smoke")
_NUMBERS = ("data", "parameters", "trace", "predictions", "columns")
_DEFAULTS = dict.fromkeys((*_NUMBERS, "arrays", "seconds", "times", "device", "notes", "commit"))
_DEFAULTS |= {"dtype": "float64", "status": "done"}


def new_record(
    study: str,
    configuration: dict,
    seeds: Iterable[int],
    metrics: dict,
    scale: str = "paper",
    **content,
) -> dict:
    """Return a record with its provenance filled in; ``write_record`` puts it into ``results/``.

    Parameters
    ----------
    study : str
        A key of ``cevit_lib/records/studies.json``.
    configuration : dict
        The full merged configuration, defaults included. It identifies the record, so a benchmark
        that times several machines names the machine here.
    seeds : iterable of int
        Every seed that was used.
    metrics : dict
        The numbers that pages print; values are numbers, lists or nested dicts of them. NaN is
        stored as null.
    scale : {"paper", "smoke"}
        A smoke record is never published.
    parameters : dict, optional
        Estimated parameters, such as ``{"correlation": (p, p), "scale": (p0,)}``.
    trace : list or dict, optional
        One entry per epoch or iteration.
    predictions, columns : dict of lists, optional
        Small tables by column: per patient, or per replication of a Monte Carlo study.
    arrays : dict of ndarray, optional
        What is too large for JSON; stored in one npz beside the record, with its sha256.
    data : dict, optional
        Such as ``{"name": "grape", "hash": ..., "split": ...}``.
    seconds, times : float and dict, optional
        Wall time in seconds: the whole and its parts.
    dtype, device, notes, commit : optional
        A number's type is ``"float64"`` unless said otherwise. The device defaults to CUDA where
        torch is imported and has it. For ``commit`` see
        ``cevit_lib.records.provenance.commit_and_dirty``.
    status : {"done", "not converged", "failed"}
        A failed fit is recorded too; it is never published.

    Raises
    ------
    ProvenanceError
        The study has no line in ``studies.json``, or the scale is unknown.
    """
    if scale not in SCALES:
        raise ProvenanceError(f"a record's scale is one of {', '.join(SCALES)}, got {scale!r}")
    if unknown := content.keys() - _DEFAULTS.keys():
        raise TypeError(
            f"a record has no {', '.join(sorted(unknown))}; it has {', '.join(_DEFAULTS)}"
        )
    seeds, given = [int(seed) for seed in seeds], _DEFAULTS | content
    times = {"total_seconds": given["seconds"]} | (given["times"] or {})
    numbers = {name: given[name] for name in _NUMBERS} | {"metrics": metrics, "times": times}
    return {
        "id": record_id(study, configuration, seeds, scale, given["data"]),
        "study": study,
        "recipe": recipe_of(study),
        "scale": scale,
        "status": given["status"],
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seeds": seeds,
        "dtype": str(given["dtype"]),
        "notes": given["notes"],
        **jsonable({"configuration": identifying(study, configuration)} | numbers),
        **provenance(given["device"], given["commit"]),
        "arms": _entries(study, configuration),
        "arrays": given["arrays"],
    }


def identifying(study: str, configuration: dict) -> dict:
    """Return what identifies a fit: where a study's records grow by arms, not which of them were
    fitted.
    """
    grows = arms_of(study) is not None
    return {key: value for key, value in configuration.items() if not (grows and key == "arms")}


def _entries(study: str, configuration: dict) -> dict | None:
    """Return an entry an arm, with the version of its own recipe; where it was made, the record
    says.
    """
    versions = arms_of(study)
    names = None if versions is None else configuration.get("arms", ())
    return None if names is None else {name: {"recipe": versions.get(name, 1)} for name in names}


def record_id(
    study: str,
    configuration: dict,
    seeds: Iterable[int],
    scale: str = "paper",
    data: dict | None = None,
) -> str:
    """Return the twelve hexadecimal digits that identify a fit: study, recipe, configuration,
    seeds, data, scale.

    Raises
    ------
    ProvenanceError
        The study has no line in ``studies.json``.
    """
    identity = [
        study,
        recipe_of(study),
        jsonable(identifying(study, configuration)),
        [int(seed) for seed in seeds],
        scale,
        jsonable(data),
    ]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]


def jsonable(value):
    """Return tensors, arrays and numpy scalars as what JSON holds; not finite becomes null."""
    if isinstance(value, dict):
        return {str(key): jsonable(element) for key, element in value.items()}
    if hasattr(value, "tolist"):  # a tensor, an array or one of NumPy's numbers
        return jsonable(value.tolist())
    if isinstance(value, (list, tuple, range)):
        return [jsonable(element) for element in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)


def rounded(value):
    """Return nested lists and dicts with every number at six significant digits: short files, no
    digit that counts.
    """
    if isinstance(value, dict):
        return {key: rounded(element) for key, element in value.items()}
    if isinstance(value, list):
        return [rounded(element) for element in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
