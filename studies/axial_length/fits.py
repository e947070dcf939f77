"""Axial length and myopia of both eyes: the copula on a small regression, on PAPILA's table.

Three studies. ``axial-length``: repeated cross-validation by patient of four ways to treat the two eyes.
``axial-length-thresholds``: what is left of the estimate as the limit of myopia grows severe. ``axial-length-missing``:
patients with responses missing, as they are, and deleted on purpose. Records hold summaries, never a row of the table.

    CEVIT_DATA=... python -m studies.axial_length.fits      writes results/, skips what is there
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext

import numpy as np
import torch

from cevit_lib.copula import condition_on
from cevit_lib.datasets import PairedEyes, split_by_patient
from cevit_lib.errors import DataError
from cevit_lib.metrics import class_reason
from cevit_lib.records import find_record, load_records, new_record, rounded, write_record
from studies.axial_length.data import design_of, facts_of, load_table, source_for
from studies.axial_length.folds import cross_validate, fold_columns, summarise
from studies.axial_length.model import fit_regression, information_errors

SEED = 20261128
THRESHOLDS = (0.0, -0.5, -1.0, -2.0, -3.0, -4.0, -6.0)


def fitted(data: PairedEyes, dependence: str = "both eyes") -> dict:
    """Return the estimates of all patients with their standard errors, as a record stores them."""
    design, y = design_of(data), data.y.numpy()
    model = fit_regression(design, y, data.continuous, dependence)
    errors = information_errors(model, design, y)
    residual = (
        (torch.from_numpy(y) - model.outputs(design))[:, :2] / model.parameters.scale[:2]
    ).numpy()
    return {
        "coefficients": model.coefficients,
        **model.parameters.to_dict(),
        "log_likelihood": model.log_likelihood,
        "errors": errors,
        "converged": model.converged,
        "patients": len(data),
        "skewness": np.nanmean(residual**3, 0),
        "kurtosis": np.nanmean(residual**4, 0),
        "smallest_eigenvalue": model.parameters.smallest_eigenvalue(),
    }


def run_cross_validation(c: dict, seed: int, scale: str) -> dict:
    """Return the record of ``axial-length``, unwritten."""
    began, rng = time.perf_counter(), np.random.default_rng(seed)
    data = load_table(c["source"], c["myopia"])
    found, folds = cross_validate(data, c, rng)
    columns = fold_columns(found, folds, data, c["folds"])
    metrics = summarise(found, columns, data, c, rng)
    everyone = fitted(data)
    refractions = fitted(load_table(c["source"], None))  # dioptres instead of labels
    metrics["all_patients"] = {"labels": everyone, "dioptres": refractions}
    return _record(
        "axial-length",
        c,
        seed,
        scale,
        metrics,
        data,
        began,
        columns=columns,
        parameters={key: everyone[key] for key in ("correlation", "scale")},
    )


# --- study 2: the limit of myopia


def run_thresholds(c: dict, seed: int, scale: str) -> dict:
    """Return the record of ``axial-length-thresholds``: counts, estimates and failures for each limit."""
    began, metrics, notes = time.perf_counter(), {}, []
    for limit in c["thresholds"]:
        data = load_table(c["source"], limit)
        labels = data.binary.numpy()
        refused, message, poor = refused_divisions(data, c, np.random.default_rng(seed))
        if message:
            notes.append(f"{limit:g} D: {message}")
        # labels with one class only have no regression
        usable = (labels.sum(0) > 0).all() and (labels.sum(0) < len(labels)).all()
        metrics[f"{limit:g}"] = {
            "neither": int((labels.sum(1) == 0).sum()),
            "left only": int((labels[:, 0] > labels[:, 1]).sum()),
            "right only": int((labels[:, 0] < labels[:, 1]).sum()),
            "both": int((labels.sum(1) == 2).sum()),
            "refused_divisions": refused,
            "divisions": c["divisions"],
            "one_class_share": poor,
            "estimate": fitted(data) if usable else None,
            "profile": profile(data, c["grid"]) if usable and limit in c["profiled"] else None,
        }
    return _record(
        "axial-length-thresholds",
        c,
        seed,
        scale,
        metrics,
        data,
        began,
        notes="; ".join(notes) or None,
    )


def refused_divisions(
    data: PairedEyes, c: dict, rng: np.random.Generator
) -> tuple[int, str | None, float]:
    """Return how many stratified divisions leave a fold without a class, what the first refusal says, and a share.

    The share is that of test folds of plain random divisions in which the AUC of an eye does not exist.
    """
    messages, poor = [], []
    for _ in range(c["divisions"]):
        try:
            split_by_patient(data, c["folds"], rng)
        except DataError as error:
            messages.append(str(error))
        for split in split_by_patient(data, c["folds"], rng, stratify=False, require_classes=False):
            poor.append(any(class_reason(labels) for labels in data.binary[split.test].T))
    return len(messages), messages[0] if messages else None, float(np.mean(poor))


def profile(data: PairedEyes, grid: list[float]) -> list[float]:
    """Return the log likelihood of the two labels, maximised over their margins, at each value of ``rho_34``."""
    design, labels = design_of(data), data.binary.numpy()
    return [
        fit_regression(design, labels, 0, correlation=np.array([[1, rho], [rho, 1]])).log_likelihood
        for rho in grid
    ]


# --- study 3: missing responses


def run_missing(c: dict, seed: int, scale: str) -> dict:
    """Return the record of ``axial-length-missing``: everybody, and responses deleted on purpose."""
    began = time.perf_counter()
    complete, everybody = (load_table(c["source"], c["myopia"], kind) for kind in ("drop", "keep"))
    metrics = {"complete": fitted(complete), "everybody": fitted(everybody)}
    streams = np.random.SeedSequence(seed).spawn(c["replications"])
    columns: dict[str, list[float]] = {}
    for mechanism in ("at random", "by the left eye"):
        for stream in streams:
            row = delete_and_fit(complete, mechanism, np.random.default_rng(stream))
            for name, value in row.items():
                columns.setdefault(f"{mechanism}:{name}", []).append(value)
    metrics["deleted"] = {
        name: _mean_and_error(np.array(values)) for name, values in columns.items()
    }
    return _record(
        "axial-length-missing", c, seed, scale, metrics, everybody, began, columns=columns
    )


def _mean_and_error(values: np.ndarray) -> dict:
    spread = float(values.std(ddof=1))
    return {"mean": float(values.mean()), "sd": spread, "se": spread / len(values) ** 0.5}


def delete(y: np.ndarray, mechanism: str, rng: np.random.Generator) -> np.ndarray:
    """Return the responses with some made NaN.

    "at random": three in ten of every response. "by the left eye": the right eye is measured nine times in ten where
    the left one is longer than the median, else two times in ten; what is missing then depends only on what was seen.
    """
    y = y.copy()
    if mechanism == "at random":
        y[rng.random(y.shape) < 0.3] = np.nan
        return y
    share = np.where(y[:, 0] > np.median(y[:, 0]), 0.9, 0.2)
    y[np.ix_(rng.random(len(y)) > share, [1, 3])] = np.nan
    return y


def delete_and_fit(data: PairedEyes, mechanism: str, rng: np.random.Generator) -> dict[str, float]:
    """Return errors of three analyses: mean right length minus its true mean, ``rho_12``, and imputed lengths."""
    design, truth = design_of(data), data.y.numpy()
    y = delete(truth, mechanism, rng)
    whole, hidden = np.isfinite(y).all(1), np.isnan(y[:, 1]) & np.isfinite(y).any(1)
    analyses = {
        "complete patients": fit_regression(design[whole], y[whole], 2),
        "all, independent": fit_regression(design, y, 2, "none"),
        "all, copula": fit_regression(design, y, 2),
    }
    row = {"observed": float(np.isfinite(y).mean())}
    for name, model in analyses.items():
        outputs = model.outputs(design)
        row[f"{name}:bias"] = float((outputs[:, 1].numpy() - truth[:, 1]).mean())
        row[f"{name}:r12"] = float(model.parameters.correlation[0, 1])
        guess = condition_on(outputs, torch.from_numpy(y), model.parameters).mean[:, 1].numpy()
        row[f"{name}:imputed_error"] = float(np.abs(guess - truth[:, 1])[hidden].mean())
    return row


# --- records


def configurations(scale: str = "paper") -> dict[str, dict]:
    """Return the configuration of each study; seeds and settings were fixed before the first run."""
    small, source = scale == "smoke", source_for(scale)
    base = {"source": source, "covariates": ["age", "female"], "folds": 5}
    return {
        "axial-length": base
        | {
            "myopia": -0.5,
            "repetitions": 1 if small else 10,
            "draws": 19 if small else 99,
            "bootstrap": 100 if small else 2000,
            "asymmetry": 1.0,
        },
        "axial-length-thresholds": base
        | {
            "thresholds": [-0.5, -6.0] if small else list(THRESHOLDS),
            "profiled": [-0.5, -6.0],
            "divisions": 3 if small else 50,
            "grid": [-0.5, 0.5, 0.9]
            if small
            else [
                -0.95,
                -0.8,
                -0.6,
                -0.4,
                -0.2,
                0.0,
                0.2,
                0.4,
                0.5,
                0.6,
                0.7,
                0.8,
                0.85,
                0.9,
                0.925,
                0.95,
                0.975,
                0.99,
            ],
        },
        "axial-length-missing": base | {"myopia": -0.5, "replications": 2 if small else 20},
    }


RUNS = {
    "axial-length": run_cross_validation,
    "axial-length-thresholds": run_thresholds,
    "axial-length-missing": run_missing,
}


def run(study: str, c: dict, seed: int, scale: str) -> dict:
    """Return a study's record, unwritten; on one thread, for on matrices this small several wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _one_blas_thread():
            return RUNS[study](c, seed, scale)
    finally:
        torch.set_num_threads(threads)


def _one_blas_thread():
    try:
        from threadpoolctl import threadpool_limits  # comes with scikit-learn
    except ImportError:
        return nullcontext()
    return threadpool_limits(1)


def _record(
    study, c, seed, scale, metrics, data, began, columns=None, parameters=None, notes=None
) -> dict:
    return new_record(
        study,
        c,
        [seed],
        metrics,
        scale=scale,
        data=facts_of(data),
        notes=notes,
        parameters=parameters,
        columns=rounded(columns) if columns else None,
        device="cpu",
        seconds=time.perf_counter() - began,
    )


def run_study(study: str, scale: str = "paper") -> dict:
    """Return the study's record: the one that is there, or a new one, written."""
    c = configurations(scale)[study]
    # the data are part of a record's identity, and are read only where it may have to be made
    data = load_table(
        c["source"], c.get("myopia", -6.0), "keep" if study == "axial-length-missing" else "drop"
    )
    record = find_record(study, c, [SEED], scale, facts_of(data))
    if record is None:
        record = run(study, c, SEED, scale)
        write_record(record)
    return record


def refit(record: dict) -> dict:
    """Run the study of a record again, for ``cevit verify``.

    Raises
    ------
    DataError
        The table is not here, or is another one.
    """
    again = run(record["study"], record["configuration"], record["seeds"][0], record["scale"])
    if again["data"] != record["data"]:
        raise DataError(
            f"the table is not the one of the record: {again['data']} here, {record['data']} there."
        )
    return again


def collect(study: str, scale: str = "stored") -> dict:
    """Return a study's record: the stored one, or that of a run now at ``smoke`` or ``paper`` scale."""
    return load_records(study, expected=1)[-1] if scale == "stored" else run_study(study, scale)


def main() -> None:
    """Run all three studies, two at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=("paper", "smoke"), default="paper")
    scale, began = parser.parse_args().scale, time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        for record in pool.map(run_study, RUNS, [scale] * len(RUNS)):
            print(
                f"{record['study']} {record['id']} {record['times']['total_seconds']:.1f} s",
                flush=True,
            )
    print(f"all in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
