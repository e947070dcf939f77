"""CeCNN and OU-Copula: structure against their sources, and the identities that it implies."""

import pytest
import torch
from torch import nn

timm = pytest.importorskip("timm", reason="needs the extra vit")

from cevit_lib.copula import CopulaLoss, CopulaParameters  # noqa: E402
from cevit_lib.errors import ParameterError, ShapeError  # noqa: E402
from studies.ablation.predecessors import CeCNN, EyeConvolution, OUCopulaCNN  # noqa: E402


@pytest.fixture
def pairs():
    return torch.randn(3, 2, 1, 72, 72, generator=torch.Generator().manual_seed(0))


def build(kind):
    torch.manual_seed(1)
    model = kind(pretrained=False, in_chans=1).eval()
    for name, module in model.named_modules():
        if name.endswith("bn2"):  # timm starts them at zero and hides the convolutions before them
            nn.init.ones_(module.weight)
    return model


@pytest.fixture
def both_eyes():
    return build(OUCopulaCNN)


def adapted(model):
    return {n: m for n, m in model.named_modules() if isinstance(m, EyeConvolution)}


def test_adapters_stand_beside_every_3x3_convolution_of_stem_and_two_stages(both_eyes):
    found = adapted(both_eyes)
    expected = {f"backbone.layer{s}.{b}.conv{c}" for s in (1, 2) for b in (0, 1) for c in (1, 2)}
    assert set(found) == expected and both_eyes.adapted == 8
    assert all(
        m.own.kernel_size == (1, 1) and m.own.stride == m.shared.stride for m in found.values()
    )
    # stages 1 and 2 of ResNet-18: 64->64 four times, 64->128 once, 128->128 three times; two eyes
    numbers = 2 * (4 * 64 * 64 + 64 * 128 + 3 * 128 * 128)
    assert sum(m.own.weight.numel() for m in found.values()) == numbers
    assert not hasattr(both_eyes, "alpha")


def test_at_the_start_ou_copula_is_timms_cut_resnet_on_each_eye(both_eyes, pairs):
    plain = timm.create_model("resnet18", pretrained=False, num_classes=0, in_chans=1).eval()
    plain.layer3 = plain.layer4 = nn.Identity()
    state = {
        k.replace(".shared.", "."): v
        for k, v in both_eyes.backbone.state_dict().items()
        if ".own." not in k
    }
    plain.load_state_dict(state)
    flat = (pairs.flatten(0, 1) - both_eyes.mean) / both_eyes.std
    assert torch.allclose(both_eyes.features(pairs).flatten(0, 1), plain(flat), atol=1e-6)
    assert both_eyes.features(pairs).shape == (3, 2, 128)


def test_an_eye_reads_its_own_image_and_its_own_adapters(both_eyes, pairs):
    layers = adapted(both_eyes).values()
    for layer in layers:
        nn.init.normal_(layer.own.weight, std=0.05)
    before = both_eyes(pairs)
    other = pairs.clone()
    other[:, 1] += 1.0  # the right eye's images change
    moved = (both_eyes(other) - before).abs().amax(0)
    assert moved[[0, 2]].max() == 0 and moved[[1, 3]].min() > 0
    with torch.no_grad():
        for layer in layers:
            layer.own.weight.copy_(torch.cat(layer.own.weight.chunk(2)[::-1]))
        both_eyes.heads = nn.ModuleList(both_eyes.heads[k] for k in (1, 0, 3, 2))
    assert torch.allclose(both_eyes(pairs.flip(1)), before[:, [1, 0, 3, 2]], atol=1e-5)


def test_an_eye_convolution_is_the_printed_sum():
    shared = nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False)
    layer = EyeConvolution(shared, 2)
    nn.init.normal_(layer.own.weight)
    x = torch.randn(6, 4, 9, 9)
    for j, own in enumerate(layer.own.weight.chunk(2)):
        expected = shared(x[j::2]) + nn.functional.conv2d(x[j::2], own, stride=2)
        assert torch.allclose(layer(x)[j::2], expected, atol=1e-6)


@pytest.mark.parametrize("kind", [CeCNN, OUCopulaCNN])
def test_every_weight_trains_and_the_mixed_copula_loss_reaches_it(kind, pairs):
    model, p = build(kind).train(), 2 * kind.domains
    outputs = model(pairs[:, : kind.domains])
    assert outputs.shape == (3, p)
    y = torch.tensor([[0.3, -0.2, 1.0, 0.0], [1.0, 0.5, 0.0, 0.0], [-1.0, 0.1, 1.0, 1.0]])
    correlation = torch.full((p, p), 0.3, dtype=torch.float64).fill_diagonal_(1.0)
    scale = torch.ones(kind.domains, dtype=torch.float64)
    loss = CopulaLoss(CopulaParameters(correlation, scale))
    loss(outputs.double(), y[:, :: 2 // kind.domains].double()).backward()
    assert all(q.grad is not None and q.grad.abs().sum() > 0 for q in model.parameters())


def test_stages_set_the_size_of_the_network():
    with torch.device("meta"):
        sizes = [
            sum(p.numel() for p in CeCNN("resnet18", False, stages=s).backbone.parameters())
            for s in (1, 2, 3, 4)
        ]
        whole = timm.create_model("resnet18", num_classes=0)
    assert sizes == sorted(sizes)
    # the whole ResNet-18 without its classifier, 11.2 million; the paper's 11.5 million counts one
    assert sizes[-1] == sum(p.numel() for p in whole.parameters()) == 11_176_512


@pytest.mark.parametrize(
    "kind, shape, told",
    [
        (CeCNN, (3, 2, 1, 72, 72), r"\(n, 1, 1, height, width\).*one eye"),
        (OUCopulaCNN, (2, 2, 3, 72, 72), "in_chans"),
    ],
)
def test_images_of_another_shape_are_refused(kind, shape, told):
    with pytest.raises(ShapeError, match=told):
        build(kind)(torch.zeros(shape))


@pytest.mark.parametrize(
    "name, stages, told",
    [("resnet18", 5, "1 to 4 stages"), ("vit_tiny_patch16_224", 2, "give a ResNet")],
)
def test_refusals_say_what_to_do(name, stages, told):
    with pytest.raises(ParameterError, match=told):
        CeCNN(name, False, stages=stages)
