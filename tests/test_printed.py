"""The paper's formulas as printed: sums that see nothing, negative cells, swapped corners."""

import numpy as np
import pytest
import torch
from copula_oracles import CELLS, GAMMA, MEASURED, OUTPUTS, SCALE

from cevit_lib.copula import CopulaParameters, class_probabilities, log_density
from studies.theory.printed import (
    printed_conditional_cells,
    printed_log_density,
    printed_prediction_cells,
)

PAPER = CopulaParameters(GAMMA, SCALE)
X = torch.tensor(OUTPUTS)


def rows_with(label):
    return torch.tensor(np.concatenate([MEASURED, np.tile(label, (len(MEASURED), 1))], 1))


def logits(p):
    p = np.asarray(p)
    return torch.tensor([[0.0, 0.0, *np.log(p / (1 - p))]])


def test_a_printed_cell_is_negative_though_all_four_sum_to_one():
    outputs = torch.tensor([[0.0, 0.0, -1.473, -0.326]]).double()
    y = torch.tensor([[0.0, 0.0, 1.0, 0.0]]).double()
    cells = printed_conditional_cells(outputs, y, PAPER)
    assert float(cells.sum()) == pytest.approx(1, abs=1e-14)
    assert cells[0, 1, 0] < -0.01
    assert torch.isnan(printed_log_density(outputs, y, PAPER))
    assert class_probabilities(outputs, PAPER, y)[0, 1, 0] > 0


@pytest.mark.parametrize("label", CELLS)
def test_printed_equation_10_is_right_where_every_threshold_is_zero(label):
    outputs = X.clone()
    outputs[:, 2:] = 0
    at = outputs, rows_with(label), PAPER
    torch.testing.assert_close(printed_log_density(*at), log_density(*at), rtol=1e-10, atol=0)


def test_the_corollary_differs_wherever_a_label_is_positive():
    for label in CELLS:
        at = X, rows_with(label), PAPER
        printed, right = printed_log_density(*at, "corollary"), log_density(*at)
        equal = torch.isclose(printed, right, rtol=0, atol=1e-9)
        assert equal.all() if sum(label) == 0 else not equal.any()
    with pytest.raises(ValueError, match="'guess'"):
        printed_log_density(*at, "guess")


def test_printed_prediction_swaps_the_corners():
    """The printed p_(1,1) is the probability of (0, 0), and the printed four do not sum to one."""
    outputs = logits([0.7, 0.4])
    right, printed = (f(outputs, PAPER) for f in (class_probabilities, printed_prediction_cells))
    assert float(printed[0, 1, 1]) == pytest.approx(float(right[0, 0, 0]), rel=1e-12)
    assert float(printed.sum()) == pytest.approx(1 + 2 * float(right[0, 0, 0]), rel=1e-12)
    cells = printed_prediction_cells(logits([0.55, 0.55]), PAPER)
    assert int(cells.argmax()) != 3  # (1, 1) is not the largest
