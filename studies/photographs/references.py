"""Two plain rows beside the networks: age and sex, and principal components of small pictures.

python -m studies photographs-references
"""

import functools
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets.splits import Split
from cevit_lib.estimation import MaximumLikelihood
from cevit_lib.records import rounded
from cevit_lib.training.objective import estimated
from studies.photographs.data import facts, load_eyes, partition, predictions_of
from studies.photographs.settings import grid
from studies.simulation.fits import scores
from studies.study import Study

PIXELS, COMPONENTS = 48, 30


def fit(c: dict, seed: int, scale: str) -> dict[str, Any]:
    """Regress on age and sex, and on small pictures."""
    eyes = load_eyes(c["data"], c["size"], c["mirror"])
    small = torch.nn.functional.interpolate(eyes.load().flatten(0, 1), PIXELS, mode="area")
    pictures = small.reshape(len(eyes), 2, -1).double()
    columns = {"age and sex": eyes.covariates.numpy(), "PCA of pixels": pictures.numpy()}
    split, metrics, parameters, outputs = partition(eyes, c), {}, {}, {}
    for name in c["models"]:
        outputs[name], used = regress(columns[name], eyes.y, split, c["cross_fits"])
        metrics[name] = scores(outputs[name], eyes.y[split.test], used)
        parameters[name] = used.to_dict()
    return {
        "metrics": rounded(metrics),
        "parameters": parameters,
        "predictions": predictions_of(eyes, split, outputs),
        "dtype": "float64",
    }


def regress(
    columns: np.ndarray, y: Tensor, split: Split, cross_fits: int
) -> tuple[Tensor, CopulaParameters]:
    """Fit ridge and logistic regressions, one an eye and response.

    Parameters
    ----------
    columns : array, shape (n, eyes, k)
    y : Tensor, shape (n, 4)
    split : Split
    cross_fits : int
        Parts of the training patients that are predicted without them.

    Returns
    -------
    outputs : Tensor, shape (test patients, 4)
    parameters : CopulaParameters
        By exact likelihood from cross-fitted outputs, as those of the networks.
    """
    train, test = split.train, split.test
    crossed, outputs = np.empty((len(train), 4)), np.empty((len(test), 4))
    wide = columns.shape[2] > COMPONENTS
    for k in range(4):
        model = (
            RidgeCV(np.logspace(-2, 4, 13)) if k < 2 else LogisticRegression(C=0.1, max_iter=2000)
        )
        reduce = [PCA(min(COMPONENTS, len(train) // 2), svd_solver="full")] if wide else []
        model = make_pipeline(StandardScaler(), *reduce, model)
        how, own, seen = "predict" if k < 2 else "decision_function", columns[:, k % 2], y[train, k]
        parts = KFold(cross_fits, shuffle=True, random_state=0)
        crossed[:, k] = cross_val_predict(model, own[train], seen, cv=parts, method=how)
        outputs[:, k] = getattr(model.fit(own[train], seen), how)(own[test])
    exact = MaximumLikelihood(standard_errors=False)
    with warnings.catch_warnings(action="ignore"):  # what did not converge, the matrix shows
        fitted, _ = estimated(exact, torch.from_numpy(crossed), y[train])
    return torch.from_numpy(outputs), fitted


STUDY = Study(
    "photographs-references",
    functools.partial(grid, "photographs-references"),
    fit,
    "cpu",
    facts=facts,
)
