"""The shared backbone: any Vision Transformer of timm, its weights, their provenance and its own preprocessing."""

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
    "copy vit.pth here and pass weights='vit.pth' (--weights vit.pth). pretrained=False draws random weights instead."
)


@dataclass(frozen=True)
class Preprocessing:
    """What a backbone expects of an image with values in [0, 1]: its mean, SD and size (timm's ``pretrained_cfg``)."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int


def build_backbone(
    backbone: str | nn.Module, pretrained: bool, weights: str | Path | None, **backbone_kwargs: Any
) -> tuple[nn.Module, str]:
    """Return a timm Vision Transformer without its classifier, and one line that says where its weights come from.

    Parameters
    ----------
    backbone : str or torch.nn.Module
        Name of a timm model, or a built ``timm.models.VisionTransformer``, which is used as it is.
    pretrained : bool
        Load timm's weights of that name (needs internet or timm's cache), unless ``weights`` is given.
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
    if isinstance(backbone, nn.Module):
        if backbone_kwargs:
            raise ParameterError(
                f"a built backbone takes no further arguments, got {', '.join(backbone_kwargs)}."
            )
        model, origin = backbone, "built by the caller" if pretrained else "random"
        if hasattr(model, "reset_classifier"):
            model.reset_classifier(0)
        if weights is not None:
            _load_file(model, Path(weights))
    else:
        model, origin = _create(backbone, pretrained and weights is None, weights, backbone_kwargs)
    if weights is not None:
        origin = f"file sha256 {hashlib.sha256(Path(weights).read_bytes()).hexdigest()[:16]}"
    if not hasattr(model, "blocks") or not hasattr(model, "forward_head"):
        raise ParameterError(
            f"{type(model).__name__} is no Vision Transformer of timm: it has no blocks."
        )
    return model, origin


def preprocessing_of(model: nn.Module) -> Preprocessing:
    """Return mean, SD and size of the backbone's own ``pretrained_cfg``; without one 0, 1 and the grid's size."""
    from timm.data import resolve_model_data_config

    channels = model.patch_embed.proj.weight.shape[1]
    size = model.patch_embed.img_size[0]
    if not getattr(model, "pretrained_cfg", None):
        return Preprocessing((0.0,) * channels, (1.0,) * channels, size)
    found = resolve_model_data_config(model)
    mean, std = (
        tuple(value) if len(value) == channels else (sum(value) / len(value),) * channels
        for value in (found["mean"], found["std"])
    )
    return Preprocessing(mean, std, size)


def base_hash(model: nn.Module) -> str:
    """Return 16 digits of the SHA-256 over names and values of all weights, in the order of the state dictionary."""
    total = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        total.update(name.encode())
        total.update(
            tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        )
    return total.hexdigest()[:16]


def _create(
    name: str, download: bool, weights: str | Path | None, kwargs: dict[str, Any]
) -> tuple[nn.Module, str]:
    import timm

    if not timm.is_model(name.split(".")[0]):
        near = timm.list_models(f"*{name.split('.')[0].split('_')[0]}*")[:5]
        raise ParameterError(
            f"timm has no model {name!r}; near it: {', '.join(near) or 'none'}. See timm.list_models('vit*')."
        )
    if weights is not None and not Path(weights).is_file():
        raise DataError(f"weights={str(weights)!r} is no file. " + FETCH.format(name=name))
    try:
        model = timm.create_model(name, pretrained=download, num_classes=0, **kwargs)
    except (
        OSError,
        RuntimeError,
        ValueError,
    ) as error:  # the hub's errors derive from OSError or ValueError
        if not download:
            raise
        raise DataError(
            f"the weights of {name!r} could not be loaded ({type(error).__name__}). "
            + FETCH.format(name=name)
        ) from error
    if weights is not None:
        _load_file(model, Path(weights))
    return model, f"timm {model.pretrained_cfg.get('tag') or 'default'}" if download else "random"


def _load_file(model: nn.Module, path: Path) -> None:
    from timm.models import load_checkpoint

    model_head = "head.weight", "head.bias"
    try:
        report = load_checkpoint(model, str(path), strict=False, weights_only=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(f"weights {path} cannot be loaded: {error}") from error
    lacking = [key for key in getattr(report, "missing_keys", []) if key not in model_head]
    surplus = [key for key in getattr(report, "unexpected_keys", []) if key not in model_head]
    if lacking or surplus:
        raise DataError(
            f"weights {path} do not fit the backbone: {len(lacking)} tensors missing, {len(surplus)} unknown, "
            f"such as {', '.join((lacking + surplus)[:3])}. Was the file made for another model?"
        )
