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

        def likelihood(s, y=y):
            return log_density(outputs(s), y, parameters).sum()

        s = scores.clone().requires_grad_()
        slopes = torch.autograd.grad(likelihood(s), s, create_graph=True)[0]
        curvature = torch.stack(
            [torch.autograd.grad(slopes[:, k].sum(), s, retain_graph=True)[0] for k in range(4)], 1
        )
        share = cells[:, labels[0], labels[1]] * theory.tensor(weight)
        found -= torch.einsum("n,nij->ij", share, curvature)
    assert np.allclose(theory.information(gamma, covariance), found, atol=1e-5)


def test_a_linear_model_gains_what_the_formula_says():
    """Maximum likelihood on all four responses against on each alone, by scoring; the labels'
    scores depend on the first of three features, and the other two are looked at.
    """
    rng, (fits, n, d), r, sd = np.random.default_rng(2), (400, 300, 3), 0.5, 1.0
    eyes = np.array([[1, r], [r, 1]])
    x = np.einsum("ab,fnbd->fnad", np.linalg.cholesky(eyes), rng.standard_normal((fits, n, 2, d)))
    errors = rng.standard_normal((fits, n, 4)) @ np.linalg.cholesky(STRONGER).T
    labels = errors[..., 2:] + sd * x[..., 0] > 0
    y = theory.tensor(np.concatenate([errors[..., :2], labels], -1)).reshape(-1, 4)
    features = theory.tensor(np.tile(x, (1, 1, 2, 1)))  # of the left and right eye, twice
    found = {}
    for kind, gamma in (("own", np.eye(4)), ("joint", STRONGER)):
        shared = theory.information(gamma, sd**2 * eyes) * np.tile(eyes, (2, 2))
        step = torch.linalg.inv(theory.tensor(shared)) / n
        parameters = CopulaParameters(theory.tensor(gamma), np.ones(2))
        b = torch.zeros(fits, 4, d, dtype=torch.float64)
        b[:, 2:, 0] = sd
        for _ in range(8):
            b.requires_grad_()
            s = torch.einsum("fnkd,fkd->fnk", features, b).reshape(-1, 4)
            logit = torch.special.log_ndtr(s[:, 2:]) - torch.special.log_ndtr(-s[:, 2:])
            outputs = torch.cat([s[:, :2], logit], 1)
            likelihood = log_density(outputs, y, parameters, validate=False).sum()
            slope = torch.autograd.grad(likelihood, b)[0]
            b = (b + torch.einsum("kl,fld->fkd", step, slope)).detach()
        found[kind] = b[:, :, 1:].square().mean((0, 2)).numpy()
    expected = theory.gain(STRONGER, r, sd)
    error = np.sqrt(4 / (fits * (d - 1)) * (1 - 1 / expected))  # of the ratio's logarithm
    distance = np.log(found["own"] / found["joint"] / expected) / error
    assert (np.abs(distance) < 3.5).all(), distance
