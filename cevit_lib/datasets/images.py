"""Image files read when they are needed: orientation honoured, a damaged file named, one eye
mirrored on request; decoded once where there is a folder for their bytes.
"""

import contextlib
import hashlib
import io
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from cevit_lib.datasets.dicom import is_dicom, read_dicom
from cevit_lib.errors import DataError
from cevit_lib.paths import cache_folder, granted_cores, whole_file


def read_image(path: Path, size: int, *, mirror: bool = False) -> torch.Tensor:
    """Read one photograph as a square RGB tensor.

    The EXIF orientation is applied, 16 bits a channel are scaled to 8, the short side is resized to
    ``size`` (bicubic, anti-aliased) and the centre is cut out.

    Parameters
    ----------
    path : Path
        JPEG, PNG, TIFF or any other file that Pillow reads, or DICOM (with pydicom, the extra
        ``dicom``).
    size : int
        Height and width of the result in pixels.
    mirror : bool
        Flip left and right, so that a left eye lies as a right one.

    Returns
    -------
    torch.Tensor
        ``(3, size, size)``, unsigned bytes.

    Raises
    ------
    DataError
        The file is absent, truncated, no image or of 32 bits a pixel; or it is DICOM and pydicom is
        not installed. The message names it.
    """
    from PIL import Image, ImageOps

    content = b""
    try:
        content = path.read_bytes()
        if is_dicom(content):
            picture = read_dicom(path)[0]
        else:
            with Image.open(io.BytesIO(content)) as file:
                picture = eight_bits(ImageOps.exif_transpose(file)).convert("RGB")
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(
            f"image {path} does not exist; the table names it: restore the file or drop its row."
        ) from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        from cevit_lib.datasets.kinds import no_photograph

        raise DataError(f"image {path} {no_photograph(content, error)}.") from error
    picture = ImageOps.fit(picture, (size, size), method=Image.Resampling.BICUBIC)
    picture = ImageOps.mirror(picture) if mirror else picture
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()


def kept_at(path: Path, size: int, mirror: bool, folder: Path | None) -> Path | None:
    """Return the file that keeps what :func:`read_image` makes of a photograph; none without a
    folder or where the photograph is absent.

    Bytes lie under a hash of the photograph's name, size and time of change, of ``size`` and
    ``mirror``, each photograph's whole or not at all: a run that is killed goes on where it was,
    and a photograph that changed is decoded again. At 224 pixels they are 147 KiB.
    """
    from PIL import __version__

    if folder is None:
        return None
    with contextlib.suppress(OSError):  # of an absent one its reader says what to do
        seen = path.stat()
        parts = os.path.abspath(path), seen.st_size, seen.st_mtime_ns, size, mirror, __version__
        key = hashlib.sha256(repr(parts).encode()).hexdigest()
        return folder / key[:2] / f"{key[2:]}.u8"
    return None


def filled(target: np.ndarray, place: Path | None) -> bool:
    """Put the bytes that a file keeps into an array of their size; say whether they were there."""
    with contextlib.suppress(FileNotFoundError):
        found = np.fromfile(place, np.uint8) if place else np.empty(0)
        if found.size == target.size:
            target[...] = found.reshape(target.shape)
            return True
    return False


def eight_bits(picture):
    """Scale a grey picture of 16 bits to 8: Pillow itself would cut everything above 255 to
    white.
    """
    from PIL import Image

    if picture.mode in ("I", "F"):
        raise ValueError(f"32 bits a pixel, mode {picture.mode}: save it with 8 or 16 bits")
    if not picture.mode.startswith("I;16"):
        return picture
    return Image.fromarray(np.round(np.asarray(picture).astype(np.float32) / 257).astype(np.uint8))


@dataclass(frozen=True)
class ImageFiles:
    """Photographs on disk, one per patient and eye, read when indexed.

    Attributes
    ----------
    paths : tuple of tuple
        ``paths[i][j]`` is the file of patient ``i``, domain ``j``; ``None`` where that eye has no
        photograph.
    size : int
        Height and width after reading, in pixels.
    mirrored : tuple of bool
        Which domains are flipped left to right.
    cache : Path, optional
        Folder where the bytes of what was decoded are kept (default: the one that ``CEVIT_CACHE``
        names, if any). A core decodes 3 to 10 JPEGs of 3900 x 3072 a second and reads 20,000
        that are kept.
    """

    paths: tuple[tuple[Path | None, ...], ...]
    size: int
    mirrored: tuple[bool, ...]
    cache: Path | None = field(default_factory=cache_folder)

    dtype: ClassVar[torch.dtype] = torch.uint8

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """``(n, domains, channels, height, width)``, as of a tensor."""
        return (len(self.paths), len(self.mirrored), 3, self.size, self.size)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: np.ndarray) -> torch.Tensor:
        """Return ``(k, domains, 3, size, size)`` bytes; an absent photograph is black.

        Raises
        ------
        DataError
            Of :func:`read_image`.
        OutputError
            The folder for what was decoded takes nothing, or its disk is full.
        """
        rows = [self.paths[int(i)] for i in np.asarray(index)]
        images, missing = np.zeros((len(rows), *self.shape[1:]), np.uint8), []
        for i, j in np.ndindex(images.shape[:2]):
            if (path := rows[i][j]) is not None:
                place = kept_at(path, self.size, self.mirrored[j], self.cache)
                if not filled(images[i, j], place):
                    missing.append((i, j, place))

        def decode(one: tuple[int, int, Path | None]) -> None:
            i, j, place = one
            images[i, j] = read_image(rows[i][j], self.size, mirror=self.mirrored[j])
            if place:
                with whole_file(place) as stream:
                    stream.write(images[i, j].tobytes())

        # Pillow decodes beside other threads; to read what is kept they would only wait in line
        with ThreadPoolExecutor(granted_cores()) as pool:
            list(pool.map(decode, missing))  # an error of a reader is raised here
        return torch.from_numpy(images)

    def subset(self, index: np.ndarray) -> "ImageFiles":
        """Return the files of some patients only; nothing is read."""
        return replace(self, paths=tuple(self.paths[int(i)] for i in np.asarray(index)))

    def digest(self) -> bytes:
        """Hash the bytes of all files, with size and mirroring, in their order."""
        total = hashlib.sha256(f"{self.size} {self.mirrored}".encode())

        def one(path: Path | None) -> bytes:
            return hashlib.sha256(path.read_bytes()).digest() if path else b"none"

        with ThreadPoolExecutor(granted_cores()) as pool:
            total.update(b"".join(pool.map(one, chain.from_iterable(self.paths))))
        return total.digest()
