"""What photographs show: damage, doubts about one, and doubts that only all together raise."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps
from scipy.ndimage import gaussian_filter

from cevit_lib.datasets.dicom import is_dicom, read_dicom
from cevit_lib.datasets.images import eight_bits
from cevit_lib.datasets.kinds import no_photograph
from cevit_lib.datasets.layout import LATERALITY
from cevit_lib.errors import DataError

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
SIDE = 32  # pixels of the small grey picture in which photographs are compared
#: One minus the correlation of two small pictures' details: below it they are nearly the same. Of
#: pictures that all are alike this share of what lies between neighbours is asked for, too.
ALIKE, AMONG_ALIKE, FEW = 0.05, 0.07, 10
BOTH = "looks like two photographs in one file, of which only the middle would be seen; cut it"


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
    shape : tuple of int
        Width and height in pixels.
    small : numpy.ndarray or None
        The whole picture in grey, ``(32, 32)``, 0 to 255.
    """

    digest: str | None = None
    error: str | None = None
    warnings: list[str] = field(default_factory=list)
    eye: str | None = None
    shape: tuple[int, int] = (0, 0)
    small: np.ndarray | None = None


def inspect(path: Path) -> Seen:
    """Read one photograph as far as needed to know that all of it is there, and what it shows.

    JPEG is decoded at an eighth; of PNG the checksum of every chunk is compared.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        said = error.strerror or error
        return Seen(error=f"cannot be read ({said}); restore it or empty the cell")
    if is_dicom(content):
        return _inspect_dicom(path)
    try:
        with Image.open(io.BytesIO(content)) as picture:
            shape = picture.size
            if picture.format == "PNG":
                picture.verify()
        with Image.open(io.BytesIO(content)) as picture:
            notes = list(_doubts(picture))
            picture.draft("RGB", (64, 64))
            small = _small(ImageOps.exif_transpose(eight_bits(picture)))
    except Exception as error:  # whatever a damaged file provokes in a decoder: others remain
        return Seen(error=no_photograph(content, error))
    return Seen(hashlib.sha256(content).hexdigest(), None, notes, None, shape, small)


def _small(picture: Image.Image) -> np.ndarray:
    grey = picture.convert("RGB").convert("L")
    return np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BICUBIC), dtype=np.float32)


def _doubts(picture: Image.Image) -> Iterator[str]:
    """Yield what a photograph's header makes one wonder about."""
    if ";16" in f"{picture.mode} {picture.tile}":
        yield "has 16 bits a channel; it is scaled to 8"
    elif picture.mode not in ("RGB", "L"):
        yield f"has mode {picture.mode}, not RGB; it is converted, transparency is lost"
    orientation = picture.getexif().get(0x0112, 1)
    if how := TURNED.get(orientation, ""):
        doubt = ": is it the side that the table says?" if "mirrored" in how else ""
        yield f"is {how} by its EXIF tag (orientation {orientation}), which is honoured{doubt}"
    if getattr(picture, "n_frames", 1) > 1:
        yield f"has {picture.n_frames} pages; the first one is used"


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
    eye = {"R": "OD", "L": "OS"}.get(side)
    return Seen(digest, None, notes, eye, picture.size, _small(picture))


def eye_in_name(name: str) -> str | None:
    """Return the eye that a file's name tells, ``None`` where it tells none or both."""
    told = {LATERALITY[word.casefold()] for word in EYE_IN_NAME.findall(Path(name).stem)}
    return told.pop() if len(told) == 1 else None


def strange(seen: list[Seen], size: int) -> list[list[str]]:
    """Return what to doubt of each photograph: empty, tiny, two in one, beside the others.

    ``size`` is what they are brought to, in pixels.
    """
    ratios = [each.shape[0] / each.shape[1] for each in seen]
    usual, said = np.median(ratios), []
    for each, ratio in zip(seen, ratios, strict=True):
        notes, level = [], each.small.mean()
        if each.small.std() < 3 or not 6 < level < 249:
            shade = "black" if level < 40 else "white" if level > 215 else "of one shade"
            notes.append(f"is nearly {shade} all over: nothing is to be seen")
        if min(each.shape) < size:
            shape = f"{each.shape[0]} x {each.shape[1]}"
            notes.append(f"has {shape} pixels and is enlarged to {size} ('size'): a thumbnail?")
        odd = max(ratio, 1 / ratio) > 1.9 or max(ratio / usual, usual / ratio) > 1.6
        if odd or _parted(each.small) or _parted(each.small.T):
            notes.append(BOTH)
        said.append(notes)
    return said


def _parted(small: np.ndarray) -> bool:
    """Tell whether a dark stripe in the middle parts two bright halves."""
    bright = small.mean(0)
    middle = SIDE // 2
    least = min(bright[: middle - 2].max(), bright[middle + 2 :].max())
    return least > 25 and bright[middle - 1 : middle + 1].max() < 0.2 * least


def near_duplicates(small: np.ndarray) -> list[tuple[int, int, bool]]:
    """Return pairs of photographs that are nearly the same: both numbers, and whether mirrored.

    Compared are the details of the small pictures ``(n, 32, 32)``: brightness, contrast, size and
    the quality of a JPEG do not count.
    """
    if len(small) < 2:
        return []
    from sklearn.neighbors import NearestNeighbors

    details = np.array([each - gaussian_filter(each, 2.0) for each in small])
    details -= details.mean((1, 2), keepdims=True)
    alike = NearestNeighbors(metric="cosine").fit(details.reshape(len(small), -1))
    limit = ALIKE / 10
    if len(small) >= FEW:
        nearest = alike.kneighbors(n_neighbors=1)[0]
        limit = max(min(ALIKE, AMONG_ALIKE * np.median(nearest)), ALIKE / 100)
    found = []
    for mirrored, whole in ((False, details), (True, details[:, :, ::-1])):
        graph = alike.radius_neighbors_graph(whole.reshape(len(small), -1), limit).tocoo()
        pairs = zip(graph.row, graph.col, strict=True)
        found += [(int(i), int(j), mirrored) for i, j in pairs if i < j]
    return found


def disc_places(small: np.ndarray) -> np.ndarray:
    """Return how far right of the middle the brightest spot lies, ``(n,)``, -1/2 to 1/2; flares at
    the rim do not count.
    """
    if not len(small):
        return np.empty(0)
    y, x = (np.mgrid[:SIDE, :SIDE] + 0.5) / SIDE - 0.5
    bright = [gaussian_filter(each, 1.0) - gaussian_filter(each, 6.0) for each in small]
    spots = np.where(np.hypot(x, y) < 0.36, np.array(bright), -np.inf).reshape(len(small), -1)
    return x.ravel()[spots.argmax(1)]


def exchanged(places: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return which photographs have their disc where the other eye's lie; nobody, where the discs
    of right and left eyes lie alike.

    Parameters
    ----------
    places : (n,) array
        From :func:`disc_places`.
    right : (n,) booleans
        Whether it stands in the place of a right eye.
    """
    nobody = np.zeros(len(places), dtype=bool)
    if min(right.sum(), (~right).sum()) < 8:
        return nobody
    ends = np.median(places[~right]), np.median(places[right])
    gap, middle = ends[1] - ends[0], np.mean(ends)
    wrong = (places - middle) * np.where(right, 1, -1) * np.sign(gap) < -abs(gap) / 4
    return wrong if abs(gap) > 0.12 and wrong.mean() < 0.2 else nobody
