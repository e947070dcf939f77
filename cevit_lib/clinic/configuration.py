"""Which data a command is about and which settings identify a fit; paths never do."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cevit_lib.clinic.options import DEFAULTS, FULL_SIZE
from cevit_lib.errors import DataError, ParameterError

if TYPE_CHECKING:
    from cevit_lib.datasets import PairedEyes

PLACES = (
    "folder",
    "csv",
    "photographs",
    "workers",
)  # where the data lie: no part of what identifies a fit

NO_PHOTOGRAPHS = (
    "--csv needs --images FOLDER: the network sees photographs; a table alone is no input."
)


def data_configuration(options: argparse.Namespace) -> dict[str, Any]:
    """Return what describes the data of a command, the places where they lie included.

    Raises
    ------
    ParameterError
        Neither or both of ``--data`` and ``--csv`` are given, or an option does not go with them.
    DataError
        The layout cannot be read, or there is none and the table's columns are not understood.
    """
    if (options.data is None) == (options.csv is None):
        raise ParameterError(
            "name the data: --data grape or synthetic, or --csv TABLE --images FOLDER of your own."
        )
    if options.csv is not None:
        return _table_configuration(options)
    if options.data == "synthetic":
        return {
            "name": "synthetic",
            "n": options.n,
            "process": options.process,
            "data_seed": options.data_seed,
            "window": options.window or DEFAULTS["synthetic"]["window"],
        }
    images = options.images or "roi"
    if images not in ("roi", "cfp"):
        raise ParameterError(f"--images {images}: of GRAPE there are roi and cfp.")
    size = options.size if options.size is not None else DEFAULTS["grape"]["size"]
    return {
        "name": "grape",
        "images": images,
        "size": size,
        "mirror": options.mirror,
        "folder": options.data_folder,
    }


def declared_layout(table: Path, layout: Path | None) -> dict[str, Any]:
    """Return the layout as plain values, without what is default: from the file, or recognised in the table."""
    import yaml

    from cevit_lib.datasets.cells import read_cells
    from cevit_lib.datasets.layout import Layout, guess_layout, read_layout

    found = read_layout(layout) if layout is not None else guess_layout(read_cells(table).header)
    raw = yaml.safe_load(Path(layout).read_text(encoding="utf-8-sig")) if layout is not None else {}
    plain = Layout(patient="")
    kept = {
        key: value
        for key, value in vars(found).items()
        if value != getattr(plain, key) or key in raw
    }
    return {key: list(value) if isinstance(value, tuple) else value for key, value in kept.items()}


def load_data(configuration: dict[str, Any], responses: bool = True) -> PairedEyes:
    """Return the data set that a configuration describes.

    ``responses=False`` is for patients who are to be predicted: their table may lack columns of responses.
    """
    import numpy as np

    from cevit_lib.datasets import SyntheticPairs, load_grape

    if configuration["name"] == "synthetic":
        rng = np.random.default_rng(np.random.SeedSequence(configuration["data_seed"]))
        return SyntheticPairs(
            configuration["n"], rng, configuration["process"], window=configuration["window"]
        )
    if configuration["name"] == "table":
        return _load_table(configuration, responses)
    return load_grape(
        configuration.get("folder"),
        configuration["images"],
        configuration["size"],
        mirror=configuration["mirror"],
    )


def configuration_of(options: argparse.Namespace, fold: int) -> dict[str, Any]:
    """Return all settings of one fit, defaults filled in: what identifies its record. Fold 0 is all patients.

    Raises
    ------
    ParameterError
        ``--max-iter`` is not positive, or the estimator or the preset leaves nothing to it.
    """
    data = {key: value for key, value in data_configuration(options).items() if key not in PLACES}
    chosen = {
        key: getattr(options, key) if getattr(options, key) is not None else value
        for key, value in DEFAULTS[data["name"]].items()
    }
    from_file = options.weights is not None
    rank = (
        options.lora_rank
        if options.lora_rank is not None
        else 8
        if options.pretrained or from_file
        else 0
    )
    encoder = {
        "backbone": options.backbone,
        "pretrained": options.pretrained,
        "adapters": options.adapters,
        "lora_rank": rank,
        "weights": file_hash(options.weights) if from_file else None,
    }
    recipes = {
        "warm_up": {"epochs": chosen["epochs"], "learning_rate": chosen["learning_rate"]},
        "copula": {
            "epochs": chosen["copula_epochs"],
            "learning_rate": chosen["copula_learning_rate"],
        },
    }
    further = {
        "patience": options.patience,
        "accumulation": options.accumulation,
        "compiled": options.compile or None,
        "deterministic": options.deterministic or None,
    }
    for (
        stage
    ) in recipes:  # named only where asked for: they are not part of what identifies a plain fit
        recipes[stage] |= {key: value for key, value in further.items() if value is not None}
    return {
        "data": data,
        "encoder": encoder,
        "recipes": recipes,
        "batch_size": chosen["batch_size"],
        "estimator": options.estimator,
        "estimate_on": chosen["estimate_on"],
        "preset": options.preset,
        "folds": options.folds,
        "fold": fold,
        **_estimator_settings(options),
    }


def _estimator_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the estimator's settings where any was asked for: they are not part of what identifies a plain fit."""
    if options.max_iter is None:
        return {}
    if options.max_iter < 1:
        raise ParameterError(
            f"--max-iter {options.max_iter}: the estimator needs at least one iteration."
        )
    if options.preset is not None:
        raise ParameterError(
            f"--max-iter does not go with --preset {options.preset}, which has its own estimator."
        )
    if options.estimator == "gaussian-score":
        raise ParameterError(
            "--max-iter does not go with --estimator gaussian-score, which does not iterate."
        )
    return {"estimator_settings": {"max_iter": options.max_iter}}


def study_of(configuration: dict[str, Any]) -> str:
    """Return the study to which the records of a data set belong."""
    return f"fit-{configuration['data']['name']}"


def facts_of(data: PairedEyes, configuration: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return name, hash, size and flow of the data, and the hash of the fold's test patients."""
    import hashlib

    test = data.subset(split_of(data, configuration, seed).test)
    split = hashlib.sha256("\0".join(test.ids).encode()).hexdigest()[:16]
    return {
        "name": data.name,
        "hash": data.hash,
        "patients": len(data),
        "flow": data.notes.get("flow"),
        "split": split,
    }


def split_of(data: PairedEyes, configuration: dict[str, Any], seed: int) -> Any:
    """Return the fold's division by patient; fold 0 trains on all and tests on none."""
    import numpy as np

    from cevit_lib.datasets import Split, split_by_patient
    from cevit_lib.training import streams

    if configuration["fold"] == 0:
        return Split(np.arange(len(data)), np.arange(0))
    return split_by_patient(data, configuration["folds"], streams(seed).split)[
        configuration["fold"] - 1
    ]


def file_hash(path: str | Path) -> str:
    """Return what stands for a file of weights in a configuration: no path, which another machine does not have."""
    import hashlib

    if not Path(path).is_file():
        raise ParameterError(f"--weights {path} is no file.")
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def _table_configuration(options: argparse.Namespace) -> dict[str, Any]:
    if options.images is None:
        raise ParameterError(NO_PHOTOGRAPHS)
    layout = declared_layout(options.csv, options.layout)
    tiny = getattr(options, "backbone", "tiny") == "tiny"
    size = options.size or layout.get("size") or (DEFAULTS["table"]["size"] if tiny else FULL_SIZE)
    layout = {**layout, "size": size, "mirror": options.mirror or layout.get("mirror", False)}
    return {
        "name": "table",
        "layout": layout,
        "csv": options.csv,
        "photographs": Path(options.images),
        "workers": options.workers,
    }


def _load_table(configuration: dict[str, Any], responses: bool) -> PairedEyes:
    """Load one's own table; what ``cevit check-data`` would call an error stops here, before anything is fitted."""
    from cevit_lib.clinic.check_data import check
    from cevit_lib.datasets import load_paired_table

    table = configuration.get("csv") or os.environ.get("CEVIT_TABLE")
    folder = configuration.get("photographs") or os.environ.get("CEVIT_IMAGES")
    if not table or not folder:
        raise ParameterError(
            "this fit stands on somebody's own table: name it by CEVIT_TABLE and its photographs by CEVIT_IMAGES."
        )
    table, folder, layout = Path(table), Path(folder), configuration["layout"]
    errors = check(table, folder, layout, workers=os.cpu_count() or 1, responses=responses).errors
    if errors:
        more = f" ({len(errors) - 1} more)" if len(errors) > 1 else ""
        done = "fitted" if responses else "predicted"
        raise DataError(
            f"{table.name}, {errors[0]}{more}. Nothing was {done}; 'cevit check-data' lists everything."
        )
    data = load_paired_table(table, folder, layout, responses=responses)
    return replace(data, images=replace(data.images, workers=configuration.get("workers") or 1))
