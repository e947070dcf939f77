"""The commands ``cevit fit``, ``cevit predict`` and ``cevit report``: from a data set to records, predictions, a page.

One fit is one fold: a warm-up with its arms, one record. A fit whose record exists is skipped, so that a grid that was
interrupted goes on where it stopped. Nothing heavy is imported before a command runs.
"""

from cevit_lib.clinic.commands import run_fit
from cevit_lib.clinic.configuration import (
    configuration_of,
    data_configuration,
    facts_of,
    load_data,
    study_of,
)
from cevit_lib.clinic.fold import build_model, fit_fold, refit
from cevit_lib.clinic.options import (
    ARMS,
    DEFAULTS,
    ESTIMATORS,
    TINY,
    add_fit_arguments,
    add_predict_arguments,
    add_report_arguments,
)
from cevit_lib.clinic.predict import run_predict
from cevit_lib.clinic.report import run_report
from cevit_lib.clinic.tables import patient_table, prediction_table, write_table

_data_configuration = data_configuration

__all__ = [
    "ARMS",
    "DEFAULTS",
    "ESTIMATORS",
    "TINY",
    "add_fit_arguments",
    "add_predict_arguments",
    "add_report_arguments",
    "build_model",
    "configuration_of",
    "data_configuration",
    "facts_of",
    "fit_fold",
    "load_data",
    "patient_table",
    "prediction_table",
    "refit",
    "run_fit",
    "run_predict",
    "run_report",
    "study_of",
    "write_table",
]
