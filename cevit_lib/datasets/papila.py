"""PAPILA: axial length and refraction of both eyes, without photographs (Kovalyk et al., 2022)."""

import os
from pathlib import Path
from typing import Literal

import pandas as pd

from cevit_lib.datasets.cells import Cells
from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.datasets.sheets import find_file, observed, read_sheet
from cevit_lib.datasets.table import load_paired_table
from cevit_lib.errors import DataError
from cevit_lib.paths import data_folder

HOW_TO_GET = (
    "PAPILA is public: https://doi.org/10.6084/m9.figshare.14798004 "
    "(described in https://doi.org/10.1038/s41597-022-01388-1). 'cevit download papila' fetches "
    "it. The loader reads the archive's two sheets, or a folder with clinical.csv, one row an eye, "
    "with the columns patient, eye, age, sex, axial_length and se."
)
SHEETS = {"OD": "patient_data_od.xlsx", "OS": "patient_data_os.xlsx"}
COLUMNS = ("age", "gender", "dioptre_1", "dioptre_2", "axial_length")
# slips of the archive, seen beside the other values of the same eyes: a lost decimal point, and a
# shifted row, of which no refraction is taken
CYLINDERS = {("150", "OD", "-200"): "-2.0", ("241", "OS", "-75"): "-0.75"}
SHIFTED = ("077", "OD")


def load_papila(
    folder: str | os.PathLike | None = None,
    *,
    myopia: float | None = None,
    missing: Literal["drop", "keep"] = "drop",
) -> PairedEyes:
    """Load axial length (mm) and spherical equivalent (dioptre) of both eyes of 244 patients.

    Domain 1 is the left eye (OS). There are no photographs (``images`` is ``None``); age (years)
    and sex (1 = female) are the covariates. High myopia by the paper's rule, a spherical equivalent
    of -6 or less, is too rare here to be fitted: ``myopia`` takes another limit.

    Parameters
    ----------
    folder : path, optional
        Folder with ``clinical.csv``, or with the unpacked archive; default ``CEVIT_DATA/papila``.
    myopia : float, optional
        Makes the refraction a binary response, 1 at or below this limit in dioptre. By default it
        is continuous.
    missing : {"drop", "keep"}
        ``"drop"`` keeps the patients with all four responses, ``"keep"`` everybody, with ``NaN``.

    Returns
    -------
    PairedEyes
        215 patients by default, responses ``(AL_OS, AL_OD, SE_OS, SE_OD)`` with ``continuous=4``,
        or, with ``myopia``, ``(AL_OS, AL_OD, myopia_OS, myopia_OD)`` with ``continuous=2``.
        ``notes["flow"]`` counts who left.

    Raises
    ------
    ParameterError
        ``missing`` is none of the words above.
    DataError
        The folder, a column or a cell is missing or wrong; the message names it.
    """
    refraction = {"SE": "se"} if myopia is None else {}
    layout = {
        "patient": "patient",
        "eye": "eye",
        "continuous": {"AL": "axial_length", **refraction},
        "binary": {} if refraction else {"myopia": f"se <= {float(myopia)!r}"},
        "limits": {"AL": [15, 40], **{name: [-35, 25] for name in refraction}},
        "covariates": {"age": "age", "female": "sex == F"},
    }
    try:
        root = data_folder("papila", folder)
        prepared = (root / "clinical.csv").is_file() or not find_file(root, SHEETS["OD"])
        table = root / "clinical.csv" if prepared else _archived_eyes(root)
        data = load_paired_table(table, layout=layout, name="papila")
    except DataError as error:
        raise DataError(f"{error} {HOW_TO_GET}") from None
    flow = {key: count for key, count in data.notes["flow"].items() if key != "patients kept"}
    return observed(data, missing, flow, {**data.notes, "myopia_limit_D": myopia})


def _archived_eyes(root: Path) -> Cells:
    """Return PAPILA's two sheets as one row an eye: patient, eye, age, sex, axial_length, se.

    The refraction is sphere plus half the cylinder, empty where one of them is.
    """
    eyes = []
    for eye, name in SHEETS.items():
        path = find_file(root, name)
        if path is None:
            raise DataError(f"{root} holds neither clinical.csv nor {name}.")
        sheet, place = read_sheet(path, None, COLUMNS)
        rows = sheet[[place[column] for column in COLUMNS]].set_axis(COLUMNS, axis=1)
        patient = sheet[0].str.extract(r"^#?(\d+)$", expand=False).str.zfill(3)
        eyes.append(rows.assign(patient=patient, eye=eye).dropna())
    table = pd.concat(eyes, ignore_index=True)
    table["sex"] = table["gender"].map({"0": "M", "1": "F"}).fillna("")
    table["se"] = [_refraction(*row) for row in table[["patient", "eye", *COLUMNS[2:4]]].to_numpy()]
    table = table.sort_values(["patient", "eye"], kind="stable").drop(columns="gender")
    return Cells(table, {"file": " and ".join(SHEETS.values()), "sheet": "the first one"})


def _refraction(patient: str, eye: str, sphere: str, cylinder: str) -> str:
    cylinder = CYLINDERS.get((patient, eye, cylinder), cylinder)
    if not sphere or not cylinder or (patient, eye) == SHIFTED:
        return ""
    return f"{float(sphere) + float(cylinder) / 2:g}"
