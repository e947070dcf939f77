"""Estimators of the copula parameters: the paper's, the exact ones it lacks, and the predecessor's
plug-in.

What all of them share, ``fit`` and the attributes it sets, stands at
:class:`cevit_lib.estimation.base.CopulaEstimator`.
"""

from cevit_lib.estimation.em import ExactEM, FastMCEM, MonteCarloEM
from cevit_lib.estimation.many import estimate_many
from cevit_lib.estimation.mcmc import RankLikelihoodMCMC
from cevit_lib.estimation.mle import MaximumLikelihood, StandardErrors
from cevit_lib.estimation.pairwise import PairwiseLikelihood
from cevit_lib.estimation.scores import GaussianScoreCorrelation

__all__ = [
    "ExactEM",
    "FastMCEM",
    "GaussianScoreCorrelation",
    "MaximumLikelihood",
    "MonteCarloEM",
    "PairwiseLikelihood",
    "RankLikelihoodMCMC",
    "StandardErrors",
    "estimate_many",
]
