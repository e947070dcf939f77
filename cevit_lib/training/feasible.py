"""Algorithm 3 for one network, whole."""

import os
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import PairedEyes
from cevit_lib.errors import ParameterError
from cevit_lib.training.algorithm import AlgorithmThree
from cevit_lib.training.checkpoint import Checkpoint
from cevit_lib.training.fit import Fit
from cevit_lib.training.network import Estimation, fit_copula, fit_warm_up
from cevit_lib.training.recipe import PAPER_COPULA, PAPER_WARM_UP, Recipe


@dataclass(frozen=True)
class Settings(Estimation):
    """What may be chosen of Algorithm 3; the arguments of :func:`fit_feasible_cevit`, by name.

    Attributes
    ----------
    estimator, estimate_on, held_out_share, folds, standardise
        See :class:`~cevit_lib.training.network.Estimation`; the default estimator is ``ExactEM()``.
    warm_up, copula : Recipe
        Of steps 1 and 3.
    """

    warm_up: Recipe = Recipe()
    copula: Recipe = Recipe(60, 1e-4)

    @classmethod
    def of(cls, preset: str | None, **given: Any) -> "Settings":
        """Return settings as they are given, or as a preset has them."""
        from cevit_lib.estimation import ExactEM, FastMCEM

        if preset not in (None, "paper"):
            raise ParameterError(f"preset {preset!r} is unknown; the one there is: 'paper'.")
        if preset == "paper":
            given |= {"estimator": FastMCEM(), "estimate_on": "train", "standardise": False}
            given |= {"warm_up": PAPER_WARM_UP, "copula": PAPER_COPULA}
        return cls(**{**given, "estimator": given.get("estimator") or ExactEM()})


@dataclass(frozen=True)
class FeasibleFit:
    """The steps of Algorithm 3: the warm-up, the estimate made from it, and the copula's fit.

    Attributes
    ----------
    warm_up, copula : Fit
        Networks after step 1 and after step 3, both with the estimated parameters.
    estimator : Estimator
        As it was fitted in step 2.
    seen, held_out : PairedEyes, PairedEyes or None
        Patients of the training data on whom all stages trained, and those set aside for the
        estimate.
    recipe : Recipe
        Of step 3.
    order : int
        Seed of step 3.
    """

    warm_up: Fit
    copula: Fit
    estimator: Any
    seen: PairedEyes
    held_out: PairedEyes | None
    recipe: Recipe
    order: int

    @property
    def parameters(self) -> CopulaParameters:
        """The copula parameters that step 3 used."""
        return self.copula.parameters

    def arm(self, parameters: CopulaParameters | None, stage: str, **where: Any) -> Fit:
        """Train another arm from the same warm-up: same patients, epochs, recipe and order.

        ``parameters=None`` goes on with the empirical loss, which controls for the extra epochs;
        ``CopulaParameters.independent(scale, 2)`` controls for the re-weighting by the scales.
        ``device`` and ``checkpoint`` are those of :func:`fit_feasible_cevit`.
        """
        where |= {"stage": stage, "validation": self.held_out}
        where |= {"rng": np.random.default_rng(self.order), "recipe": self.recipe}
        if parameters is None:
            return fit_warm_up(self.warm_up, self.seen, **where)
        return fit_copula(self.warm_up, self.seen, parameters, **where)


def fit_feasible_cevit(
    model: nn.Module,
    data: PairedEyes,
    *,
    rng: np.random.Generator,
    device: str | torch.device | None = None,
    checkpoint: Checkpoint | str | os.PathLike | None = None,
    preset: Literal["paper"] | None = None,
    **settings: Any,
) -> FeasibleFit:
    """Algorithm 3 whole: warm-up, estimate, copula training.

    Parameters
    ----------
    model : torch.nn.Module
        A fresh network, such as :class:`cevit_lib.encoder.BiChannelViT`; the warm-up trains it in
        place.
    data : PairedEyes
        Training patients.
    rng : numpy.random.Generator
        All randomness of the fit.
    device : str or torch.device, optional
        Default: the accelerator that is there.
    checkpoint : Checkpoint or path, optional
        Folder of the fit's state: killed at any moment and called again, with the same network,
        data and seed, the fit goes on after its last whole epoch; on a CPU it ends bit for bit as
        if it had never stopped.
    preset : {"paper"}, optional
        The paper's settings: its recipes, fMCEM, on the training residuals, raw units. It sets
        ``estimator``, ``estimate_on``, ``warm_up``, ``copula`` and ``standardise``.
    **settings
        ``estimator``, ``estimate_on``, ``warm_up``, ``copula``, ``held_out_share``, ``folds``,
        ``standardise``: see :class:`~cevit_lib.training.feasible.Settings`.

    Returns
    -------
    FeasibleFit

    Raises
    ------
    TrainingError
        A stage diverged or collapsed, or the warm-up interpolates so that nothing is left to
        estimate from.
    ParameterError
        ``estimate_on`` or ``preset`` is unknown.
    """
    chosen = Settings.of(preset, **settings)
    network = chosen.network(model, data, rng, device=device, checkpoint=checkpoint)
    fresh = network.copy() if chosen.estimate_on == "cross-fitted" else None
    sources = {"estimate": chosen.source}
    steps = AlgorithmThree(network, chosen.warm_up, chosen.copula, sources, fresh)
    steps.warm_up()
    (parameters,) = steps.estimate()["estimate"]
    order = int(rng.integers(2**63))  # every arm's, whenever it is trained
    network.order = lambda _: np.random.default_rng(order)
    last = steps.train("copula", [parameters]).fit
    seen, unseen = network.parts["train"], network.parts.get("held-out")
    return FeasibleFit(network.fit, last, chosen.estimator, seen, unseen, chosen.copula, order)
