"""DICOM photographs through pydicom (the extra ``clinic``): the picture, and the header for those
who ask.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cevit_lib.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image


def is_dicom(content: bytes) -> bool:
    """Tell a DICOM file by its mark after 128 bytes, whatever its name."""
    return content.startswith(b"DICM", 128)


def read_dicom(path: Path) -> tuple[Image, Any]:
    """Return the first frame of a DICOM file as an RGB picture, and its header.

    Samples of ``BitsStored`` bits are scaled to 8, MONOCHROME1 (low is white) is inverted, YBR
    becomes RGB. Windows for display (VOI) are not applied: they belong to a screen, and two
    photographs of one patient may have different ones.

    Raises
    ------
    DataError
        pydicom is not installed, or the file holds no picture that can be decoded; the message
        names it.
    """
    try:
        import pydicom
        from pydicom.pixels import pixel_array
    except ModuleNotFoundError:
        raise DataError(
            f"image {path} is DICOM, which needs pydicom: pip install 'cevit-lib[clinic]', "
            "or export it as PNG or TIFF."
        ) from None
    try:
        header = pydicom.dcmread(path, stop_before_pixels=True)
        return _picture(pixel_array(path, index=0), header), header
    except Exception as error:  # pydicom lets errors of many kinds through, from its decoders too
        said = " ".join(str(error).split())[:200]
        raise DataError(
            f"image {path} is DICOM and cannot be read ({said}); fetch it again, "
            "or export it as PNG or TIFF."
        ) from None


def _picture(samples: np.ndarray, header: Any) -> Image:
    """Return samples ``(height, width)`` or ``(height, width, 3)`` as an RGB picture."""
    from PIL import Image
    from pydicom.pixels import apply_color_lut

    bits, kind = int(header.BitsStored), str(header.PhotometricInterpretation)
    if int(header.BitsAllocated) not in (8, 16) or int(header.get("PixelRepresentation") or 0):
        raise ValueError(
            f"{header.BitsAllocated} bits a sample or signed ones; expected 8 or 16 without sign"
        )
    if kind == "PALETTE COLOR":
        samples = apply_color_lut(samples, header)
        bits = 8 * samples.dtype.itemsize
    level = samples.astype(np.float32) * (255 / (2**bits - 1))
    level = 255 - level if kind == "MONOCHROME1" else level
    return Image.fromarray(np.round(level.clip(0, 255)).astype(np.uint8)).convert("RGB")
