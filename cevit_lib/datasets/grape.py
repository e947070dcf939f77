"""GRAPE: both eyes of glaucoma patients, with nerve-fibre thickness and visual field (Huang et al., 2023)."""

import os
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch

from cevit_lib.datasets.archives import GRAPE_TABLE, find_file, grape_pairs, image_folder
from cevit_lib.datasets.images import ImageFiles
from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.errors import DataError, ParameterError
from cevit_lib.paths import data_folder

HOW_TO_GET = (
    "GRAPE is public: https://doi.org/10.6084/m9.figshare.c.6406319.v1 "
    "(described in https://doi.org/10.1038/s41597-023-02424-4). "
    "'cevit download grape' fetches it. The loader reads the archive as it is unpacked, or a folder with pairs.csv and "
    "images_roi (or images_cfp)."
)
EYES = ("os", "od")  # the paper's order: left eye first


def load_grape(
    folder: str | os.PathLike | None = None,
    images: Literal["roi", "cfp"] = "roi",
    size: int = 224,
    *,
    mirror: bool = False,
    missing: Literal["drop", "keep"] = "drop",
    field_limit: float = 22.0,
) -> PairedEyes:
    """Load the patients of GRAPE who have both eyes at the baseline visit.

    Continuous responses: mean thickness of the retinal nerve fibre layer (um). Binary responses: mean sensitivity of
    the visual field below ``field_limit`` (dB). Domain 1 is the left eye (OS), domain 2 the right eye (OD).

    Parameters
    ----------
    folder : path, optional
        Folder with ``pairs.csv`` and ``images_roi`` / ``images_cfp``, or with the archive's own sheet and its unpacked
        photographs; default ``CEVIT_DATA/grape``.
    images : {"roi", "cfp"}
        Crops around the optic nerve head, or whole photographs (which a part of the patients lacks).
    size : int
        Height and width of the images in pixels.
    mirror : bool
        Flip left eyes onto right ones. Off by default, as in the paper; recorded in ``notes``.
    missing : {"drop", "keep"}
        ``"drop"`` keeps the patients with all four responses; ``"keep"`` keeps everybody, with ``NaN``.
    field_limit : float
        Limit of the binary response in dB.

    Returns
    -------
    PairedEyes
        112 patients by default; ``notes["flow"]`` counts who left and why. Images are read when needed.

    Raises
    ------
    ParameterError
        ``images`` or ``missing`` is none of the words above.
    DataError
        The folder, a column, a value or a file is missing or wrong; the message names it.
    """
    if images not in ("roi", "cfp") or missing not in ("drop", "keep"):
        raise ParameterError(
            f"images={images!r}, missing={missing!r}: give 'roi' or 'cfp', and 'drop' or 'keep'."
        )
    root = _find(folder)
    table = _pairs(root)
    flow = {"patients with both eyes": len(table)}
    table = _with_photographs(table, images, flow)
    y = np.stack(
        [_numbers(table, f"rnfl_mean_{eye}", 10, 250) for eye in EYES]
        + [_below(_numbers(table, f"vf_ms_{eye}", -1, 40), field_limit) for eye in EYES],
        axis=1,
    )
    keep = np.isfinite(y).all(1) if missing == "drop" else np.isfinite(y).any(1)
    flow["without a response" if missing == "keep" else "without all four responses"] = int(
        (~keep).sum()
    )
    table, y = table[keep], y[keep]
    flow["kept"] = len(table)
    return PairedEyes(
        images=_files(table, image_folder(root, images), size, mirror),
        y=torch.from_numpy(y),
        ids=tuple(table["subject"]),
        responses=("RNFL_OS (um)", "RNFL_OD (um)", "reduced_field_OS", "reduced_field_OD"),
        continuous=2,
        name="grape",
        notes={
            "flow": flow,
            "images": images,
            "size": size,
            "mirror_left": mirror,
            "field_limit_dB": field_limit,
            "missing": missing,
        },
    )


def _find(folder: str | os.PathLike | None) -> Path:
    try:
        return data_folder("grape", folder)
    except DataError as error:
        raise DataError(f"{error} {HOW_TO_GET}") from None


def _pairs(root: Path) -> pd.DataFrame:
    if not (root / "pairs.csv").is_file() and find_file(root, GRAPE_TABLE):
        return grape_pairs(root)
    return _read_table(root / "pairs.csv")


def _read_table(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise DataError(f"{path} does not exist: a folder of GRAPE holds pairs.csv. {HOW_TO_GET}")
    table = pd.read_csv(path, dtype=str, encoding="utf-8-sig", keep_default_na=False)
    table.index = pd.RangeIndex(2, len(table) + 2)  # the line of the file, as an editor counts
    wanted = [
        "subject",
        *(
            f"{stem}_{eye}"
            for stem in ("rnfl_mean", "vf_ms", "image", "has_roi", "has_cfp")
            for eye in EYES
        ),
    ]
    lacking = [column for column in wanted if column not in table]
    if lacking:
        raise DataError(
            f"{path} lacks the columns {', '.join(lacking)}; it has {', '.join(table.columns)}."
        )
    twice = table.index[table["subject"].duplicated()]
    if len(twice):
        raise DataError(
            f"{path}, line {twice[0]}: subject {table['subject'][twice[0]]!r} stands twice; one row a patient."
        )
    return table


def _with_photographs(table: pd.DataFrame, images: str, flow: dict[str, int]) -> pd.DataFrame:
    has = (table[[f"has_{images}_{eye}" for eye in EYES]] == "1").all(axis=1)
    flow[f"without both {images} images"] = int((~has).sum())
    return table[has]


def _numbers(table: pd.DataFrame, column: str, low: float, high: float) -> np.ndarray:
    """Return a column as numbers, empty cells as NaN; a wrong cell is named by line and column."""
    numbers = pd.to_numeric(
        table[column].str.strip().replace({"": "nan", "/": "nan"}), errors="coerce"
    )
    text = table[column].str.strip()
    wrong = numbers.isna() & ~text.isin(["", "/"]) | (numbers < low) | (numbers > high)
    if wrong.any():
        line = wrong.idxmax()
        raise DataError(
            f"the table, line {line} (subject {table['subject'][line]}), column {column!r}: {table[column][line]!r} is "
            f"no number between {low:g} and {high:g}; correct it, or leave the cell empty for not observed."
        )
    return numbers.to_numpy(float)


def _below(values: np.ndarray, limit: float) -> np.ndarray:
    return np.where(np.isfinite(values), (values < limit).astype(float), np.nan)


def _files(table: pd.DataFrame, folder: Path, size: int, mirror: bool) -> ImageFiles:
    paths = tuple(
        tuple(folder / row[f"image_{eye}"] for eye in EYES) for _, row in table.iterrows()
    )
    for line, row in zip(table.index, paths, strict=True):
        for path in row:
            if not path.is_file():
                raise DataError(
                    f"pairs.csv, line {line}: image {path} does not exist. {HOW_TO_GET}"
                )
    return ImageFiles(paths=paths, size=size, mirrored=(mirror, False))
