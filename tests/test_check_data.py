"""``cevit check-data`` on a synthetic folder that holds every fault: each is named, none stops the listing."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cevit_lib.clinic import cli
from cevit_lib.clinic.check_data import check, describe_folds, eye_in_name, inspect
from cevit_lib.datasets import load_paired_table, read_image
from cevit_lib.errors import DataError

LAYOUT = {
    "patient": "id",
    "eye": "side",
    "image": "photo",
    "continuous": {"AL": "al"},
    "binary": {"HM": "al >= 26"},
    "limits": {"AL": [15, 40]},
    "size": 16,
}
YAML = "patient: id\neye: side\nimage: photo\ncontinuous: {AL: al}\nbinary: {HM: al >= 26}\nlimits: {AL: [15, 40]}\n"


def pixels(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (40, 40, 3), dtype=np.uint8)


@pytest.fixture
def eyes(tmp_path):
    """Twenty pairs of invented photographs and their faultless table (leading zeros, a byte-order mark, R and L)."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rows = [["id", "side", "al", "photo"]]
    for i in range(20):
        for side, eye in (("R", "OD"), ("L", "OS")):
            name = f"{i:03d}_{eye}.jpg"
            Image.fromarray(pixels(2 * i + (side == "L"))).save(folder / name)
            rows.append([f"{i:03d}", side, f"{23 + 4 * (i % 2)}.{i % 10}", name])
    return Group(tmp_path / "eyes.csv", folder, rows)


class Group:
    """A table and a folder that can be spoilt."""

    def __init__(self, table: Path, folder: Path, rows: list) -> None:
        self.table, self.folder, self.rows = table, folder, rows

    def row(self, i: int, side: str) -> list:
        return next(row for row in self.rows if row[:2] == [f"{i:03d}", side])

    def file(self, i: int, side: str) -> Path:
        return self.folder / self.row(i, side)[3]

    def write(self) -> "Group":
        text = "\n".join(",".join(row) for row in self.rows) + "\n"
        self.table.write_text(text, encoding="utf-8-sig")
        return self

    def check(self, **options):
        self.write()
        return check(self.table, self.folder, LAYOUT, **options)


def texts(problems, error: bool) -> str:
    return "\n".join(str(problem) for problem in problems if problem.error == error)


def save_turned(path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels(500 + orientation)).save(path, exif=exif)


def spoil(eyes: Group) -> None:
    """Plant every fault, each in its own patient."""
    eyes.file(0, "R").write_bytes(eyes.file(0, "R").read_bytes()[:900])
    eyes.file(1, "R").write_bytes(b"")
    eyes.file(2, "R").write_bytes(b"<html>please log in</html>")
    eyes.row(3, "R")[3] = "._003_OD.jpg"
    (eyes.folder / "._003_OD.jpg").write_bytes(b"\0\5\26\7")
    eyes.file(4, "L").write_bytes(
        eyes.file(5, "L").read_bytes()
    )  # one photograph under two patients
    save_turned(eyes.file(6, "R"), 6)
    save_turned(eyes.file(6, "L"), 2)
    for (i, side), mode in {(7, "R"): "P", (7, "L"): "RGBA", (8, "R"): "L"}.items():
        eyes.row(i, side)[3] = f"{i:03d}_{side}.png"
        Image.fromarray(pixels(100 + 2 * i + (side == "L"))).convert(mode).save(eyes.file(i, side))
    Image.fromarray(pixels(300)).convert("CMYK").save(eyes.file(8, "L"))
    eyes.row(9, "R")[3] = "009_OD.png"
    Image.fromarray(pixels(9)[..., 0].astype(np.uint16) * 257).save(eyes.file(9, "R"))
    eyes.row(10, "R")[3], eyes.row(10, "L")[3] = (
        eyes.row(10, "L")[3],
        eyes.row(10, "R")[3],
    )  # eyes exchanged
    eyes.rows.remove(eyes.row(11, "L"))  # one eye only
    eyes.row(12, "L")[3] = ""
    eyes.row(13, "R")[2] = ""
    eyes.row(14, "R")[2] = "2.4"
    eyes.row(15, "R")[2] = "24.l"
    eyes.row(16, "R")[1] = "OU"
    eyes.rows.append(list(eyes.row(17, "L")))
    eyes.row(18, "R")[3] = "018_OD.JPEG"
    eyes.row(19, "R")[0] = eyes.row(19, "L")[0] = "1"
    (eyes.folder / "notes.jpg").write_bytes(eyes.file(0, "L").read_bytes())
    (eyes.folder / "._000_OD.jpg").write_bytes(b"\0\5\26\7")


def test_a_good_folder_passes_and_trains(eyes, capsys):
    report = eyes.check()
    assert report.problems == []
    assert report.flow["photographs"] == 40 and report.flow["patients kept"] == 20
    assert report.flow["photographs that cannot be used"] == 0
    folds = describe_folds(report.data, 5, 0)
    assert len(folds) == 6 and all("4 patients" in line for line in folds[1:])
    data = load_paired_table(eyes.table, eyes.folder, LAYOUT)
    assert report.data.hash == data.hash and report.data.notes == data.notes
    assert data.ids[3] == "003" and data.load().shape == (20, 2, 3, 16, 16) and data.complete.all()
    torch.testing.assert_close(data.images[np.array([3])][0, 0], read_image(eyes.file(3, "L"), 16))


def test_every_fault_is_named_and_none_hides_another(eyes):
    spoil(eyes)
    report = eyes.check()
    errors, warned = texts(report.problems, True), texts(report.problems, False)
    for line, text in {
        2: "image 000_OD.jpg cannot be read",
        4: "image 001_OD.jpg is empty (zero bytes)",
        6: "image 002_OD.jpg cannot be read",
        8: "image ._003_OD.jpg is a companion file that macOS leaves",
        13: "image 005_OS.jpg ('005', OS) is the same photograph as 004_OS.jpg ('004', OS), line 11",
    }.items():
        assert f"line {line}, column 'photo': {text}" in errors
    for text in (
        "column 'al': '2.4' is outside the limits 15 to 40",
        "column 'al': '24.l' is no number",
        "column 'side': 'OU' is no known code",
        "OS of patient '017' stands in line",
        "018_OD.JPEG does not exist",
        ", but 018_OD.jpg does",
    ):
        assert text in errors, text
    assert len(report.errors) == 10
    for text in (
        "006_OD.jpg is turned by its EXIF tag (orientation 6)",
        "006_OS.jpg is mirrored by its EXIF tag",
        "is it the eye that the table says?",
        "007_R.png has mode P",
        "007_L.png has mode RGBA",
        "008_OS.jpg has mode CMYK",
        "009_OD.png has 16 bits a channel",
        "010_OS.jpg is in the place of OD, its name says OS",
        "010_OD.jpg is in the place of OS",
        "patient '011' has a usable photograph of OD only",
        "patient '012' has a usable photograph of OD only",
        "patients '001' and '1' differ in zeros",
        "._000_OD.jpg is a companion file",
    ):
        assert text in warned, text
    assert "008_R.png" not in errors + warned  # a grey picture is no fault
    flow = report.flow
    # 38 rows remain (an unknown code, a double), 012 OS names no file: 37 named, of which five cannot be used
    assert (
        flow["rows"] == 40
        and flow["photographs that cannot be used"] == 5
        and flow["photographs"] == 32
    )
    assert flow["patients kept"] == 20 and flow["photographs in the folder that no row names"] >= 2


def test_the_command_prints_it_and_changes_nothing(eyes, capsys, tmp_path):
    layout = tmp_path / "layout.yml"
    layout.write_text(YAML)
    words = [
        "check-data",
        "--csv",
        str(eyes.table),
        "--images",
        str(eyes.folder),
        "--layout",
        str(layout),
    ]
    eyes.write()
    assert cli.main([*words, "--folds", "5"]) == 0
    out = capsys.readouterr().out
    assert (
        "0 errors" in out
        and "r = OD" in out
        and "fold 5: 4 patients" in out
        and "can be used" in out
    )
    save_turned(eyes.file(6, "R"), 6)
    assert cli.main(words) == 0 and cli.main([*words, "--strict"]) == 1
    capsys.readouterr()
    spoil(eyes)
    eyes.write()
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in eyes.folder.iterdir()}
    assert cli.main(words) == 1
    out = capsys.readouterr().out
    assert "10 errors" in out and "correct what is listed above" in out
    assert {
        path: hashlib.sha256(path.read_bytes()).digest() for path in eyes.folder.iterdir()
    } == before
    assert (
        cli.main([*words[:3], "--layout", str(layout)]) == 1
    )  # the table alone has its faults too
    assert cli.main(["check-data", "--csv", str(tmp_path / "none.csv")]) == 2
    assert "none.csv cannot be read" in capsys.readouterr().err


def test_no_photographs_and_rare_classes_are_errors(eyes):
    eyes.write()
    with pytest.raises(DataError, match="folder of photographs .*nowhere does not exist"):
        check(eyes.table, eyes.folder / "nowhere", LAYOUT)
    for row in eyes.rows[1:]:
        row[2] = "24"
    with pytest.raises(DataError, match="0 ones; use fewer folds"):
        describe_folds(eyes.check().data, 4, 0)


def test_one_photograph_for_both_eyes_and_labels_of_a_patient(eyes):
    eyes.row(2, "L")[3] = eyes.row(2, "R")[3]
    eyes.row(3, "L")[3] = ""
    eyes.write()
    layout = {**LAYOUT, "patient_level": ["HM"]}
    problems = check(eyes.table, eyes.folder, layout).problems
    assert "('002', OD) is the same photograph as 002_OD.jpg ('002', OS)" in texts(problems, True)
    assert "is a label of the patient still true for the eye that is left?" in texts(
        problems, False
    )


@pytest.mark.parametrize(
    "name, eye",
    [
        ("RET002OD.jpg", "OD"),
        ("7_OS_1.jpg", "OS"),
        ("10_left.jpeg", "OS"),
        ("5 R.png", "OD"),
        ("portrait.png", None),
        ("OD_OS.png", None),
        ("0815.png", None),
        ("lower.png", None),
    ],
)
def test_the_eye_in_a_name(name, eye):
    assert eye_in_name(name) == eye


def test_sixteen_bits_are_scaled_and_not_cut(tmp_path):
    levels = np.tile(np.arange(0, 256, 8, dtype=np.uint16), (32, 1))
    Image.fromarray((levels * 257).astype(np.uint16)).save(tmp_path / "deep.png")
    assert read_image(tmp_path / "deep.png", 32)[0].tolist() == levels.tolist()
    Image.fromarray((levels * 257).astype(np.uint16)).save(tmp_path / "deep.tiff")
    assert read_image(tmp_path / "deep.tiff", 32)[2].tolist() == levels.tolist()
    Image.fromarray(levels.astype(np.float32)).save(tmp_path / "float.tiff")
    with pytest.raises(DataError, match="32 bits a pixel"):
        read_image(tmp_path / "float.tiff", 32)
    assert "32 bits a pixel" in inspect(tmp_path / "float.tiff").error


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "I;16"])
def test_a_damaged_png_is_found_without_decoding_it(tmp_path, mode):
    picture = (
        Image.fromarray(pixels(1))
        if mode != "I;16"
        else Image.fromarray(pixels(1)[..., 0].astype(np.uint16))
    )
    path = tmp_path / "eye.png"
    (picture if mode == "I;16" else picture.convert(mode)).save(path)
    content = path.read_bytes()
    assert not inspect(path).error and inspect(path).digest
    for stop in range(20, len(content) - 1, 97):
        path.write_bytes(content[:stop])
        assert inspect(path).error, f"cut after {stop} bytes"
    for place in range(40, len(content) - 12, 211):  # between the header and the last chunk
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert inspect(path).error, f"byte {place} is another one"


def test_the_orientation_of_a_png_is_told(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(pixels(2)).save(tmp_path / "eye.png", exif=exif)
    assert "is turned by its EXIF tag (orientation 3)" in inspect(tmp_path / "eye.png").warnings[0]


def test_a_huge_picture_and_dicom_are_named(tmp_path, monkeypatch):
    Image.fromarray(pixels(0)).save(tmp_path / "huge.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert "cannot be read" in inspect(tmp_path / "huge.png").error
    with pytest.raises(DataError, match="huge.png cannot be read"):
        read_image(tmp_path / "huge.png", 16)
    (tmp_path / "eye.dcm").write_bytes(bytes(128) + b"DICM" + bytes(50))
    assert "is DICOM" in inspect(tmp_path / "eye.dcm").error


