r"""Remark 4 and the prediction scheme: the law of total covariance, and which rule maximises which
accuracy."""

import numpy as np
from scipy.special import ndtr

from cevit_lib.copula import CopulaParameters, class_probabilities
from cevit_lib.normal import bivariate_normal_cdf
from studies.theory.arrays import tensor
from studies.theory.printed import printed_prediction_cells


def total_label_covariance(mean, variance, covariance, correlation) -> dict:
    """Law of total covariance of the two labels for Gaussian scores, in closed form.

    Given the images, Cov(y3, y4 | X) = Phi_2(q3, q4; rho34) - Phi(q3) Phi(q4) (Remark 4, right as
    printed).

    Parameters
    ----------
    mean : (2,)
        Means of q3 and q4.
    variance, covariance : float
        Of the scores; both have the same variance.
    correlation : float
        Latent rho34 given the images.

    Returns
    -------
    dict with ``within`` = E Cov(y3, y4 | X), ``between`` = Cov(E(y3 | X), E(y4 | X)) and ``total``
    = Cov(y3, y4).
    """
    spread = 1.0 + variance
    m3, m4 = np.asarray(mean, dtype=float) / np.sqrt(spread)
    correlations = tensor([covariance + correlation, covariance]) / spread
    joint = bivariate_normal_cdf(tensor(m3), tensor(m4), correlations).numpy()
    total, between = joint - ndtr(m3) * ndtr(m4)
    return {"within": total - between, "between": between, "total": total}


def implied_latent_correlation(estimated_covariance, true_covariance, correlation):
    """rho34 that keeps the labels' joint distribution when Cov(q3, q4) changes but the margins do
    not.

    For Gaussian scores the labels see only Cov(q3, q4) + rho34 (:func:`total_label_covariance`), so
    a covariance that is too large by d leaves a latent correlation that is too *small* by d,
    exactly as for regression.
    """
    return correlation - (np.asarray(estimated_covariance, dtype=float) - true_covariance)


def label_cells(p3, p4, correlation: float, formula: str = "right") -> np.ndarray:
    """P(y3, y4) of the four cells from the marginal probabilities: (n, 2, 2), indexed [:, y3, y4]
    (Section 3.3).

    ``formula="printed"`` gives the cells as printed, which are not probabilities (see
    ``studies.theory.printed``).
    """
    logits = np.stack([np.log(p) - np.log1p(-p) for p in (np.asarray(p3), np.asarray(p4))], 1)
    parameters = CopulaParameters([[1.0, correlation], [correlation, 1.0]], [])
    cells = class_probabilities if formula == "right" else printed_prediction_cells
    return cells(tensor(logits), parameters).numpy()


def evaluate_rule(cells, predicted, reference) -> dict:
    """Evaluate predicted cells under the true cell probabilities.

    Parameters
    ----------
    cells : array (n, 2, 2)
        True probabilities.
    predicted, reference : int arrays (n,)
        Cell numbers 2 y3 + y4 of the rule and of the marginal rule.

    Returns
    -------
    dict
        Averages over the n patients: ``joint``, P(both eyes right); ``per_eye``, the mean over the
        two eyes of P(right); ``differs_from_marginal``, the share whose predicted pair does.
        ``never``: cells ``[y3, y4]`` that the rule never predicts.
    """
    y3, y4 = predicted // 2, predicted % 2
    p3, p4 = cells[:, 1].sum(-1), cells[:, :, 1].sum(-1)
    right = (np.where(y3 == 1, p3, 1 - p3) + np.where(y4 == 1, p4, 1 - p4)) / 2
    return {
        "joint": float(cells.reshape(-1, 4)[np.arange(len(cells)), predicted].mean()),
        "per_eye": float(right.mean()),
        "differs_from_marginal": float((predicted != reference).mean()),
        "never": [[*divmod(c, 2)] for c in range(4) if not (predicted == c).any()],
    }


def compare_rules(p3, p4, correlation) -> dict[str, dict]:
    """Marginal rule (p > 1/2), joint Bayes rule and the printed joint rule, on the same patients.

    The Bayes rule for the pair maximises joint accuracy; the marginal rule maximises per-eye
    accuracy, the metric of the paper's ACC_L and ACC_R. No rule can beat either at its own metric,
    whatever the correlation.
    """
    cells = label_cells(p3, p4, correlation)
    marginal = 2 * (p3 > 0.5).astype(int) + (p4 > 0.5)
    rules = {
        "marginal": marginal,
        "joint": cells.reshape(-1, 4).argmax(1),
        "printed": label_cells(p3, p4, correlation, "printed").reshape(-1, 4).argmax(1),
    }
    return {name: evaluate_rule(cells, predicted, marginal) for name, predicted in rules.items()}
