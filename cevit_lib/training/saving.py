"""A trained model as one folder: what was trained, what it stands on, how to read its outputs.

The encoder is imported when one is saved or loaded: other networks train without it.
"""

import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cevit_lib import __version__
from cevit_lib.copula import CopulaParameters
from cevit_lib.errors import (
    CevitError,
    DataError,
    FrozenRandomWeightsWarning,
    ParameterError,
    WeightsWarning,
)
from cevit_lib.paths import whole_file
from cevit_lib.training.checkpoint import changing, restore
from cevit_lib.training.fit import NOT_CLINICAL, Fit
from cevit_lib.training.scaling import Standardisation

DESCRIPTION, TENSORS = "model.json", "tensors.pt"


def save_model(fit: Fit, folder: str | os.PathLike) -> Path:
    """Write a fit into a new folder, whole or not at all.

    Adapters, heads, low-rank pairs, copula parameters, standardisation and label map are stored. A
    frozen backbone that can be had again (timm's name, the user's file) is not, only its tag and
    hash; one that was random or trained in full is.

    Raises
    ------
    ParameterError
        The folder exists already, or the model is no :class:`~cevit_lib.encoder.BiChannelViT`.
    """
    from cevit_lib.encoder import BiChannelViT

    folder, model = Path(folder), fit.model
    if folder.exists():
        raise ParameterError(
            f"{folder} exists; a saved model is never overwritten: name a new folder."
        )
    if not isinstance(model, BiChannelViT):
        raise ParameterError(f"save_model knows BiChannelViT, got {type(model).__name__}.")
    whole = model.origin == "random" or not model.configuration.get("lora_rank")
    description = {
        "format": 1,
        "cevit_lib": __version__,
        "use": NOT_CLINICAL,
        "encoder": model.configuration,
        "origin": model.origin,
        "whole": whole,
        "base_hash": model.base_hash,
        "preprocessing": vars(model.preprocessing),
        "responses": list(fit.responses),
        "continuous": fit.continuous,
        "domains": list(fit.domains),
        "labels": {name: {"0": "no", "1": "yes"} for name in fit.responses[fit.continuous :]},
        "standardisation": fit.standardisation.to_dict(),
        "parameters": fit.parameters.to_dict() if fit.parameters is not None else None,
        "notes": fit.notes,
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as scratch:
        new = Path(scratch) / folder.name
        with whole_file(new / TENSORS) as stream:
            torch.save(model.state_dict() if whole else changing(model), stream)
        with whole_file(new / DESCRIPTION) as stream:
            stream.write(json.dumps(description, indent=1, default=str).encode() + b"\n")
        os.replace(new, folder)
    return folder


def load_model(
    folder: str | os.PathLike,
    *,
    weights: str | os.PathLike | None = None,
    backbone: nn.Module | None = None,
) -> Fit:
    """Read a folder that :func:`save_model` wrote; its outputs are then those of the saved model,
    to the last bit.

    Parameters
    ----------
    folder : path
        The saved model.
    weights : path, optional
        File of the backbone's weights, when the model was built with one.
    backbone : torch.nn.Module, optional
        A built backbone, when the model was built with one.

    Returns
    -------
    Fit
        As it was saved.

    Raises
    ------
    DataError
        The folder is incomplete, torn or edited, or the base weights are not those the model was
        trained on.
    """
    folder = Path(folder)
    for name in (DESCRIPTION, TENSORS):
        if not (folder / name).is_file():
            raise DataError(f"{folder} is no saved model: {name} is missing.")
    try:
        stored = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        return _restored(folder, stored, weights, backbone)
    except CevitError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {str(error)[:120]}".splitlines()[0]
        raise DataError(
            f"{folder / DESCRIPTION} is not as 'cevit fit --save' writes it ({why}); take the "
            "folder as it was saved."
        ) from error


def _restored(folder: Path, stored: dict[str, Any], weights: Any, backbone: Any) -> Fit:
    model, place = _rebuild(stored, weights, backbone), folder / TENSORS
    if not stored["whole"] and model.base_hash != stored["base_hash"]:
        raise DataError(
            f"{folder} was trained on base weights {stored['base_hash']} ({stored['origin']}), "
            "these are "
            f"{model.base_hash} ({model.origin}): its outputs would mean nothing. Pass the weights "
            "it was trained on."
        )
    try:
        tensors = torch.load(place, weights_only=True, map_location="cpu")
    except Exception as error:  # a torn file, or one of another kind, fails in many ways
        raise DataError(
            f"{place} cannot be read ({type(error).__name__}): it is cut off or of another kind; "
            "copy the saved model again."
        ) from error
    restore(
        model, tensors, (model.state_dict() if stored["whole"] else changing(model)).keys(), place
    )
    model.origin = stored["origin"]
    model.base_hash = stored["base_hash"]
    model.eval()
    parameters = CopulaParameters.from_dict(stored["parameters"]) if stored["parameters"] else None
    return Fit(
        model,
        Standardisation.from_dict(stored["standardisation"]),
        parameters,
        [],
        tuple(stored["responses"]),
        stored["continuous"],
        tuple(stored["domains"]),
        stored["notes"],
    )


def _rebuild(stored: dict[str, Any], weights: Any, backbone: nn.Module | None) -> nn.Module:
    from cevit_lib.encoder import BiChannelViT

    configuration = dict(stored["encoder"])
    kwargs = configuration.pop("backbone_kwargs")
    configuration |= {key: stored["preprocessing"][key] for key in ("mean", "std")}
    if backbone is not None:
        configuration["backbone"] = backbone
    if stored["whole"]:
        configuration["pretrained"] = False  # everything comes from the folder
    with warnings.catch_warnings():
        for known in (FrozenRandomWeightsWarning, WeightsWarning):  # said when it was fitted
            warnings.simplefilter("ignore", known)
        return BiChannelViT(**configuration, weights=weights, **kwargs)
