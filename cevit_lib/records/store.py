"""Records on disk: written whole or not at all, read back only where fit to be published."""

import hashlib
import io
import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np

from cevit_lib.errors import ProvenanceError
from cevit_lib.paths import project_root, results_folder, whole_file
from cevit_lib.records.build import record_id
from cevit_lib.records.recipes import STUDIES, arms_of, maker_of

# what may differ between two writings of one fit without making them different records
_VOLATILE = ("created", "times", "peak_memory")
# where an arm was made, and what holds numbers by the names of arms, estimates and stages
_MADE = ("created", "times", "commit", "dirty", "source", "device", "versions", "deterministic")
_BY_NAME = ("metrics", "parameters", "trace", "predictions", "columns")


def scratch_folder() -> Path:
    """Return where smoke records go: ``CEVIT_SCRATCH``, else ``build/smoke`` under the root."""
    named = os.environ.get("CEVIT_SCRATCH")
    return (
        Path(named).expanduser().resolve() if named else project_root() / "build" / "smoke"
    ) / "results"


def record_path(
    study: str, identity: str, scale: str = "paper", folder: Path | None = None
) -> Path:
    """Return where a record lies; smoke records never share a folder with those that pages draw."""
    base = Path(folder) if folder else scratch_folder() if scale == "smoke" else results_folder()
    return base / study / f"{identity}.json"


def write_record(record: dict, folder: str | os.PathLike | None = None) -> Path:
    """Write a record to ``folder/study/id.json`` (arrays beside it as npz) and return the path.

    The file appears whole or not at all, and what was there before a kill or a full disk is still
    there after it.

    Raises
    ------
    ProvenanceError
        The record does not fit the schema, or another one of the same id exists: records are added,
        never edited.
    OutputError
        The disk is full; the message says so and names the file.
    """
    record = dict(record)
    path = record_path(record["study"], record["id"], record["scale"], folder)
    arrays = record.pop("arrays", None)
    payload = _npz_bytes(arrays) if arrays and "sha256" not in arrays else None
    record["arrays"] = (
        {
            "file": path.with_suffix(".npz").name,
            "sha256": hashlib.sha256(payload).hexdigest(),
            "names": sorted(arrays),
        }
        if payload
        else arrays or None
    )
    validate_record(record, path)
    if path.is_file():
        old = read_record(path)
        _refuse_other(old, record, path)
        if record["scale"] != "smoke" and old["dirty"] == record["dirty"]:
            return path  # the same record once more
    if payload:
        write_whole(path.with_suffix(".npz"), payload)
    write_whole(path, to_text(record).encode())
    return path


def add_arms(record: dict, fitted: dict, folder: str | os.PathLike | None = None) -> dict:
    """Add arms to a stored record, the one edit that is allowed, and return it with them.

    Parameters
    ----------
    record : dict
        As it is stored.
    fitted : dict
        The same fit with other arms (by ``new_record``): what it has by a name that the record
        lacks is added, what both have stays as it is in the record. Each new arm says what of its
        making differs from the record's.
    folder : path, optional
        Where the record is.

    Raises
    ------
    ProvenanceError
        The two are not of one fit, or have an arm in common.
    """
    again = sorted(record["arms"].keys() & fitted["arms"].keys())
    if again or record["id"] != fitted["id"]:
        seen = f"{', '.join(again) or 'other arms'} of fit {fitted['id']}"
        raise ProvenanceError(
            f"record {record['id']} of {record['study']!r} has the arms "
            f"{', '.join(record['arms'])} and cannot take "
            f"{seen}: arms of the same fit are added, none is replaced"
        )
    made = {key: fitted[key] for key in _MADE if fitted[key] != record[key]}
    arms = {name: entry | made for name, entry in fitted["arms"].items()}
    grown = record | {"arms": record["arms"] | arms}
    for part in _BY_NAME:
        own = record[part] or {}
        grown[part] = own | (fitted[part] or {}) | own or None
    path = record_path(record["study"], record["id"], record["scale"], folder)
    validate_record(grown, path)
    write_whole(path, to_text(grown).encode())
    return grown


def write_whole(path: Path, content: bytes) -> None:
    """Write a file by way of a temporary one beside it, so that a reader never meets a half of it.

    Raises
    ------
    OutputError
        The disk is full; the message says so and names the file.
    """
    with whole_file(path) as stream:
        stream.write(content)


def to_text(record: dict) -> str:
    """Return a record as short JSON: a line a field, the names of columns once."""
    trace, metrics = record.get("trace"), record.get("metrics") or {}
    if isinstance(trace, list) and trace and all(row.keys() == trace[0].keys() for row in trace):
        table = {"names": list(trace[0]), "rows": [list(row.values()) for row in trace]}
        record = record | {"trace": table}
    names = list(max(filter(_is_row, metrics.values()), key=len, default=()))
    if names and all(_is_row(row) and list(row) == names[: len(row)] for row in metrics.values()):
        rows = {arm: list(row.values()) for arm, row in metrics.items()}
        record = record | {"metrics": {"names": names, "rows": rows}}
    return _lines(record, 0) + "\n"


def _is_row(value) -> bool:
    return isinstance(value, dict)


def _lines(value, depth: int) -> str:
    if isinstance(value, dict) and value and depth < 2:
        entries = [f"{_compact(key)}:{_lines(entry, depth + 1)}" for key, entry in value.items()]
        return "{\n" + ",\n".join(entries) + "}"
    return _compact(value)


def _compact(value) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _refuse_other(old: dict, new: dict, path: Path) -> None:
    # smoke runs repeat themselves, and a dirty record was never fit to be drawn
    if new["scale"] == "smoke" or (old["dirty"] and not new["dirty"]):
        return
    differ = [key for key in new if key not in _VOLATILE and old.get(key) != new[key]]
    if differ:
        raise ProvenanceError(
            f"{path} already holds another record of the same fit (they differ in "
            f"{', '.join(differ)}). Records are added, never edited: change the configuration or "
            "seeds, raise the study's recipe version, or remove the old file on purpose"
        )


def _npz_bytes(arrays: dict) -> bytes:
    stream = io.BytesIO()
    converted = {
        name: value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
        for name, value in arrays.items()
    }
    np.savez_compressed(stream, **converted)
    return stream.getvalue()


def load_arrays(record: dict, folder: str | os.PathLike | None = None) -> dict[str, np.ndarray]:
    """Return the arrays that lie beside a record.

    Raises
    ------
    ProvenanceError
        The record has none, or the file is missing or is not the one that the record was written
        with.
    """
    described = record.get("arrays")
    path = record_path(record["study"], record["id"], record["scale"], folder).with_suffix(".npz")
    if not described or not path.is_file():
        raise ProvenanceError(
            f"record {record['id']} of {record['study']!r} has no arrays at {path}"
        )
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != described["sha256"]:
        raise ProvenanceError(
            f"{path} is not the file its record was written with: its sha256 differs"
        )
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


@cache
def _validator():
    from jsonschema import Draft202012Validator

    schema = json.loads((Path(__file__).with_name("schema.json")).read_text("utf-8"))
    return Draft202012Validator(schema)


def validate_record(record: dict, path: Path | str = "record") -> None:
    """Check a record against ``cevit_lib/records/schema.json``.

    Raises
    ------
    ProvenanceError
        It does not fit; the message names the file, the field and what was expected.
    """
    errors = _validator().iter_errors(record)
    for error in sorted(errors, key=lambda error: list(map(str, error.path))):
        field = ".".join(map(str, error.path)) or "(top)"
        raise ProvenanceError(f"{path} is not a valid record: {field}: {error.message[:300]}")


def read_record(path: Path) -> dict:
    """Read and validate one file.

    Raises
    ------
    ProvenanceError
        It is not JSON or does not fit the schema.
    """
    try:
        record = json.loads(Path(path).read_text("utf-8"))
        trace = record.get("trace") or {}
        if isinstance(trace, dict) and trace.keys() == {"names", "rows"}:
            rows = [dict(zip(trace["names"], row, strict=True)) for row in trace["rows"]]
            record["trace"] = rows
        metrics = record.get("metrics") or {}
        if metrics.keys() == {"names", "rows"}:  # a row may end before the last name
            record["metrics"] = {
                arm: dict(zip(metrics["names"], row, strict=False))
                for arm, row in metrics["rows"].items()
            }
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ProvenanceError(f"{path} is not JSON of a record: {error}") from None
    validate_record(record, path)
    return record


def find_record(
    study: str,
    configuration: dict,
    seeds: Iterable[int],
    scale: str = "paper",
    data: dict | None = None,
    folder: Path | None = None,
) -> dict | None:
    """Return the record of exactly this fit if it exists, so that a grid skips what it has.

    Raises
    ------
    ProvenanceError
        The file is there but is not a valid record.
    """
    path = record_path(study, record_id(study, configuration, seeds, scale, data), scale, folder)
    return read_record(path) if path.is_file() else None


def load_records(
    study: str,
    publication: bool = True,
    configuration: dict | None = None,
    *,
    folder: str | os.PathLike | None = None,
) -> list[dict]:
    """Return the records of a study whose configuration holds the given values, sorted by creation.

    Parameters
    ----------
    study : str
    publication : bool
        Refuse what no page may draw: smoke, dirty, outdated or failed records. Otherwise all valid
        ones come.
    configuration : dict, optional
        Only records whose configuration has these values.
    folder : path, optional
        A folder to read instead of ``results/``.

    Raises
    ------
    ProvenanceError
        There is none, or one that may not be published; the message names file, reason and remedy.
    """
    where = record_path(study, "any", folder=folder).parent
    records = []
    for path in sorted(where.glob("*.json")):
        record = read_record(path)
        if matches(record["configuration"], configuration or {}):
            if publication:
                refuse_unpublishable(record, path)
            records.append(record)
    if not records:
        wanted = f" with {configuration}" if configuration else ""
        raise ProvenanceError(f"no record of study {study!r}{wanted} in {where}; {remedy(study)}")
    # records that were made in one second keep their order under a new identity
    return sorted(records, key=lambda r: (r["created"], r["id"]))


def matches(configuration: dict, wanted: dict) -> bool:
    """Tell whether a configuration holds all wanted values, nested ones included."""
    return all(
        matches(configuration.get(key) or {}, value)
        if isinstance(value, dict)
        else key in configuration and configuration[key] == value
        for key, value in wanted.items()
    )


def refuse_unpublishable(record: dict, path: Path) -> None:
    """Raise ``ProvenanceError`` unless a page of the book may draw this record."""
    study, arms = record["study"], record.get("arms") or {}
    current, versions = STUDIES.get(study, {}).get("recipe"), arms_of(study) or {}
    old = [name for name, entry in arms.items() if entry["recipe"] != versions.get(name, 1)]
    made = f"it was made with recipe {record['recipe']} of {study!r}, now {current}"
    dirty = any(one.get("dirty") for one in (record, *arms.values()))
    reasons = (
        (
            record["scale"] == "smoke",
            "is a smoke record (a tiny grid that shows that the code runs)",
        ),
        (dirty, "is dirty: it was made from code that is in no commit"),
        (record["status"] == "failed", "is the record of a failed fit"),
        (current is None, f"is of {study!r}, which has no line in cevit_lib/records/studies.json"),
        (record["recipe"] != current, f"is outdated: {made}"),
        (old, f"has outdated arms: {', '.join(old)}"),
    )
    for holds, reason in reasons:
        if holds:
            raise ProvenanceError(f"{path} {reason}; {remedy(study)}")


def remedy(study: str) -> str:
    """Say what makes the records of a study."""
    made = f"from a clean commit at scale paper, by {maker_of(study)}"
    return f"make it {made}, and commit results/{study}"
