"""Study "embedding": both eyes as points, as in the paper's Figure 1, from an encoder pre-trained on these eyes.

    python -m studies.encoder.embedding --data DIR --results results [--device cuda] [--weights vit.pth]
    python -m studies.encoder.embedding --smoke                      synthetic pairs, a minute on a CPU

A ViT-S is pre-trained by masked auto-encoding on GRAPE's disc images, labels unused. Then each eye becomes its class
token, and t-SNE lays the tokens of all eyes on a plane, once with the photographs as they are and once with left eyes
mirrored onto right ones: a right and a left eye differ first of all by being mirror images. The record holds
coordinates, how well a logistic regression tells the eyes and the classes apart, attention grids of a few pairs, and
the hash of the weights, which are too large to keep.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cevit_lib.datasets import PairedEyes, SyntheticPairs, load_grape, read_image
from cevit_lib.encoder import BiChannelViT
from cevit_lib.encoder.attention import class_token_attention
from cevit_lib.paths import data_folder
from cevit_lib.records import new_record, write_record
from studies.ablation.masked_autoencoder import ENCODER, SMOKE_ENCODER, build_encoder, pretrain

STUDY = "embedding"
PAPER = {
    "encoder": ENCODER,
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
    "encoder": SMOKE_ENCODER,
    "steps": 8,
    "batch": 16,
    "decoder": {"width": 48, "depth": 1},
    "perplexity": 10.0,
    "data": "synthetic",
}
SEED = 0


def all_disc_images(folder: str | None, size: int) -> tuple[Tensor, int]:
    """Return every disc image of GRAPE, all visits, ``(n, 3, size, size)`` bytes, and their number."""
    paths = sorted((data_folder("grape", folder) / "images_roi").glob("*.jpg"))
    return torch.stack([read_image(path, size) for path in paths]), len(paths)


def synthetic_stand_in(size: int) -> tuple[Tensor, PairedEyes]:
    """Return images and pairs for a run that only shows that the code works."""
    pairs = SyntheticPairs(24, np.random.default_rng(SEED))
    images = torch.nn.functional.interpolate(pairs.images.flatten(0, 1), size).expand(-1, 3, -1, -1)
    images = (255 * images.clamp(0, 1)).to(torch.uint8)
    return images, pairs.replace(images=images.view(len(pairs), 2, 3, size, size))


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
    """Return t-SNE coordinates ``(n, 2 eyes, 2)``: all eyes at once, features standardised, 30 principal components."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from sklearn.preprocessing import StandardScaler

    flat = StandardScaler().fit_transform(tokens.reshape(-1, tokens.shape[-1]))
    reduced = PCA(min(30, *flat.shape), random_state=seed).fit_transform(flat)
    plane = TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(reduced)
    return plane.reshape(*tokens.shape[:2], 2)


def telling_apart(features: np.ndarray, labels: np.ndarray, patients: np.ndarray) -> float:
    """Return the AUC of a cross-validated logistic regression; no patient is both trained on and scored."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import GroupKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    folds = GroupKFold(5)
    components = min(30, features.shape[1], len(features) * 4 // 5 - 2)
    probe = make_pipeline(
        StandardScaler(), PCA(components, random_state=0), LogisticRegression(C=0.1, max_iter=2000)
    )
    scores = cross_val_predict(
        probe, features, labels, groups=patients, cv=folds, method="predict_proba"
    )[:, 1]
    return float(roc_auc_score(labels, scores))


def separations(tokens: np.ndarray, field: np.ndarray) -> dict:
    """Return AUCs: left from right eye, and reduced from full field in each eye."""
    n = len(tokens)
    patients, eye = np.repeat(np.arange(n), 2), np.tile([0, 1], n)
    return {"eye": telling_apart(tokens.reshape(2 * n, -1), eye, patients)} | {
        name: telling_apart(tokens[:, j], field[:, j], np.arange(n))
        for j, name in enumerate(("field_OS", "field_OD"))
    }


def embed(
    model: BiChannelViT, data: dict[str, PairedEyes], configuration: dict, device: torch.device
):
    """Return metrics and columns of the record: one row an eye."""
    first = data["as photographed"]
    n = len(first)
    columns = {
        "patient": np.repeat(first.ids, 2),
        "eye": np.tile(["OS", "OD"], n),
        "continuous": first.y[:, :2].reshape(-1),
        "binary": first.y[:, 2:].reshape(-1),
    }
    metrics = {}
    for name, eyes in data.items():
        tokens = class_tokens(model, eyes, device)
        plane = on_a_plane(tokens, configuration["perplexity"], SEED).reshape(-1, 2)
        columns |= {f"{name}: first": plane[:, 0], f"{name}: second": plane[:, 1]}
        metrics[name] = separations(tokens, eyes.binary.numpy())
    return metrics, columns


def run(smoke: bool, folder: str | None, device: torch.device, weights: str | None) -> dict:
    """Pre-train, embed, and return the record."""
    configuration = SMOKE if smoke else PAPER
    size, start = configuration["encoder"]["img_size"], time.perf_counter()
    if smoke:
        images, pairs = synthetic_stand_in(size)
        count, data = len(images), {"as photographed": pairs, "left mirrored": pairs}
    else:
        images, count = all_disc_images(folder, size)
        data = {
            name: load_grape(folder, size=size, mirror=mirror)
            for name, mirror in (("as photographed", False), ("left mirrored", True))
        }
    torch.manual_seed(SEED)
    encoder = build_encoder(configuration["encoder"])
    trace = pretrain(
        encoder,
        images,
        configuration["steps"],
        SEED,
        batch=configuration["batch"],
        learning_rate=configuration["learning_rate"],
        decoder=configuration["decoder"] | {"masked": configuration["masked"]},
        device=device,
    )
    trained = time.perf_counter() - start
    if weights:
        Path(weights).parent.mkdir(parents=True, exist_ok=True)
        torch.save(encoder.state_dict(), weights)
    model = BiChannelViT(encoder, pretrained=True, adapters=False, lora_rank=0)
    metrics, columns = embed(model, data, configuration, device)
    shown = data["as photographed"].subset(np.arange(configuration["pairs_with_attention"]))
    attention = class_token_attention(model.cpu(), shown.load()).numpy().astype(np.float16)
    first = data["as photographed"]
    return new_record(
        STUDY,
        configuration,
        [SEED],
        metrics | {"final_loss": trace[-1]["loss"], "attention_of": list(shown.ids)},
        scale="smoke" if smoke else "paper",
        trace=trace,
        columns=columns,
        arrays={"attention": attention},
        data={
            "name": first.name,
            "hash": first.hash,
            "pairs": len(first),
            "images_for_pretraining": count,
            "labels_used_in_pretraining": False,
        },
        parameters={
            "base_hash": model.base_hash,
            "image_passes": configuration["steps"] * configuration["batch"],
        },
        seconds=time.perf_counter() - start,
        times={"pretraining_seconds": trained},
        device=device,
        dtype="bf16 autocast" if device.type == "cuda" else "float32",
    )


def ensure_record() -> None:
    """Make the record at paper scale unless it is there; reads GRAPE from ``CEVIT_DATA``."""
    from cevit_lib.errors import ProvenanceError
    from cevit_lib.records import load_records

    try:
        load_records(STUDY, configuration={"data": PAPER["data"]})
    except ProvenanceError:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        write_record(run(False, None, device, None))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", help="folder with pairs.csv and images_roi (default: CEVIT_DATA/grape)"
    )
    parser.add_argument("--results", help="folder for the record (default: the compendium's own)")
    parser.add_argument(
        "--weights", help="also write the encoder's weights to this file; they are never committed"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--smoke", action="store_true", help="synthetic pairs, a tiny encoder; shows no result"
    )
    options = parser.parse_args(arguments)
    record = run(options.smoke, options.data, torch.device(options.device), options.weights)
    print({key: value for key, value in record["metrics"].items()})
    print(write_record(record, options.results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
