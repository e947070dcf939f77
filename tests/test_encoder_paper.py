"""What Section 2.1 implies beyond single formulas: compiled numbers, what alpha is, reloading."""

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from test_encoder import NAME, images, shake
from test_encoder import TINY as SMALL
from test_encoder import build as fresh

from cevit_lib.encoder import BiChannelViT


@pytest.fixture(name="images")
def photographs():
    return images()


def build(**changes) -> BiChannelViT:
    """A small encoder in which every part that trains has left its start."""
    return shake(fresh(**changes))


@pytest.mark.weekly
@pytest.mark.parametrize("adapters", [True, False])
def test_compiling_changes_no_number_and_leaves_no_gap(adapters, images):
    # fullgraph: one graph for backbone, peft's layers and adapters, so that nothing falls back to
    # Python
    eager, compiled = build(adapters=adapters), build(adapters=adapters)
    compiled.compile(backend="aot_eager", fullgraph=True)
    for model in (eager, compiled):
        model(images).square().sum().backward()
    torch.testing.assert_close(compiled(images), eager(images), atol=1e-6, rtol=1e-6)
    for (name, one), two in zip(eager.named_parameters(), compiled.parameters(), strict=True):
        if one.grad is not None:
            torch.testing.assert_close(two.grad, one.grad, atol=1e-4, rtol=1e-4, msg=name)
    # compiled in place: no prefix in saved files
    assert list(eager.state_dict()) == list(compiled.state_dict())
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        torch.testing.assert_close(compiled(images), eager(images), atol=0, rtol=0)


def test_lora_gives_the_weights_that_the_formula_adds(images):
    # W = W0 + A B: put the sum into timm's own layers by hand
    model = build(adapters=False, normalise=False)
    plain = timm.create_model(NAME, pretrained=False, num_classes=0, **SMALL).eval()
    trained = model.backbone.state_dict()
    state = {
        k.replace(".base_layer", ""): v.clone() for k, v in trained.items() if "lora_" not in k
    }
    for key, a in ((k, v) for k, v in trained.items() if "lora_A" in k):
        b = trained[key.replace("lora_A", "lora_B")]
        state[key.replace("lora_A.default.", "")] += b @ a
    plain.load_state_dict(state)
    with torch.inference_mode():
        for j in range(2):
            torch.testing.assert_close(
                model.features(images)[:, j], plain(images[:, j]), atol=1e-5, rtol=1e-5
            )


def test_alpha_cannot_be_told_from_the_size_of_the_second_layer(images):
    # alpha_j A_j is linear in (V_2, d_2): halve one and double the other, and no output moves
    model = build()
    before, old = model(images), model.alpha.detach()
    new = torch.tensor([0.2, 0.9])
    with torch.no_grad():
        model.adapter_weight.logit.copy_(torch.logit(new))
        for block in model.backbone.blocks:
            adapter = block.mlp.adapter
            for part in (adapter.v2, adapter.d2):
                part.mul_((old / new).view(-1, *[1] * (part.dim() - 1)))
    torch.testing.assert_close(model(images), before, atol=1e-5, rtol=1e-5)


def test_both_styles_of_the_benchmark_compute_the_same(images, monkeypatch):
    # the baseline is the same arithmetic in another order, or its timing would mean nothing
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1]))
    from benchmarks.encoder import TwoPassViT

    one = build(normalise=False)
    torch.nn.init.constant_(one.adapter_weight.logit, -np.log(9.0))  # the fixed 0.1
    two = TwoPassViT({"backbone": NAME, "lora_rank": 4, **SMALL}).eval()
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
        torch.testing.assert_close(two(images), one(images), atol=1e-5, rtol=1e-5)


def test_masked_autoencoder_scores_hidden_patches_only():
    from studies.photographs.masked_autoencoder import MaskedAutoencoder, augment

    torch.manual_seed(0)
    size = dict(img_size=64, embed_dim=48, depth=3, num_heads=3, num_classes=0)
    encoder = timm.create_model(NAME, pretrained=False, **size)
    model = MaskedAutoencoder(encoder, width=48, depth=1).eval()
    images = torch.rand(2, 3, 64, 64)
    order = torch.rand(2, 16).argsort(1)
    rows = model.targets(images)
    assert rows.shape == (2, 16, 768) and rows.mean(-1).abs().max() < 1e-5
    patch = images[1, :, 16:32, 48:64].reshape(-1)  # row 1, column 3 of the grid of 4 x 4
    torch.testing.assert_close(
        rows[1, 7], (patch - patch.mean()) / patch.std(), atol=1e-3, rtol=1e-3
    )
    pixels = images.clone().requires_grad_()
    with torch.no_grad():
        model.enter.weight.zero_()  # what the decoder gets no longer depends on the image
    (model(pixels, order) - model(pixels, order).detach()).backward()
    moved = (
        pixels.grad.unfold(2, 16, 16).unfold(3, 16, 16).abs().amax((1, 4, 5)).flatten(1)
    )  # (2, 16)
    seen = torch.zeros(2, 16, dtype=torch.bool).scatter(1, order[:, : model.kept], True)
    assert (moved[~seen] > 0).all() and (moved[seen] == 0).all() and model.kept == 4
    assert augment(images, torch.Generator().manual_seed(0)).shape == images.shape
