"""Low-rank adaptation by peft, on exactly the linear layers that Section 3.2 names."""

from typing import Literal

import torch
from torch import Tensor, nn

from cevit_lib.errors import ParameterError

# timm keeps Q, K and V in one layer. A bare list of names would also catch the patch embedding's
# "proj".
FUSED = r"blocks\.\d+\.(attn\.(qkv|proj)|mlp\.(fc1|fc2))"
SEPARATE = r"blocks\.\d+\.(attn\.(qkv\.(query|key|value)|proj)|mlp\.(fc1|fc2))"

NO_PLACE = (
    "LoRA needs blocks that call attn.qkv, attn.proj, mlp.fc1 and mlp.fc2 as layers, which {} here "
    "does not (a bias of its own for Q and V, or another MLP); take lora_rank=0 (--lora-rank 0)."
)


class SplitQKV(nn.Module):
    """timm's fused ``qkv`` layer as three linear layers with the same weights and the same
    output."""

    def __init__(self, fused: nn.Linear) -> None:
        super().__init__()
        width, rows, weight = fused.in_features, fused.out_features // 3, fused.weight
        for part, name in enumerate(("query", "key", "value")):
            layer = nn.Linear(
                width, rows, fused.bias is not None, device=weight.device, dtype=weight.dtype
            )
            layer.load_state_dict({k: v.chunk(3)[part] for k, v in fused.state_dict().items()})
            setattr(self, name, layer)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(..., 3 * width)``: queries, keys and values side by side, as timm expects."""
        return torch.cat([self.query(x), self.key(x), self.value(x)], dim=-1)


def add_lora(backbone: nn.Module, rank: int, mode: Literal["fused", "separate"] = "fused") -> None:
    """Freeze the backbone, in place, and add ``B A`` to W_Q, W_K, W_V, W_O, W_1, W_2 of every
    block.

    ``A`` starts Gaussian and ``B`` at zero, the factor is 1 and nothing is dropped out, as in the
    paper (its earlier code drops a tenth before ``A``). ``"fused"`` puts one pair on timm's joint
    Q-K-V layer (1,179,648 numbers for ViT-B at rank 8: "around 1.2 million"), ``"separate"`` one
    pair on each of Q, K and V as the formula reads (1,327,104).

    Parameters
    ----------
    backbone : torch.nn.Module
        A timm Vision Transformer.
    rank : int
        ``r``; the paper's is 8.
    mode : {"fused", "separate"}
        What counts as one layer.

    Raises
    ------
    ParameterError
        The rank is not positive, the mode unknown, or the blocks lack one of these layers: a model
        that bypasses them would train less than it says.
    """
    from peft import LoraConfig, inject_adapter_in_model

    from cevit_lib.encoder.product import OneProduct

    if rank < 1 or mode not in ("fused", "separate"):
        raise ParameterError(
            f"lora rank {rank}, mode {mode!r}: give rank >= 1 and 'fused' or 'separate'."
        )
    wanted, attentions = 6 if mode == "separate" else 4, [block.attn for block in backbone.blocks]
    if not all(isinstance(getattr(attention, "qkv", None), nn.Linear) for attention in attentions):
        raise ParameterError(NO_PLACE.format(type(attentions[0]).__name__))
    if mode == "separate":
        for block in backbone.blocks:
            block.attn.qkv = SplitQKV(block.attn.qkv)
    config = LoraConfig(
        r=rank,
        lora_alpha=rank,
        init_lora_weights="gaussian",
        target_modules=FUSED if mode == "fused" else SEPARATE,
    )
    inject_adapter_in_model(config, backbone)
    own_bias = any(getattr(attention, "q_bias", None) is not None for attention in attentions)
    if own_bias or len(lora_layers(backbone)) != wanted * len(attentions):
        raise ParameterError(NO_PLACE.format(type(backbone.blocks[0]).__name__))
    for layer in lora_layers(backbone).values():
        # under autocast peft would copy every input to float32 and back
        layer.cast_input_dtype_enabled = False
        layer.__class__ = OneProduct
    for name, parameter in backbone.named_parameters():
        parameter.requires_grad_("lora_" in name)


def lora_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers that carry a low-rank pair, by name."""
    from peft.tuners.lora import LoraLayer

    return {name: layer for name, layer in model.named_modules() if isinstance(layer, LoraLayer)}


def merge_lora(model: nn.Module, *, undo: bool = False) -> None:
    """Add every low-rank product to its frozen weight (or take it off again), in the weights' own
    precision."""
    for layer in lora_layers(model).values():
        layer.unmerge() if undo else layer.merge()
