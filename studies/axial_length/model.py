r"""A regression with a mixed Gaussian copula: the paper's model with a linear predictor in place of
the network.

Each response has :math:`\mu_k = x^\top b_k` (a mean or a logit); ``b``, ``sigma`` and ``Gamma`` are
fitted together by maximum likelihood, missing responses integrated out. It is small enough for
second derivatives, so that standard errors take in what it cost to estimate the margins.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize

from cevit_lib.copula import CopulaParameters, log_density
from cevit_lib.errors import ParameterError, ShapeError

DEPENDENCE = ("none", "eyes apart", "both eyes")
"""Correlations that are free: none; those between two responses of the same eye; all of them."""


@dataclass(frozen=True)
class Regression:
    """A fitted model.

    Attributes
    ----------
    coefficients : (k, p) array
        One column a response, in its units or as logits.
    parameters : CopulaParameters
        Scales in the responses' units.
    log_likelihood : float
        Sum over the patients it was fitted to, in the responses' units.
    converged : bool
    dependence : str
    """

    coefficients: np.ndarray
    parameters: CopulaParameters
    log_likelihood: float
    converged: bool
    dependence: str

    def outputs(self, design: np.ndarray) -> torch.Tensor:
        """Return means and logits ``(n, p)`` for a design ``(n, k)``."""
        return torch.from_numpy(design @ self.coefficients)


def design_matrix(covariates: np.ndarray) -> np.ndarray:
    """Return intercept, age in decades from 60, and female (0, 1) from ``(n, 2)`` age and sex."""
    return np.column_stack(
        [np.ones(len(covariates)), (covariates[:, 0] - 60) / 10, covariates[:, 1]]
    )


def free_correlations(p: int, dependence: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the places below the diagonal of the Cholesky factor that are free.

    With two responses an eye, ordered (a left, a right, b left, b right), the places (2, 0) and (3,
    1) alone give a matrix in which only the responses of one eye are correlated.
    """
    rows, columns = np.tril_indices(p, -1)
    kept = {
        "none": np.zeros(len(rows), bool),
        "eyes apart": rows - columns == p // 2,
        "both eyes": np.ones(len(rows), bool),
    }
    if dependence not in kept:
        raise ParameterError(f"dependence={dependence!r}: give one of {', '.join(DEPENDENCE)}.")
    return rows[kept[dependence]], columns[kept[dependence]]


def correlation_of(
    free: torch.Tensor, p: int, places: tuple[np.ndarray, np.ndarray]
) -> torch.Tensor:
    """Return the correlation matrix whose Cholesky rows, before they are scaled to length 1, hold
    ``free``."""
    factor = torch.eye(p, dtype=torch.float64).index_put(
        tuple(torch.as_tensor(part) for part in places), free
    )
    factor = factor / factor.norm(dim=1, keepdim=True)
    return factor @ factor.T


def fit_regression(
    design: np.ndarray,
    y: np.ndarray,
    continuous: int,
    dependence: str = "both eyes",
    *,
    correlation: np.ndarray | None = None,
    max_iter: int = 500,
) -> Regression:
    """Fit coefficients, scales and correlations by maximum likelihood.

    Parameters
    ----------
    design : (n, k) array
    y : (n, p) array
        Continuous responses first; NaN = not observed, integrated out.
    continuous : int
    dependence : {"none", "eyes apart", "both eyes"}
    correlation : (p, p) array, optional
        Held fixed at this; ``dependence`` is then only a name.

    Raises
    ------
    ShapeError
        ``design`` and ``y`` differ in length.
    """
    if len(design) != len(y):
        raise ShapeError(
            f"{len(design)} rows of covariates and {len(y)} of responses do not agree."
        )
    p, k = y.shape[1], design.shape[1]
    # in standard units all free numbers are of one size, and the search is short
    centre, spread = np.zeros(p), np.ones(p)
    centre[:continuous] = np.nanmean(y[:, :continuous], 0)
    spread[:continuous] = np.nanstd(y[:, :continuous], 0)
    x, responses = torch.from_numpy(design), torch.from_numpy((y - centre) / spread)
    places = free_correlations(p, dependence)
    fixed = None if correlation is None else torch.as_tensor(correlation)
    size = k * p + continuous

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.tensor(point, requires_grad=True)
        gamma = correlation_of(free[size:], p, places) if fixed is None else fixed
        parameters = CopulaParameters(gamma, free[k * p : size].exp(), validate=False)
        value = -log_density(
            x @ free[: k * p].reshape(k, p), responses, parameters, validate=False
        ).mean()
        value.backward()
        return value.item(), free.grad.numpy()

    start = np.zeros(size + (len(places[0]) if fixed is None else 0))
    found = minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iter, "ftol": 1e-13, "gtol": 1e-6, "maxcor": 30},
    )
    coefficients = found.x[: k * p].reshape(k, p) * spread
    coefficients[0] += centre
    gamma = correlation_of(torch.from_numpy(found.x[size:]), p, places) if fixed is None else fixed
    scale = torch.from_numpy(np.exp(found.x[k * p : size]) * spread[:continuous])
    units = np.isfinite(y[:, :continuous]).sum(0) @ np.log(spread[:continuous])
    return Regression(
        coefficients,
        CopulaParameters(gamma, scale, validate=False),
        float(-found.fun * len(y) - units),
        bool(found.success),
        dependence,
    )


def information_errors(
    model: Regression, design: np.ndarray, y: np.ndarray
) -> dict[str, np.ndarray]:
    """Return standard errors from the observed information of all parameters together.

    Returns
    -------
    dict
        ``coefficients`` (k, p), ``scale`` (p0,) and ``correlation`` (p, p), zero where a
        correlation was not fitted; NaN where the information is not positive definite (the
        likelihood has no interior maximum there).
    """
    k, p = model.coefficients.shape
    p0 = model.parameters.p0
    columns, rows = (torch.as_tensor(part) for part in free_correlations(p, model.dependence))
    x, responses = torch.from_numpy(design), torch.from_numpy(y)
    centre = torch.cat(
        [
            torch.from_numpy(model.coefficients).reshape(-1),
            model.parameters.scale,
            model.parameters.correlation[rows, columns],
        ]
    )

    def negative(point: torch.Tensor) -> torch.Tensor:
        upper = torch.zeros(p, p, dtype=torch.float64).index_put(
            (rows, columns), point[k * p + p0 :]
        )
        parameters = CopulaParameters(
            torch.eye(p) + upper + upper.T, point[k * p : k * p + p0], validate=False
        )
        return -log_density(
            x @ point[: k * p].reshape(k, p), responses, parameters, validate=False
        ).sum()

    information = torch.autograd.functional.hessian(negative, centre).numpy()
    errors = np.full(len(centre), np.nan)
    if np.linalg.eigvalsh(information)[0] > 1e-8:
        errors = np.sqrt(np.diag(np.linalg.inv(information)))
    matrix = np.zeros((p, p))
    matrix[rows, columns] = errors[k * p + p0 :]
    return {
        "coefficients": errors[: k * p].reshape(k, p),
        "scale": errors[k * p : k * p + p0],
        "correlation": matrix + matrix.T,
    }


def draw_responses(
    outputs: torch.Tensor, parameters: CopulaParameters, rng: np.random.Generator
) -> torch.Tensor:
    """Draw responses ``(n, p)`` from the model: latent scores first, then each response from its
    own margin."""
    factor = np.linalg.cholesky(parameters.correlation.numpy())
    latent = torch.from_numpy(rng.standard_normal(tuple(outputs.shape)) @ factor.T)
    p0 = parameters.p0
    lengths = outputs[:, :p0] + parameters.scale * latent[:, :p0]
    above = latent[:, p0:] > torch.special.ndtri(torch.sigmoid(-outputs[:, p0:]))
    return torch.cat([lengths, above.double()], 1)
