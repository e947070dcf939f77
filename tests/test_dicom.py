"""DICOM photographs, written here: 8 and 16 bits, grey and colour, the eye in the header."""

import sys

import numpy as np
import pytest
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, OphthalmicPhotography8BitImageStorage, generate_uid

from cevit_lib.clinic.check_data import check
from cevit_lib.clinic.pictures import inspect
from cevit_lib.datasets import load_paired_table, read_image
from cevit_lib.datasets.dicom import read_dicom
from cevit_lib.errors import DataError


def write(path, samples, eye="R", kind=None, bits=None):
    """Write a photograph, ``(h, w)`` or ``(h, w, 3)`` or with a leading axis of frames."""
    samples = np.asarray(samples)
    color, allocated = samples.shape[-1] == 3, 8 * samples.dtype.itemsize
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = (
        OphthalmicPhotography8BitImageStorage,
        "1.2.3",
    )
    data = FileDataset(str(path), {}, file_meta=meta, preamble=bytes(128))
    data.SOPClassUID, data.SOPInstanceUID = OphthalmicPhotography8BitImageStorage, generate_uid()
    data.PatientName, data.ImageLaterality = "Secret^Name", eye
    frames = samples.shape[0] if samples.ndim == 3 + color else 1
    data.Rows, data.Columns = samples.shape[-3:-1] if color else samples.shape[-2:]
    data.SamplesPerPixel, data.PhotometricInterpretation = (
        (3, "RGB") if color else (1, kind or "MONOCHROME2")
    )
    if color:
        data.PlanarConfiguration = 0
    if frames > 1:
        data.NumberOfFrames = frames
    data.BitsAllocated, data.BitsStored = allocated, bits or allocated
    data.HighBit, data.PixelRepresentation = data.BitsStored - 1, 0
    data.PixelData = samples.astype(f"<u{allocated // 8}").tobytes()
    data.save_as(path, enforce_file_format=True)
    return path


LEVELS = np.tile(np.arange(0, 256, 8, dtype=np.uint8), (32, 1))
COLOR = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def test_colour_of_eight_bits_is_read_as_it_is(tmp_path):
    path = write(tmp_path / "eye.dcm", COLOR)
    assert np.array_equal(read_image(path, 32).permute(1, 2, 0).numpy(), COLOR)
    assert np.array_equal(
        read_image(path, 32, mirror=True).permute(1, 2, 0).numpy(), COLOR[:, ::-1]
    )
    Image.fromarray(COLOR).save(tmp_path / "eye.png")
    assert np.array_equal(
        read_image(tmp_path / "eye.png", 16), read_image(path, 16)
    )  # the same picture, either way


@pytest.mark.parametrize("bits", [10, 12, 16])
def test_deep_samples_are_scaled_by_the_bits_that_are_stored(tmp_path, bits):
    samples = np.round(LEVELS.astype(float) * (2**bits - 1) / 255).astype(np.uint16)
    path = write(tmp_path / "no_ending", samples, bits=bits)
    assert np.array_equal(read_image(path, 32)[1].numpy(), LEVELS)
    assert inspect(path).warnings == [f"has {bits} bits a sample; it is scaled to 8"]


def test_low_is_white_where_the_header_says_so_and_the_first_of_several_frames_counts(tmp_path):
    path = write(tmp_path / "negative.dcm", LEVELS, kind="MONOCHROME1")
    assert np.array_equal(read_image(path, 32)[0].numpy(), 255 - LEVELS)
    path = write(tmp_path / "stack.dcm", np.stack([COLOR, COLOR[::-1]]))
    assert np.array_equal(read_image(path, 32).permute(1, 2, 0).numpy(), COLOR)
    assert inspect(path).warnings == ["has 2 frames; the first one is used"]


def test_damaged_files_and_what_holds_no_photograph_are_named(tmp_path):
    path = write(tmp_path / "eye.dcm", COLOR)
    path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(DataError, match="eye.dcm is DICOM and cannot be read"):
        read_image(path, 16)
    assert "cannot be read" in inspect(path).error
    (tmp_path / "empty.dcm").write_bytes(bytes(128) + b"DICM")
    with pytest.raises(DataError, match="empty.dcm is DICOM and cannot be read"):
        read_image(tmp_path / "empty.dcm", 16)


def test_without_pydicom_the_sentence_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "eye.dcm", COLOR)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(DataError, match=r"pip install 'cevit-lib\[clinic\]'"):
        read_image(path, 16)
    assert inspect(path).error.startswith("is DICOM, which needs pydicom")


def test_a_folder_of_dicom_is_a_data_set_and_the_header_may_contradict_the_table(tmp_path):
    rng = np.random.default_rng(1)
    rows = ["id,eye,image,axial_length"]
    for i in range(4):
        for eye in "RL":
            write(
                tmp_path / f"{i}{eye}.dcm", rng.integers(0, 256, (20, 20, 3), dtype=np.uint8), eye
            )
            rows.append(f"{i:02d},{eye},{i}{eye}.dcm,{23 + i}.5")
    table = tmp_path / "eyes.csv"
    table.write_text("\n".join(rows) + "\n")
    layout = {
        "patient": "id",
        "eye": "eye",
        "image": "image",
        "continuous": {"AL": "axial_length"},
        "size": 20,
    }
    assert check(table, tmp_path, layout).problems == []
    data = load_paired_table(table, tmp_path, layout)
    assert data.load().shape == (4, 2, 3, 20, 20) and "Secret" not in str(data.notes)
    write(tmp_path / "1R.dcm", rng.integers(0, 256, (20, 20, 3), dtype=np.uint8), "L")
    (problem,) = check(table, tmp_path, layout).errors
    assert (
        "1R.dcm is in the place of OD, its DICOM header says OS" in str(problem)
        and problem.line == 4
    )
    write(
        tmp_path / "2R.dcm", read_dicom(tmp_path / "3L.dcm")[0], "R"
    )  # other header, the same pixels
    assert "the same photograph" in str(check(table, tmp_path, layout).errors)
