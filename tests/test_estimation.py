"""The estimators: what each one's limit is, where the paper's is biased, standard errors, and every
edge case."""

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import norm, truncnorm

from benchmarks.estimation import at_800, contenders
from cevit_lib import estimation
from cevit_lib.copula import CopulaParameters, log_density
from cevit_lib.datasets.toy import TOY_CORRELATION, ToyExample
from cevit_lib.errors import (
    DataError,
    LabelError,
    NearSingularWarning,
    NotConvergedWarning,
    ScaleError,
    ShapeError,
)
from cevit_lib.estimation import (
    ExactEM,
    FastMCEM,
    GaussianScoreCorrelation,
    MaximumLikelihood,
    MonteCarloEM,
    RankLikelihoodMCMC,
)
from cevit_lib.estimation.observed import observe
from studies.estimation.plug_in import plug_in_outputs
from studies.estimation.toy_example import double_sigmoid

UPPER = np.triu_indices(4, 1)
TRUTH = TOY_CORRELATION[UPPER]
LIKELIHOOD_BASED = [ExactEM(), ExactEM(rescale=True), MaximumLikelihood()]
SHORT_CHAIN = RankLikelihoodMCMC(sweeps=60, burn_in=20, thin=2, rng=0)
EVERY = [
    *LIKELIHOOD_BASED,
    FastMCEM(),
    FastMCEM(means="bivariate"),
    GaussianScoreCorrelation(),
    SHORT_CHAIN,
    MonteCarloEM(draws=4, max_iter=20, burn_in=8, rng=0),
    RankLikelihoodMCMC("proper", sweeps=60, burn_in=20, thin=2, rng=0),
]


def toy(seed=0, beta_latent=(0.5, 0.5, 0.5), n=800, **more):
    data = ToyExample(n, beta_latent, rng=seed, **more).sample()
    return plug_in_outputs(data.covariates, data.y), data.y


def rho(estimator):
    return estimator.parameters_.correlation.numpy()[UPPER]


def quiet(estimator, outputs, y):
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return estimator.fit(outputs, y)


def assert_sound(estimator, p):
    """Whatever happened, the result is a positive definite correlation matrix, never NaN."""
    correlation = estimator.parameters_.correlation
    assert correlation.shape == (p, p) and correlation.dtype == torch.float64
    assert torch.isfinite(correlation).all() and torch.isfinite(estimator.parameters_.scale).all()
    assert torch.linalg.eigvalsh(correlation)[0] > 0


# ---------------------------------------------------------------- what the limits are


def test_exact_em_never_lowers_the_observed_likelihood_and_ends_at_its_maximum():
    outputs, y = toy(7)
    y[::5, 0], y[::7, 3] = np.nan, np.nan
    exact = ExactEM().fit(outputs, y)
    assert exact.n_iter_ > 10 and np.all(np.diff(exact.history_["objective"]) > -1e-12)
    for given in (outputs, np.where(np.isnan(y), np.nan, outputs)):  # never looked at where missing
        likelihood = MaximumLikelihood(fit_scale=False).fit(given, y)
        np.testing.assert_allclose(rho(exact), rho(likelihood), atol=1e-4)


@pytest.mark.parametrize("p0, p1", [(2, 2), (1, 1), (3, 1), (0, 2), (2, 0), (1, 3)])
def test_maximum_is_stationary_and_close_to_the_truth_for_any_number_of_responses(p0, p1):
    rng = np.random.default_rng(10 * p0 + p1)
    p, n = p0 + p1, 600 if p1 == 3 else 2000
    correlation = 0.4 * np.ones((p, p)) + 0.6 * np.eye(p)
    u = rng.standard_normal((n, p)) @ np.linalg.cholesky(correlation).T
    outputs = np.zeros((n, p))
    y = np.concatenate([u[:, :p0], (u[:, p0:] > 0).astype(float)], axis=1)
    y[rng.random((n, p)) < 0.1] = np.nan
    exact = ExactEM(max_iter=60 if p1 == 3 else 500, tol=1e-4 if p1 == 3 else 1e-6).fit(outputs, y)
    likelihood = MaximumLikelihood(fit_scale=False, standard_errors=True).fit(outputs, y)
    upper = np.triu_indices(p, 1)
    off = (likelihood.parameters_.correlation.numpy() - 0.4)[upper]
    errors = likelihood.standard_errors_.correlation.numpy()[upper]
    assert np.all(errors > 0) and np.all(np.abs(off) < 4 * errors)
    tolerance = 5e-3 if p1 == 3 else 1e-3
    np.testing.assert_allclose(
        exact.parameters_.correlation, likelihood.parameters_.correlation, atol=tolerance
    )
    assert exact.parameters_.scale.shape == (p0,)


def test_fmcem_bias_grows_with_the_signal_even_without_sampling_noise():
    """Mixed entries are too large, rho34 is too small, and rho12 is right; the maximum of the
    likelihood has no bias."""
    bias = []
    for beta_latent in ((0.25,) * 3, (0.5,) * 3, (1.0,) * 3):
        data = ToyExample(60_000, beta_latent, rng=3).sample()
        bias.append(rho(quiet(FastMCEM(), data.outputs, data.y)) - TRUTH)
        exact = MaximumLikelihood(standard_errors=True).fit(data.outputs, data.y)
        error = exact.standard_errors_.correlation.numpy()[UPPER]
        assert np.all(np.abs(rho(exact) - TRUTH) < 3.5 * error)
    bias = np.array(bias)
    assert np.all(np.abs(bias[:, 0]) < 0.01)
    assert np.all(bias[:, 1:5] > 0.1) and np.all(bias[:, 5] < -0.1)
    assert np.all(np.diff(bias[:, 1:5], axis=0) > 0.03)
    # and adding the truncated variances back mends the mixed entries, not rho34
    mended = rho(FastMCEM(variances=True).fit(data.outputs, data.y)) - TRUTH
    assert np.all(np.abs(mended[:5]) < 0.02) and mended[5] < -0.2


def test_fmcem_is_algorithm_two_line_by_line():
    """One iteration from the identity, written out patient by patient with scipy's truncated
    normal."""
    outputs, y = toy(5, n=40)
    residual = y[:, :2] - outputs[:, :2]
    z = np.empty((40, 4))
    z[:, :2] = residual / residual.std(axis=0)
    for i in range(40):
        for j in (2, 3):  # at the identity the conditional law is N(0, 1)
            c = norm.ppf(1 / (1 + np.exp(outputs[i, j])))
            z[i, j] = truncnorm.mean(*((c, np.inf) if y[i, j] == 1 else (-np.inf, c)))
    second_moment = z.T @ z / 40
    sd = np.sqrt(np.diag(second_moment))
    first = quiet(FastMCEM(max_iter=1), outputs, y)
    np.testing.assert_allclose(
        first.parameters_.correlation, second_moment / np.outer(sd, sd), rtol=1e-9
    )
    assert first.n_iter_ == 1 and not first.converged_
    np.testing.assert_allclose(first.history_["correlation"][0], np.eye(4))


def test_standard_errors_match_the_numerical_hessian():
    outputs, y = toy(13)
    fitted = MaximumLikelihood(standard_errors=True).fit(outputs, y)
    parameters = fitted.parameters_
    tensors = torch.from_numpy(outputs), torch.from_numpy(y)

    def log_likelihood(point):
        off = torch.zeros(4, 4, dtype=torch.float64).index_put(
            tuple(map(torch.tensor, UPPER)), point[2:]
        )
        correlation = torch.eye(4, dtype=torch.float64) + off + off.T
        known = CopulaParameters(correlation, point[:2], validate=False)
        return log_density(*tensors, known, validate=False).sum()

    point = torch.cat([parameters.scale, parameters.correlation[UPPER]])
    hessian = torch.autograd.functional.hessian(log_likelihood, point).numpy()
    covariance = np.linalg.inv(-hessian)
    errors = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(fitted.standard_errors_.scale, errors[:2], rtol=1e-3)
    np.testing.assert_allclose(
        fitted.standard_errors_.correlation.numpy()[UPPER], errors[2:], rtol=1e-3
    )


def test_double_sigmoid_reading_shrinks_the_thresholds():
    outputs, y = toy(3)
    right, wrong = (observe(o, y).patterns[0] for o in (outputs, double_sigmoid(outputs)))
    np.testing.assert_array_equal(wrong.residual, right.residual)
    assert wrong.threshold.std() < 0.5 * right.threshold.std()


# ---------------------------------------------------------------- missing responses


@pytest.mark.parametrize("estimator", LIKELIHOOD_BASED, ids=repr)
def test_labels_missing_at_random_are_marginalised(estimator):
    """A label is missing where the left residual is large. How far complete cases mislead, an
    exercise says."""
    data = ToyExample(20_000, (0.5, 0.5, 0.5), rng=21).sample()
    y, residual = data.y.copy(), np.abs(data.y[:, 0] - data.outputs[:, 0])
    y[residual > 1.0, 2] = np.nan
    assert np.all(np.abs(rho(estimator.fit(data.outputs, y)) - TRUTH) < 0.05)


def test_a_continuous_response_missing_at_random_needs_its_scale_fitted_too():
    """The SD of the residuals that are left is too small; only the joint fit of sigma and Gamma
    mends it."""
    data = ToyExample(20_000, (0.5, 0.5, 0.5), rng=22).sample()
    y, residual = data.y.copy(), np.abs(data.y[:, 0] - data.outputs[:, 0])
    y[residual > 1.0, 1] = np.nan
    joint = MaximumLikelihood().fit(data.outputs, y)
    assert np.all(np.abs(rho(joint) - TRUTH) < 0.04)
    np.testing.assert_allclose(joint.parameters_.scale, 1.0, atol=0.03)
    given_sd = MaximumLikelihood(fit_scale=False).fit(data.outputs, y)
    assert given_sd.parameters_.scale[1] < 0.9 and abs(rho(given_sd)[0] - TRUTH[0]) > 0.05


def test_a_pair_never_seen_together_keeps_its_start_and_has_no_standard_error():
    outputs, y = toy(6, n=400)
    y[:200, 2], y[200:, 3] = np.nan, np.nan
    fitted = quiet(MaximumLikelihood(standard_errors=True), outputs, y)
    assert_sound(fitted, 4)
    assert fitted.standard_errors_.correlation[2, 3] > 0.5  # or infinite
    assert not torch.isnan(fitted.standard_errors_.correlation).any()


# ---------------------------------------------------------------- edge cases: each has one outcome


SPOILT = {
    "three patients": lambda o, y, r: (o[:3], y[:3]),
    "holes": lambda o, y, r: (o, np.where(r < 0.15, np.nan, y)),
    "one class": lambda o, y, r: (o, np.where(np.arange(4) == 2, 1.0, y)),
    "separated": lambda o, y, r: (np.where(np.arange(4) == 2, 60 * y - 30, o), y),
    "sure": lambda o, y, r: (np.where(FAR, 2000 * y - 1000, o), y),
    "sure and wrong": lambda o, y, r: (np.where(FAR, 1000 - 2000 * y, o), y),
}
FAR = (np.arange(150)[:, None] % 3 == 0) & (np.arange(4) > 1)


@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("estimator", EVERY, ids=repr)
def test_every_estimator_stays_sound(estimator, spoilt):
    data = *toy(8, n=150), np.random.default_rng(0).random((150, 4))
    assert_sound(quiet(estimator, *SPOILT[spoilt](*data)), 4)


def test_near_singular_estimates_say_so():
    outputs, y = toy(8, n=800)
    with (
        pytest.warns(NotConvergedWarning),
        pytest.warns(NearSingularWarning, match="3 patients cannot determine"),
        pytest.warns(NearSingularWarning, match="smallest eigenvalue .* Shrink it"),
    ):
        FastMCEM().fit(outputs[:3], y[:3])


def test_not_converged_says_so_with_a_remedy():
    outputs, y = toy(9, n=200)
    with pytest.warns(NotConvergedWarning, match="raise max_iter"):
        fitted = ExactEM(max_iter=2).fit(outputs, y)
    assert not fitted.converged_ and fitted.n_iter_ == 2 and len(fitted.history_["objective"]) == 2


SMALL_OUTPUTS, SMALL_Y = toy(1, n=30)
PLACE = np.arange(120).reshape(30, 4)
FEW_DRAWS = RankLikelihoodMCMC(sweeps=100, burn_in=90, thin=10)
EXACT_OUTPUTS = np.where(np.arange(4) == 1, SMALL_Y - 3.0, SMALL_OUTPUTS)


@pytest.mark.parametrize(
    "estimator, outputs, y, error, told",
    [
        (FastMCEM(), SMALL_OUTPUTS[:, :3], SMALL_Y, ShapeError, "same shape"),
        (FastMCEM(), SMALL_OUTPUTS[0], SMALL_Y[0], ShapeError, "one row a patient"),
        (FastMCEM(), SMALL_OUTPUTS, np.where(PLACE == 18, 0.5, SMALL_Y), LabelError, r"y\[4, 2\]"),
        (
            FastMCEM(),
            np.where(PLACE == 14, np.inf, SMALL_OUTPUTS),
            SMALL_Y,
            DataError,
            "row 3, response 3",
        ),
        (
            FastMCEM(),
            SMALL_OUTPUTS,
            np.where(np.arange(4) == 3, np.nan, SMALL_Y),
            DataError,
            "never observed",
        ),
        (FastMCEM(), SMALL_OUTPUTS[:1], SMALL_Y[:1], DataError, "two patients"),
        *((each, EXACT_OUTPUTS, SMALL_Y, ScaleError, "continuous response 2") for each in EVERY),
        (FastMCEM(means="trivariate"), SMALL_OUTPUTS, SMALL_Y, ValueError, "must be one of"),
        (RankLikelihoodMCMC("none"), SMALL_OUTPUTS, SMALL_Y, ValueError, "must be one of"),
        (FEW_DRAWS, SMALL_OUTPUTS, SMALL_Y, ValueError, "at least 4 draws"),
        (MonteCarloEM(max_iter=20, burn_in=15), SMALL_OUTPUTS, SMALL_Y, ValueError, "burn_in"),
    ],
)
def test_wrong_input_and_settings_are_refused_with_their_place(estimator, outputs, y, error, told):
    with pytest.raises(error, match=told):
        estimator.fit(outputs, y, continuous=2)


# ---------------------------------------------------------------- the contract


@pytest.mark.parametrize("estimator", EVERY, ids=repr)
def test_a_repr_makes_the_estimator_again(estimator):
    assert repr(eval(repr(estimator), vars(estimation))) == repr(estimator)


@pytest.mark.parametrize("estimator", [FastMCEM(), ExactEM(), MaximumLikelihood()], ids=repr)
def test_swapped_eyes_and_other_units_swap_and_scale_the_estimate(estimator):
    outputs, y = toy(1, n=300)
    swap, unit = [1, 0, 3, 2], np.array([25.0, 0.01, 1.0, 1.0])
    plain = estimator.fit(outputs, y).parameters_
    found = estimator.fit((outputs * unit)[:, swap], (y * unit)[:, swap]).parameters_
    np.testing.assert_allclose(found.correlation, plain.correlation[swap][:, swap], atol=2e-5)
    np.testing.assert_allclose(found.scale, (plain.scale * unit[:2]).flip(0), rtol=1e-5)


def test_gaussian_score_correlation_is_the_sample_correlation():
    outputs, y = toy(1, n=200)
    q = norm.ppf(1 / (1 + np.exp(-outputs[:, 2:])))
    by_residual = np.corrcoef(np.column_stack([y[:, :2] - outputs[:, :2], q]), rowvar=False)
    np.testing.assert_allclose(
        GaussianScoreCorrelation().fit(outputs, y).parameters_.correlation, by_residual
    )
    outputs[:, 3] = 0.7  # a score without variance has no correlation
    flat = GaussianScoreCorrelation().fit(outputs, y).parameters_.correlation
    np.testing.assert_allclose(flat[3], np.eye(4)[3], atol=1e-9)


def test_the_benchmark_at_800_times_every_contender():
    found = at_800(1)
    assert found.keys() == contenders().keys() and all(f["seconds"] > 0 for f in found.values())
