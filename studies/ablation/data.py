"""Eyes, partitions and encoder weights of the ablation: what every one of its parts shares."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from cevit_lib.datasets import PairedEyes, load_grape, split_by_patient
from cevit_lib.datasets.splits import Split
from cevit_lib.errors import DataError
from cevit_lib.paths import data_folder
from cevit_lib.records import rounded
from cevit_lib.training import streams
from studies.encoder.embedding import all_photographs

SYNTHETIC_PATIENTS = 47  # odd, so that parts differ by a patient


@functools.lru_cache(maxsize=2)
def load_eyes(data: str, size: int, mirror: bool) -> PairedEyes:
    """Return complete pairs with their images in memory, and age and camera (0 or 1) as covariates.

    Parameters
    ----------
    data : {"grape, roi", "synthetic eyes"}
        The second are drawn here, for runs that only show that the code works.
    """
    if data == "synthetic eyes":
        return _synthetic_eyes(size)
    eyes = load_grape(size=size, mirror=mirror)
    images = eyes.images[np.arange(len(eyes))]
    return eyes.replace(images=images, **_age_and_camera(eyes))


def _age_and_camera(eyes: PairedEyes) -> dict[str, Any]:
    table = pd.read_csv(data_folder("grape") / "pairs.csv", dtype=str)
    table = table.set_index("subject").loc[list(eyes.ids)]
    cameras = sorted(set(table["camera_os"]) | set(table["camera_od"]))
    columns = [
        np.stack([table[f"age_{eye}"].astype(float), table[f"camera_{eye}"] == cameras[0]], 1)
        for eye in ("os", "od")
    ]
    return {
        "covariates": torch.tensor(np.stack(columns, 1).astype(float)),
        "covariate_names": ("age", "camera"),
    }


def _synthetic_eyes(size: int) -> PairedEyes:
    """Drawn fundi whose stripes and disc show what the responses depend on, with errors alike in
    both eyes."""
    from studies.your_eyes.practice import draw_eye

    rng, n = np.random.default_rng(0), SYNTHETIC_PATIENTS
    shown = rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, 2))
    drawn = [draw_eye(shown[i, j], "OD", rng) for i in range(n) for j in range(2)]
    images = torch.from_numpy(np.stack(drawn)).permute(0, 3, 1, 2).float()
    images = (
        nn.functional.interpolate(images, size, mode="area")
        .round()
        .to(torch.uint8)
        .view(n, 2, 3, size, size)
    )
    shared = rng.normal(size=(n, 1))
    noise = 0.8 * shared + 0.6 * rng.normal(size=(n, 4))
    y = np.concatenate(
        [85 + 9 * shown + 6 * noise[:, :2], (-shown + noise[:, 2:] > 0).astype(float)], 1
    )
    covariates = np.stack(
        [rng.normal(45, 12, (n, 1)).repeat(2, 1), rng.integers(0, 2, (n, 1)).repeat(2, 1)], 2
    )
    return PairedEyes(
        images=images,
        y=torch.from_numpy(y),
        ids=tuple(f"E{i:03d}" for i in range(n)),
        continuous=2,
        responses=("RNFL_OS (um)", "RNFL_OD (um)", "reduced_field_OS", "reduced_field_OD"),
        name="synthetic eyes",
        covariates=torch.from_numpy(covariates.astype(float)),
        covariate_names=("age", "camera"),
    )


def all_images(configuration: dict) -> tuple[Tensor, np.ndarray]:
    """Return every image of every visit, ``(m, 3, size, size)`` bytes as photographed, and whose
    each is ``(m,)``."""
    if configuration["data"] == "synthetic eyes":
        eyes = _synthetic_eyes(configuration["size"])
        return eyes.images.flatten(0, 1), np.repeat(np.asarray(eyes.ids), 2)
    return all_photographs(configuration["size"])


def partition(eyes: PairedEyes, configuration: dict) -> Split:
    """Return the fold of a configuration: the partition's number alone decides who is tested
    when."""
    rng = streams(configuration["partition"]).split
    return split_by_patient(eyes, configuration["folds"], rng)[configuration["fold"] - 1]


def without_test_patients(owners: np.ndarray, eyes: PairedEyes, split: Split) -> np.ndarray:
    """Return the rows of all images but those of the test patients: no visit and neither eye of
    theirs is seen."""
    tested = np.asarray(eyes.ids)[split.test]
    rows = np.flatnonzero(~np.isin(owners, tested))
    if set(owners[rows]) & set(tested) or not set(tested) <= set(owners):
        raise DataError(
            "ids of patients and names of images do not agree: test patients could not be left out."
        )
    return rows


def predictions_of(eyes: PairedEyes, split: Split, arms: dict[str, Tensor]) -> dict[str, list]:
    """Return the test patients' ids, responses and every arm's outputs, for a record."""
    table = {"patient": [eyes.ids[i] for i in split.test], "y": eyes.y[split.test].tolist()}
    return table | {name: rounded(outputs.tolist()) for name, outputs in arms.items()}


def about(eyes: PairedEyes, split: Split) -> str:
    """Return what a record says of the data behind it."""
    tested = ",".join(eyes.ids[i] for i in split.test)
    return (
        f"{eyes.name} {eyes.hash}: {len(split.train)} patients to train on, {len(split.test)} to "
        f"test: {tested}"
    )
