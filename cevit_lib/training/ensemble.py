"""Many fits in one program: networks of one architecture with stacked weights, on one device.

A small network leaves a large accelerator idle: its steps are too short to fill it. Fits of one
grid do not depend on each other, so their weights can be stacked along a first dimension and
``torch.func.vmap`` turns fifty small matrix products into one batched product. Each member keeps
its own patients, order, standardisation, gradient norm and copula parameters; a member's numbers
are those of the same fit made alone, up to the rounding of the batched products.
"""

import copy
import functools
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from cevit_lib.copula import CopulaParameters, EmpiricalLoss, likelihood_constants
from cevit_lib.errors import ParameterError
from cevit_lib.normal import log_bivariate_normal_cdf, normal_score
from cevit_lib.training.algorithm import Parameters, Source, estimated
from cevit_lib.training.compiling import (
    WRONG_GRADIENT,
    moved,
    relative_difference,
    run_and_differentiate,
    warn_of_compiler,
)
from cevit_lib.training.loop import autocast
from cevit_lib.training.recipe import Recipe
from cevit_lib.training.scaling import Standardisation
from cevit_lib.training.trainer import Trainer


class _PatchProduct(nn.Module):
    """timm's patch projection as a matrix product: the same weights and numbers, without a
    convolution per member.
    """

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias, self.size = (
            convolution.weight,
            convolution.bias,
            convolution.kernel_size[0],
        )

    def forward(self, images: Tensor) -> Tensor:
        n, channels, height, width = images.shape
        rows, columns, size = height // self.size, width // self.size, self.size
        patches = images.reshape(n, channels, rows, size, columns, size).permute(0, 2, 4, 1, 3, 5)
        tokens = nn.functional.linear(
            patches.reshape(n, rows * columns, -1), self.weight.flatten(1), self.bias
        )
        return tokens.mT.reshape(n, -1, rows, columns)


@dataclass(frozen=True)
class Members:
    """What the members of an ensemble are fitted to.

    Attributes
    ----------
    images : Tensor
        ``(N, domains, channels, height, width)``: the images of all data sets one after another, on
        the device.
    y : Tensor
        ``(N, p)`` responses in their own units, complete, on the device.
    rows : ndarray
        ``(members, n)`` row numbers of each member's training patients.
    standardisation : sequence of Standardisation
        Of each member.
    chunk : int
        Patients at a time where outputs are asked for.
    """

    images: Tensor
    y: Tensor
    rows: np.ndarray
    standardisation: Sequence[Standardisation]
    chunk: int = 64

    @functools.cached_property
    def units(self) -> Standardisation:
        """All members' standardisations as one."""
        return Standardisation.stacked(self.standardisation)

    def inside(self, rows: Tensor) -> Tensor:
        """Return ``(members, b, p)`` responses of rows ``(members, b)`` in units of training."""
        return self.units.apply(self.y[rows].float())


def _batched(model: nn.Module) -> Callable:
    """Return the forward pass of many networks of one kind; it holds no weights."""
    base = copy.deepcopy(model).to("meta")
    prepare_for_vmap(base)

    def one(parameters, buffers, images):
        return functional_call(base, (parameters, buffers), (images,))

    return vmap(one)


class Ensemble:
    """Networks of one architecture with stacked weights.

    Parameters
    ----------
    models : sequence of torch.nn.Module
        The members, alike but for their weights; they are copied.
    device : torch.device
        Where the stacked weights lie.
    compiled : bool
        Compile the batched forward pass (worth its minute on an accelerator, not on a CPU).
    program : callable, optional
        The ``program`` of an ensemble of the same architecture, so that nothing is compiled twice;
        it holds no weights.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        device: torch.device | str = "cpu",
        compiled: bool = False,
        program: Callable | None = None,
    ) -> None:
        self.device, self.compiled, self.size = torch.device(device), compiled, len(models)
        parameters, buffers = stack_module_state(list(models))
        self.parameters = {
            name: value.detach()
            .to(self.device)
            .requires_grad_(models[0].get_parameter(name).requires_grad)
            for name, value in parameters.items()
        }
        self.buffers = {name: value.to(self.device) for name, value in buffers.items()}
        self.plain = _batched(models[0])
        own = torch.compile(self.plain, dynamic=False) if compiled else self.plain
        self.program = program or own

    def copy(self) -> "Ensemble":
        """Return an ensemble with the same weights that trains on its own (and shares what was
        compiled).
        """
        twin = copy.copy(self)
        twin.parameters = {
            name: value.detach().clone().requires_grad_(value.requires_grad)
            for name, value in self.parameters.items()
        }
        return twin

    @torch.no_grad()
    def take(self, other: "Ensemble", member: int) -> None:
        """Copy one member's weights from another ensemble of the same networks."""
        for name, value in self.parameters.items():
            value[member] = other.parameters[name][member]

    def __call__(self, images: Tensor) -> Tensor:
        """Return outputs ``(members, b, p)`` of images ``(members, b, domains, channels, height,
        width)``.
        """
        return self.program(self.parameters, self.buffers, images)

    def trust_compiler(self, images: Tensor, precision: str = "bf16", chunk: int = 16) -> float:
        """Compare the compiled program with the uncompiled networks; drop it if they differ.

        Parameters
        ----------
        images : Tensor
            ``(members, b, domains, channels, height, width)``: a batch as in training.
        precision : str
            Of the recipe.
        chunk : int
            Patients at a time through the uncompiled networks, which need more memory.

        Returns
        -------
        float
            The :func:`~cevit_lib.training.compiling.relative_difference`.

        Warns
        -----
        WronglyCompiledWarning
            It exceeds ``compiling.WRONG_GRADIENT``; the ensemble goes on uncompiled.
        """
        plain, weights = (
            functools.partial(self.plain, self.parameters, self.buffers),
            self.parameters,
        )
        context = autocast(self.device, precision)
        with moved(weights.values()):
            _, found = run_and_differentiate(self, weights, [images], context)
            _, wanted = run_and_differentiate(plain, weights, images.split(chunk, 1), context)
            with torch.no_grad():  # in float32, as test outputs are made: another program
                ran, right = self(images), plain(images)
        far = relative_difference((ran, right), (found, wanted))
        if far > WRONG_GRADIENT:
            warn_of_compiler(far, self.device)
            self.compiled, self.program = False, self.plain
        return far

    def state(self, member: int) -> dict[str, Tensor]:
        """Return the weights of one member, to load into a network of its kind."""
        return {
            name: value[member].detach().cpu().clone() for name, value in self.parameters.items()
        }

    @torch.no_grad()
    def outputs(self, members: Members, rows: np.ndarray) -> Tensor:
        """Return ``(members, b, p)`` outputs in the responses' own units, float64 on the CPU.

        Parameters
        ----------
        members : Members
        rows : ndarray
            ``(members, b)`` row numbers of the patients to predict, ``members.chunk`` at a time;
            the last ones are filled up, so that a compiled program sees one shape.
        """
        chunk, count = members.chunk, rows.shape[1]
        padded = np.pad(rows, ((0, 0), (0, -count % chunk)), mode="edge")
        whole = torch.as_tensor(padded, device=self.device)
        parts = [self(members.images[at].float()).float() for at in whole.split(chunk, 1)]
        return members.units.undo(torch.cat(parts, 1)[:, :count]).cpu().double()


def empirical_loss(outputs: Tensor, y: Tensor) -> Tensor:
    """Return each member's mean empirical loss ``(members,)`` of outputs and complete responses
    ``(members, b, p)``.
    """
    members, b, p = outputs.shape
    terms = EmpiricalLoss(p0=p // 2, reduction="none", validate=False, missing=False)
    return terms(outputs.flatten(0, 1), y.flatten(0, 1)).view(members, b).mean(1)


class EnsembleCopulaLoss:
    """The mean copula loss of every member, each under fixed parameters of its own (Theorem 2.1,
    two binary responses).

    Parameters
    ----------
    parameters : sequence of CopulaParameters
        One for each member, in its units of training.
    device : torch.device
        Where the outputs will be.

    Raises
    ------
    ParameterError
        There are not two binary responses.
    """

    def __init__(self, parameters: Sequence[CopulaParameters], device: torch.device) -> None:
        if any(one.p1 != 2 for one in parameters):
            raise ParameterError(
                f"an ensemble's copula loss has two binary responses, not {parameters[0].p1}."
            )
        parts = [likelihood_constants(one.detach()) for one in parameters]
        stacks = [torch.stack(each).float().to(device) for each in zip(*parts, strict=True)]
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
    ensemble : Ensemble
        Trained in place.
    members : Members
        Patients, responses and units.
    loss : callable
        ``loss(outputs, y) -> (members,)``: the mean over the patients of a batch, in units of
        training.
    recipe : Recipe
        The same for all.
    orders : sequence of numpy.random.Generator
        Order of each member's patients.
    stage : str
        Name for traces and messages.

    Raises
    ------
    ParameterError
        The counts of members disagree.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        members: Members,
        loss: Callable,
        recipe: Recipe,
        orders: Sequence[np.random.Generator],
        stage: str,
    ) -> None:
        counts = ensemble.size, len(members.rows), len(members.standardisation), len(orders)
        if len(set(counts)) > 1:
            raise ParameterError(
                "networks, sets of patients, standardisations and orders are "
                f"{', '.join(map(str, counts))}: an ensemble needs one of each for every member."
            )
        optimizer = recipe.build_optimizer(ensemble.parameters.values(), stacked=True)
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
        norm = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
        if self.recipe.clip is not None:
            factor = (self.recipe.clip / (norm + 1e-6)).clamp(max=1.0)
            for gradient in gradients:
                gradient.mul_(factor.view(-1, *(1,) * (gradient.dim() - 1)))
        return norm

    def entry(self, losses: Tensor, norms: Tensor) -> list[dict[str, Any]]:
        means = zip(losses.cpu().numpy().T, norms.cpu().numpy().T, strict=True)
        return [
            {
                "stage": self.stage,
                "epoch": self.done,
                "loss": float(loss.mean()),
                "learning_rate": self.rate,
                "gradient_norm": float(norm.mean()),
            }
            for loss, norm in means
        ]

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
class SideBySide:
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
        ``watch(stage, parameters)`` returns what is called with these networks after every epoch of
        a stage, and returns a dict for each member's trace.
    """

    ensemble: Ensemble
    members: Members
    parts: dict[str, list[np.ndarray]]
    order: Callable[[int], list[np.random.Generator]]
    crosses: Sequence[tuple[Members, list[np.ndarray]]] = ()
    watch: Callable | None = None

    def copy(self) -> "SideBySide":
        return replace(self, ensemble=self.ensemble.copy())

    def train(
        self, stage: str, recipe: Recipe, parameters: Parameters | None, order: int
    ) -> list[list[dict[str, Any]]]:
        loss: Callable = empirical_loss
        if parameters is not None:
            units = zip(self.members.standardisation, parameters, strict=True)
            inside = [scale.parameters_inside(own) for scale, own in units]
            loss = EnsembleCopulaLoss(inside, self.ensemble.device)
        orders, seen = self.order(order), self.watch and self.watch(stage, parameters)
        trainer = EnsembleTrainer(self.ensemble, self.members, loss, recipe, orders, stage)
        traces: list[list[dict[str, Any]]] = [[] for _ in orders]
        for _ in range(recipe.epochs):
            begun = time.perf_counter()
            entries = trainer.epoch()
            seconds = (time.perf_counter() - begun) / self.ensemble.size
            further = seen(self) if seen else [{}] * self.ensemble.size
            for trace, entry, more in zip(traces, entries, further, strict=True):
                trace.append({**entry, "seconds": seconds, **more})
        return traces

    def outputs(self, part: str) -> list[Tensor]:
        rows = self.parts[part]
        longest = max(map(len, rows))
        filled = np.stack([np.pad(own, (0, longest - len(own)), mode="edge") for own in rows])
        found = self.ensemble.outputs(self.members, filled)
        return [outputs[: len(own)] for outputs, own in zip(found, rows, strict=True)]

    def responses(self, part: str) -> list[Tensor]:
        return [self.members.y[torch.as_tensor(own)].cpu() for own in self.parts[part]]

    def cross_fits(self) -> Iterator[tuple["SideBySide", list[np.ndarray]]]:
        for members, left_out in self.crosses:
            rows = zip(self.parts["train"], left_out, strict=True)
            places = [np.searchsorted(train, own) for train, own in rows]
            twin = replace(self.copy(), members=members, parts={"left-out": left_out})
            yield twin, places

    def estimate(
        self, source: Source, outputs: list[Tensor], responses: list[Tensor]
    ) -> list[CopulaParameters]:
        """Estimate every member's parameters, by several processes where there are many."""
        pairs = zip(outputs, responses, strict=True)
        jobs = [delayed(_estimated)(source.estimator(), own.clone(), y) for own, y in pairs]
        workers = min(os.cpu_count() or 1, max(1, len(jobs) // 10))  # one starts in some seconds
        return [CopulaParameters.from_dict(one) for one in Parallel(n_jobs=workers)(jobs)]


def _estimated(estimator: Any, outputs: Tensor, y: Tensor) -> dict[str, list]:
    """Return one member's estimate as plain lists: it may come from another process."""
    with warnings.catch_warnings():  # what did not converge or was shrunk is seen in the record
        warnings.simplefilter("ignore")
        return estimated(estimator, outputs, y)[0].to_dict()


def prepare_for_vmap(base: nn.Module) -> None:
    """Exchange the two operations that have no fast batched form: the patch convolution and the
    fused attention.
    """
    for module in base.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = (
                False  # some tens of tokens: the plain product is as fast, and it can be batched
            )
        projection = getattr(module, "proj", None)
        if isinstance(projection, nn.Conv2d) and projection.kernel_size == projection.stride:
            module.proj = _PatchProduct(projection)
