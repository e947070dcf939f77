"""Simulation-based calibration of the proper posterior sampler (Talts et al. 2018).

A matrix is drawn from the prior, patients from the model; then its rank among nearly independent
draws from the posterior is uniform, for each correlation and for the log-likelihood, if the sampler
has the posterior as its law. ``sigma`` is known here, as the posterior takes it.

    python -m studies posterior-calibration
"""

from itertools import islice

import numpy as np
import torch
from joblib import Parallel, delayed
from scipy.stats import chisquare
from torch.distributions import LKJCholesky

from cevit_lib.estimation.mcmc import metropolis_chain
from cevit_lib.estimation.moments import expected_moments
from cevit_lib.estimation.observed import observe
from cevit_lib.normal import normal_score
from cevit_lib.paths import granted_cores
from studies.estimation.toy_example import NAMES, PAIRS
from studies.study import Study

BINS = 10


def replicate(c: dict, stream: np.random.SeedSequence) -> dict:
    """Draw a matrix and patients; return the rank, 0 to ``draws``, of each quantity's truth."""
    rng = np.random.default_rng(stream)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        factor = LKJCholesky(4, 1.0).sample().double().numpy()
    truth = factor @ factor.T
    latent = rng.standard_normal((c["n"], 4)) @ factor.T
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
    size = {"replications": 200, "thin": 30} if scale == "paper" else {"replications": 2, "thin": 2}
    return [({"n": 40, "burn_in": 1000, "draws": 49} | size, 4600)]


def fit(c: dict, seed: int, scale: str) -> dict:
    """Return every rank, and for each quantity the chi-square test of uniformity."""
    streams = np.random.SeedSequence(seed).spawn(c["replications"])
    rows = Parallel(n_jobs=granted_cores())(delayed(replicate)(c, stream) for stream in streams)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    edges = np.linspace(-0.5, c["draws"] + 0.5, BINS + 1)
    p_values = {
        name: float(chisquare(np.histogram(ranks, edges)[0]).pvalue)
        for name, ranks in columns.items()
    }
    return {"metrics": {"p_value": p_values}, "columns": columns}


STUDY = Study("posterior-calibration", settings, fit, device="cpu")
