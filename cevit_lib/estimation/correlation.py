"""Correlation matrices: the M-step's two answers, guards against singularity, and coordinates for
optimisers.

Everything here is small (``p`` by ``p``) and NumPy float64; patients have already been summed away.
"""

from functools import lru_cache

import numpy as np

#: Smallest eigenvalue that an estimator lets a matrix have while it iterates and when it returns.
EIGENVALUE_FLOOR = 1e-6


@lru_cache
def off_diagonal(p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and column indices of the ``p (p - 1) / 2`` entries above the diagonal, row by
    row."""
    return np.triu_indices(p, 1)


def from_off_diagonal(values: np.ndarray, p: int) -> np.ndarray:
    """Return the ``(p, p)`` symmetric matrix with unit diagonal and these entries above it."""
    rows, columns = off_diagonal(p)
    matrix = np.eye(p)
    matrix[rows, columns] = matrix[columns, rows] = values
    return matrix


def smallest_eigenvalue(matrix: np.ndarray) -> float:
    """Return the smallest eigenvalue of a symmetric matrix (0 for an empty one)."""
    return float(np.linalg.eigvalsh(matrix)[0]) if matrix.size else 0.0


def keep_positive_definite(correlation: np.ndarray, floor: float = EIGENVALUE_FLOOR) -> np.ndarray:
    """Shrink a correlation matrix towards the identity until its smallest eigenvalue is at least
    ``floor``.

    Shrinking by a weight ``w`` moves each eigenvalue ``l`` to ``(1 - w) l + w`` and keeps the unit
    diagonal, so the weight has a closed form and a matrix that is already fine is returned
    untouched.
    """
    smallest = smallest_eigenvalue(correlation)
    if smallest >= floor:
        return correlation
    weight = (floor - smallest) / (1.0 - smallest)
    return (1.0 - weight) * correlation + weight * np.eye(len(correlation))


def cov2cor(covariance: np.ndarray) -> np.ndarray:
    """Return the correlation matrix of a covariance matrix (Algorithm 2, line 3).

    A variable without variance has no correlation: its row becomes that of the identity, never
    ``NaN``.
    """
    variance = np.diag(covariance)
    inverse = np.where(variance > 0, 1.0 / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0)
    correlation = covariance * inverse[:, None] * inverse
    np.fill_diagonal(correlation, 1.0)
    return np.clip(correlation, -1.0, 1.0)


def complete_objective(correlation: np.ndarray, second_moment: np.ndarray) -> float:
    r"""Return :math:`-\tfrac12\{\log|\Gamma| + \mathrm{tr}(\Gamma^{-1} S)\}`, the M-step's
    objective per patient.

    The paper prints :math:`+\log|\Gamma|`, which has no maximum; this is the normal log-density's
    own sign. Returns ``-inf`` where ``correlation`` is not positive definite.
    """
    try:
        factor = np.linalg.cholesky(correlation)
    except np.linalg.LinAlgError:
        return -np.inf
    return -float(np.log(factor.diagonal()).sum()) - 0.5 * float(
        np.linalg.solve(correlation, second_moment).trace()
    )


def _score_and_curvature(correlation: np.ndarray, second_moment: np.ndarray):
    """Return gradient, negative Hessian and Fisher information of the objective in the off-diagonal
    entries."""
    k, m = off_diagonal(len(correlation))  # the pairs b = (k, m) in a row, a = (i, j) in a column
    i, j = k[:, None], m[:, None]
    inverse = np.linalg.inv(correlation)
    sandwich = inverse @ second_moment @ inverse
    gradient = (sandwich - inverse)[k, m]

    def product(left, right):
        # tr(left E_a right E_b) / 2, E_a being the derivative of Gamma in its a-th entry
        first, second = right[j, k] * left[i, m], right[j, m] * left[i, k]
        return 0.5 * (first + second + right[i, m] * left[j, k] + right[i, k] * left[j, m])

    information, mixed = product(inverse, inverse), product(inverse, sandwich)
    return gradient, mixed + mixed.T - information, information


def maximise_over_correlations(
    second_moment: np.ndarray, start: np.ndarray, tol: float = 1e-15, max_iter: int = 100
) -> np.ndarray:
    r"""Return the correlation matrix that maximises the M-step's objective: the constrained
    maximiser.

    Solves :math:`\max_\Gamma -\tfrac12\{\log|\Gamma| + \mathrm{tr}(\Gamma^{-1} S)\}` subject to
    :math:`\mathrm{diag}(\Gamma) = 1` by Newton's method where the objective is concave and by
    Fisher scoring elsewhere, halving each step until it ascends and stays positive definite. The
    result is never worse than ``start``, which is what makes the EM algorithm monotone.

    Parameters
    ----------
    second_moment : (p, p) array
        Mean over patients of the expected outer products of the latent scores.
    start : (p, p) array
        A positive definite correlation matrix.
    tol : float
        Stop when the objective has no more to gain: the entries then are right to about the root of
        this.
    """
    current, value = start, complete_objective(start, second_moment)
    p = len(start)
    upper = off_diagonal(p)
    for _ in range(max_iter if p > 1 else 0):
        gradient, curvature, information = _score_and_curvature(current, second_moment)
        try:  # Newton's step where the objective is concave, that of Fisher scoring elsewhere
            np.linalg.cholesky(curvature - 1e-8 * np.trace(information) * np.eye(len(gradient)))
        except np.linalg.LinAlgError:
            curvature = information
        step = np.linalg.solve(curvature, gradient)
        if gradient @ step < tol:
            break
        for halving in range(40):
            trial = from_off_diagonal(current[upper] + step * 0.5**halving, p)
            trial_value = complete_objective(trial, second_moment)
            if trial_value > value:
                break
        else:
            break
        if smallest_eigenvalue(trial) < EIGENVALUE_FLOOR:
            break  # the maximum is at the edge: stop short of it
        current, value = trial, trial_value
    return current


def unconstrained_from_correlation(correlation: np.ndarray) -> np.ndarray:
    """Return the strictly lower entries of the Cholesky factor with rows divided by their
    diagonal."""
    factor = np.linalg.cholesky(correlation)
    rows, columns = np.tril_indices(len(correlation), -1)
    return (factor / np.diag(factor)[:, None])[rows, columns]


def correlation_from_unconstrained(coordinates: np.ndarray, p: int):
    """Return the correlation matrix of free coordinates and the function that pulls its gradient
    back to them.

    Rows of a unit lower triangular matrix are scaled to length one, ``W``, and ``Gamma = W W'``:
    every real vector gives a correlation matrix, so that an optimiser needs no bounds. The
    pull-back takes the gradient with respect to the ``(p, p)`` matrix, each entry counted on its
    own.
    """
    rows, columns = np.tril_indices(p, -1)
    lower = np.eye(p)
    lower[rows, columns] = coordinates
    length = np.sqrt((lower**2).sum(axis=1, keepdims=True))
    unit = lower / length

    def pull_back(gradient: np.ndarray) -> np.ndarray:
        along = (gradient + gradient.T) @ unit
        tangent = (along - unit * (unit * along).sum(axis=1, keepdims=True)) / length
        return tangent[rows, columns]

    return unit @ unit.T, pull_back
