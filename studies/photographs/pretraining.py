"""Encoder weights for the ablation on photographs, made without labels and without whom they are
tested on.

    python -m studies photographs-pretraining

Two ViTs, side by side, each pre-trained by masked auto-encoding on all images but those of one half
of the patients; it serves the folds that test this half. Weights go to a folder that git ignores;
where the records are there and the weights are not, ``--results FOLDER`` makes both again. Where
timm's ImageNet weights can be had none of this is needed:
``CEVIT_PHOTOGRAPHS_WEIGHTS=imagenet python -m studies photographs``.
"""

import copy
import functools
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cevit_lib.encoder import base_hash, create_timm_model
from cevit_lib.errors import DataError
from cevit_lib.paths import project_root, whole_file
from cevit_lib.records import record_id, rounded, scratch_folder
from cevit_lib.training import find_device
from studies.photographs.data import all_images, half_of, load_eyes, without_half
from studies.photographs.masked_autoencoder import Pretraining, build_encoder, pretrain_together
from studies.photographs.settings import base_of
from studies.study import Setting, Study


def settings(scale: str) -> list[Setting]:
    """Return both members; each is numbered as the half that it does not see."""
    kept = ("data", "size", "mirror", "encoder", "pretraining")
    base = {key: base_of(scale)[key] for key in kept}
    return [(base | {"half": half}, half) for half in (0, 1)]


def fit(fits: list[Setting], scale: str, device: Any = None) -> list[dict[str, Any]]:
    """Train members side by side, keep their weights, and return what their records hold."""
    first, where = fits[0][0], find_device(device)
    eyes = load_eyes(first["data"], first["size"], first["mirror"])
    images, owners = all_images(first)
    rows = [without_half(owners, eyes, c["half"]) for c, _ in fits]
    how, seeds = Pretraining(**first["pretraining"]), [seed for _, seed in fits]
    states, traces = pretrain_together(first["encoder"], images, rows, how, seeds, where)
    contents = []
    for (c, seed), state, trace, seen in zip(fits, states, traces, rows, strict=True):
        told = {
            "images_seen": len(seen),
            "images_of_test_patients": len(images) - len(seen),
            "labels_used": False,
            "image_passes": how.steps * how.batch,
        }
        metrics = {"final_loss": trace[-1]["loss"]} | told
        told["record"] = record_id(STUDY.name, c, [seed], scale)
        with whole_file(weights_file(c["half"], scale)) as stream:
            torch.save({"weights": state, "told": told}, stream)
        model = build_encoder(c["encoder"])
        model.load_state_dict(state)
        contents.append(
            {
                "metrics": rounded(metrics),
                "parameters": {"weights": {"hash": base_hash(model)}},
                "trace": rounded(trace),
                "dtype": "bf16 autocast" if where.type == "cuda" else "float32",
                "device": where,
            }
        )
    return contents


STUDY = Study("photographs-pretraining", settings, fit, together=("half",))


def weights_file(half: int, scale: str) -> Path:
    """Return the file of the weights that serve a half, in a folder that git ignores."""
    folder = scratch_folder() if scale == "smoke" else project_root() / ".data"
    return folder / "photographs-weights" / f"half-{half}.pth"


def encoder_of(c: dict, scale: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return a fresh copy of a configuration's backbone, and what a record says of its weights.

    Raises
    ------
    DataError
        The weights are not there; the message names the command that makes them.
    """
    half = half_of(c) if c["weights"] == "mae-half" else None
    return copy.deepcopy(_read(json.dumps(c["encoder"]), c["weights"], half, scale))


@functools.cache
def _read(encoder: str, kind: str, half: int | None, scale: str) -> tuple[nn.Module, dict]:
    how, told = json.loads(encoder), {"kind": kind}
    torch.manual_seed(0)
    if kind == "imagenet":
        size = how["img_size"]
        model, told["origin"] = create_timm_model(how["backbone"], True, img_size=size)
    else:
        model = build_encoder(how)
    if half is not None:
        stored = _stored(weights_file(half, scale), scale)
        model.load_state_dict(stored["weights"])
        told |= stored["told"]
    return model, told | {"hash": base_hash(model)}


def _stored(path: Path, scale: str) -> dict[str, Any]:
    if scale == "smoke":  # tiny and quick: made where this very code has not made them yet
        STUDY.run("smoke", devices=("cpu",), report=lambda line: None)
    if not path.is_file():
        raise DataError(
            f"{path} is not there. Make the encoder's weights first: python -m studies "
            "photographs-pretraining (with --results FOLDER where the records are there already), "
            "or take others by CEVIT_PHOTOGRAPHS_WEIGHTS=imagenet."
        )
    return torch.load(path, weights_only=True)
