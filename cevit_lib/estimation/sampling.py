"""Draws of truncated latent scores: exact one at a time, far in the tails too, and by Gibbs sweeps
of several."""

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp

from cevit_lib.estimation.moments import with_missing
from cevit_lib.estimation.observed import Pattern

#: Below this limit the probability of the admitted side is close to underflow and its logarithm is
#: used instead.
DEEP = -30.0


def sample_above(b: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Return standard normal draws conditioned to exceed ``-b``, by inversion of the upper tail.

    Parameters
    ----------
    b : (n,) array
        The admitted side has probability ``Phi(b)``; ``+inf`` admits everything, ``-40`` is fine.
    uniform : (n,) array
        Uniform draws in (0, 1).
    """
    draws = -ndtri(uniform * ndtr(b))
    deep = b < DEEP
    if deep.any():
        draws[deep] = -ndtri_exp(np.log(uniform[deep]) + log_ndtr(b[deep]))
    return draws


def open_uniform(rng: np.random.Generator, shape) -> np.ndarray:
    """Return uniform draws in the open interval (0, 1): zero would map to infinity."""
    return rng.random(shape) + 2.0**-54


def gibbs_sweep(
    z: np.ndarray,
    precision: np.ndarray,
    columns: np.ndarray,
    threshold: np.ndarray,
    sign: np.ndarray,
    uniform: np.ndarray,
) -> None:
    """Redraw each of ``columns`` given all others, in place.

    Parameters
    ----------
    z : (p, n) array
        Latent scores, one row a variable (contiguous patients), overwritten.
    precision : (p, p) array
        Inverse of their covariance matrix.
    columns : (k,) int array
        Variables to redraw, in this order.
    threshold, sign, uniform : (k, n) arrays
        A score lies above its threshold where the sign is +1 and below it where it is -1; ``-inf``
        with +1 is free. One whose sign is 0 is known and stays.
    """
    for index, column in enumerate(columns):
        sd = precision[column, column] ** -0.5
        weights = -precision[column] / precision[column, column]
        weights[column] = 0.0
        mean = weights @ z
        side = sign[index]
        beyond = sample_above(side * (mean - threshold[index]) / sd, uniform[index])
        z[column] = np.where(side == 0, z[column], mean + side * sd * beyond)


class Chains:
    """Gibbs chains over the latents of one pattern: ``draws`` for each patient, kept from one
    E-step to the next."""

    def __init__(self, part: Pattern, scale: np.ndarray, draws: int):
        self.part, self.draws = part, draws
        u = np.repeat(part.residual / scale[part.continuous], draws, axis=0).T
        self.threshold = np.repeat(part.threshold, draws, axis=0).T
        self.sign = np.repeat(part.sign, draws, axis=0).T
        # Any admitted point will do as a start: one unit beyond the threshold.
        self.z = np.concatenate([u, self.threshold + self.sign])
        self.columns = np.arange(len(u), len(self.z))

    def second_moment(
        self, correlation: np.ndarray, sweeps: int, rng: np.random.Generator
    ) -> np.ndarray:
        """Sweep on under ``correlation`` and return the (p, p) summed outer products, a mean over
        draws."""
        order = self.part.seen
        precision = np.linalg.inv(correlation[np.ix_(order, order)])
        for _ in range(sweeps if len(self.columns) else 0):
            uniform = open_uniform(rng, self.threshold.shape)
            gibbs_sweep(self.z, precision, self.columns, self.threshold, self.sign, uniform)
        return with_missing(self.z @ self.z.T / self.draws, self.part, correlation)


def inverse_wishart(scale: np.ndarray, degrees: float, rng: np.random.Generator) -> np.ndarray:
    """Return one draw from the inverse Wishart law, by Bartlett's decomposition."""
    p = len(scale)
    factor = np.tril(rng.standard_normal((p, p)), -1)
    factor[np.diag_indices(p)] = np.sqrt(rng.chisquare(degrees - np.arange(p)))
    root = np.linalg.solve(factor, np.linalg.cholesky(scale).T)
    return root.T @ root
