"""Encoder weights for the ablation, made without labels and without the test patients' images.

    python -m studies ablation-pretraining

One ViT a fold of the fixed partition, pre-trained by masked auto-encoding on all images but those
of the fold's test patients, and one on all images (transductive, for the sensitivity analysis). All
train side by side in one program. Weights go to a folder that git ignores; where the records are
there and the weights are not, ``--results FOLDER`` makes both again. Where timm's ImageNet weights
can be had none of this is needed: ``CEVIT_ABLATION_WEIGHTS=imagenet python -m studies ablation``.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cevit_lib.encoder import base_hash, create_timm_model
from cevit_lib.errors import DataError
from cevit_lib.paths import project_root
from cevit_lib.records import record_id, rounded, scratch_folder
from cevit_lib.training import find_device
from studies.ablation.data import all_images, load_eyes, partition, without_test_patients
from studies.ablation.settings import base_of
from studies.encoder.masked_autoencoder import Pretraining, build_encoder, pretrain_together
from studies.study import Fit, Study

ALL = 1000  # seed of the member that sees every image; a fold's seed is its number


def settings(scale: str) -> list[Fit]:
    """Return every member: five folds of the fixed partition, and all images."""
    base = base_of(scale)
    kept = ("data", "size", "partition", "folds", "encoder", "pretraining")
    kept = {key: base[key] for key in kept}
    folds = [(kept | {"fold": f, "weights": "mae-fold"}, f) for f in range(1, base["folds"] + 1)]
    return [*folds, (kept | {"fold": 0, "weights": "mae-all"}, ALL)]


def fit(fits: list[Fit], scale: str, device: Any = None) -> list[dict[str, Any]]:
    """Train members side by side, keep their weights, and return what their records hold."""
    first, where = fits[0][0], find_device(device)
    eyes = load_eyes(first["data"], first["size"], True)
    images, owners = all_images(first)
    rows = [
        np.arange(len(images))
        if c["weights"] == "mae-all"
        else without_test_patients(owners, eyes, partition(eyes, c))
        for c, _ in fits
    ]
    how, seeds = Pretraining(**first["pretraining"]), [seed for _, seed in fits]
    states, traces = pretrain_together(first["encoder"], images, rows, how, seeds, where)
    contents = []
    for (c, seed), state, trace, seen in zip(fits, states, traces, rows, strict=True):
        told = {
            "images_seen": len(seen),
            "images_of_test_patients": len(images) - len(seen),
            "labels_used": False,
            "test_images_seen": c["weights"] == "mae-all",
            "steps": how.steps,
            "image_passes": how.steps * how.batch,
        }
        metrics = {"final_loss": trace[-1]["loss"]} | told
        told["record"] = record_id(STUDY.name, c, [seed], scale)
        _keep(state, told, weights_file(c, scale))
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


def _keep(state: dict, told: dict, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(f".{os.getpid()}")
    torch.save({"weights": state, "told": told}, scratch)
    os.replace(scratch, path)


STUDY = Study("ablation-pretraining", settings, fit, together=("fold", "weights"))


def weights_file(c: dict, scale: str) -> Path:
    """Return the file of a configuration's pre-trained weights, in a folder that git ignores."""
    smoke = scale == "smoke"
    folder = scratch_folder() if smoke else project_root() / ".data"
    part = f"partition-{c['partition']}-fold-{c['fold']}"
    return folder / "ablation-weights" / f"{'all' if c['weights'] == 'mae-all' else part}.pth"


class Encoders:
    """Backbones by configuration, each read once, with a line that says which weights made it."""

    def __init__(self, scale: str) -> None:
        self.scale, self.known = scale, {}

    def __call__(self, configuration: dict) -> tuple[nn.Module, dict[str, Any]]:
        """Return a fresh copy of the backbone and what a record says of its weights.

        Raises
        ------
        DataError
            The weights are not there; the message names the command that makes them.
        """
        path = weights_file(configuration, self.scale)
        key = configuration["weights"], path
        if key not in self.known:
            self.known[key] = self._read(configuration, path)
        return copy.deepcopy(self.known[key])

    def _read(self, configuration: dict, path: Path) -> tuple[nn.Module, dict[str, Any]]:
        kind, encoder = configuration["weights"], configuration["encoder"]
        told: dict[str, Any] = {"kind": kind}
        torch.manual_seed(configuration["partition"])
        if kind == "imagenet":
            size = encoder["img_size"]
            model, told["origin"] = create_timm_model(encoder["backbone"], True, img_size=size)
        else:
            model = build_encoder(encoder)
        if kind.startswith("mae"):
            stored = self._stored(path)
            model.load_state_dict(stored["weights"])
            told |= stored["told"]
        return model, told | {"hash": base_hash(model)}

    def _stored(self, path: Path) -> dict[str, Any]:
        if self.scale == "smoke":  # tiny and quick: made where this very code has not made them yet
            STUDY.run("smoke", devices=("cpu",), report=lambda line: None)
        if not path.is_file():
            raise DataError(
                f"{path} is not there. Make the encoder's weights first: python -m studies "
                "ablation-pretraining (with --results FOLDER where the records are there already), "
                "or take others by CEVIT_ABLATION_WEIGHTS=imagenet."
            )
        return torch.load(path, weights_only=True)
