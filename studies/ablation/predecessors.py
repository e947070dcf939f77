"""The two predecessors that the paper's Discussion names: CeCNN (one eye) and OU-Copula (both), on
ResNet-18.

Both are written anew from what their papers and their authors' public code say; nothing is copied.
``SOURCES`` of each class says where every setting comes from, and which are ours because no source
states them. Losses and estimators need no code of their own: CeCNN is ``CopulaLoss`` for one
continuous and one binary response with ``GaussianScoreCorrelation``, OU-Copula the same loss for
continuous responses only. Train them with the epochs, augmentation and tuning of what they stand
beside.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cevit_lib.encoder.backbone import create_timm_model, normalisation_of
from cevit_lib.errors import ParameterError, ShapeError

RESNET = "resnet18.a1_in1k"


class CutResNet(nn.Module):
    """A ResNet of timm that is cut down, and linear heads: two responses of each eye.

    Parameters
    ----------
    backbone : str
        Name of a timm ResNet.
    pretrained : bool
        Load timm's weights of that name.
    stages : int
        How many of the four stages of the ResNet are kept.
    **backbone_kwargs
        For ``timm.create_model``, such as ``in_chans=1``.

    Raises
    ------
    ParameterError, DataError
        Unknown backbone or stages; weights that cannot be had.
    """

    domains: ClassVar[int] = 1

    def __init__(
        self,
        backbone: str = RESNET,
        pretrained: bool = True,
        stages: int = 2,
        **backbone_kwargs: Any,
    ) -> None:
        super().__init__()
        self.backbone, self.origin = create_timm_model(backbone, pretrained, **backbone_kwargs)
        layers = [f"layer{number}" for number in (1, 2, 3, 4)]
        if stages not in (1, 2, 3, 4) or not all(hasattr(self.backbone, name) for name in layers):
            raise ParameterError(
                f"backbone={backbone!r}, stages={stages}: give a ResNet of timm and 1 to 4 stages."
            )
        for name in layers[stages:]:
            setattr(self.backbone, name, nn.Identity())
        self.adapt()
        width = self.backbone.feature_info[stages]["num_chs"]
        self.heads = nn.ModuleList(nn.Linear(width, 1) for _ in range(2 * self.domains))
        self.channels = self.backbone.conv1.in_channels
        for name, values in zip(
            ("mean", "std"), normalisation_of(self.backbone, self.channels), strict=True
        ):
            self.register_buffer(name, torch.tensor(values).view(1, -1, 1, 1), persistent=False)

    def adapt(self) -> None:
        """Change the backbone before the heads are drawn."""

    def features(self, images: Tensor) -> Tensor:
        """Return ``(n, domains, width)`` of images ``(n, domains, channels, height, width)``.

        Raises
        ------
        ShapeError
            Another number of eyes or channels.
        """
        if images.dim() != 5 or images.shape[1:3] != (self.domains, self.channels):
            raise ShapeError(
                f"images have shape {tuple(images.shape)}; this encoder expects (n, "
                f"{self.domains}, {self.channels}, height, width). CeCNN takes one eye at a time; "
                "for another number of channels build it with in_chans=..."
            )
        flat = (images.flatten(0, 1) - self.mean) / self.std
        return self.backbone(flat).view(images.shape[0], self.domains, -1)

    def forward(self, images: Tensor) -> Tensor:
        """Return the outputs ``(n, 2 * domains)``: the means eye by eye, then the logits, as
        :class:`BiChannelViT`."""
        h = self.features(images)
        return torch.cat([head(h[:, k % self.domains]) for k, head in enumerate(self.heads)], dim=1)


class CeCNN(CutResNet):
    """One eye, one convolutional network, two responses (Zhong et al., 2025): a mean and a logit,
    bivariate copula.

    For a data set of pairs, train one CeCNN an eye: each sees one image of a patient and knows
    nothing of the other. The ResNet has to be cut down, because with all four stages the estimated
    correlation of the training residuals vanishes (Discussion of the CeViT paper). A logit trained
    as a mean is the regression-regression variant of its paper.

    Examples
    --------
    >>> CeCNN(pretrained=False, in_chans=1)(torch.zeros(5, 1, 1, 72, 72)).shape
    torch.Size([5, 2])
    """

    SOURCES: ClassVar[dict[str, str]] = {
        "one eye, two responses": "its paper and code",
        "ResNet-18, cut down": "its paper; how far is not said: we keep the stem and two "
        "stages, as OU-Copula does",
        "every weight trains": "its code",
        "Adam 1e-4, batch 64, 150 + 30 epochs": "its code (simulation); comparisons here give all "
        "arms the same budget",
        "rho by Gaussian scores": "with residuals in its paper, as here; with the label in its "
        "simulation code",
        "one linear head a response": "ours",
    }


class OUCopulaCNN(CutResNet):
    r"""Both eyes through one shared network with convolutional adapters (Li et al., 2024).

    Beside every 3 x 3 convolution stands, for each eye, a 1 x 1 convolution of the same stride,

    .. math:: z \mapsto W * z + V_j * z,

    with the fixed weight 1 for both eyes, where CeViT adds a bottleneck beside the MLPs only and
    trains an :math:`\alpha_j` for each eye (Remark 1). Its paper has two continuous responses an
    eye (spherical equivalent and axial length); here a logit stands for the second, for comparisons
    on the same data.

    Examples
    --------
    >>> model = OUCopulaCNN(pretrained=False, in_chans=1)
    >>> model(torch.zeros(2, 2, 1, 72, 72)).shape
    torch.Size([2, 4])
    """

    domains = 2
    SOURCES: ClassVar[dict[str, str]] = {
        "stem and first two stages of ResNet-18": "its code (it also tried a DenseNet)",
        "1 x 1 adapters beside every 3 x 3 convolution": "its paper and code",
        "fixed weight 1, the same for both eyes": "its code; the CeViT paper calls it identical "
        "and fixed",
        "every weight trains": "its code",
        "batch 16, 60 epochs, Adam with StepLR": "its code; comparisons here give all arms "
        "the same budget",
        "copula of continuous responses": "its paper: the covariance of the warm-up's training "
        "residuals",
        "adapters start at zero": "ours: at the start the network is its backbone",
        "one linear head a response and eye": "ours",
    }

    def adapt(self) -> None:
        """Put the eyes' own convolutions beside every 3 x 3 convolution; ``adapted`` counts
        them."""
        found = [
            (parent, name, layer)
            for parent in self.backbone.modules()
            for name, layer in parent.named_children()
            if isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3)
        ]
        self.adapted = len(found)
        for parent, name, layer in found:
            setattr(parent, name, EyeConvolution(layer, self.domains))


class EyeConvolution(nn.Module):
    """A shared convolution plus, for each eye, a 1 x 1 convolution of the same stride.

    Parameters
    ----------
    shared : torch.nn.Conv2d
        The backbone's own layer.
    domains : int
        Number of eyes.
    """

    def __init__(self, shared: nn.Conv2d, domains: int) -> None:
        super().__init__()
        self.shared, self.domains = shared, domains
        # all eyes in one grouped convolution: group j sees and writes the channels of eye j
        self.own = nn.Conv2d(
            domains * shared.in_channels,
            domains * shared.out_channels,
            1,
            stride=shared.stride,
            groups=domains,
            bias=False,
        )
        nn.init.zeros_(self.own.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(n * domains, channels, h, w)``, the eyes of a patient side by side, to the layer's
        output."""
        own = self.own(x.reshape(-1, self.domains * x.shape[1], *x.shape[2:]))
        shared = self.shared(x)
        return shared + own.reshape(shared.shape)
