"""What the copula says about new observations: cells of the label table, classifiers, and what is
still missing.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from cevit_lib.copula.conditioning import all_patterns, likelihood_constants
from cevit_lib.copula.density import log_density, log_density_of_scores, same_dtype, scores
from cevit_lib.copula.parameters import CopulaParameters
from cevit_lib.copula.validation import check_labels, check_outputs, check_pair


def class_probabilities(
    outputs: Tensor, parameters: CopulaParameters, y: Tensor | None = None
) -> Tensor:
    r"""Return the joint probabilities of the binary responses (Section 3.3, put right).

    For two labels :math:`p_{11} = \Phi_2\{\Phi^{-1}(p_3), \Phi^{-1}(p_4); \rho_{34}\}`,
    :math:`p_{10} = p_3 - p_{11}`,
    :math:`p_{01} = p_4 - p_{11}` and :math:`p_{00} = 1 - p_3 - p_4 + p_{11}`; here each cell is one
    normal probability.

    Parameters
    ----------
    outputs : tensor, shape (n, p)
        Means, then logits.
    parameters : CopulaParameters
    y : tensor, shape (n, p), optional
        Where given, the probabilities are conditional on its continuous responses (NaN: not
        measured); its labels are not looked at.

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
    >>> parameters = CopulaParameters([[1.0, 0.5], [0.5, 1.0]], [])  # two labels, nothing else
    >>> class_probabilities(torch.zeros(1, 2), parameters)
    tensor([[[0.3333, 0.1667],
             [0.1667, 0.3333]]])
    """
    check_outputs(outputs, parameters)
    outputs = same_dtype(outputs, outputs)[0]
    y = torch.full_like(outputs, torch.nan) if y is None else y.to(outputs)
    cells = _every_label(parameters.p1, outputs)
    logs = _log_cells(outputs, y, parameters, cells)
    return torch.softmax(logs, 1).reshape(-1, *[2] * parameters.p1)


def _every_label(p1: int, like: Tensor) -> Tensor:
    """Return the labels (2 ** p1, p1) of all cells, the first label changing last."""
    return all_patterns(p1, like.device).flip(1).to(like.dtype)


def _log_cells(outputs: Tensor, y: Tensor, parameters: CopulaParameters, cells: Tensor) -> Tensor:
    """Return the log density (n, m) of ``y`` with its last labels as in each of ``cells`` (m,
    k).
    """
    n, m = len(y), len(cells)
    known = y[:, : y.shape[1] - cells.shape[1]].repeat_interleave(m, 0)
    told, outputs = torch.cat((known, cells.repeat(n, 1)), 1), outputs.repeat_interleave(m, 0)
    return log_density(outputs, told, parameters, validate=False, missing=True).view(n, m)


def bayes_classifier(
    outputs: Tensor, parameters: CopulaParameters, y: Tensor | None = None
) -> Tensor:
    """Return the labels of each observation's most probable cell (Section 3.3), shape (n, p1),
    integers 0 and 1.

    It has the best chance that all labels of an observation are right together; see
    ``marginal_classifier`` for each. Arguments as in ``class_probabilities``.
    """
    cells = class_probabilities(outputs, parameters, y).reshape(len(outputs), 2**parameters.p1)
    return _every_label(parameters.p1, outputs)[cells.argmax(1)].long()


def marginal_classifier(outputs: Tensor, parameters: CopulaParameters) -> Tensor:
    """Return each label by its own probability, ``I(p > 1/2)``, shape (n, p1): best for accuracy by
    the eye.
    """
    check_outputs(outputs, parameters)
    return (outputs[:, parameters.p0 :] > 0).long()


class Completed(NamedTuple):
    """Predictions updated by what was observed; what was observed itself has its own value and no
    uncertainty.

    Attributes
    ----------
    mean : tensor, shape (n, p0)
        Means of the continuous responses, in their units.
    sd : tensor, shape (n, p0)
        Their standard deviations; 0 where observed.
    probability : tensor, shape (n, p1)
        Of a positive label; 0 or 1 where observed.
    """

    mean: Tensor
    sd: Tensor
    probability: Tensor


def condition_on(outputs: Tensor, y_with_nan: Tensor, parameters: CopulaParameters) -> Completed:
    r"""Return what is known of the missing responses once the others were measured.

    A missing label: from the probabilities of the cells that the others leave. A missing
    continuous response: with :math:`L(s)` the log density of what was observed when the latent
    vector's mean is moved by :math:`s`,

    .. math::
       E(u \mid \cdot) = \Gamma \nabla L, \qquad Var(u \mid \cdot) = \Gamma + \Gamma \{\nabla^2 L\}
       \Gamma \qquad \text{at } s = 0,

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
    >>> float(condition_on(torch.zeros(1, 2), seen, parameters).mean)  # half of E|Z|
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
        p0 = parameters.p0
        mean, sd, probability = exact[:, :p0].clone(), exact[:, :p0].clone(), y[:, p0:].clone()
        for rows, labels in by_labels(y, p0):
            known = [*range(p0), *labels]
            if p0:
                few = exact[rows][:, known], y[rows][:, known], fixed.margin(known)
                mean[rows], sd[rows] = _missing_continuous(*few)
            for label in set(range(p0, parameters.p)) - set(labels):
                asked = [*known, label]
                few = exact[rows][:, asked], y[rows][:, asked], fixed.margin(asked)
                logs = _log_cells(*few, _every_label(1, exact)).detach()
                probability[rows, label - p0] = torch.softmax(logs, 1)[:, 1]
    return Completed(mean.to(outputs), sd.to(outputs), probability.to(outputs))


def by_labels(y: Tensor, p0: int) -> Iterator[tuple[Tensor, list[int]]]:
    """Yield the rows whose observed labels are the same, with the columns of these labels: what was
    not observed is one dimension less.
    """
    seen = ~torch.isnan(y[:, p0:])
    codes = (seen * 2 ** torch.arange(seen.shape[1], device=y.device)).sum(1)
    for code in codes.unique():
        rows = (codes == code).nonzero().squeeze(1)
        yield rows, (seen[rows[0]].nonzero().squeeze(1) + p0).tolist()


def _missing_continuous(
    outputs: Tensor, y: Tensor, parameters: CopulaParameters
) -> tuple[Tensor, Tensor]:
    """Return mean and SD of each continuous response given everything observed, both (n, p0)."""
    p0, observed = parameters.p0, ~torch.isnan(y[:, : parameters.p0])
    c, shift = likelihood_constants(parameters, observed), torch.zeros_like(y, requires_grad=True)
    at = scores(outputs, y, c.inverse_scale)
    moved = at._replace(
        residual=at.residual - observed * shift[:, :p0], score=at.score + shift[:, p0:]
    )
    value = log_density_of_scores(moved, c).sum()
    (gradient,) = torch.autograd.grad(value, shift, create_graph=True)
    columns = [
        torch.autograd.grad(column.sum(), shift, retain_graph=True)[0]
        for column in gradient.unbind(1)
    ]
    known = parameters.correlation[:p0]
    mean = outputs[:, :p0] + parameters.scale * (gradient.detach() @ known.T)
    variance = 1 + ((known @ torch.stack(columns, 1)) * known).sum(-1)
    sd = parameters.scale * variance.clamp_min(0).sqrt()
    return torch.where(observed, y[:, :p0], mean), torch.where(observed, 0.0, sd)
