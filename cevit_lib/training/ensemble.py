"""Many fits in one program: networks of one architecture with stacked weights, on one device.

A small network leaves a large accelerator idle: its steps are too short to fill it. Fits of one
grid do not depend on each other, so their weights can be stacked along a first dimension and
``torch.func.vmap`` turns fifty small matrix products into one batched product. Each member keeps
its own patients, order, standardisation, gradient norm and copula parameters; a member's numbers
are those of the same fit made alone, up to the rounding of the batched products.
"""

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from cevit_lib.encoder import patches_as_product
from cevit_lib.training.compiling import (
    moved,
    relative_difference,
    run_and_differentiate,
    wake_compiler,
    wrongly_compiled,
)
from cevit_lib.training.loop import autocast
from cevit_lib.training.scaling import Standardisation


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
        """All members' standardisations as one, on the device: a copy from elsewhere waits for
        it."""
        return Standardisation.stacked(self.standardisation, self.y.device)

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
        Compile the batched forward pass (worth its minute on a GPU, not on a CPU).
    program : callable, optional
        The ``program`` of an ensemble of the same architecture, so that nothing is compiled twice;
        the weights that it runs on are those it is called with.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        device: torch.device | str = "cpu",
        compiled: bool = False,
        program: Callable | None = None,
    ) -> None:
        self.device, self.compiled, self.size = torch.device(device), compiled, len(models)
        if compiled:
            wake_compiler(self.device)
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
    def take(self, other: "Ensemble", members: np.ndarray) -> None:
        """Copy these members' weights from another ensemble of the same networks."""
        rows = torch.as_tensor(members, device=self.device)
        for name, value in self.parameters.items():
            value[rows] = other.parameters[name][rows]

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
        plain = functools.partial(self.plain, self.parameters, self.buffers)
        weights, context = self.parameters, autocast(self.device, precision)
        with moved(weights.values()):
            _, found = run_and_differentiate(self, weights, [images], context)
            _, wanted = run_and_differentiate(plain, weights, images.split(chunk, 1), context)
            with torch.no_grad():  # in float32, as test outputs are made: another program
                ran, right = self(images), plain(images)
        far = relative_difference((ran, right), (found, wanted), self.size)
        if wrongly_compiled(far, self.device):
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


def prepare_for_vmap(base: nn.Module) -> None:
    """Exchange what has no fast batched form: the patch convolution, the fused attention, and the
    products with their own gradient, which a compiler loses under ``vmap``.
    """
    for module in base.modules():
        if hasattr(module, "one_product"):
            module.one_product = False
        if hasattr(module, "fused_attn"):
            module.fused_attn = (
                False  # some tens of tokens: the plain product is as fast, and it can be batched
            )
    patches_as_product(base)
