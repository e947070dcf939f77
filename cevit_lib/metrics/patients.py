"""From two eyes to one patient: any eye, both eyes."""

from typing import Any, Literal

import numpy as np

from cevit_lib.errors import LabelError, ShapeError
from cevit_lib.metrics.arrays import as_array, two_eyes


def check_cells(cells: Any) -> np.ndarray:
    """Return joint probabilities ``(n, 2, 2)``, indexed ``[left, right]``, after a check.

    Raises
    ------
    ShapeError, LabelError
        Another shape, or rows that are no distributions (as the cells that the paper prints).
    """
    cells = as_array(cells)
    if cells.ndim != 3 or cells.shape[1:] != (2, 2):
        raise ShapeError(
            f"cells have shape {cells.shape}; expected (n, 2, 2), indexed [left, right]."
        )
    wrong = (cells < -1e-9).any((1, 2)) | ~(np.abs(cells.sum((1, 2)) - 1) < 1e-6)
    if wrong.any():
        row = int(wrong.argmax())
        raise LabelError(
            f"row {row}: the four cells {cells[row].ravel().round(4).tolist()} are no distribution."
        )
    return cells


def patient_labels(labels: Any, level: Literal["any", "both"]) -> np.ndarray:
    """Return one label a patient ``(n,)`` from those of both eyes ``(n, 2)``.

    A missing eye leaves the answer open (NaN) unless the other one decides it: one positive eye
    makes "any" certain.

    Examples
    --------
    >>> patient_labels([[1.0, float("nan")], [0.0, float("nan")]], "any")
    array([ 1., nan])
    """
    labels = two_eyes(labels, "labels")
    decisive = {"any": 1.0, "both": 0.0}[level]
    whole = np.isfinite(labels).all(1)
    return np.where((labels == decisive).any(1), decisive, np.where(whole, 1 - decisive, np.nan))


def patient_scores(cells: Any, level: Literal["any", "both"]) -> np.ndarray:
    """Return the probability of each patient's answer ``(n,)`` from the cells ``(n, 2, 2)``.

    "any" is ``1 - P(neither)`` and "both" ``P(both)``.
    """
    cells = check_cells(cells)
    return {"any": 1 - cells[:, 0, 0], "both": cells[:, 1, 1]}[level]
