"""How good predictions are: by eye, by patient and jointly, with intervals that resample patients.

What cannot be computed is NaN, and :class:`Metrics` says why. Functions of one response take arrays ``(n,)`` and leave
out what was not observed; nothing here knows where a prediction came from.
"""

from cevit_lib.metrics.agreement import (
    Agreement,
    bland_altman,
    mean_absolute_error,
    r_squared,
    root_mean_squared_error,
    share_within,
)
from cevit_lib.metrics.bootstrap import Interval, patient_bootstrap
from cevit_lib.metrics.calibration import (
    Calibration,
    CalibrationCurve,
    brier_score,
    calibration,
    calibration_curve,
)
from cevit_lib.metrics.detection import (
    Detection,
    accuracy,
    area_under_curve,
    class_reason,
    detection_at,
    joint_accuracy,
    predictive_values,
    threshold_at_specificity,
)
from cevit_lib.metrics.patients import (
    asymmetric,
    check_cells,
    independent_cells,
    joint_brier_score,
    joint_log_score,
    patient_labels,
    patient_scores,
    rightly_ordered,
    worse_eye,
)
from cevit_lib.metrics.report import Metrics, evaluate, evaluate_pairs, thresholds_at_specificity

__all__ = [
    "Agreement",
    "Calibration",
    "CalibrationCurve",
    "Detection",
    "Interval",
    "Metrics",
    "accuracy",
    "area_under_curve",
    "asymmetric",
    "bland_altman",
    "brier_score",
    "calibration",
    "calibration_curve",
    "check_cells",
    "class_reason",
    "detection_at",
    "evaluate",
    "evaluate_pairs",
    "independent_cells",
    "joint_accuracy",
    "joint_brier_score",
    "joint_log_score",
    "mean_absolute_error",
    "patient_bootstrap",
    "patient_labels",
    "patient_scores",
    "predictive_values",
    "r_squared",
    "rightly_ordered",
    "root_mean_squared_error",
    "share_within",
    "threshold_at_specificity",
    "thresholds_at_specificity",
    "worse_eye",
]
