"""How good predictions are: by eye, by patient and jointly, with intervals that resample patients.

What cannot be computed is NaN, and :class:`Metrics` says why. Functions of one response take arrays
``(n,)`` and leave out what was not observed; nothing here knows where a prediction came from.
"""

from cevit_lib.metrics.agreement import (
    bland_altman,
    mean_absolute_error,
    r_squared,
    root_mean_squared_error,
    share_within,
)
from cevit_lib.metrics.bootstrap import Interval, patient_bootstrap
from cevit_lib.metrics.calibration import brier_score, calibration, calibration_curve, log_odds
from cevit_lib.metrics.detection import (
    accuracy,
    area_under_curve,
    class_reason,
    detection_at,
    joint_accuracy,
    predictive_values,
)
from cevit_lib.metrics.patients import patient_labels, patient_scores
from cevit_lib.metrics.report import evaluate

__all__ = [
    "Interval",
    "accuracy",
    "area_under_curve",
    "bland_altman",
    "brier_score",
    "calibration",
    "calibration_curve",
    "class_reason",
    "detection_at",
    "evaluate",
    "joint_accuracy",
    "log_odds",
    "mean_absolute_error",
    "patient_bootstrap",
    "patient_labels",
    "patient_scores",
    "predictive_values",
    "r_squared",
    "root_mean_squared_error",
    "share_within",
]
