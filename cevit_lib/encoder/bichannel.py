"""The bi-channel Vision Transformer of Section 2.1: one shared backbone, one set of adapters and
heads per eye."""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from cevit_lib.encoder.adapters import AdapterWeight, insert_adapters
from cevit_lib.encoder.backbone import (
    base_hash,
    build_backbone,
    patches_as_product,
    preprocessing_of,
)
from cevit_lib.encoder.lora import add_lora
from cevit_lib.errors import FrozenRandomWeightsWarning, ParameterError, ShapeError

#: What a parameter's name shows of the part it belongs to.
PARTS = {
    "lora_": "lora",
    ".adapter.": "adapters",
    "adapter_weight": "adapter weight",
    "heads.": "heads",
}
PATIENT = "patient "  # before the kind of a response that belongs to no single eye
#: timm's name of the backbone of Section 6, ViT-B/16 with 224 x 224 pixels.
VIT_B = "vit_base_patch16_224.augreg_in21k_ft_in1k"


@dataclass(frozen=True)
class EncoderOptions:
    """Further options of :class:`BiChannelViT`, given to it by name.

    Attributes
    ----------
    weights : path, optional
        File with the backbone's weights: of timm, RETFound, an MAE, DINOv2 or DINOv3.
    mean, std : sequence of float, optional
        By which the weights' images, with values in [0, 1], were normalised; one number, or one a
        channel. Default: those of the file's family, else the backbone's own.
    adapter_input : {"attention-output", "layer-norm"}
        What the adapters read; see :class:`~cevit_lib.encoder.ResidualAdapter`.
    tasks : sequence of {"continuous", "binary", "patient continuous", "patient binary"}
        Responses of each domain, the continuous ones first; the paper's are one of each. A response
        of the patient has one output, from the features of all domains.
    covariates : sequence of (mean, SD)
        Numbers beside the images, one pair each, which every head reads in these units beside its
        features; one that was not observed counts as the mean.
    normalise : bool
        Apply the backbone's own mean and SD to images in [0, 1]; ``False`` feeds images as they
        are.
    rng : numpy.random.Generator, optional
        Source of the initial weights; without it torch's global state is used.
    """

    weights: str | Path | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    adapter_input: Literal["attention-output", "layer-norm"] = "attention-output"
    tasks: Sequence[str] = ("continuous", "binary")
    covariates: Sequence[tuple[float, float]] = ()
    normalise: bool = True
    rng: np.random.Generator | None = None


class BiChannelViT(nn.Module):
    """Two eyes through one Vision Transformer; only the adapters and the heads differ by eye
    (Section 2.1, Eq. (1)).

    The four models of Section 6 are settings of this class and of the loss: ViT
    (``adapters=False``, empirical loss), ViT-A (``adapters=True``), CeViT (``adapters=False``,
    copula loss), CeViT-A (both).

    Parameters
    ----------
    backbone : str or torch.nn.Module
        Name of any timm Vision Transformer, or a built one.
    pretrained : bool
        Load timm's weights. ``False`` draws random ones; together with LoRA, which never trains
        them, that warns.
    adapters : bool
        Insert residual adapters, one per eye and layer.
    lora_rank : int
        Rank of LoRA; 0 trains the whole backbone.
    lora : {"fused", "separate"}
        One low-rank pair on timm's joint Q-K-V layer, or one on each.
    domains : int
        Number of images of one patient.
    **options
        Those of :class:`EncoderOptions`; all others are for ``timm.create_model``, such as
        ``img_size=72, in_chans=1, patch_size=12``.

    Notes
    -----
    The features are the class token after the backbone's final layer norm. The paper's formulas
    show neither that norm nor those inside the blocks; they are part of every published ViT and of
    its weights, and stay.

    Raises
    ------
    ParameterError, DataError
        Of :func:`~cevit_lib.encoder.backbone.build_backbone`.
    """

    def __init__(
        self,
        backbone: str | nn.Module = VIT_B,
        pretrained: bool = True,
        adapters: bool = True,
        lora_rank: int = 8,
        lora: Literal["fused", "separate"] = "fused",
        domains: int = 2,
        **options: Any,
    ) -> None:
        from cevit_lib.encoder.class_token import finish_with_class_token

        super().__init__()
        known = {field.name for field in fields(EncoderOptions)} & set(options)
        own = EncoderOptions(**{name: options.pop(name) for name in known})
        _check_arguments(domains, lora_rank, own.tasks)
        self.domains, self.tasks = domains, tuple(own.tasks)
        with _weights_from(own.rng):
            self.backbone, self.origin = build_backbone(
                backbone, pretrained, own.weights, _normalisation(own), **options
            )
            if own.weights and getattr(self.backbone, "global_pool", None) == "avg":
                options["global_pool"] = "avg"  # the file says so, and may be away another time
            self.base_hash = base_hash(self.backbone)
            self.preprocessing = preprocessing_of(self.backbone)
            patches_as_product(self.backbone)
            finish_with_class_token(self.backbone)
            if lora_rank:
                _warn_if_random(self.origin)
                add_lora(self.backbone, lora_rank, lora)
            self.adapter_weight = AdapterWeight(domains) if adapters else None
            if adapters:
                insert_adapters(self.backbone, domains, self.adapter_weight, own.adapter_input)
            self.reads = _reads(self.tasks, domains)
            width = self.backbone.num_features + len(own.covariates)
            self.heads = nn.ModuleDict(_heads(width, domains, self.reads))
        for name in ("mean", "std"):
            values = torch.tensor(getattr(self.preprocessing, name)).view(1, -1, 1, 1)
            self.register_buffer(name, values, persistent=False)
        self.covariates = bool(own.covariates)
        if self.covariates:
            units = torch.tensor(own.covariates, dtype=torch.float32)
            self.register_buffer("covariate_units", units, persistent=False)
        self.configuration = {
            "backbone": backbone if isinstance(backbone, str) else type(backbone).__name__,
            "pretrained": pretrained,
            "adapters": adapters,
            "lora_rank": lora_rank,
            "lora": lora,
            "domains": domains,
            "adapter_input": own.adapter_input,
            "tasks": list(own.tasks),
            "covariates": [list(pair) for pair in own.covariates],
            "normalise": own.normalise,
            "mean": list(own.mean) if own.mean else None,
            "std": list(own.std) if own.std else None,
            "backbone_kwargs": options,
        }

    def features(self, images: Tensor) -> Tensor:
        """Return the class tokens ``h_j (n, domains, width)`` of images ``(n, domains, channels,
        height, width)``.

        Raises
        ------
        ShapeError
            The images have another number of domains or channels, or another size, than the
            backbone expects.
        """
        n = self._check_images(images)
        # (n * domains, channels, height, width): one pass for all eyes
        flat = (images.flatten(0, 1) - self.mean) / self.std
        tokens = self.backbone.forward_features(flat)
        return self.backbone.forward_head(tokens, pre_logits=True).view(n, self.domains, -1)

    def forward(self, images: Tensor, covariates: Tensor | None = None) -> Tensor:
        """Return ``(n, p)``: a mean for each continuous response, then a logit for each binary one
        (Eq. (1)); ``covariates`` are ``(n, domains, k)``."""
        h = self.features(images)
        if self.covariates:
            mean, sd = self.covariate_units.unbind(1)
            h = torch.cat((h, ((covariates - mean) / sd).nan_to_num(0.0).to(h)), -1)
        columns = [
            self.heads[name](h.flatten(1) if eye is None else h[:, eye])
            for name, eye in self.reads.items()
        ]
        return torch.cat(columns, dim=1)

    @property
    def alpha(self) -> Tensor | None:
        """The adapters' weights ``(domains,)``, or ``None`` without adapters."""
        return None if self.adapter_weight is None else self.adapter_weight()

    def count_parameters(self) -> dict[str, dict[str, int]]:
        """Return by part (backbone, lora, adapters, adapter weight, heads) how many numbers train
        and are frozen."""
        counts: dict[str, dict[str, int]] = {}
        for name, parameter in self.named_parameters():
            entry = counts.setdefault(part_of(name), {"trainable": 0, "frozen": 0})
            entry["trainable" if parameter.requires_grad else "frozen"] += parameter.numel()
        return counts

    def _check_images(self, images: Tensor) -> int:
        channels, size = self.backbone.patch_embed.proj.weight.shape[1], self.preprocessing.size
        expected = (self.domains, channels, size, size)
        if images.dim() != 5 or tuple(images.shape[1:]) != expected:
            raise ShapeError(
                f"images have shape {tuple(images.shape)}; this encoder expects "
                f"(n, {', '.join(map(str, expected))}). Load the images at that size, or build the "
                "encoder with img_size=... and in_chans=..."
            )
        return images.shape[0]


def part_of(name: str) -> str:
    """Return the part of the model to which a parameter's name belongs."""
    return next((part for mark, part in PARTS.items() if mark in name), "backbone")


def _reads(tasks: tuple[str, ...], domains: int) -> dict[str, int | None]:
    """Return the eye that each head reads, ``None`` for all of them.

    Heads are named by task and eye, ``continuous_1, continuous_2, binary_1, binary_2``; a second
    task of one kind is ``continuous2``, one of the patient ``patient_binary``.
    """
    found: dict[str, int | None] = {}
    for k, task in enumerate(tasks):
        before = tasks[:k].count(task)
        name = task.replace(" ", "_") + (str(before + 1) if before else "")
        if task.startswith(PATIENT):
            found[name] = None
        else:
            found |= {f"{name}_{eye + 1}": eye for eye in range(domains)}
    return found


def _heads(width: int, domains: int, reads: dict[str, int | None]) -> dict[str, nn.Linear]:
    """Return one linear head per response, ``beta_k`` with its bias."""
    heads = {
        name: nn.Linear(width * domains if eye is None else width, 1) for name, eye in reads.items()
    }
    for head in heads.values():
        nn.init.trunc_normal_(head.weight, std=0.02)
        nn.init.zeros_(head.bias)
    return heads


def _check_arguments(domains: int, lora_rank: int, tasks: Sequence[str]) -> None:
    kinds = [task.removeprefix(PATIENT) for task in tasks]
    if not tasks or not set(kinds) <= {"continuous", "binary"}:
        raise ParameterError(
            f"tasks {list(tasks)}: give 'continuous', 'binary' or both, with 'patient ' before one "
            "of the patient."
        )
    if kinds != sorted(kinds, key=("continuous", "binary").index):
        raise ParameterError("tasks: the continuous responses come before the binary ones.")
    if domains < 1 or lora_rank < 0:
        raise ParameterError(
            f"domains={domains}, lora_rank={lora_rank}: domains must be positive, the rank not "
            "negative."
        )


def _normalisation(options: EncoderOptions) -> tuple[tuple[float, ...], ...] | None:
    """Return mean and SD where both are given; one without the other says too little."""
    mean, std = options.mean, options.std
    if mean is None and std is None:
        return None if options.normalise else ((0.0,), (1.0,))
    if len(mean or ()) != len(std or ()) or not np.isfinite([*mean, *std]).all() or min(std) <= 0:
        raise ParameterError(
            f"mean={mean}, std={std}: give both, finite, the SD above 0, a number for each channel."
        )
    return tuple(mean), tuple(std)


def _warn_if_random(origin: str) -> None:
    if origin == "random":
        warnings.warn(
            "LoRA trains low-rank changes to weights that were drawn at random and stay frozen "
            "(pretrained=False): such an encoder sees little. Pass weights=..., pretrained=True, "
            "or lora_rank=0 to train it in full.",
            FrozenRandomWeightsWarning,
            stacklevel=3,
        )


@contextlib.contextmanager
def _weights_from(rng: np.random.Generator | None) -> Iterator[None]:
    if rng is None:
        yield
        return
    # weights are drawn on the processor: no accelerator is started
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(rng.integers(2**63)))
        yield
