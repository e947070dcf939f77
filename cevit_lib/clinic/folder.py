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


Place = tuple[Path, int, str]  # a photograph, its row and eye


class Folder:
    """The photographs of a table: which can be used, and where the others may be."""

    def __init__(self, folder: Path, arranged: Arranged) -> None:
        self.folder, self.arranged = folder, arranged
        self.paths = arranged.image_paths(folder)
        named = {os.path.normpath(path) for row in self.paths for path in row if path is not None}
        pictures = sorted(
            path
            for path in folder.rglob("*")
            if path.suffix.lower() in IMAGES and path.is_file() and not path.name.startswith("._")
        )
        self.unnamed = [path for path in pictures if os.path.normpath(path) not in named]
        self.searches = 0

    def check(self) -> tuple[Paths, list[Problem]]:
        """Return the paths with ``None`` for what cannot be used, and the problems of all files."""
        domains = self.arranged.layout.domains
        places = [
            (path, row, eye)
            for row, files in enumerate(self.paths)
            for eye, path in zip(domains, files, strict=True)
        ]
        there = sorted({path for path, *_ in places if path is not None and path.is_file()})
        with warnings.catch_warnings(), ThreadPoolExecutor(granted_cores()) as pool:
            warnings.simplefilter("ignore")  # Pillow's own remarks would come between ours
            seen = dict(zip(there, pool.map(inspect, there), strict=True))
        problems, owners = [], defaultdict(list)
        for place in places:
            found = seen.get(place[0])
            said = self._not_found(*place) if found is None else self._said_of(found, *place)
            problems += [self._problem(place, *each) for each in said]
            if found is not None and found.digest:
                owners[found.digest].append(place)
        for first, *others in owners.values():
            said = f"is the same photograph as {self._whose(first)}, line {self._line(first)}"
            problems += [
                self._problem(one, f"{said}; one of them is wrong", True) for one in others
            ]
        usable = {path for path, found in seen.items() if found.digest}
        kept = [[path if path in usable else None for path in row] for row in self.paths]
        firsts = [own[0] for own in owners.values()]
        return kept, problems + [self._problem(*said) for said in self._together(seen, firsts)]

    def strays(self) -> Iterator[Problem]:
        """Yield the photographs in the folder that no row names."""
        others = [path.name for path in self.unnamed]
        if others:
            text = f"{len(others)} photographs in the folder are named by no row of the table: "
            more = ", ..." if len(others) > 5 else ""
            yield Problem(text + ", ".join(others[:5]) + more, error=False)

    def _line(self, place: Place) -> int | None:
        _, row, eye = place
        return self.arranged.line(row, eye) or self.arranged.line(row)

    def _whose(self, place: Place) -> str:
        path, row, eye = place
        return f"{path.name} ({self.arranged.data.ids[row]!r}, {eye})"

    def _problem(self, place: Place, text: str, error: bool = False) -> Problem:
        _, row, eye = place
        name, column = self.arranged.file_name(row, eye), self.arranged.layout.image_column(eye)
        return Problem(f"image {name} {text}", self._line(place), column, error=error)

    def _said_of(self, found: Seen, path: Path, row: int, eye: str) -> Iterator[tuple[str, bool]]:
        """Yield what is to be said of a photograph in an eye's place; whether it is an error."""
        if found.error:
            yield found.error, True
        yield from ((text, False) for text in found.warnings)
        domains = dict(zip(EYES, self.arranged.layout.domains, strict=True))
        for told, source, header in (
            (eye_in_name(path.name), "name says {}; look which is right", False),
            (found.eye, "DICOM header says {}; correct the one that is wrong", True),
        ):
            if domains.get(told, eye) != eye:
                yield f"is in the place of {eye}, its {source.format(domains[told])}", header
        if self.arranged.line(row, eye) is None:
            yield f"is seen although the table has no row of {eye} of its patient", False

    def _not_found(self, path: Path | None, row: int, eye: str) -> Iterator[tuple[str, bool]]:
        """Yield that a file is not there and which one is meant; whether that is certain, or the
        table names it.
        """
        name, pattern = self.arranged.file_name(row, eye), self.arranged.layout.file
        if path is None and not pattern:
            return
        said, stem = f"does not exist in {self.folder}", Path(name).stem
        meant = [path for path in self.unnamed if plain(path.stem) == plain(stem)]
        if meant:
            relative = meant[0].relative_to(self.folder)
            why = "" if folded(meant[0].stem) == folded(stem) else ": did the id lose its zeros?"
            why = f": 'suffix: {relative.suffix}' in the layout" if not Path(name).suffix else why
            yield f"{said}, but {relative} does{why}", True
            return
        self.searches += 1
        near = nearest(name, [p.name for p in self.unnamed]) if self.searches <= SEARCHES else ""
        remedy = "correct 'file' or restore it" if pattern else "restore it or empty the cell"
        yield f"{said}{near}; {remedy}", not pattern

    def _together(self, seen: dict[Path, Seen], places: list[Place]) -> Iterator[tuple[Place, str]]:
        """Yield what only all photographs together make one doubt."""
        if not places:
            return
        chosen, layout = [seen[path] for path, *_ in places], self.arranged.layout
        small = np.array([each.small for each in chosen])
        notes = strange(chosen, layout.size)
        yield from ((places[k], text) for k, texts in enumerate(notes) for text in texts)
        for one, two, mirrored in near_duplicates(small):
            if not any(np.ptp(small[k]) < 12 for k in (one, two)):
                how = "the mirror image of" if mirrored else "nearly the same photograph as"
                which = f"which {layout.organ} is it?"
                yield places[two], f"is {how} {self._whose(places[one])}: {which}"
        if layout.organ == "eye":
            right = np.array([eye == layout.domains[1] for *_, eye in places])
            good = np.array([not texts for texts in notes])
            for k in np.flatnonzero(exchanged(disc_places(small), right) & good):
                text = "has its bright disc where the other eye's lie: exchanged with the other "
                yield places[k], f"{text}eye, mirrored or upside down?"


def plain(name: str) -> str:
    """Return a name without case, separators, leading zeros and the .0 of a number."""
    whole = re.sub(r"(?<=\d)\.0(?!\d)|(?<=[a-z])[\s_.-]+(?=\d)", "", folded(name))
    return re.sub(r"(?<!\d)0+(?=\d)", "", re.sub(r"[\s_.-]+", " ", whole))
