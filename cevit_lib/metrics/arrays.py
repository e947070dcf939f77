"""What all metrics share: numbers as NumPy arrays, without what was not observed; scikit-learn
behind that mask.
"""

from typing import Any

import numpy as np
import torch

from cevit_lib.errors import ShapeError


def as_array(values: Any) -> np.ndarray:
    """Return a tensor or anything like an array as float64 NumPy."""
    return (
        values.detach().cpu().numpy().astype(float)
        if torch.is_tensor(values)
        else np.asarray(values, dtype=float)
    )


def observed_pair(predicted: Any, observed: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return both ``(n,)`` arrays where ``observed`` is not NaN.

    Raises
    ------
    ShapeError
        They are not both ``(n,)``.
    """
    predicted, observed = as_array(predicted), as_array(observed)
    if predicted.shape != observed.shape or observed.ndim != 1:
        raise ShapeError(
            f"predicted {predicted.shape} and observed {observed.shape} must both be (n,)."
        )
    seen = np.isfinite(observed)
    return predicted[seen], observed[seen]


def scored(metric: str, predicted: Any, observed: Any, vary: bool = False) -> float:
    """Return a metric of scikit-learn on what was observed; NaN without it or with a prediction
    that is not finite.

    Parameters
    ----------
    metric : str
        A function of ``sklearn.metrics`` that takes what was observed and what was predicted.
    predicted, observed : array, shape (n,)
    vary : bool
        It exists only where the observed values vary: both classes, or more than one length.
    """
    from sklearn import metrics

    predicted, observed = observed_pair(predicted, observed)
    if not observed.size or not np.isfinite(predicted).all() or (vary and np.ptp(observed) == 0):
        return float("nan")
    return float(getattr(metrics, metric)(observed, predicted))
