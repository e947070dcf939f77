"""The command ``cevit fit``: every requested fold, skipped where its record exists, then the table of predictions."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cevit_lib.clinic import fold as one_fold
from cevit_lib.clinic.configuration import (
    configuration_of,
    data_configuration,
    facts_of,
    load_data,
    study_of,
)
from cevit_lib.clinic.predict import memory_in_words
from cevit_lib.clinic.tables import own_or_new, prediction_table, write_table
from cevit_lib.errors import CevitError, ParameterError

if TYPE_CHECKING:
    from cevit_lib.datasets import PairedEyes
    from cevit_lib.training import FeasibleFit


def run_fit(options: argparse.Namespace) -> int:
    """Fit every requested fold; return 0 when all of them have a record, 1 when a fit failed.

    Raises
    ------
    ParameterError
        Options that do not go together, or a fold that is not there; the message says what to give.
    """
    from cevit_lib.clinic.devices import claim

    if options.study:
        return _run_number(options)
    if options.data is None and options.csv is None:
        raise ParameterError(
            "name what to fit: --data grape or synthetic, --csv and --images of your own, or --study with --number."
        )
    _check(options)
    with claim(options.device, options.share) as options.device:
        return _run_folds(options)


def _check(options: argparse.Namespace) -> None:
    """Stop before any work where an option cannot be meant, or an output would replace somebody's file."""
    from cevit_lib.clinic.intervals import tail
    from cevit_lib.training import NOT_CLINICAL

    tail(options.level)
    if options.final and options.save is None:
        raise ParameterError(
            "--final fits a model for new patients; say where it goes by --save FOLDER."
        )
    if options.table is not None:
        own_or_new(options.table, f"# {NOT_CLINICAL}")
    wrong = [fold for fold in options.fold or () if not 1 <= fold <= options.folds]
    if wrong:
        raise ParameterError(f"--fold {wrong[0]}: there are folds 1 to {options.folds}.")
    if options.csv is not None and options.results is None and options.scale != "smoke":
        options.results = Path(
            "cevit-results"
        )  # patients' data do not belong beside the book's records


def _run_number(options: argparse.Namespace) -> int:
    """Make one fit of a study's grid: a job of an engine."""
    import json

    from cevit_lib.clinic.devices import claim
    from studies.workers import listing, run_number

    if options.list:
        print(json.dumps(listing(options.study, options.scale, options.results)))
        return 0
    if options.number is None or options.checkpoint:
        raise ParameterError(
            "--study needs --number (or --list), and takes no --checkpoint: its fits last a minute."
        )
    with claim(options.device, options.share) as device:
        record = run_number(options.study, options.number, options.scale, device, options.results)
    print(f"{options.study} {options.number}: record {record['id']}")
    return 0


def _run_folds(options: argparse.Namespace) -> int:
    from cevit_lib.training import processes

    crew = processes()  # of several that fit together all train, and the first one writes
    data = load_data(data_configuration(options))
    folds = [*(options.fold or range(1, options.folds + 1)), *([0] if options.final else [])]
    records, failures = [], []
    identities = {
        fold: _identity(options, data, fold) for fold in folds
    }  # what is wrong with all stops here
    for fold in folds:
        try:
            records.append(_one(options, data, *identities[fold], crew))
        except ParameterError:  # wrong in every fold, and no second try mends it
            raise
        except CevitError as error:
            failures.append(fold)
            print(f"{_name(fold, options)} failed: {error}", file=sys.stderr, flush=True)
    if crew.main:
        _report(
            [record for record in records if record["configuration"]["fold"]],
            data,
            options,
            failures,
        )
    return 1 if failures else 0


def _identity(
    options: argparse.Namespace, data: PairedEyes, fold: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    configuration = configuration_of(options, fold)
    return configuration, facts_of(data, configuration, options.seed)


def _one(
    options: argparse.Namespace, data: PairedEyes, configuration: dict, facts: dict, crew: Any
) -> dict[str, Any]:
    """Return a fold's record, fitted now where there is none yet."""
    from cevit_lib.records import find_record, write_record

    fold, study = configuration["fold"], study_of(configuration)
    record = crew.agree(
        find_record(study, configuration, [options.seed], options.scale, facts, options.results)
    )
    saved = options.save / ("all" if fold == 0 else f"fold-{fold}") if options.save else None
    if record is not None and (saved is None or saved.exists()):
        print(f"{_name(fold, options)}: record {record['id']} exists, skipped", flush=True)
        return record
    if record is not None:
        print(
            f"{_name(fold, options)}: record {record['id']} exists, its model does not: fitted again",
            flush=True,
        )
    elif saved is not None and saved.exists():
        raise ParameterError(
            f"{saved} exists and is the model of another fit; name another folder by --save."
        )
    known = record is not None
    checkpoint = _checkpoint(options, study, configuration, facts)
    with memory_in_words(options.device):
        record, fitted = one_fold.fit_fold(
            configuration,
            options.seed,
            data,
            options.scale,
            options.device,
            options.weights,
            checkpoint,
        )
    if crew.main:
        if not known:
            write_record(record, options.results)
        _save(fitted, saved, record, data)
        print(f"{_name(fold, options)}: {_one_line(record)}", flush=True)
    if crew.main and checkpoint is not None:
        checkpoint.remove()
    return record


def _name(fold: int, options: argparse.Namespace) -> str:
    return f"fold {fold} of {options.folds}" if fold else "fit on all patients"


def _checkpoint(options: argparse.Namespace, study: str, configuration: dict, facts: dict) -> Any:
    """Return the folder for a fit's state, named by the record that it will end in."""
    from cevit_lib.records import record_id
    from cevit_lib.training import Checkpoint

    if options.checkpoint is None:
        return None
    identity = record_id(study, configuration, [options.seed], options.scale, facts)
    return Checkpoint(options.checkpoint / f"{study}-{identity}")


def _save(
    fitted: FeasibleFit, folder: Path | None, record: dict[str, Any], data: PairedEyes
) -> None:
    """Write the trained model with what ``cevit predict`` needs to read a table as this one was read."""
    from cevit_lib.training import save_model

    if folder is None:
        return
    about = {
        "record": record["id"],
        "data": data.name,
        "data_hash": data.hash,
        "patients": len(data),
    }
    layout = record["configuration"]["data"].get("layout")
    notes = {**fitted.copula.notes, **about} | ({"layout": layout} if layout else {})
    save_model(replace(fitted.copula, notes=notes), folder)


def _one_line(record: dict[str, Any]) -> str:
    values = record["metrics"]["copula"]["values"] if record["metrics"] else {}
    shown = [
        f"{name} {value:.3g}"
        for name, value in values.items()
        if name.startswith(("MAE", "AUC")) and value is not None
    ]
    return ", ".join(
        [f"record {record['id']}", f"{record['times']['total_seconds']:.0f} s", *shown]
    )


def _report(
    records: list[dict], data: PairedEyes, options: argparse.Namespace, failures: list[int]
) -> None:
    if records:
        from cevit_lib.records.store import record_path

        first = records[0]
        beside = record_path(first["study"], first["id"], options.scale, options.results).parent
        table = prediction_table(records, data, level=options.level)
        path = options.table or beside / f"predictions-{first['id']}.csv"
        done = f"{len(records)} of {options.folds} folds"
        source = f"{data.name}, {done}, cross-validated by patient, intervals {options.level:.0%}"
        write_table(table, path, f"{source}, records {first['id']} and further")
        print(f"{done}; predictions of {len(table)} patients in {path} (not for clinical use)")
        _print_means(records)
    if failures:
        names = ", ".join(str(fold) if fold else "all patients" for fold in failures)
        print(f"failed folds: {names}; the same command tries only these again")


def _print_means(records: list[dict]) -> None:
    """Print each arm's metrics as means over the folds, with how many folds have one where some have none."""
    metrics = records[0]["metrics"]
    for name in metrics:
        parts = []
        for key in metrics[name]["values"]:
            values = [record["metrics"][name]["values"][key] for record in records]
            seen = [value for value in values if value is not None]
            if seen:
                parts.append(
                    f"{key} {sum(seen) / len(seen):.3g}"
                    + ("" if len(seen) == len(values) else f" ({len(seen)})")
                )
        print(f"  {name}: {'; '.join(parts)}")
