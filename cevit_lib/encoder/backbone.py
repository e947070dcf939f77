"""The shared backbone: any Vision Transformer of timm, its weights, their provenance and its own
preprocessing."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cevit_lib.errors import DataError, ParameterError

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
    backbone: str | nn.Module, pretrained: bool, weights: str | Path | None, **backbone_kwargs: Any
) -> tuple[nn.Module, str]:
    """Return a timm Vision Transformer without its classifier, and one line that says where its
    weights come from.

    Parameters
    ----------
    backbone : str or torch.nn.Module
        Name of a timm model, or a built ``timm.models.VisionTransformer``, which is used as it is.
    pretrained : bool
        Load timm's weights of that name (needs internet or timm's cache), unless ``weights`` is
        given.
    weights : path, optional
        File with the weights (``.pth``, ``.safetensors``), for machines without internet.
    **backbone_kwargs
        Passed to ``timm.create_model``, such as ``img_size=72, in_chans=1, embed_dim=96``.

    Raises
    ------
    ParameterError
        The name is none of timm's, or the model has no ``blocks``.
    DataError
        The weights cannot be had or do not fit; the message says how to get them.
    """
    if weights is not None and not Path(weights).is_file():
        raise DataError(f"weights={str(weights)!r} is no file. " + FETCH.format(name=backbone))
    if isinstance(backbone, nn.Module):
        if backbone_kwargs:
            raise ParameterError(
                f"a built backbone takes no further arguments, got {', '.join(backbone_kwargs)}."
            )
        model, origin = backbone, "built by the caller" if pretrained else "random"
    else:
        model, origin = create_timm_model(
            backbone, pretrained and weights is None, **backbone_kwargs
        )
    if not all(hasattr(model, part) for part in ("blocks", "forward_head", "reset_classifier")):
        raise ParameterError(
            f"{type(model).__name__} is no Vision Transformer of timm: it has no blocks."
        )
    model.reset_classifier(0)
    if weights is not None:
        _load_file(model, Path(weights))
        origin = f"file sha256 {hashlib.sha256(Path(weights).read_bytes()).hexdigest()[:16]}"
    return model, origin


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

    if not timm.is_model(name.split(".")[0]):
        near = timm.list_models(f"*{name.split('.')[0].split('_')[0]}*")[:5]
        raise ParameterError(
            f"timm has no model {name!r}; near it: {', '.join(near) or 'none'}. "
            "See timm.list_models('vit*')."
        )
    try:
        model = timm.create_model(name, pretrained=pretrained, num_classes=0, **backbone_kwargs)
    except (OSError, RuntimeError, ValueError) as error:  # what the hub's errors derive from
        if not pretrained:
            raise
        raise DataError(
            f"the weights of {name!r} could not be loaded ({type(error).__name__}). "
            + FETCH.format(name=name)
        ) from error
    origin = f"timm {model.pretrained_cfg.get('tag') or 'default'}" if pretrained else "random"
    return model, origin


def preprocessing_of(model: nn.Module, normalise: bool = True) -> Preprocessing:
    """Return what a Vision Transformer expects of images; ``normalise=False`` takes them as they
    are."""
    channels, size = model.patch_embed.proj.weight.shape[1], model.patch_embed.img_size[0]
    if not normalise:
        return Preprocessing((0.0,) * channels, (1.0,) * channels, size)
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


def _load_file(model: nn.Module, path: Path) -> None:
    from timm.models import load_checkpoint

    try:
        report = load_checkpoint(model, str(path), strict=False, weights_only=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(f"weights {path} cannot be loaded: {error}") from error
    kinds = ("missing_keys", "unexpected_keys")
    odd = {key for kind in kinds for key in getattr(report, kind, ())}
    odd -= {"head.weight", "head.bias"}
    if odd:
        raise DataError(
            f"weights {path} do not fit the backbone: {len(odd)} tensors missing or unknown, "
            f"such as {', '.join(sorted(odd)[:3])}. Was the file made for another model?"
        )
