"""What is sampled: truncated draws far in the tails, Monte Carlo EM, both Markov chains, and the
toy data."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from scipy.special import log_ndtr
from scipy.stats import kstest, truncnorm
from test_estimation import UPPER, quiet, rho, toy

from cevit_lib.datasets.toy import ToyExample
from cevit_lib.errors import NotConvergedWarning
from cevit_lib.estimation import ExactEM, MaximumLikelihood, MonteCarloEM, RankLikelihoodMCMC
from cevit_lib.estimation.correlation import correlation_from_unconstrained
from cevit_lib.estimation.mcmc import log_volume, split_r_hat
from cevit_lib.estimation.moments import expected_moments
from cevit_lib.estimation.observed import Observed, Pattern, observe
from cevit_lib.estimation.sampling import (
    Chains,
    gibbs_sweep,
    inverse_wishart,
    open_uniform,
    sample_above,
)
from cevit_lib.normal import normal_score
from studies.estimation import calibration


@pytest.mark.parametrize("b", [np.inf, 8.0, 0.0, -5.0, -29.9, -30.1, -40.0, -1000.0])
def test_truncated_draws_have_the_right_law_however_far_out(b):
    """The tail probability beyond each draw, relative to that of the limit, is uniform."""
    rng = np.random.default_rng(3)
    draws = sample_above(np.full(4000, b), open_uniform(rng, 4000))
    assert np.all(draws >= -b) and np.all(np.isfinite(draws))
    log_share = log_ndtr(-draws) - log_ndtr(b)
    assert kstest(np.exp(log_share), "uniform").pvalue > 1e-4


def test_uniform_draws_never_reach_zero_or_one():
    extreme = Mock(random=lambda shape: np.array([0.0, 1 - 2.0**-53]))
    u = open_uniform(extreme, 2)
    assert np.all(np.isfinite(sample_above(np.array([-35.0, -35.0]), u))) and u[0] > 0


@pytest.mark.parametrize("threshold", [(0.4, -0.3), (40.0, 40.0), (40.0, -40.0)])
def test_gibbs_chains_have_the_exact_second_moment(threshold):
    n, scale = 20_000, np.array([2.0])
    correlation = np.array([[1.0, 0.3, 0.2], [0.3, 1.0, 0.5], [0.2, 0.5, 1.0]])
    empty, residual, sign = np.arange(0), np.array([[0.5]]), np.array([[1.0, 1.0]])
    part = Pattern(np.arange(1), np.arange(1, 3), empty, residual, np.array([threshold]), sign)
    chains = Chains(part, scale, n)
    found = chains.second_moment(correlation, 60, np.random.default_rng(5))
    z = chains.z
    assert np.all(z[1:] > np.array(threshold)[:, None]) and np.all(z[0] == 0.25)
    exact = expected_moments(Observed([part], 1, 3, 1), scale, correlation).second
    error = np.array([[np.std(one * two) for one in z] for two in z]) / np.sqrt(n)
    assert np.all(np.abs(found - exact) < 4 * error + 1e-9)


def test_a_sweep_leaves_known_scores_alone_and_conditions_on_them():
    """A continuous score that some patients lack is drawn for these only; the others' labels follow
    the known one."""
    n, known = 20_000, 1.5
    precision = np.linalg.inv(np.array([[1.0, 0.8], [0.8, 1.0]]))
    z, rng = np.full((2, n), known), np.random.default_rng(0)
    threshold, sign = np.zeros((2, n)), np.array([np.zeros(n), np.ones(n)])
    gibbs_sweep(z, precision, np.arange(2), threshold, sign, open_uniform(rng, (2, n)))
    assert np.all(z[0] == known)
    exact = truncnorm(-0.8 * known / 0.6, np.inf, loc=0.8 * known, scale=0.6)
    assert abs(z[1].mean() - exact.mean()) < 4 * exact.std() / np.sqrt(n)


def test_inverse_wishart_draws_have_the_right_mean():
    scale, degrees = np.array([[2.0, 0.7], [0.7, 1.0]]), 9.0
    rng = np.random.default_rng(1)
    draws = np.array([inverse_wishart(scale, degrees, rng) for _ in range(20_000)])
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - scale / (degrees - 3)) < 4 * error)


def test_monte_carlo_error_is_one():
    """Errors of Monte Carlo EM against the exact EM, over what it says that they are."""
    outputs, y = toy(1, n=60)
    exact, z = rho(ExactEM(tol=1e-9, max_iter=3000).fit(outputs, y)), []
    for seed in range(30):
        sampled = quiet(MonteCarloEM(rng=seed, draws=3), outputs, y)
        z.append((rho(sampled) - exact) / sampled.monte_carlo_error_.numpy()[UPPER])
    assert 0.8 < np.sqrt(np.mean(np.square(z))) < 1.25


def test_monte_carlo_em_that_still_drifts_says_so():
    outputs, y = toy(1, (1.0, 1.0, 1.0))
    with pytest.warns(NotConvergedWarning, match="drift"):
        MonteCarloEM(draws=40, max_iter=24, burn_in=2, rng=0).fit(outputs, y)


@pytest.mark.parametrize(
    "sampler, near, spread", [("proper", 0.6, 0.25), ("paper", 1.2, 0.5)], ids=["proper", "paper"]
)
def test_samplers_have_the_likelihoods_mode_and_spread(sampler, near, spread):
    """With 800 patients the posterior under a flat prior is close to normal round the maximum."""
    outputs, y = toy(4)
    likelihood = MaximumLikelihood(fit_scale=False, standard_errors=True).fit(outputs, y)
    chain = RankLikelihoodMCMC(sampler, sweeps=2500, burn_in=500, thin=2, rng=3)
    sampled = chain.fit(outputs, y)
    errors = likelihood.standard_errors_.correlation.numpy()[UPPER]
    assert np.all(np.abs(rho(sampled) - rho(likelihood)) < near * errors)
    # sigma is held fixed, as in the standard errors' own information block: the spreads agree to
    # sampling error
    found = sampled.standard_deviation_.numpy()[UPPER]
    np.testing.assert_allclose(found[1:], errors[1:], rtol=spread)
    moved = np.diff(sampled.draws_.numpy()[0, :, 0, 1]) != 0  # in two steps
    assert sampler == "paper" or 0.19 < moved.mean() < 0.84


@pytest.mark.parametrize("p", [2, 3, 5])
def test_volume_of_the_walks_coordinates_is_their_jacobian(p):
    rng, upper = np.random.default_rng(p), np.triu_indices(p, 1)
    z = rng.normal(0, 1, len(upper[0]))

    def entries(point):
        return correlation_from_unconstrained(np.sinh(point), p)[0][upper]

    steps = 1e-6 * np.eye(len(z))
    jacobian = np.array([entries(z + step) - entries(z - step) for step in steps]) / 2e-6
    matrix, _ = correlation_from_unconstrained(np.sinh(z), p)
    np.testing.assert_allclose(log_volume(z, matrix), np.linalg.slogdet(jacobian)[1], atol=1e-6)


def test_proper_sampler_mixes_where_the_mode_is_at_the_edge():
    """Two labels of 25 patients: the likelihood is largest at 1, and 1.8 % lies below 0."""
    import arviz

    rng = np.random.default_rng(17)
    outputs = rng.standard_normal((25, 2))
    latent = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], size=25)
    scores = normal_score(torch.from_numpy(outputs)).numpy()
    y = (latent + scores > 0).astype(float)
    observed = observe(outputs, y, continuous=0)
    grid = (np.arange(400) + 0.5) / 200 - 1
    matrices = [np.array([[1, rho], [rho, 1]]) for rho in grid]
    values = [expected_moments(observed, np.zeros(0), one).log_likelihood for one in matrices]
    weights = np.exp(25 * (np.array(values) - max(values)))
    exact = np.average([grid < 0, grid, grid > 0.95], axis=1, weights=weights)
    assert grid[np.argmax(values)] > 0.99 and 0.015 < exact[0] < 0.03

    chain = RankLikelihoodMCMC("proper", sweeps=5000, burn_in=1000, thin=1, rng=1)
    draws = quiet(chain, outputs, y).draws_.numpy()[:, :, 0, 1]
    for part, wanted in zip((draws < 0, draws, draws > 0.95), exact, strict=True):
        size = arviz.ess(np.asarray(part, dtype=float), method="mean")
        assert abs(part.mean() - wanted) < 3.5 * part.std() / np.sqrt(size)
    assert arviz.ess(draws) >= 400


@pytest.mark.weekly
def test_proper_sampler_is_calibrated():
    (configuration, seed), *_ = calibration.settings()
    found = calibration.fit(configuration, seed + 1, "paper")
    assert min(found["metrics"]["p_value"].values()) > 1e-3


@pytest.mark.parametrize("apart, drift", [(0, 0), (1, 0), (0, 4)])
def test_split_r_hat_is_arvizs_and_sees_chains_that_disagree_or_drift(apart, drift):
    import arviz

    draws = np.random.default_rng(0).normal(size=(4, 500, 2))
    draws += apart * np.arange(4)[:, None, None] + np.linspace(0, drift, 500)[:, None]
    found = split_r_hat(draws)
    expected = arviz.rhat(arviz.convert_to_dataset({"rho": draws}), method="split")["rho"].values
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert np.all(found > 1.3) if apart or drift else np.all(found < 1.02)


@pytest.mark.parametrize(
    "estimator, short",
    [(RankLikelihoodMCMC, dict(sweeps=40, thin=2)), (MonteCarloEM, dict(max_iter=24))],
)
def test_same_seed_same_estimate_and_a_generator_moves_on(estimator, short):
    outputs, y = toy(4, n=100)
    rng = np.random.default_rng(8)
    one, two, three = (
        rho(quiet(estimator(**short, burn_in=2, rng=seed), outputs, y)) for seed in (8, rng, rng)
    )
    np.testing.assert_array_equal(one, two)
    assert not np.allclose(two, three)


# ---------------------------------------------------------------- the toy example's data


@pytest.mark.parametrize("latent", ["logistic", "probit"])
def test_toy_data_have_the_stated_margins_and_correlations(latent):
    data = ToyExample(200_000, (0.5, 0.5, 0.5), latent=latent, rng=1).sample()
    residual = data.y[:, :2] - data.outputs[:, :2]
    np.testing.assert_allclose(np.cov(residual.T), [[1, 0.72], [0.72, 1]], atol=0.01)
    probability = 1 / (1 + np.exp(-data.outputs[:, 2:]))
    for low in (0.1, 0.3, 0.5, 0.7):  # calibrated in every band of predicted probability
        gap = (data.y[:, 2:] - probability)[(probability > low) & (probability < low + 0.1)]
        assert abs(gap.mean()) < 4 * 0.5 / np.sqrt(gap.size)
    decay = 0.75 ** np.abs(np.subtract.outer(range(3), range(3)))
    wanted = np.kron(np.eye(2), decay)  # the two eyes' covariates are drawn apart
    found = np.cov(data.covariates.reshape(len(data.y), -1).T)
    np.testing.assert_allclose(found, wanted, atol=0.02)
    shared = ToyExample(50, shared_covariates=True, rng=1).sample().covariates
    np.testing.assert_array_equal(shared[:, 0], shared[:, 1])
