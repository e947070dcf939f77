"""The command ``cevit predict``: a saved model's word on patients, also given what was measured."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from cevit_lib.clinic.configuration import data_configuration, load_data, table_configuration
from cevit_lib.clinic.intervals import tail
from cevit_lib.clinic.known import known_patients, other_units
from cevit_lib.clinic.tables import eye_of, own_or_new, patient_table, photographs_of, write_table
from cevit_lib.copula import MOST_TOGETHER
from cevit_lib.datasets import PairedEyes
from cevit_lib.datasets.layout import differences, read_layout
from cevit_lib.errors import CevitError, DataError, ParameterError, TrainingError
from cevit_lib.training import NOT_CLINICAL, Fit, Predictions, load_model, predict


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
    tail(options.level)
    own_or_new(options.table, f"# {NOT_CLINICAL}")
    fit = model_of(options)
    data = load_data(data_for(fit, options), responses=False)
    measured = measured_of(data, options.measured) if options.measured else None
    predictions = predictions_of(fit, data, options)
    table = patient_table(
        predictions,
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
    _say(fit, data, options, measured)
    return 0


def model_of(options: argparse.Namespace) -> Fit:
    """Return the saved model that ``--model`` names."""
    return load_model(_model_folder(options.model), weights=options.weights)


def predictions_of(fit: Fit, data: PairedEyes, options: argparse.Namespace) -> Predictions:
    """Return a model's predictions for patients whose table declares what it predicts.

    Raises
    ------
    DataError
        The layout declares other responses, or other covariates.
    """
    read = tuple(fit.notes.get("covariates", ()))
    for what, wanted, there in (
        ("predicts", fit.responses, data.responses),
        ("reads the covariates", read, data.covariate_names if read else ()),
    ):
        if wanted != there:
            raise DataError(
                f"the model {what} {', '.join(wanted)}; the layout declares "
                f"{', '.join(there) or 'none'}. Use the model's own layout (leave --layout out) "
                "or another model."
            )
    with memory_in_words(options.device):
        return predict(fit, data, device=options.device)


def in_training(known: list[str]) -> str:
    """Return the sentence on patients whom the model may have seen."""
    shown = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
    return (
        f"{len(known)} of these patients have ids of patients on whom the model was fitted "
        f"({shown}): unless another clinic counts alike, its errors look smaller there than they "
        "are"
    )


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


@contextlib.contextmanager
def memory_in_words(device: str) -> Iterator[None]:
    """Turn an accelerator's lack of memory into a sentence."""
    try:
        yield
    except CevitError:  # training has words of its own, with the epoch and the batch
        raise
    except RuntimeError as error:  # torch's OutOfMemoryError is one
        if "out of memory" not in str(error).lower() and "allocate memory" not in str(error):
            raise
        said = str(error).splitlines()[0][:160]
        raise TrainingError(
            f"out of memory on {device}: {said}. In a fit make --batch-size smaller, or keep it "
            "and set --accumulation 2 or more (the same steps in smaller parts); or use smaller "
            "photographs (--size), or --device cpu."
        ) from None


def _model_folder(folder: Path) -> Path:
    """Return the folder of one model; of a folder of several ask which."""
    if (folder / "model.json").is_file():
        return folder
    inside = sorted(path.parent.name for path in folder.glob("*/model.json"))
    if inside:
        raise ParameterError(
            f"--model {folder} holds several models: name one, such as {folder / inside[0]}."
        )
    raise DataError(f"--model {folder} is no saved model; 'cevit fit --save FOLDER' writes them.")


def data_for(fit: Fit, options: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration of the data, at the size and by the layout of the model."""
    stored, size = fit.notes.get("layout"), fit.model.preprocessing.size
    if options.size not in (None, size):
        raise ParameterError(
            f"--size {options.size}: this model sees {size} pixels; leave the option out."
        )
    if options.csv is not None and options.layout is None and stored is not None:
        return table_configuration(options, {**stored, "size": size})
    configuration = data_configuration(options)
    if options.csv is None:
        configuration["window" if options.data == "synthetic" else "size"] = size
    else:
        configuration["layout"]["size"] = size
        if stored is not None:
            configuration["layout"]["mirror"] = stored.get("mirror", False)
            declared = read_layout(configuration["layout"])
            if told := differences(declared, read_layout(stored)):
                raise DataError(
                    f"{told[0]}: what was measured would be another label; use the model's rule."
                )
    return configuration


def _say(
    fit: Fit, data: PairedEyes, options: argparse.Namespace, measured: torch.Tensor | None
) -> None:
    print(f"{len(data)} patients in {options.table} (not for clinical use)")
    left = data.notes.get("flow", {}).get("patients without any photograph, left out", 0)
    if left:
        print(f"{left} further patients of the table have no photograph and no row")
    known = known_patients(data.ids, fit.notes)
    if known:
        print(in_training(known))
    measures = int(torch.isfinite(data.y if measured is None else measured).any(1).sum())
    if measured is not None:
        usual = fit.notes.get("usual", {})
        strange = other_units(measured.numpy(), data.responses[: data.continuous], usual)
        print(f"updated by what was measured in {measures} patients", *strange, sep="\n")
    elif measures and options.csv is not None:
        print(
            f"the table holds responses of {measures} patients, which were not looked at; "
            "--measured updates by them"
        )
