"""Residual adapters: the part of the encoder that each eye has for itself (Section 2.1, adapter equations)."""

from typing import Literal

import torch
from torch import Tensor, nn

from cevit_lib.errors import ParameterError, ShapeError


class AdapterWeight(nn.Module):
    """``alpha_j = sigmoid(alpha~_j)``, one per domain and shared by all layers; or one fixed number.

    Parameters
    ----------
    domains : int
        Number of domains (eyes).
    fixed : float, optional
        Use this constant (the earlier public code: 0.1; OU-Copula: 1) and train nothing. By default ``alpha~_j`` trains
        and starts at 0, so that ``alpha_j`` starts at 1/2; the paper does not say where it starts.
    """

    def __init__(self, domains: int, fixed: float | None = None) -> None:
        super().__init__()
        if fixed is None:
            self.logit = nn.Parameter(torch.zeros(domains))
        else:
            self.register_buffer("constant", torch.full((domains,), float(fixed)))

    def forward(self) -> Tensor:
        """Return ``alpha``, ``(domains,)``."""
        return torch.sigmoid(self.logit) if hasattr(self, "logit") else self.constant


class ResidualAdapter(nn.Module):
    r"""The adapters :math:`A_{lj}` of one layer, for all domains at once.

    .. math:: A_{lj}(z) = \mathrm{ReLU}(V_{lj1}^\top z + d_{lj1})\, V_{lj2} + d_{lj2}

    with :math:`V_{lj1}, V_{lj2}, d_{lj2} \in R^d` and :math:`d_{lj1} \in R` as printed: a bottleneck of width 1, 2305
    numbers per eye and layer in ViT-B. ``V1`` starts normal, ``V2`` and both biases at zero: at the start the encoder
    is the backbone, bit for bit.

    Where the sources differ: the paper's text calls the adapter's input "the output vector of the self attention layer"
    and formula (3) has no layer norm at all, whereas every ViT normalises before its MLP. So the input is either that
    output as it is (``"attention-output"``; the earlier public code does the same) or what the MLP reads
    (``"layer-norm"``). The paper trains :math:`\alpha_j`; its earlier code fixes it at 0.1 (:class:`AdapterWeight`).

    Parameters
    ----------
    width : int
        Embedding dimension ``d``.
    domains : int
        Number of domains.
    bottleneck : int
        Width of the hidden layer; the paper's is 1.

    Raises
    ------
    ParameterError
        ``bottleneck`` or ``domains`` is below 1.
    """

    def __init__(self, width: int, domains: int = 2, bottleneck: int = 1) -> None:
        super().__init__()
        if bottleneck < 1 or domains < 1:
            raise ParameterError(
                f"adapters need bottleneck >= 1 and domains >= 1, got {bottleneck} and {domains}."
            )
        self.domains, self.bottleneck = domains, bottleneck
        self.v1 = nn.Parameter(torch.randn(domains, bottleneck, width) * width**-0.5)
        self.d1 = nn.Parameter(torch.zeros(domains, bottleneck))
        self.v2 = nn.Parameter(torch.zeros(domains, bottleneck, width))
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
        # Sums rather than matrix products: a compiler fuses them with the norm before and the addition behind, while a
        # product with one column would read and write all tokens once more.
        units = [
            torch.relu((z * self.v1[:, None, k]).sum(-1, keepdim=True) + self.d1[:, None, None, k])
            for k in range(self.bottleneck)
        ]  # each (n, domains, t, 1)
        out = sum((unit * self.v2[:, None, k] for k, unit in enumerate(units)), self.d2[:, None])
        return (alpha[:, None, None] * out).reshape(rows, t, width)


class AdaptedMLP(nn.Module):
    """Stand-in for a timm block's MLP that adds the eyes' adapters: ``MLP(LN(z)) + alpha_j A_j(z)`` (Eq. (5)).

    It also takes over the block's norm (and layer scale, where there is one), because the adapter reads what comes
    before them; the block's own residual link then adds ``z``.
    """

    def __init__(
        self, block: nn.Module, adapter: ResidualAdapter, weight: AdapterWeight, adapter_input: str
    ) -> None:
        super().__init__()
        self.norm, self.mlp, self.layer_scale, self.adapter = (
            block.norm2,
            block.mlp,
            block.ls2,
            adapter,
        )
        self.adapter_input = adapter_input
        self._weight = (
            weight,
        )  # shared by all layers and owned by the encoder: a tuple keeps it out of this module's parts

    def forward(self, z: Tensor) -> Tensor:
        """Map the attention block's output ``(n * domains, t, width)`` to what is added to it."""
        normed = self.norm(z)
        source = z if self.adapter_input == "attention-output" else normed
        return self.layer_scale(self.mlp(normed)) + self.adapter(source, self._weight[0]())


def insert_adapters(
    backbone: nn.Module,
    domains: int,
    weight: AdapterWeight,
    bottleneck: int = 1,
    adapter_input: Literal["attention-output", "layer-norm"] = "attention-output",
) -> None:
    """Put one :class:`ResidualAdapter` beside the MLP of every block of a timm Vision Transformer, in place.

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
        if not all(hasattr(block, part) for part in ("norm2", "mlp", "ls2", "attn")):
            raise ParameterError(
                f"block {number} is {type(block).__name__}; adapters need timm's pre-norm Block."
            )
        adapter = ResidualAdapter(backbone.embed_dim, domains, bottleneck).to(
            block.norm2.weight.device
        )
        block.mlp = AdaptedMLP(block, adapter, weight, adapter_input)
        block.norm2, block.ls2 = nn.Identity(), nn.Identity()
