"""What the copula says about new observations: cells of the label table, classifiers, and what is still missing."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from cevit_lib.copula.conditional import condition
from cevit_lib.copula.density import log_cell, log_density, same_dtype, upper_limits
from cevit_lib.copula.parameters import CopulaParameters
from cevit_lib.copula.printed import printed_conditional_cells, printed_prediction_cells
from cevit_lib.copula.validation import check_labels, check_outputs, check_pair


def class_probabilities(
    outputs: Tensor, parameters: CopulaParameters, y: Tensor | None = None, formula: str = "right"
) -> Tensor:
    r"""Return the joint probabilities of the binary responses (Section 3.3, put right).

    For two labels :math:`p_{11} = \Phi_2\{\Phi^{-1}(p_3), \Phi^{-1}(p_4); \rho_{34}\}`, :math:`p_{10} = p_3 - p_{11}`,
    :math:`p_{01} = p_4 - p_{11}` and :math:`p_{00} = 1 - p_3 - p_4 + p_{11}`; here each cell is one normal probability.

    Parameters
    ----------
    outputs : tensor, shape (n, p)
        Means, then logits.
    parameters : CopulaParameters
    y : tensor, shape (n, p), optional
        Where given, the probabilities are conditional on its continuous responses (NaN: not measured); its labels are
        not looked at.
    formula : {"right", "printed", "printed-corollary"}
        The printed cells (never the default) need not be probabilities.

    Returns
    -------
    tensor, shape (n, 2, ..., 2)
        Indexed ``[observation, y_{p0+1}, ..., y_p]``.

    Raises
    ------
    ShapeError
        ``outputs`` or ``y`` do not fit the parameters.

    Examples
    --------
    >>> parameters = CopulaParameters([[1.0, 0.5], [0.5, 1.0]], [])  # two labels, no continuous response
    >>> class_probabilities(torch.zeros(1, 2), parameters)
    tensor([[[0.3333, 0.1667],
             [0.1667, 0.3333]]])
    """
    check_outputs(outputs, parameters)
    outputs = same_dtype(outputs, outputs)[0]
    if formula != "right":
        if y is None:
            return printed_prediction_cells(outputs, parameters)
        return printed_conditional_cells(outputs, y.to(outputs), parameters, formula)
    measured = torch.full_like(outputs, torch.nan) if y is None else y.to(outputs)
    measured = measured[:, : parameters.p0]
    cells = torch.tensor(
        list(product((0.0, 1.0), repeat=parameters.p1)), dtype=outputs.dtype, device=outputs.device
    )
    n, count = len(outputs), len(cells)
    responses = torch.cat(
        (measured.repeat_interleave(count, 0), cells.repeat(n, 1)), 1
    )  # (n * cells, p)
    logs = log_density(
        outputs.repeat_interleave(count, 0), responses, parameters, validate=False, missing=True
    )
    # the density of what was measured is common to an observation's cells and cancels
    return torch.softmax(logs.reshape(n, count), 1).reshape(n, *[2] * parameters.p1)


def bayes_classifier(
    outputs: Tensor, parameters: CopulaParameters, y: Tensor | None = None, formula: str = "right"
) -> Tensor:
    """Return the labels of each observation's most probable cell (Section 3.3), shape (n, p1), integers 0 and 1.

    It has the best chance that all labels of an observation are right together; see ``marginal_classifier`` for each.
    Arguments as in ``class_probabilities``.
    """
    if parameters.p1 == 0:
        return outputs.new_zeros(len(outputs), 0, dtype=torch.long)
    best = class_probabilities(outputs, parameters, y, formula).flatten(1).argmax(1)
    places = torch.arange(parameters.p1 - 1, -1, -1, device=outputs.device)
    return (best[:, None] >> places) & 1


def marginal_classifier(outputs: Tensor, parameters: CopulaParameters) -> Tensor:
    """Return each label by its own probability, ``I(p > 1/2)``, shape (n, p1): best for accuracy by the eye."""
    check_outputs(outputs, parameters)
    return (outputs[:, parameters.p0 :] > 0).long()


class Completed(NamedTuple):
    """Predictions updated by what was observed; what was observed itself has its own value and no uncertainty.

    Attributes
    ----------
    mean : tensor, shape (n, p0)
        Means of the continuous responses, in their units.
    sd : tensor, shape (n, p0)
        Their standard deviations; 0 where observed.
    probability : tensor, shape (n, p1)
        Of a positive label; 0 or 1 where observed.
    """

    mean: Tensor  # (n, p0) conditional means of the continuous responses
    sd: Tensor  # (n, p0) conditional standard deviations, 0 where observed
    probability: (
        Tensor  # (n, p1) conditional probabilities of a positive label; 0 or 1 where observed
    )


def condition_on(outputs: Tensor, y_with_nan: Tensor, parameters: CopulaParameters) -> Completed:
    r"""Return what is known of the missing responses once the others were measured.

    A missing label: the two densities with that label set to 1 and to 0 give its odds. A missing continuous response:
    with :math:`m` and :math:`\Sigma` the moments of the latent vector given the measured residuals, and
    :math:`\log P` the log probability of the observed labels as a function of the scores' mean :math:`\mu_B`,

    .. math::
       E(u_j \mid \cdot) = m_j + \Sigma_{jB} \nabla \log P, \qquad
       Var(u_j \mid \cdot) = \Sigma_{jj} + \Sigma_{jB} \{\nabla^2 \log P\} \Sigma_{Bj},

    which are Tallis' moments of a truncated normal vector, written by derivatives.

    Parameters
    ----------
    outputs : tensor, shape (n, p)
        Means, then logits.
    y_with_nan : tensor, shape (n, p)
        Responses; NaN what is to be predicted.
    parameters : CopulaParameters

    Returns
    -------
    Completed
        In the dtype of ``outputs``, computed in float64, without gradients.

    Raises
    ------
    ShapeError, LabelError
        The arguments do not fit each other, or a label is not 0, 1 or NaN.

    Examples
    --------
    >>> parameters = CopulaParameters([[1.0, 0.5], [0.5, 1.0]], [1.0])
    >>> seen = torch.tensor([[float("nan"), 1.0]])  # the label only
    >>> float(condition_on(torch.zeros(1, 2), seen, parameters).mean)  # 1/2 times the mean of a positive normal
    0.3989...
    """
    check_pair(outputs, y_with_nan, parameters)
    check_labels(y_with_nan, parameters.p0)
    with torch.inference_mode(False), torch.enable_grad():
        exact, y = (
            outputs.detach().clone().double(),
            y_with_nan.detach().clone().to(outputs.device).double(),
        )
        fixed = parameters.detach().to(device=outputs.device, dtype=torch.float64)
        mean, sd = _missing_continuous(exact, y, fixed)
        probability = _missing_labels(exact, y, fixed)
    return Completed(mean.to(outputs), sd.to(outputs), probability.to(outputs))


def _missing_labels(outputs: Tensor, y: Tensor, parameters: CopulaParameters) -> Tensor:
    """Return the probability of each label given everything observed (n, p1)."""
    columns = []
    for k in range(parameters.p0, parameters.p):
        logs = []
        for label in (1.0, 0.0):
            filled = y.clone()
            filled[:, k] = label
            logs.append(log_density(outputs, filled, parameters, validate=False).detach())
        columns.append(torch.where(torch.isnan(y[:, k]), torch.sigmoid(logs[0] - logs[1]), y[:, k]))
    return torch.stack(columns, 1) if columns else y[:, parameters.p0 :]


def _missing_continuous(
    outputs: Tensor, y: Tensor, parameters: CopulaParameters
) -> tuple[Tensor, Tensor]:
    """Return mean and SD of each continuous response given everything observed, both (n, p0)."""
    p0 = parameters.p0
    observed = ~torch.isnan(y[:, :p0])
    measured = torch.where(observed, y[:, :p0], outputs[:, :p0])
    location, covariance = _latent_moments(
        (measured - outputs[:, :p0]) / parameters.scale, observed, parameters
    )
    gradient, hessian = _cell_derivatives(outputs, y, parameters)
    cross = covariance[:, :p0, p0:]  # (n, p0, p1)
    mean = location[:, :p0] + (cross @ gradient.unsqueeze(-1)).squeeze(-1)
    variance = covariance.diagonal(dim1=1, dim2=2)[:, :p0] + ((cross @ hessian) * cross).sum(-1)
    mean = torch.where(observed, y[:, :p0], outputs[:, :p0] + parameters.scale * mean)
    return mean, torch.where(observed, 0.0, parameters.scale * variance.clamp_min(0).sqrt())


def _latent_moments(
    residual: Tensor, observed: Tensor, parameters: CopulaParameters
) -> tuple[Tensor, Tensor]:
    """Return mean (n, p) and covariance (n, p, p) of the latent vector given the observed residuals."""
    p0, gamma = parameters.p0, parameters.correlation
    precision = condition(parameters, observed).precision  # zero rows and columns where missing
    regression = gamma[:, :p0] @ precision  # (n, p, p0)
    return (regression @ residual.unsqueeze(-1)).squeeze(-1), gamma - regression @ gamma[:p0]


def _cell_derivatives(
    outputs: Tensor, y: Tensor, parameters: CopulaParameters
) -> tuple[Tensor, Tensor]:
    """Return gradient (n, p1) and Hessian (n, p1, p1) of the observed cell's log probability in the scores' mean."""
    shift = torch.zeros_like(outputs[:, parameters.p0 :])
    if parameters.p1 == 0:
        return shift, shift.new_zeros(len(shift), 0, 0)
    shift.requires_grad_()
    c = condition(parameters, ~torch.isnan(y[:, : parameters.p0]))
    upper, sign = upper_limits(outputs, y, c, missing=True)
    value = log_cell(upper + sign * c.inverse_sd * shift, sign, c).sum()
    (gradient,) = torch.autograd.grad(value, shift, create_graph=True)
    rows = [
        torch.autograd.grad(column.sum(), shift, retain_graph=True)[0]
        for column in gradient.unbind(1)
    ]
    return gradient.detach(), torch.stack(rows, 1)
