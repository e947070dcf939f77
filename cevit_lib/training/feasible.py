"""Algorithm 3, feasible CeViT: warm-up, estimate of the copula parameters, training under the copula loss."""

import copy
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from cevit_lib.copula import MINIMUM_EIGENVALUE, CopulaLoss, CopulaParameters, EmpiricalLoss
from cevit_lib.datasets import PairedEyes, hold_out, split_by_patient
from cevit_lib.errors import NearSingularWarning, NotConvergedWarning, ParameterError, TrainingError
from cevit_lib.training.checkpoint import Checkpoint, as_checkpoint
from cevit_lib.training.estimate_files import keep_estimate, recall_estimate
from cevit_lib.training.loop import Batches, find_device, outputs_of, train
from cevit_lib.training.processes import processes
from cevit_lib.training.recipe import PAPER_COPULA, PAPER_WARM_UP, Recipe
from cevit_lib.training.scaling import Standardisation

SHRINK_TO = 0.05  # smallest eigenvalue to which a refused correlation matrix is lifted


class Estimator(Protocol):
    """What the second step needs of an estimator of ``cevit_lib.estimation``."""

    parameters_: CopulaParameters

    def fit(self, outputs: Tensor, y: Tensor) -> "Estimator": ...


@dataclass(frozen=True)
class Fit:
    """A trained network with all that its outputs need to be read.

    Attributes
    ----------
    model : torch.nn.Module
        The network, in standard units.
    standardisation : Standardisation
        Undone on every output.
    parameters : CopulaParameters or None
        In the responses' own units; ``None`` after a warm-up that has no estimate yet.
    trace : list of dict
        One entry per epoch, of all stages so far.
    responses, continuous, domains
        Of the data: names and count of the columns, names of the domains.
    notes : dict
        Recipes, what the estimate was made on, what was shrunk.
    """

    model: nn.Module
    standardisation: Standardisation
    parameters: CopulaParameters | None
    trace: list[dict[str, Any]]
    responses: tuple[str, ...]
    continuous: int
    domains: tuple[str, ...]
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FeasibleFit:
    """The steps of Algorithm 3: the warm-up, the estimate made from it, and the fit under the copula loss.

    Attributes
    ----------
    warm_up, copula : Fit
        Networks after step 1 and after step 3, both with the estimated parameters.
    estimator : Estimator
        As it was fitted in step 2.
    seen, held_out : PairedEyes, PairedEyes or None
        Patients of the training data on whom all stages trained, and those set aside for the estimate.
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

    def arm(
        self,
        parameters: CopulaParameters | None,
        stage: str,
        *,
        device: str | torch.device | None = None,
        checkpoint: Checkpoint | str | None = None,
    ) -> Fit:
        """Train another arm from the same warm-up: same patients, epochs, recipe and order, another loss.

        ``parameters=None`` goes on with the empirical loss, which controls for the extra epochs;
        ``CopulaParameters.independent(scale, 2)`` controls for the re-weighting by the scales.
        """
        rng = np.random.default_rng(self.order)
        common = dict(
            rng=rng, validation=self.held_out, device=device, stage=stage, checkpoint=checkpoint
        )
        if parameters is None:
            return fit_warm_up(self.warm_up, self.seen, self.recipe, **common)
        return fit_copula(self.warm_up, self.seen, parameters, self.recipe, **common)


def fit_warm_up(
    model: nn.Module | Fit,
    data: PairedEyes,
    recipe: Recipe = Recipe(),  # noqa: B008 - frozen
    *,
    rng: np.random.Generator,
    standardise: bool = True,
    validation: PairedEyes | None = None,
    device: str | torch.device | None = None,
    stage: str = "warm-up",
    checkpoint: Checkpoint | str | None = None,
) -> Fit:
    """Step 1 of Algorithm 3: train under the empirical loss of Eq. (14), mean over patients.

    Given a :class:`Fit`, goes on from a copy of it (the control that trains as long without a copula).

    Parameters
    ----------
    model : torch.nn.Module or Fit
        A network with outputs ``(n, p)``, trained in place; a ``Fit`` is copied.
    data : PairedEyes
        Training patients.
    recipe : Recipe
        Optimisation.
    rng : numpy.random.Generator
        Order of patients, dropout.
    standardise : bool
        Train the continuous responses in units of their own spread; ``False`` trains in raw units, as the paper.
    validation : PairedEyes, optional
        Patients whose loss is traced.
    checkpoint : Checkpoint or path, optional
        Folder of the fit's state after every epoch; the same call goes on where it was interrupted.

    Returns
    -------
    Fit
        Of a network: without copula parameters; of a ``Fit``: with those that it had.

    Raises
    ------
    TrainingError
        The fit diverged or collapsed.
    """
    loss = EmpiricalLoss(p0=data.continuous, reduction="mean")
    start = _start(model, data, standardise)
    return _train(
        start,
        data,
        _trusting(loss, data, validation),
        recipe,
        rng,
        validation,
        device,
        stage,
        checkpoint,
    )


def fit_copula(
    warm_up: Fit,
    data: PairedEyes,
    parameters: CopulaParameters,
    recipe: Recipe = Recipe(60, 1e-4),  # noqa: B008 - frozen
    *,
    rng: np.random.Generator,
    validation: PairedEyes | None = None,
    device: str | torch.device | None = None,
    stage: str = "copula",
    checkpoint: Checkpoint | str | None = None,
) -> Fit:
    """Step 3 of Algorithm 3: train a copy of the warm-up under the copula loss of Eq. (11), mean over patients.

    Parameters
    ----------
    warm_up : Fit
        Where to start; it is left as it is, so that several arms can start from it.
    data : PairedEyes
        Training patients.
    parameters : CopulaParameters
        In the responses' own units; held fixed.
    recipe, rng, validation, checkpoint
        As in :func:`fit_warm_up`.

    Returns
    -------
    Fit
        Of its own network, with ``parameters``.

    Raises
    ------
    NotPositiveDefiniteError
        The correlation matrix is near-singular; shrink it.
    TrainingError
        The fit diverged or collapsed.
    """
    inside = warm_up.standardisation.parameters_inside(parameters)
    start = replace(_start(warm_up, data, True), parameters=parameters)
    loss = _trusting(CopulaLoss(inside, reduction="mean"), data, validation)
    return _train(start, data, loss, recipe, rng, validation, device, stage, checkpoint)


def fit_feasible_cevit(
    model: nn.Module,
    data: PairedEyes,
    *,
    estimator: Estimator | None = None,
    estimate_on: Literal["held-out", "train", "cross-fitted"] = "held-out",
    warm_up: Recipe = Recipe(),  # noqa: B008 - frozen
    copula: Recipe = Recipe(60, 1e-4),  # noqa: B008 - frozen
    preset: Literal["paper"] | None = None,
    rng: np.random.Generator,
    held_out_share: float = 0.1,
    folds: int = 3,
    standardise: bool = True,
    device: str | torch.device | None = None,
    checkpoint: Checkpoint | str | None = None,
) -> FeasibleFit:
    """Algorithm 3 whole: warm-up, estimate, copula training.

    Parameters
    ----------
    model : torch.nn.Module
        A fresh network, such as :class:`cevit_lib.encoder.BiChannelViT`; trained in place by the warm-up.
    data : PairedEyes
        Training patients.
    estimator : optional
        Any of ``cevit_lib.estimation``; default ``ExactEM()``.
    estimate_on : {"held-out", "train", "cross-fitted"}
        Whose outputs the estimate is made from. ``"train"``: the patients that the warm-up has seen, as the paper does;
        its residuals are then too small. ``"held-out"``: ``held_out_share`` of the patients, whom the fit never trains
        on. ``"cross-fitted"``: every patient, predicted by one of ``folds`` further warm-ups that did not see him; for
        data so small that a tenth of it says nothing about six correlations.
    warm_up, copula : Recipe
        Of steps 1 and 3.
    preset : {"paper"}, optional
        The paper's settings: its recipes, fMCEM, on the training residuals, raw units. It sets ``estimator``,
        ``estimate_on``, ``warm_up``, ``copula`` and ``standardise``.
    rng : numpy.random.Generator
        All randomness of the fit.
    checkpoint : Checkpoint or path, optional
        Folder of the fit's state: killed at any moment and called again, with the same network, data and seed, the fit
        goes on after its last whole epoch; on a CPU it ends bit for bit as if it had never stopped.

    Returns
    -------
    FeasibleFit

    Raises
    ------
    TrainingError
        A stage diverged or collapsed, or the warm-up interpolates so that nothing is left to estimate from.
    ParameterError
        ``estimate_on`` or ``preset`` is unknown.
    """
    if preset is not None:
        estimator, estimate_on, warm_up, copula, standardise = _preset(preset)
    if estimate_on not in ("held-out", "train", "cross-fitted"):
        raise ParameterError(
            f"estimate_on={estimate_on!r}: give 'held-out', 'train' or 'cross-fitted'."
        )
    if estimator is None:
        from cevit_lib.estimation import ExactEM

        estimator = ExactEM()
    checkpoint = as_checkpoint(checkpoint)
    common = dict(rng=rng, device=device, checkpoint=checkpoint)
    initial = copy.deepcopy(model) if estimate_on == "cross-fitted" else None
    split = hold_out(data, held_out_share, rng) if estimate_on == "held-out" else None
    seen, unseen = (data.subset(split.train), data.subset(split.test)) if split else (data, None)
    first = fit_warm_up(model, seen, warm_up, standardise=standardise, validation=unseen, **common)
    if estimate_on == "cross-fitted":
        patients, outputs = data, _cross_fitted(initial, data, warm_up, folds, standardise, common)
    else:
        patients = unseen if split else data
        outputs = predict_outputs(first, patients, device=device)
    identity = (
        {"estimator": repr(estimator), "estimate on": estimate_on, "data": patients.hash}
        if checkpoint
        else {}
    )
    found = recall_estimate(checkpoint, identity, estimator, outputs, rng)
    if found is None:
        found = processes().agree(_estimate(estimator, outputs, patients))
        keep_estimate(checkpoint, identity, estimator, outputs, rng, *found)
    parameters, remarks = found
    notes = {**first.notes, "estimator": repr(estimator), "estimate_on": estimate_on, **remarks}
    first = replace(first, parameters=parameters, notes=notes)
    order = int(rng.integers(2**63))
    last = fit_copula(
        first,
        seen,
        parameters,
        copula,
        **{**common, "rng": np.random.default_rng(order)},
        validation=unseen,
    )
    return FeasibleFit(first, last, estimator, seen, unseen, copula, order)


def predict_outputs(
    fit: Fit, data: PairedEyes, *, device: str | torch.device | None = None
) -> Tensor:
    """Return the outputs ``(n, p)`` in the responses' own units: means, then logits; float64 on the CPU."""
    where = find_device(device)
    fit.model.to(where)
    crew, rows = processes(), np.arange(len(data))
    shared = crew.count > 1 and len(data) >= crew.count
    outputs = outputs_of(
        fit.model, Batches(data, where), crew.share(rows) if shared else rows, "float32"
    )
    outputs = crew.join(outputs, len(data)) if shared else outputs
    return fit.standardisation.undo(outputs.cpu().double())  # in this order: MPS has no float64


def _start(model: nn.Module | Fit, data: PairedEyes, standardise: bool) -> Fit:
    if isinstance(model, Fit):
        return replace(
            model,
            model=copy.deepcopy(model.model),
            trace=list(model.trace),
            notes=dict(model.notes),
        )
    scale = (
        Standardisation.of(data.y, data.continuous, data.responses)
        if standardise
        else Standardisation.none(data.continuous)
    )
    return Fit(model, scale, None, [], data.responses, data.continuous, data.domains)


def _trusting(loss: nn.Module, *sets: PairedEyes | None) -> nn.Module:
    """Let a loss take the data as ``PairedEyes`` has checked them: else every step waits for the accelerator twice."""
    loss.validate, loss.missing = (
        False,
        any(not bool(data.complete.all()) for data in sets if data is not None),
    )
    return loss


def _train(start: Fit, data, loss, recipe, rng, validation, device, stage, checkpoint) -> Fit:
    inside = start.standardisation.apply
    checked = (validation, inside(validation.y)) if validation is not None else None
    trace = train(
        start.model,
        data,
        inside(data.y),
        loss,
        recipe,
        rng,
        stage=stage,
        validation=checked,
        device=device,
        checkpoint=as_checkpoint(checkpoint),
    )
    notes = {**start.notes, "recipes": {**start.notes.get("recipes", {}), stage: recipe.to_dict()}}
    return replace(start, trace=[*start.trace, *trace], notes=notes)


def _cross_fitted(initial, data, recipe, folds, standardise, common) -> Tensor:
    outputs = torch.empty_like(data.y)
    for number, split in enumerate(
        split_by_patient(data, folds, common["rng"], require_classes=False)
    ):
        fit = fit_warm_up(
            copy.deepcopy(initial),
            data.subset(split.train),
            recipe,
            standardise=standardise,
            **common,
            stage=f"warm-up without part {number + 1} of {folds}",
        )
        outputs[torch.as_tensor(split.test)] = predict_outputs(
            fit, data.subset(split.test), device=common["device"]
        )
    return outputs


def _estimate(
    estimator: Estimator, outputs: Tensor, data: PairedEyes
) -> tuple[CopulaParameters, dict[str, Any]]:
    """Fit the estimator; remember its warnings, and shrink a matrix that the copula loss would refuse."""
    _refuse_interpolation(outputs, data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NotConvergedWarning)
        warnings.simplefilter("always", NearSingularWarning)
        estimator.fit(outputs, data.y)
    for warning in caught:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    parameters = estimator.parameters_
    smallest = parameters.smallest_eigenvalue()
    remarks = {
        "converged": bool(getattr(estimator, "converged_", True)),
        "smallest_eigenvalue": smallest,
        "shrunk": 0.0,
    }
    if smallest < MINIMUM_EIGENVALUE:
        remarks["shrunk"] = (SHRINK_TO - smallest) / (1 - smallest)
        parameters = parameters.shrink(remarks["shrunk"])
    return parameters, remarks


def _refuse_interpolation(outputs: Tensor, data: PairedEyes) -> None:
    p0 = data.continuous
    residual, spread = (data.y - outputs)[:, :p0], data.y[:, :p0]
    for k in range(p0):
        seen = torch.isfinite(residual[:, k])
        ratio = float(residual[seen, k].std() / spread[seen, k].std())
        if ratio < 0.02:
            raise TrainingError(
                f"the warm-up reproduces {data.responses[k]!r} almost exactly (residual SD {100 * ratio:.1f} % of the "
                "response's): it has learnt the patients by heart and leaves nothing to estimate correlations from. "
                "Train fewer epochs or estimate on held-out patients."
            )


def _preset(name: str) -> tuple[Estimator, str, Recipe, Recipe, bool]:
    if name != "paper":
        raise ParameterError(f"preset {name!r} is unknown; the one there is: 'paper'.")
    from cevit_lib.estimation import FastMCEM

    return FastMCEM(), "train", PAPER_WARM_UP, PAPER_COPULA, False
