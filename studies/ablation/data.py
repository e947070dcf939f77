"""Eyes, partitions and encoder weights of the ablation: what every one of its parts shares."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from cevit_lib.datasets import PairedEyes, load_grape, read_image, split_by_patient
from cevit_lib.datasets.splits import Split
from cevit_lib.encoder.backbone import base_hash
from cevit_lib.errors import DataError
from cevit_lib.paths import data_folder, project_root
from cevit_lib.training import streams
from studies.ablation.masked_autoencoder import build_encoder

SYNTHETIC_PATIENTS = 47  # odd, so that parts differ by a patient


@functools.lru_cache(maxsize=2)
def load_eyes(data: str, size: int, mirror: bool, folder: str | None = None) -> PairedEyes:
    """Return complete pairs with their images in memory, and age and camera (0 or 1) as covariates.

    Parameters
    ----------
    data : {"grape, roi", "synthetic eyes"}
        The second are drawn here, for runs that only show that the code works.
    """
    if data == "synthetic eyes":
        return _synthetic_eyes(size)
    eyes = load_grape(folder, size=size, mirror=mirror)
    images = eyes.images[np.arange(len(eyes))]
    return eyes.replace(images=images, **_age_and_camera(eyes, folder))


def one_eye(data: PairedEyes, j: int) -> PairedEyes:
    """Return eye ``j`` of every patient, counted from 0, with its own responses, for CeCNN."""
    return data.replace(
        images=data.images[:, j : j + 1],
        y=data.y[:, j::2],
        responses=data.responses[j::2],
        continuous=data.continuous // 2,
        domains=data.domains[j : j + 1],
        covariates=data.covariates[:, j : j + 1],
    )


def _age_and_camera(eyes: PairedEyes, folder: str | None) -> dict[str, Any]:
    table = pd.read_csv(data_folder("grape", folder) / "pairs.csv", dtype=str)
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
    """Drawn fundi whose stripes and disc show what the responses depend on, with errors alike in both eyes."""
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


def all_images(configuration: dict, folder: str | None = None) -> tuple[Tensor, np.ndarray]:
    """Return every image of every visit, ``(m, 3, size, size)`` bytes as photographed, and whose each is ``(m,)``."""
    size = configuration["size"]
    if configuration["data"] == "synthetic eyes":
        eyes = _synthetic_eyes(size)
        return eyes.images.flatten(0, 1), np.repeat(np.asarray(eyes.ids), 2)
    paths = sorted((data_folder("grape", folder) / "images_roi").glob("*.jpg"))
    if not paths:
        raise DataError(
            "the folder of GRAPE holds no images_roi/*.jpg: pre-training reads the photographs."
        )
    return torch.stack([read_image(path, size) for path in paths]), np.array(
        [p.name.split("_")[0] for p in paths]
    )


def partition(eyes: PairedEyes, configuration: dict) -> Split:
    """Return the fold of a configuration: the partition's number alone decides who is tested when."""
    rng = streams(configuration["partition"]).split
    return split_by_patient(eyes, configuration["folds"], rng)[configuration["fold"] - 1]


def without_test_patients(owners: np.ndarray, eyes: PairedEyes, split: Split) -> np.ndarray:
    """Return the rows of all images but those of the test patients: no visit and neither eye of theirs is seen."""
    tested = np.asarray(eyes.ids)[split.test]
    rows = np.flatnonzero(~np.isin(owners, tested))
    if set(owners[rows]) & set(tested) or not set(tested) <= set(owners):
        raise DataError(
            "ids of patients and names of images do not agree: test patients could not be left out."
        )
    return rows


def weights_folder(given: str | None, scale: str) -> Path:
    """Return where pre-trained weights lie: as given, else a folder of the project that git ignores."""
    return Path(given) if given else project_root() / ".data" / f"ablation-weights-{scale}"


def weights_file(folder: Path, configuration: dict) -> Path:
    """Return the file of a configuration's pre-trained weights."""
    if configuration["weights"] == "mae-all":
        return folder / "all.pth"
    return folder / f"partition-{configuration['partition']}-fold-{configuration['fold']}.pth"


class Encoders:
    """Backbones by configuration, each read once, with a line that says which weights made it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.known = folder, {}

    def __call__(self, configuration: dict) -> tuple[nn.Module, dict[str, Any]]:
        """Return a fresh copy of the backbone and what a record says of its weights.

        Raises
        ------
        DataError
            The weights are not there; the message names the command that makes them.
        """
        key = (configuration["weights"], configuration.get("partition"), configuration["fold"])
        key = key[:1] if key[0] in ("mae-all", "imagenet") else key
        if key not in self.known:
            self.known[key] = self._read(configuration)
        backbone, told = self.known[key]
        return copy.deepcopy(backbone), told

    def _read(self, configuration: dict) -> tuple[nn.Module, dict[str, Any]]:
        kind = configuration["weights"]
        if kind == "imagenet":
            from cevit_lib.encoder.backbone import build_backbone

            model, origin = build_backbone(
                configuration["encoder"]["backbone"],
                True,
                None,
                img_size=configuration["encoder"]["img_size"],
            )
            return model, {"kind": kind, "origin": origin, "hash": base_hash(model)}
        torch.manual_seed(configuration["partition"])
        model = build_encoder(configuration["encoder"])
        told: dict[str, Any] = {"kind": kind}
        if kind != "random":
            path = weights_file(self.folder, configuration)
            if not path.is_file():
                raise DataError(
                    f"{path} is not there. Make the encoder's weights first: python -m "
                    "studies.ablation.pretraining, or use --weights imagenet."
                )
            stored = torch.load(path, weights_only=True)
            model.load_state_dict(stored["weights"])
            told |= stored["told"]
        return model, told | {"hash": base_hash(model)}
