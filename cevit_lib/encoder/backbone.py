"""The shared backbone: any Vision Transformer of timm, its weights, their provenance and its own
preprocessing."""

import hashlib
import warnings
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cevit_lib.encoder.weights import IMAGENET, load_weights, read_weights
from cevit_lib.errors import DataError, ParameterError, WeightsWarning

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and SD of each channel."""

FETCH = (
    "On a machine with internet run\n"
    "    python -c \"import timm, torch; m = timm.create_model('{name}', pretrained=True); "
    "torch.save(m.state_dict(), 'vit.pth')\"\n"
    "copy vit.pth here and pass weights='vit.pth' (--weights vit.pth). pretrained=False draws "
    "random weights instead."
)


@dataclass(frozen=True)
class Preprocessing:
    """What a backbone expects of an image with values in [0, 1]: its mean, SD and size (timm's
    ``pretrained_cfg``)."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int


def build_backbone(
    backbone: str | nn.Module,
    pretrained: bool,
    weights: str | Path | None,
    normalisation: Normalisation | None = None,
    **backbone_kwargs: Any,
) -> tuple[nn.Module, str]:
    """Return a timm Vision Transformer without its classifier, and one line that says where its
    weights come from.

    Parameters
    ----------
    backbone : str or torch.nn.Module
        Name of a timm model, of one on the Hugging Face hub (``hf-hub:OWNER/NAME``) or in a folder
        (``local-dir:FOLDER``), or a built ``timm.models.VisionTransformer``, which is used as it
        is.
    pretrained : bool
        Load the weights of that name (needs internet, timm's cache or the folder), unless
        ``weights`` is given.
    weights : path, optional
        File with the weights (``.pth``, ``.safetensors``): of timm, RETFound, an MAE, DINOv2 or
        DINOv3.
    normalisation : pair of tuples, optional
        Mean and SD by which the images of the weights were normalised; default those of the file's
        family, else of the name.
    **backbone_kwargs
        Passed to ``timm.create_model``, such as ``img_size=72, in_chans=1, embed_dim=96``.

    Raises
    ------
    ParameterError
        The name is none of timm's, the model has no ``blocks``, or its patches do not divide the
        image.
    DataError
        The weights cannot be had or do not fit; the message says how to get them.
    """
    if weights is not None and not Path(weights).is_file():
        raise DataError(f"weights={str(weights)!r} is no file. " + FETCH.format(name=backbone))
    read = None if weights is None else read_weights(Path(weights))
    if read is not None and read.pooled:
        backbone_kwargs = {"global_pool": "avg"} | backbone_kwargs
    model, origin = _without_classifier(backbone, pretrained and weights is None, backbone_kwargs)
    if read is not None:
        load_weights(model, read)
        known = IMAGENET if read.family else None
        normalisation = normalisation or known or _of_the_name(model, backbone, read.path.name)
        origin = read.origin
    if normalisation is not None:
        mean, std = normalisation
        model.pretrained_cfg = {**(model.pretrained_cfg or {}), "mean": mean, "std": std}
    return model, origin


def _without_classifier(
    backbone: str | nn.Module, pretrained: bool, backbone_kwargs: dict[str, Any]
) -> tuple[nn.Module, str]:
    if not isinstance(backbone, nn.Module):
        model, origin = create_timm_model(backbone, pretrained, **backbone_kwargs)
    elif backbone_kwargs:
        raise ParameterError(
            f"a built backbone takes no further arguments, got {', '.join(backbone_kwargs)}."
        )
    else:
        model, origin = backbone, "built by the caller" if pretrained else "random"
    if not all(hasattr(model, part) for part in ("blocks", "forward_head", "reset_classifier")):
        raise ParameterError(
            f"{type(model).__name__} is no Vision Transformer of timm: it has no blocks."
        )
    _refuse_lost_edge(model)
    model.reset_classifier(0)
    if hasattr(model, "rope") and isinstance(model.fc_norm, nn.Identity):
        model.global_pool = "token"  # DINOv3's own feature; timm takes the mean of its patches
    return model, origin


def _of_the_name(model: nn.Module, name: Any, file: str) -> None:
    """Say that the normalisation is the name's, where neither file nor tag tells whose it is."""
    if isinstance(name, str) and "." not in name and ":" not in name:
        mean, std = normalisation_of(model, 3)
        warnings.warn(
            f"weights {file}: nothing says how their images were normalised; taken is what timm "
            f"has for {name}, mean {mean[0]:.3g}, SD {std[0]:.3g}. If that is wrong, give mean and "
            "std (--mean, --std)",
            WeightsWarning,
            stacklevel=4,
        )


def _refuse_lost_edge(model: nn.Module) -> None:
    """Refuse sizes at which timm would cut pixels off: in one eye they are nasal, in the other
    temporal."""
    size, patch = model.patch_embed.img_size, model.patch_embed.patch_size
    for pixels, step in zip(size or (), patch, strict=False):
        if pixels % step:
            below = pixels // step * step
            raise ParameterError(
                f"images of {pixels} pixels are not whole patches of {step}: their right and lower "
                f"edge would be lost; take {f'{below} or ' if below else ''}{below + step} pixels "
                "(--size) or another patch_size."
            )


def create_timm_model(name: str, pretrained: bool, **backbone_kwargs: Any) -> tuple[nn.Module, str]:
    """Return any of timm's models without its classifier, and one line that says where its weights
    come from.

    Raises
    ------
    ParameterError
        The name is none of timm's.
    DataError
        The weights cannot be had; the message says how to get them.
    """
    import timm

    plain, _, tag = name.partition(".")
    elsewhere = name.startswith(("hf-hub:", "hf_hub:", "local-dir:"))
    known = not elsewhere and not set("/\\:") & set(name) and timm.is_model(plain)
    if not elsewhere and not (known and (not tag or timm.models.is_model_pretrained(name))):
        near = get_close_matches(name, timm.list_pretrained(f"{plain}.*" if known else ""), 5, 0.0)
        raise ParameterError(
            f"timm has no model {name!r}; near it: {', '.join(near) or 'none'}. "
            "See timm.list_models('vit*', pretrained=True), or name hf-hub:OWNER/NAME or "
            "local-dir:FOLDER."
        )
    try:
        model = timm.create_model(name, pretrained=pretrained, num_classes=0, **backbone_kwargs)
    except Exception as error:  # the hub's, timm's assertions, arguments that it does not know
        told = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
        if not pretrained and not elsewhere:
            raise ParameterError(
                f"timm cannot build {name!r} with {backbone_kwargs} ({told})."
            ) from error
        raise DataError(
            f"{name!r} could not be loaded ({told}). " + FETCH.format(name=name)
        ) from error
    tag = (
        name.rpartition("/")[2]
        if elsewhere
        else f"timm {model.pretrained_cfg.get('tag') or 'default'}"
    )
    origin = tag if pretrained else "random"
    return model, origin


def preprocessing_of(model: nn.Module) -> Preprocessing:
    """Return what a Vision Transformer expects of images."""
    channels, size = model.patch_embed.proj.weight.shape[1], model.patch_embed.img_size[0]
    return Preprocessing(*normalisation_of(model, channels), size)


def normalisation_of(model: nn.Module, channels: int) -> tuple[tuple[float, ...], ...]:
    """Return mean and SD of each channel by the model's own ``pretrained_cfg``; without one 0 and
    1.

    For another number of channels than the model was made for, the mean over its channels is taken.
    """
    from timm.data import resolve_model_data_config

    if not getattr(model, "pretrained_cfg", None):
        return (0.0,) * channels, (1.0,) * channels
    found = resolve_model_data_config(model)
    return tuple(
        tuple(values) if len(values) == channels else (sum(values) / len(values),) * channels
        for values in (found["mean"], found["std"])
    )


def base_hash(model: nn.Module) -> str | None:
    """Return 16 digits of the SHA-256 over names and values of all weights, in the order of the
    state dictionary.

    ``None`` for a model on torch's meta device, which has no values.
    """
    total = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if tensor.is_meta:
            return None
        total.update(name.encode())
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        total.update(raw.numpy().tobytes())
    return total.hexdigest()[:16]


class _PatchProduct(nn.Module):
    """timm's patch projection as one matrix product, with the same weights under the same names."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = convolution.weight, convolution.bias
        self.size = convolution.kernel_size[0]

    def forward(self, images: Tensor) -> Tensor:
        n, channels, height, width = images.shape
        rows, columns, size = height // self.size, width // self.size, self.size
        patches = images.reshape(n, channels, rows, size, columns, size).permute(0, 2, 4, 1, 3, 5)
        tokens = nn.functional.linear(
            patches.reshape(n, rows * columns, -1), self.weight.flatten(1), self.bias
        )
        return tokens.mT.reshape(n, -1, rows, columns)


def patches_as_product(model: nn.Module) -> None:
    """Exchange the convolution that projects patches side by side for a matrix product, in place:
    faster, and there is one for many networks at once."""
    for module in model.modules():
        projection = getattr(module, "proj", None)
        if isinstance(projection, nn.Conv2d) and projection.kernel_size == projection.stride:
            module.proj = _PatchProduct(projection)
