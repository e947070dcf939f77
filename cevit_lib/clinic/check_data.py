"""The command ``cevit check-data``: everything wrong in a table of paired eyes and its photographs, before a fit.

Reads, never writes. Nothing heavy is imported before the command runs.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import sys
import warnings
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cevit_lib.datasets.cells import Problem
    from cevit_lib.datasets.table import Arranged

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


@dataclass(frozen=True)
class Seen:
    """What a file of a photograph showed.

    Attributes
    ----------
    digest : str or None
        SHA-256 of its bytes, of DICOM of its pixels; ``None`` where it cannot be used.
    errors, warnings : list of str
    eye : str or None
        The eye that the file's own header names.
    """

    digest: str | None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    eye: str | None = None


@dataclass(frozen=True)
class Report:
    """All problems, and how many patients, eyes and photographs remain.

    Attributes
    ----------
    problems : list of Problem
    flow : dict
    facts : list of str
        How the table was read: encoding, marks, laterality.
    folds : list of str
        Characteristics per fold, if asked for.
    """

    problems: list[Problem]
    flow: dict[str, int]
    facts: list[str]
    folds: list[str]

    @property
    def errors(self) -> list[Problem]:
        """The problems that stop a fit."""
        return [problem for problem in self.problems if problem.error]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cevit check-data``."""
    add = parser.add_argument
    add(
        "--csv",
        type=Path,
        required=True,
        help="the table: CSV or .xlsx, one row a patient or one row an eye",
    )
    add(
        "--images",
        type=Path,
        help="folder of the photographs (without it only the table is checked)",
    )
    add(
        "--layout",
        type=Path,
        help="YAML file that names columns, rules and codes (without it usual names are known)",
    )
    add("--folds", type=int, help="also print the characteristics of so many folds by patient")
    add("--seed", type=int, default=0, help="of the division into folds")
    add("--strict", action="store_true", help="warnings count as errors")
    add(
        "--workers",
        type=int,
        default=min(8, os.cpu_count() or 1),
        help="files read at the same time",
    )


def main(options: argparse.Namespace) -> int:
    """Print the report; return 0 when the data can be used, 1 when something is wrong."""
    report = check(
        options.csv, options.images, options.layout, options.folds, options.seed, options.workers
    )
    warned = [problem for problem in report.problems if not problem.error]
    for line in report.facts:
        print(line)
    for title, problems in (("errors", report.errors), ("warnings", warned)):
        print(f"\n{len(problems)} {title}")
        for problem in problems[:SHOWN]:
            print(f"  {problem}")
        if len(problems) > SHOWN:
            print(f"  and {len(problems) - SHOWN} more of them")
    print("\nflow")
    for what, count in report.flow.items():
        print(f"  {count:7d}  {what}")
    for line in report.folds:
        print(line)
    bad = report.errors or options.strict and warned
    print(
        f"\n{options.csv.name}: "
        + ("correct what is listed above, then check again" if bad else "can be used")
    )
    sys.stdout.flush()
    return 1 if bad else 0


def check(
    table: Path,
    images: Path | None = None,
    layout: Path | dict | None = None,
    folds: int | None = None,
    seed: int = 0,
    workers: int = 2,
    responses: bool = True,
) -> Report:
    """Look for everything wrong in a table, its photographs and how they belong together.

    With ``responses=False`` the table may lack columns of responses, as that of patients who are to be predicted.

    Raises
    ------
    DataError
        The table cannot be read at all, the layout does not fit it, or there is no folder of that name.
    """
    from cevit_lib.datasets.table import arrange, blank_unseen, image_paths

    arranged = arrange(table, layout, responses)
    problems = [*arranged.problems, *_similar_ids(arranged)]
    flow, y, keep = dict(arranged.flow), arranged.y.copy(), None
    if images is not None:
        paths = image_paths(arranged, images)
        usable, found = _check_files(arranged, paths, images, workers)
        problems += found
        keep = blank_unseen(arranged, usable, y, flow)
        flow["photographs that cannot be used"] = (
            sum(p is not None for row in paths for p in row) - flow["photographs"]
        )
        problems += _one_eye_only(arranged, usable)
        problems += _strays(images, paths, flow)
    flow["patients kept"] = len(arranged.ids) if keep is None else int(keep.sum())
    characteristics = _folds(arranged, y, keep, folds, seed, problems) if folds else []
    problems.sort(key=lambda problem: (problem.line or 0, problem.column or ""))
    return Report(problems, flow, _facts(arranged), characteristics)


def inspect(path: Path) -> Seen:
    """Read one photograph as far as needed to know that all of it is there.

    JPEG is decoded at an eighth, and of PNG the checksum of every chunk is compared: both much faster than decoding.
    """
    from PIL import Image

    if path.name.startswith("._"):
        return Seen(
            None,
            ["is a companion file that macOS leaves, no photograph; name the one without '._'"],
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        return Seen(
            None, [f"cannot be read ({error.strerror or error}); restore it or empty the cell"]
        )
    if not content:
        return Seen(None, ["is empty (zero bytes); fetch it again"])
    if content[128:132] == b"DICM":
        return _inspect_dicom(path)
    try:
        with Image.open(io.BytesIO(content)) as picture:
            mode, sixteen = picture.mode, ";16" in f"{picture.mode} {picture.tile}"
            frames, checksums = (
                getattr(picture, "n_frames", 1),
                picture.format == "PNG" and not _has_exif(content),
            )
            turned = 1 if checksums else picture.getexif().get(0x0112, 1)
            if checksums:
                picture.verify()
            else:
                picture.draft("RGB", (64, 64))
                picture.load()
    except (
        Exception
    ) as error:  # whatever a damaged file provokes in a decoder, the others are still to be read
        return Seen(None, [f"cannot be read ({error}); truncated or no image: fetch it again"])
    if mode in ("I", "F"):
        return Seen(None, [f"has 32 bits a pixel (mode {mode}); save it with 8 or 16 bits"])
    notes = []
    if sixteen:
        notes.append("has 16 bits a channel; it is scaled to 8")
    elif mode not in ("RGB", "L"):
        notes.append(f"has mode {mode}, not RGB; it is converted, transparency is lost")
    if turned in TURNED:
        doubt = ": is it the eye that the table says?" if "mirrored" in TURNED[turned] else ""
        notes.append(
            f"is {TURNED[turned]} by its EXIF tag (orientation {turned}), which is honoured{doubt}"
        )
    if frames > 1:
        notes.append(f"has {frames} pages; the first one is used")
    return Seen(hashlib.sha256(content).hexdigest(), [], notes)


def _has_exif(content: bytes) -> bool:
    """Tell whether a PNG may hold an orientation, in its own chunk or as ImageMagick once wrote it."""
    return b"eXIf" in content or b"Raw profile type" in content or b"XML:com.adobe.xmp" in content


def _inspect_dicom(path: Path) -> Seen:
    from cevit_lib.datasets.dicom import read_dicom
    from cevit_lib.errors import DataError

    try:
        found = read_dicom(path)
    except DataError as error:
        return Seen(None, [str(error).removeprefix(f"image {path} ")])
    notes = [f"has {found.bits} bits a sample; it is scaled to 8"] if found.bits != 8 else []
    notes += [f"has {found.frames} frames; the first one is used"] if found.frames > 1 else []
    return Seen(hashlib.sha256(found.picture.tobytes()).hexdigest(), [], notes, found.eye)


def eye_in_name(name: str) -> str | None:
    """Return the eye that a file's name tells, ``None`` where it tells none or both."""
    from cevit_lib.datasets.layout import LATERALITY

    told = {LATERALITY[word.casefold()] for word in EYE_IN_NAME.findall(Path(name).stem)}
    return told.pop() if len(told) == 1 else None


def _check_files(
    arranged: Arranged, paths: tuple, folder: Path, workers: int
) -> tuple[tuple, list[Problem]]:
    """Return the paths with ``None`` for what cannot be used, and the problems of all files."""
    from cevit_lib.datasets.cells import Problem
    from cevit_lib.datasets.layout import EYES
    from cevit_lib.datasets.table import image_column

    names = {path for row in paths for path in row if path is not None}
    there = sorted(path for path in names if path.is_file())
    with warnings.catch_warnings(), ThreadPoolExecutor(max(1, workers)) as pool:
        warnings.simplefilter(
            "ignore"
        )  # Pillow's own remarks on damaged tags would come between ours
        seen = dict(zip(there, pool.map(inspect, there), strict=True))
    problems, owners, usable = [], defaultdict(list), []
    for patient, lines, row in zip(arranged.ids, arranged.lines, paths, strict=True):
        good = []
        for eye, path in zip(EYES, row, strict=True):
            good.append(path if path in seen and seen[path].digest else None)
            if path is None:
                continue
            line, column = lines.get(eye), image_column(arranged.layout, eye)
            what = seen.get(path) or Seen(None, [f"does not exist in {folder}{_other_case(path)}"])
            problems += [Problem(f"image {path.name} {text}", line, column) for text in what.errors]
            problems += [
                Problem(f"image {path.name} {text}", line, column, error=False)
                for text in what.warnings
            ]
            if eye_in_name(path.name) not in (None, eye):
                text = f"image {path.name} is in the place of {eye}, its name says {eye_in_name(path.name)}"
                problems.append(Problem(text + "; look which is right", line, column, error=False))
            if what.eye not in (None, eye):
                text = (
                    f"image {path.name} is in the place of {eye}, its DICOM header says {what.eye}"
                )
                problems.append(Problem(text + "; correct the one that is wrong", line, column))
            if what.digest:
                owners[what.digest].append((patient, eye, line, column, path.name))
        usable.append(tuple(good))
    for first, *others in owners.values():
        for patient, eye, line, column, name in others:
            text = f"image {name} ({patient!r}, {eye}) is the same photograph as {first[4]} ({first[0]!r}, {first[1]})"
            problems.append(Problem(f"{text}, line {first[2]}; one of them is wrong", line, column))
    return tuple(usable), problems


def _other_case(path: Path) -> str:
    """Hint at a file whose name differs in upper and lower case or in its ending only."""
    near = (
        [p.name for p in path.parent.glob("*") if p.stem.casefold() == path.stem.casefold()]
        if path.stem
        else []
    )
    return f", but {sorted(near)[0]} does" if near else "; restore it or empty the cell"


def _similar_ids(arranged: Arranged) -> list[Problem]:
    """Warn of two patients whose ids differ in leading zeros or upper and lower case only."""
    from cevit_lib.datasets.cells import Problem

    first, problems = {}, []
    for patient, lines in zip(arranged.ids, arranged.lines, strict=True):
        other = first.setdefault(patient.lstrip("0").casefold(), patient)
        if other != patient:
            text = f"patients {other!r} and {patient!r} differ in zeros or case only; one person must have one id"
            problems.append(
                Problem(text, min(lines.values()), arranged.layout.patient, error=False)
            )
    return problems


def _one_eye_only(arranged: Arranged, usable: tuple) -> list[Problem]:
    from cevit_lib.datasets.cells import Problem
    from cevit_lib.datasets.layout import EYES

    problems = []
    for patient, lines, row in zip(arranged.ids, arranged.lines, usable, strict=True):
        eyes = [eye for eye, path in zip(EYES, row, strict=True) if path is not None]
        if len(eyes) == 2:
            continue
        text = (
            f"patient {patient!r} has a usable photograph of {eyes[0]} only"
            if eyes
            else f"patient {patient!r} has no usable photograph and is left out"
        )
        if eyes and arranged.layout.patient_level:
            text += "; is a label of the patient still true for the eye that is left?"
        problems.append(Problem(text, min(lines.values()), error=False))
    return problems


def _strays(folder: Path, paths: tuple, flow: dict[str, int]) -> list[Problem]:
    """Count photographs that no row names, and warn of the companion files of macOS."""
    from cevit_lib.datasets.cells import Problem

    named = {os.path.normpath(path) for row in paths for path in row if path is not None}
    others = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in IMAGES and path.is_file() and os.path.normpath(path) not in named
    ]
    flow["photographs in the folder that no row names"] = len(others)
    return [
        Problem(
            f"{path.name} is a companion file that macOS leaves, no photograph; it is not used",
            error=False,
        )
        for path in others
        if path.name.startswith("._")
    ]


def _facts(arranged: Arranged) -> list[str]:
    layout, facts = arranged.layout, arranged.facts
    rules = {**layout.continuous, **layout.binary}
    return [
        "table: " + ", ".join(f"{key} {value!r}" for key, value in facts.items()),
        "laterality: " + ", ".join(f"{code} = {eye}" for code, eye in arranged.codes.items()),
        "responses: " + ", ".join(f"{name} = {text}" for name, text in rules.items()),
    ]


def _folds(
    arranged: Arranged, y, keep, folds: int, seed: int, problems: list[Problem]
) -> list[str]:
    """Return patients, means with SD and counts of ones in each fold; a class that a fold lacks is an error."""
    import numpy as np
    import torch

    from cevit_lib.datasets import PairedEyes, split_by_patient
    from cevit_lib.datasets.cells import Problem
    from cevit_lib.errors import DataError

    rows = np.ones(len(y), dtype=bool) if keep is None else keep
    ids = tuple(patient for patient, kept in zip(arranged.ids, rows, strict=True) if kept)
    data = PairedEyes(None, torch.from_numpy(y[rows]), ids, arranged.responses, arranged.continuous)
    try:
        splits = split_by_patient(data, folds, np.random.default_rng(seed))
    except DataError as error:
        problems.append(Problem(str(error)))
        return []
    lines = ["\ncharacteristics of the folds (mean and SD, or ones of those observed)"]
    for number, split in enumerate(splits, 1):
        cells = []
        for k, name in enumerate(data.responses):
            seen = data.y[split.test, k].numpy()
            seen = seen[np.isfinite(seen)]
            if k >= data.continuous:
                cells.append(f"{name} {int(seen.sum())} of {len(seen)}")
            else:
                cells.append(
                    f"{name} {seen.mean():.2f} ({seen.std(ddof=1):.2f})"
                    if len(seen) > 1
                    else f"{name} -"
                )
        lines.append(f"  fold {number}: {len(split.test)} patients; " + ", ".join(cells))
    return lines
