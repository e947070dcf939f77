"""How many numbers of the paper's encoder train (Section 3.2): counted without weights.

python -m studies encoder-size
"""

import warnings

import numpy as np
import torch

from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import FrozenRandomWeightsWarning
from studies.study import Study

CONFIGURATION = {
    "backbone": "vit_base_patch16_224",
    "lora_rank": 8,
    "lora": "fused",
    "adapters": True,
    "domains": 2,
}


def settings(scale: str) -> list[tuple[dict, int]]:
    """Return the one configuration, the paper's at either scale: counting takes no time."""
    return [(CONFIGURATION, 0)]


def count(configuration: dict = CONFIGURATION, seed: int = 0, scale: str = "paper") -> dict:
    """Return trainable and frozen parameters by part, and in all."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FrozenRandomWeightsWarning)  # nothing is computed with them
        model = BiChannelViT(**configuration, pretrained=False, rng=np.random.default_rng(seed))
    parts = model.count_parameters()
    metrics = {
        "trainable_parameters": sum(part["trainable"] for part in parts.values()),
        "frozen_parameters": sum(part["frozen"] for part in parts.values()),
        "parts": parts,
    }
    return {"metrics": metrics}


STUDY = Study("encoder-size", settings, count, device="cpu")
