"""NumPy at the rim, tensors inside: what all checks need to call the library's normal
probabilities."""

import numpy as np
import torch
from scipy.special import log_ndtr

from cevit_lib.normal import normal_score


def tensor(values) -> torch.Tensor:
    """A float64 tensor."""
    return torch.as_tensor(np.asarray(values, dtype=float))


def outputs_from_scores(scores, n_continuous: int = 2):
    """Turn Gaussian scores q into network outputs mu: means stay, binary scores become logits of
    Phi(q).

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
    """Turn outputs into Gaussian scores: q = mu for a mean, q = Phi^{-1}(S(mu)) for a logit
    (Section 4)."""
    outputs = np.array(outputs, dtype=float)
    outputs[:, n_continuous:] = normal_score(tensor(outputs[:, n_continuous:])).numpy()
    return outputs
