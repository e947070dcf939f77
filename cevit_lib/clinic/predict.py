"""The command ``cevit predict``: a saved model's word on patients, also given what was measured."""

from __future__ import annotations

import argparse

import torch

from cevit_lib.clinic.configuration import load_data, table_configuration
from cevit_lib.clinic.covariates import declared_layout
from cevit_lib.clinic.known import beside_model, stored_notes
from cevit_lib.clinic.tables import eye_of, own_or_new, patient_table, photographs_of, write_table
from cevit_lib.copula import MOST_TOGETHER
from cevit_lib.datasets import PairedEyes
from cevit_lib.errors import DataError, ParameterError
from cevit_lib.training import Fit, load_model, predict


def run_predict(options: argparse.Namespace) -> int:
    """Write the predictions of a saved model for every patient of a data set.

    Raises
    ------
    DataError
        No saved model in the folder, a table that does not fit it, or nothing of an eye was
        measured.
    ParameterError
        An option contradicts the model.
    """
    own_or_new(options.table)
    fit = model_of(options)
    data, doubts = data_for(fit, options)
    measured = measured_of(data, options.measured) if options.measured else None
    table = patient_table(
        predict(fit, data, device=options.device),
        level=options.level,
        seen=photographs_of(data),
        measured=measured,
        domains=data.domains,
    )
    if data.visits:
        table.insert(1, "visit", data.visits)
    said, labels = f"intervals {options.level:.0%}", fit.responses[fit.continuous :]
    if 0 < len(labels) <= MOST_TOGETHER:
        said += f"; joint cells in the order of {', '.join(labels)}"
    write_table(table, options.table, f"model {options.model.name}; {said}")
    print(f"{len(data)} patients in {options.table} (not for clinical use)", *doubts, sep="\n")
    if measured is not None:
        told = int(torch.isfinite(measured).any(1).sum())
        print(f"updated by what was measured in {told} patients")
    return 0


def model_of(options: argparse.Namespace) -> Fit:
    """Return the saved model that ``--model`` names."""
    stored_notes(options.model)  # is there one at all?
    return load_model(options.model, weights=options.weights)


def data_for(fit: Fit, options: argparse.Namespace) -> tuple[PairedEyes, list[str]]:
    """Return the patients of a table, seen at the size and by the layout of a model, and what is to
    be said of them.

    Raises
    ------
    DataError
        The table's own layout declares other responses, rules or covariates.
    """
    stored = fit.notes.get("layout")
    if options.layout is not None or stored is None:
        layout = declared_layout(options.csv, options.layout)
    else:
        layout = stored
    seen = {"size": fit.model.preprocessing.size, "mirror": (stored or layout).get("mirror", False)}
    data = load_data(table_configuration(options, {**layout, **seen}), responses=False)
    problems = list(beside_model(data, layout, {**fit.notes, "responses": fit.responses}))
    for problem in problems:
        if problem.error:
            raise DataError(f"{problem.message}.")
    return data, [problem.message for problem in problems]


def measured_of(data: PairedEyes, eyes: str) -> torch.Tensor:
    """Return the responses to condition on, ``(n, p)``: all, or those of one eye, the others as not
    observed.

    Raises
    ------
    DataError
        None of them is in the table.
    """
    y = data.y.clone()
    if eyes not in ("all", *data.domains):
        raise ParameterError(
            f"--measured {eyes}: give {' or '.join(data.domains)}, or nothing for both."
        )
    for k, response in enumerate(data.responses):
        if eyes != "all" and eye_of(response, data.domains) != eyes:
            y[:, k] = torch.nan
    if not torch.isfinite(y).any():
        raise DataError(
            f"--measured {eyes}: the table holds no such response where there is a photograph; "
            "leave the option out."
        )
    return y
