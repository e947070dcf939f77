"""A folder of invented photographs and its table, with every fault that real ones have, to practise
on.
"""

import os
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 96  # pixels
LAYOUT = """\
# what the columns of eyes.csv mean
patient: id
eye: side  # R and L are known; {1: OD, 2: OS} would have to be declared under 'laterality'
image: photo
continuous:
  AL: axial_length   # mm
binary:
  HM: se <= -6       # high myopia by a rule; a column of 0 and 1 would do as well
limits:
  AL: [15, 40]       # anything outside is a slip of the pen
size: 48
"""
HEADER = ["id", "side", "axial_length", "se", "photo"]


def practice_eyes(
    folder: str | os.PathLike, rng: np.random.Generator, patients: int = 80, faults: bool = True
) -> Path:
    """Write ``eyes.csv``, ``eyes.yml`` and ``photos/`` into a new folder.

    Axial length (mm) and spherical equivalent (dioptre) of both eyes depend on what a picture shows
    (the width of the crescent at the disc, the contrast of the stripes) and on noise that is alike
    in the two eyes. The table is what a clinic might send: ids with leading zeros, R and L, a
    byte-order mark, semicolons and decimal commas.

    Parameters
    ----------
    folder : path
        Must not exist.
    rng : numpy.random.Generator
    patients : int
        24 or more.
    faults : bool
        Plant each fault of :func:`plant_faults`.

    Returns
    -------
    Path
        The folder.
    """
    folder = Path(folder)
    photos = folder / "photos"
    photos.mkdir(parents=True)
    shown = rng.normal(size=(patients, 1)) + 0.35 * rng.normal(
        size=(patients, 2)
    )  # what the pictures show, by eye
    noise = np.sqrt(0.7) * rng.normal(size=(patients, 1)) + np.sqrt(0.3) * rng.normal(
        size=(patients, 2)
    )
    length = 24.8 + 1.1 * shown + 0.6 * noise
    power = -4.8 - 2.4 * shown - 1.3 * (0.8 * noise + 0.6 * rng.normal(size=(patients, 2)))
    rows = []
    for i in range(patients):
        for j, (side, eye) in enumerate((("L", "OS"), ("R", "OD"))):
            name = f"{i:03d}_{eye}.jpg"
            Image.fromarray(draw_eye(shown[i, j], eye, rng)).save(photos / name, quality=92)
            rows.append([f"{i:03d}", side, f"{length[i, j]:.2f}", f"{power[i, j]:.2f}", name])
    if faults:
        plant_faults(rows, photos)
    write_rows(folder / "eyes.csv", rows)
    (folder / "eyes.yml").write_text(LAYOUT, encoding="utf-8")
    return folder


def draw_eye(shown: float, eye: str, rng: np.random.Generator) -> np.ndarray:
    """Return one invented fundus, ``(96, 96, 3)`` bytes; the disc lies on the nasal side."""
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE - 0.5
    centre = 0.18 if eye == "OD" else -0.18
    disc = np.hypot(x - centre, y)
    strength = 1 / (1 + np.exp(-shown))  # 0 to 1
    stripes = np.sin(60 * x + 6 * np.sin(8 * y + rng.uniform(0, 6)))
    red = 0.72 + 0.12 * strength * stripes
    green = 0.34 + 0.12 * strength * stripes
    crescent = (disc < 0.09 + 0.09 * strength) & (disc > 0.09)
    picture = np.stack([red, green, 0.16 + 0 * x], -1)
    picture[crescent] = (0.92, 0.78, 0.6)
    picture[disc <= 0.09] = (0.96, 0.84, 0.5)
    picture += 0.02 * rng.normal(size=picture.shape)
    picture[np.hypot(x, y) > 0.49] = 0
    return (255 * picture.clip(0, 1)).astype(np.uint8)


def read_rows(path: Path) -> list[list[str]]:
    """Return the rows of a practice table below its header, with decimal points."""
    lines = path.read_text(encoding="utf-8-sig").replace(",", ".").splitlines()
    return [line.split(";") for line in lines[1:]]


def write_rows(path: Path, rows: list[list[str]]) -> None:
    """Write a practice table: byte-order mark, semicolons, decimal commas."""
    lines = [HEADER] + [
        [*row[:2], row[2].replace(".", ","), row[3].replace(".", ","), row[4]] for row in rows
    ]
    path.write_text("\n".join(";".join(line) for line in lines) + "\n", encoding="utf-8-sig")


def find_row(rows: list[list[str]], patient: str, side: str) -> list[str]:
    """Return the first row of one eye."""
    return next(row for row in rows if row[:2] == [patient, side])


def plant_faults(rows: list[list[str]], photos: Path) -> None:
    """Spoil rows and files in place, each fault in a patient of its own.

    Errors: 003 a truncated JPEG, 004 an empty file, 005 a companion file of macOS, 006 and 007 one
    photograph under two patients, 008 a length of 2.4 mm, 009 a letter in a number, 010 an eye that
    is no eye, 011 a row twice, 012 another ending in the table than on the disk. Doubts: 013 the
    two eyes exchanged, 014 an orientation that mirrors, 015 16 bits, 016 a palette and
    transparency, 017 one eye only, 018 and 019 no length, 020 no refraction of either eye, 021 no
    photograph of one eye, 022 an id without its zero, 023 CMYK.
    """

    def row(patient: str, side: str) -> list[str]:
        return find_row(rows, patient, side)

    def another(patient: str, side: str, suffix: str, change, **options) -> None:
        name = row(patient, side)[4]
        with Image.open(photos / name) as picture:
            changed = change(picture.convert("RGB"))
        (photos / name).unlink()
        row(patient, side)[4] = Path(name).stem + suffix
        changed.save(photos / row(patient, side)[4], **options)

    whole = (photos / "003_OD.jpg").read_bytes()
    (photos / "003_OD.jpg").write_bytes(whole[: len(whole) // 2])
    (photos / "004_OS.jpg").write_bytes(b"")
    row("005", "R")[4] = "._005_OD.jpg"
    (photos / "._005_OD.jpg").write_bytes(b"\0\5\26\7")
    (photos / "006_OS.jpg").write_bytes((photos / "007_OS.jpg").read_bytes())
    row("008", "R")[2] = "2.4"
    row("009", "L")[2] = "24.l"
    row("010", "R")[1] = "OU"
    rows.append(list(row("011", "L")))
    row("012", "R")[4] = "012_OD.JPEG"
    row("013", "R")[4], row("013", "L")[4] = row("013", "L")[4], row("013", "R")[4]
    exif = Image.Exif()
    exif[0x0112] = 2
    flip = Image.Transpose.FLIP_LEFT_RIGHT
    another("014", "R", ".jpg", lambda p: p.transpose(flip), exif=exif, quality=92)
    another(
        "015",
        "R",
        ".png",
        lambda p: Image.fromarray(np.asarray(p.convert("L")).astype(np.uint16) * 257),
    )
    another("016", "R", ".png", lambda p: p.convert("P", palette=Image.Palette.ADAPTIVE))
    another("016", "L", ".png", lambda p: p.convert("RGBA"))
    rows.remove(row("017", "L"))
    row("018", "R")[2] = ""
    row("019", "L")[2] = ""
    row("020", "R")[3] = row("020", "L")[3] = ""
    row("021", "L")[4] = ""
    row("022", "R")[0] = "22"
    another("023", "R", ".jpg", lambda p: p.convert("CMYK"), quality=92)
