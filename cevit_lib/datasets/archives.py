"""GRAPE and PAPILA as their archives have them: Excel sheets with two rows of header, one row an eye."""

import re
from pathlib import Path

import numpy as np
import pandas as pd

from cevit_lib.datasets.cells import Cells
from cevit_lib.errors import DataError

GRAPE_TABLE = "VF and clinical information.xlsx"
PAPILA_TABLES = {"OD": "patient_data_od.xlsx", "OS": "patient_data_os.xlsx"}
BLIND_SPOT = (21, 32)  # of the 61 points of GRAPE's visual field; always -1
# slips of the archive, seen beside the other values of the same eyes: a lost decimal point, and a shifted row
PAPILA_CYLINDERS = {("150", "OD"): ("-200", "-2.0"), ("241", "OS"): ("-75", "-0.75")}
PAPILA_SHIFTED = ("077", "OD")


def find_file(root: Path, name: str) -> Path | None:
    """Return the file of that name in a folder or below it."""
    return next(iter(sorted(root.rglob(name))), None)


def image_folder(root: Path, kind: str) -> Path:
    """Return the folder of photographs below ``root`` whose name holds ``kind`` (roi or cfp), in any case.

    Raises
    ------
    DataError
        There is none.
    """
    prepared = root / f"images_{kind}"
    if prepared.is_dir():
        return prepared
    for folder in sorted(
        path for path in root.rglob("*") if path.is_dir() and kind in path.name.casefold()
    ):
        if any(path.suffix.casefold() == ".jpg" for path in folder.iterdir()):
            return folder
    raise DataError(
        f"{root} holds no folder of photographs named after {kind}; unpack that archive of GRAPE there."
    )


def grape_pairs(root: Path) -> pd.DataFrame:
    """Return the patients with both eyes at the baseline visit, one row each, as text, from GRAPE's own sheet.

    Columns ``subject`` and, for each eye, ``rnfl_mean`` (um), ``vf_ms`` (dB, mean over the points that are not the
    blind spot, -1 counted as 0), ``image``, ``has_roi`` and ``has_cfp``. The index is the line of the first eye.

    Raises
    ------
    DataError
        The file or a column of it is not there.
    """
    path = find_file(root, GRAPE_TABLE)
    if path is None:
        raise DataError(f"{root} holds neither pairs.csv nor {GRAPE_TABLE!r}.")
    sheet, place = _sheet(path, "Baseline"), {}
    for column in sheet:
        names = [str(v).strip() for v in sheet[column].iloc[:2] if not pd.isna(v)]
        place |= {name: column for name in names if name not in place}
    wanted = ("Subject Number", "Laterality", "OCT RNFL thickness", "Corresponding CFP", "VF")
    lacking = [name for name in wanted if name not in place]
    if lacking:
        raise DataError(
            f"{path}, sheet Baseline lacks {', '.join(lacking)}; it has {', '.join(place)}."
        )
    fields = sheet.loc[2:, place["VF"] : place["VF"] + 60].apply(pd.to_numeric, errors="coerce")
    fields = fields.drop(columns=[place["VF"] + point for point in BLIND_SPOT])
    eyes = pd.DataFrame(
        {
            "subject": sheet.loc[2:, place["Subject Number"]],
            "eye": sheet.loc[2:, place["Laterality"]],
            "rnfl_mean": sheet.loc[2:, place["OCT RNFL thickness"]],
            "image": sheet.loc[2:, place["Corresponding CFP"]],
            "vf_ms": fields.clip(lower=0).mean(axis=1, skipna=False).round(3),
        }
    ).dropna(subset=["subject"])
    eyes = eyes.map(_text)
    return _wide(eyes, root)


def papila_cells(root: Path) -> Cells:
    """Return PAPILA's two sheets as one table of one row an eye: patient, eye, age, sex, axial_length, se.

    The refraction is sphere plus half the cylinder, empty where one of them is. Two cylinders whose decimal point was
    lost are put right and a shifted row is emptied.

    Raises
    ------
    DataError
        A file or a column of it is not there.
    """
    rows, files = [], []
    for eye, name in PAPILA_TABLES.items():
        path = find_file(root, name)
        if path is None:
            raise DataError(f"{root} holds neither clinical.csv nor {name}.")
        files.append(path.name)
        rows += _papila_rows(path, eye)
    rows.sort(key=lambda row: (row[1]["patient"], row[1]["eye"]))
    header = ["patient", "eye", "age", "sex", "axial_length", "se"]
    return Cells(header, rows, {"file": " and ".join(files), "sheet": "the first one"})


def _papila_rows(path: Path, eye: str) -> list[tuple[int, dict[str, str]]]:
    sheet, place = _sheet(path, None), {}
    for column in sheet:
        names = [str(v).strip().casefold() for v in sheet[column].iloc[:3] if not pd.isna(v)]
        place |= {name: column for name in names if name not in place}
    lacking = [
        name
        for name in ("age", "gender", "dioptre_1", "dioptre_2", "axial_length")
        if name not in place
    ]
    if lacking:
        raise DataError(f"{path.name} lacks {', '.join(lacking)}; it has {', '.join(place)}.")
    rows = []
    for index, cells in sheet.iterrows():
        identity = re.fullmatch(r"#?(\d+)", _text(cells.iloc[0]))
        if not identity:
            continue  # the rows of the header
        patient = identity.group(1).zfill(3)
        text = {name: _text(cells[place[name]]) for name in place}
        sphere, cylinder = text["dioptre_1"], text["dioptre_2"]
        wrong, right = PAPILA_CYLINDERS.get((patient, eye), ("", ""))
        cylinder = right if cylinder == wrong else cylinder
        known = sphere and cylinder and (patient, eye) != PAPILA_SHIFTED
        se = f"{float(sphere) + float(cylinder) / 2:g}" if known else ""
        sex = {"0": "M", "1": "F"}.get(text["gender"], "")
        rows.append(
            (
                int(index) + 1,
                {
                    "patient": patient,
                    "eye": eye,
                    "age": text["age"],
                    "sex": sex,
                    "axial_length": text["axial_length"],
                    "se": se,
                },
            )
        )
    return rows


def _sheet(path: Path, name: str | None) -> pd.DataFrame:
    """Return a sheet without any header; its index is the line less one."""
    try:
        return pd.read_excel(
            path, sheet_name=0 if name is None else name, header=None, dtype=object
        )
    except ImportError:
        raise
    except Exception as error:  # openpyxl lets errors of zip, XML and its own through
        raise DataError(f"{path} is no readable Excel file ({error}); fetch it again.") from None


def _text(value: object) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        value = int(value)
    return str(value).strip()


def _wide(eyes: pd.DataFrame, root: Path) -> pd.DataFrame:
    """Lay both eyes of a patient beside each other; who has one only is left out."""
    files = {
        kind: {p.name for p in root.rglob("*.jpg") if kind in p.parent.name.casefold()}
        for kind in ("roi", "cfp")
    }
    rows, lines = [], []
    for subject, of in eyes.groupby("subject", sort=False):
        by = {eye: row for eye, row in zip(of["eye"], of.to_dict("records"), strict=True)}
        if set(by) != {"OD", "OS"}:
            continue
        row = {"subject": subject}
        for eye in ("od", "os"):
            found = by[eye.upper()]
            row |= {f"{name}_{eye}": found[name] for name in ("rnfl_mean", "vf_ms", "image")}
            row |= {f"has_{kind}_{eye}": str(int(found["image"] in files[kind])) for kind in files}
        rows.append(row)
        lines.append(int(of.index[0]) + 1)
    return pd.DataFrame(rows, index=lines)
