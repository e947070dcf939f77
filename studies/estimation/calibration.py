"""Simulation-based calibration of the proper posterior sampler (Talts et al. 2018).

A matrix is drawn from the prior, patients from the model; then its rank among nearly independent
draws from the posterior is uniform, for each correlation and for the log-likelihood, if the sampler
has the posterior as its law. ``sigma`` is known here, as the posterior takes it.

    python -m studies posterior-calibration
"""

from itertools import islice

import numpy as np
import torch
from scipy.stats import chisquare

from cevit_lib.estimation.correlation import (
    EIGENVALUE_FLOOR,
    from_off_diagonal,
    smallest_eigenvalue,
)
from cevit_lib.estimation.mcmc import metropolis_chain
from cevit_lib.estimation.moments import expected_moments
from cevit_lib.estimation.observed import observe
from cevit_lib.normal import normal_score
from cevit_lib.paths import granted_cores
from studies.estimation.toy_example import NAMES, PAIRS
from studies.study import Study, replications

BINS = 5


def uniform_correlation(rng: np.random.Generator) -> np.ndarray:
    """Return a draw from the prior: entries from the cube until they are a correlation matrix.

    PyTorch's ``LKJCholesky`` (2.14) has another law at four dimensions: the variance of a
    correlation is .24 there, not 1/5.
    """
    while True:
        matrix = from_off_diagonal(rng.uniform(-1, 1, 6), 4)
        if smallest_eigenvalue(matrix) > EIGENVALUE_FLOOR:
            return matrix


def replicate(c: dict, stream: np.random.SeedSequence) -> dict:
    """Draw a matrix and patients; return the rank, 0 to ``draws``, of each quantity's truth."""
    rng = np.random.default_rng(stream)
    truth = uniform_correlation(rng)
    latent = rng.multivariate_normal(np.zeros(4), truth, c["n"])
    outputs = rng.standard_normal((c["n"], 4))
    scores = normal_score(torch.from_numpy(outputs[:, 2:])).numpy()
    y = np.concatenate([outputs[:, :2] + latent[:, :2], latent[:, 2:] + scores > 0], axis=1)
    observed, scale = observe(outputs, y, continuous=2), np.ones(2)
    chain = metropolis_chain(observed, scale, c["burn_in"], rng)
    last = c["burn_in"] + c["draws"] * c["thin"]
    drawn = islice(chain, c["burn_in"] + c["thin"] - 1, last, c["thin"])

    def quantities(matrix):
        log_likelihood = expected_moments(observed, scale, matrix).log_likelihood
        return np.array([*(matrix[pair] for pair in PAIRS), log_likelihood])

    ranks = (np.array([quantities(one) for one in drawn]) < quantities(truth)).sum(axis=0)
    return dict(zip((*NAMES, "log-likelihood"), ranks.tolist(), strict=True))


def settings(scale: str = "paper") -> list[tuple[dict, int]]:
    """Return the one setting with its seed."""
    size = {"replications": 200, "thin": 40} if scale == "paper" else {"replications": 2, "thin": 2}
    return [({"n": 40, "burn_in": 600, "draws": 24} | size, 4600)]


def fit(c: dict, seed: int, scale: str) -> dict:
    """Return every rank, and for each quantity the chi-square test of uniformity."""
    columns = replications(replicate, c, seed, granted_cores())
    edges = np.linspace(-0.5, c["draws"] + 0.5, BINS + 1)
    p_values = {
        name: float(chisquare(np.histogram(ranks, edges)[0]).pvalue)
        for name, ranks in columns.items()
    }
    return {"metrics": {"p_value": p_values}, "columns": columns}


STUDY = Study("posterior-calibration", settings, fit, device="cpu")
