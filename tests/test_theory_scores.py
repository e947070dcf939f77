"""The phenomenon, its distortions, interpretation and gain: closed forms against Monte Carlo and
enumeration."""

import numpy as np
import pytest
from scipy.special import ndtr

from cevit_lib.datasets.synthetic import TEXT_CORRELATION
from cevit_lib.estimation.correlation import from_off_diagonal
from cevit_lib.normal import bivariate_normal_cdf
from studies import theory
from studies.theory.overfitting import fit_probit

RHO = 0.569


def test_scores_and_outputs_are_inverse_to_each_other():
    scores = np.array([[1.0, -2.0, 0.3, -0.7], [0.0, 5.0, 6.5, -6.5], [0.0, 0.0, 0.0, -25.0]])
    assert np.allclose(
        theory.scores_from_outputs(theory.outputs_from_scores(scores)),
        scores,
        rtol=1e-9,
        atol=1e-12,
    )


def test_stronger_covariance_is_the_definition():
    rng = np.random.default_rng(0)
    truth = theory.outputs_from_scores(rng.multivariate_normal(np.zeros(4), TEXT_CORRELATION, 400))
    scores = theory.scores_from_outputs(truth)
    scores[:, 2:] *= [-1.5, 1.5]  # a larger covariance of the other sign is stronger, too
    found = theory.stronger_covariance(theory.outputs_from_scores(scores), truth)
    for pair, ratio in {(2, 3): 2.25, (0, 1): 1.0, (0, 2): 1.5}.items():
        assert found.ratio[pair] == pytest.approx(ratio, rel=1e-6)


@pytest.mark.parametrize("name", [n for n in theory.DISTORTIONS])
def test_residual_correlation_under_each_distortion(name):
    """Closed forms of the residual correlation and of Cov(q1-hat, q2-hat) against a large
    sample."""
    rng, n = np.random.default_rng(5), 200_000
    draw = theory.draw_scores(n, rng)
    for strength in theory.DISTORTIONS[name].strengths[:3]:
        if strength == 1.0 and name in ("label-tracking", "own-latent-tracking"):
            continue  # the errors are fitted exactly: no residual is left
        scores = theory.distort(draw, name, strength, rng, tasks="regression")
        found = np.corrcoef((draw.y - scores)[:, :2].T)[0, 1]
        wanted = theory.DISTORTIONS[name].residual_correlation(strength, 0.72)
        assert found == pytest.approx(wanted, abs=4 / np.sqrt(n) + 1e-9)
        limit = theory.DISTORTIONS[name].score_covariance(strength, 0.72)
        sd = scores[:, :2].std(0).prod()
        assert np.cov(scores[:, :2].T)[0, 1] == pytest.approx(limit, abs=6 * sd / np.sqrt(n))


def test_recalibration_undoes_a_shift_and_a_scale():
    rng = np.random.default_rng(2)
    draw, other = theory.draw_scores(20_000, rng), theory.draw_scores(20_000, rng)
    for name, strength in (("constant-shift", 1.0), ("scaling", 2.0)):
        scores = theory.distort(draw, name, strength, rng)
        mended = theory.recalibrate(scores, theory.distort(other, name, strength, rng), other.y)
        assert np.abs(mended - draw.scores)[:, 2:].max() < 0.2
        assert np.array_equal(mended[:, :2], scores[:, :2])


@pytest.mark.parametrize("mean", [(0.0, 0.0), (1.5, -1.5), (0.3, 1.1)])
def test_total_label_covariance_equals_monte_carlo(mean):
    rng, n, gamma = np.random.default_rng(8), 100_000, 0.4
    q = rng.multivariate_normal(mean, [[1, gamma], [gamma, 1]], n)
    u = rng.multivariate_normal([0, 0], [[1, RHO], [RHO, 1]], n)
    y = (q + u > 0).astype(float)
    parts = theory.total_label_covariance(mean, 1.0, gamma, RHO)
    assert parts["total"] == pytest.approx(np.cov(y.T)[0, 1], abs=4 * 0.25 / np.sqrt(n))
    both = bivariate_normal_cdf(theory.tensor(q[:, 0]), theory.tensor(q[:, 1]), RHO).numpy()
    within = (both - ndtr(q).prod(axis=1)).mean()
    assert parts["within"] == pytest.approx(within, abs=2e-3)
    same = theory.implied_latent_correlation(gamma + 0.2, gamma, RHO)
    assert theory.total_label_covariance(mean, 1.0, gamma + 0.2, same)["total"] == pytest.approx(
        parts["total"], abs=1e-12
    )


@pytest.mark.parametrize("mean,sign", [(0.0, 1), (0.4, 1), (0.6, -1), (1.5, -1)])
def test_remark_4_fails_for_scores_of_clearly_opposite_sign_only(mean, sign):
    within = [
        theory.total_label_covariance((mean, -mean), 1.0, g, RHO)["within"]
        for g in (0.0, 0.25, 0.5, 0.9)
    ]
    assert (sign * np.diff(within) > 0).all()


def test_premises_need_every_number_beyond_its_error():
    good = {"true_cov34": 0.5, "cov34": 2.0, "ratio34": 4.0, "concordant_labels": 0.68}
    metrics = {name: {"mean": mean, "se": 0.01} for name, mean in good.items()}
    assert all(holds for _, holds in theory.premises(metrics).values())
    for name, bad in (("true_cov34", -0.5), ("ratio34", 1.01), ("concordant_labels", 0.4)):
        broken = metrics | {name: {"mean": bad, "se": 0.01}}
        assert [holds for _, holds in theory.premises(broken).values()].count(False) == 1


def test_each_rule_is_best_at_its_own_metric_and_the_printed_one_never_says_both():
    """Against all 4^n rules would be many; per patient the four predictions can be enumerated."""
    rng = np.random.default_rng(4)
    p3, p4 = rng.uniform(size=(2, 4000))
    rules = theory.compare_rules(p3, p4, RHO)
    cells = theory.label_cells(p3, p4, RHO)
    assert np.allclose(cells.sum((1, 2)), 1) and np.allclose(cells[:, 1].sum(1), p3)
    joint = cells.reshape(-1, 4).max(1).mean()
    per_eye = np.maximum(np.stack([p3, p4]), 1 - np.stack([p3, p4])).mean()
    assert rules["joint"]["joint"] == pytest.approx(joint, abs=1e-12)
    assert rules["marginal"]["per_eye"] == pytest.approx(per_eye, abs=1e-12)
    assert rules["joint"]["per_eye"] < per_eye and rules["marginal"]["joint"] < joint
    printed = rules["printed"]
    assert [1, 1] in printed["never"] and printed["differs_from_marginal"] > 0.4
    assert (theory.label_cells(p3, p4, RHO, "printed") < 0).any()


def test_gls_ratio_follows_its_limit_and_is_one_for_identical_regressors():
    rng = np.random.default_rng(9)
    for shared in (False, True):
        for r in (0.0, 0.8):
            model = theory.TwoEyeRegression(*theory.draw_two_eyes(400, 2, r, rng), 0.72, shared)
            assert model.efficiency() == pytest.approx(theory.gain_limit(0.72, r), rel=0.1)
        left = rng.standard_normal((60, 3))
        model = theory.TwoEyeRegression(left, left, 0.72, shared)
        y = rng.standard_normal(120)
        ols, gls = model.fit(y)
        assert model.efficiency() == pytest.approx(1.0, abs=1e-9) and np.allclose(ols, gls)


def test_free_binary_pair_is_unbiased_only_for_the_true_and_for_no_correlation():
    truth = ndtr([1.0, -0.5])
    for rho in (0.0, RHO):
        assert np.allclose(
            ndtr(theory.binary_pair_minimum([1.0, -0.5], RHO, rho)), truth, atol=1e-6
        )
    biased = ndtr(theory.binary_pair_minimum([1.0, -0.5], RHO, 0.95))
    assert biased[0] < truth[0] - 0.03 and biased[1] > truth[1] + 0.03


def test_free_model_keeps_its_means_but_not_its_margins_under_a_wrong_correlation():
    gamma, scores = TEXT_CORRELATION, np.array([0.0, 0.0, 1.0, -0.5])
    assert np.allclose(theory.free_model_minimum(scores, gamma, gamma, nodes=16), scores, atol=1e-5)
    upper = gamma[np.triu_indices(4, 1)]
    wrong = from_off_diagonal([*upper[:5], 0.95], 4)
    found = theory.free_model_minimum(scores, gamma, wrong, nodes=24)
    assert np.allclose(found[:2], 0, atol=1e-3)
    assert ndtr(found[2:])[0] < ndtr([1.0])[0] - 0.05


def test_probit_fit_recovers_coefficients_and_survives_separation():
    rng = np.random.default_rng(12)
    x = rng.standard_normal((20_000, 3))
    beta = np.array([1.0, -0.5, 0.25])
    y = (x @ beta + rng.standard_normal(20_000) > 0).astype(float)
    assert np.allclose(fit_probit(x, y), beta, atol=4 * 0.013)
    separated = fit_probit(x[:40], (x[:40, 0] > 0).astype(float))
    assert np.isfinite(separated).all() and separated[0] > 5


def test_cross_fitting_never_predicts_a_patient_with_a_model_that_saw_them():
    eyes = theory.draw_linear_eyes(40, 3, np.random.default_rng(1))
    seen = []

    def fit(train):
        rows = {tuple(r) for r in train.y}
        return lambda held: seen.append(rows & {tuple(r) for r in held.y}) or np.zeros_like(held.y)

    assert theory.cross_fit(eyes, fit, 5, np.random.default_rng(2)).shape == eyes.y.shape
    assert len(seen) == 5 and not any(seen)


def test_network_interpolates_and_is_reproducible():
    train = theory.draw_linear_eyes(40, 10, np.random.default_rng(3))
    (_, early, _), (_, late, same) = theory.train_network(train, train, [20, 400], seed=1, width=64)
    ((_, again, _),) = theory.train_network(train, train, [20], seed=1, width=64)
    assert np.array_equal(early, again) and np.allclose(late, same)
    assert (train.y - late)[:, :2].std() < 0.2 * (train.y - early)[:, :2].std()
    assert ((late[:, 2:] > 0) == train.y[:, 2:]).mean() > 0.95
