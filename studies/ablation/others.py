"""What stands beside the four models: plain regressions, and the frozen encoder under one.

    python -m studies ablation-references ablation-probe

All see the same training and test patients as the fits of ``studies.ablation.fits``.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import torch

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import PairedEyes
from cevit_lib.datasets.splits import Split
from cevit_lib.estimation import MaximumLikelihood
from cevit_lib.records import rounded
from cevit_lib.training.objective import estimated
from studies.ablation.data import about, load_eyes, partition, predictions_of
from studies.ablation.pretraining import Encoders
from studies.ablation.settings import grid
from studies.simulation.fits import scores
from studies.study import Study

PIXELS, COMPONENTS = 48, 30
Arms = dict[str, tuple[torch.Tensor, CopulaParameters]]
"""Arm -> outputs for the test patients, and the copula parameters that they are read with."""


def fit_references(c: dict, seed: int, scale: str) -> dict[str, Any]:
    """Regress on nothing, on age and camera, and on small pictures."""
    eyes, split = _eyes_and_split(c)
    arms = {name: regress(x, eyes, split) for name, x in plain_features(eyes).items()}
    return _content(eyes, split, arms, None)


def fit_probe(c: dict, seed: int, scale: str) -> dict[str, Any]:
    """Regress on what the frozen encoder says."""
    eyes, split = _eyes_and_split(c)
    backbone, told = Encoders(scale)(c)
    arms = {"frozen encoder": regress(frozen_features(backbone, eyes), eyes, split)}
    return _content(eyes, split, arms, told)


def plain_features(eyes: PairedEyes) -> dict[str, np.ndarray]:
    """Return ``(n, eyes, k)`` columns of each reference: nothing, age and camera, and small
    pictures."""
    n = len(eyes)
    small = torch.nn.functional.interpolate(eyes.load().flatten(0, 1), PIXELS, mode="area")
    return {
        "constant": np.zeros((n, 2, 1)),
        "age and camera": eyes.covariates.numpy(),
        "PCA of pixels": small.reshape(n, 2, -1).double().numpy(),
    }


@torch.no_grad()
def frozen_features(backbone: torch.nn.Module, eyes: PairedEyes) -> np.ndarray:
    """Return ``(n, eyes, 2 width)``: class token and mean of the patch tokens, nothing trained."""
    parts = eyes.load().flatten(0, 1).split(64)
    tokens = torch.cat([backbone.eval().forward_features(part * 2 - 1) for part in parts])
    both = torch.cat([tokens[:, 0], tokens[:, 1:].mean(1)], 1).double().numpy()
    return both.reshape(len(eyes), 2, -1)


def regress(
    columns: np.ndarray, eyes: PairedEyes, split: Split
) -> tuple[torch.Tensor, CopulaParameters]:
    """Fit ridge and logistic regressions, one an eye and response; return test outputs and copula
    parameters.

    The parameters are estimated from cross-validated outputs of the training patients, as those of
    the networks.
    """
    from sklearn.model_selection import KFold

    inner = np.zeros((len(split.train), 4))
    for fit, left_out in KFold(5, shuffle=True, random_state=0).split(split.train):
        inner[left_out] = _predict(columns, eyes.y.numpy(), split.train[fit], split.train[left_out])
    exact = MaximumLikelihood(standard_errors=False)
    with warnings.catch_warnings():  # what did not converge is seen in the stored matrix
        warnings.simplefilter("ignore")
        fitted, _ = estimated(exact, torch.from_numpy(inner), eyes.y[split.train])
    return torch.from_numpy(_predict(columns, eyes.y.numpy(), split.train, split.test)), fitted


def _predict(columns: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression, RidgeCV

    found = np.zeros((len(test), 4))
    for j in range(2):
        reduce = _reduction(columns[:, j].shape[1], len(train)).fit(columns[train, j])
        x, new = reduce.transform(columns[train, j]), reduce.transform(columns[test, j])
        found[:, j] = RidgeCV(np.logspace(-2, 4, 13)).fit(x, y[train, j]).predict(new)
        label = y[train, 2 + j]
        if (
            len(np.unique(label)) < 2
        ):  # an inner part without a class: its prior, half a patient added to each side
            found[:, 2 + j] = np.log((label.sum() + 0.5) / (len(label) - label.sum() + 0.5))
        else:
            found[:, 2 + j] = (
                LogisticRegression(C=0.1, max_iter=2000).fit(x, label).decision_function(new)
            )
    return found


def _reduction(width: int, patients: int):
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if width <= COMPONENTS:
        return make_pipeline(StandardScaler())
    return make_pipeline(StandardScaler(), PCA(min(COMPONENTS, patients - 1), random_state=0))


def _eyes_and_split(c: dict) -> tuple[PairedEyes, Split]:
    eyes = load_eyes(c["data"], c["size"], c["mirror"])
    return eyes, partition(eyes, c)


def _content(eyes: PairedEyes, split: Split, arms: Arms, told: dict | None) -> dict[str, Any]:
    """Return what a record holds of a fit's arms."""
    y = eyes.y[split.test]
    metrics = {name: scores(outputs, y, used) for name, (outputs, used) in arms.items()}
    estimates = {name: used.to_dict() for name, (_, used) in arms.items()}
    return {
        "metrics": rounded(metrics),
        "parameters": {"weights": told} | estimates,
        "predictions": predictions_of(
            eyes, split, {n: outputs for n, (outputs, _) in arms.items()}
        ),
        "notes": about(eyes, split),
        "dtype": "float32",
    }


def _study(name: str, fit: Any) -> Study:
    return Study(name, functools.partial(grid, name), fit, "cpu")


REFERENCES = _study("ablation-references", fit_references)
PROBE = _study("ablation-probe", fit_probe)
