"""Own data: from a table and a folder of photographs to records, predictions and a page.

One fit is one fold: a warm-up with its arms, one record. A fit whose record exists is skipped, so
that a grid that was interrupted goes on where it stopped. Nothing heavy is imported before a name
is asked for: ``cevit --help`` answers at once.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "check": "check_data",
    "configuration_of": "configuration",
    "data_configuration": "configuration",
    "fit_fold": "fold",
    "load_data": "configuration",
    "refit": "fold",
    "run_fit": "commands",
    "run_predict": "predict",
    "run_report": "report",
}

__all__ = [
    "check",
    "configuration_of",
    "data_configuration",
    "fit_fold",
    "load_data",
    "refit",
    "run_fit",
    "run_predict",
    "run_report",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, *globals()]
