"""What the ablation on real eyes fits: the setting, a tiny one for a laptop, and the grid of each
part of the study."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

PRETRAINING = {
    "steps": 3000,
    "batch": 256,
    "learning_rate": 1e-3,
    "decoder": {"width": 192, "depth": 4},
}
PAPER = {
    "data": "grape, roi",
    "size": 128,
    "mirror": True,
    "partition": 0,
    "folds": 5,
    "fold": 1,
    "weights": "mae-fold",
    "encoder": {"backbone": "vit_small_patch16_224", "img_size": 128},
    "lora_rank": 8,
    "adapters": False,
    "cross_fits": 3,
    "warm_up": {"epochs": 30, "learning_rate": 1e-3, "batch_size": 24, "weight_decay": 0.05},
    "further": {"epochs": 20, "learning_rate": 1e-4, "batch_size": 24, "weight_decay": 0.05},
    "arms": ["empirical", "independence", "fmcem", "cross-fitted"],
    "pretraining": PRETRAINING,
}
"""``weights``: ``mae-fold`` (pre-trained without the images of the fold's test patients),
``mae-all`` (with them: transductive), ``imagenet`` (timm's of that name) or ``random``. A fit
without ``arms`` only cross-fits its warm-up."""

SMOKE = PAPER | {
    "data": "synthetic eyes",
    "size": 32,
    "folds": 2,
    "cross_fits": 2,
    "lora_rank": 2,
    "encoder": {
        "backbone": "vit_tiny_patch16_224",
        "img_size": 32,
        "embed_dim": 24,
        "depth": 2,
        "num_heads": 2,
        "patch_size": 8,
    },
    "warm_up": PAPER["warm_up"] | {"epochs": 2},
    "further": PAPER["further"] | {"epochs": 1},
    "pretraining": {
        "steps": 4,
        "batch": 8,
        "learning_rate": 1e-3,
        "decoder": {"width": 16, "depth": 1},
    },
}
PLAIN = ("constant", "age and camera", "PCA of pixels")


def base_of(scale: str) -> dict[str, Any]:
    """Return the setting of a scale, with the encoder weights that ``CEVIT_ABLATION_WEIGHTS``
    names."""
    base = PAPER if scale == "paper" else SMOKE
    return base | {"weights": os.environ.get("CEVIT_ABLATION_WEIGHTS", base["weights"])}


def grid(study: str = "ablation", scale: str = "paper") -> list[tuple[dict[str, Any], int]]:
    """Return (configuration, seed) of every fit of a study; ``study`` is a key of ``STUDIES``."""
    return STUDIES[study](base_of(scale), scale)


def _seeds(scale: str) -> range:
    return range(10 if scale == "paper" else 2)


def _folds(base: dict) -> range:
    return range(1, base["folds"] + 1)


def _main(base: dict, scale: str) -> list[tuple[dict, int]]:
    """Ten seeds on one fixed partition, without and with adapters."""
    return [
        (base | {"fold": f, "adapters": a}, s)
        for a in (False, True)
        for s in _seeds(scale)
        for f in _folds(base)
    ]


def _tuning(base: dict, scale: str) -> list[tuple[dict, int]]:
    """Warm-ups alone, cross-fitted within the training patients; a seed that no comparison uses."""
    tried = [(3e-4, 30), (1e-3, 30), (3e-3, 30)] if scale == "paper" else [(1e-3, 1), (1e-3, 2)]
    return [
        (
            base
            | {
                "fold": f,
                "arms": [],
                "warm_up": base["warm_up"] | {"learning_rate": r, "epochs": e},
            },
            100,
        )
        for r, e in tried
        for f in _folds(base)
    ]


def _references(base: dict, scale: str) -> list[tuple[dict, int]]:
    """No network and no chance: the fixed partition, and the others of the sensitivity analysis."""
    keep = {key: base[key] for key in ("data", "size", "mirror", "folds")}
    return [
        (keep | {"partition": s, "fold": f, "models": list(PLAIN)}, 0)
        for s in _seeds(scale)
        for f in _folds(base)
    ]


def _probe(base: dict, scale: str) -> list[tuple[dict, int]]:
    """The frozen encoder under a plain regression: what the weights bring before anything is
    trained."""
    keep = {key: base[key] for key in ("data", "size", "mirror", "folds", "encoder", "pretraining")}
    own = [
        (keep | {"partition": 0, "fold": f, "weights": base["weights"]}, 0) for f in _folds(base)
    ]
    return own + [(c | {"weights": "mae-all"}, s) for c, s in own]


STUDIES: dict[str, Callable[[dict, str], list[tuple[dict, int]]]] = {
    "ablation": _main,
    "ablation-tuning": _tuning,
    "ablation-references": _references,
    "ablation-probe": _probe,
}
