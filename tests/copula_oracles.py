"""Independent ways to the likelihood, slow and plain: two-dimensional grids for any Gamma, one
factor for any p.
"""

import numpy as np
import torch
from scipy.special import expit, ndtr, ndtri, roots_legendre
from scipy.stats import norm

GAMMA = np.array(
    [[1, 0.72, 0.36, 0.3], [0.72, 1, 0.29, 0.4], [0.36, 0.29, 1, 0.569], [0.3, 0.4, 0.569, 1]]
)
SCALE = np.array([1.3, 0.7])
OUTPUTS = np.array(
    [[0.2, -0.4, 0.7, 1.6], [1.0, 0.5, -1.5, -0.3], [-0.3, 0.9, 3.0, -2.0], [0.0, 0.1, 0.0, 0.0]]
)
MEASURED = np.array([[0.9, -0.2], [2.1, 1.4], [-1.8, 1.1], [0.3, -1.2]])
CELLS = [(0, 0), (0, 1), (1, 0), (1, 1)]


def double(values):
    """Return a float64 tensor."""
    return torch.as_tensor(values, dtype=torch.float64)


def patients(correlation, p0, n, rng):
    """Draw outputs and responses (n, p) of this copula, continuous ones first, of scale 2."""
    p = len(correlation)
    scores = rng.multivariate_normal(np.zeros(p), correlation, size=n)
    outputs = rng.standard_normal((n, p))
    labels = scores[:, p0:] + ndtri(expit(outputs[:, p0:])) > 0  # 1 where its latent score is high
    return double(outputs), double(np.c_[outputs[:, :p0] + 2 * scores[:, :p0], labels])


def nodes(low, high, count=120):
    """Return Gauss-Legendre nodes and weights on [low, high]; +-inf is cut at +-12."""
    low, high = max(low, -12.0), min(high, 12.0)
    x, w = roots_legendre(count)
    return 0.5 * (high - low) * x + 0.5 * (high + low), 0.5 * (high - low) * w


def cell_limits(logit, label):
    """Return the interval of the latent score for a label: y = 1 where u >= c, c =
    Phi^{-1}(S(-mu)).
    """
    threshold = ndtri(expit(-logit))
    return (threshold, np.inf) if label else (-np.inf, threshold)


def song_density(outputs, y, gamma, scale):
    """Return f(y) of two continuous and two binary responses: margins times the copula density,
    integrated over the labels' cell (Song, Li and Yuan, 2009).
    """
    e = (y[:2] - outputs[:2]) / scale
    t3, w3 = nodes(*cell_limits(outputs[2], y[2]))
    t4, w4 = nodes(*cell_limits(outputs[3], y[3]))
    u = np.stack(np.broadcast_arrays(e[0], e[1], t3[:, None], t4[None, :]), -1)
    exponent = 0.5 * np.einsum("abi,ij,abj->ab", u, np.eye(4) - np.linalg.inv(gamma), u)
    copula = np.exp(exponent) / np.sqrt(np.linalg.det(gamma))
    margins = np.prod(norm.pdf(y[:2], outputs[:2], scale))
    return margins * ((w3 * norm.pdf(t3)) @ copula @ (w4 * norm.pdf(t4)))


class OneFactor:
    """Gamma = diag(1 - l^2) + l l': given the factor all responses are independent: one integral
    does it.
    """

    def __init__(self, loadings, scale):
        self.loadings, self.scale, self.p0 = (
            np.asarray(loadings),
            np.asarray(scale, dtype=float),
            len(scale),
        )
        self.gamma = np.outer(loadings, loadings) + np.diag(1 - self.loadings**2)
        self.t, weight = nodes(-np.inf, np.inf, 400)
        self.weight = weight * norm.pdf(self.t)

    def terms(self, outputs, y):
        """Return the product over observed responses of f(y_j | t) at every node."""
        total = np.ones_like(self.t)
        for j in np.flatnonzero(~np.isnan(y)):
            if j >= self.p0:
                total *= self.label_probability(j, outputs[j], y[j])
            else:
                rest = self.scale[j] * np.sqrt(1 - self.loadings[j] ** 2)
                mean = outputs[j] + self.scale[j] * self.loadings[j] * self.t
                total *= norm.pdf(y[j], mean, rest)
        return total

    def label_probability(self, j, logit, label):
        sign = 2 * label - 1
        score = ndtri(expit(logit))
        return ndtr(sign * (score + self.loadings[j] * self.t) / np.sqrt(1 - self.loadings[j] ** 2))

    def density(self, outputs, y):
        return self.weight @ self.terms(outputs, y)

    def complete(self, outputs, y):
        """Return mean, SD and probability of what is missing, as ``condition_on``."""
        posterior = self.weight * self.terms(outputs, y)
        posterior = posterior / posterior.sum()
        factor = posterior @ self.t
        spread = posterior @ (self.t - factor) ** 2
        l0 = self.loadings[: self.p0]
        missing = np.isnan(y[: self.p0])
        mean = np.where(missing, outputs[: self.p0] + self.scale * l0 * factor, y[: self.p0])
        sd = np.where(missing, self.scale * np.sqrt(1 - l0**2 + l0**2 * spread), 0.0)
        labels = range(self.p0, len(outputs))
        chance = [
            posterior @ self.label_probability(j, outputs[j], 1) if np.isnan(y[j]) else y[j]
            for j in labels
        ]
        return mean, sd, np.array(chance)
