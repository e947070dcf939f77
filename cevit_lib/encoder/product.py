"""One matrix product for a layer that carries a low-rank pair: ``x (W + s B A)^T + b``.

peft's layer makes three, and reads and writes all tokens for each. Its pairs, their names, saving
and merging stay peft's.
"""

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor, nn


class _Product(torch.autograd.Function):
    """``x W^T + b`` where ``W`` holds ``B A`` already; the pair gets its gradient without that of
    ``W``.

    With ``g`` the gradient of the outputs, that of ``A`` is ``(g B)^T x`` and that of ``B`` is
    ``g^T (x A^T)``: thin products, where the gradient of ``W`` would cost as much as the layer.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor
    ) -> Tensor:
        ctx.save_for_backward(x, weight, a, b)
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, weight, a, b = ctx.saved_tensors
        rows, seen = g.flatten(0, -2), x.flatten(0, -2)
        return (
            g @ weight if ctx.needs_input_grad[0] else None,
            None,
            rows.sum(0) if ctx.needs_input_grad[2] else None,
            (rows @ b).mT @ seen,
            rows.mT @ (seen @ a.mT),
        )


class OneProduct(Linear):
    """peft's layer with another forward pass: ``W + s B A`` is formed in the weights' own precision
    and rounded once.

    ``one_product = False`` takes peft's own, whose products are rounded one by one.
    """

    one_product = True

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return ``x (W + s B A)^T + b`` for ``x (..., in)``, in the precision of autocast."""
        weight, bias = self.base_layer.weight, self.base_layer.bias
        whole = self.merged or self.disable_adapters or weight.requires_grad
        if whole or not self.one_product:
            return super().forward(x, *args, **kwargs)
        kind, (name,) = x.device.type, self.active_adapters
        reduced = torch.is_autocast_enabled(kind)
        dtype = torch.get_autocast_dtype(kind) if reduced else x.dtype
        a, b = self.lora_A[name].weight, self.scaling[name] * self.lora_B[name].weight
        with torch.autocast(kind, enabled=False):
            weight = torch.addmm(weight, b.detach(), a.detach()).to(dtype)
            bias = None if bias is None else bias.to(dtype)
            return _Product.apply(x.to(dtype), weight, bias, a.to(dtype), b.to(dtype))
