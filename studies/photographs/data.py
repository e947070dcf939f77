"""Eyes and partitions of the ablation on photographs, and pairs of strangers' eyes."""

import functools
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from cevit_lib.datasets import PairedEyes, load_grape, split_by_patient
from cevit_lib.datasets.splits import Split
from cevit_lib.errors import DataError
from cevit_lib.paths import data_folder
from cevit_lib.records import rounded
from cevit_lib.training import streams
from studies.photographs.embedding import all_photographs
from studies.your_eyes.practice import draw_eye

SYNTHETIC_PATIENTS = 48  # every half, fold and part of a fold is then equally large, as in GRAPE
HALVES = 7  # seed of the one division into halves


@functools.lru_cache(maxsize=2)
def load_eyes(data: str, size: int, mirror: bool) -> PairedEyes:
    """Return complete pairs with their images in memory, and age and sex (female 1) as covariates.

    Parameters
    ----------
    data : {"grape, roi", "synthetic eyes"}
        The second are drawn here, for runs that only show that the code works.
    size : int
        Pixels of a side.
    mirror : bool
        Left eyes mirrored onto right ones (GRAPE).
    """
    if data == "synthetic eyes":
        return synthetic_eyes(SYNTHETIC_PATIENTS, size)
    eyes = load_grape(size=size, mirror=mirror)
    table = pd.read_csv(data_folder("grape") / "pairs.csv", dtype=str)
    table = table.set_index("subject").loc[list(eyes.ids)]
    female = (table["sex"] == "F").astype(float)
    columns = [np.stack([table[f"age_{eye}"].astype(float), female], 1) for eye in ("os", "od")]
    return eyes.replace(
        images=eyes.images[np.arange(len(eyes))],
        covariates=torch.tensor(np.stack(columns, 1)),
        covariate_names=("age", "female"),
    )


def synthetic_eyes(n: int, size: int, seed: int = 0) -> PairedEyes:
    """Return drawn fundi whose stripes and disc show what the responses depend on; what they do not
    show is alike in both eyes of a patient.
    """
    rng = np.random.default_rng(seed)
    shown = rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, 2))
    drawn = [draw_eye(shown[i, j], "OD", rng) for i in range(n) for j in range(2)]
    images = torch.from_numpy(np.stack(drawn)).permute(0, 3, 1, 2).float()
    images = torch.nn.functional.interpolate(images, size, mode="area").round().to(torch.uint8)
    noise = 0.8 * rng.normal(size=(n, 1)) + 0.6 * rng.normal(size=(n, 4))
    y = np.column_stack([85 + 9 * shown + 6 * noise[:, :2], -shown + noise[:, 2:] > 0])
    about = np.stack([rng.normal(45, 12, n), rng.integers(0, 2, n)], 1)
    return PairedEyes(
        images=images.view(n, 2, *images.shape[1:]),
        y=torch.from_numpy(y),
        ids=tuple(f"E{i:03d}" for i in range(n)),
        continuous=2,
        responses=("RNFL_OS (um)", "RNFL_OD (um)", "reduced_field_OS", "reduced_field_OD"),
        name="synthetic eyes",
        covariates=torch.from_numpy(about[:, None].repeat(2, 1)),
        covariate_names=("age", "female"),
    )


def all_images(c: dict) -> tuple[Tensor, np.ndarray]:
    """Return every image of every visit, ``(m, 3, size, size)`` bytes as photographed, and whose
    each is ``(m,)``.
    """
    if c["data"] != "synthetic eyes":
        return all_photographs(c["size"])
    eyes = load_eyes(c["data"], c["size"], c["mirror"])
    return eyes.images.flatten(0, 1), np.repeat(np.asarray(eyes.ids), 2)


def half_of(c: dict) -> int:
    """Return from which half of the patients a fold's test patients are: 0 or 1, in turn."""
    return (c["fold"] - 1) % 2


def rows_of_half(eyes: PairedEyes, half: int) -> np.ndarray:
    """Return the patients of a half; the division is the same for all partitions."""
    return split_by_patient(eyes, 2, np.random.default_rng(HALVES))[half].test


def partition(eyes: PairedEyes, c: dict) -> Split:
    """Return a fold: its partition divides each half anew, and it trains on all whom it does not
    test.
    """
    half = half_of(c)
    own, rng = rows_of_half(eyes, half), streams(c["partition"], half).split
    parts = split_by_patient(eyes.subset(own), c["folds"] // 2, rng)
    test = own[parts[(c["fold"] - 1) // 2].test]
    return Split(np.setdiff1d(np.arange(len(eyes)), test), test)


def without_half(owners: np.ndarray, eyes: PairedEyes, half: int) -> np.ndarray:
    """Return the rows of all images but those of a half's patients: no visit and neither eye of
    theirs is seen.

    Raises
    ------
    DataError
        Owners and patients have other names, so that nobody would be left out.
    """
    tested = np.asarray(eyes.ids)[rows_of_half(eyes, half)]
    if not set(tested) <= set(owners):
        raise DataError(
            "ids of patients and names of images do not agree: test patients could not be left out."
        )
    return np.flatnonzero(~np.isin(owners, tested))


def left_out_parts(eyes: PairedEyes, split: Split, c: dict, seed: int) -> list[np.ndarray]:
    """Return the parts of a fold's training patients that a cross-fit leaves out, one after
    another.
    """
    rng = streams(seed, c["partition"], c["fold"]).split
    inner = split_by_patient(eyes.subset(split.train), c["cross_fits"], rng, require_classes=False)
    return [split.train[part.test] for part in inner]


def strangers(eyes: PairedEyes, parts: list[np.ndarray], rng: np.random.Generator) -> PairedEyes:
    """Return every left eye beside the right eye of another patient of the same part.

    Pictures, responses and what joins the responses of one eye stay; what joins a patient's two
    eyes is gone. Nobody has an eye in two parts, so that a test patient stays unseen.
    """
    partner = np.arange(len(eyes))
    for rows in parts:
        order = rng.permutation(rows)
        partner[order] = np.roll(order, 1)
    images, y = eyes.images.clone(), eyes.y.clone()
    images[:, 1], y[:, 1], y[:, 3] = images[partner, 1], y[partner, 1], y[partner, 3]
    return eyes.replace(images=images, y=y, name=f"{eyes.name}, eyes of strangers")


def predictions_of(eyes: PairedEyes, split: Split, arms: dict[str, Tensor]) -> dict[str, list]:
    """Return the test patients' ids, responses and every arm's outputs, for a record."""
    table = {"patient": [eyes.ids[i] for i in split.test], "y": eyes.y[split.test].tolist()}
    return table | {name: rounded(outputs.tolist()) for name, outputs in arms.items()}


def facts(c: dict[str, Any]) -> dict[str, Any]:
    """Return what identifies the data in a record."""
    eyes = load_eyes(c["data"], c["size"], c["mirror"])
    return {"name": eyes.name, "hash": eyes.hash, "patients": len(eyes)}
