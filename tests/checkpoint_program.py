"""A small fit with every stage that a checkpoint holds; run as a program it is the one that the
tests kill.
"""

import sys

import numpy as np
import torch

from cevit_lib.datasets import SyntheticPairs
from cevit_lib.encoder import BiChannelViT
from cevit_lib.training import Recipe, fit_feasible_cevit


def network(seed=1, dropout=0.2):
    """A network whose dropout draws from torch's generator: that state must come back too."""
    return BiChannelViT(
        "vit_tiny_patch16_224",
        pretrained=False,
        adapters=True,
        lora_rank=0,
        normalise=False,
        rng=np.random.default_rng(seed),
        img_size=24,
        in_chans=1,
        patch_size=12,
        embed_dim=12,
        depth=1,
        num_heads=2,
        proj_drop_rate=dropout,
    )


def weights(result):
    return torch.cat([p.detach().flatten() for p in result.model.parameters()])


def fit(folder):
    """Algorithm 3 with cross-fitted warm-ups; the last stage is long enough to be killed in its
    middle.
    """
    torch.set_num_threads(1)
    return fit_feasible_cevit(
        network(),
        SyntheticPairs(80, np.random.default_rng(0), window=24),
        estimate_on="cross-fitted",
        folds=2,
        warm_up=Recipe(12, 1e-3, 16),
        copula=Recipe(50, 1e-4, 16),
        rng=np.random.default_rng(5),
        device="cpu",
        checkpoint=folder,
    )


if __name__ == "__main__":
    fit(sys.argv[1])
