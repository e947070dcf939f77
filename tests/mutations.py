"""Mutations of the estimators: each breaks one thing that matters, and names the test that must fail for it.

    python tests/mutations.py            plants each mutation in a copy of the package and runs its test

A mutation that survives means that a test has stopped looking. ``tests/test_estimation_mutations.py`` runs this.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
STEP = "tests/test_estimation_e_step.py::"
WHOLE = "tests/test_estimation.py::"
SAMPLING = "tests/test_estimation_sampling.py::"


class Mutation(NamedTuple):
    """What is changed where, and the test that must notice."""

    what: str
    file: str
    before: str
    after: str
    test: str


MUTATIONS = [
    Mutation(
        "sign: a label's latent lies below its threshold",
        "estimation/observed.py",
        "sign = 2.0 * np",
        "sign = -2.0 * np",
        WHOLE + "test_fmcem_is_algorithm_two_line_by_line",
    ),
    Mutation(
        "sign: the log-determinant as the paper prints it",
        "estimation/correlation.py",
        "return -float(np.log(factor",
        "return float(np.log(factor",
        STEP + "test_printed_sign_of_the_log_determinant_has_no_maximum",
    ),
    Mutation(
        "threshold: +q instead of -q",
        "estimation/observed.py",
        "threshold = -normal_score(logits)",
        "threshold = normal_score(logits)",
        STEP + "test_observed_likelihood_is_the_copula_modules_log_density",
    ),
    Mutation(
        "threshold: the raw logit",
        "estimation/observed.py",
        "threshold = -normal_score(logits)",
        "threshold = -(logits)",
        WHOLE + "test_fmcem_is_algorithm_two_line_by_line",
    ),
    Mutation(
        "covariance term: the conditional covariance is left out of the exact E-step",
        "estimation/e_step.py",
        "return mean + centred, mean.T @ mean + cross + cross.T + spread, log_p",
        "return mean + centred, mean.T @ mean + cross + cross.T + centred.T @ centred, log_p",
        STEP + "test_plugged_in_moments_leave_out_exactly_the_conditional_covariance",
    ),
    Mutation(
        "covariance term: a missing response without its conditional covariance",
        "estimation/e_step.py",
        "len(part) * given.covariance",
        "0 * given.covariance",
        WHOLE + "test_a_continuous_response_missing_at_random_needs_its_scale_fitted_too",
    ),
    Mutation(
        "covariance term: the cross moment without its flip",
        "estimation/e_step.py",
        "[flip @ w12, w22.sum()]",
        "[w12.sum(), w22.sum()]",
        STEP + "test_bivariate_moments_match_two_dimensional_integration",
    ),
    Mutation(
        "E-step: univariate means standardised by the variance",
        "estimation/e_step.py",
        "sd = np.sqrt(np.diag(within.covariance))",
        "sd = np.diag(within.covariance)",
        WHOLE + "test_fmcem_bias_grows_with_the_signal_even_without_sampling_noise",
    ),
    Mutation(
        "M-step: the constrained maximiser is cov2cor",
        "estimation/correlation.py",
        "    current, value = start, complete_objective(start, second_moment)",
        "    return cov2cor(second_moment)\n    current, value = start, complete_objective(start, second_moment)",
        STEP + "test_constrained_m_step_beats_brute_force",
    ),
    Mutation(
        "M-step: Algorithm 2 without cov2cor's rescaling",
        "estimation/correlation.py",
        "correlation = covariance * inverse[:, None] * inverse",
        "correlation = covariance.copy()",
        WHOLE + "test_fmcem_is_algorithm_two_line_by_line",
    ),
    Mutation(
        "likelihood: the scale's derivative forgets its own term",
        "estimation/mle.py",
        "(np.diag(product)[: observed.p0] - 1.0)",
        "np.diag(product)[: observed.p0]",
        STEP + "test_score_by_fishers_identity_is_the_derivative_of_the_likelihood",
    ),
    Mutation(
        "standard errors: information of one patient",
        "estimation/mle.py",
        "information[index] = -observed.n *",
        "information[index] = -",
        WHOLE + "test_standard_errors_match_the_numerical_hessian_and_the_spread_over_data_sets",
    ),
    Mutation(
        "sampler: the deep tail flushed to zero",
        "estimation/sampling.py",
        "DEEP = -30.0",
        "DEEP = -np.inf",
        SAMPLING + "test_truncated_draws_have_the_right_law_however_far_out",
    ),
    Mutation(
        "sampler: a proposal is accepted the wrong way round",
        "estimation/mcmc.py",
        "< proposed - value:",
        "< value - proposed:",
        SAMPLING + "test_proper_sampler_has_the_likelihoods_mode_and_spread",
    ),
]


def kill(mutation: Mutation) -> str:
    """Plant a mutation in a copy of the package, run its test there, and return "killed" or what happened instead."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(
            ROOT / "cevit_lib", copy / "cevit_lib", ignore=shutil.ignore_patterns("__pycache__")
        )
        (copy / "tests").mkdir()
        name = mutation.test.partition("::")[0]
        shutil.copy(ROOT / name, copy / name)
        target = copy / "cevit_lib" / mutation.file
        text = target.read_text("utf-8")
        if text.count(mutation.before) < 1:
            return f"cannot be planted: {mutation.before!r} is not in {mutation.file}"
        target.write_text(text.replace(mutation.before, mutation.after), "utf-8")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            "--rootdir",
            folder,
            mutation.test,
        ]
        environment = os.environ | {
            "PYTHONPATH": folder,
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300
        )
    # 1 means that a test failed; anything else (no test found, an import error) proves nothing
    return (
        "killed"
        if done.returncode == 1 and " failed" in done.stdout
        else f"survived:\n{done.stdout[-800:]}"
    )


def run(workers: int = 2) -> dict[str, str]:
    """Return each mutation's fate."""
    with ThreadPoolExecutor(workers) as pool:
        return dict(
            zip((mutation.what for mutation in MUTATIONS), pool.map(kill, MUTATIONS), strict=True)
        )


if __name__ == "__main__":
    fates = run()
    for what, fate in fates.items():
        print(f"{fate:10s} {what}")
    sys.exit(any(fate != "killed" for fate in fates.values()))
