"""Study "embedding": both eyes as points, as in the paper's Figure 1, from an encoder pre-trained
on these eyes.

    python -m studies embedding                      reads GRAPE from CEVIT_DATA
    python -m studies embedding --scale smoke        synthetic pairs, a minute on a CPU

A ViT-S is pre-trained by masked auto-encoding on GRAPE's disc images, labels unused. Then each eye
becomes its class token, and t-SNE lays the tokens of all eyes on a plane, once with the photographs
as they are and once with left eyes mirrored onto right ones: a right and a left eye differ first of
all by being mirror images. The record holds coordinates, how well a logistic regression tells the
eyes and the classes apart, attention grids of a few pairs, and the hash of the weights, which are
too large to keep.
"""

import functools
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cevit_lib.datasets import PairedEyes, SyntheticPairs, load_grape, read_image
from cevit_lib.encoder import BiChannelViT, class_token_attention
from cevit_lib.errors import DataError
from cevit_lib.paths import data_folder
from cevit_lib.training import find_device
from studies.encoder.masked_autoencoder import Pretraining, build_encoder, pretrain
from studies.study import Fit, Study

PAPER = {
    "encoder": {"backbone": "vit_small_patch16_224", "img_size": 128},
    "steps": 4000,
    "batch": 256,
    "learning_rate": 1e-3,
    "decoder": {"width": 192, "depth": 4},
    "masked": 0.75,
    "perplexity": 30.0,
    "pairs_with_attention": 4,
    "data": "grape, roi",
}
SMOKE = PAPER | {
    "encoder": {
        "backbone": "vit_tiny_patch16_224",
        "img_size": 64,
        "embed_dim": 48,
        "depth": 3,
        "num_heads": 3,
    },
    "steps": 8,
    "batch": 16,
    "decoder": {"width": 48, "depth": 1},
    "perplexity": 10.0,
    "data": "synthetic",
}
SEED = 0


def settings(scale: str) -> list[Fit]:
    """Return the one fit of either scale."""
    return [(SMOKE if scale == "smoke" else PAPER, SEED)]


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


@functools.cache
def load(data: str, size: int) -> tuple[Tensor, dict[str, PairedEyes]]:
    """Return the images for pre-training, and the pairs as they are and mirrored; invented ones for
    a smoke run."""
    if data != "synthetic":
        views = {"as photographed": False, "left mirrored": True}
        pairs = {name: load_grape(size=size, mirror=mirror) for name, mirror in views.items()}
        return all_photographs(size)[0], pairs
    eyes = SyntheticPairs(24, np.random.default_rng(SEED))
    images = torch.nn.functional.interpolate(eyes.images.flatten(0, 1), size).expand(-1, 3, -1, -1)
    images = (255 * images.clamp(0, 1)).to(torch.uint8)
    eyes = eyes.replace(images=images.view(len(eyes), 2, 3, size, size))
    return images, {"as photographed": eyes, "left mirrored": eyes}


def facts(c: dict) -> dict[str, Any]:
    """Return what a record says of its data."""
    images, pairs = load(c["data"], c["encoder"]["img_size"])
    first = pairs["as photographed"]
    return {
        "name": first.name,
        "hash": first.hash,
        "pairs": len(first),
        "images_for_pretraining": len(images),
        "labels_used_in_pretraining": False,
    }


@torch.no_grad()
def class_tokens(model: BiChannelViT, data: PairedEyes, device: torch.device) -> np.ndarray:
    """Return ``(n, 2, d)`` class tokens of both eyes."""
    model.to(device).eval()
    parts = [
        model.features(data.load(rows).to(device)).cpu()
        for rows in np.array_split(np.arange(len(data)), 4)
    ]
    return torch.cat(parts).double().numpy()


def principal_components(count: int, seed: int = 0):
    """Return the estimator of at most 30 principal components of standardised features."""
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), PCA(min(30, count), random_state=seed))


def on_a_plane(tokens: np.ndarray, perplexity: float, seed: int) -> np.ndarray:
    """Return t-SNE coordinates ``(n, 2 eyes, 2)``, of all eyes at once and their principal
    components."""
    from sklearn.manifold import TSNE

    flat = tokens.reshape(-1, tokens.shape[-1])
    reduced = principal_components(min(flat.shape), seed).fit_transform(flat)
    plane = TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(reduced)
    return plane.reshape(*tokens.shape[:2], 2)


def telling_apart(features: np.ndarray, labels: np.ndarray, patients: np.ndarray) -> float:
    """Return the AUC of a cross-validated logistic regression; no patient is both trained on and
    scored."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import GroupKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline

    n, width = features.shape
    reduction = principal_components(min(width, n * 4 // 5 - 2))
    probe = make_pipeline(reduction, LogisticRegression(C=0.1, max_iter=2000))
    how = {"groups": patients, "cv": GroupKFold(5), "method": "predict_proba"}
    return float(roc_auc_score(labels, cross_val_predict(probe, features, labels, **how)[:, 1]))


def separations(tokens: np.ndarray, field: np.ndarray) -> dict:
    """Return AUCs: left from right eye, and reduced from full field in each eye."""
    n = len(tokens)
    patients, eye = np.repeat(np.arange(n), 2), np.tile([0, 1], n)
    return {"eye": telling_apart(tokens.reshape(2 * n, -1), eye, patients)} | {
        name: telling_apart(tokens[:, j], field[:, j], np.arange(n))
        for j, name in enumerate(("field_OS", "field_OD"))
    }


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


def fit(c: dict, seed: int, scale: str, device: Any = None) -> dict[str, Any]:
    """Pre-train, embed, and return what the record holds."""
    images, data = load(c["data"], c["encoder"]["img_size"])
    start, where = time.perf_counter(), find_device(device)
    torch.manual_seed(seed)
    encoder = build_encoder(c["encoder"])
    decoder = c["decoder"] | {"masked": c["masked"]}
    how = Pretraining(c["steps"], c["batch"], c["learning_rate"], decoder)
    trace = pretrain(encoder, images, how, seed, where)
    trained = time.perf_counter() - start
    model = BiChannelViT(encoder, pretrained=True, adapters=False, lora_rank=0)
    tokens = {name: class_tokens(model, eyes, where) for name, eyes in data.items()}
    planes = {name: on_a_plane(found, c["perplexity"], seed) for name, found in tokens.items()}
    first = data["as photographed"]
    shown = first.subset(np.arange(c["pairs_with_attention"]))
    attention = class_token_attention(model.cpu(), shown.load()).numpy().astype(np.float16)
    told = {name: separations(tokens[name], eyes.binary.numpy()) for name, eyes in data.items()}
    return {
        "metrics": told | {"final_loss": trace[-1]["loss"], "attention_of": list(shown.ids)},
        "trace": trace,
        "columns": points(first, planes),
        "arrays": {"attention": attention},
        "parameters": {"base_hash": model.base_hash, "image_passes": how.steps * how.batch},
        "times": {"pretraining_seconds": trained},
        "device": where,
        "dtype": "bf16 autocast" if where.type == "cuda" else "float32",
    }


STUDY = Study("embedding", settings, fit, facts=facts)
