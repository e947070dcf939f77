"""Weights of each family load as that family wrote them: its features, nothing in silence."""

import argparse
import json
import warnings

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from cevit_lib.encoder import BiChannelViT
from cevit_lib.encoder.weights import IMAGENET
from cevit_lib.errors import DataError, ParameterError, WeightsWarning
from cevit_lib.training import Fit, Standardisation, load_model, save_model

PLAIN, V2, V3 = "vit_tiny_patch16_224", "vit_small_patch14_dinov2", "vit_small_patch16_dinov3"
REGISTERS = "vit_small_patch14_reg4_dinov2"
SMALL = dict(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=2)
NAMES = ("a_OS", "a_OD", "b_OS", "b_OD")


def own(name: str, **changes) -> torch.nn.Module:
    """timm's model of that name, small, with random weights that no other test has."""
    torch.manual_seed(3)
    model = timm.create_model(name, pretrained=False, num_classes=0, **SMALL | changes).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape)
    return model


def decoder(width: int = 24) -> dict:
    """What a masked autoencoder has beside its encoder."""
    return {
        "mask_token": torch.zeros(1, 1, 16),
        "decoder_embed.weight": torch.zeros(16, width),
        "decoder_pos_embed": torch.zeros(1, 17, 16),
        "decoder_pred.weight": torch.zeros(192, 16),
    }


def dinov2_with_registers(model) -> dict:
    """Facebook's names; there the class token has no position of its own yet."""
    state = model.state_dict()
    first, token = torch.full((1, 1, 24), 0.25), torch.randn(1, 1, 24)
    model.cls_token.data = token + first
    state |= {"cls_token": token, "pos_embed": torch.cat([first, state["pos_embed"]], 1)}
    state["register_tokens"] = state.pop("reg_token")
    return state | {"mask_token": torch.zeros(1, 24)}


def dinov3(model) -> dict:
    """Facebook's names: registers, layer scales, a bias that is zero, constants of the rotation."""
    state = {
        name.replace("gamma_1", "ls1.gamma")
        .replace("gamma_2", "ls2.gamma")
        .replace("reg_token", "storage_tokens"): tensor
        for name, tensor in model.state_dict().items()
    }
    for block in range(2):
        state[f"blocks.{block}.attn.qkv.bias"] = torch.zeros(72)
        state[f"blocks.{block}.attn.qkv.bias_mask"] = torch.full((72,), torch.nan)
    return state | {"rope_embed.periods": torch.ones(3), "mask_token": torch.zeros(1, 24)}


FAMILIES = {
    "timm": (PLAIN, {}, lambda m: m.state_dict()),
    "MAE": (PLAIN, {}, lambda m: {"model": m.state_dict() | decoder()}),
    "RETFound": (
        PLAIN,
        {},
        lambda m: {
            "model": m.state_dict() | decoder(),
            "optimizer": {"state": {}},
            "epoch": 1,
            "args": argparse.Namespace(mask_ratio=0.75),
        },
    ),
    "RETFound, fine-tuned": (
        PLAIN,
        {"global_pool": "avg"},
        lambda m: {"model": m.state_dict() | {"head.weight": torch.zeros(5, 24)}},
    ),
    "DINOv2": (V2, {}, lambda m: m.state_dict() | {"mask_token": torch.zeros(1, 24)}),
    "DINOv2 with registers": (REGISTERS, {}, dinov2_with_registers),
    "DINOv2, RETFound's": (
        V2,
        {},
        lambda m: {
            "teacher": {f"backbone.{k}": v for k, v in m.state_dict().items()}
            | {"dino_head.mlp.0.weight": torch.zeros(3, 3)}
        },
    ),
    "DINOv3": (V3, {"global_pool": "token"}, dinov3),
}


def photographs(size: int = 32) -> torch.Tensor:
    return torch.rand((2, 2, 3, size, size), generator=torch.Generator().manual_seed(1))


def encoder(name: str, **options) -> BiChannelViT:
    given = SMALL | {"rng": np.random.default_rng(0), "lora_rank": 2} | options
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return BiChannelViT(name, pretrained=False, **given).eval()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_familys_file_gives_its_own_features_trains_and_comes_back_to_the_last_bit(
    family, tmp_path
):
    name, options, written = FAMILIES[family]
    model = own(name, **options)
    torch.save(written(model), tmp_path / "weights.pth")
    built = encoder(name, weights=tmp_path / "weights.pth")
    mean, std = IMAGENET if family != "timm" else ((0.5,) * 3, (0.5,) * 3)
    assert built.preprocessing.mean == pytest.approx(mean)
    x = photographs()
    flat = (x.flatten(0, 1) - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    with torch.inference_mode():
        features = built.features(x)
        torch.testing.assert_close(features.flatten(0, 1), model(flat), atol=1e-5, rtol=0)
    trained = {n: p for n, p in built.named_parameters() if p.requires_grad}
    for n, parameter in trained.items():  # a positive d1: no adapter's hidden unit sleeps
        parameter.data += 0.1 * torch.randn_like(parameter) + 9.0 * n.endswith(".d1")
    built(x).square().sum().backward()
    assert not [n for n, p in trained.items() if not p.grad.any()]  # every block is adapted
    for adapted in (built, encoder(name, weights=tmp_path / "weights.pth", lora_rank=0)):
        folder = tmp_path / f"rank {adapted.configuration['lora_rank']}"
        fit = Fit(adapted, Standardisation.none(2), None, [], NAMES, 2, ("OS", "OD"))
        again = load_model(
            save_model(fit, folder),
            weights=tmp_path / "weights.pth" if adapted is built else None,  # else all is stored
        )
        with torch.inference_mode():
            assert torch.equal(again.model(x), adapted(x))


def test_names_of_a_folder_and_of_the_hub_are_taken_with_their_weights(tmp_path, monkeypatch):
    model = own(PLAIN)
    about = {
        "architecture": PLAIN,
        "num_classes": 0,
        "model_args": SMALL,
        "pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]},
    }
    snapshot = tmp_path / "hub" / "models--eyes--vit" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(about))
    save_file(model.state_dict(), snapshot / "model.safetensors")
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    for name in (f"local-dir:{snapshot}", "hf-hub:eyes/vit"):
        built = BiChannelViT(name, pretrained=True, lora_rank=2).eval()
        assert built.preprocessing.mean == (0.1, 0.2, 0.3), name
        flat = (photographs().flatten(0, 1) - built.mean) / built.std
        with torch.inference_mode():
            features = built.features(photographs()).flatten(0, 1)
            torch.testing.assert_close(features, model(flat), atol=1e-5, rtol=0)
    with pytest.raises(DataError, match="'hf-hub:eyes/none' could not be loaded"):
        BiChannelViT("hf-hub:eyes/none")


def test_positions_of_another_size_are_interpolated_as_timm_does_it(tmp_path):
    small = own(PLAIN)
    torch.save({"model": small.state_dict() | decoder()}, tmp_path / "mae.pth")
    built = encoder(PLAIN, weights=tmp_path / "mae.pth", img_size=48)
    expected = timm.layers.resample_abs_pos_embed(
        small.pos_embed, new_size=(6, 6), num_prefix_tokens=1
    )
    assert torch.equal(built.backbone.pos_embed, expected)
    assert built(photographs(48)).shape == (2, 4)


def test_a_scale_of_colours_that_is_not_known_is_said_and_can_be_given(tmp_path):
    torch.save(own(PLAIN).state_dict(), tmp_path / "plain.pth")
    given = SMALL | {"pretrained": False, "weights": tmp_path / "plain.pth", "lora_rank": 2}
    with pytest.warns(WeightsWarning, match="mean 0.5, SD 0.5.*--mean, --std"):
        BiChannelViT(PLAIN, **given)
    told = BiChannelViT(PLAIN, mean=[0.3, 0.2, 0.1], std=[0.2, 0.2, 0.3], **given).preprocessing
    assert told.mean == (0.3, 0.2, 0.1) and told.std == (0.2, 0.2, 0.3)


@pytest.mark.parametrize(
    "content, told",
    [
        (b"", "an empty file"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1", "a link"),
        (b"PK\x03\x04 cut off", "cannot be read .* cut off"),
        ({"note": "none"}, "hold no tensor"),
        ([1, 2], "cannot be read"),
        (lambda state: state | {"norm.bias": torch.full((24,), torch.nan)}, "1 not finite"),
        (lambda state: {k: v for k, v in state.items() if "qkv" not in k}, "4 missing, such as b"),
        (lambda state: state | {"more": torch.zeros(1)}, "1 unknown, such as more"),
        (lambda state: state | {"norm.bias": torch.zeros(3)}, "1 of another shape"),
        (lambda state: state | {"norm.bias": torch.zeros(24, dtype=torch.int8)}, "of another type"),
        (lambda state: state | {"pos_embed": torch.zeros(3)}, "do not fit the backbone"),
    ],
)
def test_a_file_that_does_not_fit_is_told_in_a_sentence(tmp_path, content, told):
    place = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        place.write_bytes(content)
    else:
        torch.save(content(own(PLAIN).state_dict()) if callable(content) else content, place)
    with pytest.raises(DataError, match=told) as seen:
        encoder(PLAIN, weights=place)
    assert "weights_only" not in str(seen.value) and "\n" not in str(seen.value)


def test_biases_that_the_backbone_would_lose_are_refused(tmp_path):
    state = dinov3(own(V3))
    state["blocks.0.attn.qkv.bias"] += 0.1
    torch.save(state, tmp_path / "v3.pth")
    with pytest.raises(DataError, match="1 biases of Q and V"):
        encoder(V3, weights=tmp_path / "v3.pth")


WRONG = [({"name": name}, ".") for name in (f"{PLAIN}.nosuch", "eyes/vit", "a:b", "", "resnet18")]
WRONG += [
    ({"img_size": 90, "patch_size": 16}, "80 or 96"),
    ({"img_size": 10, "patch_size": 16}, "take 16 pixels"),
    # F.linear with the layer's weight never calls the low-rank pair
    ({"name": "eva02_tiny_patch14_224"}, "LoRA needs blocks .* take lora_rank=0"),
    ({"name": f"{V3}_qkvb"}, "LoRA needs blocks .* take lora_rank=0"),
]


@pytest.mark.parametrize("options, told", WRONG)
def test_a_backbone_that_cannot_be_is_told_in_a_sentence(options, told):
    with pytest.raises(ParameterError, match=told):
        encoder(**{"name": PLAIN} | options)
