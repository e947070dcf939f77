"""The two algorithms whole, for one network: Algorithm 3 of the paper, and one stage of training.

One stage trains under the copula loss from the start. Its first epoch runs with sigma = SD of the
responses and Gamma = I, that is under the empirical loss in other units. After every epoch (or
``every`` epochs) sigma and Gamma are estimated again from the outputs of the network as it then is,
and the next epoch runs under them. There is no warm-up to over-train, and no parameter that belongs
to an older network. Both loops stand in ``cevit_lib.training.algorithm``.
"""

import os
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import PairedEyes, hold_out
from cevit_lib.errors import DataError, ParameterError
from cevit_lib.training.algorithm import WARM_UP, AlgorithmThree
from cevit_lib.training.fit import Fit
from cevit_lib.training.network import OneNetwork
from cevit_lib.training.objective import Objective, Renewal, Source
from cevit_lib.training.recipe import PAPER_COPULA, PAPER_WARM_UP, Recipe

FEWEST_PER_CORRELATION = 5
"""Patients from whom a correlation can be estimated at all; fewer are noise, epoch after epoch."""


@dataclass(frozen=True)
class Estimation:
    """What may be chosen of the estimates, whichever the algorithm.

    Attributes
    ----------
    estimator : optional
        Any of ``cevit_lib.estimation``.
    estimate_on : {"held-out", "train", "cross-fitted"}
        Whose outputs the estimates see. ``"train"``: the patients that the network trains on, as
        the paper does; their residuals are too small. ``"held-out"``: ``held_out_share`` of the
        patients, whom the fit never trains on. ``"cross-fitted"``: every patient, by one of
        ``folds`` further networks that train without him; for data so small that a tenth of it says
        nothing about six correlations.
    held_out_share : float
        Share of the patients for ``"held-out"``.
    folds : int
        Parts for ``"cross-fitted"``.
    standardise : bool
        Train the continuous responses in units of their own spread.

    Raises
    ------
    ParameterError
        A setting is out of range.
    """

    estimator: Any = None
    estimate_on: Literal["held-out", "train", "cross-fitted"] = "held-out"
    _: KW_ONLY
    usual: ClassVar[str] = "ExactEM"
    held_out_share: float = 0.1
    folds: int = 3
    standardise: bool = True

    def __post_init__(self) -> None:
        if self.estimate_on not in ("held-out", "train", "cross-fitted"):
            raise ParameterError(
                f"estimate_on={self.estimate_on!r}: give 'held-out', 'train' or 'cross-fitted'."
            )
        if not 0 < self.held_out_share < 1 or self.folds < 2:
            raise ParameterError(
                f"held_out_share={self.held_out_share}, folds={self.folds}: give a share above 0 "
                "and below 1, and at least 2 folds."
            )

    @property
    def source(self) -> Source:
        """Where the algorithms have their estimates from."""
        from cevit_lib import estimation

        estimator = self.estimator or getattr(estimation, self.usual)()
        return Source(lambda: estimator, self.estimate_on)

    def network(
        self, model: nn.Module, data: PairedEyes, rng: np.random.Generator, **where: Any
    ) -> OneNetwork:
        """Divide the patients; return the fresh network with them."""
        parts = {"train": data}
        if self.estimate_on == "held-out":
            split = hold_out(data, self.held_out_share, rng)
            parts = {"train": data.subset(split.train), "held-out": data.subset(split.test)}
        fit = Fit.fresh(model, parts["train"], self.standardise)
        further = {"folds": self.folds, "standardise": self.standardise, **where}
        return OneNetwork(fit, parts, lambda _: rng, **further)


@dataclass(frozen=True)
class Settings(Estimation):
    """What may be chosen of Algorithm 3; the arguments of :func:`fit_feasible_cevit`, by name.

    Attributes
    ----------
    estimator, estimate_on, held_out_share, folds, standardise
        See :class:`~cevit_lib.training.whole.Estimation`; the default estimator is ``ExactEM()``.
    warm_up, copula : Recipe
        Of steps 1 and 3.
    """

    warm_up: Recipe = Recipe()
    copula: Recipe = Recipe(60, 1e-4)

    @classmethod
    def of(cls, preset: str | None, **given: Any) -> "Settings":
        """Return settings as they are given, or as a preset has them."""
        if preset not in (None, "paper"):
            raise ParameterError(f"preset {preset!r} is unknown; the one there is: 'paper'.")
        if preset == "paper":
            from cevit_lib.estimation import FastMCEM

            given |= {"estimator": FastMCEM(), "estimate_on": "train", "standardise": False}
            given |= {"warm_up": PAPER_WARM_UP, "copula": PAPER_COPULA}
        return cls(**given)


@dataclass(frozen=True)
class FeasibleFit:
    """The steps of Algorithm 3: the warm-up, the estimate made from it, and the copula's fit.

    Attributes
    ----------
    warm_up, copula : Fit
        Networks after step 1 and after step 3, both with the estimated parameters.
    estimator : Estimator
        As it was fitted in step 2.
    steps : AlgorithmThree
        What trains other arms; its network holds the patients.
    """

    warm_up: Fit
    copula: Fit
    estimator: Any
    steps: AlgorithmThree

    @property
    def parameters(self) -> CopulaParameters:
        """The copula parameters that step 3 used."""
        return self.copula.parameters

    def arm(self, parameters: CopulaParameters | None, stage: str) -> Fit:
        """Train another arm from the same warm-up: same patients, epochs, recipe and order, device
        and checkpoint.

        ``parameters=None`` goes on with the empirical loss, which controls for the extra epochs;
        ``CopulaParameters.independent(scale, 2)`` controls for the re-weighting by the scales.
        """
        return self.steps.train(stage, parameters and [parameters]).fit


def fit_feasible_cevit(
    model: nn.Module,
    data: PairedEyes,
    *,
    rng: np.random.Generator,
    device: str | torch.device | None = None,
    checkpoint: str | os.PathLike | None = None,
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
    checkpoint : path, optional
        Folder of the fit's state: killed at any moment and called again, with the same network,
        data and seed, the fit goes on after its last whole epoch; on a CPU it ends bit for bit as
        if it had never stopped.
    preset : {"paper"}, optional
        The paper's settings: its recipes, fMCEM, on the training residuals, raw units. It sets
        ``estimator``, ``estimate_on``, ``warm_up``, ``copula`` and ``standardise``.
    **settings
        ``estimator``, ``estimate_on``, ``warm_up``, ``copula``, ``held_out_share``, ``folds``,
        ``standardise``: see :class:`~cevit_lib.training.whole.Settings`.

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
    source = chosen.source
    network = chosen.network(model, data, rng, device=device, checkpoint=checkpoint)
    fresh = network.copy() if chosen.estimate_on == "cross-fitted" else None
    steps = AlgorithmThree(network, chosen.warm_up, chosen.copula, {"estimate": source}, fresh)
    steps.warm_up()
    (parameters,) = steps.estimate()["estimate"]
    order = int(rng.integers(2**63))  # every arm's, whenever it is trained
    network.order = lambda _: np.random.default_rng(order)
    copula = steps.train("copula", [parameters]).fit
    return FeasibleFit(network.fit, copula, source.estimator(), steps)


@dataclass(frozen=True)
class OneStage(Estimation):
    """What may be chosen of one-stage training.

    Attributes
    ----------
    estimator, estimate_on, held_out_share, folds, standardise
        See :class:`~cevit_lib.training.whole.Estimation`; the default estimator is
        ``MaximumLikelihood()``. It has to be good: under ``FastMCEM`` on training outputs nothing
        is gained.
    every : int
        Epochs from one estimate to the next.
    first : int, optional
        The epoch after which the first estimate is made (default ``every``); until then Gamma = I.
        What is not learnt yet looks like dependence: where both eyes show nearly the same image, an
        early estimate keeps the network from learning what they share.

    Raises
    ------
    ParameterError
        A setting is out of range.
    """

    every: int = 1
    first: int | None = None
    usual: ClassVar[str] = "MaximumLikelihood"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, epochs in (("every", self.every), ("first", self.first or 1)):
            if not isinstance(epochs, int) or epochs < 1:
                raise ParameterError(f"{name}={epochs}: give whole epochs from 1.")


def fit_one_stage(
    model: nn.Module,
    data: PairedEyes,
    recipe: Recipe = Recipe(),  # noqa: B008 - frozen
    chosen: OneStage = OneStage(),  # noqa: B008 - frozen
    *,
    rng: np.random.Generator,
    **where: Any,
) -> Fit:
    """Train once, under the copula loss of Eq. (11), and estimate its parameters along the way.

    Parameters
    ----------
    model : torch.nn.Module
        A fresh network, such as :class:`cevit_lib.encoder.BiChannelViT`, trained in place.
    data : PairedEyes
        Training patients.
    recipe : Recipe
        Optimisation.
    chosen : OneStage
        Estimator, whose outputs it sees, how often.
    rng : numpy.random.Generator
        All randomness of the fit.
    **where
        ``device`` and ``checkpoint``, as for
        :func:`~cevit_lib.training.whole.fit_feasible_cevit`: killed at any moment and called
        again, the fit goes on after its last whole epoch.

    Returns
    -------
    Fit
        With the estimate from the outputs of the last epoch. Each entry of its ``trace`` after
        which parameters were estimated has them as ``"estimate"``.

    Raises
    ------
    ParameterError
        ``every`` or ``first`` exceeds the epochs.
    DataError
        Too few patients are left to estimate the correlations from.
    TrainingError
        The fit diverged or collapsed.

    Warns
    -----
    EstimateKeptWarning
        An estimate failed; the epochs until the next one run under the last good parameters.
    """
    name = "first" if chosen.first else "every"
    if getattr(chosen, name) > recipe.epochs:
        raise ParameterError(
            f"{name}={getattr(chosen, name)} exceeds the {recipe.epochs} epochs: no estimate would "
            "be used; give at most as many."
        )
    source, network = chosen.source, chosen.network(model, data, rng, **where)
    _refuse_too_few(network.parts[source.patients], chosen)
    seed = int(rng.integers(2**63))
    network.order = lambda number: np.random.default_rng([seed, number])
    objective = Objective(renewal=Renewal(source, chosen.every, first=chosen.first))
    network.train("one stage", recipe, objective, WARM_UP)
    told = {"estimator": repr(source.estimator()), "estimate_on": source.part}
    network.fit.notes.update(told, every=chosen.every, first=chosen.first or chosen.every)
    return network.fit


def _refuse_too_few(seen: PairedEyes, chosen: OneStage) -> None:
    correlations = len(seen.responses) * (len(seen.responses) - 1) // 2
    if len(seen) < FEWEST_PER_CORRELATION * correlations:
        raise DataError(
            f"{len(seen)} {chosen.estimate_on} patients are too few for {correlations} "
            f"correlations (at least {FEWEST_PER_CORRELATION * correlations}); give "
            "estimate_on='cross-fitted', which uses every patient, or a larger held_out_share than "
            f"{chosen.held_out_share:g}."
        )
