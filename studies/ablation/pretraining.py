"""Encoder weights for the ablation, made without labels and without the test patients' images.

    python -m studies.ablation.pretraining [--scale smoke] [--most-seconds 400]

One ViT a fold of the fixed partition, pre-trained by masked auto-encoding on all images but those of the fold's test
patients, and one on all images (transductive, for the sensitivity analysis). All train side by side in one program.
Weights go to a folder that git ignores; what has a file is not trained again. Where timm's ImageNet weights can be had
none of this is needed: ``--weights imagenet`` of ``studies.ablation.fits``.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np
import torch

from cevit_lib.encoder.backbone import base_hash
from cevit_lib.records import new_record, rounded, write_record
from cevit_lib.training import find_device
from studies.ablation.data import (
    all_images,
    load_eyes,
    partition,
    weights_file,
    weights_folder,
    without_test_patients,
)
from studies.ablation.masked_autoencoder import build_encoder, pretrain_together
from studies.ablation.settings import base_of

STUDY = "ablation-pretraining"
ALL = 1000  # seed of the member that sees every image; a fold's seed is its number


def members(scale: str) -> list[dict[str, Any]]:
    """Return the configuration of every member: five folds of the fixed partition, and all images."""
    base = base_of(scale)
    keep = {
        key: base[key] for key in ("data", "size", "partition", "folds", "encoder", "pretraining")
    }
    folds = [keep | {"fold": fold, "weights": "mae-fold"} for fold in range(1, base["folds"] + 1)]
    return [*folds, keep | {"fold": 0, "weights": "mae-all"}]


def run(
    scale: str = "paper",
    *,
    folder: str | None = None,
    weights: str | None = None,
    device: str | None = None,
    results: Any = None,
    most_seconds: float | None = None,
    compiled: bool = False,
    only: str | None = None,
    report=print,
) -> list[dict]:
    """Train what has no file yet, and write one record a member.

    Parameters
    ----------
    scale : {"paper", "smoke"}
    folder : str, optional
        The data set (default ``CEVIT_DATA/grape``).
    weights : str, optional
        Folder of the weights.
    most_seconds : float, optional
        Limit of the whole training; the rate decays in time for it.
    only : {"mae-fold", "mae-all"}, optional
        Leave out the members of the other kind.
    """
    where, start = find_device(device), time.perf_counter()
    store = weights_folder(weights, scale)
    asked = [c for c in members(scale) if only in (None, c["weights"])]
    wanted = [c for c in asked if not weights_file(store, c).is_file()]
    report(f"pre-training: {len(wanted)} of {len(asked)} encoders to make, on {where}")
    if not wanted:
        return []
    first = wanted[0]
    eyes = load_eyes(first["data"], first["size"], True, folder)
    images, owners = all_images(first, folder)
    rows = [
        np.arange(len(images))
        if c["weights"] == "mae-all"
        else without_test_patients(owners, eyes, partition(eyes, c))
        for c in wanted
    ]
    report(
        f"  data: {len(images)} images in {time.perf_counter() - start:.0f} s; seen by each: {[*map(len, rows)]}"
    )
    settings, begun = first["pretraining"], time.perf_counter()
    states, traces = pretrain_together(
        first["encoder"],
        images,
        rows,
        settings["steps"],
        [c["fold"] or ALL for c in wanted],
        batch=settings["batch"],
        learning_rate=settings["learning_rate"],
        decoder=settings["decoder"],
        device=where,
        most_seconds=most_seconds,
        compiled=compiled,
        report=lambda line: report(f"  {line}"),
    )
    seconds = time.perf_counter() - begun
    report(f"pre-training: {len(wanted)} encoders in {seconds:.0f} s")
    return [
        _keep(
            c,
            state,
            trace,
            len(seen),
            len(images),
            store,
            scale,
            seconds / len(wanted),
            where,
            results,
        )
        for c, state, trace, seen in zip(wanted, states, traces, rows, strict=True)
    ]


def _keep(c, state, trace, seen, images, store, scale, seconds, device, results) -> dict:
    """Write weights and record of one member; the record first, so that weights without one cannot be."""
    model = build_encoder(c["encoder"])
    model.load_state_dict(state)
    told = {
        "images_seen": seen,
        "images_of_test_patients": images - seen if c["fold"] else 0,
        "labels_used": False,
        "test_images_seen": c["weights"] == "mae-all",
        "steps": trace[-1]["step"],
        "image_passes": trace[-1]["step"] * c["pretraining"]["batch"],
    }
    metrics = {"final_loss": trace[-1]["loss"]} | told
    record = new_record(
        STUDY,
        c,
        [c["fold"] or ALL],
        rounded(metrics),
        scale=scale,
        parameters={"weights": {"hash": base_hash(model)}},
        trace=rounded(trace),
        seconds=seconds,
        device=device,
        dtype="bf16 autocast" if device.type == "cuda" else "float32",
    )
    write_record(record, results)
    path = weights_file(store, c)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    torch.save({"weights": state, "told": told | {"record": record["id"]}}, scratch)
    os.replace(scratch, path)
    return record


def main(arguments: list[str] | None = None) -> int:
    """Entry of ``python -m studies.ablation.pretraining``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=("paper", "smoke"), default="paper")
    parser.add_argument("--data", help="folder of GRAPE (default: CEVIT_DATA/grape)")
    parser.add_argument(
        "--weights-folder", help="where the weights go (default: .data/, which git ignores)"
    )
    parser.add_argument("--results", help="folder of the records")
    parser.add_argument("--device")
    parser.add_argument(
        "--most-seconds", type=float, help="end by then, with a decayed learning rate"
    )
    parser.add_argument("--only", choices=("mae-fold", "mae-all"), help="this kind of member alone")
    parser.add_argument("--compile", action="store_true", help="compile the batched pass")
    o = parser.parse_args(arguments)
    run(
        o.scale,
        folder=o.data,
        weights=o.weights_folder,
        device=o.device,
        results=o.results,
        most_seconds=o.most_seconds,
        compiled=o.compile,
        only=o.only,
        report=lambda line: print(line, flush=True),
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
