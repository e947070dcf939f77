"""The command ``cevit check-data``: what is wrong in a table of paired eyes and its photographs.

Reads, never writes.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from cevit_lib.datasets import PairedEyes, split_by_patient
from cevit_lib.datasets.cells import Problem
from cevit_lib.datasets.dicom import read_dicom
from cevit_lib.datasets.layout import EYES, LATERALITY
from cevit_lib.datasets.table import Arranged, Paths, arrange
from cevit_lib.errors import DataError

IMAGES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".dcm")
SHOWN = 200  # lines of one kind; more are counted
TURNED = {
    2: "mirrored",
    3: "turned",
    4: "mirrored",
    5: "mirrored and turned",
    6: "turned",
    7: "mirrored and turned",
    8: "turned",
}
EYE_IN_NAME = re.compile(r"(?<![A-Za-z])(OD|OS|right|left|R|L)(?![A-Za-z])", re.IGNORECASE)
COMPANION = "is a companion file that macOS leaves, no photograph"


@dataclass(frozen=True)
class Seen:
    """What a file of a photograph showed.

    Attributes
    ----------
    digest : str or None
        SHA-256 of its bytes, of DICOM of its pixels; ``None`` where it cannot be used.
    error : str or None
    warnings : list of str
    eye : str or None
        The eye that the file's own header names.
    """

    digest: str | None = None
    error: str | None = None
    warnings: list[str] = field(default_factory=list)
    eye: str | None = None


@dataclass(frozen=True)
class Report:
    """All problems, and what remains.

    Attributes
    ----------
    problems : list of Problem
    flow : dict
        How many patients, eyes and photographs remain, and why not more.
    facts : list of str
        How the table was read: encoding, marks, laterality.
    data : PairedEyes
        The patients who remain, as ``load_paired_table`` returns them where nothing is wrong.
    """

    problems: list[Problem]
    flow: dict[str, int]
    facts: list[str]
    data: PairedEyes

    @property
    def errors(self) -> list[Problem]:
        """The problems that stop a fit."""
        return [problem for problem in self.problems if problem.error]


def run_check(options: argparse.Namespace) -> int:
    """Print the report; return 0 when the data can be used, 1 when something is wrong."""
    report = check(options.csv, options.images, options.layout, workers=options.workers)
    errors, folds = report.errors, []
    if options.folds:
        try:
            folds = describe_folds(report.data, options.folds, options.seed)
        except DataError as error:
            errors.append(Problem(str(error)))
    warned = [problem for problem in report.problems if not problem.error]
    print(*report.facts, sep="\n")
    for title, problems in (("errors", errors), ("warnings", warned)):
        print(f"\n{len(problems)} {title}")
        for problem in problems[:SHOWN]:
            print(f"  {problem}")
        if len(problems) > SHOWN:
            print(f"  and {len(problems) - SHOWN} more of them")
    print("\nflow", *(f"  {n:7d}  {what}" for what, n in report.flow.items()), *folds, sep="\n")
    bad = errors or options.strict and warned
    said = "correct what is listed above, then check again" if bad else "can be used"
    print(f"\n{options.csv.name}: {said}", flush=True)
    return 1 if bad else 0


def check(
    table: Path,
    images: Path | None = None,
    layout: Path | dict | None = None,
    workers: int = 2,
    responses: bool = True,
) -> Report:
    """Look for everything wrong in a table, its photographs and how they belong together.

    With ``responses=False`` the table may lack columns of responses, as that of patients who are to
    be predicted.

    Raises
    ------
    DataError
        The table cannot be read at all, the layout does not fit it, or there is no folder of that
        name.
    """
    arranged = arrange(table, layout, responses)
    data, problems = arranged.data, [*arranged.problems, *_similar_ids(arranged)]
    flow = dict(data.notes["flow"])
    if images is not None:
        paths = arranged.image_paths(images)
        usable, found = _check_files(arranged, paths, images, workers)
        data = arranged.with_photographs(usable)
        strays = _strays(images, paths)
        problems += [*found, *_one_eye_only(arranged, usable)]
        problems += [
            Problem(f"{path.name} {COMPANION}; it is not used", error=False)
            for path in strays
            if path.name.startswith("._")
        ]
        flow = dict(data.notes["flow"])
        named = sum(path is not None for row in paths for path in row)
        flow["photographs that cannot be used"] = named - flow["photographs"]
        flow["photographs in the folder that no row names"] = len(strays)
    flow["patients kept"] = len(data)
    problems.sort(key=lambda problem: (problem.line or 0, problem.column or ""))
    kept = {**data.notes["flow"], "patients kept": len(data)}
    data = data.replace(name=table.stem, notes={**data.notes, "flow": kept})
    return Report(problems, flow, _facts(arranged), data)


def inspect(path: Path) -> Seen:
    """Read one photograph as far as needed to know that all of it is there.

    JPEG is decoded at an eighth, and of PNG the checksum of every chunk is compared: both much
    faster than decoding.
    """
    if path.name.startswith("._"):
        return Seen(error=f"{COMPANION}; name the one without '._'")
    try:
        content = path.read_bytes()
    except OSError as error:
        said = error.strerror or error
        return Seen(error=f"cannot be read ({said}); restore it or empty the cell")
    if not content:
        return Seen(error="is empty (zero bytes); fetch it again")
    if content[128:132] == b"DICM":
        return _inspect_dicom(path)
    try:
        with Image.open(io.BytesIO(content)) as picture:
            notes = list(_doubts(picture, content))
            if picture.mode in ("I", "F"):
                said = f"has 32 bits a pixel (mode {picture.mode}); save it with 8 or 16 bits"
                return Seen(error=said)
            if picture.format == "PNG" and not _has_exif(content):
                picture.verify()
            else:
                picture.draft("RGB", (64, 64))
                picture.load()
    except Exception as error:  # whatever a damaged file provokes in a decoder: others remain
        return Seen(error=f"cannot be read ({error}); truncated or no image: fetch it again")
    return Seen(hashlib.sha256(content).hexdigest(), warnings=notes)


def _doubts(picture: Image.Image, content: bytes) -> Iterator[str]:
    """Yield what a photograph's header makes one wonder about."""
    if ";16" in f"{picture.mode} {picture.tile}":
        yield "has 16 bits a channel; it is scaled to 8"
    elif picture.mode not in ("RGB", "L"):
        yield f"has mode {picture.mode}, not RGB; it is converted, transparency is lost"
    png = picture.format == "PNG" and not _has_exif(content)
    orientation = 1 if png else picture.getexif().get(0x0112, 1)
    how = TURNED.get(orientation, "")
    if how:
        doubt = ": is it the eye that the table says?" if "mirrored" in how else ""
        yield f"is {how} by its EXIF tag (orientation {orientation}), which is honoured{doubt}"
    if getattr(picture, "n_frames", 1) > 1:
        yield f"has {picture.n_frames} pages; the first one is used"


def _has_exif(content: bytes) -> bool:
    """Tell whether a PNG may hold an orientation, also as ImageMagick once wrote it."""
    return any(mark in content for mark in (b"eXIf", b"Raw profile type", b"XML:com.adobe.xmp"))


def _inspect_dicom(path: Path) -> Seen:
    try:
        picture, header = read_dicom(path)
    except DataError as error:
        return Seen(error=str(error).removeprefix(f"image {path} "))
    bits, frames = int(header.BitsStored), int(header.get("NumberOfFrames") or 1)
    notes = [f"has {bits} bits a sample; it is scaled to 8"] if bits != 8 else []
    notes += [f"has {frames} frames; the first one is used"] if frames > 1 else []
    side = str(header.get("ImageLaterality") or header.get("Laterality") or "")
    digest = hashlib.sha256(picture.tobytes()).hexdigest()
    return Seen(digest, None, notes, {"R": "OD", "L": "OS"}.get(side))


def eye_in_name(name: str) -> str | None:
    """Return the eye that a file's name tells, ``None`` where it tells none or both."""
    told = {LATERALITY[word.casefold()] for word in EYE_IN_NAME.findall(Path(name).stem)}
    return told.pop() if len(told) == 1 else None


def _check_files(
    arranged: Arranged, paths: Paths, folder: Path, workers: int
) -> tuple[Paths, list[Problem]]:
    """Return the paths with ``None`` for what cannot be used, and the problems of all files."""
    there = sorted({path for row in paths for path in row if path is not None and path.is_file()})
    with warnings.catch_warnings(), ThreadPoolExecutor(max(1, workers)) as pool:
        warnings.simplefilter("ignore")  # Pillow's own remarks would come between ours
        seen = dict(zip(there, pool.map(inspect, there), strict=True))
    problems, owners, usable = [], defaultdict(list), []
    for patient, row in zip(arranged.data.ids, paths, strict=True):
        usable.append([path if path in seen and seen[path].digest else None for path in row])
        for eye, path in zip(EYES, row, strict=True):
            if path is None:
                continue
            found = seen.get(path) or Seen(error=f"does not exist in {folder}{_other_case(path)}")
            place = (arranged.line(patient, eye), arranged.layout.image_column(eye))
            problems += [
                Problem(f"image {path.name} {text}", *place, error=error)
                for text, error in _said_of(path.name, found, eye)
            ]
            if found.digest:
                owners[found.digest].append((f"{path.name} ({patient!r}, {eye})", place))
    for (first, (line, _)), *others in owners.values():
        for other, place in others:
            text = f"image {other} is the same photograph as {first}, line {line}"
            problems.append(Problem(f"{text}; one of them is wrong", *place))
    return usable, problems


def _said_of(name: str, found: Seen, eye: str) -> Iterator[tuple[str, bool]]:
    """Yield what is to be said of a photograph in an eye's place, and whether it is an error."""
    if found.error:
        yield found.error, True
    yield from ((text, False) for text in found.warnings)
    if eye_in_name(name) not in (None, eye):
        said = f"its name says {eye_in_name(name)}; look which is right"
        yield f"is in the place of {eye}, {said}", False
    if found.eye not in (None, eye):
        said = f"its DICOM header says {found.eye}; correct the one that is wrong"
        yield f"is in the place of {eye}, {said}", True


def _other_case(path: Path) -> str:
    """Hint at a file whose name differs in upper and lower case or in its ending only."""
    near = [p.name for p in path.parent.glob("*") if p.stem.casefold() == path.stem.casefold()]
    return f", but {min(near)} does" if near else "; restore it or empty the cell"


def _similar_ids(arranged: Arranged) -> Iterator[Problem]:
    """Warn of two patients whose ids differ in leading zeros or upper and lower case only."""
    first: dict[str, str] = {}
    for patient in arranged.data.ids:
        other = first.setdefault(patient.lstrip("0").casefold(), patient)
        if other != patient:
            text = f"patients {other!r} and {patient!r} differ in zeros or case only"
            text += "; one person must have one id"
            yield Problem(text, arranged.line(patient), arranged.layout.patient, error=False)


def _one_eye_only(arranged: Arranged, usable: Paths) -> Iterator[Problem]:
    for patient, row in zip(arranged.data.ids, usable, strict=True):
        eyes = [eye for eye, path in zip(EYES, row, strict=True) if path is not None]
        if len(eyes) == 2:
            continue
        text = f"patient {patient!r} has no usable photograph and is left out"
        if eyes:
            text = f"patient {patient!r} has a usable photograph of {eyes[0]} only"
        if eyes and arranged.layout.patient_level:
            text += "; is a label of the patient still true for the eye that is left?"
        yield Problem(text, arranged.line(patient), error=False)


def _strays(folder: Path, paths: Paths) -> list[Path]:
    """Return the photographs that no row names."""
    named = {os.path.normpath(path) for row in paths for path in row if path is not None}
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in IMAGES and path.is_file() and os.path.normpath(path) not in named
    ]


def _facts(arranged: Arranged) -> list[str]:
    layout, codes = arranged.layout, {code: eye for eye, code in arranged.layout.eyes.items()}
    if layout.eye:
        seen = sorted(set(arranged.cells.frame[layout.eye].str.casefold()))
        codes = {code: layout.codes[code] for code in seen if code in layout.codes}
    table, rules = arranged.data.notes["table"], {**layout.continuous, **layout.binary}
    return [
        "table: " + ", ".join(f"{key} {value!r}" for key, value in table.items()),
        "laterality: " + ", ".join(f"{code} = {eye}" for code, eye in codes.items()),
        "responses: " + ", ".join(f"{name} = {text}" for name, text in rules.items()),
    ]


def describe_folds(data: PairedEyes, folds: int, seed: int) -> list[str]:
    """Return patients, means with SD and counts of ones in each fold.

    Raises
    ------
    DataError
        A fold lacks a class.
    """
    lines = ["\ncharacteristics of the folds (mean and SD, or ones of those observed)"]
    splits = split_by_patient(data, folds, np.random.default_rng(seed))
    for number, split in enumerate(splits, 1):
        y = data.y[split.test].numpy()
        cells = [
            f"{name} {characteristic(y[:, k], k < data.continuous)}"
            for k, name in enumerate(data.responses)
        ]
        lines.append(f"  fold {number}: {len(split.test)} patients; " + ", ".join(cells))
    return lines


def characteristic(values: np.ndarray, continuous: bool) -> str:
    """Return mean and SD of what was observed, or how many ones of how many."""
    seen = values[np.isfinite(values)]
    if not continuous:
        return f"{int(seen.sum())} of {len(seen)}"
    return f"{seen.mean():.2f} ({seen.std(ddof=1):.2f})" if len(seen) > 1 else "–"
