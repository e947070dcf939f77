"""Paired eyes as data: the structure, splits by patient, the paper's synthetic pairs, and GRAPE."""

from cevit_lib.datasets.grape import load_grape
from cevit_lib.datasets.images import ImageFiles, read_image
from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.datasets.splits import Split, assert_disjoint, hold_out, split_by_patient
from cevit_lib.datasets.synthetic import SyntheticPairs, SyntheticTruth, regression_functions
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
    "read_image",
    "regression_functions",
    "split_by_patient",
]
