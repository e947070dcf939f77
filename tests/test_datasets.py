"""Paired eyes: moments of the synthetic pairs, splits that keep patients whole, wrong files."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from cevit_lib.datasets import (
    ImageFiles,
    PairedEyes,
    Split,
    SyntheticPairs,
    assert_disjoint,
    hold_out,
    load_grape,
    read_image,
    split_by_patient,
)
from cevit_lib.datasets.synthetic import TEXT_CORRELATION, regression_functions
from cevit_lib.errors import DataError, LabelError, ShapeError
from cevit_lib.normal import bivariate_normal_cdf


def expect(values: np.ndarray, truth: float, errors: float = 4.5) -> None:
    """Compare a sample mean with its expectation, within Monte Carlo error."""
    values = np.asarray(values, dtype=float).ravel()
    assert abs(values.mean() - truth) < errors * values.std() / np.sqrt(values.size)


def make_pairs(n: int = 40, seed: int = 0, share: float = 0.3, repeat: int = 1) -> PairedEyes:
    rng = np.random.default_rng(seed)
    y = np.column_stack([rng.standard_normal((n, 2)), rng.random((n, 2)) < share]).astype(float)
    ids = tuple(f"{i // repeat:03d}" for i in range(n))
    images = torch.from_numpy(rng.integers(0, 256, (n, 2, 1, 4, 4), dtype=np.uint8))
    return PairedEyes(images, torch.from_numpy(y), ids, ("a", "b", "c", "d"), continuous=2)


# ---- synthetic pairs


def test_pixels_and_errors_have_the_printed_moments():
    synthetic = SyntheticPairs(1500, np.random.default_rng(7))
    images = synthetic.images[:, :, 0].numpy().astype(float)
    for block, mean, var in (
        (images[..., -24:, -24:], 0.5, 0.25),
        (images[..., :24, :24], 0.0, 0.5),
        (images[..., 24:48, 48:72], 0.0, 0.5),
    ):
        for eye in (0, 1):
            expect(block[:, eye], mean)
            expect((block[:, eye] - mean) ** 2, var)
        expect((block[:, 0] - mean) * (block[:, 1] - mean), var / 2)
    # neighbouring pixels of one eye are independent
    expect(images[:, 0, 0, 0] * images[:, 0, 0, 1], 0.0)
    residual = (synthetic.y[:, :2] - synthetic.truth.g1).numpy()
    expect(residual[:, 0] * residual[:, 1], TEXT_CORRELATION[0, 1])
    expect(residual**2, 1.0)


def test_regression_functions_by_hand():
    images = np.zeros((1, 2, 72, 72))
    images[0, :, 1, 2] = 2.0  # row 2, column 3: Omega_1
    images[0, :, 3, 5], images[0, :, 5, 3] = (
        0.7,
        0.1,
    )  # two corners of Omega_2, which enters as it is
    images[0, :, 6, 6], images[0, :, 8, 7] = 1.0, 1.5  # Omega_3
    images[0, :, 0, 4] = 50.0  # rows 1-3 but columns 4-6: in no index set
    images[..., 9:, :] = images[..., :, 9:] = 99.0  # nor are others than the first nine
    g1, g2 = regression_functions(images)
    np.testing.assert_allclose(g1[0], np.tanh(2.0) + 0.8 + np.tanh(1.0) + np.tanh(1.5))
    np.testing.assert_allclose(g2[0], 0.8)


def test_text_labels_are_a_probit_of_g2_with_the_printed_dependence():
    data = SyntheticPairs(3000, np.random.default_rng(5))
    label, residual = data.y[:, 2:].numpy(), (data.y[:, :2] - data.truth.g1).numpy()
    probability = stats.norm.cdf(data.truth.g2.numpy())
    expect(label - probability, 0.0)
    torch.testing.assert_close(
        torch.sigmoid(data.truth.outputs[:, 2:]), torch.from_numpy(probability)
    )
    # E[e1 * 1{g + e3 > 0}] = rho13 * phi(g), and likewise for the other pairs
    for eye, label_eye, rho in ((0, 0, 0.294), (0, 1, 0.213), (1, 0, 0.205), (1, 1, 0.336)):
        gap = residual[:, eye] * label[:, label_eye] - rho * stats.norm.pdf(
            data.truth.g2.numpy()[:, label_eye]
        )
        expect(gap, 0.0)
    both = bivariate_normal_cdf(*data.truth.g2.T, torch.tensor(0.569))
    expect(label.prod(1) - both.numpy(), 0.0)


# ---- the structure


def test_subset_takes_everything_along():
    data = SyntheticPairs(20, np.random.default_rng(0))
    assert data.hash == SyntheticPairs(20, np.random.default_rng(0)).hash
    part = data.subset(np.array([7, 2]))
    assert part.ids == ("S00007", "S00002")
    torch.testing.assert_close(part.truth.g1, data.truth.g1[[7, 2]])
    torch.testing.assert_close(part.load(), data.load(np.array([7, 2])))


FOUR = make_pairs(4)


def test_hash_sees_responses_and_pixels_but_not_the_kind_of_nan():
    first = torch.arange(16).view(4, 4) == 0
    one, two = (FOUR.replace(y=FOUR.y.masked_fill(first, n)) for n in (np.nan, -np.nan))
    other = FOUR.replace(images=FOUR.images ^ 1)
    assert one.hash == two.hash != FOUR.hash != other.hash


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (
            {"y": FOUR.y + 2.0 * (torch.arange(16).view(4, 4) == 11)},
            LabelError,
            "'002', column 'd'",
        ),
        ({"ids": FOUR.ids[:3]}, ShapeError, "3 ids"),
        ({"images": FOUR.images[:, 0]}, ShapeError, "expected"),
    ],
)
def test_what_does_not_fit_together_is_named(changes, error, message):
    with pytest.raises(error, match=message):
        FOUR.replace(**changes)


# ---- splits


@pytest.mark.parametrize("repeat", [1, 2])
def test_folds_divide_patients_and_never_cut_one(repeat):
    data = make_pairs(60, repeat=repeat)
    splits = split_by_patient(data, 5, np.random.default_rng(1))
    assert sorted(np.concatenate([split.test for split in splits])) == list(range(60))
    counts = np.array([np.bincount(data.strata()[s.test], minlength=5) for s in splits])
    assert repeat > 1 or np.ptp(counts, axis=0).max() <= 1  # equal shares of every pattern
    for split in splits:
        assert not {data.ids[i] for i in split.train} & {data.ids[i] for i in split.test}
        assert sorted([*split.train, *split.test]) == list(range(60))


def test_a_rare_class_reaches_every_fold_or_the_split_is_refused():
    y = torch.zeros(50, 4, dtype=torch.float64)
    y[:5, 2:] = 1
    rare = make_pairs(50).replace(y=y)
    for seed in range(20):
        folds = split_by_patient(rare, 5, np.random.default_rng(seed))
        assert [rare.y[fold.test, 2].sum() for fold in folds] == [1] * 5
    with pytest.raises(DataError, match=r"response 'c' has \d+ zeros and 0 ones"):
        split_by_patient(rare.subset(np.arange(1, 50)), 5, np.random.default_rng(0))


def test_hold_out_takes_the_share_from_every_pattern():
    data = make_pairs(200, share=0.5)
    split = hold_out(data, 0.1, np.random.default_rng(3))
    assert len(split.test) == 20 and len(split.train) == 180
    held = np.bincount(data.strata()[split.test], minlength=5) / 20
    assert np.abs(held - np.bincount(data.strata(), minlength=5) / 200).max() <= 0.05 + 1e-12


def test_a_patient_on_both_sides_is_caught():
    data = make_pairs(10, repeat=2)
    with pytest.raises(
        DataError, match="1 patients stand in training and in test data, among them 000"
    ):
        assert_disjoint(data, Split(train=np.array([0, 2, 3]), test=np.array([1])))


# ---- image files


PIXELS = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def test_mirroring_flips_left_and_right_only_and_exif_is_honoured(tmp_path):
    path = tmp_path / "q.png"
    Image.fromarray(PIXELS).save(path)
    plain, flipped = read_image(path, 32), read_image(path, 32, mirror=True)
    np.testing.assert_array_equal(plain.permute(1, 2, 0), PIXELS)
    torch.testing.assert_close(flipped, plain.flip(-1))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 270 degrees to see it upright
    turned = Image.open(path).transpose(Image.Transpose.ROTATE_90)
    turned.save(tmp_path / "turned.png", exif=exif)
    torch.testing.assert_close(read_image(tmp_path / "turned.png", 32), plain)


def test_a_photograph_is_decoded_once_and_again_when_it_or_its_bytes_changed(tmp_path, monkeypatch):
    path, kept = tmp_path / "q.png", tmp_path / "kept"
    Image.fromarray(PIXELS).save(path)
    monkeypatch.setenv("CEVIT_CACHE", str(kept))
    decode, rows = Mock(wraps=read_image), np.array([0])
    monkeypatch.setattr("cevit_lib.datasets.images.read_image", decode)
    files = ImageFiles(((path, path),), size=16, mirrored=(True, False))
    first = files[rows]
    torch.testing.assert_close(first, replace(files, cache=None)[rows], rtol=0, atol=0)
    decode.reset_mock()
    assert torch.equal(files[rows], first) and not decode.called
    one, _ = sorted(kept.rglob("*.u8"))
    one.write_bytes(one.read_bytes()[:-1])  # cut off by something that is not us
    assert torch.equal(files[rows], first) and decode.call_count == 1
    Image.fromarray(255 - np.asarray(Image.open(path))).save(path)
    assert not torch.equal(files[rows], first) and decode.call_count == 3
    path.unlink()
    with pytest.raises(DataError, match="image .*q.png does not exist"):
        files[rows]


# ---- GRAPE


def test_without_data_the_message_says_what_to_set_and_where_to_get_it(monkeypatch, tmp_path):
    monkeypatch.delenv("CEVIT_DATA", raising=False)
    with pytest.raises(DataError, match="CEVIT_DATA.*10.6084/m9.figshare.c.6406319"):
        load_grape()
    with pytest.raises(DataError, match="pairs.csv|named after roi"):
        load_grape(tmp_path)


def test_grape_has_112_complete_pairs(grape_folder):
    data = load_grape(grape_folder, size=32)
    assert (
        len(data) == 112
        and data.complete.all()
        and data.notes["flow"]["patients with both eyes"] == 119
    )
    assert len(load_grape(grape_folder, size=32, missing="keep")) == 119
    assert len(load_grape(grape_folder, size=32, images="cfp")) == 81
    labels = data.binary
    assert labels.sum(0).tolist() == [48, 48] and (labels.sum(1) == 2).sum() == 32
