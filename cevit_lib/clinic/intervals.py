"""Prediction intervals of a continuous response: normal before anything is measured, by its exact
density after.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from cevit_lib.copula import CopulaParameters, condition_on, log_density
from cevit_lib.copula.prediction import by_labels

POINTS = 401  # of the grid on which a conditional density is integrated
REACH = 9.0  # its half width in SDs


def marginal_interval(
    outputs: Tensor, parameters: CopulaParameters, level: float
) -> tuple[Tensor, Tensor]:
    """Return the ends of each continuous response's interval, both ``(n, p0)``: mean and quantile
    times scale.

    The scale is that of the residuals on which the copula parameters were estimated; how uncertain
    it and the network are is not in it.
    """
    half = norm.ppf((1 + level) / 2) * parameters.scale.double()
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
        low[rows], high[rows] = _interval(*few, column, (1 - level) / 2)
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
    pairs = zip(below.numpy(), grid.numpy(), strict=True)
    ends = torch.tensor(np.array([np.interp((beyond, 1 - beyond), *pair) for pair in pairs]))
    measured = y[:, column, None].expand(-1, 2)
    return torch.where(torch.isnan(measured), ends, measured).unbind(1)
