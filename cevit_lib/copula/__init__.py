"""The mixed Gaussian copula: parameters, likelihood, losses, predictions (Theorem 2.1, Corollary A.1, Section 3.3)."""

from cevit_lib.copula.conditional import Conditional, condition, tabulate
from cevit_lib.copula.density import log_density
from cevit_lib.copula.losses import CopulaLoss, EmpiricalLoss
from cevit_lib.copula.parameters import MINIMUM_EIGENVALUE, CopulaParameters
from cevit_lib.copula.prediction import (
    Completed,
    bayes_classifier,
    class_probabilities,
    condition_on,
    marginal_classifier,
)
from cevit_lib.copula.validation import check_labels

__all__ = [
    "MINIMUM_EIGENVALUE",
    "Completed",
    "Conditional",
    "CopulaLoss",
    "CopulaParameters",
    "EmpiricalLoss",
    "bayes_classifier",
    "check_labels",
    "class_probabilities",
    "condition",
    "condition_on",
    "log_density",
    "marginal_classifier",
    "tabulate",
]
