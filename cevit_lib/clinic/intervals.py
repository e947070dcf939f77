"""Prediction intervals of a continuous response: normal before anything is measured, by its exact
density after.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cevit_lib.copula import CopulaParameters, condition_on, log_density
from cevit_lib.copula.prediction import by_labels
from cevit_lib.errors import ParameterError

POINTS = 401  # of the grid on which a conditional density is integrated
REACH = 9.0  # its half width in SDs


def tail(level: float) -> float:
    """Return the probability beyond each end of an interval.

    Raises
    ------
    ParameterError
        The level is not between 0 and 1.
    """
    if not 0 < level < 1:
        raise ParameterError(f"level={level}: give a number between 0 and 1, such as 0.9.")
    return (1 - level) / 2


def marginal_interval(
    outputs: Tensor, parameters: CopulaParameters, level: float
) -> tuple[Tensor, Tensor]:
    """Return the ends of each continuous response's interval, both ``(n, p0)``: mean and quantile
    times scale.

    The scale is that of the residuals on which the copula parameters were estimated; how uncertain
    it and the network are is not in it.
    """
    half = (
        -torch.special.ndtri(torch.tensor(tail(level), dtype=torch.float64))
        * parameters.scale.double()
    )
    means = outputs[:, : parameters.p0].double()
    return means - half, means + half


def conditional_interval(
    outputs: Tensor, y: Tensor, parameters: CopulaParameters, column: int, level: float
) -> tuple[Tensor, Tensor]:
    """Return the ends of one continuous response's interval given what was measured, both ``(n,)``.

    Given labels the distribution is no normal one any more, so its density, the joint one as a
    function of the missing response, is summed on a grid and the quantiles are read off.

    Parameters
    ----------
    outputs, y : tensor, shape (n, p)
        As of ``condition_on``; where column ``column`` of ``y`` is measured the interval is that
        value.
    parameters : CopulaParameters
    column : int
        Which continuous response.
    level : float
        Probability of the interval.
    """
    outputs, y = outputs.double(), y.double()
    low, high = torch.full_like(y[:, column], torch.nan), torch.full_like(y[:, column], torch.nan)
    for rows, labels in by_labels(y, parameters.p0):  # labels that nobody looked at are left out
        if not torch.isnan(y[rows, column]).any():  # nothing is left to say
            low[rows] = high[rows] = y[rows, column]
            continue
        kept = [*range(parameters.p0), *labels]
        few = outputs[rows][:, kept], y[rows][:, kept], parameters.margin(kept)
        low[rows], high[rows] = _interval(*few, column, tail(level))
    return low, high


def _interval(
    outputs: Tensor, y: Tensor, parameters: CopulaParameters, column: int, beyond: float
) -> tuple[Tensor, Tensor]:
    """Return the ends of the interval of patients who have the same labels, all in ``y``."""
    known = condition_on(outputs, y, parameters)
    centre, sd = known.mean[:, column], known.sd[:, column]
    steps = torch.linspace(-REACH, REACH, POINTS, dtype=torch.float64)
    grid = centre[:, None] + sd[:, None] * steps  # (n, points)
    filled = y.repeat_interleave(POINTS, 0)
    filled[:, column] = grid.flatten()
    logs = log_density(
        outputs.repeat_interleave(POINTS, 0), filled, parameters, validate=False, missing=True
    )
    density = torch.softmax(logs.reshape(-1, POINTS), 1)
    below = density.cumsum(1) - density / 2  # a point's weight is spread around it
    ends = [_read_off(below, grid, at) for at in (beyond, 1 - beyond)]
    measured = ~torch.isnan(y[:, column])
    return tuple(torch.where(measured, y[:, column], end) for end in ends)


def _read_off(below: Tensor, grid: Tensor, at: float) -> Tensor:
    """Return where a distribution function given on a grid reaches ``at``, linear between the
    points.
    """
    right = (below < at).sum(1, keepdim=True).clamp(1, POINTS - 1)
    low, high = below.gather(1, right - 1), below.gather(1, right)
    left, far = grid.gather(1, right - 1), grid.gather(1, right)
    share = ((at - low) / (high - low).clamp_min(1e-300)).clamp(0, 1)
    return (left + share * (far - left)).squeeze(1)
