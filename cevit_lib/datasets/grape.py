"""GRAPE: both eyes of glaucoma patients, nerve-fibre thickness and visual field (Huang, 2023)."""

import os
from pathlib import Path
from typing import Literal

import pandas as pd

from cevit_lib.datasets.cells import Cells
from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.datasets.sheets import find_file, observed, read_sheet, require_word
from cevit_lib.datasets.table import load_paired_table
from cevit_lib.errors import DataError
from cevit_lib.paths import data_folder

HOW_TO_GET = (
    "GRAPE is public: https://doi.org/10.6084/m9.figshare.c.6406319.v1 "
    "(described in https://doi.org/10.1038/s41597-023-02424-4). "
    "'cevit download grape' fetches it. The loader reads the archive as it is unpacked, or a "
    "folder with pairs.csv and images_roi (or images_cfp)."
)
SHEET = "VF and clinical information.xlsx"
COLUMNS = ("Subject Number", "Laterality", "OCT RNFL thickness", "Corresponding CFP", "VF")
BLIND_SPOT = [21, 32]  # of the 61 points of the visual field; always -1


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

    Continuous responses: mean thickness of the retinal nerve fibre layer (um). Binary responses:
    mean sensitivity of the visual field below ``field_limit`` (dB). Domain 1 is the left eye (OS),
    domain 2 the right eye (OD).

    Parameters
    ----------
    folder : path, optional
        Folder with ``pairs.csv`` and ``images_roi`` / ``images_cfp``, or with the archive's own
        sheet and its unpacked photographs; default ``CEVIT_DATA/grape``.
    images : {"roi", "cfp"}
        Crops around the optic nerve head, or whole photographs (which a part of the patients
        lacks).
    size : int
        Height and width of the images in pixels.
    mirror : bool
        Flip left eyes onto right ones. Off by default, as in the paper; recorded in ``notes``.
    missing : {"drop", "keep"}
        ``"drop"`` keeps the patients with all four responses; ``"keep"`` keeps everybody, with
        ``NaN``.
    field_limit : float
        Limit of the binary response in dB.

    Returns
    -------
    PairedEyes
        112 patients by default; ``notes["flow"]`` counts who left and why. Images are read when
        needed.

    Raises
    ------
    ParameterError
        ``images`` or ``missing`` is none of the words above.
    DataError
        The folder, a column, a value or a file is missing or wrong; the message names it.
    """
    require_word(images, "roi", "cfp")
    layout = {
        "patient": "subject",
        "eyes": {"OS": "os", "OD": "od"},
        "image": "image_{eye}",
        "continuous": {"RNFL": "rnfl_mean_{eye}"},
        "binary": {"reduced_field": f"vf_ms_{{eye}} < {field_limit!r}"},
        "limits": {"RNFL": [10, 250], "reduced_field": [-1, 40]},
        "where": {f"has_{images}_os": "1", f"has_{images}_od": "1"},
        "size": size,
        "mirror": mirror,
    }
    try:
        root = data_folder("grape", folder)
        prepared = (root / "pairs.csv").is_file() or not find_file(root, SHEET)
        table = root / "pairs.csv" if prepared else _archived_pairs(root)
        data = load_paired_table(table, _image_folder(root, images), layout, name="grape")
    except DataError as error:
        raise DataError(f"{error} {HOW_TO_GET}") from None
    flow = {
        "patients with both eyes": data.notes["flow"]["rows"],
        f"without both {images} images": data.notes["flow"].get("rows left out by 'where'", 0),
    }
    names = ("RNFL_OS (um)", "RNFL_OD (um)", *data.responses[2:])
    options = {"images": images, "size": size, "mirror_left": mirror, "field_limit_dB": field_limit}
    return observed(data.replace(responses=names), missing, flow, options)


def _image_folder(root: Path, kind: str) -> Path:
    """Return the folder of photographs below ``root`` whose name holds ``kind``, in any case."""
    prepared = root / f"images_{kind}"
    named = [path.parent for path in sorted(root.rglob("*.jpg")) if _is_in(path, kind)]
    if not prepared.is_dir() and not named:
        raise DataError(
            f"{root} holds no folder of photographs named after {kind}; unpack that archive of "
            "GRAPE there."
        )
    return prepared if prepared.is_dir() else named[0]


def _is_in(path: Path, kind: str) -> bool:
    return kind in path.parent.name.casefold()


def _archived_pairs(root: Path) -> Cells:
    """Return the patients with both eyes at the baseline visit, one row each, from GRAPE's sheet.

    Columns ``subject`` and, for each eye, ``rnfl_mean`` (um), ``vf_ms`` (dB, mean over the points
    that are not the blind spot, -1 counted as 0), ``image``, ``has_roi`` and ``has_cfp``. The index
    is the line of the first eye.
    """
    sheet, place = read_sheet(find_file(root, SHEET), "Baseline", COLUMNS)
    subject, eye, thickness, image, field = (place[name.casefold()] for name in COLUMNS)
    sheet = sheet.iloc[2:]
    points = sheet.loc[:, field : field + 60].apply(pd.to_numeric, errors="coerce")
    points = points.drop(columns=[field + point for point in BLIND_SPOT]).clip(lower=0)
    eyes = pd.DataFrame(
        {
            "subject": sheet[subject],
            "eye": sheet[eye].str.lower(),
            "rnfl_mean": sheet[thickness],
            "vf_ms": points.mean(axis=1, skipna=False).round(3).map(str).replace("nan", ""),
            "image": sheet[image],
        }
    )
    for kind in ("roi", "cfp"):
        names = {path.name for path in root.rglob("*.jpg") if _is_in(path, kind)}
        eyes[f"has_{kind}"] = eyes["image"].isin(names).astype(int).astype(str)
    right, left = (eyes[eyes["eye"] == side] for side in ("od", "os"))
    pairs = right.reset_index().merge(left, on="subject", suffixes=("_od", "_os"))
    pairs = pairs.set_index("index").rename_axis(None).sort_index()
    return Cells(pairs, {"file": SHEET, "sheet": "Baseline"})
