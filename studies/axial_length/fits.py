"""Axial length and myopia of both eyes: the copula on a small regression, on PAPILA's table.

    CEVIT_DATA=... python -m studies axial-length axial-length-thresholds axial-length-missing

``axial-length``: repeated cross-validation by patient of four ways to treat the two eyes.
``axial-length-thresholds``: what is left of the estimate as the limit of myopia grows severe.
``axial-length-missing``: patients with responses missing, as they are, and deleted on purpose.
Records hold summaries, never a row of the table. Seeds and settings were fixed before the first
run.
"""

import functools
from typing import Any

import numpy as np
import torch

from cevit_lib.copula import condition_on
from cevit_lib.datasets import PairedEyes, split_by_patient
from cevit_lib.errors import DataError
from cevit_lib.metrics import class_reason
from cevit_lib.records import rounded
from studies.axial_length.data import design_of, load_table, source_for
from studies.axial_length.folds import cross_validate, fold_columns, summarise
from studies.axial_length.model import fit_regression, information_errors
from studies.study import Fit, Study, replications

SEED = 20261128
PAPER = {
    "axial-length": {
        "myopia": -0.5,
        "repetitions": 10,
        "draws": 99,
        "bootstrap": 2000,
        "asymmetry": 1.0,
    },
    "axial-length-thresholds": {
        "thresholds": [0.0, -0.5, -1.0, -2.0, -3.0, -4.0, -6.0],
        "profiled": [-0.5, -6.0],
        "divisions": 50,
        "grid": [-0.95, -0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.5]
        + [0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99],
    },
    "axial-length-missing": {"myopia": -0.5, "replications": 20},
}
SMOKE = {
    "axial-length": {"repetitions": 1, "draws": 19, "bootstrap": 100},
    "axial-length-thresholds": {
        "thresholds": [-0.5, -6.0],
        "divisions": 3,
        "grid": [-0.5, 0.5, 0.9],
    },
    "axial-length-missing": {"replications": 2},
}
"""What a smoke run changes."""


def settings(study: str, scale: str) -> list[Fit]:
    """Return the one configuration of a study."""
    base = {"source": source_for(scale), "covariates": ["age", "female"], "folds": 5}
    return [(base | PAPER[study] | (SMOKE[study] if scale == "smoke" else {}), SEED)]


def facts(missing: str, c: dict) -> dict[str, Any]:
    """Return what identifies the data in a record."""
    limit = c["myopia"] if "myopia" in c else c["thresholds"][-1]
    data = load_table(c["source"], limit, missing)
    return {"name": data.name, "hash": data.hash, "patients": len(data)}


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


def fit_cross_validation(c: dict, seed: int, scale: str) -> dict[str, Any]:
    """Compare four ways to treat the two eyes, out of fold."""
    data, rng = load_table(c["source"], c["myopia"]), np.random.default_rng(seed)
    found, folds = cross_validate(data, c, rng)
    columns = fold_columns(found, folds, data, c["folds"])
    metrics = summarise(found, columns, data, c, rng)
    everyone = fitted(data)
    refractions = fitted(load_table(c["source"], None))  # dioptres instead of labels
    metrics["all_patients"] = {"labels": everyone, "dioptres": refractions}
    parameters = {key: everyone[key] for key in ("correlation", "scale")}
    return {"metrics": metrics, "columns": rounded(columns), "parameters": parameters}


def fit_thresholds(c: dict, seed: int, scale: str) -> dict[str, Any]:
    """Count, estimate and fail for each limit of myopia."""
    metrics, notes = {}, []
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
    return {"metrics": metrics, "notes": "; ".join(notes) or None}


def refused_divisions(
    data: PairedEyes, c: dict, rng: np.random.Generator
) -> tuple[int, str | None, float]:
    """Return how many stratified divisions leave a fold without a class, what the first refusal
    says, and a share.

    The share is that of test folds of plain random divisions in which the AUC of an eye does not
    exist.
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
    """Return the log likelihood of the two labels, maximised over their margins, at each value of
    ``rho_34``."""
    design, labels = design_of(data), data.binary.numpy()
    return [
        fit_regression(design, labels, 0, correlation=np.array([[1, rho], [rho, 1]])).log_likelihood
        for rho in grid
    ]


def fit_missing(c: dict, seed: int, scale: str) -> dict[str, Any]:
    """Fit everybody, and complete patients whose responses were deleted on purpose."""
    complete, everybody = (load_table(c["source"], c["myopia"], kind) for kind in ("drop", "keep"))

    def replicate(c: dict, stream: np.random.SeedSequence) -> dict[str, float]:
        return {
            f"{mechanism}:{name}": value
            for mechanism in ("at random", "by the left eye")
            for name, value in delete_and_fit(
                complete, mechanism, np.random.default_rng(stream)
            ).items()
        }

    columns = replications(replicate, c, seed)
    metrics = {
        "complete": fitted(complete),
        "everybody": fitted(everybody),
        "deleted": {name: _mean_and_error(np.array(own)) for name, own in columns.items()},
    }
    return {"metrics": metrics, "columns": rounded(columns)}


def _mean_and_error(values: np.ndarray) -> dict:
    spread = float(values.std(ddof=1))
    return {"mean": float(values.mean()), "sd": spread, "se": spread / len(values) ** 0.5}


def delete(y: np.ndarray, mechanism: str, rng: np.random.Generator) -> np.ndarray:
    """Return the responses with some made NaN.

    "at random": three in ten of every response. "by the left eye": the right eye is measured nine
    times in ten where the left one is longer than the median, else two times in ten; what is
    missing then depends only on what was seen.
    """
    y = y.copy()
    if mechanism == "at random":
        y[rng.random(y.shape) < 0.3] = np.nan
        return y
    share = np.where(y[:, 0] > np.median(y[:, 0]), 0.9, 0.2)
    y[np.ix_(rng.random(len(y)) > share, [1, 3])] = np.nan
    return y


def delete_and_fit(data: PairedEyes, mechanism: str, rng: np.random.Generator) -> dict[str, float]:
    """Return errors of three analyses: mean right length minus its true mean, ``rho_12``, and
    imputed lengths."""
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


def _study(name: str, fit: Any, missing: str = "drop") -> Study:
    wanted, known = functools.partial(settings, name), functools.partial(facts, missing)
    return Study(name, wanted, fit, "cpu", facts=known)


STUDIES = {
    "axial-length": _study("axial-length", fit_cross_validation),
    "axial-length-thresholds": _study("axial-length-thresholds", fit_thresholds),
    "axial-length-missing": _study("axial-length-missing", fit_missing, "keep"),
}
