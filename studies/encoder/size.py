"""How many numbers of the paper's encoder train (Section 3.2): counted on torch's meta device, no weights needed.

python -m studies.encoder.size
"""

import time
import warnings

import numpy as np
import torch

from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import FrozenRandomWeightsWarning
from cevit_lib.records import new_record, write_record

STUDY = "encoder-size"
CONFIGURATION = {
    "backbone": "vit_base_patch16_224",
    "lora_rank": 8,
    "lora": "fused",
    "adapters": True,
    "domains": 2,
}


def count(configuration: dict = CONFIGURATION, scale: str = "paper") -> dict:
    """Return the record: trainable and frozen parameters by part, and the trainable ones in all."""
    start = time.perf_counter()
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FrozenRandomWeightsWarning)  # nothing is computed with them
        model = BiChannelViT(**configuration, pretrained=False, rng=np.random.default_rng(0))
    parts = model.count_parameters()
    metrics = {
        "trainable_parameters": sum(part["trainable"] for part in parts.values()),
        "frozen_parameters": sum(part["frozen"] for part in parts.values()),
        "parts": parts,
    }
    seconds = time.perf_counter() - start
    return new_record(
        STUDY, configuration, [0], metrics, scale=scale, seconds=seconds, device="cpu"
    )


def refit(record: dict) -> dict:
    """Count again, for ``cevit verify``."""
    return count(record["configuration"], record["scale"])


def main() -> None:
    record = count()
    print(f"{record['metrics']['trainable_parameters']:,} of them train: {write_record(record)}")


if __name__ == "__main__":
    main()
