"""Least-squares and logistic plug-ins: the warm-up of the toy example and of linear models."""

import numpy as np
from sklearn.linear_model import LogisticRegression

from cevit_lib.datasets.toy import ToyData


def plug_in_outputs(data: ToyData) -> np.ndarray:
    """Return outputs (n, 4) of least-squares and logistic fits to ``data``.

    Each response is regressed on an intercept and its own eye's covariates: the warm-up stage of
    the toy example.
    """
    columns = []
    for response in range(4):
        eye, y = response % 2, data.y[:, response]
        design = with_intercept(data.covariates[:, eye])
        if response < 2:
            coefficients = np.linalg.lstsq(design, y, rcond=None)[0]
        else:
            coefficients = logistic_regression(design, y)
        columns.append(design @ coefficients)
    return np.stack(columns, axis=1)


def with_intercept(covariates: np.ndarray) -> np.ndarray:
    """Return the covariates with a leading column of ones."""
    return np.concatenate([np.ones((len(covariates), 1)), covariates], axis=1)


def logistic_regression(design: np.ndarray, y: np.ndarray, ridge: float = 1e-8) -> np.ndarray:
    """Return maximum likelihood coefficients of a logistic regression.

    Parameters
    ----------
    design : (n, k) array, intercept included
    y : (n,) array of 0 and 1
    ridge : float
        Half of it times the sum of squared coefficients is added to the negative log-likelihood.
        With separable classes no maximum exists, and the default keeps the coefficients finite
        (and very large).
    """
    model = LogisticRegression(C=1 / ridge, fit_intercept=False, solver="newton-cholesky")
    return model.set_params(tol=1e-10).fit(design, y).coef_[0]
