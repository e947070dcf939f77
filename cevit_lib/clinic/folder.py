"""The photographs of a table in their folder: which can be used, and where the others may be."""

from __future__ import annotations

import os
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from cevit_lib.clinic.pictures import (
    COMPANION,
    Seen,
    disc_places,
    exchanged,
    eye_in_name,
    inspect,
    near_duplicates,
    strange,
)
from cevit_lib.datasets.cells import Problem
from cevit_lib.datasets.layout import EYES
from cevit_lib.datasets.rules import folded
from cevit_lib.datasets.table import Arranged, Paths
from cevit_lib.edge import nearest
from cevit_lib.paths import granted_cores

IMAGES = ".jpg .jpeg .png .tif .tiff .bmp .webp .dcm .jp2 .gif .heic .heif .avif".split()
SEARCHES = 20  # absent files for which the nearest name is looked for


class Folder:
    """The photographs of a table: which can be used, and where the others may be."""

    def __init__(self, folder: Path, arranged: Arranged) -> None:
        self.folder, self.arranged = folder, arranged
        self.paths = arranged.image_paths(folder)
        named = {os.path.normpath(path) for row in self.paths for path in row if path is not None}
        there = sorted(path for path in folder.rglob("*") if path.is_file())
        self.unnamed = [
            path
            for path in there
            if path.suffix.lower() in IMAGES and os.path.normpath(path) not in named
        ]
        self.by_name = defaultdict(list)
        for path in there:
            if not path.name.startswith("._"):
                self.by_name[plain(path.stem)].append(path)
        self.free, self.searches = set(self.unnamed), 0

    def check(self) -> tuple[Paths, list[Problem]]:
        """Return the paths with ``None`` for what cannot be used, and the problems of all files."""
        there = {path for row in self.paths for path in row if path is not None and path.is_file()}
        there = sorted(there)
        with warnings.catch_warnings(), ThreadPoolExecutor(granted_cores()) as pool:
            warnings.simplefilter("ignore")  # Pillow's own remarks would come between ours
            seen = dict(zip(there, pool.map(inspect, there), strict=True))
        problems, owners, usable = [], defaultdict(list), []
        for row, files in enumerate(self.paths):
            usable.append([p if p in seen and seen[p].digest else None for p in files])
            for eye, path in zip(self.arranged.layout.domains, files, strict=True):
                if path is None:
                    problems += self._not_found(row, eye)
                    continue
                name = self.arranged.file_name(row, eye)
                found = seen.get(path) or Seen(error=self._absent(name)[0])
                problems += [
                    Problem(f"image {name} {text}", *self._place(row, eye), error=error)
                    for text, error in self._said_of(path.name, found, eye)
                ]
                if self.arranged.line(row, eye) is None and found.digest:
                    said = f"is seen although the table has no row of {eye} of its patient"
                    place = self.arranged.line(row)
                    problems.append(Problem(f"image {name} {said}", place, error=False))
                if found.digest:
                    owners[found.digest].append((path, row, eye))
        for first, *others in owners.values():
            line = self._place(*first[1:])[0]
            for other in others:
                said = f"is the same photograph as {self._whose(*first)}, line {line}"
                said = f"image {self._whose(*other)} {said}; one of them is wrong"
                problems.append(Problem(said, *self._place(*other[1:])))
        return usable, problems + list(self._together(seen, [each[0] for each in owners.values()]))

    def strays(self) -> Iterator[Problem]:
        """Yield the files in the folder that no row names."""
        for path in self.unnamed:
            if path.name.startswith("._"):
                yield Problem(f"{path.name} {COMPANION}; it is not used", error=False)
        others = [path.name for path in self.unnamed if not path.name.startswith("._")]
        if others:
            text = f"{len(others)} photographs in the folder are named by no row of the table: "
            more = ", ..." if len(others) > 5 else ""
            yield Problem(text + ", ".join(others[:5]) + more, error=False)

    def _place(self, row: int, eye: str) -> tuple[int | None, str | None]:
        return self.arranged.line(row, eye), self.arranged.layout.image_column(eye)

    def _whose(self, path: Path, row: int, eye: str) -> str:
        return f"{path.name} ({self.arranged.data.ids[row]!r}, {eye})"

    def _said_of(self, name: str, found: Seen, eye: str) -> Iterator[tuple[str, bool]]:
        """Yield what is to be said of a photograph in an eye's place; whether it is an error."""
        if found.error:
            yield found.error, True
        yield from ((text, False) for text in found.warnings)
        domains = dict(zip(EYES, self.arranged.layout.domains, strict=True))
        told = domains.get(eye_in_name(name))
        if told not in (None, eye):
            yield f"is in the place of {eye}, its name says {told}; look which is right", False
        told = domains.get(found.eye)
        if told not in (None, eye):
            said = f"its DICOM header says {told}; correct the one that is wrong"
            yield f"is in the place of {eye}, {said}", True

    def _absent(self, name: str) -> tuple[str, bool]:
        """Say that a file is not there and which one is meant; whether that is certain."""
        stem = Path(name).stem
        meant = [path for path in self.by_name[plain(stem)] if path in self.free]
        said = f"does not exist in {self.folder}"
        if meant:
            relative = meant[0].relative_to(self.folder)
            why = "" if folded(meant[0].stem) == folded(stem) else ": did the id lose its zeros?"
            why = f": 'suffix: {relative.suffix}' in the layout" if not Path(name).suffix else why
            return f"{said}, but {relative} does{why}", True
        self.searches += 1
        near = nearest(name, [p.name for p in self.unnamed]) if self.searches <= SEARCHES else ""
        return f"{said}{near}; restore it or empty the cell", False

    def _not_found(self, row: int, eye: str) -> Iterator[Problem]:
        """Yield that the file which the layout's pattern asks for is not there."""
        if self.arranged.layout.file:
            name = self.arranged.file_name(row, eye)
            said, certain = self._absent(name)
            said = said.replace("restore it or empty the cell", "correct 'file' or restore it")
            place = self.arranged.line(row, eye) or self.arranged.line(row)
            yield Problem(f"image {name} {said}", place, error=certain)

    def _together(
        self, seen: dict[Path, Seen], places: list[tuple[Path, int, str]]
    ) -> Iterator[Problem]:
        """Yield what only all photographs together make one doubt."""
        if not places:
            return
        chosen, layout = [seen[path] for path, *_ in places], self.arranged.layout
        small = np.array([each.small for each in chosen])

        def told(k: int, text: str) -> Problem:
            path, row, eye = places[k]
            return Problem(f"image {path.name} {text}", *self._place(row, eye), error=False)

        usual = np.median([min(each.shape) for each in chosen])
        if usual < layout.size:
            text = f"the photographs have {usual:.0f} pixels and are enlarged to {layout.size}"
            yield Problem(f"{text} ('size' in the layout, or --size)", error=False)
        notes = strange(chosen, layout.size)
        yield from (told(k, text) for k, texts in enumerate(notes) for text in texts)
        for one, two, mirrored in near_duplicates(small):
            if not any(np.ptp(small[k]) < 12 for k in (one, two)):
                how = "the mirror image of" if mirrored else "nearly the same photograph as"
                yield told(
                    two, f"is {how} {self._whose(*places[one])}: which {layout.organ} is it?"
                )
        if layout.organ == "eye":
            right = np.array([eye == layout.domains[1] for *_, eye in places])
            plain = np.array([not texts for texts in notes])
            for k in np.flatnonzero(exchanged(disc_places(small), right) & plain):
                text = "has its bright disc where the other eye's lie: exchanged with the other "
                yield told(int(k), f"{text}eye, mirrored or upside down?")


def plain(name: str) -> str:
    """Return a name without case, separators, leading zeros and the .0 of a number."""
    whole = re.sub(r"(?<=\d)\.0(?!\d)|(?<=[a-z])[\s_.-]+(?=\d)", "", folded(name))
    return re.sub(r"(?<!\d)0+(?=\d)", "", re.sub(r"[\s_.-]+", " ", whole))
