"""Study ``linear-overfit``: an overfitted linear model's residuals, in-sample and cross-fitted, p/n
from 0.05 to 0.75.

A linear model is the smallest network that can overfit: ``p`` features an eye, least squares and
logistic regression.

    python -m studies linear-overfit --device cpu,cpu     two settings at a time
"""

import numpy as np
import torch

from cevit_lib.copula import log_density
from cevit_lib.datasets.toy import TOY_CORRELATION
from cevit_lib.estimation import FastMCEM, MaximumLikelihood
from studies.estimation.plug_in import plug_in_outputs, ridge_regression, with_intercept
from studies.estimation.toy_example import NAMES, PAIRS, mean_and_sd, rounded
from studies.study import Study, fitted, replications

RATIOS = (0.05, 0.1, 0.25, 0.5, 0.75)
#: Standard deviations of the continuous mean and of the logit.
SIGNAL = (1.0, 1.33)


def draw(
    n: int, p: int, beta: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return covariates (n, 2, p), correlated 1/2 between fellow eyes, and responses (n, 4) as in
    the toy example.
    """
    shared, own = rng.standard_normal((n, 1, p)), rng.standard_normal((n, 2, p))
    covariates = np.sqrt(0.5) * (shared + own)
    u = rng.standard_normal((n, 4)) @ np.linalg.cholesky(TOY_CORRELATION).T
    mean = covariates @ beta[0]
    logit = covariates @ beta[1]
    uniform = torch.special.ndtr(torch.from_numpy(u[:, 2:])).numpy()
    latent = np.log(uniform) - np.log1p(-uniform)
    return covariates, np.concatenate([mean + u[:, :2], (logit + latent > 0).astype(float)], axis=1)


def penalties(kind: str, p: int) -> tuple[float, float]:
    """Return the ridge penalties: next to none, or those of the prior that the coefficients were
    drawn from.

    Logistic regression separates the classes from p/n of about 0.4 on, so that ``"none"`` still
    means one unit there.
    """
    return (1e-8, 1.0) if kind == "none" else (p / SIGNAL[0] ** 2, p / SIGNAL[1] ** 2)


def replicate(c: dict, stream: np.random.SeedSequence) -> dict:
    """Draw, fit, and estimate from in-sample and from cross-fitted outputs; returns ``{column:
    value}``.
    """
    rng = np.random.default_rng(stream)
    n, p = c["n"], c["features"]
    beta = rng.standard_normal((2, p)) / np.sqrt(p) * np.array(SIGNAL)[:, None]
    covariates, y = draw(n, p, beta, rng)
    penalty = penalties(c["penalty"], p)
    outputs = {"in-sample": plug_in_outputs(covariates, y, covariates, penalty)}
    outputs["cross-fitted"] = np.empty_like(y)
    for fold in np.array_split(rng.permutation(n), c["folds"]):
        rest = np.setdiff1d(np.arange(n), fold)
        outputs["cross-fitted"][fold] = plug_in_outputs(
            covariates[rest], y[rest], covariates[fold], penalty
        )
    fresh, fresh_y = draw(2 * c["test_patients"], p, beta, rng)
    fresh_outputs = plug_in_outputs(covariates, y, fresh, penalty)
    half = c["test_patients"]
    test = torch.from_numpy(fresh_outputs[:half]), torch.from_numpy(fresh_y[:half])
    row = {}
    for name, (x, labels) in {
        "in-sample": (outputs["in-sample"], y),
        "cross-fitted": (outputs["cross-fitted"], y),
        "oracle": (fresh_outputs[half:], fresh_y[half:]),
    }.items():
        for estimator in (MaximumLikelihood(), FastMCEM()):
            key = f"{name}.{'ml' if isinstance(estimator, MaximumLikelihood) else 'fmcem'}"
            row |= describe(key, estimator, x, labels, test)
    return row | {"expected.rho12": expected_in_sample(covariates, penalty[0])}


def describe(key: str, estimator, outputs: np.ndarray, y: np.ndarray, test) -> dict:
    """Fit and return correlations, scale and the log-likelihood of fresh patients under the
    estimate.
    """
    parameters = fitted(estimator, outputs, y).parameters_
    correlation = parameters.correlation.numpy()
    found = {
        f"{key}.{label}": float(correlation[pair]) for label, pair in zip(NAMES, PAIRS, strict=True)
    }
    return found | {
        f"{key}.scale": float(parameters.scale.mean()),
        f"{key}.eigenvalue": float(np.linalg.eigvalsh(correlation)[0]),
        f"{key}.heldout": float(log_density(*test, parameters, validate=False).mean()),
    }


def expected_in_sample(covariates: np.ndarray, penalty: float) -> float:
    r"""Return the correlation that least-squares residuals are expected to have in this very
    design.

    Residuals are :math:`M_j\epsilon_j` with :math:`M_j = I - H_j`, so that their correlation is
    about :math:`\rho_{12}\,\mathrm{tr}(M_1 M_2) / \{\mathrm{tr}(M_1^2)\,\mathrm{tr}(M_2^2)\}^{1/2}`
    (a ratio of expectations, exact without a penalty).
    """
    makers = []
    for eye in range(2):
        design = with_intercept(covariates[:, eye])
        identity = np.eye(len(design))
        makers.append(identity - design @ ridge_regression(design, identity, penalty))
    left, right = makers
    return float(
        TOY_CORRELATION[0, 1] * (left * right).sum() / np.sqrt((left**2).sum() * (right**2).sum())
    )


def configuration(ratio: float, penalty: str, scale: str = "paper") -> dict:
    """Return the full configuration of one setting."""
    n = 400 if scale == "paper" else 120
    return {
        "n": n,
        "ratio": ratio,
        "features": round(ratio * n),
        "penalty": penalty,
        "folds": 5,
        "test_patients": 2000 if scale == "paper" else 300,
        "replications": 40 if scale == "paper" else 2,
    }


def settings(scale: str = "paper") -> list[tuple[dict, int]]:
    """Return configuration and seed of every setting; both penalties meet the same data."""
    ratios = RATIOS if scale == "paper" else (0.05, 0.5)
    return [
        (configuration(ratio, penalty, scale), 4400 + index)
        for penalty in ("none", "ridge")
        for index, ratio in enumerate(ratios)
    ]


def fit(c: dict, seed: int, scale: str) -> dict:
    """Run all replications of a setting; return every column, and its mean and spread."""
    columns = replications(replicate, c, seed)
    metrics = {name: mean_and_sd(values) for name, values in columns.items()}
    return {"metrics": metrics, "columns": rounded(columns)}


STUDY = Study("linear-overfit", settings, fit, device="cpu")
