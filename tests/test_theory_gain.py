"""What dependence can gain: the information formula against identities, the density's own curvature
and fits of a linear model."""

import numpy as np
import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss

from cevit_lib.copula import CopulaParameters, class_probabilities, log_density
from cevit_lib.datasets.synthetic import TEXT_CORRELATION
from studies import theory

STRONGER = np.eye(4) + 1.25 * (TEXT_CORRELATION - np.eye(4))
IMAGES = (0.0, 0.5, 0.9, 1.0)


def grid(*lists):
    return np.stack(np.meshgrid(*lists, indexing="ij"), -1).reshape(-1, len(lists))


@pytest.mark.parametrize("sd", [0.0, 1.0, 2.1])
def test_nothing_is_gained_without_dependence_nor_for_lengths_of_one_image(sd):
    for r in IMAGES:
        assert np.allclose(theory.gain(np.eye(4), r, sd), 1, atol=1e-12)
    found = theory.gain(STRONGER, 1.0, sd)
    assert np.allclose(found[:2], 1, atol=1e-12) and (found[2:] > 1).all()


@pytest.mark.parametrize("r", IMAGES)
def test_lengths_that_no_label_depends_on_gain_what_regression_theory_says(r):
    apart = np.kron(np.eye(2), np.ones((2, 2))) * TEXT_CORRELATION
    expected = theory.gain_limit(TEXT_CORRELATION[0, 1], r)
    assert np.allclose(theory.gain(apart, r, 1.0)[:2], expected, atol=1e-10)


def test_information_is_the_expected_curvature_of_the_log_density():
    gamma, covariance = TEXT_CORRELATION, np.array([[1.0, 0.5], [0.5, 1.0]])
    nodes, weights = hermegauss(12)
    weights = weights / weights.sum()
    standard, weight = grid(*[nodes] * 4), grid(*[weights] * 4).prod(1)
    errors = standard[:, :2] @ np.linalg.cholesky(gamma[:2, :2]).T
    q = standard[:, 2:] @ np.linalg.cholesky(covariance).T
    scores = theory.tensor(np.hstack([np.zeros_like(errors), q]))
    parameters = CopulaParameters(theory.tensor(gamma), np.ones(2))

    def outputs(s):
        logit = torch.special.log_ndtr(s[:, 2:]) - torch.special.log_ndtr(-s[:, 2:])
        return torch.cat([s[:, :2], logit], 1)

    y = np.hstack([errors, np.zeros_like(q)])
    cells = class_probabilities(outputs(scores), parameters, theory.tensor(y))
    found = torch.zeros(4, 4, dtype=torch.float64)
    for labels in grid((0, 1), (0, 1)):
        y = theory.tensor(np.hstack([errors, np.broadcast_to(labels, q.shape)]))

        share = cells[:, labels[0], labels[1]] * theory.tensor(weight)

        def expected(shift, y=y, share=share):  # of all scores alike
            return share @ log_density(outputs(scores + shift), y, parameters)

        found -= torch.autograd.functional.hessian(expected, found.new_zeros(4))
    assert np.allclose(theory.information(gamma, covariance), found, atol=1e-5)


@pytest.mark.parametrize("r", [0.5, 1.0])
def test_a_linear_model_gains_what_the_formula_says(r):
    fits, model = 400, theory.LinearEyes(STRONGER, r, 1.0)
    expected = theory.gain(STRONGER, r, 1.0)
    spread = 4 / (fits * (model.features - 1)) * (1 - 1 / expected)  # of the ratio's logarithm
    distance = np.log(model.gain(fits, np.random.default_rng(2)) / expected)
    assert (np.abs(distance) < 3.5 * np.sqrt(spread.clip(0)) + 0.01).all(), distance
