"""Training: Algorithm 3 of the paper, its stages one by one, the one-stage algorithm,
predictions, and saved models.
"""

from cevit_lib.training.checkpoint import Checkpoint
from cevit_lib.training.fit import NOT_CLINICAL, Fit, Predictions, predict, predict_outputs
from cevit_lib.training.loop import find_device
from cevit_lib.training.network import fit_copula, fit_warm_up
from cevit_lib.training.processes import processes
from cevit_lib.training.recipe import PAPER_COPULA, PAPER_WARM_UP, Recipe
from cevit_lib.training.saving import load_model, save_model
from cevit_lib.training.scaling import Standardisation
from cevit_lib.training.seeds import streams
from cevit_lib.training.whole import FeasibleFit, OneStage, fit_feasible_cevit, fit_one_stage

__all__ = [
    "NOT_CLINICAL",
    "PAPER_COPULA",
    "PAPER_WARM_UP",
    "Checkpoint",
    "FeasibleFit",
    "Fit",
    "OneStage",
    "Predictions",
    "Recipe",
    "Standardisation",
    "find_device",
    "fit_copula",
    "fit_feasible_cevit",
    "fit_one_stage",
    "fit_warm_up",
    "load_model",
    "predict",
    "predict_outputs",
    "processes",
    "save_model",
    "streams",
]
