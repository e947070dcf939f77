"""Normal probabilities for likelihoods: log space, exact limits, derivatives of every order.

``univariate`` holds the distribution function, its hazard and the normal score of a logit; ``bivariate`` the
probability of a quadrant by one positive integral; ``multivariate`` that of an orthant in up to eight dimensions;
``truncated`` the moments that an EM step needs.
"""

from .bivariate import (
    bivariate_normal_cdf,
    log_bivariate_normal_cdf,
    log_bivariate_normal_cdf_with_gradients,
)
from .multivariate import LogProbability, log_multivariate_normal_cdf
from .truncated import (
    TruncatedMoments,
    truncated_bivariate_normal_moments,
    truncated_normal_mean,
    truncated_normal_variance,
)
from .univariate import log_normal_cdf, normal_hazard, normal_score, normal_score_with_slope

__all__ = [
    "LogProbability",
    "TruncatedMoments",
    "bivariate_normal_cdf",
    "log_bivariate_normal_cdf",
    "log_bivariate_normal_cdf_with_gradients",
    "log_multivariate_normal_cdf",
    "log_normal_cdf",
    "normal_hazard",
    "normal_score",
    "normal_score_with_slope",
    "truncated_bivariate_normal_moments",
    "truncated_normal_mean",
    "truncated_normal_variance",
]
