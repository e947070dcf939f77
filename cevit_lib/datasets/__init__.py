"""Paired eyes as data: structure, splits by patient, synthetic pairs, GRAPE, PAPILA, UWHVF, tables.

What reads tables is imported when it is asked for: training needs none of it.
"""

from importlib import import_module
from typing import Any

from cevit_lib.datasets.images import ImageFiles, read_image
from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.datasets.splits import Split, assert_disjoint, hold_out, split_by_patient
from cevit_lib.datasets.synthetic import SyntheticPairs, SyntheticTruth, regression_functions
from cevit_lib.datasets.toy import ToyExample

_LOADERS = {
    "load_grape": "grape",
    "load_paired_table": "table",
    "load_papila": "papila",
    "load_uwhvf": "uwhvf",
}

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
    "load_uwhvf",
    "read_image",
    "regression_functions",
    "split_by_patient",
]


def __getattr__(name: str) -> Any:
    if name not in _LOADERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LOADERS[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, *globals()]
