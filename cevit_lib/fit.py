"""The commands ``cevit fit`` and ``cevit predict``: from a data set to records and a table of predictions per patient.

One fit is one fold: a warm-up with its arms, one record. A fit whose record exists is skipped, so that a grid that was
interrupted goes on where it stopped. Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cevit_lib.errors import CevitError, ParameterError

if TYPE_CHECKING:
    from cevit_lib.datasets import PairedEyes
    from cevit_lib.training import FeasibleFit, Fit

TINY = {"embed_dim": 64, "depth": 3, "num_heads": 2}  # a Vision Transformer for a laptop's processor
ESTIMATORS = {
    "exact-em": "ExactEM",
    "fast-mcem": "FastMCEM",
    "monte-carlo-em": "MonteCarloEM",
    "maximum-likelihood": "MaximumLikelihood",
    "gaussian-score": "GaussianScoreCorrelation",
}
ARMS = ("warm-up", "empirical, same epochs", "copula")
DEFAULTS: dict[str, dict[str, Any]] = {
    "grape": {"size": 48, "epochs": 40, "copula_epochs": 10, "learning_rate": 1e-3, "copula_learning_rate": 1e-4,
              "batch_size": 24, "estimate_on": "cross-fitted"},
    "synthetic": {"window": 12, "epochs": 15, "copula_epochs": 6, "learning_rate": 2e-3, "copula_learning_rate": 3e-4,
                  "batch_size": 64, "estimate_on": "held-out"},
}  # fmt: skip


def add_fit_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cevit fit``."""
    _add_data_arguments(parser, required=False)
    add = parser.add_argument
    add("--study", help="instead of --data: make one fit of a study's grid, such as simulation")
    add("--number", type=int, help="which fit of --study, counted from 0")
    add("--list", action="store_true", help="print the fits of --study as JSON and make none")
    add("--backbone", default="tiny", help="'tiny' (a small ViT trained in full, for a CPU) or any timm ViT name")
    add("--pretrained", action="store_true", help="load timm's weights of that name (needs internet or timm's cache)")
    add("--weights", type=Path, help="file with the backbone's weights, for machines without internet")
    add("--adapters", action=argparse.BooleanOptionalAction, default=True, help="residual adapters, one set per eye")
    add("--lora-rank", type=int, help="rank of LoRA, 0 trains in full (default: 0 without weights, else 8)")
    add("--epochs", type=int, help="epochs of the warm-up")
    add("--copula-epochs", type=int, help="epochs under the copula loss (and of the control)")
    add("--learning-rate", type=float, help="of the warm-up")
    add("--copula-learning-rate", type=float, help="of the copula stage")
    add("--batch-size", type=int, help="patients per step")
    add("--estimator", choices=sorted(ESTIMATORS), default="exact-em", help="of the copula parameters")
    add("--estimate-on", choices=("held-out", "train", "cross-fitted"), help="whose outputs it sees")
    add("--preset", choices=("paper",), help="the paper's recipes, fMCEM on training residuals, raw units")
    add("--folds", type=int, default=5, help="of the cross-validation by patient")
    add("--fold", type=int, action="append", help="only this fold, counted from 1; may be repeated (default: all)")
    add("--seed", type=int, default=0, help="root seed of split, weights and order")
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...; of several, by commas, one that is free")
    add("--share", type=int, default=1, help="fits that may use one of several devices at the same time")
    add("--checkpoint", type=Path, help="folder for the state of unfinished fits; the same command goes on from there")
    add("--patience", type=int, help="stop a stage when its validation loss has not fallen for so many epochs")
    add("--accumulation", type=int, help="parts in which a batch is computed, for less memory")
    add("--compile", action="store_true", help="compile the network (worth its minute on an accelerator)")
    add("--deterministic", action="store_true", help="bit-equal reruns on one device, at a cost")
    add("--scale", choices=("paper", "smoke"), default="paper", help="a smoke record is never published")
    add("--results", type=Path, help="folder of the records (default: results/, for smoke the scratch folder)")
    add("--table", type=Path, help="CSV file for the predictions, one row a patient (default: beside the records)")
    add("--save", type=Path, help="folder for the trained models, one per fold")


def add_predict_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cevit predict``."""
    parser.add_argument("--model", type=Path, required=True, help="folder that 'cevit fit --save' wrote")
    _add_data_arguments(parser)
    parser.add_argument("--weights", type=Path, help="the backbone's weights, if the model was built with a file")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ...")
    parser.add_argument("--table", type=Path, required=True, help="CSV file for the predictions")


def run_fit(options: argparse.Namespace) -> int:
    """Fit every requested fold; return 0 when all of them have a record, 1 when a fit failed."""
    from cevit_lib.studies.workers import claim

    if options.study:
        return _run_number(options)
    if options.data is None:
        raise ParameterError("name what to fit: --data grape or synthetic, or --study with --number (see --list).")
    with claim(options.device, options.share) as options.device:
        return _run_folds(options)


def _run_number(options: argparse.Namespace) -> int:
    """Make one fit of a study's grid: a job of an engine."""
    import json

    from cevit_lib.studies.workers import claim, listing, run_number

    if options.list:
        print(json.dumps(listing(options.study, options.scale, options.results)))
        return 0
    if options.number is None or options.checkpoint:
        raise ParameterError("--study needs --number (or --list), and takes no --checkpoint: its fits last a minute.")
    with claim(options.device, options.share) as device:
        record = run_number(options.study, options.number, options.scale, device, options.results)
    print(f"{options.study} {options.number}: record {record['id']}")
    return 0


def _run_folds(options: argparse.Namespace) -> int:
    from cevit_lib.records import find_record, write_record
    from cevit_lib.training import processes

    crew = processes()  # of several that fit together all train, and the first one writes
    data = load_data(_data_configuration(options))
    folds = options.fold or list(range(1, options.folds + 1))
    wrong = [fold for fold in folds if not 1 <= fold <= options.folds]
    if wrong:
        raise ParameterError(f"--fold {wrong[0]}: there are folds 1 to {options.folds}.")
    records, failures = [], []
    for fold in folds:
        configuration = configuration_of(options, fold)
        study, facts = study_of(configuration), facts_of(data, configuration, options.seed)
        record = crew.agree(find_record(study, configuration, [options.seed], options.scale, facts, options.results))
        checkpoint = _checkpoint(options, study, configuration, facts)
        if record is not None:
            print(f"fold {fold} of {options.folds}: record {record['id']} exists, skipped", flush=True)
        else:
            try:
                record, fitted = fit_fold(
                    configuration, options.seed, data, options.scale, options.device, options.weights, checkpoint
                )
            except CevitError as error:
                failures.append(fold)
                print(f"fold {fold} of {options.folds} failed: {error}", file=sys.stderr, flush=True)
                continue
            if crew.main:
                write_record(record, options.results)
                _save(fitted, options.save, fold)
                print(f"fold {fold} of {options.folds}: {_one_line(record)}", flush=True)
            if crew.main and checkpoint is not None:
                checkpoint.remove()
        records.append(record)
    if crew.main:
        _report(records, data, options, failures)
    return 1 if failures else 0


def run_predict(options: argparse.Namespace) -> int:
    """Write the predictions of a saved model for every patient of a data set."""
    from cevit_lib.training import load_model, predict

    fit = load_model(options.model, weights=options.weights)
    configuration = _data_configuration(options)
    configuration["window" if options.data == "synthetic" else "size"] = fit.model.preprocessing.size
    data = load_data(configuration)
    write_table(predict(fit, data, device=options.device).table(), options.table, f"model {options.model.name}")
    print(f"{len(data)} patients in {options.table} (not for clinical use)")
    return 0


def load_data(configuration: dict[str, Any]) -> PairedEyes:
    """Return the data set that a configuration describes."""
    import numpy as np

    from cevit_lib.datasets import SyntheticPairs, load_grape

    if configuration["name"] == "synthetic":
        rng = np.random.default_rng(np.random.SeedSequence(configuration["data_seed"]))
        return SyntheticPairs(configuration["n"], rng, configuration["process"], window=configuration["window"])
    return load_grape(
        configuration.get("folder"), configuration["images"], configuration["size"], mirror=configuration["mirror"]
    )


def configuration_of(options: argparse.Namespace, fold: int) -> dict[str, Any]:
    """Return all settings of one fit, defaults filled in: what identifies its record."""
    chosen = {key: getattr(options, key) if getattr(options, key) is not None else value
              for key, value in DEFAULTS[options.data].items()}  # fmt: skip
    data = {key: value for key, value in _data_configuration(options).items() if key != "folder"}
    from_file = options.weights is not None
    rank = options.lora_rank if options.lora_rank is not None else 8 if options.pretrained or from_file else 0
    encoder = {"backbone": options.backbone, "pretrained": options.pretrained, "adapters": options.adapters,
               "lora_rank": rank, "weights": _file_hash(options.weights) if from_file else None}  # fmt: skip
    recipes = {
        "warm_up": {"epochs": chosen["epochs"], "learning_rate": chosen["learning_rate"]},
        "copula": {"epochs": chosen["copula_epochs"], "learning_rate": chosen["copula_learning_rate"]},
    }
    further = {"patience": options.patience, "accumulation": options.accumulation, "compiled": options.compile or None,
               "deterministic": options.deterministic or None}  # fmt: skip
    for stage in recipes:  # named only where asked for: they are not part of what identifies a plain fit
        recipes[stage] |= {key: value for key, value in further.items() if value is not None}
    return {
        "data": data, "encoder": encoder, "recipes": recipes, "batch_size": chosen["batch_size"],
        "estimator": options.estimator, "estimate_on": chosen["estimate_on"], "preset": options.preset,
        "folds": options.folds, "fold": fold,
    }  # fmt: skip


def study_of(configuration: dict[str, Any]) -> str:
    """Return the study to which the records of a data set belong."""
    return f"fit-{configuration['data']['name']}"


def facts_of(data: PairedEyes, configuration: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return name, hash, size and flow of the data, and the hash of the fold's test patients."""
    import hashlib

    test = data.subset(_split(data, configuration, seed).test)
    split = hashlib.sha256("\0".join(test.ids).encode()).hexdigest()[:16]
    return {"name": data.name, "hash": data.hash, "patients": len(data), "flow": data.notes.get("flow"), "split": split}


def fit_fold(
    configuration: dict[str, Any],
    seed: int,
    data: PairedEyes,
    scale: str = "paper",
    device: str = "auto",
    weights: str | Path | None = None,
    checkpoint: Any = None,
) -> tuple[dict[str, Any], FeasibleFit]:
    """Fit one fold with all its arms; return its record (not written) and the fit itself.

    ``weights`` names the file whose hash the configuration holds, where it holds one.
    """
    from cevit_lib.metrics import evaluate
    from cevit_lib.records import new_record, rounded
    from cevit_lib.training import predict, streams

    start = time.perf_counter()
    split, randomness = _split(data, configuration, seed), streams(seed, configuration["fold"])
    training, test = data.subset(split.train), data.subset(split.test)
    model = build_model(configuration, data, randomness.weights, weights)
    fitted = _fit(model, training, configuration, randomness.order, device, checkpoint)
    control = fitted.arm(None, ARMS[1], device=device, checkpoint=checkpoint)
    arms = dict(zip(ARMS, (fitted.warm_up, control, fitted.copula), strict=True))
    predictions = {name: predict(arm, test, parameters=fitted.parameters, device=device) for name, arm in arms.items()}
    metrics = {
        name: evaluate(p.outputs, test.y, data.responses, data.continuous, p.classes() if name == "copula" else None)
        for name, p in predictions.items()
    }
    record = new_record(
        study_of(configuration), configuration, [seed], {name: m.to_dict() for name, m in metrics.items()},
        scale=scale,
        parameters={**fitted.parameters.to_dict(), **fitted.copula.standardisation.to_dict()},
        trace=[rounded(entry) for entry in (*fitted.copula.trace, *control.trace[len(fitted.warm_up.trace) :])],
        predictions={"id": list(test.ids), "y": rounded(test.y.tolist()),
                     **{name: rounded(p.outputs.tolist()) for name, p in predictions.items()}},
        data=facts_of(data, configuration, seed), seconds=time.perf_counter() - start, dtype="float32",
        status="done" if fitted.copula.notes["converged"] else "not converged",
        notes=_remarks(fitted, len(training), len(test)),
    )  # fmt: skip
    return record, fitted


def refit(record: dict[str, Any]) -> dict[str, Any]:
    """Fit the fold of a record again from its configuration and seed, for ``cevit verify``.

    A record made with a file of weights needs that file, named by ``CEVIT_WEIGHTS``.
    """
    configuration = record["configuration"]
    data = load_data({**configuration["data"], "folder": None})
    weights = os.environ.get("CEVIT_WEIGHTS")
    return fit_fold(configuration, record["seeds"][0], data, record["scale"], weights=weights)[0]


def build_model(configuration: dict[str, Any], data: PairedEyes, rng: Any, weights: str | Path | None = None) -> Any:
    """Return a fresh encoder for the images of ``data``.

    Raises
    ------
    ParameterError
        The configuration was made with another file of weights, or with one and none is given.
    """
    from cevit_lib.encoder import BiChannelViT

    encoder = dict(configuration["encoder"])
    if encoder["weights"] != (_file_hash(weights) if weights and encoder["weights"] else None):
        raise ParameterError(
            f"this fit stands on the weights file with sha256 {encoder['weights']}…; name it by --weights or "
            "CEVIT_WEIGHTS."
        )
    encoder["weights"] = weights if encoder["weights"] else None
    kwargs: dict[str, Any] = {}
    if encoder["backbone"] == "tiny":
        encoder["backbone"], kwargs = "vit_tiny_patch16_224", dict(TINY)
        kwargs["patch_size"] = max(3, data.images.shape[-1] // 6)  # 36 patches an eye, 16 in the synthetic window
    kwargs |= {"img_size": data.images.shape[-1], "in_chans": data.images.shape[2]}
    return BiChannelViT(**encoder, domains=len(data.domains), rng=rng, normalise=data.name != "synthetic", **kwargs)


def prediction_table(records: list[dict[str, Any]], data: PairedEyes, arm: str = "copula") -> Any:
    """Return one row a patient from the records of several folds; every patient was predicted by a fit without him."""
    import pandas as pd
    import torch

    from cevit_lib.copula import CopulaParameters
    from cevit_lib.training import Predictions

    tables = []
    for record in records:
        stored, outputs = record["predictions"], torch.tensor(record["predictions"][arm], dtype=torch.float64)
        parameters = CopulaParameters(record["parameters"]["correlation"], record["parameters"]["scale"])
        table = Predictions(tuple(stored["id"]), data.responses, outputs, parameters).table()
        table.insert(1, "fold", record["configuration"]["fold"])
        tables.append(table)
    whole = pd.concat(tables, ignore_index=True)
    place = {name: number for number, name in enumerate(data.ids)}
    return whole.sort_values("id", key=lambda ids: ids.map(place), ignore_index=True)


def write_table(table: Any, path: Path, source: str) -> None:
    """Write a table of predictions as CSV, whole or not at all; its first line says that it is not for clinical use."""
    from cevit_lib.records.store import write_whole
    from cevit_lib.training import NOT_CLINICAL

    text = f"# {NOT_CLINICAL}; {source}\n" + table.to_csv(index=False, float_format="%.5g", lineterminator="\n")
    write_whole(Path(path), text.encode())


def _add_data_arguments(parser: argparse.ArgumentParser, required: bool = True) -> None:
    add = parser.add_argument
    add("--data", choices=("grape", "synthetic"), required=required, help="data set")
    add("--data-folder", type=Path, help="folder of the data set (default: CEVIT_DATA/grape)")
    add("--images", choices=("roi", "cfp"), default="roi", help="GRAPE: optic-nerve-head crops or whole photographs")
    add("--size", type=int, help="height and width of photographs in pixels")
    add("--mirror", action="store_true", help="flip left eyes onto right ones")
    add("--n", type=int, default=2000, help="synthetic: number of patients")
    add("--window", type=int, help="synthetic: pixels kept of each side, 9 to 72 (the paper: 72; default 12)")
    add("--process", choices=("text", "code"), default="text", help="synthetic: the paper's text or its earlier code")
    add("--data-seed", type=int, default=0, help="synthetic: seed of the data")


def _data_configuration(options: argparse.Namespace) -> dict[str, Any]:
    if options.data == "synthetic":
        return {"name": "synthetic", "n": options.n, "process": options.process, "data_seed": options.data_seed,
                "window": options.window or DEFAULTS["synthetic"]["window"]}  # fmt: skip
    size = options.size if options.size is not None else DEFAULTS["grape"]["size"]
    return {"name": "grape", "images": options.images, "size": size, "mirror": options.mirror,
            "folder": options.data_folder}  # fmt: skip


def _split(data: PairedEyes, configuration: dict[str, Any], seed: int) -> Any:
    from cevit_lib.datasets import split_by_patient
    from cevit_lib.training import streams

    return split_by_patient(data, configuration["folds"], streams(seed).split)[configuration["fold"] - 1]


def _fit(
    model: Any, training: PairedEyes, configuration: dict[str, Any], rng: Any, device: str, checkpoint: Any
) -> FeasibleFit:
    from cevit_lib import estimation
    from cevit_lib.training import Recipe, fit_feasible_cevit

    name = ESTIMATORS[configuration["estimator"]]
    warm_up, copula = (Recipe(batch_size=configuration["batch_size"], **configuration["recipes"][stage])
                       for stage in ("warm_up", "copula"))  # fmt: skip
    return fit_feasible_cevit(
        model, training, estimator=getattr(estimation, name)(), estimate_on=configuration["estimate_on"],
        warm_up=warm_up, copula=copula, preset=configuration["preset"], rng=rng, device=device,
        checkpoint=checkpoint,
    )  # fmt: skip


def _file_hash(path: str | Path) -> str:
    """Return what stands for a file of weights in a configuration: no path, which another machine does not have."""
    import hashlib

    if not Path(path).is_file():
        raise ParameterError(f"--weights {path} is no file.")
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def _checkpoint(options: argparse.Namespace, study: str, configuration: dict, facts: dict) -> Any:
    """Return the folder for a fit's state, named by the record that it will end in."""
    from cevit_lib.records import record_id
    from cevit_lib.training import Checkpoint

    if options.checkpoint is None:
        return None
    identity = record_id(study, configuration, [options.seed], options.scale, facts)
    return Checkpoint(options.checkpoint / f"{study}-{identity}")


def _save(fitted: FeasibleFit, folder: Path | None, fold: int) -> None:
    from cevit_lib.training import save_model

    if folder is not None:
        save_model(fitted.copula, folder / f"fold-{fold}")


def _remarks(fitted: FeasibleFit, training: int, test: int) -> str:
    fit: Fit = fitted.copula
    origin = fit.model.origin
    weights = (
        "random, trained here in full" if origin == "random" and not fit.model.configuration["lora_rank"] else origin
    )
    shrunk = f"; correlation shrunk by {fit.notes['shrunk']:.3g}" if fit.notes["shrunk"] else ""
    return f"backbone weights: {weights}; {training} patients to train, {test} to test{shrunk}"


def _one_line(record: dict[str, Any]) -> str:
    values = record["metrics"]["copula"]["values"]
    shown = [
        f"{name} {value:.3g}" for name, value in values.items() if name.startswith(("MAE", "AUC")) and value is not None
    ]
    return f"record {record['id']}, {record['times']['total_seconds']:.0f} s, {', '.join(shown)}"


def _report(records: list[dict], data: PairedEyes, options: argparse.Namespace, failures: list[int]) -> None:
    if not records:
        return
    from cevit_lib.records.store import record_path

    first = records[0]
    beside = record_path(first["study"], first["id"], options.scale, options.results).parent
    table = prediction_table(records, data)
    path = options.table or beside / f"predictions-{first['id']}.csv"
    done = f"{len(records)} of {options.folds} folds"
    write_table(table, path, f"{data.name}, {done}, cross-validated by patient, records {first['id']} and further")
    print(f"{done}; predictions of {len(table)} patients in {path} (not for clinical use)")
    for name in first["metrics"]:
        parts = []
        for key in first["metrics"][name]["values"]:
            values = [record["metrics"][name]["values"][key] for record in records]
            seen = [value for value in values if value is not None]
            if seen:
                parts.append(
                    f"{key} {sum(seen) / len(seen):.3g}" + ("" if len(seen) == len(values) else f" ({len(seen)})")
                )
        print(f"  {name}: {'; '.join(parts)}")
    if failures:
        print(f"failed folds: {', '.join(map(str, failures))}; the same command tries only these again")
