"""Cross-validation of four ways to treat the two eyes of a patient: densities, regions,
calibration, gains."""

import numpy as np
import torch
from scipy.stats import chi2

from cevit_lib.copula import CopulaParameters, class_probabilities, condition_on, log_density
from cevit_lib.datasets import PairedEyes, split_by_patient
from cevit_lib.estimation import ExactEM
from cevit_lib.metrics import (
    area_under_curve,
    asymmetric,
    brier_score,
    calibration,
    calibration_curve,
    evaluate_pairs,
    patient_bootstrap,
    patient_labels,
    patient_scores,
)
from studies.axial_length.data import design_of
from studies.axial_length.model import Regression, draw_responses, fit_regression
from studies.comparison import compare_paired

ARMS = ("independence", "eyes apart", "two steps", "copula")
"""No dependence; dependence within an eye only; margins first, then Gamma (the paper's way); all at
once."""
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
QUANTILES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


def fit_arm(arm: str, design: np.ndarray, y: np.ndarray) -> Regression:
    """Fit one way to treat the two eyes."""
    if arm == "copula":
        return fit_regression(design, y, 2)
    if arm == "eyes apart":
        return fit_regression(design, y, 2, "eyes apart")
    margins = fit_regression(design, y, 2, "none")
    if arm == "independence":
        return margins
    estimate = ExactEM().fit(margins.outputs(design), y, continuous=2)
    parameters = CopulaParameters(estimate.parameters_.correlation, margins.parameters.scale)
    return Regression(margins.coefficients, parameters, np.nan, estimate.converged_, "both eyes")


def predict_patients(model: Regression, design: np.ndarray, y: np.ndarray, draws: int, rng) -> dict:
    """Return, for each new patient, log density, what the regions cover and how large they are, and
    probabilities.

    ``region``: 90 % ellipse of both lengths. ``difference``: 95 % interval of left minus right.
    ``fellow``: 95 % interval of the right length once the left eye (length and label) is known.
    ``level``: share of draws from the model that are more probable than what was observed, uniform
    where the joint distribution is right.
    """
    outputs, parameters, observed = model.outputs(design), model.parameters, torch.from_numpy(y)
    error = (y[:, :2] - outputs[:, :2].numpy()) / (sigma := parameters.scale.numpy())
    rho = float(parameters.correlation[0, 1])
    distance = (error**2).sum(1) - 2 * rho * error[:, 0] * error[:, 1]
    quantile, n = chi2.ppf(0.9, 2), len(y)
    spread = np.sqrt(sigma @ [[1, -rho], [-rho, 1]] @ sigma)
    apart = (error * sigma) @ [1, -1]
    left_known = observed.clone()
    left_known[:, [1, 3]] = torch.nan
    updated = condition_on(outputs, left_known, parameters)
    miss, half = y[:, 1] - updated.mean[:, 1].numpy(), 1.96 * updated.sd[:, 1].numpy()
    density = log_density(outputs, observed, parameters, validate=False).numpy()
    left = log_density(outputs, left_known, parameters, validate=False).numpy()
    many = outputs.repeat_interleave(draws, 0)
    drawn = log_density(
        many, draw_responses(many, parameters, rng), parameters, validate=False
    ).numpy()
    return {
        "log_likelihood": density,
        "fellow_log_likelihood": density - left,
        "region": distance / (1 - rho**2) <= quantile,
        "region_area": np.full(n, np.pi * quantile * sigma.prod() * np.sqrt(1 - rho**2)),
        "difference": np.abs(apart) <= 1.96 * spread,
        "difference_width": np.full(n, 2 * 1.96 * spread),
        "fellow": np.abs(miss) <= half,
        "fellow_width": 2 * half,
        "fellow_error": np.abs(miss),
        "fellow_probability": updated.probability[:, 1].numpy(),
        "level": (drawn.reshape(n, draws) > density[:, None]).mean(1),
        "cells": class_probabilities(outputs, parameters).numpy(),
        "outputs": outputs.numpy(),
    }


def cross_validate(
    data: PairedEyes, c: dict, rng: np.random.Generator
) -> tuple[dict, list[np.ndarray]]:
    """Return ``{arm: {name: (repetitions, n, ...)}}`` of out-of-fold predictions, and the test rows
    of every fold."""
    design, y = design_of(data), data.y.numpy()
    found: dict[str, dict[str, np.ndarray]] = {arm: {} for arm in ARMS}
    folds = []
    for repetition in range(c["repetitions"]):
        for split in split_by_patient(data, c["folds"], rng):
            folds.append(split.test)
            for arm in ARMS:
                model = fit_arm(arm, design[split.train], y[split.train])
                predicted = predict_patients(
                    model, design[split.test], y[split.test], c["draws"], rng
                )
                for name, values in predicted.items():
                    whole = found[arm].setdefault(
                        name, np.empty((c["repetitions"], len(y), *values.shape[1:]))
                    )
                    whole[repetition, split.test] = values
    return found, folds


def fold_columns(
    found: dict, folds: list[np.ndarray], data: PairedEyes, per_repetition: int
) -> dict[str, list]:
    """Return ``{"arm:metric": one value a fold}``."""
    y, columns = data.y.numpy(), {}
    averaged = (
        "log_likelihood",
        "fellow_log_likelihood",
        "region",
        "region_area",
        "difference",
        "difference_width",
        "fellow",
        "fellow_width",
        "fellow_error",
    )
    for arm, values in found.items():
        rows = []
        for place, test in enumerate(folds):
            at = (place // per_repetition, test)
            table = evaluate_pairs(
                values["outputs"][at], y[test], data.responses, 2, cells=values["cells"][at]
            ).values
            kept = (
                "MAE AL eyes",
                "MAE AL worse",
                "MAE AL difference",
                "AUC myopia any",
                "AUC myopia both",
                "Brier myopia any",
                "Brier myopia both",
                "joint log score myopia",
            )
            row = {name: values[name][at].mean() for name in averaged} | {
                name: table[name] for name in kept
            }
            updated = values["fellow_probability"][at]
            row["fellow_brier"] = brier_score(updated, y[test, 3])
            row["fellow_auc"] = area_under_curve(updated, y[test, 3])
            rows.append(row)
        columns |= {f"{arm}:{name}": [float(row[name]) for row in rows] for name in rows[0]}
    return columns


COMPARED = (
    ("copula", "independence"),
    ("copula", "eyes apart"),
    ("two steps", "independence"),
    ("copula", "two steps"),
)
TESTED = (
    "log_likelihood",
    "fellow_log_likelihood",
    "fellow_error",
    "fellow_brier",
    "joint log score myopia",
    "Brier myopia both",
    "MAE AL eyes",
)


def summarise(
    found: dict, columns: dict, data: PairedEyes, c: dict, rng: np.random.Generator
) -> dict:
    """Return means over folds, corrected comparisons, coverage with patient intervals, calibration
    and gains."""
    y, share = data.y.numpy(), 1 / c["folds"]
    names = {key.split(":", 1)[1] for key in columns}
    means = {
        arm: {name: float(np.mean(columns[f"{arm}:{name}"])) for name in sorted(names)}
        for arm in ARMS
    }
    metrics = {"arms": means}
    metrics["comparisons"] = {
        f"{a} - {b}": {
            name: compare_paired(
                columns[f"{a}:{name}"], columns[f"{b}:{name}"], test_share=share
            ).to_dict()
            for name in TESTED
        }
        for a, b in COMPARED
    }
    metrics["coverage"], metrics["joint"], metrics["calibration"] = {}, {}, {}
    for arm, values in found.items():
        # one number a patient, the mean of all repetitions; then patients are resampled
        by_patient = {name: values[name].mean(0) for name in ("region", "difference", "fellow")}
        intervals = patient_bootstrap(
            lambda rows, v=by_patient: {name: x[rows].mean() for name, x in v.items()},
            len(data),
            rng,
            replications=c["bootstrap"],
        )
        metrics["coverage"][arm] = {
            name: interval._asdict() for name, interval in intervals.items()
        }
        metrics["joint"][arm] = {
            "observed": [float((values["level"] <= level).mean()) for level in LEVELS],
            "histogram": np.histogram(values["level"], 10, (0, 1))[0] / values["level"].size,
        }
        metrics["calibration"][arm] = _calibrations(values["cells"].mean(0), y[:, 2:])
    metrics["gain"] = _gains(found, y, c, rng)
    return metrics


def _calibrations(cells: np.ndarray, labels: np.ndarray) -> dict:
    found = {}
    for level in ("any", "both"):
        score, label = patient_scores(cells, level), patient_labels(labels, level)
        one, curve = calibration(score, label), calibration_curve(score, label, bins=4)
        found[level] = {
            "intercept": one.intercept,
            "slope": one.slope,
            "brier": one.brier,
            "predicted": score.mean(),
            "observed": label.mean(),
            "curve": curve._asdict(),
        }
    return found


def _gains(found: dict, y: np.ndarray, c: dict, rng: np.random.Generator) -> dict:
    """Return how the log likelihood that the dependence buys spreads over patients."""
    gain = (found["copula"]["log_likelihood"] - found["independence"]["log_likelihood"]).mean(0)
    differ = asymmetric(y[:, :2], c["asymmetry"])

    def describe(rows: np.ndarray) -> dict[str, float]:
        drawn = gain[rows]
        return {
            "mean": drawn.mean(),
            "median": np.median(drawn),
            "share_positive": (drawn > 0).mean(),
        }

    intervals = patient_bootstrap(describe, len(gain), rng, replications=c["bootstrap"])
    return {
        **{name: interval._asdict() for name, interval in intervals.items()},
        "mean_without_extreme": float(np.delete(gain, np.abs(gain).argmax()).mean()),
        "probabilities": QUANTILES,
        "quantiles": np.quantile(gain, QUANTILES),
        "asymmetric": {
            "patients": int(differ.sum()),
            "mean": float(gain[differ].mean()) if differ.any() else None,
        },
        "symmetric": {"patients": int((~differ).sum()), "mean": float(gain[~differ].mean())},
    }
