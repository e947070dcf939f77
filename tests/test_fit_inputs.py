"""What a fit takes beside photographs, and what it shows on its way: covariates, augmentation,
progress."""

import io
import logging

import numpy as np
import pytest
import torch

from cevit_lib.clinic.covariates import with_categories
from cevit_lib.clinic.fold import augment, units_of
from cevit_lib.clinic.progress import Watch
from cevit_lib.clinic.words import in_options
from cevit_lib.datasets import PairedEyes
from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import DataError
from cevit_lib.training import Recipe, fit_warm_up, load_model, predict_outputs, save_model


def a_network(**options) -> BiChannelViT:
    tiny = {"img_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}
    more = {"pretrained": False, "lora_rank": 0, "rng": np.random.default_rng(0)} | tiny | options
    return BiChannelViT("vit_tiny_patch16_224", **more)


def test_every_head_reads_covariates_in_units_of_the_patients_to_train_on():
    network = a_network(covariates=[(60.0, 10.0), (0.5, 0.5)]).eval()
    images, here = torch.rand(3, 2, 3, 16, 16), torch.tensor([60.0, 0.5]).expand(3, 2, 2)
    older = here.clone()
    older[:, 0, 0] += 10  # one SD, of the left eye's patient
    moved = network(images, older) - network(images, here)
    weight = network.heads["continuous_1"].weight[0, -2].detach()
    torch.testing.assert_close(moved[:, 0], weight.expand(3), atol=1e-6, rtol=0)
    assert (moved[:, 1] == 0).all()  # the right eye's head reads its own
    unknown = network(images, torch.full((3, 2, 2), np.nan))
    torch.testing.assert_close(unknown, network(images, here))


def eyes_with_age(n: int, seed: int) -> PairedEyes:
    """Black photographs; the length follows from the age alone, which one patient lacks."""
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 12, size=(n, 1, 1)).repeat(2, axis=1)
    y = np.c_[22 + 0.05 * age[:, :, 0], rng.integers(0, 2, size=(n, 2))]
    age[0] = np.nan
    return PairedEyes(
        images=torch.zeros(n, 2, 3, 16, 16, dtype=torch.uint8),
        y=torch.from_numpy(y + np.r_[0.01, 0.01, 0, 0] * rng.normal(size=(n, 4))),
        ids=tuple(map(str, range(n))),
        responses=("AL_OS", "AL_OD", "HM_OS", "HM_OD"),
        continuous=2,
        covariates=torch.from_numpy(age),
        covariate_names=("age",),
    )


def test_a_length_that_follows_from_age_is_learnt_from_it_and_saved(tmp_path):
    data, new = eyes_with_age(200, 0), eyes_with_age(60, 1)
    (units,) = units_of(data)
    seen = data.covariates[1:].flatten()
    assert units == pytest.approx((float(seen.mean()), float(seen.std())))
    network = a_network(covariates=[units])
    recipe = Recipe(30, 2e-2, 20, weight_decay=0.0)
    fit = fit_warm_up(network, data, recipe, rng=np.random.default_rng(0), device="cpu")
    outputs = predict_outputs(fit, new, device="cpu")
    error = (outputs - new.y)[1:, :2]
    assert error.square().mean() < 0.1 * new.y[1:, :2].var()  # R squared above 0.9
    save_model(fit, tmp_path / "model")
    assert torch.equal(predict_outputs(load_model(tmp_path / "model"), new, device="cpu"), outputs)


def test_a_column_of_words_is_one_rule_a_word_but_for_the_most_frequent(tmp_path):
    table = tmp_path / "eyes.csv"
    lines = [f"{i},{'RL'[i % 2]},{24 + i},{60 + i},{'AABCA'[i % 5]},id{i}" for i in range(40)]
    table.write_text("\n".join(["id,eye,al,age,site,name", *lines, "9,R,23,70,,x"]) + "\n")
    layout = {"patient": "id", "eye": "eye", "continuous": {"AL": "al"}}
    declared = {"age": "age", "site": "site", "old": "age > 70"}
    found = with_categories({**layout, "covariates": declared}, table)["covariates"]
    assert found == {
        "age": "age",
        "site b": "site in [b] else [a, c]",
        "site c": "site in [c] else [a, b]",
        "old": "age > 70",
    }
    with pytest.raises(DataError, match="41 different words"):
        with_categories({**layout, "covariates": {"name": "name"}}, table)


def test_a_network_sees_changed_photographs_only_while_it_trains():
    network = a_network(covariates=[(0.0, 1.0)])
    augment(network, rotation=20, colour=0.3)
    images, age = torch.rand(3, 2, 3, 16, 16), torch.zeros(3, 2, 1)
    assert torch.equal(network.eval()(images, age), network(images, age))
    network.train()
    torch.manual_seed(0)
    first = network(images, age)
    assert not torch.allclose(first, network(images, age))
    torch.manual_seed(0)  # a fit seeds torch's generator, and repeats itself
    assert torch.equal(first, network(images, age))


def test_a_log_has_a_line_a_stage_and_what_is_left_is_a_rule_of_three():
    stream, log = io.StringIO(), logging.Logger("quiet")
    watch = Watch(2, {"warm-up": 4, "copula": 1}, stream)
    log.addHandler(watch)
    with watch.fold("fold 1 of 2"):
        for epoch in range(1, 5):
            watch.bar.start_t -= 60
            log.info("%s: epoch %d of %d", "warm-up", epoch, 4)
        log.info("%s: iteration %d of %d", "ExactEM", 7, 500)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "fold 1 of 2: warm-up, epoch 1 of 4; 09:00 left"
    assert lines[-1] == "fold 1 of 2: warm-up, epoch 4 of 4; 06:00 left"


@pytest.mark.parametrize(
    "said, typed",
    [
        ("Make batch_size=24 smaller, or set accumulation=2: the", "Make --batch-size 24 smaller"),
        (
            "give a larger held_out_share than 0.1, or estimate_on='cross-fitted', which uses",
            "give --estimate-on cross-fitted, which uses",
        ),
        ("ExactEM stopped; raise max_iter (cevit fit: --max-iter) or tol, or", "raise --max-iter,"),
        ("Pass weights=..., pretrained=True, or lora_rank=0 to train", "or --lora-rank 0 to"),
    ],
)
def test_advice_for_callers_is_told_as_options(said, typed):
    assert typed in in_options(said) and "=" not in in_options(said)
