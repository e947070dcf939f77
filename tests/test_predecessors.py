"""CeCNN and OU-Copula: structure against what their sources say, and the identities that the structure implies."""

import pytest
import torch
from torch import nn

timm = pytest.importorskip("timm", reason="needs the extra vit")

from cevit_lib.encoder.predecessors import CeCNN, EyeConvolution, OUCopulaCNN, SimulationCNN  # noqa: E402
from cevit_lib.errors import DataError, ParameterError, ShapeError  # noqa: E402


@pytest.fixture
def pairs():
    return torch.randn(3, 2, 1, 72, 72, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def both_eyes():
    torch.manual_seed(1)
    model = OUCopulaCNN(pretrained=False, in_chans=1).eval()
    for name, module in model.named_modules():
        if name.endswith(
            "bn2"
        ):  # timm starts them at zero, which would hide the convolutions before them
            nn.init.ones_(module.weight)
    return model


def perturb(model):
    """Give the eyes' convolutions values, so that they matter."""
    for module in model.modules():
        if isinstance(module, EyeConvolution):
            nn.init.normal_(module.own.weight, std=0.05)
    return model


def test_adapters_stand_beside_every_3x3_convolution_of_stem_and_two_stages(both_eyes):
    adapted = {
        name: module
        for name, module in both_eyes.named_modules()
        if isinstance(module, EyeConvolution)
    }
    expected = {f"backbone.layer{s}.{b}.conv{c}" for s in (1, 2) for b in (0, 1) for c in (1, 2)}
    assert set(adapted) == expected
    assert all(
        m.own.kernel_size == (1, 1) and m.own.stride == m.shared.stride for m in adapted.values()
    )
    # stages 1 and 2 of ResNet-18: 64->64 four times, 64->128 once, 128->128 three times; two eyes
    assert sum(m.own.weight.numel() for m in adapted.values()) == 2 * (
        4 * 64 * 64 + 64 * 128 + 3 * 128 * 128
    )
    assert not hasattr(both_eyes, "alpha") and all(m.weight == 1.0 for m in adapted.values())


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
    model = perturb(both_eyes)
    before = model(pairs)
    other = pairs.clone()
    other[:, 1] += 1.0  # the right eye's images change
    moved = (model(other) - before).abs().amax(0)
    assert moved[[0, 2]].max() == 0 and moved[[1, 3]].min() > 0
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, EyeConvolution):
                left, right = module.own.weight.chunk(2)
                module.own.weight.copy_(torch.cat([right, left]))
        model.heads = nn.ModuleList(model.heads[k] for k in (1, 0, 3, 2))
    assert torch.allclose(model(pairs.flip(1)), before[:, [1, 0, 3, 2]], atol=1e-5)


def test_an_eye_convolution_is_the_printed_sum():
    shared = nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False)
    layer = EyeConvolution(shared, 2, 0.5)
    nn.init.normal_(layer.own.weight)
    x = torch.randn(6, 4, 9, 9)
    left, right = layer.own.weight.chunk(2)
    for j, own in enumerate((left, right)):
        expected = shared(x[j::2]) + 0.5 * nn.functional.conv2d(x[j::2], own, stride=2)
        assert torch.allclose(layer(x)[j::2], expected, atol=1e-6)


def test_every_weight_trains_and_the_mixed_copula_loss_reaches_it(both_eyes, pairs):
    from cevit_lib.copula import CopulaLoss, CopulaParameters

    y = torch.tensor([[0.3, -0.2, 1.0, 0.0], [1.0, 0.5, 0.0, 0.0], [-1.0, 0.1, 1.0, 1.0]])
    correlation = torch.full((4, 4), 0.3, dtype=torch.float64).fill_diagonal_(1.0)
    loss = CopulaLoss(CopulaParameters(correlation, torch.ones(2, dtype=torch.float64)))
    loss(both_eyes.train()(pairs).double(), y.double()).backward()
    lacking = [
        n for n, p in both_eyes.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0
    ]
    assert lacking == []


@pytest.mark.parametrize(
    "backbone", ["resnet18", SimulationCNN(1, 72)], ids=["resnet18", "simulation"]
)
def test_cecnn_trains_under_the_bivariate_mixed_copula_loss(backbone, pairs):
    from cevit_lib.copula import CopulaLoss, CopulaParameters

    kwargs = {"in_chans": 1} if isinstance(backbone, str) else {}
    model = CeCNN(backbone, pretrained=False, **kwargs)
    outputs = model(pairs[:, :1])
    assert outputs.shape == (3, 2)
    correlation = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    loss = CopulaLoss(CopulaParameters(correlation, torch.ones(1, dtype=torch.float64)))
    loss(
        outputs.double(), torch.tensor([[0.1, 1.0], [2.0, 0.0], [-1.0, 1.0]], dtype=torch.float64)
    ).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_the_simulation_network_has_the_published_layers():
    layers = SimulationCNN(1, 72).layers
    convolutions = [m for m in layers if isinstance(m, nn.Conv2d)]
    assert [(c.out_channels, c.kernel_size) for c in convolutions] == [(9, (3, 3)), (18, (3, 3))]
    assert [m.out_features for m in layers if isinstance(m, nn.Linear)] == [50]


def test_stages_set_the_size_of_the_network():
    with torch.device("meta"):
        sizes = [
            sum(p.numel() for p in CeCNN("resnet18", False, stages=s).backbone.parameters())
            for s in (1, 2, 3, 4)
        ]
    assert sizes == sorted(sizes)
    # the whole ResNet-18 without its classifier, 11.2 million; the paper's 11.5 million counts one
    assert (
        sizes[-1]
        == sum(p.numel() for p in timm.create_model("resnet18", num_classes=0).parameters())
        == 11_176_512
    )


def test_original_responses_of_ou_copula_are_continuous():
    model = OUCopulaCNN(pretrained=False, tasks=("continuous", "continuous"), domains=2)
    assert model(torch.zeros(2, 2, 3, 32, 32)).shape == (2, 4)


def test_refusals_say_what_to_do(both_eyes, pairs, tmp_path):
    with pytest.raises(ShapeError, match=r"\(n, 1, 1, height, width\).*one eye"):
        CeCNN(SimulationCNN())(pairs)
    with pytest.raises(ShapeError, match="in_chans"):
        both_eyes(torch.zeros(2, 2, 3, 72, 72))
    with pytest.raises(ParameterError, match="1 to 4"):
        CeCNN("resnet18", False, stages=5)
    with pytest.raises(ParameterError, match="continuous responses come before"):
        CeCNN("resnet18", False, tasks=("binary", "continuous"))
    with pytest.raises(ParameterError, match="no ResNet"):
        CeCNN("vit_tiny_patch16_224", False)
    with pytest.raises(DataError, match="machine with internet"):
        CeCNN("resnet18", weights=tmp_path / "absent.pth")


def test_weights_from_a_file_are_the_ones_used(tmp_path):
    path = tmp_path / "resnet.pth"
    saved = timm.create_model("resnet18", num_classes=0).state_dict()
    torch.save(saved, path)
    model = OUCopulaCNN("resnet18", weights=path)
    assert torch.equal(model.backbone.layer1[0].conv1.shared.weight, saved["layer1.0.conv1.weight"])


@pytest.mark.parametrize("kind", ["CeCNN", "OUCopulaCNN", "own backbone"])
def test_a_saved_predecessor_predicts_to_the_last_bit_what_it_did(kind, tmp_path):
    import numpy as np

    from cevit_lib.datasets import SyntheticPairs
    from cevit_lib.training import Recipe, fit_warm_up, load_model, predict_outputs, save_model

    data = SyntheticPairs(12, np.random.default_rng(0))
    own = SimulationCNN() if kind == "own backbone" else None
    if kind == "OUCopulaCNN":
        model = OUCopulaCNN(pretrained=False, in_chans=1)
    else:
        model = CeCNN(own, pretrained=False) if own else CeCNN(pretrained=False, in_chans=1)
        data = data.eye(1)
    fit = fit_warm_up(
        model, data, Recipe(epochs=1, batch_size=6), rng=np.random.default_rng(1), device="cpu"
    )
    folder = save_model(fit, tmp_path / "model")
    again = load_model(folder, backbone=SimulationCNN() if own else None)
    assert type(again.model) is type(fit.model) and again.domains == fit.domains
    assert torch.equal(
        predict_outputs(again, data, device="cpu"), predict_outputs(fit, data, device="cpu")
    )


def test_save_model_names_what_it_knows(tmp_path):
    from types import SimpleNamespace

    from cevit_lib.training import save_model

    with pytest.raises(ParameterError, match="BiChannelViT, CeCNN, OUCopulaCNN, got Linear"):
        save_model(SimpleNamespace(model=nn.Linear(1, 1)), tmp_path / "model")
