"""The two predecessors that the paper's Discussion names: CeCNN (one eye) and OU-Copula (both eyes), on ResNet-18.

Both are written anew from what their papers and their authors' public code say; nothing is copied. ``SOURCES`` of each
class says where every setting comes from, and which are ours because no source states them. Losses and estimators need
no code of their own: CeCNN is ``CopulaLoss`` for one continuous and one binary response with
``GaussianScoreCorrelation``, OU-Copula the same loss for continuous responses only. Train them with the epochs,
augmentation and tuning of what they stand beside.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from cevit_lib.encoder.backbone import _create
from cevit_lib.errors import ParameterError, ShapeError

RESNET = "resnet18.a1_in1k"
Task = Literal["continuous", "binary"]


class CeCNN(nn.Module):
    """One eye, one convolutional network, two responses (Zhong et al., 2025): a mean and a logit, bivariate copula.

    For a data set of pairs, train one CeCNN an eye: each sees one image of a patient and knows nothing of the other.

    Parameters
    ----------
    backbone : str or torch.nn.Module
        Name of a timm ResNet, or a built network with ``num_features`` that maps ``(n, channels, h, w)`` to
        ``(n, num_features)``, such as :class:`SimulationCNN`.
    pretrained : bool
        Load timm's weights of that name.
    stages : int
        How many of the four stages of the ResNet are kept. CeCNN has to cut it down, because with all four the
        estimated correlation of the training residuals vanishes (Discussion of the CeViT paper).
    tasks : sequence of {"continuous", "binary"}
        The two responses; ``("continuous", "continuous")`` is the regression-regression variant of that paper.
    weights : path, optional
        File with the backbone's weights, for machines without internet.
    **backbone_kwargs
        For ``timm.create_model``, such as ``in_chans=1``.

    Raises
    ------
    ParameterError, DataError
        Unknown backbone or stages; weights that cannot be had.

    Examples
    --------
    >>> CeCNN(SimulationCNN(channels=1, size=72))(torch.zeros(5, 1, 1, 72, 72)).shape
    torch.Size([5, 2])
    """

    SOURCES: ClassVar[dict[str, str]] = {
        "one eye, two responses": "its paper and code",
        "ResNet-18, cut down": "its paper; how far is not said: we keep the stem and two stages, as OU-Copula does",
        "every weight trains": "its code",
        "Adam 1e-4, batch 64, 150 + 30 epochs": "its code (simulation); comparisons here give all arms the same budget",
        "rho by Gaussian scores": "with residuals in its paper, with the label in its simulation code; both offered",
        "one linear head a response": "ours",
    }

    def __init__(
        self,
        backbone: str | nn.Module = RESNET,
        pretrained: bool = True,
        stages: int = 2,
        tasks: Sequence[Task] = ("continuous", "binary"),
        weights: str | Path | None = None,
        **backbone_kwargs: Any,
    ) -> None:
        super().__init__()
        self.domains, self.tasks = 1, _checked_tasks(tasks)
        self.backbone, self.origin = _build(backbone, pretrained, stages, weights, backbone_kwargs)
        self.heads = nn.ModuleList(nn.Linear(self.backbone.num_features, 1) for _ in self.tasks)
        _keep_normalisation(self, self.backbone)
        self.configuration = {
            "encoder": "CeCNN",
            "backbone": _name(backbone),
            "pretrained": pretrained,
            "stages": stages,
            "tasks": list(self.tasks),
            "backbone_kwargs": dict(backbone_kwargs),
        }

    def features(self, images: Tensor) -> Tensor:
        """Return ``(n, 1, num_features)`` of images ``(n, 1, channels, height, width)``.

        Raises
        ------
        ShapeError
            More than one eye, or the wrong number of channels.
        """
        return _features(self, images)

    def forward(self, images: Tensor) -> Tensor:
        """Return the outputs ``(n, 2)`` of one eye: the continuous response's mean, then the binary one's logit."""
        h = self.features(images)[:, 0]
        return torch.cat([head(h) for head in self.heads], dim=1)


class OUCopulaCNN(nn.Module):
    r"""Both eyes through one shared network with convolutional adapters (Li et al., 2024).

    Beside every 3 x 3 convolution stands, for each eye, a 1 x 1 convolution of the same stride,

    .. math:: z \mapsto W * z + \alpha\, V_j * z, \qquad \alpha = 1 \text{ for both eyes and fixed},

    where CeViT adds a bottleneck beside the MLPs only and trains an :math:`\alpha_j` for each eye (Remark 1).

    Parameters
    ----------
    backbone, pretrained, stages, weights, **backbone_kwargs
        As in :class:`CeCNN`; the backbone must have 3 x 3 convolutions.
    tasks : sequence of {"continuous", "binary"}
        Responses of each eye. Its paper has two continuous ones (spherical equivalent and axial length); the default
        is the CeViT paper's pair, for comparisons on the same data.
    domains : int
        Number of eyes.
    adapter_weight : float
        The fixed :math:`\alpha`.

    Raises
    ------
    ParameterError, DataError
        Unknown backbone or stages; weights that cannot be had.

    Examples
    --------
    >>> model = OUCopulaCNN(pretrained=False, in_chans=1)
    >>> model(torch.zeros(2, 2, 1, 72, 72)).shape
    torch.Size([2, 4])
    """

    SOURCES: ClassVar[dict[str, str]] = {
        "stem and first two stages of ResNet-18": "its code (it also tried a DenseNet)",
        "1 x 1 adapters beside every 3 x 3 convolution": "its paper and code",
        "fixed weight 1, the same for both eyes": "its code; the CeViT paper calls it identical and fixed",
        "every weight trains": "its code",
        "batch 16, 60 epochs, Adam with StepLR": "its code; comparisons here give all arms the same budget",
        "copula of continuous responses": "its paper: the covariance of the warm-up's training residuals",
        "adapters start at zero": "ours: at the start the network is its backbone",
        "one linear head a response and eye": "ours",
    }

    def __init__(
        self,
        backbone: str | nn.Module = RESNET,
        pretrained: bool = True,
        stages: int = 2,
        tasks: Sequence[Task] = ("continuous", "binary"),
        domains: int = 2,
        adapter_weight: float = 1.0,
        weights: str | Path | None = None,
        **backbone_kwargs: Any,
    ) -> None:
        super().__init__()
        if domains < 1:
            raise ParameterError(f"domains={domains}: give a positive number.")
        self.domains, self.tasks = domains, _checked_tasks(tasks)
        self.backbone, self.origin = _build(backbone, pretrained, stages, weights, backbone_kwargs)
        self.adapted = _insert_convolutional_adapters(self.backbone, domains, adapter_weight)
        if not self.adapted:
            raise ParameterError(
                f"{_name(backbone)} has no 3 x 3 convolution to put an adapter beside."
            )
        count = len(self.tasks) * domains
        self.heads = nn.ModuleList(nn.Linear(self.backbone.num_features, 1) for _ in range(count))
        _keep_normalisation(self, self.backbone)
        self.configuration = {
            "encoder": "OUCopulaCNN",
            "backbone": _name(backbone),
            "pretrained": pretrained,
            "stages": stages,
            "tasks": list(self.tasks),
            "domains": domains,
            "adapter_weight": adapter_weight,
            "backbone_kwargs": dict(backbone_kwargs),
        }

    def features(self, images: Tensor) -> Tensor:
        """Return ``(n, domains, num_features)`` of images ``(n, domains, channels, height, width)``.

        Raises
        ------
        ShapeError
            Another number of eyes or channels.
        """
        return _features(self, images)

    def forward(self, images: Tensor) -> Tensor:
        """Return the outputs ``(n, p)``: task by task, within a task eye by eye, as :class:`BiChannelViT` does."""
        h = self.features(images)
        return torch.cat([head(h[:, k % self.domains]) for k, head in enumerate(self.heads)], dim=1)


class EyeConvolution(nn.Module):
    """A shared convolution and, for each eye, a 1 x 1 convolution of the same stride: their weighted sum.

    Parameters
    ----------
    shared : torch.nn.Conv2d
        The backbone's own layer.
    domains : int
        Number of eyes.
    weight : float
        What multiplies the eyes' parts.
    """

    def __init__(self, shared: nn.Conv2d, domains: int, weight: float) -> None:
        super().__init__()
        self.shared, self.domains, self.weight = shared, domains, weight
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
        """Map ``(n * domains, channels, h, w)``, the eyes of a patient side by side, to the layer's output."""
        own = self.own(x.reshape(-1, self.domains * x.shape[1], *x.shape[2:]))
        shared = self.shared(x)
        return shared + self.weight * own.reshape(shared.shape)


class SimulationCNN(nn.Module):
    """The small network of CeCNN's simulation: 3 x 3 convolutions (9, 18 channels), dropout, one hidden layer of 50.

    Pooling by 2 after each convolution and the dropout rate are ours.

    Parameters
    ----------
    channels, size : int
        Of the images.
    dropout : float
    """

    num_features = 50

    def __init__(self, channels: int = 1, size: int = 72, dropout: float = 0.25) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 9, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(9, 18, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(18 * (size // 4) ** 2, 50),
            nn.ReLU(),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Map ``(n, channels, size, size)`` to ``(n, 50)``."""
        return self.layers(images)


def _build(backbone, pretrained, stages, weights, kwargs) -> tuple[nn.Module, str]:
    if isinstance(backbone, nn.Module):
        if kwargs or weights is not None or not hasattr(backbone, "num_features"):
            raise ParameterError(
                "a built backbone needs num_features and takes no weights or further arguments."
            )
        return backbone, "built by the caller" if pretrained else "random"
    if stages not in (1, 2, 3, 4):
        raise ParameterError(f"stages={stages}: a ResNet has 1 to 4.")
    model, origin = _create(backbone, pretrained and weights is None, weights, kwargs)
    if not all(hasattr(model, f"layer{number}") for number in (1, 2, 3, 4)):
        raise ParameterError(f"{backbone!r} is no ResNet of timm: it has no layer1 to layer4.")
    for number in range(stages + 1, 5):
        setattr(model, f"layer{number}", nn.Identity())
    model.num_features = model.feature_info[stages]["num_chs"]
    return model, origin if weights is None else "file"


def _insert_convolutional_adapters(model: nn.Module, domains: int, weight: float) -> int:
    """Replace every 3 x 3 convolution, in place; return how many there were."""
    found = [
        (parent, name, layer)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3)
    ]
    for parent, name, layer in found:
        setattr(parent, name, EyeConvolution(layer, domains, weight))
    return len(found)


def _features(model: nn.Module, images: Tensor) -> Tensor:
    channels = next(m for m in model.backbone.modules() if isinstance(m, nn.Conv2d)).in_channels
    if images.dim() != 5 or images.shape[1] != model.domains or images.shape[2] != channels:
        raise ShapeError(
            f"images have shape {tuple(images.shape)}; this encoder expects (n, {model.domains}, {channels}, height, "
            "width). CeCNN takes one eye at a time; for another number of channels build it with in_chans=..."
        )
    flat = (images.flatten(0, 1) - model.mean) / model.std
    return model.backbone(flat).view(images.shape[0], model.domains, -1)


def _keep_normalisation(model: nn.Module, backbone: nn.Module) -> None:
    """Store the backbone's own mean and SD; without one, images pass as they are."""
    found = getattr(backbone, "pretrained_cfg", None) or {}
    channels = next(m for m in backbone.modules() if isinstance(m, nn.Conv2d)).in_channels
    for name, default in (("mean", 0.0), ("std", 1.0)):
        values = found.get(name) or (default,)
        values = values if len(values) in (1, channels) else (sum(values) / len(values),)
        model.register_buffer(name, torch.tensor(values).view(1, -1, 1, 1), persistent=False)


def _checked_tasks(tasks: Sequence[Task]) -> tuple[Task, ...]:
    tasks = tuple(tasks)
    if not tasks or set(tasks) - {"continuous", "binary"}:
        raise ParameterError(
            f"tasks {list(tasks)}: give 'continuous' or 'binary' for each response of an eye."
        )
    if list(tasks) != sorted(tasks, key=("continuous", "binary").index):
        raise ParameterError("tasks: continuous responses come before binary ones.")
    return tasks


def _name(backbone: str | nn.Module) -> str:
    return backbone if isinstance(backbone, str) else type(backbone).__name__
