"""The encoder is the paper's: timm's own class token at the start, the printed counts, and nothing
else trains."""

import warnings

import numpy as np
import pytest
import timm
import torch
from timm.models.vision_transformer import Block
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.encoder import TwoPassViT
from benchmarks.training import GFLOP_PER_IMAGE
from cevit_lib.encoder import BiChannelViT, ResidualAdapter, base_hash, merge_lora
from cevit_lib.encoder.bichannel import part_of
from cevit_lib.encoder.class_token import LastBlock
from cevit_lib.encoder.lora import lora_layers
from cevit_lib.errors import FrozenRandomWeightsWarning, ParameterError, ShapeError
from studies.photographs.masked_autoencoder import MaskedAutoencoder

TINY = dict(img_size=48, patch_size=12, in_chans=1, embed_dim=48, depth=2, num_heads=2)
NAME = "vit_tiny_patch16_224"


def build(seed: int = 0, **changes) -> BiChannelViT:
    """Return a tiny encoder with random weights, in evaluation mode."""
    arguments = (
        dict(backbone=NAME, pretrained=False, lora_rank=4, rng=np.random.default_rng(seed))
        | TINY
        | changes
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FrozenRandomWeightsWarning)
        return BiChannelViT(**arguments).eval()


def images(n: int = 3, domains: int = 2, seed: int = 1) -> torch.Tensor:
    return torch.rand((n, domains, 1, 48, 48), generator=torch.Generator().manual_seed(seed))


def shake(model: torch.nn.Module, seed: int = 2) -> torch.nn.Module:
    """Move every parameter that trains away from its start, as training would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


# ---- it is timm's model at the start


@pytest.mark.parametrize(
    "changes",
    [dict(), dict(lora="separate"), dict(lora_rank=0), dict(adapter_input="layer-norm")],
    ids=str,
)
def test_class_token_equals_timms_own_on_each_eye(changes):
    model = build(**changes)
    with torch.random.fork_rng():
        torch.manual_seed(int(np.random.default_rng(0).integers(2**63)))
        own = timm.create_model(NAME, pretrained=False, num_classes=0, **TINY).eval()
    assert base_hash(own) == model.base_hash
    x = images()
    normalised = (x - 0.5) / 0.5  # mean and SD of this model's pretrained_cfg
    with torch.inference_mode():
        features = model.features(x)
        together = own(normalised.flatten(0, 1)).view(3, 2, -1)
        for eye in (0, 1):
            torch.testing.assert_close(features[:, eye], own(normalised[:, eye]), atol=1e-6, rtol=0)
    if changes.get("lora") != "separate":  # three products instead of one may round differently
        assert torch.equal(features, together)


# ---- parameter counts as printed


@pytest.mark.parametrize(
    ("mode", "layers", "numbers"), [("fused", 48, 1_179_648), ("separate", 72, 1_327_104)]
)
def test_vit_base_trains_as_many_numbers_as_printed(mode, layers, numbers):
    with torch.device("meta"), pytest.warns(FrozenRandomWeightsWarning):
        model = BiChannelViT("vit_base_patch16_224", pretrained=False, lora=mode)
    counts = model.count_parameters()
    backbone = counts.pop("backbone")
    assert (backbone["trainable"], round(backbone["frozen"] / 1e6)) == (0, 86)
    # adapters: 12 layers, 2 eyes, 3 * 768 + 1
    trainable = {"lora": numbers, "adapters": 55_320, "adapter weight": 2, "heads": 4 * 769}
    assert counts == {part: {"trainable": n, "frozen": 0} for part, n in trainable.items()}
    assert len(lora_layers(model)) == layers
    assert not any("patch_embed" in name for name in lora_layers(model))
    full = build(lora_rank=0, adapters=False).count_parameters()
    assert set(full) == {"backbone", "heads"} and full["backbone"]["frozen"] == 0


# ---- what trains, and what it depends on


@pytest.mark.parametrize("mode", ["fused", "separate"])
def test_gradients_reach_exactly_what_should_train(mode):
    model = shake(build(lora=mode)).train()
    model(images()).square().sum().backward()
    for name, parameter in model.named_parameters():
        reached = parameter.grad is not None and bool(parameter.grad.abs().max() > 0)
        assert reached == (part_of(name) != "backbone"), name


def test_an_eyes_adapters_and_heads_see_that_eye_only():
    model = shake(build()).train()
    outputs = model(images())  # columns: mean OS, mean OD, logit OS, logit OD
    (outputs[:, 0].sum() + outputs[:, 2].sum()).backward()
    adapter = model.backbone.blocks[0].mlp.adapter
    assert adapter.v2.grad[0].abs().max() > 0 and adapter.v2.grad[1].abs().max() == 0
    assert model.adapter_weight.logit.grad[0] != 0 and model.adapter_weight.logit.grad[1] == 0
    assert (
        model.heads["continuous_2"].weight.grad.abs().max()
        == 0
        < model.heads["binary_1"].weight.grad.abs().max()
    )


# ---- the adapter is the printed formula


@pytest.mark.parametrize("domains", [2, 3])
def test_adapter_computes_the_display_before_equation_five(domains):
    adapter, rng = shake(ResidualAdapter(6, domains)).double(), np.random.default_rng(0)
    z, alpha = torch.tensor(rng.normal(size=(4, domains, 5, 6))), torch.tensor(rng.random(domains))
    got = adapter(z.flatten(0, 1), alpha).view_as(z)
    for i, j, t in np.ndindex(4, domains, 5):
        hidden = torch.relu(adapter.v1[j] @ z[i, j, t] + adapter.d1[j])
        expected = alpha[j] * (hidden @ adapter.v2[j] + adapter.d2[j])
        torch.testing.assert_close(got[i, j, t], expected)


@pytest.mark.parametrize("where", ["attention-output", "layer-norm"])
def test_adapted_block_computes_equation_five(where):
    model = shake(build(adapter_input=where, lora_rank=0))
    block = model.backbone.blocks[0]
    x = torch.randn(4, 17, 48, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        plain = block.mlp
        z = x + block.attn(block.norm1(x))
        normed = plain.norm(z)
        source = z if where == "attention-output" else normed
        expected = z + plain.mlp(normed) + plain.adapter(source, model.alpha)
        torch.testing.assert_close(block(x), expected)


def test_alpha_is_a_sigmoid_that_starts_at_a_half():
    model = build()
    torch.testing.assert_close(model.alpha, torch.tensor([0.5, 0.5]))
    model.adapter_weight.logit.data[1] = 2.0
    assert model.alpha[1] == torch.sigmoid(torch.tensor(2.0))


# ---- LoRA


@pytest.mark.parametrize("mode", ["fused", "separate"])
def test_lora_starts_as_printed_and_merges_and_unmerges(mode):
    model, x = build(lora=mode), images()
    for layer in lora_layers(model).values():
        assert (
            layer.lora_B["default"].weight.abs().max() == 0 < layer.lora_A["default"].weight.std()
        )
        assert layer.scaling["default"] == 1.0
    start, before = model(x), shake(model)(x)
    assert (before - start).abs().max() > 1e-2  # LoRA did something
    for undo in (False, True):
        merge_lora(model, undo=undo)
        assert {layer.merged for layer in lora_layers(model).values()} == {not undo}
        torch.testing.assert_close(model(x), before, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", ["fused", "separate"])
@pytest.mark.parametrize("how", ["plain", pytest.param("compiled", marks=pytest.mark.weekly)])
def test_one_product_is_pefts_layer_in_outputs_and_gradients(mode, how):
    model, x, found = shake(build(lora=mode)).double().train(), images().double(), []
    torch._dynamo.reset()
    run = model if how == "plain" else torch.compile(model, fullgraph=True)
    layers = lora_layers(model).values()
    for layer in layers:
        layer.base_layer.bias.requires_grad_()
        layer.scaling["default"] = 0.7
    for one_product in (True, False):
        for layer in layers:
            layer.one_product = one_product
        out = (run if one_product else model)(x)
        trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        gradients = torch.autograd.grad(out.square().sum(), trained.values())
        found.append({"outputs": out, **dict(zip(trained, gradients, strict=True))})
    torch.testing.assert_close(*found, atol=1e-10, rtol=1e-8)


def test_a_small_change_is_rounded_without_bias_and_with_the_noise_of_a_grid():
    # a weight lies anywhere between two numbers of bf16, u apart: a change d moves it by u with
    # probability |d| / u, which is d on average, with variance |d| (u - |d|)
    layer = shake(build()).backbone.blocks[0].attn.qkv
    base, b = layer.base_layer, layer.lora_B["default"].weight
    base.bias.data.zero_()
    b.data.mul_(1e-3 * base.weight.norm() / layer.get_delta_weight("default").norm())
    eye = torch.eye(48)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        moved = (layer(eye).double() - base(eye).double()).T
    change, weight = layer.get_delta_weight("default").detach().double(), base.weight.double()
    u = torch.exp2(weight.abs().log2().floor() - 7)
    part = change.abs() / u % 1
    variance, size = u.square() * part * (1 - part), change.square().sum()
    slope = (moved * change).sum() / size
    assert abs(slope - 1) < 4 * (variance * change.square()).sum().sqrt() / size < 0.2
    error, expected = (moved - change).norm() / size.sqrt(), (variance.sum() / size).sqrt()
    assert float(error) == pytest.approx(float(expected), rel=0.05) and expected > 1.5


def test_the_last_block_works_for_the_class_token_alone_and_loses_nothing():
    model, x, found = shake(build()).double(), images().double(), []
    for kind in (LastBlock, Block):
        assert type(model.backbone.blocks[-1]) is LastBlock
        model.backbone.blocks[-1].__class__ = kind
        out = model(x)
        trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
        gradients = torch.autograd.grad(out.square().sum(), trained.values())
        found.append({"outputs": out, **dict(zip(trained, gradients, strict=True))})
        model.backbone.blocks[-1].__class__ = LastBlock
    torch.testing.assert_close(*found, atol=1e-10, rtol=1e-8)
    assert model.backbone.forward_features(x.flatten(0, 1)).shape == (6, 1, 48)
    # features that are the mean of the patches need them all
    mean = build(global_pool="avg").backbone
    tokens = mean.forward_features(images().flatten(0, 1))
    assert tokens.shape == (6, mean.pos_embed.shape[1], 48)


def test_the_floor_of_the_benchmarks_counts_what_the_encoder_multiplies():
    counted = []
    for kind in (LastBlock, Block):
        with torch.device("meta"), FlopCounterMode(display=False) as counter:
            model = BiChannelViT("vit_base_patch16_224", False, adapters=False, lora_rank=0)
            model.backbone.blocks[-1].__class__ = kind
            model.features(torch.empty(1, 2, 3, 224, 224))
        counted.append(counter.get_total_flops() / 2e9)  # two eyes
    assert counted[0] == pytest.approx(GFLOP_PER_IMAGE, rel=0.005)
    assert 1 - counted[0] / counted[1] == pytest.approx(0.05, abs=0.005)  # "5 % are spared"


# ---- options and messages


def test_more_than_two_domains_other_tasks_and_built_models():
    model = build(domains=3, tasks=("continuous",))
    assert model(images(2, 3)).shape == (2, 3)
    own = timm.create_model(NAME, pretrained=False, **TINY)
    built = BiChannelViT(own, pretrained=True, lora_rank=2)
    assert built.origin == "built by the caller" and built(images()).shape == (3, 4)


def test_preprocessing_is_the_backbones_own():
    clip = build(in_chans=3, backbone="vit_base_patch16_clip_224.openai")
    assert clip.preprocessing.mean == pytest.approx((0.4815, 0.4578, 0.4082), abs=1e-4)
    plain, x = build(normalise=False), images()
    with torch.inference_mode():
        torch.testing.assert_close(plain.features((x - 0.5) / 0.5), build().features(x))


WRONG = [dict(tasks=("al",)), dict(domains=0), dict(lora="qv"), dict(adapter_input="mlp")]
WRONG += [dict(lora_rank=-1), dict(tasks=("binary", "continuous")), dict(backbone="vit_bse_patch")]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_unknown_options_are_refused(wrong):
    with pytest.raises(ParameterError):
        build(**wrong)


@pytest.mark.parametrize(
    "shape", [(3, 1, 1, 48, 48), (3, 2, 3, 48, 48), (3, 2, 1, 72, 72), (6, 1, 48, 48)]
)
def test_images_of_another_shape_and_parts_of_patients_are_refused(shape):
    with pytest.raises(ShapeError, match=r"expects \(n, 2, 1, 48, 48\)"):
        build()(torch.zeros(shape))
    with pytest.raises(ShapeError, match="multiple of 2 domains"):
        ResidualAdapter(4)(torch.zeros(3, 1, 4), torch.ones(2))


def test_each_task_has_its_heads_and_a_task_of_the_patient_sees_both_eyes():
    tasks = ("continuous", "continuous", "patient continuous", "binary", "patient binary")
    model = build(tasks=tasks)
    names = "continuous_1 continuous_2 continuous2_1 continuous2_2 patient_continuous binary_1 "
    names += "binary_2 patient_binary"
    assert list(model.heads) == names.split()
    for k, head in enumerate(model.heads.values()):
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.constant_(head.bias, float(k))
    one, other = images(), images()
    torch.testing.assert_close(model(one), torch.arange(8.0).expand(len(one), 8))
    # not all: the features of an eye sum to nothing
    model.heads["patient_binary"].weight.data[0, ::3] = 1.0
    other[:, 1] = 0.5
    changed = model(one) != model(other)
    assert changed[:, 7].all() and not changed[:, :7].any()


# ---- what stands beside it


def test_both_styles_of_the_benchmark_compute_the_same():
    # the baseline is the same arithmetic in another order, or its timing would mean nothing
    one, x = shake(build(normalise=False)), images()
    torch.nn.init.constant_(one.adapter_weight.logit, -np.log(9.0))  # the fixed 0.1
    two = TwoPassViT({"backbone": NAME, "lora_rank": 4, **TINY}).eval()
    shared = {k: v for k, v in two.backbone.state_dict().items() if "adapters" not in k}
    given = one.backbone.state_dict()
    two.backbone.load_state_dict({k: given[k] for k in shared}, strict=False)
    for block, other in zip(two.backbone.blocks, one.backbone.blocks, strict=True):
        own = other.mlp.adapter
        for j, (enter, _, leave) in enumerate(block.mlp.adapters):
            enter.load_state_dict({"weight": own.v1[j], "bias": own.d1[j]})
            leave.load_state_dict({"weight": own.v2[j].T, "bias": own.d2[j]})
    for k, head in enumerate(one.heads.values()):
        two.heads[k].load_state_dict(head.state_dict())
    with torch.inference_mode():
        torch.testing.assert_close(two(x), one(x), atol=1e-5, rtol=1e-5)


def test_masked_autoencoder_scores_hidden_patches_only():
    torch.manual_seed(0)
    size = dict(img_size=64, embed_dim=48, depth=3, num_heads=3, num_classes=0)
    encoder = timm.create_model(NAME, pretrained=False, **size)
    model = MaskedAutoencoder(encoder, width=48, depth=1).eval()
    photographs = torch.rand(2, 3, 64, 64)
    order = torch.rand(2, 16).argsort(1)
    rows = model.targets(photographs)
    assert rows.shape == (2, 16, 768) and rows.mean(-1).abs().max() < 1e-5
    patch = photographs[1, :, 16:32, 48:64].reshape(-1)  # row 1, column 3 of the grid of 4 x 4
    torch.testing.assert_close(
        rows[1, 7], (patch - patch.mean()) / patch.std(), atol=1e-3, rtol=1e-3
    )
    pixels = photographs.clone().requires_grad_()
    with torch.no_grad():
        model.enter.weight.zero_()  # what the decoder gets no longer depends on the image
    (model(pixels, order) - model(pixels, order).detach()).backward()
    moved = (
        pixels.grad.unfold(2, 16, 16).unfold(3, 16, 16).abs().amax((1, 4, 5)).flatten(1)
    )  # (2, 16)
    seen = torch.zeros(2, 16, dtype=torch.bool).scatter(1, order[:, : model.kept], True)
    assert (moved[~seen] > 0).all() and (moved[seen] == 0).all() and model.kept == 4
