"""Paired eyes as data: structure, splits by patient, synthetic pairs, GRAPE, PAPILA, and any table
of one's own.
"""

from cevit_lib.datasets.grape import load_grape
from cevit_lib.datasets.images import ImageFiles, read_image
from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.datasets.papila import load_papila
from cevit_lib.datasets.splits import Split, assert_disjoint, hold_out, split_by_patient
from cevit_lib.datasets.synthetic import SyntheticPairs, SyntheticTruth, regression_functions
from cevit_lib.datasets.table import load_paired_table
from cevit_lib.datasets.toy import ToyExample

__all__ = [
    "ImageFiles",
    "PairedEyes",
    "Split",
    "SyntheticPairs",
    "SyntheticTruth",
    "ToyExample",
    "assert_disjoint",
    "hold_out",
    "load_grape",
    "load_paired_table",
    "load_papila",
    "read_image",
    "regression_functions",
    "split_by_patient",
]
