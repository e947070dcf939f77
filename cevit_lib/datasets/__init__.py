"""Paired eyes as data: structure, splits by patient, synthetic pairs, GRAPE, PAPILA, UWHVF, tables.

What makes or reads a data set is imported when it is asked for: training needs none of it.
"""

from importlib import import_module
from typing import Any

from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.datasets.splits import Split, assert_disjoint, hold_out, split_by_patient

_LATER = {
    "ImageFiles": "images",
    "SyntheticPairs": "synthetic",
    "ToyExample": "toy",
    "load_grape": "grape",
    "load_paired_table": "table",
    "load_papila": "papila",
    "load_uwhvf": "uwhvf",
    "read_image": "images",
}

__all__ = [
    "ImageFiles",
    "PairedEyes",
    "Split",
    "SyntheticPairs",
    "ToyExample",
    "assert_disjoint",
    "hold_out",
    "load_grape",
    "load_paired_table",
    "load_papila",
    "load_uwhvf",
    "read_image",
    "split_by_patient",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
