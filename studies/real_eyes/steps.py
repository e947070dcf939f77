"""What a second eye tells, held out: log score in steps, statements about both eyes, an eye whose
fellow is known.
"""

from typing import Any

import numpy as np
import torch
from scipy.stats import chi2

from cevit_lib.copula import class_probabilities, condition_on, log_density
from cevit_lib.datasets import PairedEyes, split_by_patient
from cevit_lib.metrics import (
    brier_score,
    calibration,
    patient_bootstrap,
    patient_labels,
    patient_scores,
)
from studies.real_eyes.data import covariates_of
from studies.real_eyes.model import DEPENDENCE, Regression, design_of, fit_regression

STEPS = {"within an eye": ("within an eye", "none"), "between eyes": ("all", "within an eye")}
"""Step -> its model, and the one before. Only the last says what a second eye tells."""
LEVELS = ("any", "both")
REGIONS = {"ellipse": 0.9, "difference": 0.95, "fellow": 0.95}
"""Prediction region -> its nominal coverage."""


def predict(model: Regression, design: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Return what a model says of new patients, one number each.

    ``log_density`` of the four responses; ``any`` and ``both``, probabilities of the labels. What
    the regions cover and their sizes: an ellipse of both numbers, the difference left minus right,
    and the right number once the left eye (number and label) is known; ``fellow_probability`` of
    the right label then.
    """
    outputs, parameters, seen = model.outputs(design), model.parameters, torch.from_numpy(y)
    sigma, rho = parameters.scale.numpy(), float(parameters.correlation[0, 1])
    error = (y[:, :2] - outputs[:, :2].numpy()) / sigma
    distance = (error**2).sum(1) - 2 * rho * error[:, 0] * error[:, 1]
    spread = np.sqrt(sigma @ [[1, -rho], [-rho, 1]] @ sigma)
    left = seen.clone()
    left[:, [1, 3]] = torch.nan
    updated = condition_on(outputs, left, parameters)
    half = 1.96 * updated.sd[:, 1].numpy()
    cells = class_probabilities(outputs, parameters).numpy()
    whole = np.ones(len(y))
    area = np.pi * chi2.ppf(REGIONS["ellipse"], 2) * sigma.prod() * np.sqrt(1 - rho**2)
    return {
        "log_density": log_density(outputs, seen, parameters, validate=False).numpy(),
        **{level: patient_scores(cells, level) for level in LEVELS},
        "ellipse": distance / (1 - rho**2) <= chi2.ppf(REGIONS["ellipse"], 2),
        "ellipse_size": area * whole,
        "difference": np.abs(error * sigma @ [1, -1]) <= 1.96 * spread,
        "difference_size": 2 * 1.96 * spread * whole,
        "fellow": np.abs(y[:, 1] - updated.mean[:, 1].numpy()) <= half,
        "fellow_size": 2 * half,
        "fellow_probability": updated.probability[:, 1].numpy(),
    }


def cross_validate(data: PairedEyes, c: dict, rng: np.random.Generator) -> dict[str, dict]:
    """Return ``{dependence: {name: (repeats, n)}}``, predictions by models that have not seen the
    patient.
    """
    design, y = design_of(covariates_of(data)), data.y.numpy()
    found: dict[str, dict[str, np.ndarray]] = {dependence: {} for dependence in DEPENDENCE}
    for repeat in range(c["repeats"]):
        for split in split_by_patient(data, c["folds"], rng):
            for dependence, own in found.items():
                model = fit_regression(design[split.train], y[split.train], 2, dependence)
                for name, values in predict(model, design[split.test], y[split.test]).items():
                    place = own.setdefault(name, np.empty((c["repeats"], len(y))))
                    place[repeat, split.test] = values
    return found


def summarise_steps(found: dict, c: dict, rng: np.random.Generator) -> dict[str, Any]:
    """Return the held-out log score of each model, and what each step adds to it.

    A patient's gain is the mean over the repeats; intervals resample patients. ``repeats`` are the
    means over patients of each partition.
    """
    scores = {name: own["log_density"] for name, own in found.items()}
    steps = {}
    for step, (model, before) in STEPS.items():
        gains = scores[model] - scores[before]
        gain = gains.mean(0)
        steps[step] = {
            **_interval(gain, c, rng),
            "repeats": gains.mean(1),
            "share_positive": (gain > 0).mean(),
            "worst_patient": gain.min(),
            "mean_without_extreme": np.delete(gain, np.abs(gain).argmax()).mean(),
        }
    return {"scores": {name: score.mean() for name, score in scores.items()}, "steps": steps}


def summarise_statements(
    found: dict, labels: np.ndarray, c: dict, rng: np.random.Generator
) -> dict[str, Any]:
    """Return how the probabilities of any eye, of both eyes, and of the right eye once the left one
    is known, agree with what was observed.
    """
    known = {"right, left has it": labels[:, 0] == 1, "right, left has not": labels[:, 0] == 0}
    questions = {
        "any eye": ("any", patient_labels(labels, "any"), np.ones(len(labels), bool)),
        "both eyes": ("both", patient_labels(labels, "both"), np.ones(len(labels), bool)),
        **{words: ("fellow_probability", labels[:, 1], rows) for words, rows in known.items()},
    }
    statements: dict[str, Any] = {}
    for words, (name, truth, rows) in questions.items():
        own = statements[words] = {"observed": _interval(truth[rows], c, rng)}
        for dependence, values in found.items():
            p = values[name].mean(0)[rows]
            one = calibration(p, truth[rows])
            own[dependence] = {
                "predicted": p.mean(),
                "off": _interval(truth[rows] - p, c, rng),
                "slope": one.slope,
                "brier": brier_score(p, truth[rows]),
            }
    return statements


def summarise_regions(found: dict, c: dict, rng: np.random.Generator) -> dict[str, Any]:
    """Return coverage with intervals over patients, and sizes beside independence."""
    size = {name: {r: own[f"{r}_size"].mean() for r in REGIONS} for name, own in found.items()}
    return {
        name: {
            region: {
                **_interval(own[region].mean(0), c, rng),
                "size": size[name][region] / size["none"][region],
            }
            for region in REGIONS
        }
        for name, own in found.items()
    }


def _interval(values: np.ndarray, c: dict, rng: np.random.Generator) -> dict[str, float]:
    interval = patient_bootstrap(
        lambda rows: values[rows].mean(), len(values), rng, replications=c["bootstrap"]
    )
    return {"mean": interval.value, "low": interval.low, "high": interval.high}
