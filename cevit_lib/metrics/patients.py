"""From two eyes to one patient: any eye, both eyes."""

from typing import Any, Literal

import numpy as np

from cevit_lib.errors import ShapeError
from cevit_lib.metrics.arrays import as_array


def patient_labels(labels: Any, level: Literal["any", "both"]) -> np.ndarray:
    """Return one label a patient ``(n,)`` from those of both eyes ``(n, 2)``.

    A missing eye leaves the answer open (NaN) unless the other one decides it: one positive eye
    makes "any" certain.

    Raises
    ------
    ShapeError
        The labels have another shape.

    Examples
    --------
    >>> patient_labels([[1.0, float("nan")], [0.0, float("nan")]], "any")
    array([ 1., nan])
    """
    labels = as_array(labels)
    if labels.shape[1:] != (2,):
        raise ShapeError(f"labels have shape {labels.shape}; expected (n, 2), left eye first.")
    decisive = {"any": 1.0, "both": 0.0}[level]
    whole = np.isfinite(labels).all(1)
    return np.where((labels == decisive).any(1), decisive, np.where(whole, 1 - decisive, np.nan))


def patient_scores(cells: Any, level: Literal["any", "both"]) -> np.ndarray:
    """Return the probability of each patient's answer ``(n,)`` from the cells ``(n, 2, 2)``.

    "any" is ``1 - P(neither)`` and "both" ``P(both)``.

    Raises
    ------
    ShapeError
        The cells have another shape.
    """
    cells = as_array(cells)
    if cells.shape[1:] != (2, 2):
        raise ShapeError(
            f"cells have shape {cells.shape}; expected (n, 2, 2), indexed [left, right]."
        )
    return {"any": 1 - cells[:, 0, 0], "both": cells[:, 1, 1]}[level]
