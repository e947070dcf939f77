"""Encoders of paired images: the bi-channel Vision Transformer with residual adapters and LoRA."""

from cevit_lib.encoder.adapters import AdaptedMLP, AdapterWeight, ResidualAdapter, insert_adapters
from cevit_lib.encoder.backbone import Preprocessing, base_hash, build_backbone, preprocessing_of
from cevit_lib.encoder.bichannel import VIT_B, BiChannelViT, part_of
from cevit_lib.encoder.lora import SplitQKV, add_lora, lora_layers, merge_lora
from cevit_lib.encoder.predecessors import CeCNN, EyeConvolution, OUCopulaCNN, SimulationCNN

__all__ = [
    "VIT_B",
    "AdaptedMLP",
    "AdapterWeight",
    "BiChannelViT",
    "CeCNN",
    "EyeConvolution",
    "OUCopulaCNN",
    "Preprocessing",
    "ResidualAdapter",
    "SimulationCNN",
    "SplitQKV",
    "add_lora",
    "base_hash",
    "build_backbone",
    "insert_adapters",
    "lora_layers",
    "merge_lora",
    "part_of",
    "preprocessing_of",
]
