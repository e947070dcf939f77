"""One-eyed patients: complete cases, all eyes as if they were strangers, and the likelihood of what
was seen.
"""

from typing import Any

import numpy as np
import torch

from cevit_lib.datasets import PairedEyes
from studies.real_eyes.data import covariates_of
from studies.real_eyes.model import design_of, fit_regression

MECHANISMS = ("the left eye decides", "the better eye is lost")
ANALYSES = ("complete patients", "all eyes, as strangers", "all eyes, copula")


def delete(y: np.ndarray, mechanism: str, better: int, rng: np.random.Generator) -> np.ndarray:
    """Return the responses with one eye of some patients made NaN.

    "the left eye decides": nine in ten right eyes are not measured where the left one is better
    than the median, two in ten elsewhere; what is lost depends on what was seen. "the better eye is
    lost": of three in five patients, drawn by lot, the better eye is not measured; what is lost
    depends on itself.

    Parameters
    ----------
    better : {1, -1}
        Whether larger or smaller numbers are better.
    """
    y, goodness = y.copy(), better * y[:, :2]
    if mechanism == "the left eye decides":
        good = goodness[:, 0] > np.median(goodness[:, 0])
        lost = np.column_stack(
            [np.zeros(len(y), bool), rng.random(len(y)) < np.where(good, 0.9, 0.2)]
        )
    else:
        best = goodness == goodness.max(1, keepdims=True)
        lost = best & (rng.random(len(y)) < 0.6)[:, None]
        lost[lost.all(1), 0] = False  # equal eyes: one stays
    y[np.column_stack([lost, lost])] = np.nan
    return y


def deletions(data: PairedEyes, replications: int, seed: int) -> dict[str, Any]:
    """Return, for each mechanism and analysis, the bias of the mean number and of the mean
    probability of a label, over both eyes of all patients.
    """
    design, truth = design_of(covariates_of(data)), data.y.numpy()
    better = 1 if data.name.endswith("uwhvf") else -1
    streams = np.random.SeedSequence(seed).spawn(replications)
    rows: dict[str, list[list[float]]] = {}
    for mechanism in MECHANISMS:
        for stream in streams:
            y = delete(truth, mechanism, better, np.random.default_rng(stream))
            for analysis, found in _analyses(design, y, truth).items():
                rows.setdefault(f"{mechanism}: {analysis}", []).append(found)
    return {name: _summary(np.array(values)) for name, values in rows.items()}


def _analyses(design: np.ndarray, y: np.ndarray, truth: np.ndarray) -> dict[str, list[float]]:
    whole = np.isfinite(y).all(1)
    fits = (
        fit_regression(design[whole], y[whole], 2),
        fit_regression(design, y, 2, "none"),
        fit_regression(design, y, 2),
    )
    found = {}
    for name, model in zip(ANALYSES, fits, strict=True):
        outputs = model.outputs(design)
        said = torch.cat([outputs[:, :2], torch.sigmoid(outputs[:, 2:])], 1).numpy()
        bias = (said - truth).mean(0)
        found[name] = [bias[:2].mean(), bias[2:].mean()]
    return found


def _summary(values: np.ndarray) -> dict[str, dict[str, float]]:
    error = values.std(0, ddof=1) / len(values) ** 0.5
    return {
        name: {"mean": values[:, k].mean(), "se": error[k]}
        for k, name in enumerate(("number", "label"))
    }
