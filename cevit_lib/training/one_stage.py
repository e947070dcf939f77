"""One stage of training under the copula loss, whose parameters are estimated along the way.

The first epoch runs with sigma = SD of the responses and Gamma = I, that is under the empirical
loss in other units. After every epoch (or ``every`` epochs) sigma and Gamma are estimated again
from the outputs of the network as it then is, and the next epoch runs under them. There is no
warm-up to over-train, and no parameter that belongs to an older network.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from cevit_lib.datasets import PairedEyes
from cevit_lib.errors import DataError, ParameterError
from cevit_lib.training.algorithm import WARM_UP
from cevit_lib.training.fit import Fit
from cevit_lib.training.network import Estimation
from cevit_lib.training.objective import Objective, Renewal
from cevit_lib.training.recipe import Recipe

FEWEST_PER_CORRELATION = 5
"""Patients from whom a correlation can be estimated at all; fewer are noise, epoch after epoch."""


@dataclass(frozen=True)
class OneStage(Estimation):
    """What may be chosen of one-stage training.

    Attributes
    ----------
    estimator, estimate_on, held_out_share, folds, standardise
        See :class:`~cevit_lib.training.network.Estimation`; the default estimator is
        ``MaximumLikelihood()``. It has to be good: under ``FastMCEM`` on training outputs nothing
        is gained.
    every : int
        Epochs from one estimate to the next.

    Raises
    ------
    ParameterError
        A setting is out of range.
    """

    every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.every, int) or self.every < 1:
            raise ParameterError(f"every={self.every}: give whole epochs from 1.")
        if self.estimator is None:
            from cevit_lib.estimation import MaximumLikelihood

            object.__setattr__(self, "estimator", MaximumLikelihood())


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
        :func:`~cevit_lib.training.feasible.fit_feasible_cevit`: killed at any moment and called
        again, the fit goes on after its last whole epoch.

    Returns
    -------
    Fit
        With the estimate from the outputs of the last epoch. Each entry of its ``trace`` after
        which parameters were estimated has them as ``"estimate"``.

    Raises
    ------
    ParameterError
        ``every`` exceeds the epochs.
    DataError
        Too few patients are left to estimate the correlations from.
    TrainingError
        The fit diverged or collapsed.

    Warns
    -----
    EstimateKeptWarning
        An estimate failed; the epochs until the next one run under the last good parameters.
    """
    if chosen.every > recipe.epochs:
        raise ParameterError(
            f"every={chosen.every} exceeds the {recipe.epochs} epochs: no estimate would be used; "
            "give at most as many."
        )
    network = chosen.network(model, data, rng, **where)
    _refuse_too_few(network.parts[chosen.source.patients], chosen)
    seed = int(rng.integers(2**63))
    network.order = lambda number: np.random.default_rng([seed, number])
    objective = Objective(renewal=Renewal(chosen.source, chosen.every))
    network.train("one stage", recipe, objective, WARM_UP)
    told = {"estimator": repr(chosen.estimator), "estimate_on": chosen.estimate_on}
    network.fit.notes.update(told, every=chosen.every)
    return network.fit


def _refuse_too_few(seen: PairedEyes, chosen: OneStage) -> None:
    p = len(seen.responses)
    fewest, correlations = FEWEST_PER_CORRELATION * p * (p - 1) // 2, p * (p - 1) // 2
    if len(seen) < fewest:
        way = "estimate_on='cross-fitted', which uses every patient"
        if chosen.estimate_on == "held-out":
            way = f"a larger held_out_share than {chosen.held_out_share:g}, or {way}"
        raise DataError(
            f"{len(seen)} {chosen.estimate_on} patients are too few for {correlations} "
            f"correlations (at least {fewest}); give {way}."
        )
