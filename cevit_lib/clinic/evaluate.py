"""The command ``cevit evaluate``: a saved model judged on the patients of another clinic."""

from __future__ import annotations

import argparse
from math import nan
from pathlib import Path

import numpy as np
from scipy.special import expit

from cevit_lib.clinic.page import write_page
from cevit_lib.clinic.performance import (
    Answer,
    in_words,
    judge,
    questions,
    resampled,
    stated_by,
)
from cevit_lib.clinic.predict import data_for, model_of
from cevit_lib.clinic.tables import own_or_new
from cevit_lib.errors import DataError
from cevit_lib.metrics import brier_score, calibration, log_odds, root_mean_squared_error
from cevit_lib.records import live_badge
from cevit_lib.training import predict

#: What the terminal shows of an answer.
SHOWN = (
    "mean absolute error",
    "R²",
    "area under the curve",
    "calibration intercept",
    "calibration slope",
    "skill",
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
    output = options.output or Path(f"evaluation-{options.csv.stem}.html")
    own_or_new(output)
    fit = model_of(options)
    stated = stated_by(options, questions(fit.responses, fit.continuous, fit.domains))
    data, doubts = data_for(fit, options)
    if not bool(data.y.isfinite().any()):
        raise DataError(
            f"{data.name}: no response was observed ({', '.join(data.responses)} are looked for by "
            "the layout's columns and rules); 'cevit predict' asks for none."
        )
    notes, predictions = fit.notes, predict(fit, data, device=options.device)
    judged = judge(predictions, data.y.numpy(), notes.get("usual", {}), data.domains)
    stated, found = resampled(judged, stated)
    patients = len(set(data.ids))
    write_page(
        output,
        judged,
        stated,
        found,
        options.level,
        title=f"Evaluation on {data.name}",
        record=None,
        model=options.model.name,
        notes=notes,
        doubts=doubts,
        flow=data.notes.get("flow"),
        groups={data.name: slice(None)},
        recalibrated=recalibrated,
        badge=live_badge(),
        origin=f"Model of record {notes.get('record')}, fitted to data {notes.get('data_hash')}; "
        f"evaluated on data {data.hash}.",
    )
    print(f"evaluation on {patients} patients in {output} (not for clinical use)")
    for name, of in found.items():
        there = [metric for metric in SHOWN if metric in of and np.isfinite(of[metric].value)]
        print(f"  {name}: {', '.join(f'{metric} {of[metric].value:.3g}' for metric in there)}")
    print(in_words(found), *doubts, sep="\n")
    if absent := [name for name in data.responses if name not in found]:
        print(f"not judged, for nobody has it observed: {', '.join(absent)}")
    return 0


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
        apart, slope, start = float((seen - said)[there].mean()), nan, nan
        if there.sum() > 2 and np.ptp(said[there]) > 0:
            slope, start = map(float, np.polyfit(said[there], seen[there], 1))
        moves = ((0.0, 1.0), (apart, 1.0), (start, slope))
        errors = [root_mean_squared_error(a + b * said, seen) if a == a else a for a, b in moves]
    names = ("as it is", "in the large", "with a slope")
    return [(name, *move, error) for name, move, error in zip(names, moves, errors, strict=True)]
