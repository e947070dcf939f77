"""DICOM photographs, written here: 8 and 16 bits, grey and colour, the eye in the header."""

import sys
from itertools import product

import numpy as np
import pytest
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
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data = FileDataset(str(path), {}, file_meta=meta, preamble=bytes(128))
    data.SOPClassUID, data.SOPInstanceUID = OphthalmicPhotography8BitImageStorage, generate_uid()
    data.PatientName, data.ImageLaterality = "Secret^Name", eye
    kind = kind or ("RGB" if samples.shape[-1] == 3 else "MONOCHROME2")
    data.set_pixel_data(samples, kind, bits or 8 * samples.dtype.itemsize)
    data.save_as(path, enforce_file_format=True)
    return path


LEVELS = np.tile(np.arange(0, 256, 8, dtype=np.uint8), (32, 1))
COLOR = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)


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


@pytest.mark.parametrize("content", [bytes(128) + b"DICM", None])
def test_damaged_files_and_what_holds_no_photograph_are_named(tmp_path, content):
    path = write(tmp_path / "eye.dcm", COLOR)
    path.write_bytes(content or path.read_bytes()[:900])
    with pytest.raises(DataError, match="eye.dcm is DICOM and cannot be read"):
        read_image(path, 16)
    assert "cannot be read" in inspect(path).error


def test_without_pydicom_the_sentence_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "eye.dcm", COLOR)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(DataError, match=r"pip install 'cevit-lib\[clinic\]'"):
        read_image(path, 16)
    assert inspect(path).error.startswith("is DICOM, which needs pydicom")


def test_a_folder_of_dicom_is_a_data_set_and_the_header_may_contradict_the_table(tmp_path):
    rng = np.random.default_rng(1)
    rows = ["id,eye,image,axial_length"]
    for i, eye in product(range(4), "RL"):
        pixels = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
        write(tmp_path / f"{i}{eye}.dcm", pixels, eye)
        rows.append(f"{i:02d},{eye},{i}{eye}.dcm,{23 + i}.5")
    table = tmp_path / "eyes.csv"
    table.write_text("\n".join(rows) + "\n")
    layout = {"patient": "id", "eye": "eye", "image": "image", "size": 20}
    layout["continuous"] = {"AL": "axial_length"}
    data = load_paired_table(table, tmp_path, layout)
    assert data.load().shape == (4, 2, 3, 20, 20) and "Secret" not in str(data.notes)
    write(tmp_path / "1R.dcm", read_dicom(tmp_path / "3L.dcm")[0], "L")
    told = "\n".join(map(str, check(table, tmp_path, layout).errors))
    assert "1R.dcm is in the place of OD, its DICOM header says OS" in told
    assert "the same photograph" in told  # the same pixels under another header
