"""Normal probabilities for likelihoods: log space, exact limits, derivatives of every order.

``univariate`` holds the distribution function, its hazard and the normal score of a logit;
``bivariate`` the probability of a pair, the one ``Phi_2`` of likelihood, estimators and figures;
``multivariate`` that of up to eight; ``truncated`` the moments that an E-step needs.

For custom losses and E-steps, elementwise on tensors and without autograd:

``bivariate.log_cdf_of_pairs(limits, sign, nodes, digits)``
    ``log Phi_2`` and its slopes in both limits for pairs that share the size of their correlation:
    row ``i`` has the correlation ``sign[i] * rho``, ``sign`` being 1, -1 or 0, and all share
    ``nodes = PlackettNodes.of(rho)``. That is quick, most of all with ``digits=8``, which takes
    Plackett's integral for probabilities down to 1e-7 (12 digits: 1e-3).
``truncated_normal_mean(limit, mean, standard_deviation, side)``, ``truncated_normal_variance``
    Of one score below (``side`` -1) or above (+1) its limit.
"""

from cevit_lib.normal.bivariate import (
    bivariate_normal_cdf,
    log_bivariate_normal_cdf,
)
from cevit_lib.normal.multivariate import log_multivariate_normal_cdf
from cevit_lib.normal.truncated import (
    truncated_normal_mean,
    truncated_normal_variance,
)
from cevit_lib.normal.univariate import log_normal_cdf, normal_hazard, normal_score

__all__ = [
    "bivariate_normal_cdf",
    "log_bivariate_normal_cdf",
    "log_multivariate_normal_cdf",
    "log_normal_cdf",
    "normal_hazard",
    "normal_score",
    "truncated_normal_mean",
    "truncated_normal_variance",
]
