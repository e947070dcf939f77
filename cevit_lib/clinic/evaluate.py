"""The command ``cevit evaluate``: a saved model judged on the patients of another clinic."""

from __future__ import annotations

import argparse
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from cevit_lib.clinic import page as parts
from cevit_lib.clinic.configuration import load_data
from cevit_lib.clinic.intervals import tail
from cevit_lib.clinic.known import known_patients, other_units
from cevit_lib.clinic.page import BEGINNING, paragraph, table
from cevit_lib.clinic.performance import RESAMPLED, Answer, Judged, in_words, stated_by
from cevit_lib.clinic.pooled import judge
from cevit_lib.clinic.predict import data_for, in_training, model_of, predictions_of
from cevit_lib.clinic.tables import own_or_new, patient_table, photographs_of, write_table
from cevit_lib.datasets import PairedEyes
from cevit_lib.errors import DataError
from cevit_lib.metrics import (
    Interval,
    brier_score,
    calibration,
    log_odds,
    root_mean_squared_error,
)
from cevit_lib.records import live_badge
from cevit_lib.records.store import write_whole
from cevit_lib.training import NOT_CLINICAL, Fit

LIMITS = (
    "One clinic's patients: how the model does elsewhere is not known from this page.",
    "Recalibrated numbers are fitted to the patients on whom they are shown: others will be "
    "predicted a little worse than that.",
)


def run_evaluate(options: argparse.Namespace) -> int:
    """Write the page on a saved model's predictions for patients whose responses are known.

    Raises
    ------
    DataError
        No saved model in the folder, a table that does not fit it, or none of the responses was
        observed.
    ParameterError
        An option contradicts the model.
    """
    tail(options.level)
    name = options.csv.stem if options.csv else str(options.data)
    output = options.output or Path(f"evaluation-{name}.html")
    own_or_new(output, BEGINNING)
    if options.table is not None:
        own_or_new(options.table, f"# {NOT_CLINICAL}")
    fit = model_of(options)
    data = load_data(data_for(fit, options), responses=False)
    predictions = predictions_of(fit, data, options)
    if not bool(data.y.isfinite().any()):
        raise DataError(
            f"{name}: no response was observed ({', '.join(data.responses)} are looked for by the "
            "layout's columns and rules); 'cevit predict' asks for none."
        )
    judged = judge(predictions, data.y.numpy(), fit.notes.get("usual", {}), data.domains)
    stated = stated_by(options, judged)
    print(RESAMPLED.format(len(set(judged.ids)), len(judged.answers())), flush=True)
    found = judged.performance(stated, np.random.default_rng(0))
    warned = _warned(data, fit, judged)
    text = parts.document(
        f"Evaluation on {data.name}",
        [
            _summary(fit, data, options, warned),
            "<h2>Patients</h2>",
            parts.flow_table(data.notes.get("flow")),
            parts.characteristics({data.name: judged.y}, judged),
            "<h2>How good the predictions are</h2>",
            parts.performance(judged, stated, found, options.level),
            "<h2>Recalibration</h2>",
            _recalibration(judged),
            "<h2>Where it failed</h2>",
            parts.worst(judged),
            "<h2>What this page cannot say</h2>",
            parts.limits(*LIMITS),
            "<h2>Provenance</h2>",
            _provenance(fit, data),
        ],
    )
    write_whole(output, text.encode())
    if options.table is not None:
        written = patient_table(
            predictions, level=options.level, seen=photographs_of(data), domains=data.domains
        )
        write_table(written, options.table, f"model {options.model.name}")
    print(f"evaluation on {len(set(data.ids))} patients in {output} (not for clinical use)")
    _say(found, warned)
    absent = [name for name in data.responses if name not in found]
    if absent:
        print(f"not judged, for nobody has it observed: {', '.join(absent)}")
    return 0


def _warned(data: PairedEyes, fit: Fit, judged: Judged) -> list[str]:
    """Return what makes these numbers mean something else than they seem to."""
    known, answers = known_patients(data.ids, fit.notes), judged.answers()
    said = [in_training(known)] if known else []
    measures, usual = data.responses[: data.continuous], fit.notes.get("usual", {})
    said += other_units(judged.y, measures, usual)
    one = [a.name for a in answers if a.label and np.unique(a.seen[np.isfinite(a.seen)]).size == 1]
    if one:
        said.append(
            f"{', '.join(one)}: the same in everybody, so that detection and calibration cannot be "
            "judged"
        )
    return said


def _say(found: dict[str, dict[str, Interval]], warned: list[str]) -> None:
    for name, of in found.items():
        there = [metric for metric in SHOWN if metric in of and np.isfinite(of[metric].value)]
        shown = [f"{metric} {of[metric].value:.3g}" for metric in there]
        print(f"  {name}: {', '.join(shown)}")
    print(in_words(found), *warned, sep="\n")


#: What the terminal shows of an answer.
SHOWN = (
    "mean absolute error",
    "R²",
    "area under the curve",
    "calibration intercept",
    "calibration slope",
    "skill",
)


def _summary(fit: Fit, data: PairedEyes, options: argparse.Namespace, warned: list[str]) -> str:
    notes = fit.notes
    text = f"{len(set(data.ids))} patients, predicted by the model {options.model.name}"
    if "patients" in notes:
        text += f", which was fitted on {notes['patients']} patients of {notes.get('data')}"
    return paragraph(f"{text}.") + "".join(f'<p class="warn">{escape(one)}</p>' for one in warned)


def recalibrated(answer: Answer) -> list[tuple[str, float, float, float]]:
    """Return, for predictions as they are, moved, and moved and stretched: what was added, what
    multiplied them (on the scale of the mean, or of the logit), and the error that is left.

    The error is the root mean squared one of a continuous response, the Brier score of a label. A
    slope of one moves only ("in the large").
    """
    said, seen = answer.said, answer.seen
    if answer.label:
        score, fitted = log_odds(said), calibration(said, seen)
        moves = ((0.0, 1.0), (fitted.intercept, 1.0), (fitted.intercept_with_slope, fitted.slope))
        errors = [brier_score(expit(a + b * score), seen) if a == a else a for a, b in moves]
    else:
        there = np.isfinite(seen)
        apart = float((seen - said)[there].mean())
        slope, start = _line(said[there], seen[there])
        moves = ((0.0, 1.0), (apart, 1.0), (start, slope))
        errors = [root_mean_squared_error(a + b * said, seen) if a == a else a for a, b in moves]
    names = ("as it is", "in the large", "with a slope")
    return [(name, *move, error) for name, move, error in zip(names, moves, errors, strict=True)]


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return slope and intercept of the regression of observed on predicted; NaN without one."""
    if len(x) < 3 or np.ptp(x) == 0:
        return float("nan"), float("nan")
    slope, start = np.polyfit(x, y, 1)
    return float(slope), float(start)


def _recalibration(judged: Judged) -> str:
    rows = [
        [answer.name if name == "as it is" else "", name, added, times, error]
        for answer in judged.answers()
        for name, added, times, error in recalibrated(answer)
    ]
    head = ["", "recalibrated", "added", "slope", "error left"]
    caption = (
        "Root mean squared error of a continuous response, Brier score of a label (added to its "
        "logit)"
    )
    return table(head, rows, caption)


def _provenance(fit: Fit, data: PairedEyes) -> str:
    notes: dict[str, Any] = fit.notes
    made = f"Model of record {notes.get('record', 'unknown')}, fitted to data "
    return paragraph(str(live_badge())) + paragraph(
        f"{made}{notes.get('data_hash', 'unknown')}; evaluated on data {data.hash}."
    )
