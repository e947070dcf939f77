"""Encoders of paired images: the bi-channel Vision Transformer with residual adapters and LoRA."""

from cevit_lib.encoder.adapters import ResidualAdapter
from cevit_lib.encoder.backbone import (
    base_hash,
    build_backbone,
    create_timm_model,
    patches_as_product,
)
from cevit_lib.encoder.bichannel import VIT_B, BiChannelViT, EncoderOptions
from cevit_lib.encoder.lora import add_lora, merge_lora

__all__ = [
    "VIT_B",
    "BiChannelViT",
    "EncoderOptions",
    "ResidualAdapter",
    "add_lora",
    "base_hash",
    "build_backbone",
    "create_timm_model",
    "merge_lora",
    "patches_as_product",
]
