"""Least-squares and logistic plug-ins: the warm-up of the toy example and of linear models."""

import numpy as np
from sklearn.linear_model import LogisticRegression


def plug_in_outputs(
    covariates: np.ndarray,
    y: np.ndarray,
    on: np.ndarray | None = None,
    penalty: tuple[float, float] = (0.0, 1e-8),
) -> np.ndarray:
    """Return outputs (m, 4) of least-squares and logistic fits, each response on an intercept and
    its own eye's covariates.

    Parameters
    ----------
    covariates, y : arrays, shape (n, 2, p) and (n, 4)
        What is fitted to.
    on : array, shape (m, 2, p), optional
        What is predicted, by default the same patients: the warm-up stage of the toy example.
    penalty : (float, float)
        Ridge of the regressions and of the logistic ones.
    """
    columns, on = [], covariates if on is None else on
    fits = (ridge_regression, penalty[0]), (logistic_regression, penalty[1])
    for response in range(4):
        fit, ridge = fits[response // 2]
        coefficients = fit(with_intercept(covariates[:, response % 2]), y[:, response], ridge)
        columns.append(with_intercept(on[:, response % 2]) @ coefficients)
    return np.stack(columns, axis=1)


def with_intercept(covariates: np.ndarray) -> np.ndarray:
    """Return the covariates with a leading column of ones."""
    return np.concatenate([np.ones((len(covariates), 1)), covariates], axis=1)


def ridge_regression(design: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    """Return least-squares coefficients; the intercept, which comes first, is not penalised."""
    free = np.diag([0.0] + [1.0] * (design.shape[1] - 1))
    return np.linalg.solve(design.T @ design + ridge * free, design.T @ y)


def logistic_regression(design: np.ndarray, y: np.ndarray, ridge: float) -> np.ndarray:
    """Return maximum likelihood coefficients of a logistic regression.

    Parameters
    ----------
    design : (n, k) array, intercept included
    y : (n,) array of 0 and 1
    ridge : float
        Half of it times the sum of squared coefficients is added to the negative log-likelihood.
        With separable classes no maximum exists, and a little of it keeps the coefficients finite
        (and very large).
    """
    model = LogisticRegression(C=1 / ridge, fit_intercept=False, solver="newton-cholesky")
    return model.set_params(tol=1e-10).fit(design, y).coef_[0]
