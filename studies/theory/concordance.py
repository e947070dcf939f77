r"""Concordance of two labels: the monotonicity lemma of Supplement A.2, where it holds and where it
does not.

P_conc(q3, q4) = P(y3 = y4) = 1 - Phi(q3) - Phi(q4) + 2 Phi_2(q3, q4; rho). The printed form is 2
Phi_2(q3, q4; rho), from a symmetry Phi_2(a, b; r) = Phi_2(-a, -b; r) that does not hold.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.special import ndtr

from cevit_lib.normal import bivariate_normal_cdf
from studies.theory.arrays import tensor


def concordance_probability(q3, q4, correlation):
    """P(y3 = y4 | q3, q4) under a Gaussian copula with latent correlation ``correlation``."""
    return 1.0 - ndtr(q3) - ndtr(q4) + printed_concordance_probability(q3, q4, correlation)


def printed_concordance_probability(q3, q4, correlation):
    """2 Phi_2(q3, q4; rho) as printed; exceeds 1 for large scores. Kept, wrong, so that nobody
    fixes it back."""
    return 2.0 * bivariate_normal_cdf(tensor(q3), tensor(q4), tensor(correlation)).numpy()


def expected_concordance(mean, covariance, correlation):
    """E P_conc for Gaussian scores (q3, q4) ~ N(mean, covariance), in closed form.

    w_j = q_j + u_j is Gaussian with variance 1 + s_j^2 and the labels are its signs, so the
    expectation is the concordance probability at the attenuated means and the correlation (gamma +
    rho) / sqrt((1 + s3^2)(1 + s4^2)).

    Parameters
    ----------
    mean : array, shape (2,)
        Means of q3 and q4.
    covariance : array, shape (2, 2)
        Of the scores; ``s_j^2`` are its diagonal and ``gamma`` its off-diagonal element.
    correlation : float
        Latent ``rho`` given the images.
    """
    covariance = np.asarray(covariance, dtype=float)
    spread = np.sqrt(1.0 + np.diag(covariance))
    attenuated = np.asarray(mean, dtype=float) / spread
    return concordance_probability(*attenuated, (covariance[0, 1] + correlation) / spread.prod())


@dataclass(frozen=True)
class TransportPlan:
    """A joint distribution of two scores on a grid: ``weights[i, j]`` = P(q3 = support[i], q4 =
    support[j]).

    Attributes
    ----------
    support : array, shape (k,)
        Values that both scores take.
    weights : array, shape (k, k)
        Probabilities; they add up to 1.
    covariance : float
        Of the two scores under ``weights``.
    concordance : float
        Expected probability of equal labels, ``E P_conc``.
    """

    support: np.ndarray
    weights: np.ndarray
    covariance: float
    concordance: float


def extreme_concordance(
    support, margin, covariance, correlation, largest: bool = False
) -> TransportPlan:
    """Joint distribution with given margins and covariance whose expected concordance is smallest
    (or largest).

    A linear programme over all joint distributions of (q3, q4) on ``support`` x ``support`` with
    both margins equal to ``margin``: it finds the counter-example to "E P_conc is increasing in
    Cov(q3, q4) given fixed margins".

    Raises
    ------
    ValueError
        No joint distribution with these margins has that covariance.
    """
    support, margin = np.asarray(support, dtype=float), np.asarray(margin, dtype=float)
    size = len(support)
    cost = concordance_probability(support[:, None], support[None, :], correlation).ravel()
    rows = np.kron(np.eye(size), np.ones(size))
    columns = np.kron(np.ones(size), np.eye(size))
    product = np.outer(support, support).ravel()
    target = covariance + (support @ margin) ** 2
    found = linprog(
        -cost if largest else cost,
        A_eq=np.vstack([rows, columns, product]),
        b_eq=np.concatenate([margin, margin, [target]]),
        bounds=(0, None),
        method="highs",
    )
    if not found.success:
        raise ValueError(
            f"no joint distribution with these margins has covariance {covariance}: {found.message}"
        )
    reached = float(product @ found.x - (support @ margin) ** 2)
    return TransportPlan(support, found.x.reshape(size, size), reached, float(cost @ found.x))
