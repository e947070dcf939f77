"""Image files read when they are needed: orientation honoured, a damaged file named, one eye mirrored on request."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from cevit_lib.errors import DataError


def read_image(path: Path, size: int, *, mirror: bool = False) -> torch.Tensor:
    """Read one photograph as a square RGB tensor.

    The EXIF orientation is applied, 16 bits a channel are scaled to 8, the short side is resized to ``size`` (bicubic,
    anti-aliased) and the centre is cut out.

    Parameters
    ----------
    path : Path
        JPEG, PNG or any other file that Pillow reads.
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
        The file is absent, truncated, no image or of 32 bits a pixel; the message names it.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as file:
            picture = _eight_bits(ImageOps.exif_transpose(file)).convert("RGB")
    except FileNotFoundError:
        raise DataError(f"image {path} does not exist; the table names it: restore the file or drop its row.") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"image {path} cannot be read ({error}); fetch it again or drop its row.") from error
    picture = ImageOps.fit(picture, (size, size), method=Image.Resampling.BICUBIC)
    if mirror:
        picture = ImageOps.mirror(picture)
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()


def _eight_bits(picture):
    """Scale a grey picture of 16 bits to 8: Pillow's own conversion would cut everything above 255 to white."""
    from PIL import Image

    if picture.mode.startswith("I;16"):
        return Image.fromarray(np.round(np.asarray(picture).astype(np.float32) / 257).astype(np.uint8))
    if picture.mode in ("I", "F"):
        raise ValueError(f"32 bits a pixel, mode {picture.mode}: save it with 8 or 16 bits")
    return picture


@dataclass(frozen=True)
class ImageFiles:
    """Photographs on disk, one per patient and eye, read when indexed.

    Attributes
    ----------
    paths : tuple of tuple
        ``paths[i][j]`` is the file of patient ``i``, domain ``j``; ``None`` where that eye has no photograph.
    size : int
        Height and width after reading, in pixels.
    mirrored : tuple of bool
        Which domains are flipped left to right.
    """

    paths: tuple[tuple[Path | None, ...], ...]
    size: int
    mirrored: tuple[bool, ...]

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """``(n, domains, channels, height, width)``, as of a tensor."""
        return (len(self.paths), len(self.mirrored), 3, self.size, self.size)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: np.ndarray) -> torch.Tensor:
        """Return ``(k, domains, 3, size, size)`` bytes; an absent photograph is black."""
        empty = torch.zeros(3, self.size, self.size, dtype=torch.uint8)
        rows = [
            torch.stack(
                [
                    read_image(path, self.size, mirror=flip) if path is not None else empty
                    for path, flip in zip(self.paths[int(i)], self.mirrored, strict=True)
                ]
            )
            for i in np.asarray(index)
        ]
        return torch.stack(rows) if rows else torch.zeros(0, *self.shape[1:], dtype=torch.uint8)

    def subset(self, index: np.ndarray) -> "ImageFiles":
        """Return the files of some patients only; nothing is read."""
        return replace(self, paths=tuple(self.paths[int(i)] for i in np.asarray(index)))

    def digest(self) -> bytes:
        """Hash the bytes of all files, with size and mirroring, in their order."""
        total = hashlib.sha256(f"{self.size} {self.mirrored}".encode())
        for row in self.paths:
            for path in row:
                total.update(hashlib.sha256(path.read_bytes()).digest() if path is not None else b"none")
        return total.digest()
