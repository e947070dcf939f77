"""Checks of the paper's theory: what each proposition claims, what holds, and the printed formulas
that do not.

Everything here serves the pages "Stronger covariance" and "Proofs, checked"; loss and estimators do
not need it.
"""

from studies.theory.arrays import outputs_from_scores, scores_from_outputs, tensor
from studies.theory.concordance import (
    concordance_probability,
    expected_concordance,
    extreme_concordance,
    printed_concordance_probability,
)
from studies.theory.corollary import (
    cell_probability,
    inclusion_exclusion_probability,
    integrate_normal,
    printed_case,
    printed_expansion_probability,
    printed_limits_probability,
)
from studies.theory.gain import (
    LinearEyes,
    TwoEyeRegression,
    binary_pair_minimum,
    draw_two_eyes,
    free_model_minimum,
    gain,
    gain_limit,
    information,
)
from studies.theory.interpretation import (
    compare_rules,
    implied_latent_correlation,
    label_cells,
    total_label_covariance,
)
from studies.theory.overfitting import (
    cross_fit,
    draw_linear_eyes,
    fit_linear,
    train_network,
)
from studies.theory.premises import premises
from studies.theory.printed import (
    printed_cross_entropy,
    printed_expected_log_likelihood,
    trace_term,
)
from studies.theory.scores import (
    DISTORTIONS,
    EXCHANGEABLE_CORRELATION,
    distort,
    draw_scores,
    recalibrate,
    stronger_covariance,
)
from studies.theory.truncated import (
    decompose_latent_correlation,
    orthant_moments,
    printed_orthant_covariance,
    tallis_derivative,
    truncated_variance,
)

__all__ = [
    "DISTORTIONS",
    "EXCHANGEABLE_CORRELATION",
    "LinearEyes",
    "TwoEyeRegression",
    "binary_pair_minimum",
    "cell_probability",
    "compare_rules",
    "concordance_probability",
    "cross_fit",
    "decompose_latent_correlation",
    "distort",
    "draw_linear_eyes",
    "draw_scores",
    "draw_two_eyes",
    "expected_concordance",
    "extreme_concordance",
    "fit_linear",
    "free_model_minimum",
    "gain",
    "gain_limit",
    "implied_latent_correlation",
    "inclusion_exclusion_probability",
    "information",
    "integrate_normal",
    "label_cells",
    "orthant_moments",
    "outputs_from_scores",
    "premises",
    "printed_case",
    "printed_concordance_probability",
    "printed_cross_entropy",
    "printed_expansion_probability",
    "printed_expected_log_likelihood",
    "printed_limits_probability",
    "printed_orthant_covariance",
    "recalibrate",
    "scores_from_outputs",
    "stronger_covariance",
    "tallis_derivative",
    "tensor",
    "total_label_covariance",
    "trace_term",
    "train_network",
    "truncated_variance",
]
