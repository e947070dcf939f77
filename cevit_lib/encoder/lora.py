"""Low-rank adaptation by peft, on exactly the linear layers that Section 3.2 names."""

from typing import Literal

import torch
from torch import Tensor, nn

from cevit_lib.errors import ParameterError

# timm keeps Q, K and V in one layer. A bare list of names would also catch the patch embedding's "proj".
FUSED = r"blocks\.\d+\.(attn\.(qkv|proj)|mlp\.(fc1|fc2))"
SEPARATE = r"blocks\.\d+\.(attn\.(qkv\.(query|key|value)|proj)|mlp\.(fc1|fc2))"


class SplitQKV(nn.Module):
    """timm's fused ``qkv`` layer as three linear layers with the same weights and the same output."""

    def __init__(self, fused: nn.Linear) -> None:
        super().__init__()
        width, rows = fused.in_features, fused.out_features // 3
        for part, name in enumerate(("query", "key", "value")):
            layer = nn.Linear(
                width,
                rows,
                bias=fused.bias is not None,
                device=fused.weight.device,
                dtype=fused.weight.dtype,
            )
            cut = slice(part * rows, (part + 1) * rows)
            layer.weight = nn.Parameter(fused.weight.detach()[cut].clone())
            if fused.bias is not None:
                layer.bias = nn.Parameter(fused.bias.detach()[cut].clone())
            setattr(self, name, layer)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``(..., 3 * width)``: queries, keys and values side by side, as timm expects."""
        return torch.cat([self.query(x), self.key(x), self.value(x)], dim=-1)


def add_lora(
    backbone: nn.Module,
    rank: int,
    mode: Literal["fused", "separate"] = "fused",
    alpha: float | None = None,
    dropout: float = 0.0,
) -> None:
    """Freeze the backbone, in place, and add ``(alpha / r) B A`` to W_Q, W_K, W_V, W_O, W_1, W_2 of every block.

    ``A`` starts Gaussian and ``B`` at zero, as the paper says. ``"fused"`` puts one pair on timm's joint Q-K-V layer
    (1,179,648 numbers for ViT-B at rank 8: "around 1.2 million"), ``"separate"`` one pair on each of Q, K and V as the
    formula reads (1,327,104).

    Parameters
    ----------
    backbone : torch.nn.Module
        A timm Vision Transformer.
    rank : int
        ``r``; the paper's is 8.
    mode : {"fused", "separate"}
        What counts as one layer.
    alpha : float, optional
        Numerator of the factor; the default ``alpha = r`` gives the paper's factor 1.
    dropout : float
        Dropout before ``A``; the paper has none, its earlier code 0.1.

    Raises
    ------
    ParameterError
        The rank is not positive or the mode unknown.
    """
    from peft import LoraConfig, inject_adapter_in_model

    if rank < 1 or mode not in ("fused", "separate"):
        raise ParameterError(
            f"lora rank {rank}, mode {mode!r}: give rank >= 1 and 'fused' or 'separate'."
        )
    if mode == "separate":
        for block in backbone.blocks:
            block.attn.qkv = SplitQKV(block.attn.qkv)
    config = LoraConfig(
        r=rank,
        lora_alpha=rank if alpha is None else alpha,
        lora_dropout=dropout,
        init_lora_weights="gaussian",
        target_modules=FUSED if mode == "fused" else SEPARATE,
    )
    inject_adapter_in_model(config, backbone)
    for layer in lora_layers(backbone).values():
        layer.cast_input_dtype_enabled = (
            False  # under autocast peft would copy every input to float32 and back
        )
    for name, parameter in backbone.named_parameters():
        parameter.requires_grad_("lora_" in name)


def lora_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers that carry a low-rank pair, by name."""
    from peft.tuners.lora import LoraLayer

    return {name: layer for name, layer in model.named_modules() if isinstance(layer, LoraLayer)}


def merge_lora(model: nn.Module, *, undo: bool = False) -> None:
    """Add every low-rank product to its frozen weight (or take it off again), in the weights' own precision."""
    for layer in lora_layers(model).values():
        layer.unmerge() if undo else layer.merge()
