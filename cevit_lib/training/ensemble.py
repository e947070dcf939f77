"""Many fits in one program: networks of one architecture with stacked weights, trained side by side on one device.

A small network leaves a large accelerator idle: its steps are too short to fill it. Fits of one grid do not depend on
each other, so their weights can be stacked along a first dimension and ``torch.func.vmap`` turns fifty small matrix
products into one batched product. Each member keeps its own patients, order, standardisation, gradient norm and copula
parameters; a member's numbers are those of the same fit made alone, up to the rounding of the batched products.
"""

import copy
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from cevit_lib.copula import CopulaParameters, EmpiricalLoss, condition
from cevit_lib.errors import ParameterError, TrainingError
from cevit_lib.normal import log_bivariate_normal_cdf, normal_score
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


class _PatchProduct(nn.Module):
    """timm's patch projection as a matrix product: the same weights and numbers, without a convolution per member."""

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


class _Program:
    """The batched forward pass as it is run, and as it was written; neither holds weights."""

    def __init__(self, plain: Callable, run: Callable) -> None:
        self.plain, self.run = plain, run

    def __call__(self, *arguments):
        return self.run(*arguments)


@dataclass(frozen=True)
class Members:
    """What the members of an ensemble are fitted to.

    Attributes
    ----------
    images : Tensor
        ``(N, domains, channels, height, width)``: the images of all data sets one after another, on the device.
    y : Tensor
        ``(N, p)`` responses in their own units, complete, on the device.
    rows : ndarray
        ``(members, n)`` row numbers of each member's training patients.
    standardisation : sequence of Standardisation
        Of each member.
    """

    images: Tensor
    y: Tensor
    rows: np.ndarray
    standardisation: Sequence[Standardisation]

    def inside(self, rows: Tensor) -> Tensor:
        """Return ``(members, b, p)`` responses of the rows ``(members, b)`` in each member's units of training."""
        mean, sd = self._moments(rows.device)
        y, p0 = self.y[rows].float(), mean.shape[-1]
        return torch.cat([(y[..., :p0] - mean) / sd, y[..., p0:]], dim=-1)

    def outside(self, outputs: Tensor) -> Tensor:
        """Return outputs ``(members, b, p)`` with their means in the responses' own units."""
        mean, sd = self._moments(outputs.device)
        p0 = mean.shape[-1]
        return torch.cat([outputs[..., :p0] * sd + mean, outputs[..., p0:]], dim=-1)

    def _moments(self, device: torch.device) -> tuple[Tensor, Tensor]:
        return tuple(
            torch.stack([getattr(s, part) for s in self.standardisation])[:, None]
            .float()
            .to(device)
            for part in ("mean", "sd")
        )


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
        The ``program`` of an ensemble of the same architecture, so that nothing is compiled twice; it holds no weights.
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
        self.program = program or self._build(models[0])

    def _build(self, model: nn.Module):
        base = copy.deepcopy(model).to("meta")
        prepare_for_vmap(base)

        def one(parameters, buffers, images):
            return functional_call(base, (parameters, buffers), (images,))

        def every(parameters, buffers, images):
            return vmap(one)(parameters, buffers, images)

        return _Program(every, torch.compile(every, dynamic=False) if self.compiled else every)

    def copy(self) -> "Ensemble":
        """Return an ensemble with the same weights that trains on its own (and shares what was compiled)."""
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
        """Return outputs ``(members, b, p)`` of images ``(members, b, domains, channels, height, width)``."""
        return self.program(self.parameters, self.buffers, images)

    def trust_compiler(self, images: Tensor, precision: str = "bf16", chunk: int = 16) -> float:
        """Compare the compiled program with the uncompiled networks, outputs and gradients; drop it if they differ.

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
            It exceeds ``compiling.WRONG_GRADIENT``; the ensemble goes on uncompiled, slower and right.
        """
        own = self.parameters, self.buffers
        run, plain = (
            functools.partial(self.program.run, *own),
            functools.partial(self.program.plain, *own),
        )
        context = autocast(self.device, precision)
        with moved(self.parameters.values()):
            _, found = run_and_differentiate(run, self.parameters, [images], context)
            _, wanted = run_and_differentiate(
                plain, self.parameters, images.split(chunk, 1), context
            )
            with (
                torch.no_grad()
            ):  # in float32, as test outputs are made: another program of the compiler's
                ran, right = run(images), plain(images)
        far = relative_difference((ran, right), (found, wanted))
        if far > WRONG_GRADIENT:
            warn_of_compiler(far, self.device)
            self.compiled, self.program = False, _Program(self.program.plain, self.program.plain)
        return far

    def state(self, member: int) -> dict[str, Tensor]:
        """Return the weights of one member, to load into a network of its kind."""
        return {
            name: value[member].detach().cpu().clone() for name, value in self.parameters.items()
        }

    @torch.no_grad()
    def outputs(
        self, members: Members, rows: np.ndarray, chunk: int, precision: str = "float32"
    ) -> Tensor:
        """Return ``(members, b, p)`` outputs in the responses' own units, float64 on the CPU.

        Parameters
        ----------
        members : Members
        rows : ndarray
            ``(members, b)`` row numbers of the patients to predict.
        chunk : int
            Patients at a time; the last ones are filled up, so that a compiled program sees one shape.
        """
        count = rows.shape[1]
        padded = np.pad(rows, ((0, 0), (0, -count % chunk)), mode="edge")
        parts = []
        for start in range(0, padded.shape[1], chunk):
            at = torch.as_tensor(padded[:, start : start + chunk], device=self.device)
            with autocast(self.device, precision):
                parts.append(self(members.images[at].float()).float())
        return members.outside(torch.cat(parts, 1)[:, :count]).cpu().double()


def empirical_loss(outputs: Tensor, y: Tensor) -> Tensor:
    """Return each member's mean empirical loss ``(members,)`` of outputs and complete responses ``(members, b, p)``."""
    members, b, p = outputs.shape
    terms = EmpiricalLoss(p0=p // 2, reduction="none", validate=False, missing=False)
    return terms(outputs.flatten(0, 1), y.flatten(0, 1)).view(members, b).mean(1)


class EnsembleCopulaLoss:
    """The mean copula loss of every member, each under fixed parameters of its own (Theorem 2.1, two binary responses).

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
        parts = [condition(one.detach()) for one in parameters]
        stack = {
            name: torch.cat([getattr(part, name) for part in parts]).float().to(device)
            for name in ("precision", "loading", "inverse_sd", "correlation", "constant")
        }
        self.precision, self.loading = (
            stack["precision"],
            stack["loading"],
        )  # (members, p0, p0), (members, 2, p0)
        self.inverse_sd, self.correlation = (
            stack["inverse_sd"][:, None],
            stack["correlation"][:, 0, 1, None],
        )
        self.constant = stack["constant"]  # (members,)
        self.inverse_scale = (
            torch.stack([part.inverse_scale for part in parts])[:, None].float().to(device)
        )

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


def train_ensemble(
    ensemble: Ensemble,
    members: Members,
    loss: Any,
    recipe: Recipe,
    orders: Sequence[np.random.Generator],
    *,
    stage: str,
    after_epoch: Any = None,
) -> list[list[dict[str, Any]]]:
    """Train all members in place; return each member's trace, as ``cevit_lib.training.train`` does for one network.

    Parameters
    ----------
    ensemble : Ensemble
    members : Members
    loss : callable
        ``loss(outputs, y) -> (members,)``: the mean over the patients of a batch, in units of training.
    recipe : Recipe
        The same for all.
    orders : sequence of numpy.random.Generator
        Order of each member's patients.
    stage : str
        Name for traces and messages.
    after_epoch : callable, optional
        ``after_epoch(epoch, ensemble) -> list of dict``, one for each member, added to its trace.

    Raises
    ------
    ParameterError
        The recipe's precision or the counts of members disagree.
    TrainingError
        A member's loss or gradient is not finite; the message names member, epoch and batch.
    """
    if not len(orders) == len(members.rows) == len(members.standardisation) == ensemble.size:
        raise ParameterError(
            f"{ensemble.size} networks, {len(members.rows)} sets of patients, {len(members.standardisation)} "
            f"standardisations and {len(orders)} orders: an ensemble needs one of each for every member."
        )
    optimizer = _optimizer(ensemble, recipe)
    n = members.rows.shape[1]
    steps = -(-n // recipe.batch_size)
    for rng in orders:
        rng.integers(
            2**63
        )  # the number that seeds a single network's dropout: orders then agree with `train`
    traces: list[list[dict[str, Any]]] = [[] for _ in range(ensemble.size)]
    for epoch in range(recipe.epochs):
        begun = time.perf_counter()
        order = np.stack(
            [own[rng.permutation(n)] for own, rng in zip(members.rows, orders, strict=True)]
        )
        losses, norms, rate = _epoch(
            ensemble, members, loss, recipe, optimizer, np.array_split(order, steps, 1), epoch
        )
        _refuse_divergence(losses, norms, stage, epoch, recipe)
        seconds = time.perf_counter() - begun
        further = after_epoch(epoch, ensemble) if after_epoch else [{}] * ensemble.size
        for k, trace in enumerate(traces):
            trace.append(
                {
                    "stage": stage,
                    "epoch": epoch + 1,
                    "loss": float(losses[:, k].mean()),
                    "learning_rate": rate,
                    "gradient_norm": float(norms[:, k].mean()),
                    "seconds": seconds / ensemble.size,
                    **further[k],
                }
            )
    return traces


def _epoch(
    ensemble, members, loss, recipe, optimizer, batches, epoch
) -> tuple[np.ndarray, np.ndarray, float]:
    device = ensemble.device
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    rows = torch.as_tensor(np.concatenate(batches, 1), device=device)  # one transfer an epoch
    losses, norms, start = [], [], 0
    for number, batch in enumerate(batches):
        rate = recipe.learning_rate * recipe.factor(epoch * len(batches) + number, len(batches))
        for group in optimizer.param_groups:
            group["lr"] = rate
        at = rows[:, start : start + batch.shape[1]]
        start += batch.shape[1]
        with autocast(device, recipe.precision):
            outputs = ensemble(members.images[at].float())
        values = loss(outputs.float(), members.inside(at))
        optimizer.zero_grad(set_to_none=True)
        values.sum().backward()  # members share no weight: each gets the gradient of its own mean
        norms.append(_clip([p.grad for p in trained if p.grad is not None], recipe.clip))
        optimizer.step()
        losses.append(
            values.detach() * (batch.shape[1] * len(batches) / rows.shape[1])
        )  # its mean is over patients
    return torch.stack(losses).cpu().numpy(), torch.stack(norms).cpu().numpy(), rate


def _clip(gradients: list[Tensor], largest: float | None) -> Tensor:
    """Scale each member's gradient to norm ``largest`` where it is longer; return the norms before ``(members,)``."""
    norm = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
    if largest is not None:
        factor = (largest / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factor.view(-1, *(1,) * (gradient.dim() - 1)))
    return norm


def _optimizer(ensemble: Ensemble, recipe: Recipe) -> torch.optim.Optimizer:
    """Return the recipe's optimiser; a member's weight matrix has one dimension more here."""
    training = [p for p in ensemble.parameters.values() if p.requires_grad]
    groups = [
        {"params": [p for p in training if p.dim() >= 3], "weight_decay": recipe.weight_decay},
        {"params": [p for p in training if p.dim() < 3], "weight_decay": 0.0},
    ]
    kind = torch.optim.AdamW if recipe.optimizer == "adamw" else torch.optim.Adam
    fused = ensemble.device.type == "cuda"
    return kind(
        [group for group in groups if group["params"]], lr=recipe.learning_rate, fused=fused
    )


def prepare_for_vmap(base: nn.Module) -> None:
    """Exchange the two operations that have no fast batched form: the patch convolution and the fused attention."""
    for module in base.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = (
                False  # some tens of tokens: the plain product is as fast, and it can be batched
            )
        projection = getattr(module, "proj", None)
        if isinstance(projection, nn.Conv2d) and projection.kernel_size == projection.stride:
            module.proj = _PatchProduct(projection)


def _refuse_divergence(
    losses: np.ndarray, norms: np.ndarray, stage: str, epoch: int, recipe: Recipe
) -> None:
    bad = np.argwhere(~(np.isfinite(losses) & np.isfinite(norms)))
    if len(bad):
        batch, member = bad[0]
        raise TrainingError(
            f"{stage}: the loss or gradient of member {member + 1} of {losses.shape[1]} is not finite in epoch "
            f"{epoch + 1}, batch {batch + 1} of {len(losses)}. Likely cause: learning rate {recipe.learning_rate:g} is "
            "too large for it; fit it alone to see which patients were in that batch."
        )
