"""Expectation and maximisation steps against integration, high precision and brute force."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from cevit_lib.copula import CopulaParameters, log_density
from cevit_lib.datasets.toy import TOY_CORRELATION
from cevit_lib.estimation import FastMCEM
from cevit_lib.estimation.correlation import (
    complete_objective,
    correlation_from_unconstrained,
    cov2cor,
    from_off_diagonal,
    keep_positive_definite,
    maximise_over_correlations,
    smallest_eigenvalue,
    unconstrained_from_correlation,
)
from cevit_lib.estimation.mle import log_likelihood_and_score
from cevit_lib.estimation.moments import (
    expected_moments,
    latent_moments,
)
from cevit_lib.estimation.observed import Pattern, observe

V = np.array([[0.8, -0.35], [-0.35, 0.6]])


def pattern(threshold, sign):
    threshold, sign = np.atleast_2d(threshold).astype(float), np.atleast_2d(sign).astype(float)
    p = threshold.shape[1]
    empty = np.empty((len(threshold), 0))
    return Pattern(np.arange(0), np.arange(p), np.arange(0), empty, threshold, sign)


def moments_by_quadrature(mean, covariance, threshold, sign, reach):
    """Mean, second moment and log-probability of one truncated pair, by two-dimensional
    Gauss-Legendre panels from the thresholds to ``reach`` beyond them."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    cuts = reach * np.array([0, 0.05, 0.2, 0.5, 1])
    widths = np.diff(cuts)[:, None] / 2
    beyond = (cuts[:-1, None] + widths * (nodes + 1)).ravel()
    sides = [c + s * beyond for c, s in zip(threshold, sign, strict=True)]
    points = np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, 2)
    weight = np.multiply.outer(*[(widths * weights).ravel()] * 2).ravel()
    log_density = multivariate_normal(mean, covariance).logpdf(points)
    mass = weight * np.exp(log_density - log_density.max())
    share = mass / mass.sum()
    second = (share[:, None] * points).T @ points
    return share @ points, second, np.log(mass.sum()) + log_density.max()


@pytest.mark.parametrize("sign", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
def test_bivariate_moments_match_two_dimensional_integration(sign):
    assert_moments(V, np.array([0.3, -0.5]), np.array([0.6, -1.1]), sign, 12)


@pytest.mark.parametrize("r", [0.7, -0.7])
def test_bivariate_moments_hold_forty_deviations_out(r):
    """The density falls by e^-(40 / (1 + r)) a unit: sixty such lengths hold all of it."""
    covariance = np.array([[1.0, r], [r, 1.0]])
    assert_moments(covariance, np.zeros(2), np.array([40.0, 40.0]), (1, 1), 60 * (1 + r) / 40)


def assert_moments(covariance, mean, threshold, sign, reach):
    exact = moments_by_quadrature(mean, covariance, threshold, sign, reach)
    first, second, log_p = latent_moments(mean[None], covariance, pattern(threshold, sign))
    for found, wanted in zip((first[0], second, log_p[0]), exact, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8)


def test_rounding_does_not_make_the_second_moment_asymmetric():
    """An asymmetry of one unit of the last place grew from step to step near a singular matrix."""
    outputs, y, scale, _ = some_data(missing=False)
    correlation = np.full((4, 4), 0.94) + 0.06 * np.eye(4)
    correlation[2, 3] += 1e-9
    second = expected_moments(observe(outputs, y), scale, correlation).second
    np.testing.assert_allclose(second, second.T, atol=1e-13)


def numerical_likelihood(outputs, y, scale, correlation):
    observed = observe(outputs, y)
    return observed.n * expected_moments(observed, scale, correlation).log_likelihood


def some_data(n=60, missing=True, seed=3, p1=2):
    rng = np.random.default_rng(seed)
    correlation = keep_positive_definite(
        TOY_CORRELATION
        if p1 == 2
        else from_off_diagonal(rng.uniform(-0.2, 0.5, (2 + p1) * (1 + p1) // 2), 2 + p1),
        0.05,
    )
    u = rng.standard_normal((n, 2 + p1)) @ np.linalg.cholesky(correlation).T
    outputs = rng.normal(size=(n, 2 + p1))
    y = np.concatenate(
        [outputs[:, :2] + u[:, :2] * (1.5, 0.7), (outputs[:, 2:] + 1.6 * u[:, 2:] > 0)], axis=1
    )
    if missing:
        y[rng.random(y.shape) < 0.2] = np.nan
    return outputs, y, np.array([1.4, 0.8]), correlation


def test_observed_likelihood_is_the_copula_modules_log_density():
    outputs, y, scale, correlation = some_data()
    parameters = CopulaParameters(torch.tensor(correlation), torch.tensor(scale))
    total = log_density(torch.tensor(outputs), torch.tensor(y), parameters).sum()
    assert numerical_likelihood(outputs, y, scale, correlation) == pytest.approx(
        float(total), rel=1e-10
    )


@pytest.mark.parametrize("p1", [2, 3])
@pytest.mark.parametrize("missing", [False, True])
def test_score_by_fishers_identity_is_the_derivative_of_the_likelihood(missing, p1):
    outputs, y, scale, correlation = some_data(missing=missing, p1=p1, n=40 if p1 == 2 else 15)
    observed = observe(outputs, y)
    _, in_scale, in_correlation = log_likelihood_and_score(observed, scale, correlation)
    upper = np.triu_indices(2 + p1, 1)

    def value(point):
        matrix = from_off_diagonal(point[2:], 2 + p1)
        return numerical_likelihood(outputs, y, point[:2], matrix)

    point = np.concatenate([scale, correlation[upper]])
    steps = 1e-5 * np.eye(len(point))
    slopes = [(value(point + step) - value(point - step)) / 2e-5 for step in steps]
    found = observed.n * np.concatenate([in_scale, 2 * in_correlation[upper]])
    np.testing.assert_allclose(found, slopes, rtol=2e-5, atol=1e-4)


def test_plugged_in_moments_leave_out_exactly_the_conditional_covariance():
    """With exact means the two E-steps differ in the latent block only, by a positive definite
    matrix."""
    outputs, y, scale, correlation = some_data(missing=False)
    observed = observe(outputs, y)
    gap = expected_moments(observed, scale, correlation).second
    gap = gap - FastMCEM(means="bivariate").e_step(observed, scale, correlation)[0]
    np.testing.assert_allclose(gap[:2], 0.0, atol=1e-12)
    assert np.linalg.eigvalsh(gap[2:, 2:])[0] > 0.01


def test_constrained_m_step_beats_brute_force():
    """A derivative-free search over the six correlations finds nothing better, from several
    starts."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        half = rng.normal(size=(4, 6))
        second_moment = half @ half.T / 6
        best = maximise_over_correlations(second_moment, np.eye(4))
        np.testing.assert_allclose(np.diag(best), 1.0)
        value = complete_objective(best, second_moment)

        def loss(values, second_moment=second_moment):
            value = complete_objective(from_off_diagonal(values, 4), second_moment)
            return -value if np.isfinite(value) else 1e6

        found = minimize(
            loss,
            np.zeros(6),
            method="Nelder-Mead",
            options={"maxiter": 20_000, "maxfev": 20_000, "xatol": 1e-9, "fatol": 1e-12},
        )
        assert value >= -found.fun - 1e-9
        np.testing.assert_allclose(from_off_diagonal(found.x, 4), best, atol=1e-4)


def test_coordinates_give_correlation_matrices_and_pull_gradients_back():
    rng = np.random.default_rng(2)
    point = rng.normal(size=10)
    correlation, pull_back = correlation_from_unconstrained(point, 5)
    np.testing.assert_allclose(np.diag(correlation), 1.0)
    assert smallest_eigenvalue(correlation) > 0
    np.testing.assert_allclose(unconstrained_from_correlation(correlation), point, rtol=1e-9)
    weight = rng.normal(size=(5, 5))
    slopes = []
    for shift in np.eye(10) * 1e-6:
        up, down = (correlation_from_unconstrained(point + way * shift, 5)[0] for way in (1, -1))
        slopes.append((weight * (up - down)).sum() / 2e-6)
    np.testing.assert_allclose(pull_back(weight), slopes, rtol=1e-6, atol=1e-8)


def test_shrinking_reaches_the_floor_and_leaves_good_matrices_alone():
    assert keep_positive_definite(TOY_CORRELATION) is TOY_CORRELATION
    shrunk = keep_positive_definite(np.ones((3, 3)), 0.01)
    assert smallest_eigenvalue(shrunk) == pytest.approx(0.01)
    np.testing.assert_allclose(np.diag(shrunk), 1.0)
    np.testing.assert_array_equal(cov2cor(np.diag([4.0, 0.0])), np.eye(2))
