"""What the ablation on photographs fits: the setting, a tiny one for a laptop, and its grids."""

import os
from typing import Any

ARMS = ("empirical", "matched", "one stage", "algorithm 3, paper", "algorithm 3, exact")
"""All start from the same weights and have as many epochs in all; the two stages of Algorithm 3
share them, and both of its arms their first.
"""
ADAPTED = ("empirical", "one stage", "algorithm 3, paper", "algorithm 3, exact")
"""Arms of the networks with adapters, whose dependence is not asked again."""
DISRUPTED = ("matched", "one stage")
PLAIN = ("age and sex", "PCA of pixels")

PAPER: dict[str, Any] = {
    "data": "grape, roi",
    "size": 128,
    "mirror": True,
    "pairs": "own",
    "partition": 0,
    "folds": 4,
    "fold": 1,
    "weights": "mae-half",
    "encoder": {"backbone": "vit_small_patch16_224", "img_size": 128},
    "lora_rank": 8,
    "adapters": False,
    "cross_fits": 3,
    "renewed_every": 2,
    "recipe": {"epochs": 14, "learning_rate": 1e-3, "batch_size": 24, "weight_decay": 0.05},
    "pretraining": {
        "steps": 1000,
        "batch": 256,
        "learning_rate": 1e-3,
        "decoder": {"width": 192, "depth": 4},
    },
    "arms": list(ARMS),
}
"""``weights``: ``mae-half`` (pre-trained without any image of the half of the patients from whom
the fold's test patients are), ``imagenet`` (timm's of that name) or ``random``. ``pairs``: ``own``,
or ``strangers``, whose two eyes belong to two patients.
"""
SMOKE = PAPER | {
    "data": "synthetic eyes",
    "size": 32,
    "lora_rank": 2,
    "encoder": {
        "backbone": "vit_tiny_patch16_224",
        "img_size": 32,
        "embed_dim": 24,
        "depth": 2,
        "num_heads": 2,
        "patch_size": 8,
    },
    "renewed_every": 1,
    "recipe": PAPER["recipe"] | {"epochs": 2},
    "pretraining": {
        "steps": 4,
        "batch": 8,
        "learning_rate": 1e-3,
        "decoder": {"width": 16, "depth": 1},
    },
}


def base_of(scale: str) -> dict[str, Any]:
    """Return the setting of a scale, with the encoder weights that ``CEVIT_PHOTOGRAPHS_WEIGHTS``
    names.
    """
    base = PAPER if scale == "paper" else SMOKE
    return base | {"weights": os.environ.get("CEVIT_PHOTOGRAPHS_WEIGHTS", base["weights"])}


CHANGES: dict[str, list[dict[str, Any]]] = {
    "photographs": [{}, {"adapters": True, "arms": list(ADAPTED)}],
    "photographs-disrupted": [{"pairs": "strangers", "arms": list(DISRUPTED)}],
    "photographs-references": [{"models": list(PLAIN)}],
}
"""Study -> what each of its settings changes."""
OF_REFERENCES = ("data", "size", "mirror", "folds", "cross_fits")
"""What of the setting the plain rows depend on."""


def grid(study: str = "photographs", scale: str = "paper") -> list[tuple[dict[str, Any], int]]:
    """Return (configuration, seed) of every fit of a study; ``study`` is a key of ``CHANGES``."""
    base = base_of(scale)
    if study == "photographs-references":
        base = {key: base[key] for key in OF_REFERENCES}
    partitions = 10 if scale == "paper" else 1
    return [
        (base | own | {"partition": p, "fold": f}, 0)
        for own in CHANGES[study]
        for p in range(partitions)
        for f in range(1, base["folds"] + 1)
    ]
