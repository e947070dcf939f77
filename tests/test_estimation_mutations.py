"""Mutations of the estimators: each breaks one thing that matters, and the test that it names must
fail.

A mutation that survives means that a test has stopped looking.
"""

import runpy
import sys
from collections import namedtuple
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

import cevit_lib.estimation

HERE = Path(__file__).parent
ROOM = Path(cevit_lib.estimation.__file__).parent
STEP = "test_estimation_e_step"
WHOLE = "test_estimation"
SAMPLING = "test_estimation_sampling"


#: What is changed in which module, and the test that must notice, with its arguments.
Mutation = namedtuple("Mutation", "what module before after file test arguments", defaults=[()])


MUTATIONS = [
    Mutation(
        "sign: a label's latent lies below its threshold",
        "observed",
        "sign = 2.0 * np",
        "sign = -2.0 * np",
        WHOLE,
        "test_fmcem_is_algorithm_two_line_by_line",
    ),
    Mutation(
        "sign: the log-determinant as the paper prints it",
        "correlation",
        "return -float(np.log(factor",
        "return float(np.log(factor",
        "test_theory_formulas",
        "test_printed_objective_has_no_maximum_and_the_right_one_does",
    ),
    Mutation(
        "threshold: +q instead of -q",
        "observed",
        "threshold = -normal_score(logits)",
        "threshold = normal_score(logits)",
        STEP,
        "test_observed_likelihood_is_the_copula_modules_log_density",
    ),
    Mutation(
        "threshold: the raw logit",
        "observed",
        "threshold = -normal_score(logits)",
        "threshold = -(logits)",
        WHOLE,
        "test_fmcem_is_algorithm_two_line_by_line",
    ),
    Mutation(
        "covariance term: the conditional covariance is left out of the exact E-step",
        "moments",
        "mean.T @ mean + cross + cross.T + around, log_probability",
        "mean.T @ mean + cross + cross.T + shift.T @ shift, log_probability",
        STEP,
        "test_plugged_in_moments_leave_out_exactly_the_conditional_covariance",
    ),
    Mutation(
        "covariance term: a missing response without its conditional covariance",
        "moments",
        "len(part) * covariance",
        "0 * covariance",
        WHOLE,
        "test_a_continuous_response_missing_at_random_needs_its_scale_fitted_too",
    ),
    Mutation(
        "covariance term: the cross moment without its flip",
        "moments",
        "by_r = flip @ correlation_slope(",
        "by_r = np.ones(len(b)) @ correlation_slope(",
        STEP,
        "test_bivariate_moments_match_two_dimensional_integration",
        ((1, -1),),
    ),
    Mutation(
        "E-step: univariate means standardised by the variance",
        "moments",
        "    sd = np.sqrt(np.diag(covariance))\n    return [",
        "    sd = np.diag(covariance)\n    return [",
        WHOLE,
        "test_fmcem_bias_grows_with_the_signal_even_without_sampling_noise",
    ),
    Mutation(
        "M-step: the constrained maximiser is cov2cor",
        "correlation",
        "    current, value = start, complete_objective(start, second_moment)",
        "    return cov2cor(second_moment)",
        STEP,
        "test_constrained_m_step_beats_brute_force",
    ),
    Mutation(
        "M-step: Algorithm 2 without cov2cor's rescaling",
        "correlation",
        "correlation = covariance * inverse[:, None] * inverse",
        "correlation = covariance.copy()",
        WHOLE,
        "test_fmcem_is_algorithm_two_line_by_line",
    ),
    Mutation(
        "likelihood: the scale's derivative forgets its own term",
        "mle",
        "(np.diag(product)[: observed.p0] - 1.0)",
        "np.diag(product)[: observed.p0]",
        STEP,
        "test_score_by_fishers_identity_is_the_derivative_of_the_likelihood",
        (False, 2),
    ),
    Mutation(
        "standard errors: information of one patient",
        "mle",
        "information[index] = -observed.n *",
        "information[index] = -",
        WHOLE,
        "test_standard_errors_match_the_numerical_hessian",
    ),
    Mutation(
        "sampler: the deep tail flushed to zero",
        "sampling",
        "DEEP = -30.0",
        "DEEP = -np.inf",
        SAMPLING,
        "test_truncated_draws_have_the_right_law_however_far_out",
        (-40.0,),
    ),
    Mutation(
        "sampler: scores that are known are drawn",
        "sampling",
        "np.where(side == 0, z[column], ",
        "np.where(False, z[column], ",
        SAMPLING,
        "test_a_sweep_leaves_known_scores_alone_and_conditions_on_them",
    ),
    Mutation(
        "sampler: a proposal is accepted the wrong way round",
        "mcmc",
        "min(0.0, proposed - value)",
        "min(0.0, value - proposed)",
        SAMPLING,
        "test_samplers_have_the_likelihoods_mode_and_spread",
        ("proper", 0.6, 0.25),
    ),
]


def plant(mutation: Mutation, monkeypatch) -> None:
    """Let the next import of the estimators find the mutation; undone with ``monkeypatch``."""
    text = (ROOM / f"{mutation.module}.py").read_text("utf-8")
    assert mutation.before in text, f"{mutation.before!r} is no longer in {mutation.module}.py"
    usual = SourceFileLoader.get_code

    def get_code(loader, name):
        if name != f"cevit_lib.estimation.{mutation.module}":
            return usual(loader, name)
        return compile(text.replace(mutation.before, mutation.after), loader.path, "exec")

    monkeypatch.setattr(SourceFileLoader, "get_code", get_code)
    monkeypatch.delattr(cevit_lib, "estimation")
    for name in [name for name in sys.modules if name.startswith("cevit_lib.estimation")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.what)
def test_a_planted_mutation_is_killed_by_its_named_test(mutation, monkeypatch):
    plant(mutation, monkeypatch)
    tests = runpy.run_path(str(HERE / f"{mutation.file}.py"))
    with pytest.raises(AssertionError):
        tests[mutation.test](*mutation.arguments)
