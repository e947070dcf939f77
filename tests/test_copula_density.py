"""The likelihood against brute force: each cell, sums and integrals, margins, symmetries, missing
responses.
"""

from itertools import product

import numpy as np
import pytest
import torch
from copula_oracles import (
    CELLS,
    GAMMA,
    MEASURED,
    OUTPUTS,
    SCALE,
    OneFactor,
    double,
    song_density,
)

from cevit_lib.copula import CopulaParameters, log_density
from cevit_lib.errors import LabelError, ShapeError

PAPER = CopulaParameters(GAMMA, SCALE)
NAN = float("nan")


def density(outputs, y, parameters, **options):
    return log_density(double(outputs), double(y), parameters, **options).exp().numpy()


def rows_with(label):
    return np.concatenate([MEASURED, np.tile(label, (len(MEASURED), 1))], 1)


@pytest.mark.parametrize("label", CELLS)
def test_each_cell_equals_brute_force(label):
    y = rows_with(label)
    expected = [song_density(o, r, GAMMA, SCALE) for o, r in zip(OUTPUTS, y, strict=True)]
    np.testing.assert_allclose(density(OUTPUTS, y, PAPER), expected, rtol=1e-11)


@pytest.mark.parametrize(
    ("p0", "p1"),
    [(0, 1), (0, 2), (0, 4), (1, 0), (3, 0), (1, 1), (2, 2), (2, 3), (1, 4), (7, 1)],
)
def test_any_number_of_responses_and_any_of_them_missing(p0, p1):
    """Every label cell and every pattern, against the one-factor integral without the factors."""
    rng = np.random.default_rng(10 * p0 + p1)
    factor = OneFactor(rng.uniform(-0.85, 0.85, p0 + p1), rng.uniform(0.5, 2, p0))
    kinds = [(0.3, -1.2, NAN)] * min(p0, 2) + [(1.1,)] * (p0 - 2) + [(0.0, 1.0, NAN)] * p1
    y = np.array(list(product(*kinds)))
    outputs = rng.normal(size=y.shape)
    expected = [factor.density(o, r) for o, r in zip(outputs, y, strict=True)]
    parameters = CopulaParameters(factor.gamma, factor.scale)
    np.testing.assert_allclose(density(outputs, y, parameters), expected, rtol=1e-9)
    whole = ~np.isnan(y).any(1)
    np.testing.assert_allclose(
        density(outputs[whole], y[whole], parameters), np.array(expected)[whole], rtol=1e-9
    )


@pytest.mark.parametrize("rho", [0.9, -0.9])
def test_missing_stays_exact_far_in_the_tail(rho):
    """A missing label is no 'very high limit': beside a score at -60 with correlation -0.9 that is
    not enough.
    """
    parameters = CopulaParameters([[1.0, rho], [rho, 1.0]], [])
    got = log_density(double([[0.0, -1800.0]]), double([[NAN, 1.0]]), parameters)
    assert float(got) == pytest.approx(-1800.0, rel=1e-9)  # log S(-1800)


@pytest.mark.parametrize(
    ("outputs", "y", "error", "message"),
    [
        (torch.zeros(3, 4), torch.zeros(3, 3), ShapeError, r"\(3, 4\).*\(3, 3\)"),
        (torch.zeros(4), torch.zeros(4), ShapeError, r"\(n, p\)"),
        (torch.zeros(3, 5), torch.zeros(3, 5), ShapeError, "5 columns.*4 responses"),
        (
            torch.zeros(3, 4),
            torch.tensor([[0.0] * 4, [0, 0, 0.5, 0], [0, 0, 0, 2]]),
            LabelError,
            r"y\[1, 2\] is 0.5.*2 of 3",
        ),
        (
            torch.zeros(2, 4),
            torch.tensor([[0.0] * 4, [0, 0, 0, -1]]),
            LabelError,
            r"y\[1, 3\] is -1",
        ),
        (
            torch.zeros(1, 4),
            torch.tensor([[0.0, float("inf"), 0, 0]]),
            LabelError,
            r"y\[0, 1\] is inf",
        ),
    ],
)
def test_wrong_arguments_are_named(outputs, y, error, message):
    with pytest.raises(error, match=message):
        log_density(outputs, y, PAPER)
