r"""The paper's formulas as they are printed, kept so that the book can show where they part from
the right ones.

* Equation (10): :math:`\Phi_2` is printed at :math:`(-\mu_3, -\mu_4)`; its
  thresholds are
  :math:`c_k = \Phi^{-1}\{\mathcal S(-\mu_k)\}`, as in the univariate terms. The four printed cells
  still sum to one.
* Corollary A.1: for a positive label that is not flipped the upper limit is
  printed as
  :math:`-c_k`; in an inclusion-exclusion it is :math:`+\infty`.
* Section 3.3: the printed :math:`\hat p_{(1,1)}` is the probability of (0, 0), and the printed
  :math:`\hat p_{(0,0)}` adds :math:`\hat p_{(1,1)}` where it has to be subtracted.
* Sections 2.3 and 3.1: signs of the objective and of the cross entropy, and a trace that is called
  invariant.
"""

from itertools import product

import numpy as np
import torch
from torch import Tensor

from cevit_lib.copula import CopulaParameters, likelihood_constants, scores_given
from cevit_lib.normal import (
    bivariate_normal_cdf,
    log_multivariate_normal_cdf,
    log_normal_cdf,
    normal_score,
)


def printed_conditional_cells(outputs: Tensor, y: Tensor, parameters: CopulaParameters) -> Tensor:
    """Return what the printed bracket of equation (10) takes for P(labels | continuous responses),
    shape (n, 2, 2).

    Right limits stand in the univariate terms, raw logits in the bivariate one. The labels in ``y``
    are not used.
    """
    c, p0 = likelihood_constants(parameters).to(outputs), parameters.p0
    logit = outputs[:, p0:]
    residual = (y[:, :p0].to(outputs) - outputs[:, :p0]) * c.inverse_scale
    mean = residual @ c.loading[0].mT  # of the latent scores, in their SDs
    below = log_normal_cdf(-normal_score(logit) * c.inverse_sd - mean).exp()
    raw = -logit * c.inverse_sd - mean
    both = bivariate_normal_cdf(raw[:, 0], raw[:, 1], c.correlation[:, 0, 1])
    cells = [
        y4 * (1 - 2 * y3) * below[:, 0]
        + y3 * (1 - 2 * y4) * below[:, 1]
        + (1 - 2 * y3) * (1 - 2 * y4) * both
        + y3 * y4
        for y3, y4 in product((0.0, 1.0), repeat=2)
    ]
    return torch.stack(cells, -1).reshape(-1, 2, 2)


def printed_prediction_cells(outputs: Tensor, parameters: CopulaParameters) -> Tensor:
    """Return the four cells of Section 3.3 as printed, (n, 2, 2) indexed [y_3, y_4]; they need not
    sum to one.
    """
    score = normal_score(outputs[:, -2:])
    p3, p4 = torch.sigmoid(outputs[:, -2:]).unbind(1)
    rho = parameters.correlation[-1, -2].to(outputs)
    p11 = bivariate_normal_cdf(-score[:, 0], -score[:, 1], rho)
    p01, p10 = p4 - p11, p3 - p11
    return torch.stack((1 + p11 - p01 - p10, p01, p10, p11), -1).reshape(-1, 2, 2)


def printed_corollary(
    labels: Tensor, threshold: Tensor, mean: Tensor, covariance: Tensor
) -> Tensor:
    """Return the alternating sum of Corollary A.1 (n,) with its printed limits, for any number of
    labels.

    Parameters
    ----------
    labels, threshold, mean : tensors, shape (n, p1)
        ``threshold`` is ``c``, ``mean`` that of the latent scores given the residuals.
    covariance : tensor, shape (..., p1, p1)
        Of the latent scores given the residuals.
    """
    total = 0.0
    for flipped in product((0.0, 1.0), repeat=labels.shape[-1]):
        flipped = labels.new_tensor(flipped)
        subset = torch.where(flipped == 1, labels, 1.0).prod(-1)  # 1 where all flipped are positive
        limit = torch.where((labels == 1) & (flipped == 0), -threshold, threshold)
        probability = log_multivariate_normal_cdf(limit, mean, covariance).exp()
        total = total + (-1) ** int(flipped.sum()) * subset * probability
    return total


def printed_expected_log_likelihood(covariance, scatter) -> float:
    """log|Gamma| - tr(Gamma^{-1} S) / 2, as printed: without a bound over covariance matrices.
    Kept, wrong; ``cevit_lib.estimation.correlation.complete_objective`` is right."""
    return np.linalg.slogdet(covariance)[1] - 0.5 * np.trace(np.linalg.solve(covariance, scatter))


def trace_term(correlation, old_correlation) -> float:
    """tr{Gamma^{-1} blockdiag(0, V_old)}: equals p1 at Gamma = Gamma_old only.

    Section 2.3 calls it "invariant and unrelated to Gamma"; in the M-step V is of the old Gamma
    and Gamma varies. Both matrices are (4, 4).
    """
    covariance = scores_given(old_correlation, [2, 3], [0, 1]).covariance.numpy()
    return float(np.trace(np.linalg.inv(correlation)[2:, 2:] @ covariance))


def printed_cross_entropy(probability, y):
    """y log(p) + (1 - y) log(1 - p): Section 3.1 without the minus; its minimum is the wrong label.
    Kept, wrong."""
    return y * np.log(probability) + (1 - y) * np.log1p(-np.asarray(probability))
