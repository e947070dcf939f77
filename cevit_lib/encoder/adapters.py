"""Residual adapters: the part of the encoder that each eye has for itself (Section 2.1, adapter
equations)."""

from typing import Literal

import torch
from torch import Tensor, nn

from cevit_lib.errors import ParameterError, ShapeError


class AdapterWeight(nn.Module):
    """``alpha_j = sigmoid(alpha~_j)``, one per domain, trainable and shared by all layers.

    ``alpha~_j`` starts at 0, so that ``alpha_j`` starts at 1/2; the paper does not say where it
    starts. (The earlier public code keeps 0.1, OU-Copula 1, and trains neither.)
    """

    def __init__(self, domains: int) -> None:
        super().__init__()
        self.logit = nn.Parameter(torch.zeros(domains))

    def forward(self) -> Tensor:
        """Return ``alpha``, ``(domains,)``."""
        return torch.sigmoid(self.logit)


class ResidualAdapter(nn.Module):
    r"""The adapters :math:`A_{lj}` of one layer, for all domains at once.

    .. math:: A_{lj}(z) = \mathrm{ReLU}(V_{lj1}^\top z + d_{lj1})\, V_{lj2} + d_{lj2}

    with :math:`V_{lj1}, V_{lj2}, d_{lj2} \in R^d` and :math:`d_{lj1} \in R` as printed: one hidden
    unit, 2305 numbers per eye and layer in ViT-B. ``V1`` starts normal, ``V2`` and both biases at
    zero: at the start the encoder is the backbone, bit for bit.

    Where the sources differ: the paper's text calls the adapter's input "the output vector of the
    self attention layer" and formula (3) has no layer norm at all, whereas every ViT normalises
    before its MLP. So the input is either that output as it is (``"attention-output"``; the earlier
    public code does the same) or what the MLP reads (``"layer-norm"``). The paper trains
    :math:`\alpha_j`; its earlier code fixes it at 0.1 (:class:`AdapterWeight`).

    Parameters
    ----------
    width : int
        Embedding dimension ``d``.
    domains : int
        Number of domains.
    """

    def __init__(self, width: int, domains: int = 2) -> None:
        super().__init__()
        self.domains = domains
        self.v1 = nn.Parameter(torch.randn(domains, 1, width) * width**-0.5)
        self.d1 = nn.Parameter(torch.zeros(domains, 1))
        self.v2 = nn.Parameter(torch.zeros(domains, 1, width))
        self.d2 = nn.Parameter(torch.zeros(domains, width))

    def forward(self, tokens: Tensor, alpha: Tensor) -> Tensor:
        """Return ``alpha_j A_j(tokens)``.

        Parameters
        ----------
        tokens : Tensor
            ``(n * domains, t, width)``, the domains of one patient side by side.
        alpha : Tensor
            ``(domains,)``.

        Returns
        -------
        Tensor
            Of the shape of ``tokens``.

        Raises
        ------
        ShapeError
            The number of images is no multiple of ``domains``.
        """
        rows, t, width = tokens.shape
        if rows % self.domains:
            raise ShapeError(
                f"{rows} images are no multiple of {self.domains} domains; pass whole patients."
            )
        z = tokens.reshape(-1, self.domains, t, width)
        # A sum rather than a matrix product: a compiler fuses it with the norm before and the
        # addition behind, while a product with one column would read and write all tokens once
        # more.
        hidden = torch.relu((z * self.v1).sum(-1, keepdim=True) + self.d1[:, None])
        # alpha multiplies the weights: its gradient needs no further pass over the tokens
        v2, d2 = alpha[:, None, None] * self.v2, alpha[:, None] * self.d2
        return (hidden * v2 + d2[:, None]).reshape(rows, t, width)  # from (n, domains, t, width)


class AdaptedMLP(nn.Module):
    """Stand-in for a timm block's MLP that adds the eyes' adapters: ``MLP(LN(z)) + alpha_j A_j(z)``
    (Eq. (5)).

    It also takes over the block's norm (and layer scale, where there is one), because the adapter
    reads what comes before them; the block's own residual link then adds ``z``.
    """

    def __init__(
        self, block: nn.Module, adapter: ResidualAdapter, weight: AdapterWeight, adapter_input: str
    ) -> None:
        super().__init__()
        self.norm, self.mlp, self.layer_scale = block.norm2, block.mlp, block.ls2
        self.adapter, self.adapter_input = adapter, adapter_input
        # shared by all layers and owned by the encoder: a tuple keeps it out of this module's parts
        self._weight = (weight,)

    def forward(self, z: Tensor) -> Tensor:
        """Map the attention block's output ``(n * domains, t, width)`` to what is added to it."""
        normed = self.norm(z)
        source = z if self.adapter_input == "attention-output" else normed
        return self.layer_scale(self.mlp(normed)) + self.adapter(source, self._weight[0]())


def insert_adapters(
    backbone: nn.Module,
    domains: int,
    weight: AdapterWeight,
    adapter_input: Literal["attention-output", "layer-norm"] = "attention-output",
) -> None:
    """Put one :class:`ResidualAdapter` beside the MLP of every block of a timm Vision Transformer,
    in place.

    Raises
    ------
    ParameterError
        ``adapter_input`` is unknown, or a block is not timm's pre-norm block.
    """
    if adapter_input not in ("attention-output", "layer-norm"):
        raise ParameterError(
            f"adapter_input={adapter_input!r}: give 'attention-output' or 'layer-norm'."
        )
    for number, block in enumerate(backbone.blocks):
        _name_the_layer_scale(block)
        if not all(hasattr(block, part) for part in ("norm2", "mlp", "ls2", "attn")):
            raise ParameterError(
                f"block {number} is {type(block).__name__}; adapters need timm's pre-norm Block."
            )
        adapter = ResidualAdapter(backbone.embed_dim, domains).to(block.norm2.weight.device)
        block.mlp = AdaptedMLP(block, adapter, weight, adapter_input)
        block.norm2, block.ls2 = nn.Identity(), nn.Identity()


def _name_the_layer_scale(block: nn.Module) -> None:
    """Give an ``EvaBlock`` (DINOv3) its layer scale as a module, as timm's other blocks have it."""
    if not hasattr(block, "gamma_2"):
        return
    from timm.layers import LayerScale

    block.ls2 = nn.Identity() if block.gamma_2 is None else LayerScale(len(block.gamma_2))
    if block.gamma_2 is not None:
        block.ls2.gamma = block.gamma_2
    block.gamma_2 = None
