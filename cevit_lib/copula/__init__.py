"""The mixed Gaussian copula: parameters, likelihood, losses, predictions (Theorem 2.1, Section
3.3).

``scores_given(correlation, target, given)`` is the law of one block of latent scores given another,
for likelihood, estimators and theory; ``condition_on`` updates the predictions of responses.
"""

from cevit_lib.copula.conditioning import likelihood_constants, scores_given
from cevit_lib.copula.density import log_density
from cevit_lib.copula.losses import (
    MOST_TOGETHER,
    CopulaLoss,
    EmpiricalLoss,
    PairwiseCopulaLoss,
    UncertaintyWeightedLoss,
    copula_loss,
)
from cevit_lib.copula.parameters import MINIMUM_EIGENVALUE, CopulaParameters
from cevit_lib.copula.prediction import (
    bayes_classifier,
    class_probabilities,
    condition_on,
    marginal_classifier,
)
from cevit_lib.copula.validation import check_labels

__all__ = [
    "MINIMUM_EIGENVALUE",
    "MOST_TOGETHER",
    "CopulaLoss",
    "CopulaParameters",
    "EmpiricalLoss",
    "PairwiseCopulaLoss",
    "UncertaintyWeightedLoss",
    "bayes_classifier",
    "check_labels",
    "class_probabilities",
    "condition_on",
    "copula_loss",
    "likelihood_constants",
    "log_density",
    "marginal_classifier",
    "scores_given",
]
