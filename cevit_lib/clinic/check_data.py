"""The command ``cevit check-data``: what is wrong in a table of pairs and its photographs.

Reads, never writes.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cevit_lib.clinic.covariates import declared_layout
from cevit_lib.clinic.doubts import doubts, nothing_left
from cevit_lib.clinic.folder import Folder, plain
from cevit_lib.clinic.known import beside_model, stored_notes
from cevit_lib.datasets import PairedEyes, split_by_patient
from cevit_lib.datasets.cells import Problem
from cevit_lib.datasets.rules import folded
from cevit_lib.datasets.table import Arranged, Paths, arrange
from cevit_lib.datasets.values import counted
from cevit_lib.errors import DataError
from cevit_lib.training import streams

SHOWN = 8  # lines of one kind; more are counted
_FINE = {"rows", "patients", "visits", "photographs", "patients kept"}  # no loss, in the flow


@dataclass(frozen=True)
class Report:
    """All problems, and what remains.

    Attributes
    ----------
    problems : list of Problem
    flow : dict
        How many patients, eyes and photographs remain, and why not more.
    facts : list of str
        How the table was read: encoding, marks, laterality, what labels were made from.
    data : PairedEyes
        The patients who remain, as ``load_paired_table`` returns them where nothing is wrong.
    """

    problems: list[Problem]
    flow: dict[str, int]
    facts: list[str]
    data: PairedEyes

    @property
    def errors(self) -> list[Problem]:
        """The problems that stop a fit."""
        return [problem for problem in self.problems if problem.error]

    def told(self) -> list[str]:
        """Return what a fit says of its data: who remains, what was lost and why, each kind of
        doubt once.
        """
        lost = [f"  {loss}" for loss in _losses(self.flow)]
        labels = [f"  {fact}" for fact in self.facts if fact.startswith(("label ", "covariate "))]
        doubted = [problem for problem in self.problems if not problem.error]
        return [_kept(self.flow), *lost, *labels, *gathered(doubted, 1)]


def run_check(options: argparse.Namespace) -> int:
    """Print the report; return 0 when the data can be used, 1 when something is wrong."""
    notes = stored_notes(options.model) if options.model else {}
    layout = notes.get("layout")
    if options.layout or not layout:
        layout = declared_layout(options.csv, options.layout)
    images = None if options.images is None else Path(options.images)
    report = check(options.csv, images, layout, responses=not options.model)
    further = list(beside_model(report.data, layout, notes)) if notes else []
    problems, folds = [*further, *report.problems], []
    if options.folds and not report.errors:
        try:
            folds = describe_folds(report.data, options.folds, options.seed)
        except DataError as error:
            problems.append(Problem(str(error)))
    print(*report.facts, sep="\n")
    for title, error in (("errors", True), ("warnings", False)):
        chosen = [problem for problem in problems if problem.error == error]
        print(f"\n{len(chosen)} {title}", *gathered(chosen, SHOWN), sep="\n")
    print("\nflow", *(f"  {n:7d}  {what}" for what, n in report.flow.items()), *folds, sep="\n")
    bad = any(problem.error or options.strict for problem in problems)
    said = "correct what is listed above, then check again"
    if not bad:
        said = f"can be used: {_kept(report.flow)}"
    print(f"\n{options.csv.name}: {said}", flush=True)
    return 1 if bad else 0


def check(
    table: Path,
    images: Path | None = None,
    layout: Path | dict | None = None,
    responses: bool = True,
) -> Report:
    """Look for everything wrong in a table, its photographs and how they belong together.

    With ``responses=False`` the table may lack columns of responses, as that of patients who are to
    be predicted.

    Raises
    ------
    DataError
        The table cannot be read at all, the layout does not fit it, or there is no folder of that
        name.
    """
    arranged = arrange(table, layout, responses)
    data, problems = arranged.data, [*arranged.problems, *_similar_ids(arranged)]
    problems += doubts(arranged)
    flow = dict(data.notes["flow"])
    if images is not None:
        folder = Folder(images, arranged)
        usable, found = folder.check()
        data = arranged.with_photographs(usable)
        problems += [*found, *folder.strays(), *_one_eye_only(arranged, usable)]
        flow = dict(data.notes["flow"])
        named = sum(path is not None for row in folder.paths for path in row)
        flow["photographs that cannot be used"] = named - flow["photographs"]
        flow["photographs in the folder that no row names"] = len(folder.unnamed)
    if not len(data):
        problems.append(Problem(_why_nothing(flow, arranged)))
    elif responses:
        problems += nothing_left(data, arranged.layout)
    flow["patients kept"] = len(set(data.ids))
    problems.sort(key=lambda problem: (problem.line or np.inf, problem.column or ""))
    kept = {**data.notes["flow"], "patients kept": len(set(data.ids))}
    data = data.replace(name=table.stem, notes={**data.notes, "flow": kept})
    return Report(problems, flow, _facts(arranged), data)


def _similar_ids(arranged: Arranged) -> Iterator[Problem]:
    """Warn of two patients whose ids differ in leading zeros, separators or case only."""
    first: dict[str, str] = {}
    for row, patient in enumerate(arranged.data.ids):
        other = first.setdefault(plain(patient), patient)
        if other != patient:
            text = f"patients {other!r} and {patient!r} differ in zeros, spaces or case only"
            text += "; one person must have one id"
            yield Problem(text, arranged.line(row), arranged.layout.patient, error=False)


def _one_eye_only(arranged: Arranged, usable: Paths) -> Iterator[Problem]:
    layout = arranged.layout
    for row, (patient, files) in enumerate(zip(arranged.data.ids, usable, strict=True)):
        eyes = [eye for eye, path in zip(layout.domains, files, strict=True) if path is not None]
        if len(eyes) == 2:
            continue
        text = f"patient {patient!r} has no usable photograph and is left out"
        if eyes:
            text = f"patient {patient!r} has a usable photograph of {eyes[0]} only"
        if eyes and layout.patient_level:
            text += f"; is a label of the patient still true for the {layout.organ} that is left?"
        yield Problem(text, arranged.line(row), error=False)


def _losses(flow: dict[str, int]) -> list[str]:
    """Return what a flow lost, by reason."""
    lost = {what: n for what, n in flow.items() if n and what not in _FINE}
    return [f"{n} {what}" for what, n in lost.items() if " of both " not in what]


def _why_nothing(flow: dict[str, int], arranged: Arranged) -> str:
    """Say that nobody is left, and what became of all."""
    lost = [loss for loss in _losses(flow) if "observed" not in loss and "response" not in loss]
    said = f"nothing is left of {flow['rows']} rows: {'; '.join(lost)}"
    if flow.get("photographs") == 0 and not (arranged.layout.image or arranged.layout.file):
        said += "; give 'image' or 'file' in the layout"
    return said


def _kept(flow: dict[str, int]) -> str:
    kept, whole = flow["patients kept"], flow["patients"]
    lost = f", {whole - kept} left out" if kept < whole else ""
    return f"{kept} of {whole} patients{lost}"


def gathered(problems: list[Problem], shown: int) -> list[str]:
    """Return the lines of problems; of many that differ in names and numbers only, the first."""
    kinds = [re.sub(r"'[^']*'|\S*\d\S*|\S+\.\w+", "", problem.message) for problem in problems]
    lines, count = [], Counter()
    for kind, problem in zip(kinds, problems, strict=True):
        count[kind] += 1
        if count[kind] <= shown:
            lines.append((kind, f"  {problem}"))
    last = {kind: place for place, (kind, _) in enumerate(lines)}
    return [
        f"{line} (and {count[kind] - shown} more of this kind)"
        if place == last[kind] and count[kind] > shown
        else line
        for place, (kind, line) in enumerate(lines)
    ]


def _facts(arranged: Arranged) -> list[str]:
    layout, codes = arranged.layout, {code: eye for eye, code in arranged.layout.eyes.items()}
    frame, notes = arranged.cells.frame, arranged.data.notes
    if layout.eye:
        seen = sorted(set(frame[layout.eye].map(folded)))
        codes = {code: layout.codes[code] for code in seen if code in layout.codes}
    rules = {**layout.continuous, **layout.binary}
    where = [
        f"where {column} = {text!r}: of {counted(frame[column])}"
        for column, text in layout.where.items()
    ]
    return [
        "table: " + ", ".join(f"{key} {value!r}" for key, value in notes["table"].items()),
        "laterality: " + ", ".join(f"{code} = {eye}" for code, eye in codes.items()),
        "responses: " + ", ".join(f"{name} = {_written(text)}" for name, text in rules.items()),
        *(f"label {name} = {_written(rules[name])}: {t}" for name, t in notes["labels"].items()),
        *_covariates(arranged.data),
        *where,
    ]


def _covariates(data: PairedEyes) -> Iterator[str]:
    """Yield what is known of each covariate; what is not is taken as the mean."""
    for k, name in enumerate(data.covariate_names):
        values = data.covariates[:, :, k].numpy()
        absent = int(np.isnan(values).sum())
        told = f"; {absent} not observed, the mean stands for them" if absent else ""
        yield f"covariate {name}: mean {characteristic(values.ravel(), True)}{told}"


def _written(text: str | dict[str, str]) -> str:
    """Return a column or rule, or those of both eyes, as text."""
    if isinstance(text, dict):
        return " and ".join(f"{column} ({eye})" for eye, column in text.items())
    return text


def describe_folds(data: PairedEyes, folds: int, seed: int) -> list[str]:
    """Return patients, means with SD and counts of ones in each fold that ``cevit fit`` makes.

    Raises
    ------
    DataError
        A fold lacks a class.
    """
    lines = ["\ncharacteristics of the folds (mean and SD, or ones of those observed)"]
    for number, split in enumerate(split_by_patient(data, folds, streams(seed).split), 1):
        y = data.y[split.test].numpy()
        cells = [
            f"{name} {characteristic(y[:, k], k < data.continuous)}"
            for k, name in enumerate(data.responses)
        ]
        patients = len({data.ids[row] for row in split.test})
        lines.append(f"  fold {number}: {patients} patients; " + ", ".join(cells))
    return lines


def characteristic(values: np.ndarray, continuous: bool) -> str:
    """Return mean and SD of what was observed, or how many ones of how many."""
    seen = values[np.isfinite(values)]
    if not continuous:
        return f"{int(seen.sum())} of {len(seen)}"
    return f"{seen.mean():.2f} ({seen.std(ddof=1):.2f})" if len(seen) > 1 else "–"
