"""Both eyes as points on a plane: class tokens, laid out by t-SNE; and the photographs that an
encoder can be pre-trained on.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cevit_lib.datasets import PairedEyes, read_image
from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import DataError
from cevit_lib.paths import data_folder


def all_photographs(size: int) -> tuple[Tensor, np.ndarray]:
    """Return every disc image of GRAPE, all visits, ``(n, 3, size, size)`` bytes, and whose each
    is.

    Raises
    ------
    DataError
        The folder of GRAPE is not there, or holds none.
    """
    paths = sorted((data_folder("grape") / "images_roi").glob("*.jpg"))
    if not paths:
        raise DataError(
            "the folder of GRAPE holds no images_roi/*.jpg: pre-training reads the photographs."
        )
    owners = np.array([path.name.split("_")[0] for path in paths])
    return torch.stack([read_image(path, size) for path in paths]), owners


@torch.no_grad()
def class_tokens(model: BiChannelViT, data: PairedEyes, device: torch.device) -> np.ndarray:
    """Return ``(n, 2, d)`` class tokens of both eyes."""
    model.to(device).eval()
    parts = [
        model.features(data.load(rows).to(device)).cpu()
        for rows in np.array_split(np.arange(len(data)), 4)
    ]
    return torch.cat(parts).double().numpy()


def on_a_plane(tokens: np.ndarray, perplexity: float, seed: int) -> np.ndarray:
    """Return t-SNE coordinates ``(n, 2 eyes, 2)``, of all eyes at once and their principal
    components."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    flat = tokens.reshape(-1, tokens.shape[-1])
    components = PCA(min(30, *flat.shape), random_state=seed)
    reduced = make_pipeline(StandardScaler(), components).fit_transform(flat)
    plane = TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(reduced)
    return plane.reshape(*tokens.shape[:2], 2)


def points(eyes: PairedEyes, planes: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return columns of a record, one row an eye: whose it is, its responses, its place in each
    view ``(n, 2, 2)``."""
    columns = {
        "patient": np.repeat(eyes.ids, 2),
        "eye": np.tile(["OS", "OD"], len(eyes)),
        "continuous": eyes.y[:, :2].reshape(-1),
        "binary": eyes.y[:, 2:].reshape(-1),
    }
    for name, plane in planes.items():
        columns[f"{name}: first"], columns[f"{name}: second"] = plane.reshape(-1, 2).T
    return columns
