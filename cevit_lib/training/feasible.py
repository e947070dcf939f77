"""Algorithm 3 for one network, whole."""

import os
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import PairedEyes, hold_out
from cevit_lib.errors import ParameterError
from cevit_lib.training.algorithm import AlgorithmThree
from cevit_lib.training.checkpoint import Checkpoint
from cevit_lib.training.fit import Fit
from cevit_lib.training.loop import Stage
from cevit_lib.training.network import OneNetwork
from cevit_lib.training.objective import Objective, Source, check_part
from cevit_lib.training.recipe import PAPER_COPULA, PAPER_WARM_UP, Recipe


@dataclass(frozen=True)
class Settings:
    """What may be chosen of Algorithm 3; the arguments of :func:`fit_feasible_cevit`, by name.

    Attributes
    ----------
    estimator : optional
        Any of ``cevit_lib.estimation``; default ``ExactEM()``.
    estimate_on : {"held-out", "train", "cross-fitted"}
        Whose outputs the estimate is made from. ``"train"``: the patients that the warm-up has
        seen, as the paper does; its residuals are then too small. ``"held-out"``:
        ``held_out_share`` of the patients, whom the fit never trains on. ``"cross-fitted"``: every
        patient, predicted by one of ``folds`` further warm-ups that did not see him; for data so
        small that a tenth of it says nothing about six correlations.
    warm_up, copula : Recipe
        Of steps 1 and 3.
    held_out_share : float
        Share of the patients for ``"held-out"``.
    folds : int
        Parts for ``"cross-fitted"``.
    standardise : bool
        Train the continuous responses in units of their own spread.
    """

    estimator: Any = None
    estimate_on: Literal["held-out", "train", "cross-fitted"] = "held-out"
    warm_up: Recipe = Recipe()
    copula: Recipe = Recipe(60, 1e-4)
    held_out_share: float = 0.1
    folds: int = 3
    standardise: bool = True

    def __post_init__(self) -> None:
        check_part(self.estimate_on)
        if self.estimator is None:
            from cevit_lib.estimation import ExactEM

            object.__setattr__(self, "estimator", ExactEM())

    @classmethod
    def of(cls, preset: str | None, **given: Any) -> "Settings":
        """Return settings as they are given, or as a preset has them."""
        if preset is None:
            return cls(**given)
        if preset != "paper":
            raise ParameterError(f"preset {preset!r} is unknown; the one there is: 'paper'.")
        from cevit_lib.estimation import FastMCEM

        paper = {"estimate_on": "train", "warm_up": PAPER_WARM_UP, "copula": PAPER_COPULA}
        return cls(**{**given, **paper, "estimator": FastMCEM(), "standardise": False})


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
        ``device`` and ``checkpoint`` are those of :class:`~cevit_lib.training.loop.Stage`.
        """
        rng, start = np.random.default_rng(self.order), self.warm_up.copy()
        watched = Stage(**{"stage": stage, "validation": self.held_out, **where})
        objective = Objective(parameters and [parameters])
        return start.trained(self.seen, objective, self.recipe, rng, watched)


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
    chosen, parts = Settings.of(preset, **settings), {"train": data}
    if chosen.estimate_on == "held-out":
        split = hold_out(data, chosen.held_out_share, rng)
        parts = {"train": data.subset(split.train), "held-out": data.subset(split.test)}
    seen, unseen = parts["train"], parts.get("held-out")
    start, stage = Fit.fresh(model, seen, chosen.standardise), Stage("", None, device, checkpoint)
    network = OneNetwork(start, parts, lambda _: rng, stage, chosen.folds, chosen.standardise)
    source = Source(lambda: chosen.estimator, chosen.estimate_on)
    fresh = network.copy() if chosen.estimate_on == "cross-fitted" else None
    steps = AlgorithmThree(network, chosen.warm_up, chosen.copula, {"estimate": source}, fresh)
    steps.warm_up()
    steps.estimate()
    order = int(rng.integers(2**63))  # every arm's, whenever it is trained
    network.order = lambda _: np.random.default_rng(order)
    last = steps.train("copula", steps.estimates["estimate"]).fit
    return FeasibleFit(network.fit, last, chosen.estimator, seen, unseen, chosen.copula, order)
