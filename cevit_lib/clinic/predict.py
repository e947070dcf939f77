"""The command ``cevit predict``: a saved model's word on patients, before and after some of them were measured."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cevit_lib.clinic.configuration import NO_PHOTOGRAPHS, data_configuration, load_data
from cevit_lib.clinic.tables import eye_of, own_or_new, patient_table, photographs_of, write_table
from cevit_lib.errors import CevitError, DataError, ParameterError, TrainingError

if TYPE_CHECKING:
    import torch

    from cevit_lib.datasets import PairedEyes
    from cevit_lib.training import Fit


def run_predict(options: argparse.Namespace) -> int:
    """Write the predictions of a saved model for every patient of a data set.

    Raises
    ------
    DataError
        No saved model in the folder, a table that does not fit it, or nothing of an eye was measured.
    ParameterError
        An option contradicts the model.
    """
    from cevit_lib.clinic.intervals import tail
    from cevit_lib.training import NOT_CLINICAL, load_model, predict

    tail(options.level)
    own_or_new(options.table, f"# {NOT_CLINICAL}")
    fit = load_model(_model_folder(options.model), weights=options.weights)
    data = load_data(_data_for(fit, options), responses=False)
    if data.responses != fit.responses:
        raise DataError(
            f"the model predicts {', '.join(fit.responses)}; the layout declares {', '.join(data.responses)}. Use the "
            "model's own layout (leave --layout out) or another model."
        )
    with memory_in_words(options.device):
        predictions = predict(fit, data, device=options.device)
    measured = measured_of(data, options.measured) if options.measured else None
    table = patient_table(
        predictions, level=options.level, seen=photographs_of(data), measured=measured
    )
    source = (
        f"model {options.model.name}; intervals {options.level:.0%}; joint cells in the order of "
    )
    write_table(table, options.table, source + ", ".join(fit.responses[fit.continuous :]))
    _say(fit, data, options, measured)
    return 0


def measured_of(data: PairedEyes, eyes: str) -> torch.Tensor:
    """Return the responses to condition on, ``(n, p)``: all, or those of one eye, the others as not observed.

    Raises
    ------
    DataError
        None of them is in the table.
    """
    import torch

    y = data.y.clone()
    for k, response in enumerate(data.responses):
        if eyes != "all" and eye_of(response) != eyes:
            y[:, k] = torch.nan
    if not bool(torch.isfinite(y).any()):
        raise DataError(
            f"--measured {eyes}: the table holds no such response of an eye with a photograph; leave the option out."
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
    else:
        return
    raise TrainingError(
        f"out of memory on {device}: {said}. In a fit make --batch-size smaller, or keep it and set --accumulation 2 "
        "or more (the same steps in smaller parts); or use smaller photographs (--size), or --device cpu."
    )


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


def _data_for(fit: Fit, options: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration of the data, at the size and by the layout of the model."""
    stored, size = fit.notes.get("layout"), fit.model.preprocessing.size
    if options.size not in (None, size):
        raise ParameterError(
            f"--size {options.size}: this model sees {size} pixels; leave the option out."
        )
    if options.csv is None:
        configuration = data_configuration(options)
        configuration["window" if options.data == "synthetic" else "size"] = size
        return configuration
    if options.layout is None and stored is not None:
        if options.images is None:
            raise ParameterError(NO_PHOTOGRAPHS)
        configuration = {
            "name": "table",
            "layout": dict(stored),
            "csv": options.csv,
            "photographs": Path(options.images),
            "workers": options.workers,
        }
    else:
        configuration = data_configuration(options)
        mirror = (stored or {}).get("mirror", configuration["layout"]["mirror"])
        configuration["layout"] = {**configuration["layout"], "mirror": mirror}
    configuration["layout"]["size"] = size
    return json.loads(json.dumps(configuration, default=str))


def _say(fit: Fit, data: PairedEyes, options: argparse.Namespace, measured: Any) -> None:
    import torch

    print(f"{len(data)} patients in {options.table} (not for clinical use)")
    left = data.notes.get("flow", {}).get("patients without any photograph, left out", 0)
    if left:
        print(f"{left} further patients of the table have no photograph and no row")
    if fit.notes.get("data_hash") == data.hash:
        print(
            "these are the patients on whom the model was fitted: its errors look smaller here than they are"
        )
    seen = int(torch.isfinite(data.y).any(1).sum())
    if measured is None and seen and options.csv is not None:
        print(
            f"the table holds responses of {seen} patients, which were not looked at; --measured updates by them"
        )
    elif measured is not None:
        print(
            f"updated by what was measured in {int(torch.isfinite(measured).any(1).sum())} patients"
        )
