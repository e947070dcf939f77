"""``cevit check-data`` on invented eyes, good ones and ones with every fault."""

import hashlib

import numpy as np
import pytest
import torch
from PIL import Image

from cevit_lib.clinic import cli
from cevit_lib.clinic.check_data import check, describe_folds
from cevit_lib.clinic.pictures import eye_in_name, inspect
from cevit_lib.datasets import load_paired_table, read_image
from cevit_lib.errors import DataError
from studies.your_eyes.practice import find_row, practice_eyes, read_rows, write_rows

FAULTS = (
    "line 9, column 'photo': image 003_OD.jpg cannot be read (image file is truncated",
    "line 10, column 'photo': image 004_OS.jpg is empty (zero bytes)",
    "._005_OD.jpg is a companion file that macOS leaves",
    "007_OS.jpg ('007', OS) is the same photograph as 006_OS.jpg ('006', OS), line 14",
    "column 'axial_length': '2,4' is outside the limits 15 to 40",
    "column 'axial_length': '24,l' is no number",
    "column 'side': 'OU' is no known code of an eye",
    "OS of patient '011' stands in line 24 already",
    "012_OD.JPEG does not exist in",
    ", but 012_OD.jpg does",
)
DOUBTS = (
    "013_OS.jpg is in the place of OD, its name says OS",
    "013_OD.jpg is in the place of OS",
    "014_OD.jpg is mirrored by its EXIF tag (orientation 2)",
    "is it the eye that the table says?",
    "015_OD.png has 16 bits a channel",
    "016_OD.png has mode P",
    "016_OS.png has mode RGBA",
    "patient '017' has a usable photograph of OD only",
    "patient '021' has a usable photograph of OD only",
    "patients '022' and '22' differ in zeros",
    "023_OD.jpg has mode CMYK",
)


def made(folder, faults: bool):
    """Return table, photographs and layout of 24 invented patients."""
    folder = practice_eyes(folder / "own", np.random.default_rng(0), 24, faults)
    return folder / "eyes.csv", folder / "photos", folder / "eyes.yml"


def texts(problems, error: bool) -> str:
    return "\n".join(str(problem) for problem in problems if problem.error == error)


def pixels(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (40, 40, 3), dtype=np.uint8)


def save_turned(path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels(orientation)).save(path, exif=exif)


def test_a_good_folder_passes_and_is_the_data_set(tmp_path):
    table, photos, layout = made(tmp_path, False)
    report, data = check(table, photos, layout), load_paired_table(table, photos, layout)
    assert report.problems == [] and report.flow["photographs that cannot be used"] == 0
    assert report.flow["photographs"] == 48 and report.flow["patients kept"] == 24
    assert report.data.hash == data.hash and report.data.notes == data.notes
    folds = describe_folds(data, 4, 0)
    assert len(folds) == 5 and all("6 patients" in line for line in folds[1:])
    assert data.ids[3] == "003" and data.load().shape == (24, 2, 3, 48, 48) and data.complete.all()
    torch.testing.assert_close(
        data.images[np.array([3])][0, 0], read_image(photos / "003_OS.jpg", 48)
    )


def test_every_fault_is_named_and_the_command_changes_nothing(tmp_path, capsys):
    table, photos, layout = made(tmp_path, True)
    (photos / "notes.png").write_bytes((photos / "000_OS.jpg").read_bytes())
    (photos / "._000_OD.jpg").write_bytes(b"\0\5\26\7")
    report = check(table, photos, layout)
    for error, wanted in ((True, FAULTS), (False, (*DOUBTS, "._000_OD.jpg is a companion file"))):
        said = texts(report.problems, error)
        assert [text for text in wanted if text not in said] == []
    assert len(report.errors) == 9
    # of 003, 004, 005 and 012 one photograph each cannot be used
    assert report.flow["rows"] == 48 and report.flow["photographs that cannot be used"] == 4
    assert report.flow["photographs in the folder that no row names"] >= 2
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in photos.iterdir()}
    words = ["check-data", "--csv", table, "--images", photos, "--layout", layout]
    assert cli.main([str(word) for word in words]) == 1
    out = capsys.readouterr().out
    assert "9 errors" in out and "correct what is listed above" in out
    assert before == {path: hashlib.sha256(path.read_bytes()).digest() for path in before}


def test_the_command_tells_what_it_read_and_doubts_are_errors_on_request(tmp_path, capsys):
    table, photos, layout = made(tmp_path, False)
    words = ["check-data", "--csv", str(table), "--images", str(photos), "--layout", str(layout)]
    assert cli.main([*words, "--folds", "4"]) == 0
    out = capsys.readouterr().out
    for words_of_it in ("0 errors", "r = OD", "fold 4: 6 patients", "can be used"):
        assert words_of_it in out
    save_turned(photos / "006_OD.jpg", 6)
    assert cli.main(words) == 0 and cli.main([*words, "--strict"]) == 1
    assert cli.main(["check-data", "--csv", str(tmp_path / "none.csv")]) == 2
    assert "none.csv cannot be read" in capsys.readouterr().err
    rows = read_rows(table)
    write_rows(table, [[*row[:2], "24.0", "-1.0", row[4]] for row in rows])
    assert cli.main([*words, "--folds", "4"]) == 1
    assert "has 24 zeros and 0 ones: there is nothing to learn" in capsys.readouterr().out
    with pytest.raises(DataError, match="folder of photographs .*nowhere does not exist"):
        check(table, photos / "nowhere", layout)


def test_one_photograph_for_both_eyes_and_labels_of_a_patient(tmp_path):
    table, photos, _ = made(tmp_path, False)
    rows = read_rows(table)
    find_row(rows, "002", "L")[4] = find_row(rows, "002", "R")[4]
    find_row(rows, "003", "L")[4] = ""
    write_rows(table, rows)
    layout = {"patient": "id", "eye": "side", "image": "photo", "binary": {"far": "id == 3"}}
    problems = check(table, photos, {**layout, "patient_level": ["far"]}).problems
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
    for name in ("deep.png", "deep.tiff"):
        Image.fromarray((levels * 257).astype(np.uint16)).save(tmp_path / name)
        assert read_image(tmp_path / name, 32)[0].tolist() == levels.tolist()
    Image.fromarray(levels.astype(np.float32)).save(tmp_path / "float.tiff")
    with pytest.raises(DataError, match="32 bits a pixel"):
        read_image(tmp_path / "float.tiff", 32)
    assert "32 bits a pixel" in inspect(tmp_path / "float.tiff").error


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "I;16"])
def test_a_damaged_png_is_found_without_decoding_it(tmp_path, mode):
    deep = Image.fromarray(pixels(1)[..., 0].astype(np.uint16))
    path = tmp_path / "eye.png"
    (deep if mode == "I;16" else Image.fromarray(pixels(1)).convert(mode)).save(path)
    content = path.read_bytes()
    assert not inspect(path).error and inspect(path).digest
    damaged = [content[:stop] for stop in range(20, len(content) - 1, 97)]
    for place in range(40, len(content) - 12, 211):  # between the header and the last chunk
        other = bytes([content[place] ^ 1])
        damaged.append(content[:place] + other + content[place + 1 :])
    for number, wrong in enumerate(damaged):
        path.write_bytes(wrong)
        assert inspect(path).error, number


def test_what_a_file_shows_is_told(tmp_path, monkeypatch):
    save_turned(tmp_path / "eye.png", 3)
    assert "is turned by its EXIF tag (orientation 3)" in inspect(tmp_path / "eye.png").warnings[0]
    Image.fromarray(pixels(8)).convert("L").save(tmp_path / "grey.png")
    assert inspect(tmp_path / "grey.png").warnings == []  # a grey picture is no fault
    for name, content in (
        ("page.jpg", b"<html>please log in</html>"),
        ("eye.dcm", bytes(128) + b"DICM" + bytes(50)),
    ):
        (tmp_path / name).write_bytes(content)
        assert "cannot be read" in inspect(tmp_path / name).error
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # a huge picture
    assert "cannot be read" in inspect(tmp_path / "grey.png").error
    with pytest.raises(DataError, match="grey.png cannot be read"):
        read_image(tmp_path / "grey.png", 16)
