r"""Moments of a bivariate normal pair truncated to a quadrant: the Tallis lemma of Supplement A.2, put right.

For (Z1, Z2) standard normal with correlation r and the quadrant R = (c1, inf) x (c2, inf) write
alpha(c1, c2) = P(R) and L = log alpha. From the moment generating function (Tallis, 1961)

    E[exp(t'Z); R] = exp{(t1^2 + t2^2 + 2 r t1 t2) / 2} alpha(c1 - t1 - r t2, c2 - r t1 - t2)

two derivatives at t = 0 give

    Cov(Z1, Z2 | R) = r + r (L11 + L22) + (1 + r^2) L12,      Var(Z1 | R) = 1 + L11 + 2 r L12 + r^2 L22.

The page "Proofs, checked" derives them; the printed lemma has r - L12 instead.
"""

from dataclasses import dataclass

import numpy as np

from studies.theory._arrays import bivariate_cdf, ndtr, normal_density


@dataclass(frozen=True)
class QuadrantDerivatives:
    """First and second derivatives of L = log P(Z1 > c1, Z2 > c2) in the thresholds; all broadcast together.

    Attributes
    ----------
    first : tuple of array
        In ``c1`` and in ``c2``.
    l11, l22, l12 : array
        Second derivatives: in ``c1`` twice, in ``c2`` twice, mixed.
    """

    first: tuple
    l11: np.ndarray
    l22: np.ndarray
    l12: np.ndarray


def quadrant_probability(c1, c2, correlation):
    """alpha(c1, c2) = P(Z1 > c1, Z2 > c2) = Phi_2(-c1, -c2; r)."""
    return bivariate_cdf(-np.asarray(c1, dtype=float), -np.asarray(c2, dtype=float), correlation)


def quadrant_derivatives(c1, c2, correlation) -> QuadrantDerivatives:
    """Derivatives of log alpha, in closed form.

    d alpha / d c1 = -phi(c1) Phi((r c1 - c2) / s) with s^2 = 1 - r^2 and d2 alpha / dc1 dc2 = phi_2(c1, c2; r).
    """
    c1, c2, r = np.broadcast_arrays(*[np.asarray(a, dtype=float) for a in (c1, c2, correlation)])
    s = np.sqrt(1.0 - r**2)
    alpha = quadrant_probability(c1, c2, r)
    density = np.exp(-0.5 * (c1**2 - 2 * r * c1 * c2 + c2**2) / s**2) / (2 * np.pi * s)
    a1 = -normal_density(c1) * ndtr((r * c1 - c2) / s)
    a2 = -normal_density(c2) * ndtr((r * c2 - c1) / s)
    a11 = -c1 * a1 - r * density
    a22 = -c2 * a2 - r * density
    first = a1 / alpha, a2 / alpha
    return QuadrantDerivatives(
        first,
        a11 / alpha - first[0] ** 2,
        a22 / alpha - first[1] ** 2,
        density / alpha - first[0] * first[1],
    )


def quadrant_covariance(c1, c2, correlation):
    """Cov(Z1, Z2 | Z1 > c1, Z2 > c2): the right form of the Tallis lemma, r + r (L11 + L22) + (1 + r^2) L12."""
    d, r = quadrant_derivatives(c1, c2, correlation), np.asarray(correlation, dtype=float)
    return r + r * (d.l11 + d.l22) + (1 + r**2) * d.l12


def printed_quadrant_covariance(c1, c2, correlation):
    """The covariance as the supplement prints it, r - L12. Kept, wrong, so that nobody fixes it back."""
    return np.asarray(correlation, dtype=float) - quadrant_derivatives(c1, c2, correlation).l12


def quadrant_variances(c1, c2, correlation):
    """Var(Z1 | R) and Var(Z2 | R)."""
    d, r = quadrant_derivatives(c1, c2, correlation), np.asarray(correlation, dtype=float)
    return 1 + d.l11 + 2 * r * d.l12 + r**2 * d.l22, 1 + d.l22 + 2 * r * d.l12 + r**2 * d.l11


def quadrant_means(c1, c2, correlation):
    """E(Z1 | R) and E(Z2 | R): minus the first derivatives, mixed by the correlation."""
    (f1, f2), r = (
        quadrant_derivatives(c1, c2, correlation).first,
        np.asarray(correlation, dtype=float),
    )
    return -(f1 + r * f2), -(r * f1 + f2)


def quadrant_correlation(c1, c2, correlation):
    """Corr(Z1, Z2 | Z1 > c1, Z2 > c2): strictly between 0 and r for r > 0, in every quadrant."""
    v1, v2 = quadrant_variances(c1, c2, correlation)
    return quadrant_covariance(c1, c2, correlation) / np.sqrt(v1 * v2)


def cell_moments(q3, q4, correlation):
    """Moments of (u3, u4) in the four label cells given Gaussian scores q3, q4.

    Label 1 means u > -q. A cell with label 0 is the quadrant of -u, so signs flip the thresholds and the correlation.

    Returns
    -------
    dict (y3, y4) -> dict with keys ``probability``, ``mean3``, ``mean4``, ``covariance``, ``correlation``.
    """
    cells = {}
    for y3 in (0, 1):
        for y4 in (0, 1):
            s3, s4 = 2 * y3 - 1, 2 * y4 - 1
            args = (
                -s3 * np.asarray(q3, dtype=float),
                -s4 * np.asarray(q4, dtype=float),
                s3 * s4 * correlation,
            )
            m3, m4 = quadrant_means(*args)
            cells[y3, y4] = {
                "probability": quadrant_probability(*args),
                "mean3": s3 * m3,
                "mean4": s4 * m4,
                "covariance": s3 * s4 * quadrant_covariance(*args),
                "correlation": s3 * s4 * quadrant_correlation(*args),
            }
    return cells


def decompose_latent_correlation(q3, q4, correlation) -> dict:
    """Split rho34 = Cov(u3, u4) into the part within the label cells and the part between them.

    The proof of Proposition 1 takes the weighted *within*-cell correlation for the probability limit of the estimator
    (``printed_limit``); the law of total covariance says that the between-cell part must be added.

    Parameters
    ----------
    q3, q4 : array (n,)
        True Gaussian scores; averages are over their empirical distribution.

    Returns
    -------
    dict of float
        ``printed_limit``; ``within`` and ``between`` the cells; their sum ``total``, which is ``rho34``.
    """
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # a cell far in the tail has no weight and no moments
        cells = cell_moments(q3, q4, correlation)

    def average(*names):
        total = 0.0
        for cell in cells.values():
            product = np.prod([cell[name] for name in names], axis=0)
            total = total + np.where(
                cell["probability"] > 1e-12, cell["probability"] * product, 0.0
            )
        return float(np.mean(total))

    printed, within, between = (
        average("correlation"),
        average("covariance"),
        average("mean3", "mean4"),
    )
    return {
        "printed_limit": printed,
        "within": within,
        "between": between,
        "total": within + between,
    }
