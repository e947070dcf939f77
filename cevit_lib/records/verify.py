"""``cevit verify``: fit a sample of the stored records again and see whether the numbers come back.

A study names in ``cevit_lib/records/studies.json`` what fits its records again (see
``cevit_lib.records.recipes``). That takes a record, repeats what its configuration and seeds
describe, and returns a fresh record (made by ``new_record``, not written). The two are compared
number by number, within the spread that other seeds gave.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cevit_lib.errors import DataError, ProvenanceError
from cevit_lib.paths import results_folder
from cevit_lib.records.build import record_id
from cevit_lib.records.recipes import STUDIES, imported, recipe_of, refit_name
from cevit_lib.records.store import load_arrays, load_records, record_path, refuse_unpublishable

COMPARED = ("metrics", "parameters")
# how many standard deviations a number may move, and how far where there are too few seeds to tell
_SPREADS, _FOLD_SPREADS, _FEWEST_SEEDS, _ABSOLUTE, _RELATIVE = 4.0, 2.0, 3, 0.02, 0.05
# among the hundreds of numbers of a fold, the share that two deviations let by chance; none of
# them four times as far off
_BY_CHANCE, _FAR = 0.05, 4.0
# with the same seed only rounding may differ; below this a spread of seeds is no spread
_ROUNDING = 1e-6
# speed is a property of the machine, not of the method
_NOT_COMPARED = ("second", "time", "memory", "speed", "mib")
# two epochs that are nearly level exchange places by rounding; what was reached there is compared
_WHERE = ".epoch"


def main(options) -> int:
    """Verify what the options name; return 0 where everything came back, 1 otherwise."""
    folder = options.folder or results_folder()
    studies = options.study or stored_studies(folder)
    if not studies:
        print(f"there is no record in {folder}: nothing to verify")
        return 1
    asked, faults = bool(options.study), []
    for study in studies:
        rng = np.random.default_rng(options.seed)
        faults += verify_study(study, folder, options.sample, rng, required=asked)
    for fault in faults:
        print(f"DIFFERS  {fault}")
    told = f"{len(faults)} faults" if faults else "every number came back"
    print(f"verified {', '.join(studies)}: {told}")
    return 1 if faults else 0


def stored_studies(folder: Path) -> list[str]:
    """Return the studies that have a record in a folder; ``paper`` holds the paper's printed
    numbers instead.
    """
    return sorted({path.parent.name for path in Path(folder).glob("*/*.json")} - {"paper"})


def verify_study(
    study: str,
    folder: Path,
    sample: int = 1,
    rng: np.random.Generator | None = None,
    required: bool = True,
) -> list[str]:
    """Return what does not come back in a sample of a study's records, one line each.

    All records are checked for what costs nothing: identity, arrays, fitness for publication. Then
    a sample is fitted again.

    Raises
    ------
    ProvenanceError, DataError
        The study has no records, or no refit function or no data although a refit is ``required``.
    """
    records = load_records(study, publication=False, folder=folder)
    faults = [fault for record in records for fault in integrity_faults(record, folder)]
    if not required and refit_name(study) is None:
        whole = f"{len(records)} records are whole, but none is fitted again"
        print(f"{study}: {whole}: no refit function is registered")
        return faults
    refit, rng = refit_function(study), rng or np.random.default_rng(0)
    current = [record for record in records if record["recipe"] == recipe_of(study)]
    chosen = rng.choice(len(current), size=min(sample, len(current)), replace=False)
    for record in (current[index] for index in sorted(chosen)):
        print(f"fitting {study}/{record['id']} again", flush=True)
        try:
            again = refit(record)
        except DataError as error:  # real eyes are not part of the project
            if required:
                raise
            print(f"{study}: not fitted again, for its data are not here: {error}")
            continue
        alike = [other for other in current if _setting(other) == _setting(record)]
        faults += compare(record, again, [other for other in alike if other is not record])
    return faults


def _setting(record: dict) -> dict:
    """Return a record's configuration less the keys that number repetitions."""
    numbering = STUDIES[record["study"]].get("replicates", ())
    return {key: value for key, value in record["configuration"].items() if key not in numbering}


def refit_function(study: str):
    """Return the function that a study registered.

    Raises
    ------
    ProvenanceError
        There is none, or it cannot be imported.
    """
    name = refit_name(study)
    if name is None:
        raise ProvenanceError(
            f"study {study!r} has no refit function; name it in cevit_lib/records/studies.json"
        )
    found = imported(study, name)
    return getattr(found, "refit", found)


def integrity_faults(record: dict, folder: Path) -> list[str]:
    """Return what is wrong with a stored record that can be seen without a fit."""
    path = record_path(record["study"], record["id"], folder=folder)
    try:
        refuse_unpublishable(record, path)
        if record["arrays"]:
            load_arrays(record, folder)
    except ProvenanceError as error:
        return [str(error)]
    named = [record[key] for key in ("study", "configuration", "seeds", "scale", "data")]
    if (identity := record_id(*named)) == record["id"]:
        return []
    edited = "configuration, seeds or data were edited by hand"
    return [f"{path}: its id should be {identity}; {edited}"]


def compare(stored: dict, again: dict, others: list[dict]) -> list[str]:
    """Return which metrics and estimated parameters of a record do not come back, one line each.

    Parameters
    ----------
    stored, again : dict
        The record and its fresh repetition.
    others : list of dict
        Records of the same configuration with other seeds; a number may move by four standard
        deviations of the difference of two of them. Where the repetitions are folds and data sets
        (``replicates`` in ``studies.json``), which a repeated fit shares with its record, by two;
        and since rounding alone makes a second draw of the training, 5 % of a fold's numbers may
        move by more, if none by eight. The record itself is left out of its own yardstick, or a
        wrong number would widen what is allowed. A Monte Carlo mean may move by four standard
        errors of a difference. With fewer than three seeds, 0.02 plus 5 % of the number is allowed.
    """
    found, worst, compared = [], 0.0, 0
    left, right = numbers(stored), numbers(again)
    spreads = [numbers(other) for other in others]
    for field in sorted(left.keys() | right.keys()):
        if field.endswith(_WHERE) or any(word in field.lower() for word in _NOT_COMPARED):
            continue
        a, b = left.get(field), right.get(field)
        seen = [spread[field] for spread in spreads if spread.get(field) is not None]
        error = left.get(field.removesuffix(".mean") + ".se") if field.endswith(".mean") else None
        allowed, origin = tolerance(stored["study"], a, seen, error)
        compared += 1
        if a is None or b is None:
            off = 0.0 if a is b else math.inf
        else:
            off = abs(a - b) / allowed
        if off > 1:
            worst = max(worst, off)
            both = f"{field} is {_shown(a)} in the record, {_shown(b)} now"
            within = f"(allowed {allowed:.3g}, {origin})"
            found.append(f"{stored['study']}/{stored['id']}: {both} {within}")
    folds = len(others) >= _FEWEST_SEEDS and "replicates" in STUDIES[stored["study"]]
    if found and folds and worst <= _FAR and len(found) <= _BY_CHANCE * compared:
        print(*found, f"these {len(found)} of {compared} numbers may: chance allows it", sep="\n")
        return []
    return found


def _shown(value: float | None) -> str:
    return "missing" if value is None else f"{value:.6g}"


def tolerance(
    study: str, value: float | None, seen: list[float], error: float | None = None
) -> tuple[float, str]:
    """Return how far a number may move, and what says so.

    Parameters
    ----------
    study, value
        What is compared.
    seen : list of float
        The same number for other seeds.
    error : float, optional
        Its Monte Carlo standard error, where it is a mean that the record stores beside an ``se``.
    """
    floor = _ROUNDING * (1 + abs(value or 0.0))
    if error is not None:
        wide = _SPREADS * math.sqrt(2) * error
        return max(wide, floor), f"{_SPREADS:g} standard errors of a difference"
    if len(seen) >= _FEWEST_SEEDS:
        # the difference of two fits has sqrt(2) times the spread of one; folds differ by their data
        # as well
        folds = "replicates" in STUDIES[study]
        times, kind = (_FOLD_SPREADS, "folds") if folds else (_SPREADS, "seeds")
        spread = times * math.sqrt(2) * float(np.std(seen, ddof=1))
        return max(spread, floor), f"{times:g} SD of a difference, from {len(seen)} other {kind}"
    return _ABSOLUTE + _RELATIVE * abs(value or 0.0), "default: fewer than three other seeds"


def numbers(record: dict) -> dict[str, float | None]:
    """Return every number in a record's metrics and parameters by its place, such as
    ``parameters.correlation.0.1``.
    """
    parts = (_leaves(record.get(part) or {}, part) for part in COMPARED)
    return {place: value for part in parts for place, value in part}


def _leaves(value, place: str) -> Iterator[tuple[str, float | None]]:
    if isinstance(value, (dict, list)):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, element in entries:
            yield from _leaves(element, f"{place}.{key}")
    elif value is None or (isinstance(value, (int, float)) and math.isfinite(value)):
        yield place, None if value is None else float(value)
