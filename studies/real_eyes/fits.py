"""Real eyes without photographs: what does a second eye tell?

    CEVIT_DATA=... python -m studies real-eyes real-eyes-limits real-eyes-missing real-eyes-errors

``real-eyes``: 20 partitions by patient of UWHVF and of PAPILA, three models of dependence.
``real-eyes-limits``: the same with other limits, and with labels cut from the response.
``real-eyes-missing``: one-eyed patients, as they are, and made on purpose.
``real-eyes-errors``: false alarms and coverage of three analyses as the eyes grow alike.
Records hold summaries, never a row of a table; ``rules.py`` says how they are judged.
"""

import functools
from typing import Any

import numpy as np

from cevit_lib.datasets import PairedEyes
from cevit_lib.errors import DataError
from studies.real_eyes.alternatives import effects, intervals_that_hold
from studies.real_eyes.data import available, covariates_of, load_eyes
from studies.real_eyes.missing import deletions
from studies.real_eyes.model import design_of, fit_regression, information_errors
from studies.real_eyes.steps import (
    cross_validate,
    summarise_regions,
    summarise_statements,
    summarise_steps,
)
from studies.study import Setting, Study

SEED = 20261129
LIMITS: dict[str, dict[str, Any]] = {"uwhvf": {}, "papila": {"myopia": -0.5}}
"""Of the main analysis: 5 tests over 2 years with p < .01, and myopia, for high myopia is too rare
in PAPILA.
"""
OTHERS: dict[str, list[dict[str, Any]]] = {
    "uwhvf": [
        {"tests": 4, "years": 1.0},
        {"tests": 8, "years": 5.0},
        {"p_value": 0.05},
        {"p_value": 0.001},
        {"compress": 0.5},
        {"cut": -0.5},
    ],
    "papila": [*({"myopia": limit} for limit in (0.0, -1.0, -2.0, -3.0, -6.0)), {"cut": 24.5}],
}
SIZES = {
    "real-eyes": {"folds": 5, "repeats": 20, "bootstrap": 2000},
    "real-eyes-limits": {"folds": 5, "repeats": 2, "bootstrap": 2000},
    "real-eyes-missing": {"replications": 40},
}
SMOKE = {"folds": 2, "repeats": 1, "bootstrap": 50, "replications": 2, "patients": 40}
"""What a smoke run changes, where the study has it."""


def settings(study: str, scale: str) -> list[Setting]:
    """Return configuration and seed of every record."""
    if study == "real-eyes-errors":
        correlations = (0.0, 0.3, 0.6, 0.9) if scale != "smoke" else (0.0, 0.6)
        wanted = [{"correlation": r, "patients": 100, "replications": 400} for r in correlations]
    else:
        others = OTHERS if study == "real-eyes-limits" else dict.fromkeys(LIMITS, [{}])
        wanted = [
            {"source": available(source, scale), "limits": limits | other, **SIZES[study]}
            for source, limits in LIMITS.items()
            for other in others[source][-1 if scale == "smoke" else 0 :]
        ]
    if scale == "smoke":
        wanted = [c | {key: SMOKE[key] for key in c if key in SMOKE} for c in wanted]
    return [(c, SEED) for c in wanted]


def facts(missing: str, c: dict) -> dict[str, Any]:
    """Return what identifies the data in a record."""
    data = load_eyes(c["source"], missing, **c["limits"])
    return {"name": data.name, "hash": data.hash, "patients": len(data)}


def estimate(data: PairedEyes) -> dict[str, Any]:
    """Return Gamma of all patients with standard errors that take in what the margins cost."""
    design, y = design_of(covariates_of(data)), data.y.numpy()
    model = fit_regression(design, y, 2)
    return {
        **model.parameters.to_dict(),
        "coefficients": model.coefficients.reshape(4, -1),
        "errors": information_errors(model, design, y)["correlation"],
        "smallest_eigenvalue": model.parameters.smallest_eigenvalue(),
        "converged": model.converged,
    }


def steps_of(data: PairedEyes, c: dict, rng: np.random.Generator) -> tuple[dict, dict]:
    """Return the common part of a record, and the predictions; without them where too few labels
    are positive for a cross-validation.
    """
    labels = data.binary.numpy().sum(1)
    metrics: dict[str, Any] = {
        "patients": len(data),
        "positive": {"both": int((labels == 2).sum()), "one": int((labels == 1).sum())},
        "estimate": estimate(data),
    }
    try:
        found = cross_validate(data, c, rng)
    except DataError as error:
        return metrics | {"refused": str(error)}, {}
    return metrics | summarise_steps(found, c, rng), found


def fit_whole(c: dict, seed: int, scale: str) -> dict[str, Any]:
    """Cross-validate the three models; judge statements and regions; say what GEE would."""
    data, rng = load_eyes(c["source"], **c["limits"]), np.random.default_rng(seed)
    metrics, found = steps_of(data, c, rng)
    metrics["statements"] = summarise_statements(found, data.binary.numpy(), c, rng)
    metrics["regions"] = summarise_regions(found, c, rng)
    metrics["effects"] = effects(data)
    return {"metrics": metrics}


def fit_limits(c: dict, seed: int, scale: str) -> dict[str, Any]:
    """Cross-validate the three models under other limits."""
    data = load_eyes(c["source"], **c["limits"])
    return {"metrics": steps_of(data, c, np.random.default_rng(seed))[0]}


def fit_missing(c: dict, seed: int, scale: str) -> dict[str, Any]:
    """Delete eyes of complete patients on purpose, and compare three analyses."""
    complete = load_eyes(c["source"], **c["limits"])
    everybody = load_eyes(c["source"], "keep", **c["limits"])
    metrics = {
        "complete": estimate(complete),
        "everybody": estimate(everybody),
        "patients": {"complete": len(complete), "everybody": len(everybody)},
        "deleted": deletions(complete, c["replications"], seed),
    }
    return {"metrics": metrics}


def fit_errors(c: dict, seed: int, scale: str) -> dict[str, Any]:
    """Count false alarms and coverage at one correlation of the eyes."""
    return {"metrics": intervals_that_hold(c, seed)}


def _study(name: str, fit: Any, missing: str | None = "drop") -> Study:
    known = {"facts": functools.partial(facts, missing)} if missing else {}
    return Study(name, functools.partial(settings, name), fit, "cpu", **known)


STUDIES = {
    "real-eyes": _study("real-eyes", fit_whole),
    "real-eyes-limits": _study("real-eyes-limits", fit_limits),
    "real-eyes-missing": _study("real-eyes-missing", fit_missing, "keep"),
    "real-eyes-errors": _study("real-eyes-errors", fit_errors, None),
}
