r"""The paper's formulas as they are printed, kept so that the book can show where they part from the right ones.

Nothing in the library uses them by default. What differs:

* Equation (10): :math:`\Phi_2` is printed at :math:`(-\mu_3, -\mu_4)`; its thresholds are
  :math:`c_k = \Phi^{-1}\{\mathcal S(-\mu_k)\}`, as in the univariate terms. The four printed cells still sum to one.
* Corollary A.1: for a positive label that is not flipped the upper limit is printed as :math:`-c_k`; in an
  inclusion-exclusion it is :math:`+\infty`.
* Section 3.3: the printed :math:`\hat p_{(1,1)}` is the probability of (0, 0), and the printed
  :math:`\hat p_{(0,0)}` adds :math:`\hat p_{(1,1)}` where it has to be subtracted.
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from cevit_lib.copula.conditional import Conditional, condition
from cevit_lib.copula.parameters import CopulaParameters
from cevit_lib.errors import ShapeError
from cevit_lib.normal import (
    bivariate_normal_cdf,
    log_multivariate_normal_cdf,
    log_normal_cdf,
    normal_score,
)

FORMULAS = ("right", "printed", "printed-corollary")


def printed_log_density(
    outputs: Tensor, y: Tensor, parameters: CopulaParameters, formula: str
) -> Tensor:
    """Return the log density (n,) by a printed formula; NaN where its probability is negative or ``y`` has NaN."""
    c, location = _standardised_location(outputs, y, parameters)
    residual = (y[:, : parameters.p0] - outputs[:, : parameters.p0]) * c.inverse_scale
    quadratic = ((residual @ c.precision[0]) * residual).sum(-1)
    labels = y[:, parameters.p0 :]
    if formula == "printed":
        probability = _bracket(outputs, location, c, labels, parameters)
    elif formula == "printed-corollary":
        probability = _corollary(outputs, location, c, labels, parameters.p0)
    else:
        raise ValueError(f"formula must be one of {', '.join(FORMULAS)}, not {formula!r}")
    return probability.log() - 0.5 * quadratic + c.constant


def printed_conditional_cells(
    outputs: Tensor, y: Tensor, parameters: CopulaParameters, formula: str = "printed"
) -> Tensor:
    """Return what the printed formulas take for P(labels | continuous responses), shape (n, 2, ..., 2).

    Parameters
    ----------
    outputs, y : tensors, shape (n, p)
        The labels in ``y`` are not used.
    parameters : CopulaParameters
    formula : {"printed", "printed-corollary"}
    """
    c, location = _standardised_location(outputs, y, parameters)
    cells = []
    for cell in product((0.0, 1.0), repeat=parameters.p1):
        labels = outputs.new_tensor(cell).expand(len(outputs), -1)
        if formula == "printed":
            cells.append(_bracket(outputs, location, c, labels, parameters))
        else:
            cells.append(_corollary(outputs, location, c, labels, parameters.p0))
    return torch.stack(cells, -1).reshape(-1, *[2] * parameters.p1)


def printed_prediction_cells(outputs: Tensor, parameters: CopulaParameters) -> Tensor:
    """Return the four cells of Section 3.3 as printed, shape (n, 2, 2) indexed [y_3, y_4]; they need not sum to one."""
    _need_two_labels(parameters)
    score = normal_score(outputs[:, -2:])
    p3, p4 = torch.sigmoid(outputs[:, -2]), torch.sigmoid(outputs[:, -1])
    rho = parameters.correlation[-1, -2].to(outputs)
    p11 = bivariate_normal_cdf(-score[:, 0], -score[:, 1], rho)
    p01, p10 = p4 - p11, p3 - p11
    return torch.stack((1 + p11 - p01 - p10, p01, p10, p11), -1).reshape(-1, 2, 2)


def _need_two_labels(parameters: CopulaParameters) -> None:
    if parameters.p1 != 2:
        raise ShapeError(f"this printed formula is for two binary responses, not {parameters.p1}")


def _standardised_location(
    outputs: Tensor, y: Tensor, parameters: CopulaParameters
) -> tuple[Conditional, Tensor]:
    """Return the constants, and the conditional mean of the latent scores in units of their conditional SD (n, p1)."""
    c = condition(parameters).to(outputs)
    residual = (y[:, : parameters.p0] - outputs[:, : parameters.p0]) * c.inverse_scale
    return c, residual @ c.loading[0].mT


def _bracket(
    outputs: Tensor, location: Tensor, c: Conditional, labels: Tensor, parameters: CopulaParameters
) -> Tensor:
    """Return the bracket of equation (10) as printed: right univariate terms, raw logits in the bivariate one."""
    _need_two_labels(parameters)
    logit = outputs[:, parameters.p0 :]
    threshold = -normal_score(logit) * c.inverse_sd - location
    below = log_normal_cdf(threshold).exp()
    raw = -logit * c.inverse_sd - location
    both = bivariate_normal_cdf(raw[:, 0], raw[:, 1], c.correlation[:, 0, 1])
    y3, y4 = labels[:, 0], labels[:, 1]
    return (
        y4 * (1 - 2 * y3) * below[:, 0]
        + y3 * (1 - 2 * y4) * below[:, 1]
        + (1 - 2 * y3) * (1 - 2 * y4) * both
        + y3 * y4
    )


def _corollary(
    outputs: Tensor, location: Tensor, c: Conditional, labels: Tensor, p0: int
) -> Tensor:
    """Return the alternating sum of Corollary A.1 with its printed limits, for any number of labels."""
    threshold = -normal_score(outputs[:, p0:])
    total = 0.0
    for flipped in product((0.0, 1.0), repeat=labels.shape[-1]):
        flipped = labels.new_tensor(flipped)
        subset = torch.where(flipped == 1, labels, 1.0).prod(
            -1
        )  # 1 where every flipped label is positive
        limit = torch.where((labels == 1) & (flipped == 0), -threshold, threshold)
        upper = limit * c.inverse_sd - location
        probability = log_multivariate_normal_cdf(
            upper, torch.zeros_like(upper), c.correlation
        ).exp()
        total = total + (-1) ** int(flipped.sum()) * subset * probability
    return total
