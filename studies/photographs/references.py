"""Two plain rows beside the networks: age and sex, and principal components of small pictures.

python -m studies photographs-references
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import PairedEyes
from cevit_lib.datasets.splits import Split
from cevit_lib.estimation import MaximumLikelihood
from cevit_lib.records import rounded
from cevit_lib.training.objective import estimated
from studies.photographs.data import facts, left_out_parts, load_eyes, partition, predictions_of
from studies.photographs.settings import grid
from studies.simulation.fits import scores
from studies.study import Study

PIXELS, COMPONENTS = 48, 30


def fit(c: dict, seed: int, scale: str) -> dict[str, Any]:
    """Regress on age and sex, and on small pictures."""
    eyes = load_eyes(c["data"], c["size"], c["mirror"])
    split = partition(eyes, c)
    parts = left_out_parts(eyes, split, c, seed)
    columns = {"age and sex": eyes.covariates.numpy(), "PCA of pixels": small_pictures(eyes)}
    arms = {name: regress(columns[name], eyes.y.numpy(), split, parts) for name in c["models"]}
    y = eyes.y[split.test]
    metrics = {name: scores(outputs, y, used) for name, (outputs, used) in arms.items()}
    outputs = {name: outputs for name, (outputs, _) in arms.items()}
    return {
        "metrics": rounded(metrics),
        "parameters": {name: used.to_dict() for name, (_, used) in arms.items()},
        "predictions": predictions_of(eyes, split, outputs),
        "dtype": "float64",
    }


def small_pictures(eyes: PairedEyes) -> np.ndarray:
    """Return ``(n, eyes, 3 PIXELS^2)`` numbers of the photographs."""
    small = torch.nn.functional.interpolate(eyes.load().flatten(0, 1), PIXELS, mode="area")
    return small.reshape(len(eyes), 2, -1).double().numpy()


def regress(
    columns: np.ndarray, y: np.ndarray, split: Split, parts: list[np.ndarray]
) -> tuple[torch.Tensor, CopulaParameters]:
    """Fit ridge and logistic regressions, one an eye and response.

    Parameters
    ----------
    columns : array, shape (n, eyes, k)
    y : array, shape (n, 4)
    split : Split
    parts : list of array
        Of the training patients: those whom the estimate's regressions have not seen, in turn.

    Returns
    -------
    outputs : Tensor, shape (test patients, 4)
    parameters : CopulaParameters
        By exact likelihood from cross-fitted outputs, as those of the networks.
    """
    crossed = np.empty_like(y)
    for part in parts:
        crossed[part] = _predict(columns, y, np.setdiff1d(split.train, part), part)
    exact = MaximumLikelihood(standard_errors=False)
    seen = (torch.from_numpy(each[split.train]) for each in (crossed, y))
    with warnings.catch_warnings():  # what did not converge is seen in the stored matrix
        warnings.simplefilter("ignore")
        fitted, _ = estimated(exact, *seen)
    return torch.from_numpy(_predict(columns, y, split.train, split.test)), fitted


def _predict(columns: np.ndarray, y: np.ndarray, train: np.ndarray, new: np.ndarray) -> np.ndarray:
    found = np.empty((len(new), 4))
    wide = columns.shape[2] > COMPONENTS
    reduce = [PCA(min(COMPONENTS, len(train) - 1), random_state=0)] if wide else []
    for k in range(4):
        own = columns[:, k % 2]
        model = (
            RidgeCV(np.logspace(-2, 4, 13)) if k < 2 else LogisticRegression(C=0.1, max_iter=2000)
        )
        fitted = make_pipeline(StandardScaler(), *reduce, model).fit(own[train], y[train, k])
        says = fitted.predict if k < 2 else fitted.decision_function
        found[:, k] = says(own[new])
    return found


STUDY = Study(
    "photographs-references",
    functools.partial(grid, "photographs-references"),
    fit,
    "cpu",
    facts=facts,
)
