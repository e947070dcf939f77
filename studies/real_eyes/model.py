r"""A regression with a mixed Gaussian copula: the paper's model with a linear predictor in place of
the network.

Each response has :math:`\mu_k = x_k^\top b` (a mean or a logit); ``b``, ``sigma`` and ``Gamma`` are
fitted together by maximum likelihood, missing responses integrated out. It is small enough for
second derivatives, so that standard errors take in what it cost to estimate the margins.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize

from cevit_lib.copula import CopulaParameters, log_density

DEPENDENCE = ("none", "within an eye", "all")
"""Correlations that are free: none; those of two responses of one eye; all of them."""


@dataclass(frozen=True)
class Regression:
    """A fitted model.

    Attributes
    ----------
    coefficients : (K,) array
        In the responses' units or as logits.
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
        """Return means and logits ``(n, p)`` for a design ``(n, p, K)``."""
        return torch.from_numpy(design @ self.coefficients)


def design_of(covariates: np.ndarray, p: int = 4, *, shared: bool = False) -> np.ndarray:
    """Return the design ``(n, p, K)`` of covariates ``(n, 2, k)``: an intercept and what is known
    of the response's own eye.

    Each response has coefficients of its own, K = p (k + 1), or, ``shared``, both eyes' responses
    of one kind have the same. What is not known of an eye without responses stands as 0.
    """
    x = np.nan_to_num(np.concatenate([np.ones((len(covariates), 2, 1)), covariates], axis=2))
    blocks = p // 2 if shared else p
    design = np.zeros((len(x), p, blocks, x.shape[2]))
    for response in range(p):
        design[:, response, response // 2 if shared else response] = x[:, response % 2]
    return design.reshape(len(x), p, -1)


def free_correlations(p: int, dependence: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the places below the diagonal of the Cholesky factor that are free.

    With two responses an eye, ordered (a left, a right, b left, b right), the places (2, 0) and (3,
    1) alone give a matrix in which only the responses of one eye are correlated.
    """
    rows, columns = np.tril_indices(p, -1)
    kept = {
        "none": np.zeros(len(rows), bool),
        "within an eye": rows - columns == p // 2,
        "all": np.ones(len(rows), bool),
    }
    return rows[kept[dependence]], columns[kept[dependence]]


def correlation_of(
    free: torch.Tensor, p: int, places: tuple[np.ndarray, np.ndarray]
) -> torch.Tensor:
    """Return the correlation matrix whose Cholesky rows, before they are scaled to length 1, hold
    ``free``.
    """
    at = tuple(torch.as_tensor(part) for part in places)
    factor = torch.eye(p, dtype=torch.float64).index_put(at, free)
    factor = factor / factor.norm(dim=1, keepdim=True)
    return factor @ factor.T


def fit_regression(
    design: np.ndarray,
    y: np.ndarray,
    continuous: int,
    dependence: str = "all",
) -> Regression:
    """Fit coefficients, scales and correlations by maximum likelihood.

    Parameters
    ----------
    design : (n, p, K) array
    y : (n, p) array
        Continuous responses first; NaN = not observed, integrated out.
    continuous : int
    dependence : {"none", "within an eye", "all"}
    """
    p, k = design.shape[1:]
    x, responses = torch.from_numpy(design), torch.from_numpy(y)
    places = free_correlations(p, dependence)

    def parts(point: torch.Tensor) -> tuple[torch.Tensor, CopulaParameters]:
        b, log_scale, free = point.split([k, continuous, len(point) - k - continuous])
        gamma = correlation_of(free, p, places)
        return b, CopulaParameters(gamma, log_scale.exp(), validate=False)

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.tensor(point, requires_grad=True)
        b, parameters = parts(free)
        value = -log_density(x @ b, responses, parameters, validate=False).mean()
        value.backward()
        return value.item(), free.grad.numpy()

    start = np.zeros(k + continuous + len(places[0]))
    start[:k], start[k : k + continuous] = _least_squares(design, y, continuous)
    options = {"maxiter": 500, "ftol": 1e-13, "gtol": 1e-6, "maxcor": 30}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    b, parameters = parts(torch.from_numpy(found.x))
    likelihood = float(-found.fun * len(y))
    return Regression(b.numpy(), parameters, likelihood, bool(found.success), dependence)


def _least_squares(design: np.ndarray, y: np.ndarray, p0: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where the search starts: coefficients of the continuous responses (0 for the labels')
    and the logarithms of their residuals' SD.
    """
    seen = np.isfinite(y[:, :p0])
    b = np.linalg.lstsq(design[:, :p0][seen], y[:, :p0][seen], rcond=None)[0]
    return b, np.log(np.nanstd(y[:, :p0] - design[:, :p0] @ b, axis=0))


def information_errors(
    model: Regression, design: np.ndarray, y: np.ndarray
) -> dict[str, np.ndarray]:
    """Return standard errors from the observed information of all parameters together.

    Returns
    -------
    dict
        ``coefficients`` (K,), ``scale`` (p0,) and ``correlation`` (p, p), zero where a correlation
        was not fitted; NaN where the information is not positive definite (the likelihood has no
        interior maximum there).
    """
    p, k = design.shape[1:]
    p0 = model.parameters.p0
    columns, rows = map(torch.as_tensor, free_correlations(p, model.dependence))
    x, responses = torch.from_numpy(design), torch.from_numpy(y)
    free = model.parameters.correlation[rows, columns]
    centre = torch.cat([torch.from_numpy(model.coefficients), model.parameters.scale, free])

    def negative(point: torch.Tensor) -> torch.Tensor:
        b, scale, rho = point.split([k, p0, len(rows)])
        upper = torch.zeros(p, p, dtype=torch.float64).index_put((rows, columns), rho)
        parameters = CopulaParameters(torch.eye(p) + upper + upper.T, scale, validate=False)
        return -log_density(x @ b, responses, parameters, validate=False).sum()

    information = torch.autograd.functional.hessian(negative, centre).numpy()
    errors = np.full(len(centre), np.nan)
    if np.linalg.eigvalsh(information)[0] > 1e-8:
        errors = np.sqrt(np.diag(np.linalg.inv(information)))
    matrix = np.zeros((p, p))
    matrix[rows.numpy(), columns.numpy()] = errors[k + p0 :]
    return {
        "coefficients": errors[:k],
        "scale": errors[k : k + p0],
        "correlation": matrix + matrix.T,
    }


def draw_responses(
    outputs: torch.Tensor, parameters: CopulaParameters, rng: np.random.Generator
) -> torch.Tensor:
    """Draw responses ``(n, p)`` from the model: latent scores first, then each response from its
    own margin.
    """
    factor = np.linalg.cholesky(parameters.correlation.numpy())
    latent = torch.from_numpy(rng.standard_normal(tuple(outputs.shape)) @ factor.T)
    p0 = parameters.p0
    numbers = outputs[:, :p0] + parameters.scale * latent[:, :p0]
    above = latent[:, p0:] > torch.special.ndtri(torch.sigmoid(-outputs[:, p0:]))
    return torch.cat([numbers, above.double()], 1)
