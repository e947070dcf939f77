"""``cevit check-data`` on invented eyes, good ones and ones with every fault."""

import json
import re

import numpy as np
import pytest
from PIL import Image, ImageOps

from cevit_lib.clinic import cli
from cevit_lib.clinic.check_data import check, describe_folds
from cevit_lib.clinic.configuration import load_data, split_of
from cevit_lib.clinic.pictures import eye_in_name, inspect
from cevit_lib.datasets import load_paired_table, read_image
from cevit_lib.errors import DataError
from studies.your_eyes.practice import practice_eyes

FAULTS = (
    "line 9, column 'photo': image 003_OD.jpg cannot be read (image file is truncated",
    "line 10, column 'photo': image 004_OS.jpg cannot be read: it is empty",
    "._005_OD.jpg cannot be read: it is a companion file that macOS leaves",
    "007_OS.jpg is the same photograph as 006_OS.jpg ('006', OS), line 14",
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
    "is it the side that the table says?",
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


def test_a_good_folder_passes_and_is_the_data_set(tmp_path):
    table, photos, layout = made(tmp_path, False)
    report, data = check(table, photos, layout), load_paired_table(table, photos, layout)
    assert report.problems == [] and report.flow["photographs"] == 48
    assert report.data.hash == data.hash and report.data.notes == data.notes
    for number, line in enumerate(describe_folds(data, 4, 7)[1:], 1):  # those of the fit
        test = split_of(data, {"fold": number, "folds": 4}, 7).test
        mean = data.y[test, 0].mean()
        assert f"fold {number}: 6 patients; AL_OS {mean:.2f} " in line
    assert data.ids[3] == "003" and data.load().shape == (24, 2, 3, 48, 48) and data.complete.all()


def test_every_fault_is_named(tmp_path):
    table, photos, layout = made(tmp_path, True)
    (photos / "notes.png").write_bytes((photos / "000_OS.jpg").read_bytes())
    report = check(table, photos, layout)
    for error, wanted in ((True, FAULTS), (False, DOUBTS)):
        said = texts(report.problems, error)
        assert [text for text in wanted if text not in said] == []
    assert len(report.errors) == 9
    # of 003, 004, 005 and 012 one photograph each cannot be used
    assert report.flow["photographs that cannot be used"] == 4
    assert report.flow["photographs in the folder that no row names"] >= 2


def test_the_command_tells_what_it_read_and_doubts_are_errors_on_request(tmp_path, capsys):
    table, photos, layout = made(tmp_path, False)
    words = ["check-data", "--csv", str(table), "--images", str(photos), "--layout", str(layout)]
    assert cli.main([*words, "--folds", "4"]) == 0
    assert "can be used" in capsys.readouterr().out
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels(6)).save(photos / "006_OD.jpg", exif=exif)
    assert cli.main(words) == 0 and cli.main([*words, "--strict"]) == 1
    assert "006_OD.jpg is turned by its EXIF tag (orientation 6)" in capsys.readouterr().out


def test_labels_of_a_patient_of_whom_one_eye_is_left_are_asked_about(tmp_path):
    table, photos, _ = made(tmp_path, False)
    (photos / "003_OS.jpg").unlink()
    layout = {"patient": "id", "eye": "side", "image": "photo", "binary": {"far": "id == 3"}}
    problems = check(table, photos, {**layout, "patient_level": ["far"]}).problems
    said = texts(problems, False)
    assert "is a label of the patient still true for the eye that is left?" in said


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
    assert "32 bits a pixel" in inspect(tmp_path / "float.tiff").error


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "I;16"])
def test_a_damaged_png_is_found_without_decoding_it(tmp_path, mode):
    deep = Image.fromarray(pixels(1)[..., 0].astype(np.uint16))
    path = tmp_path / "eye.png"
    (deep if mode == "I;16" else Image.fromarray(pixels(1)).convert(mode)).save(path)
    content = path.read_bytes()
    assert not inspect(path).error and inspect(path).digest
    damaged = [content[:stop] for stop in range(20, len(content) - 1, 97)]
    damaged += [  # between the header and the last chunk
        content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        for place in range(40, len(content) - 12, 211)
    ]
    for number, wrong in enumerate(damaged):
        path.write_bytes(wrong)
        assert inspect(path).error, number


def test_a_grey_picture_is_no_fault_and_a_huge_one_is(tmp_path, monkeypatch):
    Image.fromarray(pixels(8)).convert("L").save(tmp_path / "grey.png")
    assert inspect(tmp_path / "grey.png").warnings == []
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert "cannot be read" in inspect(tmp_path / "grey.png").error


# ---- what would be lost or made up


def pairs(n: int, row) -> str:
    """A table ``id,eye,al,dx`` of rows by patient and eye (0 left, 1 right)."""
    rows = [f"{i:03d},{'LR'[eye]},{row(i, eye)}" for i in range(n) for eye in (0, 1)]
    return "\n".join(["id,eye,al,dx", *rows]) + "\n"


def length(i: int, eye: int) -> str:
    return f"{22 + (7 * i + 3 * eye) % 40 / 10:.1f}"


def label(i: int, eye: int) -> int:
    return (i // 2 + eye * (i % 3 == 0)) % 2


PLAIN = {"patient": "id", "eye": "eye", "continuous": {"AL": "al"}, "binary": {"DX": "dx"}}
GOOD = pairs(24, lambda i, eye: f"{length(i, eye)},{label(i, eye)}")


def run(folder, text: str, layout: dict, *words, command: str = "check-data") -> int:
    (folder / "eyes.csv").write_text(text)
    (folder / "eyes.yml").write_text(json.dumps(layout))
    places = ["--csv", folder / "eyes.csv", "--layout", folder / "eyes.yml"]
    return cli.main([str(word) for word in (command, *places, *words)])


@pytest.mark.parametrize(
    "change, layout, told",
    [
        (lambda text: text.replace(",L,", ",1,").replace(",R,", ",2,"), {}, "{2: OD or OS, ...}"),
        (lambda text: re.sub(r"\n\d+", "\n", text), {}, "48 rows without a patient's id"),
        (lambda text: text.replace(",L,", ",R,"), {}, "no response of OS is left, only of OD"),
        (lambda text: text, {"binary": {"DX": "dx >= 2"}}, "'DX_OS' is 0 wherever"),
        (lambda text: text, {"image": "al"}, "nothing is left of 48 rows"),
        (lambda text: text, {}, "give 'image' or 'file' in the layout"),
    ],
)
def test_a_table_of_which_nothing_is_left_cannot_be_used(tmp_path, capsys, change, layout, told):
    photos = tmp_path / "photos"
    photos.mkdir()
    words = ["--images", photos] if layout in ({}, {"image": "al"}) and change(GOOD) == GOOD else []
    assert run(tmp_path, change(GOOD), PLAIN | layout, *words) == 1
    out = capsys.readouterr().out
    assert told in out and "correct what is listed above" in out
    assert run(tmp_path, change(GOOD), PLAIN | layout, "--images", photos, command="fit") == 2
    assert "Nothing was fitted" in capsys.readouterr().err


@pytest.mark.parametrize(
    "old, new, error, told",
    [
        ("{patient}", "1{patient}", False, "1000_OS.jpg does not exist in {} (nearest: '000_OS"),
        ("{eye}", "{eye} ", True, "000_OS .jpg does not exist in {}, but 000_OS.jpg does"),
        (".jpg", ".JPEG", True, "000_OS.JPEG does not exist in {}, but 000_OS.jpg does"),
        ("{patient}", "0{patient}", True, "0000_OS.jpg does not exist in {}, but 000_OS.jpg does"),
        ("{patient}", "sub/{patient}", True, "sub/000_OS.jpg does not exist in {}, but 000_OS"),
    ],
)
def test_a_photograph_that_is_not_found_is_told_with_the_nearest(tmp_path, old, new, error, told):
    photos = made(tmp_path, False)[1]
    text = GOOD.replace("\n", "\r\n")
    (tmp_path / "eyes.csv").write_text(text)
    layout = {**PLAIN, "file": "{patient}_{eye}.jpg".replace(old, new), "size": 48}
    report = check(tmp_path / "eyes.csv", photos, layout)
    assert told.format(photos) in texts(report.problems, error)
    layout["file"] = "{patient}_{eye}.jpg"
    (tmp_path / "eyes.csv").write_text(text.replace("\r\n005,L", "\r\n006x,L"))
    said = texts(check(tmp_path / "eyes.csv", photos, layout).problems, False)
    assert "005_OS.jpg is seen although the table has no row of OS of its patient" in said
    assert report.flow["patients without any photograph, left out"] == 24 and report.errors


def test_patients_who_are_left_out_are_told_by_the_fit_too(tmp_path, capsys):
    photos = made(tmp_path, False)[1]
    for path in photos.glob("00[0-4]_*.jpg"):
        path.unlink()
    layout = {**PLAIN, "file": "{patient}_{eye}.jpg", "size": 48}
    assert run(tmp_path, GOOD, layout, "--images", photos) == 0
    places = {"csv": tmp_path / "eyes.csv", "photographs": photos, "layout": layout}
    checked = capsys.readouterr().out
    assert len(load_data({"name": "table", **places})) == 19
    for said in (checked, capsys.readouterr().out):
        assert "19 of 24 patients, 5 left out" in said and "000_OS.jpg does not exist in" in said


@pytest.mark.parametrize(
    "row, layout, error, told",
    [
        (lambda i, e: f"{-9 if i < 3 else length(i, e)},{label(i, e)}", {}, True, "-9 stands in 6"),
        (lambda i, e: f"{999 if i < 2 else length(i, e)},{label(i, e)}", {}, True, "missing: [999"),
        (
            lambda i, e: f"{length(i, e)},{99.9 if i < 2 else 10 + (i + e) % 12}",
            {"continuous": {"IOP": "dx"}, "binary": {}},
            True,
            "99.9 stands in 4 cells beside 10 to 21",
        ),
        (
            lambda i, e: f"{length(i, e)},{999 if i < 2 else 50 + (i + e) % 12}",
            {"binary": {}, "covariates": {"age": "dx"}},
            True,
            "999 stands in 4 cells beside 50 to 61",
        ),
        (
            lambda i, e: f"{length(i, e)},7.5",
            {"binary": {}, "covariates": {"age": "dx"}},
            True,
            "covariate 'age' is 7.5 wherever it is observed",
        ),
        (
            lambda i, e: f"{length(i, e)},{'ABCD'[i % 4]}",
            {"binary": {}, "covariates": {"site b": "dx in [b] else [a, c]"}},
            False,
            "'D' (12): none of the categories a, b, c",
        ),
        (
            lambda i, e: f"{length(i, e)},{'-9.00' if i < 3 else f'{-8 + i / 4:.2f}'}",
            {"binary": {"HM": "dx <= -6"}},
            False,
            "-9 stands in 6 cells beside -7.25 to -2.25",
        ),
        (
            lambda i, e: f"{length(i, e)},{9 if i < 3 else i % 4}",
            {"binary": {"DX": "dx >= 2"}},
            True,
            "9 stands in 6 cells beside 0 to 3",
        ),
        (
            lambda i, e: f"{length(i, e)},{-1 if i < 3 else i % 4}",
            {"binary": {"DX": "dx >= 2"}},
            True,
            "-1 stands in 6 cells beside 0 to 3",
        ),
        (lambda i, e: f"{length(i, e)},{label(i, e) or (9 if i == 1 else 0)}", {}, True, "'9' is"),
        (
            lambda i, e: f"{'2.4' if i + e == 0 else length(i, e)},{label(i, e)}",
            {},
            True,
            "2.4 is no plausible axial length",
        ),
        (
            lambda i, e: f"{length(i, e)},{'990' if i + e == 0 else 90 + 2 * i + e}",
            {"continuous": {"RNFL": "dx"}, "binary": {}},
            False,
            "990 beside a median of 115",
        ),
        (lambda i, e: f"{length(i, 0)},{label(i, e)}", {}, False, "'AL' is the same in both eyes"),
        (lambda i, e: f"{length(i, e)},{i % 2}", {}, False, "'DX' is the same in both eyes of 24"),
        (
            lambda i, e: f"{length(i, e)},{label(i, e)}",
            {"binary": {"DX": "dx", "long": "al >= 24"}},
            False,
            "'AL' and 'long' stand on one column 'al'",
        ),
        (
            lambda i, e: f"{length(i, e)},{i % 4 + (i + e) % 2}",
            {"binary": {"some": "dx >= 2", "more": "dx >= 3"}},
            False,
            "'some' and 'more' stand on one column 'dx'",
        ),
        (
            lambda i, e: f"{(i > 2) * label(i, e)},{label(i, e)}",
            {"binary": {"DX": "dx", "severe": "al"}, "continuous": {}},
            False,
            "'severe_OS' is 1 in 11 patients and 'DX_OS' then always too",
        ),
    ],
)
def test_values_that_cannot_be_what_they_seem_are_told(tmp_path, row, layout, error, told):
    (tmp_path / "eyes.csv").write_text(pairs(24, row))
    problems = check(tmp_path / "eyes.csv", layout=PLAIN | layout).problems
    assert told in texts(problems, error)


def test_labels_that_are_1_apart_from_each_other_are_not_nested(tmp_path):
    layout = {**PLAIN, "binary": {"DX": "dx", "severe": "al"}, "continuous": {}}
    table = pairs(40, lambda i, eye: f"{int(i % 3 > 0)},{label(i, eye)}")
    (tmp_path / "eyes.csv").write_text(table)
    problems = check(tmp_path / "eyes.csv", layout=layout).problems
    assert "then always too" not in texts(problems, False)


@pytest.mark.parametrize(
    "name, change, told",
    [
        ("003_OD", lambda p: p.point(lambda _: 0), "003_OD.jpg is nearly black all over"),
        ("003_OD", lambda p: p.point(lambda _: 255), "003_OD.jpg is nearly white all over"),
        ("003_OD", lambda p: p.resize((12, 12)), "003_OD.jpg has 12 x 12 pixels"),
        (
            "003_OD",
            lambda p: Image.fromarray(np.tile(np.asarray(p), (1, 2, 1))),
            "003_OD.jpg looks like two photographs in one file",
        ),
        (
            "007_OD",
            lambda p: p.resize((120, 120)).point(lambda level: min(255, int(1.1 * level))),
            "007_OD.jpg is nearly the same photograph as 003_OD.jpg ('003', OD)",
        ),
        (
            "003_OS",
            ImageOps.mirror,
            "003_OD.jpg is the mirror image of 003_OS.jpg ('003', OS)",
        ),
        (
            "003_OD",
            lambda p: p.rotate(180),
            "003_OD.jpg has its bright disc where the other eye's lie",
        ),
    ],
)
def test_a_picture_that_shows_no_eye_or_a_wrong_one_is_told(tmp_path, name, change, told):
    table, photos, layout = made(tmp_path, False)
    picture = Image.open(photos / "003_OD.jpg").convert("RGB")
    change(picture).save(photos / f"{name}.jpg", quality=80)
    (problem,) = check(table, photos, layout).problems
    assert told in problem.message and not problem.error


@pytest.mark.parametrize(
    "content, told",
    [
        (b"\0\0\0\x18ftypheic", "it is a HEIC photograph, as phones make them: export"),
        (b"<!doctype html>log in", "it is a web page (HTML): a page that asks to log in"),
        (b"%PDF-1.7", "it is a PDF"),
        (bytes(128) + b"DICM" + bytes(50), "cannot be read"),
    ],
)
def test_a_file_that_is_no_photograph_is_named(tmp_path, content, told):
    (tmp_path / "eye.jpg").write_bytes(content)
    assert told in inspect(tmp_path / "eye.jpg").error
    with pytest.raises(DataError, match="eye.jpg .*cannot be read"):
        read_image(tmp_path / "eye.jpg", 16)
