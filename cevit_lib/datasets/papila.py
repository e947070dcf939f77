"""PAPILA: axial length and refraction of both eyes, as a table without photographs (Kovalyk et al., 2022)."""

import os
from dataclasses import replace
from typing import Literal

import numpy as np

from cevit_lib.datasets.archives import PAPILA_TABLES, find_file, papila_cells
from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.datasets.table import load_paired_table
from cevit_lib.errors import DataError, ParameterError
from cevit_lib.paths import data_folder

HOW_TO_GET = (
    "PAPILA is public: https://doi.org/10.6084/m9.figshare.14798004 "
    "(described in https://doi.org/10.1038/s41597-022-01388-1). 'cevit download papila' fetches it. The loader reads "
    "the archive's two sheets, or a folder with clinical.csv, one row an eye, with the columns patient, eye, age, sex, "
    "axial_length and se."
)


def load_papila(
    folder: str | os.PathLike | None = None,
    *,
    myopia: float | None = None,
    missing: Literal["drop", "keep"] = "drop",
) -> PairedEyes:
    """Load axial length (mm) and spherical equivalent (dioptre) of both eyes of PAPILA's 244 patients.

    Domain 1 is the left eye (OS). There are no photographs (``images`` is ``None``); age (years) and sex (1 = female)
    are the covariates. High myopia by the paper's rule, a spherical equivalent of -6 or less, is too rare here to be
    fitted: ``myopia`` takes another limit.

    Parameters
    ----------
    folder : path, optional
        Folder with ``clinical.csv``, or with the unpacked archive; default ``CEVIT_DATA/papila``.
    myopia : float, optional
        Makes the refraction a binary response, 1 at or below this limit in dioptre. By default it is continuous.
    missing : {"drop", "keep"}
        ``"drop"`` keeps the patients with all four responses, ``"keep"`` everybody, with ``NaN``.

    Returns
    -------
    PairedEyes
        215 patients by default, responses ``(AL_OS, AL_OD, SE_OS, SE_OD)`` with ``continuous=4``, or, with ``myopia``,
        ``(AL_OS, AL_OD, myopia_OS, myopia_OD)`` with ``continuous=2``. ``notes["flow"]`` counts who left.

    Raises
    ------
    ParameterError
        ``missing`` is none of the words above, or ``myopia`` is not finite.
    DataError
        The folder, a column or a cell is missing or wrong; the message names it.
    """
    if missing not in ("drop", "keep"):
        raise ParameterError(f"missing={missing!r}: give 'drop' or 'keep'.")
    if myopia is not None and not np.isfinite(myopia):
        raise ParameterError(f"myopia={myopia}: give a limit in dioptre, such as -0.5, or None.")
    continuous, limits = {"AL": "axial_length"}, {"AL": [15, 40]}
    binary = {} if myopia is None else {"myopia": f"se <= {float(myopia)!r}"}
    if myopia is None:
        continuous["SE"], limits["SE"] = "se", [-35, 25]
    layout = {
        "patient": "patient",
        "eye": "eye",
        "continuous": continuous,
        "binary": binary,
        "limits": limits,
        "covariates": {"age": "age", "female": "sex == F"},
    }
    try:
        root = data_folder("papila", folder)
        original = not (root / "clinical.csv").is_file() and find_file(root, PAPILA_TABLES["OD"])
        table = papila_cells(root) if original else root / "clinical.csv"
        data = load_paired_table(table, layout=layout, name="papila")
    except DataError as error:
        raise DataError(f"{error} {HOW_TO_GET}") from None
    keep = data.complete if missing == "drop" else np.isfinite(data.y.numpy()).any(1)
    flow = {key: count for key, count in data.notes["flow"].items() if key != "patients kept"}
    flow["without a response" if missing == "keep" else "without all four responses"] = int(
        (~keep).sum()
    )
    flow["kept"] = int(keep.sum())
    notes = {**data.notes, "flow": flow, "missing": missing, "myopia_limit_D": myopia}
    return replace(data.subset(keep), notes=notes)
