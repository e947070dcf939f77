"""What an ophthalmic statistician would use beside the copula: eyes as strangers, and GEE."""

import warnings
from typing import Any

import numpy as np
import statsmodels.api as sm
import torch

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import PairedEyes
from studies.real_eyes.data import covariates_of
from studies.real_eyes.model import (
    design_of,
    draw_responses,
    fit_regression,
    information_errors,
)

FAMILIES = {"number": sm.families.Gaussian, "label": sm.families.Binomial}
ANALYSES = ("strangers", "GEE", "copula")
EFFECT = {"number": 0.5, "label": 1.0}
"""In SD and in logits, where there is an effect."""
EXPOSURES = ("of the patient", "of one eye")


def analyse(x: np.ndarray, y: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Return effects ``(k,)`` and standard errors of covariates ``(n, 2, k)`` on the number and on
    the label, both eyes alike, by three analyses.

    Returns
    -------
    dict
        ``{"number: GEE": {"effect": ..., "error": ...}, ...}``
    """
    n, _, k = x.shape
    rows, patient = sm.add_constant(x.reshape(2 * n, k)), np.repeat(np.arange(n), 2)
    found = {}
    for kind, columns in (("number", y[:, :2]), ("label", y[:, 2:])):
        family = FAMILIES[kind]()
        alike = sm.cov_struct.Exchangeable()
        with warnings.catch_warnings(action="ignore"):  # a fit that fails has no error: it counts
            for name, fit in (
                ("strangers", sm.GLM(columns.ravel(), rows, family=family).fit()),
                (
                    "GEE",
                    sm.GEE(columns.ravel(), rows, patient, family=family, cov_struct=alike).fit(),
                ),
            ):
                found[f"{kind}: {name}"] = {"effect": fit.params[1:], "error": fit.bse[1:]}
    design = design_of(x, shared=True)
    model = fit_regression(design, y, 2)
    error = information_errors(model, design, y)["coefficients"].reshape(2, -1)
    for row, kind in enumerate(FAMILIES):
        own = model.coefficients.reshape(2, -1)[row, 1:]
        found[f"{kind}: copula"] = {"effect": own, "error": error[row, 1:]}
    return found


def effects(data: PairedEyes) -> dict[str, Any]:
    """Return the three analyses of a table's covariates."""
    found = analyse(covariates_of(data), data.y.numpy())
    return {"covariates": list(data.covariate_names), **found}


def draw_trial(c: dict, effect: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return exposures ``(n, 2, 2)`` and responses of one trial.

    The first exposure is the patient's (half of them, both eyes), the second one eye's of each
    patient; responses of one eye correlate by .5, the same response of both eyes by
    ``correlation``.
    """
    n = c["patients"]
    x = np.zeros((n, 2, 2))
    x[: n // 2, :, 0] = 1
    x[np.arange(n), rng.integers(0, 2, n), 1] = 1
    between = np.array([[1, c["correlation"]], [c["correlation"], 1]])
    gamma = np.kron([[1, 0.5], [0.5, 1]], between)
    b = np.array([[0.0, effect * EFFECT["number"]], [-1.0, effect * EFFECT["label"]]])
    b = np.column_stack([b, b[:, 1]]).ravel()
    outputs = torch.from_numpy(design_of(x, shared=True) @ b)
    return x, draw_responses(outputs, CopulaParameters(gamma, [1.0, 1.0]), rng).numpy()


def intervals_that_hold(c: dict, seed: int) -> dict[str, Any]:
    """Count 95 % intervals that hold the truth, where there is no effect and where there is one.

    Without an effect the others are false alarms. A fit at the edge of the parameters has no
    standard error and is not among the ``defined``.
    """
    counts: dict[str, dict[str, int]] = {}
    for stream in np.random.SeedSequence(seed).spawn(c["replications"]):
        rng = np.random.default_rng(stream)
        for size, words in enumerate(("no effect", "effect")):
            for name, found in analyse(*draw_trial(c, size, rng)).items():
                z = (found["effect"] - size * EFFECT[name.split(":")[0]]) / found["error"]
                for exposure, value in zip(EXPOSURES, z, strict=True):
                    own = counts.setdefault(
                        f"{name}, {exposure}, {words}", {"hold": 0, "defined": 0}
                    )
                    own["defined"] += int(np.isfinite(value))
                    own["hold"] += int(np.abs(value) <= 1.96)
    return counts
