"""The stages of many fits side by side: their losses, their epochs, their estimates."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor

from cevit_lib.copula import (
    CopulaParameters,
    EmpiricalLoss,
    UncertaintyWeightedLoss,
    likelihood_constants,
)
from cevit_lib.estimation import estimate_many
from cevit_lib.normal import log_bivariate_normal_cdf, normal_score
from cevit_lib.paths import granted_cores
from cevit_lib.training.algorithm import Networks, Stage, Trainer
from cevit_lib.training.ensemble import Ensemble, Members
from cevit_lib.training.loop import autocast
from cevit_lib.training.objective import Objective, Parameters, Source, estimated, usable
from cevit_lib.training.recipe import Recipe


def empirical_loss(outputs: Tensor, y: Tensor) -> Tensor:
    """Return each member's mean empirical loss ``(members,)`` of outputs and complete responses
    ``(members, b, p)``.
    """
    members, b, p = outputs.shape
    terms = EmpiricalLoss(p0=p // 2, reduction="none", validate=False)
    return terms(outputs.flatten(0, 1), y.flatten(0, 1)).view(members, b).mean(1)


class EnsembleCopulaLoss:
    """The mean copula loss of every member, each under parameters of its own (Theorem 2.1, two
    binary responses).

    Parameters
    ----------
    parameters : sequence of CopulaParameters
        One for each member, in its units of training.
    device : torch.device
        Where the outputs will be.
    """

    def __init__(self, parameters: Sequence[CopulaParameters], device: torch.device) -> None:
        self.device = device
        self.set_parameters(*parameters)

    def set_parameters(self, *parameters: CopulaParameters) -> None:
        """Take parameters for every member, in its units of training."""
        parts = [likelihood_constants(one.detach()) for one in parameters]
        stacks = [torch.stack(each).float().to(self.device) for each in zip(*parts, strict=True)]
        precision, loading, self.inverse_sd, correlation, constant, scale = stacks
        # (members, p0, p0), (members, 2, p0), (members,)
        self.precision, self.loading, self.constant = precision[:, 0], loading[:, 0], constant[:, 0]
        self.correlation, self.inverse_scale = correlation[..., 0, 1], scale[:, None]

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return ``(members,)`` losses of outputs and complete responses ``(members, b, p)``."""
        residual = (y[..., :-2] - outputs[..., :-2]) * self.inverse_scale
        sign = 2 * y[..., -2:] - 1
        upper = sign * (
            residual @ self.loading.mT + normal_score(outputs[..., -2:]) * self.inverse_sd
        )
        cell = log_bivariate_normal_cdf(
            upper[..., 0], upper[..., 1], sign.prod(-1) * self.correlation
        )
        quadratic = (residual @ self.precision * residual).sum(-1)
        return (0.5 * quadratic - cell).mean(1) - self.constant


class EnsembleTrainer(Trainer):
    """A stage of networks side by side.

    Parameters
    ----------
    networks : SideBySide
        Trained in place.
    loss : callable
        ``loss(outputs, y) -> (members,)``: the mean over the patients of a batch, in units of
        training.
    recipe : Recipe
        The same for all.
    orders : sequence of numpy.random.Generator
        Order of each member's patients.
    stage : str
        Name for traces and messages.
    """

    def __init__(
        self,
        networks: "SideBySide",
        loss: Callable,
        recipe: Recipe,
        orders: Sequence[np.random.Generator],
        stage: str,
    ) -> None:
        ensemble, members = networks.ensemble, networks.members
        weights = list(ensemble.parameters.values())
        if isinstance(loss, UncertaintyWeightedLoss):
            weights += loss.parameters()
        optimizer = recipe.build_optimizer(weights, stacked=True)
        super().__init__(optimizer, recipe, stage, members.rows.shape[1])
        self.ensemble, self.members, self.loss, self.orders = ensemble, members, loss, orders
        for rng in orders:  # the number that seeds a single network's dropout: orders then agree
            rng.integers(2**63)

    def draw(self) -> Sequence[Tensor]:
        pairs = zip(self.members.rows, self.orders, strict=True)
        order = np.stack([own[rng.permutation(self.patients)] for own, rng in pairs])
        whole = torch.as_tensor(order, device=self.ensemble.device)  # one transfer an epoch
        return whole.tensor_split(self.steps, 1)

    def backward(self, number: int, rows: Tensor) -> Tensor:
        with autocast(self.ensemble.device, self.recipe.precision):
            outputs = self.ensemble(self.members.images[rows].float())
        values = self.loss(outputs.float(), self.members.inside(rows))
        values.sum().backward()  # members share no weight: each has the gradient of its own mean
        share = rows.shape[1] * self.steps / self.patients  # its mean is over patients
        return values.detach() * share

    def clip(self) -> Tensor:
        """Scale each member's gradient where it is too long; return the norms ``(members,)``."""
        gradients = [p.grad for p in self.trained if p.grad is not None]
        norm = torch.cat([gradient.flatten(1) for gradient in gradients], 1).norm(dim=1)
        if self.recipe.clip is not None:
            factor = (self.recipe.clip / (norm + 1e-6)).clamp(max=1.0)
            for gradient in gradients:
                gradient.mul_(factor.view(-1, *(1,) * (gradient.dim() - 1)))
        return norm

    def means(self, losses: Tensor, norms: Tensor) -> list[tuple[float, float]]:
        each = zip(losses.cpu().numpy().T, norms.cpu().numpy().T, strict=True)
        return [(float(loss.mean()), float(norm.mean())) for loss, norm in each]

    def divergence(self, first: list[int], batches: Sequence[Tensor], losses: Tensor) -> str:
        batch, member = first
        return (
            f"{self.stage}: the loss or gradient of member {member + 1} of {losses.shape[1]} is "
            "not "
            f"finite in epoch {self.done + 1}, batch {batch + 1} of {len(batches)}. Likely cause: "
            f"learning rate {self.recipe.learning_rate:g} is too large for it; fit it alone to see "
            "which patients were in that batch."
        )


@dataclass
class SideBySide(Networks):
    """Many fits, as :class:`~cevit_lib.training.algorithm.AlgorithmThree` runs them.

    Attributes
    ----------
    ensemble : Ensemble
        Their networks.
    members : Members
        Whom they train on.
    parts : dict
        Row numbers of parts of their patients, each a list with one array a member.
    order : callable
        ``order(number) -> list of numpy.random.Generator``, fresh ones at every call.
    crosses : sequence of (Members, list of ndarray)
        For each cross-fit whom it trains on, and the rows that it leaves out.
    watch : callable, optional
        ``watch(stage)`` returns what is called with these networks and their loss after every epoch
        of a stage, and returns a dict for each member's trace.
    """

    ensemble: Ensemble
    members: Members
    parts: dict[str, list[np.ndarray]]
    order: Callable[[int], list[np.random.Generator]]
    crosses: Sequence[tuple[Members, list[np.ndarray]]] = ()
    watch: Callable | None = None
    known: dict[str, list[Tensor]] | None = None

    def copy(self) -> "SideBySide":
        return replace(self, ensemble=self.ensemble.copy(), known=None)

    def train(
        self, stage: str, recipe: Recipe, objective: Objective | None, order: int
    ) -> list[list[dict[str, Any]]]:
        made = Stage(self, stage, recipe, objective, order)
        seen = self.watch and self.watch(stage)

        def watch() -> list[dict[str, Any]]:
            self.known = {}  # who asks after this epoch asks the same networks
            return seen(self, made.loss) if seen else [{}] * self.ensemble.size

        epochs = [made.epoch(watch) for _ in range(recipe.epochs)]
        self.known = None
        return [list(trace) for trace in zip(*epochs, strict=True)]

    def trainer(self, stage: str, recipe: Recipe, loss: Callable, order: int) -> EnsembleTrainer:
        return EnsembleTrainer(self, loss, recipe, self.order(order), stage)

    def loss(self, objective: Objective) -> Callable:
        """Return every member's loss under an objective, in its units of training."""
        members, p0 = self.ensemble.size, self.members.units.sd.shape[-1]
        if objective.learned_weights:
            p1 = self.members.y.shape[1] - p0
            return UncertaintyWeightedLoss(p0, p1, (members,)).to(self.ensemble.device)
        if objective.parameters is None:
            return empirical_loss
        return EnsembleCopulaLoss(self.inside(objective.parameters), self.ensemble.device)

    def first_parameters(self) -> Parameters:
        """Return each member's sigma = SD of the responses and Gamma = I."""
        scales, p = [own.sd for own in self.members.standardisation], self.members.y.shape[1]
        return [CopulaParameters.independent(sd, p - len(sd)) for sd in scales]

    def inside(self, parameters: Parameters) -> Parameters:
        units = zip(self.members.standardisation, parameters, strict=True)
        return [scale.parameters_inside(own) for scale, own in units]

    def outputs(self, part: str) -> list[Tensor]:
        if self.known and part in self.known:
            return self.known[part]
        rows = self.parts[part]
        longest = max(map(len, rows))
        filled = np.stack([np.pad(own, (0, longest - len(own)), mode="edge") for own in rows])
        found = self.ensemble.outputs(self.members, filled)
        outputs = [outputs[: len(own)] for outputs, own in zip(found, rows, strict=True)]
        if self.known is not None:
            self.known[part] = outputs
        return outputs

    def responses(self, part: str) -> list[Tensor]:
        return [self.members.y[torch.as_tensor(own)].cpu() for own in self.parts[part]]

    def cross_fits(
        self, same_units: bool = False
    ) -> Iterator[tuple["SideBySide", list[np.ndarray]]]:
        for members, left_out in self.crosses:
            rows = zip(self.parts["train"], left_out, strict=True)
            places = [np.searchsorted(train, own) for train, own in rows]
            if same_units:
                members = replace(members, standardisation=self.members.standardisation)
            yield replace(self.copy(), members=members, parts={"left-out": left_out}), places

    def estimates(
        self,
        source: Source,
        outputs: list[Tensor],
        responses: list[Tensor],
        last: Parameters | None = None,
    ) -> list[tuple[CopulaParameters, dict[str, Any]]]:
        """Estimate every member's parameters: in one search where the estimator fits many, else by
        several processes where there are many.
        """
        if getattr(source.estimator(), "fits_many", False):
            found = estimate_many(outputs, responses, last)  # a few numbers: no device's work
            each = zip(found.parameters, found.converged.tolist(), strict=True)
            return [usable(*own) for own in each]
        pairs = zip(outputs, responses, strict=True)
        jobs = [delayed(_estimated)(source.estimator(), own.clone(), y) for own, y in pairs]
        workers = min(granted_cores(), max(1, len(jobs) // 10))  # one starts in some seconds
        return Parallel(n_jobs=workers)(jobs)


def _estimated(
    estimator: Any, outputs: Tensor, y: Tensor
) -> tuple[CopulaParameters, dict[str, Any]]:
    with warnings.catch_warnings():  # what did not converge or was shrunk is seen in the record
        warnings.simplefilter("ignore")
        return estimated(estimator, outputs, y)
