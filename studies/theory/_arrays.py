"""NumPy faces of the normal probabilities, so that the checks read like the formulas."""

import numpy as np
import torch
from scipy.special import log_ndtr, ndtr, ndtri

from cevit_lib.normal import bivariate_normal_cdf

TOY_CORRELATION = np.array(
    [
        [1.0, 0.720, 0.294, 0.213],
        [0.720, 1.0, 0.205, 0.336],
        [0.294, 0.205, 1.0, 0.569],
        [0.213, 0.336, 0.569, 1.0],
    ]
)
"""``Gamma`` of Section 5 and Supplement B.2, in the order (AL_L, AL_R, HM_L, HM_R)."""

__all__ = [
    "bivariate_cdf",
    "log_ndtr",
    "ndtr",
    "ndtri",
    "normal_density",
    "outputs_from_scores",
    "scores_from_outputs",
    "tensor",
]


def bivariate_cdf(x, y, correlation):
    """P(Z1 < x, Z2 < y) of a standard normal pair, as an array; see :func:`cevit_lib.normal.bivariate_normal_cdf`."""
    tensors = [
        torch.as_tensor(np.asarray(a, dtype=float)) for a in np.broadcast_arrays(x, y, correlation)
    ]
    return bivariate_normal_cdf(*[t.contiguous() for t in tensors]).numpy()


def tensor(values) -> torch.Tensor:
    """A float64 tensor."""
    return torch.as_tensor(np.asarray(values, dtype=float))


def normal_density(x):
    """Density of N(0, 1)."""
    return np.exp(-0.5 * np.square(x)) / np.sqrt(2.0 * np.pi)


def outputs_from_scores(scores, n_continuous: int = 2):
    """Turn Gaussian scores q into network outputs mu: means stay, binary scores become logits of Phi(q).

    Parameters
    ----------
    scores : array (n, p)
        q_1, ..., q_p of Section 4; the first ``n_continuous`` are conditional means.

    Returns
    -------
    array (n, p), float64. The logit is log Phi(q) - log Phi(-q), exact in both tails.
    """
    scores = np.array(scores, dtype=float)
    binary = scores[:, n_continuous:]
    scores[:, n_continuous:] = log_ndtr(binary) - log_ndtr(-binary)
    return scores


def scores_from_outputs(outputs, n_continuous: int = 2):
    """Turn outputs into Gaussian scores: q = mu for a mean, q = Phi^{-1}(S(mu)) for a logit (Section 4).

    Uses ``q = -sign(mu) Phi^{-1}(S(-|mu|))``, which keeps its accuracy where S(mu) rounds to 1.
    """
    outputs = np.array(outputs, dtype=float)
    logits = outputs[:, n_continuous:]
    outputs[:, n_continuous:] = -np.sign(logits) * ndtri(
        1.0 / (1.0 + np.exp(np.abs(np.clip(logits, -700, 700))))
    )
    return outputs
