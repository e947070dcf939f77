"""Where the class token looks: the attention weights that the fused kernels never write down."""

import contextlib

import torch
from torch import Tensor

from cevit_lib.encoder.bichannel import BiChannelViT
from cevit_lib.errors import ParameterError


@torch.no_grad()
def class_token_attention(model: BiChannelViT, images: Tensor) -> Tensor:
    r"""Return the weights with which the class token reads the patches, layer by layer and head by
    head.

    The column of :math:`\sigma_{soft}\{(W^{(K)}Z)^\top W^{(Q)}Z / \sqrt{64}\}` in Eq. (3) that
    belongs to the class token, without the weight on itself, so that a grid sums to at most one.

    Parameters
    ----------
    model : BiChannelViT
        In evaluation mode afterwards.
    images : Tensor
        ``(n, domains, channels, height, width)``.

    Returns
    -------
    Tensor
        ``(n, domains, layers, heads, rows, columns)``, float32.

    Raises
    ------
    ParameterError
        The backbone turns queries and keys by their positions (DINOv3): these are other weights.
    """
    if hasattr(model.backbone, "rope"):
        raise ParameterError(
            f"{type(model.backbone).__name__} has rotary positions, whose attention is not drawn "
            "here; take a backbone with learned positions."
        )
    found: list[Tensor] = []
    prefix = model.backbone.num_prefix_tokens  # the class token, and registers where there are some
    model.eval()
    with contextlib.ExitStack() as hooks:
        for block in model.backbone.blocks:
            hook = block.attn.register_forward_pre_hook(
                lambda attn, args: found.append(_weights(attn, args[0], prefix))
            )
            hooks.enter_context(hook)
        model.features(images)
    rows, columns = model.backbone.patch_embed.grid_size
    weights = torch.stack(found, dim=1)  # (n * domains, layers, heads, patches)
    return weights.float().view(images.shape[0], model.domains, *weights.shape[1:3], rows, columns)


def _weights(attn: torch.nn.Module, x: Tensor, prefix: int) -> Tensor:
    """Softmax of the class token's scores over all tokens; its own column and other prefix tokens
    are left out."""
    b, t, _ = x.shape
    qkv = attn.qkv(x).view(b, t, 3, attn.num_heads, attn.head_dim)
    q, k, _ = qkv.permute(2, 0, 3, 1, 4)  # each (b, heads, t, head size)
    q, k = attn.q_norm(q), attn.k_norm(k)
    scores = (q[:, :, :1] * attn.scale) @ k.transpose(-2, -1)  # (b, heads, 1, t)
    return scores.float().softmax(-1)[:, :, 0, prefix:]
