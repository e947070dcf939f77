"""``cevit download`` against an archive of our own; and the archives' own layouts, written here."""

import hashlib
import io
import json
import os
import re
import shutil
import zipfile

import numpy as np
import openpyxl
import pytest
import requests
from PIL import Image

from cevit_lib.clinic import cli, download
from cevit_lib.datasets import load_grape, load_papila

TABLE = b"a table " * 40_000
PICTURES = io.BytesIO()
with zipfile.ZipFile(PICTURES, "w") as _archive:
    _archive.writestr("FundusImages/RET002OD.jpg", b"picture")
    _archive.writestr("ClinicalData/patient_data_od.xlsx", b"sheet")


class Archive:
    """Answers as figshare does."""

    def __init__(self) -> None:
        self.files = {"a table.xlsx": TABLE, "pictures.zip": PICTURES.getvalue()}
        self.cut: dict[str, int] = {}  # send so many bytes less, once
        self.fetched: list[str] = []

    def get(self, url: str, headers: dict | None = None, **how) -> requests.Response:
        """Take the place of ``requests.get``."""
        name, asked = url.rpartition("/")[2], (headers or {}).get("Range", "bytes=0-")
        start = int(asked.removeprefix("bytes=").rstrip("-"))
        if name in self.files:
            self.fetched.append(f"{name} from {start}")
            stop = len(self.files[name]) - self.cut.pop(name, 0)
            return answered(self.files[name][start:stop], 206 if start else 200)
        if "/collections/" in url:
            items = [{"id": 1, "title": "the tables"}, {"id": 2, "title": "photographs"}]
            return answered(json.dumps(items).encode())
        number = int(re.search(r"/articles/(\d+)/", url).group(1))
        names = list(self.files)[number - 1 : number] if number < 10 else self.files
        return answered(json.dumps([self.entry(name) for name in names]).encode())

    def entry(self, name: str) -> dict:
        content = self.files[name]
        digest = hashlib.md5(content).hexdigest()
        url = f"https://archive/{name}"
        return {"name": name, "size": len(content), "download_url": url, "computed_md5": digest}


def answered(content: bytes, status: int = 200) -> requests.Response:
    answer = requests.Response()
    answer.status_code, answer.raw = status, io.BytesIO(content)
    return answer


@pytest.fixture
def archive(monkeypatch):
    """A fresh archive with a table and a zip file."""
    found = Archive()
    monkeypatch.setattr(requests, "get", found.get)
    return found


def cevit(*words) -> int:
    return cli.main(["download", *(str(word) for word in words)])


def test_a_collection_is_listed_fetched_checked_and_unpacked(archive, tmp_path, capsys):
    assert cevit("grape", "--folder", tmp_path / "grape", "--list") == 0
    out = capsys.readouterr().out
    assert f"md5:{hashlib.md5(TABLE).hexdigest()}" in out and not (tmp_path / "grape").exists()
    assert cevit("grape", "--folder", tmp_path / "grape") == 0
    assert (tmp_path / "grape" / "a table.xlsx").read_bytes() == TABLE
    (picture,) = (tmp_path / "grape").rglob("RET002OD.jpg")
    picture.write_bytes(b"cut by somebody")
    assert not list((tmp_path / "grape").glob("*.part"))
    assert cevit("grape", "--folder", tmp_path / "grape") == 0  # nothing is fetched twice
    assert len(archive.fetched) == 2 and picture.read_bytes() == b"cut by somebody"


def test_what_was_cut_goes_on_where_it_stopped(archive, tmp_path, capsys):
    archive.cut["a table.xlsx"] = 100_000
    assert cevit("papila", "--folder", tmp_path, "--only", "*.xlsx") == 2
    assert "the same command goes on from there" in capsys.readouterr().err
    (part,) = tmp_path.glob("*.part")
    have = part.stat().st_size
    assert 100_000 < have <= len(TABLE) - 100_000 and not (tmp_path / "a table.xlsx").exists()
    assert cevit("papila", "--folder", tmp_path, "--only", "*.xlsx") == 0
    assert archive.fetched[-1] == f"a table.xlsx from {have}"
    assert (tmp_path / "a table.xlsx").read_bytes() == TABLE and not part.exists()


def test_a_wrong_checksum_keeps_nothing_and_somebodys_file_stays(archive, tmp_path, capsys):
    (tmp_path / "a table.xlsx.part").write_bytes(b"of another version" * 100)
    assert cevit("papila", "--folder", tmp_path, "--only", "*.xlsx") == 2
    assert "wrong checksum, nothing is kept" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    (tmp_path / "a table.xlsx").write_bytes(b"mine")
    assert cevit("papila", "--folder", tmp_path) == 2
    assert "it is left as it is" in capsys.readouterr().err
    assert (tmp_path / "a table.xlsx").read_bytes() == b"mine"


def test_files_that_no_archive_lists_are_known_by_name_size_and_checksum(
    archive, tmp_path, monkeypatch
):
    digest = f"sha256:{hashlib.sha256(TABLE).hexdigest()}"
    file = {"name": "a table.xlsx", "size": len(TABLE), "checksum": digest}
    source = {"files": [file | {"url": "https://archive/a table.xlsx"}]}
    monkeypatch.setitem(download.SOURCES, "uwhvf", download.SOURCES["uwhvf"] | source)
    assert cevit("uwhvf", "--folder", tmp_path) == 0
    assert (tmp_path / "a table.xlsx").read_bytes() == TABLE


def test_offline_it_says_what_to_fetch_and_where_to_put_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(download, "API", "http://127.0.0.1:9")  # nobody listens there
    assert cevit("grape", "--folder", tmp_path / "here") == 2
    said = capsys.readouterr().err
    told = ("10.6084/m9.figshare.c.6406319.v1", "By hand", str(tmp_path / "here"), "sha256:72d1d6")
    assert [words for words in told if words not in said] == []
    assert not (tmp_path / "here").exists()


# The archives' own layouts, with invented patients.


def write_grape(folder):
    """Patients 7 (both eyes) and 8 (one), and 9 without the left thickness."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Baseline"
    head = ["Subject Number", "Laterality", "Age", "OCT RNFL thickness", None, "Corresponding CFP"]
    sheet.append([*head, "VF", *[None] * 60])
    sheet.append([None, None, None, "Mean", "S", None, *range(61)])
    (folder / "ROI images").mkdir(parents=True)
    eyes = [(7, "OD", 90, 20), (7, "OS", 80.5, 25), (8, "OD", 70, 20)]
    for subject, eye, rnfl, level in [*eyes, (9, "OD", 60, 30), (9, "OS", "/", 10)]:
        field = [level] * 61
        field[0] = field[21] = field[32] = -1  # one not seen, which counts as 0; the blind spot
        name = f"{subject}_{eye}_1.jpg"
        sheet.append([subject, eye, 50, rnfl, 1, name, *field])
        Image.fromarray(np.full((20, 20, 3), subject, np.uint8)).save(folder / "ROI images" / name)
    book.save(folder / "VF and clinical information.xlsx")


def test_grape_is_read_as_its_archive_has_it(tmp_path):
    write_grape(tmp_path)
    data = load_grape(tmp_path, size=8, field_limit=19.65, missing="keep")
    assert data.ids == ("7", "9")
    # 59 points, one not seen: 20 * 58 / 59 is 19.66; with -1 in the mean it would be 19.64
    np.testing.assert_equal(data.y.tolist(), [[80.5, 90, 0, 0], [np.nan, 60, 1, 0]])
    assert data.load().shape == (2, 2, 3, 8, 8) and len(load_grape(tmp_path, size=8)) == 1


def test_grapes_own_sheet_gives_the_prepared_tables_numbers(grape_folder, tmp_path):
    name = "VF and clinical information.xlsx"
    if not (grape_folder / name).is_file():
        pytest.skip("GRAPE's own sheet is not in the folder of the prepared table")
    (tmp_path / name).symlink_to(grape_folder / name)
    shutil.copytree(grape_folder / "images_roi", tmp_path / "ROIs", copy_function=os.symlink)
    prepared, original = load_grape(grape_folder, size=32), load_grape(tmp_path, size=32)
    assert prepared.ids == original.ids and prepared.hash == original.hash


def write_papila(folder, eyes):
    """``eyes``: eye to rows (id, age, gender, sphere, cylinder, length), below three of header."""
    (folder / "ClinicalData").mkdir(parents=True)
    words = [None, "Age", "Gender", "Diagnosis", "Refractive_Defect", None, None, "Axial_Length"]
    for eye, rows in eyes.items():
        book = openpyxl.Workbook()
        book.active.append(words)
        book.active.append([*[None] * 4, "dioptre_1", "dioptre_2", "astigmatism", None])
        book.active.append(["ID"])
        for patient, age, gender, sphere, cylinder, length in rows:
            book.active.append([f"#{patient}", age, gender, 0, sphere, cylinder, 90, length])
        book.save(folder / "ClinicalData" / f"patient_data_{eye.lower()}.xlsx")


def test_papila_is_read_as_its_archive_has_it_and_its_slips_are_put_right(tmp_path):
    eyes = {
        "OD": [
            ("002", 47, 0, 0.75, -1.75, 23.64),
            ("077", 68, 0, None, 0.5, 25.51),
            ("150", 81, 1, 2, -200, 22.55),
        ],
        "OS": [
            ("002", 47, 0, -0.5, -1.5, 23.77),
            ("077", 68, 0, 1, -1, None),
            ("150", 81, 1, 2, -1, 22.5),
        ],
    }
    write_papila(tmp_path, eyes)
    data = load_papila(tmp_path, missing="keep")
    assert data.ids == ("002", "077", "150")
    second = [np.nan, 25.51, 0.5, np.nan]
    expected = [[23.77, 23.64, -1.25, -0.125], second, [22.5, 22.55, 1.5, 1.0]]
    np.testing.assert_allclose(data.y, expected)
    assert data.covariates[2, 0].tolist() == [81, 1] and data.covariates[0, 1].tolist() == [47, 0]
