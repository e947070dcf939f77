"""Cells, classifiers and the update of what is missing, against integration and simulation."""

from itertools import product

import numpy as np
import pytest
import torch
from copula_oracles import GAMMA, MEASURED, OUTPUTS, SCALE, OneFactor

from cevit_lib.copula import (
    CopulaParameters,
    bayes_classifier,
    class_probabilities,
    condition_on,
    marginal_classifier,
)
from cevit_lib.errors import LabelError, ShapeError

PAPER = CopulaParameters(GAMMA, SCALE)
X = torch.tensor(OUTPUTS)
NAN = float("nan")


def logits(p):
    return torch.tensor(
        [[0.0, 0.0, *np.log(np.asarray(p) / (1 - np.asarray(p)))]], dtype=torch.float64
    )


@pytest.mark.parametrize("p1", [1, 2, 3])
@pytest.mark.parametrize("measured", [True, False])
def test_cells_are_one_integral_given_one_factor(p1, measured):
    factor = OneFactor([0.8, 0.6, 0.5, -0.7, 0.4][: 2 + p1], SCALE)
    outputs = np.concatenate([OUTPUTS, OUTPUTS[:, :1]], 1)[:, : 2 + p1]
    y = np.concatenate([MEASURED, np.zeros((4, p1))], 1)
    y[3 if measured else slice(None), 0] = y[slice(0, 0 if measured else 4), 1] = NAN
    parameters = CopulaParameters(factor.gamma, SCALE)
    given = torch.tensor(y) if measured else None
    cells = class_probabilities(torch.tensor(outputs), parameters, given)
    assert cells.shape == (4, *[2] * p1)
    for found, mu, row in zip(cells.flatten(1), outputs, y, strict=True):
        labels = product((0, 1), repeat=p1)
        expected = np.array([factor.density(mu, [*row[:2], *each]) for each in labels])
        np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-11)


def test_classifiers():
    near = logits([0.55, 0.55])
    assert bayes_classifier(near, PAPER).tolist() == [[1, 1]]
    # with p = (.51, .3) the eyes agree so often that (0, 0) is likeliest although p_3 > 1/2
    split = logits([0.51, 0.3])
    assert marginal_classifier(split, PAPER).tolist() == [[1, 0]]
    assert bayes_classifier(split, PAPER).tolist() == [[0, 0]]
    three = CopulaParameters.independent([], 3)
    assert bayes_classifier(torch.tensor([[2.0, -1.0, 3.0]]), three).tolist() == [[1, 0, 1]]


@pytest.mark.parametrize(("p0", "p1"), [(2, 2), (1, 1), (2, 0), (0, 3), (1, 3)])
def test_update_of_what_is_missing_against_integration(p0, p1):
    rng = np.random.default_rng(10 * p0 + p1)
    factor = OneFactor(rng.uniform(-0.85, 0.85, p0 + p1), rng.uniform(0.5, 2, p0))
    n = 2 ** (p0 + p1)
    observed = (np.arange(n)[:, None] >> np.arange(p0 + p1)) & 1
    outputs = rng.normal(size=(n, p0 + p1))
    y = np.concatenate([rng.normal(size=(n, p0)), rng.integers(0, 2, (n, p1))], 1)
    y[observed == 0] = NAN
    got = condition_on(
        torch.tensor(outputs), torch.tensor(y), CopulaParameters(factor.gamma, factor.scale)
    )
    for row in range(n):
        mean, sd, probability = factor.complete(outputs[row], y[row])
        np.testing.assert_allclose(got.mean[row], mean, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(got.sd[row], sd, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(got.probability[row], probability, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "function, arguments, error, told",
    [
        (
            condition_on,
            (torch.zeros(1, 4), torch.tensor([[0.0, 0.0, 0.3, 0.0]]), PAPER),
            LabelError,
            r"y\[0, 2\]",
        ),
        (class_probabilities, (torch.zeros(1, 5), PAPER), ShapeError, None),
        (marginal_classifier, (torch.zeros(5), PAPER), ShapeError, None),
    ],
)
def test_faults_are_named(function, arguments, error, told):
    with pytest.raises(error, match=told):
        function(*arguments)
