"""Which data a command is about and which settings identify a fit; paths never do."""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from cevit_lib.clinic.check_data import check, gathered
from cevit_lib.clinic.covariates import declared_layout
from cevit_lib.clinic.options import DEFAULTS, FULL_SIZE
from cevit_lib.copula import MOST_TOGETHER
from cevit_lib.datasets import PairedEyes, Split, SyntheticPairs, load_grape, split_by_patient
from cevit_lib.errors import DataError, ParameterError
from cevit_lib.training import streams

#: Where the data lie: no part of what identifies a fit.
PLACES = ("folder", "csv", "photographs")
#: Options of Algorithm 3 alone.
TWO_STAGES = ("preset", "copula_epochs", "copula_learning_rate")
#: What was chosen -> options that would be ignored.
IDLE = {
    "--csv": ("data_folder", "n", "window"),
    "--data grape": ("layout", "n", "window"),
    "--data synthetic": "layout data_folder images size mirror rotation colour".split(),
    "--preset paper": ("estimator", "max_iter"),
    "--algorithm one-stage": TWO_STAGES,
    "--estimator gaussian-score": ("max_iter",),
}


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
    refuse_idle(options)
    if options.csv is not None:
        layout = declared_layout(options.csv, options.layout)
        usual = DEFAULTS["table"]["size"] if options.backbone == "tiny" else FULL_SIZE
        layout["size"] = options.size or layout.get("size") or usual
        layout["mirror"] = options.mirror or layout.get("mirror", False)
        return table_configuration(options, layout)
    if options.data == "synthetic":
        return {
            "name": "synthetic",
            "n": options.n or 2000,
            "data_seed": 0,
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


def refuse_idle(options: argparse.Namespace) -> None:
    """Refuse an option that does not go with another one; it would be ignored.

    Raises
    ------
    ParameterError
        The message names both.
    """
    chosen = ["--csv" if options.csv is not None else f"--data {options.data}"]
    chosen += [
        f"--{name} {getattr(options, name)}" for name in ("preset", "algorithm", "estimator")
    ]
    for one in chosen:
        for name in IDLE.get(one, ()):
            if getattr(options, name):
                option = f"--{name.replace('_', '-')}"
                raise ParameterError(
                    f"{option} does not go with {one} and would be ignored; leave one of them out."
                )


def table_configuration(options: argparse.Namespace, layout: dict[str, Any]) -> dict[str, Any]:
    """Return what describes somebody's own table and its photographs."""
    if options.images is None:
        raise ParameterError(
            "--csv needs --images FOLDER: the network sees photographs; a table alone is no input."
        )
    return {
        "name": "table",
        "layout": layout,
        "csv": options.csv,
        "photographs": Path(options.images),
    }


def load_data(configuration: dict[str, Any], responses: bool = True) -> PairedEyes:
    """Return the data set that a configuration describes.

    ``responses=False`` is for patients who are to be predicted: their table may lack columns of
    responses.
    """
    if configuration["name"] == "table":
        return _load_table(configuration, responses)
    if configuration["name"] == "grape":
        return load_grape(
            configuration.get("folder"),
            configuration["images"],
            configuration["size"],
            mirror=configuration["mirror"],
        )
    rng = np.random.default_rng(np.random.SeedSequence(configuration["data_seed"]))
    return SyntheticPairs(configuration["n"], rng, window=configuration["window"])


def configuration_of(options: argparse.Namespace, fold: int) -> dict[str, Any]:
    """Return all settings of one fit, defaults filled in: what identifies its record. Fold 0 is all
    patients.

    Raises
    ------
    ParameterError
        Options do not go together.
    """
    data = {key: value for key, value in data_configuration(options).items() if key not in PLACES}
    chosen = {
        key: value if getattr(options, key) is None else getattr(options, key)
        for key, value in DEFAULTS[data["name"]].items()
    }
    asked = {name: most for name in ("rotation", "colour") if (most := getattr(options, name))}
    if options.compile and (asked or data.get("layout", {}).get("covariates")):
        raise ParameterError("--compile does not go with --rotation, --colour or covariates.")
    given, rank, count = options.weights is not None, options.lora_rank, options.max_iter
    pretrained = options.pretrained or ":" in options.backbone  # a folder or a hub's name has some
    if pretrained and (given or options.backbone == "tiny"):
        seen = "--weights" if given else "--backbone tiny, which has none"
        raise ParameterError(f"--pretrained does not go with {seen}; leave one of them out.")
    usual_rank = 8 if pretrained or given else 0
    encoder = {
        "backbone": options.backbone,
        "pretrained": pretrained,
        "adapters": options.adapters,
        "lora_rank": usual_rank if rank is None else rank,
        "weights": file_hash(options.weights) if given else None,
        **{key: value for key in ("mean", "std") if (value := getattr(options, key)) is not None},
    }
    further = {
        "accumulation": options.accumulation,
        "compiled": options.compile or None,
        "deterministic": options.deterministic or None,
    }  # named only where asked for: they are no part of what identifies a plain fit
    further = {key: value for key, value in further.items() if value is not None}
    stages, algorithm = {"warm_up": "", "copula": "copula_"}, algorithm_of(options)
    if algorithm == "one-stage":
        stages = {"one_stage": ""}
        if options.epochs is None:  # as many as both stages of the other algorithm have
            chosen["epochs"] += chosen["copula_epochs"]
    recipes = {
        stage: {name: chosen[prefix + name] for name in ("epochs", "learning_rate")} | further
        for stage, prefix in stages.items()
    }
    return {
        "data": data,
        "encoder": encoder,
        "recipes": recipes,
        "batch_size": chosen["batch_size"],
        "estimator": options.estimator or usual_estimator(data, algorithm),
        "estimate_on": chosen["estimate_on"],
        "preset": options.preset,
        "folds": options.folds,
        "fold": fold,
        **({} if algorithm == "feasible" else {"algorithm": algorithm}),
        **({"estimator_settings": {"max_iter": count}} if count else {}),
        **({"augmentation": asked} if asked else {}),
    }


def algorithm_of(options: argparse.Namespace) -> str:
    """Return the algorithm: the one that is named, Algorithm 3 where an option of its own is given,
    and else one stage, as the rule of ``studies.verdicts.default`` decided.
    """
    own = any(getattr(options, name) for name in TWO_STAGES)
    return options.algorithm or ("feasible" if own else "one-stage")


def labels_of(data: dict[str, Any]) -> int:
    """Return how many labels a patient has."""
    layout = data.get("layout", {"binary": ("label",)})
    whole = layout.get("patient_level", ())
    return sum(1 if name in whole else 2 for name in layout.get("binary", ()))


def usual_estimator(data: dict[str, Any], algorithm: str = "feasible") -> str:
    """Return the estimator that is taken where none is named."""
    if labels_of(data) > MOST_TOGETHER:
        return "pairwise"
    return "exact-em" if algorithm == "feasible" else "maximum-likelihood"


def study_of(configuration: dict[str, Any]) -> str:
    """Return the study to which the records of a data set belong."""
    return f"fit-{configuration['data']['name']}"


def facts_of(data: PairedEyes, configuration: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return name, hash, size and flow of the data, and the hash of the fold's test patients."""
    test = [data.ids[row] for row in split_of(data, configuration, seed).test]
    return {
        "name": data.name,
        "hash": data.hash,
        "patients": len(data),
        "flow": data.notes.get("flow"),
        "split": hashlib.sha256("\0".join(test).encode()).hexdigest()[:16],
    }


def split_of(data: PairedEyes, configuration: dict[str, Any], seed: int) -> Split:
    """Return the fold's division by patient; fold 0 trains on all and tests on none."""
    fold, folds = configuration["fold"], configuration["folds"]
    if fold == 0:
        return Split(np.arange(len(data)), np.arange(0))
    return split_by_patient(data, folds, streams(seed).split)[fold - 1]


def file_hash(path: str | Path) -> str:
    """Return what stands for a file of weights in a configuration; another machine has no path."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def _load_table(configuration: dict[str, Any], responses: bool) -> PairedEyes:
    """Load one's own table; what ``cevit check-data`` calls an error stops here, before a fit."""
    table = configuration.get("csv") or os.environ.get("CEVIT_TABLE")
    folder = configuration.get("photographs") or os.environ.get("CEVIT_IMAGES")
    if not table or not folder:
        raise ParameterError(
            "this fit stands on somebody's own table: name it by CEVIT_TABLE and its photographs "
            "by CEVIT_IMAGES."
        )
    table, layout = Path(table), configuration["layout"]
    report = check(table, Path(folder), layout, responses)
    if report.errors:
        kinds = [line.strip() for line in gathered(report.errors, 1)]
        more = f"; {len(report.errors)} errors in all" if len(kinds) > 3 else ""
        done = "fitted" if responses else "predicted"
        raise DataError(
            f"{table.name}, {'; '.join(kinds[:3])}{more}. Nothing was {done}; 'cevit check-data' "
            "lists everything."
        )
    print(f"{table.name}:", "\n".join(report.told()), flush=True)
    return report.data
