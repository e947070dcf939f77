"""The command ``cevit fit``: every fold that has no record yet, then the table of predictions."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from cevit_lib.clinic import fold as one_fold
from cevit_lib.clinic.configuration import (
    configuration_of,
    data_configuration,
    facts_of,
    labels_of,
    load_data,
    split_of,
    study_of,
)
from cevit_lib.clinic.devices import claim
from cevit_lib.clinic.known import hashed
from cevit_lib.clinic.performance import usual_of
from cevit_lib.clinic.progress import stages_of, watching
from cevit_lib.clinic.report import arm_means, unsettled
from cevit_lib.clinic.tables import own_or_new, prediction_table, write_table
from cevit_lib.clinic.words import in_options
from cevit_lib.copula import MOST_TOGETHER
from cevit_lib.datasets import PairedEyes
from cevit_lib.edge import check_output
from cevit_lib.errors import CevitError, DataError, OutputError, ParameterError
from cevit_lib.records import find_record, record_id, write_record
from cevit_lib.records.store import record_path, scratch_folder
from cevit_lib.training import Checkpoint, Fit, processes, save_model

IN_PAIRS = (
    "{} labels a patient are too many to be taken together: the copula stage trains, and unless "
    "--estimator names another its parameters are estimated, by the composite likelihood of pairs "
    "of labels; tables have no joint probabilities of more than two"
)


def run_fit(options: argparse.Namespace) -> int:
    """Fit every requested fold; return 0 when all of them have a record, 1 when a fit failed.

    Raises
    ------
    ParameterError
        Options that do not go together, or a fold that is not there; the message says what to give.
    """
    _check(options)
    with claim(options.device, options.share) as options.device:
        return _run_folds(options)


def _check(options: argparse.Namespace) -> None:
    """Stop before any work where an option cannot be meant, or somebody's file would be lost."""
    if options.final and options.save is None:
        raise ParameterError(
            "--final fits a model for new patients; say where it goes by --save FOLDER."
        )
    if options.table is not None:
        own_or_new(options.table)
    wrong = [fold for fold in options.fold or () if not 1 <= fold <= options.folds]
    if wrong:
        raise ParameterError(f"--fold {wrong[0]}: there are folds 1 to {options.folds}.")
    if options.results is None:  # patients' data stay away from the book's records
        options.results = scratch_folder() if options.scale == "smoke" else Path("cevit-results")
        check_output(options.results, "folder", "--results")


def _run_folds(options: argparse.Namespace) -> int:
    crew = processes()  # of several that fit together all train, and the first one writes
    data = load_data(data_configuration(options))
    asked = dict.fromkeys(options.fold or range(1, options.folds + 1))  # no fold counts twice
    folds = [*asked, *([0] if options.final else [])]
    # what is wrong with all stops here
    wanted = [FoldOfFit(options, data, configuration_of(options, fold)) for fold in folds]
    if crew.main and labels_of(wanted[0].configuration["data"]) > MOST_TOGETHER:
        print(IN_PAIRS.format(labels_of(wanted[0].configuration["data"])), flush=True)
    records, failures = [], []
    with watching(len(wanted), stages_of(wanted[0].configuration), crew.main) as watch:
        for each in wanted:
            try:
                with watch.fold(each.name):
                    records.append(each.record(crew))
            except (ParameterError, DataError, OutputError):  # so it is in every fold
                raise
            except CevitError as error:
                failures.append(each.name)
                said = in_options(str(error))
                print(f"{each.name} failed: {said}", file=sys.stderr, flush=True)
    tested = [record for record in records if record["configuration"]["fold"]]
    if crew.main and tested:
        _report(tested, data, options)
    if crew.main and failures:
        print(
            f"failed: {', '.join(failures)}, for the reasons above, which the same command meets "
            "again until they are mended; it makes nothing twice that has its record"
        )
    return 1 if failures else 0


class FoldOfFit:
    """One fold that was asked for: its identity, its record and its model."""

    def __init__(self, options: argparse.Namespace, data: PairedEyes, configuration: dict) -> None:
        self.options, self.data, self.configuration = options, data, configuration
        self.facts = facts_of(data, configuration, options.seed)
        fold, save = configuration["fold"], options.save
        self.name = f"fold {fold} of {options.folds}" if fold else "fit on all patients"
        self.saved = save / (f"fold-{fold}" if fold else "all") if save else None

    @property
    def identity(self) -> tuple:
        """What a record is found by."""
        seeds, scale = [self.options.seed], self.options.scale
        return study_of(self.configuration), self.configuration, seeds, scale, self.facts

    def record(self, crew: Any) -> dict[str, Any]:
        """Return the fold's record, fitted now where there is none yet, or no model of it."""
        known = crew.everyone(find_record(*self.identity, self.options.results))[0]
        there = self.saved is None or self.saved.exists()
        if known is not None and there:
            print(f"{self.name}: record {known['id']} exists, skipped", flush=True)
            return known
        if known is not None:
            said = f"record {known['id']} exists, its model does not: fitted again"
            print(f"{self.name}: {said}", flush=True)
        elif self.saved is not None and there:
            raise ParameterError(
                f"{self.saved} exists and is the model of another fit; name another folder by "
                "--save."
            )
        return self._fitted(known is None, crew.main)

    def _fitted(self, new: bool, writes: bool) -> dict[str, Any]:
        options, checkpoint = self.options, None
        if options.checkpoint is not None:  # named by the record that it will end in
            name = f"{study_of(self.configuration)}-{record_id(*self.identity)}"
            checkpoint = options.checkpoint / name
        what = self.configuration, options.seed, self.data, options.scale, options.weights
        record, fitted = one_fold.fit_fold(*what, device=options.device, checkpoint=checkpoint)
        if writes:
            if new:
                _write(record, options.results)
            if self.saved is not None:
                _save(fitted, self.saved, record, self.data)
            seconds = record["times"]["total_seconds"]
            print(f"{self.name}: record {record['id']}, {seconds:.0f} s", flush=True)
            if checkpoint is not None:
                Checkpoint(checkpoint).remove()
        return record


def _write(record: dict[str, Any], results: Path) -> None:
    """Write a record; where its folder takes none any more, what was fitted is kept elsewhere."""
    try:
        write_record(record, results)
    except OutputError as error:
        kept = write_record(record, Path(tempfile.gettempdir()) / "cevit-kept")
        raise OutputError(f"{error} The record is kept in {kept}: move it there.") from error


def _save(fitted: Fit, folder: Path, record: dict[str, Any], data: PairedEyes) -> None:
    """Write the trained model with what ``cevit predict`` needs to read a table as this one."""
    configuration = record["configuration"]
    trained = data.subset(split_of(data, configuration, record["seeds"][0]).train)
    about = {
        "record": record["id"],
        "data": data.name,
        "data_hash": data.hash,
        "patients": len(set(trained.ids)),
        "patient_hashes": [hashed(patient, data.hash) for patient in trained.ids],
        "usual": usual_of(trained.y.numpy(), data.responses, data.continuous, data.domains),
        "covariates": list(data.covariate_names) if fitted.model.covariates else [],
    }
    layout = configuration["data"].get("layout")
    notes = {**fitted.notes, **about} | ({"layout": layout} if layout else {})
    save_model(replace(fitted, notes=notes), folder)


def _report(records: list[dict], data: PairedEyes, options: argparse.Namespace) -> None:
    """Write the table of predictions, and print each arm's metrics as means over the folds."""
    first, done = records[0], f"{len(records)} of {options.folds} folds"
    beside = record_path(first["study"], first["id"], options.scale, options.results).parent
    table = prediction_table(records, data, level=options.level)
    path = options.table or beside / f"predictions-{first['id']}.csv"
    source = f"{data.name}, {done}, cross-validated by patient, intervals {options.level:.0%}"
    write_table(table, path, f"{source}, records {first['id']} and further")
    print(f"{done}; predictions of {len(table)} patients in {path} (not for clinical use)")
    for arm, means in arm_means(records).items():
        print(
            f"  {arm}: {'; '.join(f'{metric} {mean}' for metric, mean in means.dropna().items())}"
        )
    for line in unsettled(records):
        print(line)
