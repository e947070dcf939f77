"""Many members at once: the maximum that the score of the likelihood says it is."""

import numpy as np
import pytest
import torch
from copula_oracles import patients

from cevit_lib.copula import CopulaParameters
from cevit_lib.errors import DataError
from cevit_lib.estimation import estimate_many
from cevit_lib.estimation.mle import log_likelihood_and_score
from cevit_lib.estimation.observed import observe
from cevit_lib.normal import log_bivariate_normal_cdf
from cevit_lib.normal.wedge import log_wedge_curvatures, log_wedge_slopes


def random_correlation(p: int, rng: np.random.Generator) -> np.ndarray:
    factor = rng.standard_normal((p, p + 1))
    return np.corrcoef(factor)


@pytest.fixture(scope="module")
def members():
    rng = np.random.default_rng(20)
    sizes = (800, 120, 300, 800)
    pairs = [patients(random_correlation(4, rng), 2, n, rng) for n in sizes]
    return [each for each, _ in pairs], [each for _, each in pairs]


def largest_score(outputs, y, parameters) -> float:
    """Return the largest derivative of the mean log-likelihood, in scales and correlations."""
    scale, correlation = parameters.scale.numpy(), parameters.correlation.numpy()
    observed = observe(outputs, y, len(scale))
    _, in_scale, in_correlation = log_likelihood_and_score(observed, scale, correlation)
    return max(np.abs(in_scale).max(initial=0.0), np.abs(np.triu(in_correlation, 1)).max())


def test_the_score_vanishes_at_every_member_whatever_its_size(members):
    with torch.no_grad():  # as between epochs
        found = estimate_many(*members)
    assert found.converged.all()
    for outputs, y, parameters in zip(*members, found.parameters, strict=True):
        assert largest_score(outputs, y, parameters) < 1e-7


@pytest.mark.parametrize("p0", [0, 1, 3])
def test_any_number_of_lengths_beside_two_labels(p0):
    rng = np.random.default_rng(21 + p0)
    outputs, y = patients(random_correlation(p0 + 2, rng), p0, 400, rng)
    (parameters,), converged, _ = estimate_many([outputs], [y])
    assert converged.all() and largest_score(outputs, y, parameters) < 1e-7


def test_the_start_is_forgotten_and_a_good_one_saves_passes(members):
    cold = estimate_many(*members)
    near = estimate_many(*members, cold.parameters)
    almost_one = torch.eye(4, dtype=torch.float64)
    almost_one[2, 3] = almost_one[3, 2] = 0.9999
    matrices = [random_correlation(4, np.random.default_rng(k)) for k in (1, 2, 3)]
    far = [CopulaParameters(matrix, [9, 0.3]) for matrix in (*matrices, almost_one)]
    far = estimate_many(*members, far)
    assert (near.n_iter == 1).all() and far.converged.all()
    for one, other in zip(cold.parameters, far.parameters, strict=True):
        torch.testing.assert_close(one.correlation, other.correlation, rtol=0, atol=1e-7)
        torch.testing.assert_close(one.scale, other.scale, rtol=1e-7, atol=0)


def test_a_member_without_a_maximum_says_so_and_disturbs_nobody(members):
    outputs, y = [each.clone() for each in members[0]], [each.clone() for each in members[1]]
    outputs[1][:, 3], y[1][:, 3] = outputs[1][:, 2], y[1][:, 2]  # the same label twice
    alone, found = estimate_many(*members), estimate_many(outputs, y)
    assert found.converged.tolist() == [True, False, True, True]
    assert torch.isfinite(found.parameters[1].correlation).all()
    torch.testing.assert_close(found.parameters[2].scale, alone.parameters[2].scale)


def test_a_member_with_missing_responses_is_refused(members):
    outputs, y = members
    missing = torch.where(y[0] == y[0][3], torch.nan, y[0])
    with pytest.raises(DataError, match="member 1 .* one by one"):
        estimate_many([outputs[0], outputs[0]], [y[0], missing])


@pytest.mark.parametrize(
    "point", [(0.3, -0.8, 0.5), (-4.0, -5.0, -0.3), (1.0, 1.1, 0.97), (-2.0, 3.0, -0.9)]
)
def test_curvatures_of_the_bivariate_normal_are_those_of_autograd(point):
    at = torch.tensor(point, dtype=torch.float64)
    wanted = torch.autograd.functional.hessian(lambda v: log_bivariate_normal_cdf(*v), at)
    slopes = log_wedge_slopes(*at, log_bivariate_normal_cdf(*at))
    found = torch.tensor(log_wedge_curvatures(*at, slopes), dtype=torch.float64)
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-10)
