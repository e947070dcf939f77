"""The restated theorems against brute-force integration, and the printed ones failing, so that
nobody fixes them back.

The four cells of Theorem 2.1 and the prediction cells are tested in ``test_copula*.py``; here are
Corollary A.1 for p1 = 2, 3, 4, the lines of the proof, the Tallis lemma, the monotonicity lemma and
the signs of Section 2.3.
"""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import logit
from scipy.stats import multivariate_normal, truncnorm

from cevit_lib.copula import CopulaParameters, class_probabilities, scores_given
from cevit_lib.datasets.synthetic import TEXT_CORRELATION
from cevit_lib.estimation.correlation import complete_objective, from_off_diagonal
from cevit_lib.normal import bivariate_normal_cdf
from studies import theory
from studies.theory.printed import printed_conditional_cells, printed_prediction_cells

RHO = 0.569


def cell_box(labels, thresholds):
    labels = np.asarray(labels)
    return np.where(labels == 1, thresholds, -np.inf), np.where(labels == 1, np.inf, thresholds)


def configuration(p1, seed=0):
    """A conditional distribution with sizeable correlations of both signs."""
    rng = np.random.default_rng([p1, seed])
    root = rng.standard_normal((p1, p1 + 3))
    covariance = root @ root.T
    sd = np.sqrt(np.diag(covariance)) / rng.uniform(0.7, 1.0, p1)
    return rng.normal(0, 0.8, p1), rng.normal(0, 0.5, p1), covariance / np.outer(sd, sd)


PAPER = CopulaParameters(TEXT_CORRELATION, [1.3, 0.7])


def test_printed_equation_10_is_right_at_thresholds_of_zero_and_negative_elsewhere():
    rng = np.random.default_rng(0)
    y = theory.tensor(np.hstack([rng.normal(size=(50, 2)), np.full((50, 2), np.nan)]))
    zero = torch.zeros_like(y)
    found = printed_conditional_cells(zero, y, PAPER)
    torch.testing.assert_close(found, class_probabilities(zero, PAPER, y), rtol=1e-10, atol=0)
    cells = printed_conditional_cells(theory.tensor([[0.0, 0.0, -1.473, -0.326]]), zero[:1], PAPER)
    assert float(cells.sum()) == pytest.approx(1, abs=1e-14) and cells[0, 1, 0] < -0.01


def test_printed_prediction_swaps_the_corners():
    """The printed p_(1,1) is the probability of (0, 0), and the printed four do not sum to one."""
    outputs = theory.tensor([[0.0, 0.0, *logit([0.7, 0.4])], [0.0, 0.0, *logit([0.55, 0.55])]])
    right, printed = (f(outputs, PAPER) for f in (class_probabilities, printed_prediction_cells))
    torch.testing.assert_close(printed[:, 1, 1], right[:, 0, 0])
    torch.testing.assert_close(printed.sum((1, 2)), 1 + 2 * right[:, 0, 0])
    assert right[1].argmax() == 3 and printed[1].argmax() != 3  # (1, 1) is not the largest


@pytest.mark.parametrize("p1", [2, 3, 4])
def test_corollary_equals_brute_force_in_every_cell(p1):
    thresholds, mean, covariance = configuration(p1)
    cells = list(product((0, 1), repeat=p1))
    for labels in cells if p1 < 4 else cells[::3]:
        wanted = theory.integrate_normal(
            *cell_box(labels, thresholds), mean, covariance, 48 if p1 < 4 else 28
        )
        for formula in (theory.cell_probability, theory.inclusion_exclusion_probability):
            assert formula(labels, thresholds, mean, covariance) == pytest.approx(
                wanted, abs=3e-8
            ), labels


@pytest.mark.parametrize("p1", [2, 3, 4])
@pytest.mark.parametrize(
    "formula", [theory.printed_limits_probability, theory.printed_expansion_probability]
)
def test_printed_corollary_is_no_probability(p1, formula):
    """Both printed sums fall below zero in some cells; they are right only in the cell without a
    positive label."""
    lowest, gaps = [], []
    for seed in range(6 if p1 < 4 else 3):
        thresholds, mean, covariance = configuration(p1, seed)
        cells = list(product((0, 1), repeat=p1))[:: 1 if p1 < 4 else 5]
        printed, right = (
            np.array([cell(labels, thresholds, mean, covariance) for labels in cells])
            for cell in (formula, theory.cell_probability)
        )
        assert printed[0] == pytest.approx(right[0], abs=1e-8)
        lowest.append(printed.min())
        gaps.append(np.abs(printed - right)[1:].max())
    assert min(lowest) < -0.02
    assert min(gaps) > 0.02


def test_last_lines_of_all_four_cases_of_the_proof_fail():
    logits = np.array([0.691, 1.643])
    thresholds = -theory.scores_from_outputs(logits[None], 0)[0]
    mean = np.array([0.3, -0.2])
    covariance = scores_given(TEXT_CORRELATION, [2, 3], [0, 1]).covariance.numpy()
    for labels in product((0, 1), repeat=2):
        wanted = theory.integrate_normal(*cell_box(labels, thresholds), mean, covariance, 64)
        printed = theory.printed_case(*labels, thresholds, logits, mean, covariance)
        assert abs(printed - wanted) > 0.005, labels


@pytest.mark.parametrize(
    "c1,c2,rho", [(0.5, -0.3, RHO), (-1.0, 1.5, 0.9), (1.0, 1.0, 0.2), (0.3, 0.8, -0.6)]
)
def test_tallis_moments_equal_brute_force(c1, c2, rho):
    nodes, weights = np.polynomial.legendre.leggauss(300)
    sides = [(9 - c) / 2 * nodes + (9 + c) / 2 for c in (c1, c2)]
    points = np.stack(np.meshgrid(*sides, indexing="ij"), -1)
    law = multivariate_normal([0, 0], [[1, rho], [rho, 1]])
    mass = law.pdf(points) * np.outer(weights, weights) * (9 - c1) * (9 - c2) / 4
    alpha = mass.sum()
    mean = np.einsum("ab,abj->j", mass, points) / alpha
    second = np.einsum("ab,abj,abk->jk", mass, points, points) / alpha - np.outer(mean, mean)
    found = theory.orthant_moments(c1, c2, rho)
    assert found.probability == pytest.approx(alpha, abs=1e-9)
    np.testing.assert_allclose(found.matrix, second, atol=1e-7)
    np.testing.assert_allclose(found.mean, mean, atol=1e-7)
    derivative = float(theory.tallis_derivative(c1, c2, rho))
    assert rho + derivative == pytest.approx(second[0, 1], abs=1e-7)
    assert rho - derivative != pytest.approx(second[0, 1], abs=0.02)  # as printed: one sign off
    assert theory.printed_orthant_covariance(c1, c2, rho) == rho - derivative


def test_truncation_always_weakens_a_positive_correlation():
    """The lemma's derivative is negative, as printed; so its Corr > rho is wrong: 0 < Corr < rho in
    every quadrant."""
    rng = np.random.default_rng(7)
    c1, c2 = rng.uniform(-2.5, 2.5, (2, 5000))
    rho = rng.uniform(0.02, 0.98, 5000)
    for sides in product((-1, 1), repeat=2):
        found = theory.orthant_moments(c1, c2, rho, sides)
        likely = found.probability > 1e-5
        assert ((found.correlation > 0) & (found.correlation < rho))[likely].all()
    assert (theory.tallis_derivative(c1, c2, rho)[likely] < 0).all()  # where both are positive


def test_within_and_between_cells_add_up_to_rho():
    """Law of total covariance over the label cells; the printed limit is only the part within."""
    q = np.random.default_rng(3).normal(size=(4000, 2))
    parts = theory.decompose_latent_correlation(q[:, 0], q[:, 1], RHO)
    assert parts["total"] == pytest.approx(RHO, abs=1e-10)
    assert parts["printed_limit"] < RHO - 0.15


def test_gaussian_concordance_equals_monte_carlo_and_increases():
    rng, n = np.random.default_rng(11), 400_000
    mean, covariance = np.array([0.4, -0.7]), np.array([[1.0, -0.3], [-0.3, 1.5]])
    q = rng.multivariate_normal(mean, covariance, n)
    u = rng.multivariate_normal([0, 0], [[1, RHO], [RHO, 1]], n)
    share = (((q + u) > 0).sum(1) != 1).mean()
    assert theory.expected_concordance(mean, covariance, RHO) == pytest.approx(
        share, abs=4 * 0.5 / np.sqrt(n)
    )
    for rho in (-0.5, 0.0, RHO):
        values = [
            theory.expected_concordance([0.4, -0.7], [[1, g], [g, 1]], rho)
            for g in np.linspace(-0.9, 0.9, 13)
        ]
        assert (np.diff(values) > 0).all()


def test_concordance_may_fall_while_the_covariance_rises():
    """Same margins, both covariances positive, the larger one less concordant: the lemma needs more
    than "covariance"."""
    support, margin = np.array([-3.0, -0.5, 0.5, 3.0]), np.full(4, 0.25)
    low = theory.extreme_concordance(support, margin, 0.05, RHO, largest=True)
    high = theory.extreme_concordance(support, margin, 1.0, RHO)
    for plan in (low, high):
        assert np.allclose(plan.weights.sum(0), margin) and np.allclose(plan.weights.sum(1), margin)
        assert plan.weights.min() >= 0
        table = theory.concordance_probability(support[:, None], support[None], RHO)
        assert (plan.weights * table).sum() == pytest.approx(plan.concordance, abs=1e-12)
    assert [low.covariance, high.covariance] == pytest.approx([0.05, 1.0], abs=1e-9)
    assert high.concordance < low.concordance - 0.05


def test_printed_concordance_exceeds_one():
    """The symmetry that it uses does not hold."""
    assert theory.printed_concordance_probability(1.5, 1.5, RHO) > 1.3
    both, none = (float(bivariate_normal_cdf(q, q, theory.tensor(RHO))) for q in (1.5, -1.5))
    assert theory.concordance_probability(1.5, 1.5, RHO) == pytest.approx(both + none, abs=1e-14)
    assert both - none > 0.6


def test_printed_objective_has_no_maximum_and_the_right_one_does():
    scatter = TEXT_CORRELATION
    printed = [
        theory.printed_expected_log_likelihood(k * scatter, scatter) for k in (1, 10, 100, 1000)
    ]
    right = [complete_objective(k * scatter, scatter) for k in (0.5, 1, 10, 100, 1000)]
    assert (np.diff(printed) > 5).all()
    assert np.argmax(right) == 1


def test_trace_is_two_only_where_both_matrices_agree():
    gamma = TEXT_CORRELATION
    upper = gamma[np.triu_indices(4, 1)]
    assert theory.trace_term(gamma, gamma) == pytest.approx(2.0, abs=1e-12)
    for rho, least in ((0.8, 1.0), (0.9, 5.0)):
        assert theory.trace_term(from_off_diagonal([*upper[:5], rho], 4), gamma) > 2 + least
    assert theory.trace_term(from_off_diagonal([*upper[:5], 0.3], 4), gamma) < 1.9


def test_truncated_variance_has_no_positive_lower_bound():
    for q in (2.0, 0.0, -1.0, -5.0, -15.0):
        assert theory.truncated_variance(q) == pytest.approx(truncnorm(-q, np.inf).var(), rel=1e-5)
    assert theory.truncated_variance(-19.999) == pytest.approx(
        float(theory.truncated_variance(-20.001)), rel=1e-3
    )
    assert theory.truncated_variance(-200.0) < 3e-5


def test_printed_cross_entropy_prefers_the_wrong_label():
    assert theory.printed_cross_entropy(0.9, 1) > theory.printed_cross_entropy(0.1, 1)
