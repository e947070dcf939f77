"""One table of metrics for a set of predictions, per response and jointly; NaN comes with its
reason.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cevit_lib.errors import ShapeError
from cevit_lib.metrics.agreement import mean_absolute_error, root_mean_squared_error
from cevit_lib.metrics.arrays import as_array
from cevit_lib.metrics.detection import (
    UNSEEN,
    accuracy,
    area_under_curve,
    class_reason,
    joint_accuracy,
)


@dataclass
class Metrics:
    """Values by name, and the reason for every NaN among them.

    Attributes
    ----------
    values : dict of float
        Such as ``"MAE RNFL_OS (um)"``; lower is better for MAE and RMSE, higher for ACC, joint ACC
        and AUC.
    reasons : dict of str
        For each name whose value is NaN.
    """

    values: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, values: dict[str, float], reason: str | None = None) -> None:
        """Take values up, and why those that are NaN are."""
        for key, value in values.items():
            self.values[key] = float(value)
            if np.isnan(value):
                self.reasons[key] = reason or "a prediction is not finite"


def evaluate(
    outputs: Any,
    y: Any,
    responses: tuple[str, ...],
    continuous: int,
    joint_classes: Any | None = None,
) -> Metrics:
    """Return MAE, RMSE, ACC by both rules, joint ACC and AUC of one set of predictions, per
    response.

    Parameters
    ----------
    outputs : array, shape (n, p)
        Means in the responses' units, then logits.
    y : array, shape (n, p)
        Responses, NaN = not observed.
    responses : tuple of str
        Names of the columns.
    continuous : int
        How many columns are continuous.
    joint_classes : array, shape (n, p1), optional
        Classes by the joint Bayes rule; without it the rule by margins stands for both.

    Returns
    -------
    Metrics
        Keys ``MAE name, RMSE name, ACC name`` (each margin above 1/2), ``ACC joint rule name, AUC
        name, joint ACC`` and ``joint ACC marginal rule``.

    Raises
    ------
    ShapeError
        Outputs, responses and names disagree.
    """
    outputs, y = as_array(outputs), as_array(y)
    if outputs.shape != y.shape or y.ndim != 2 or y.shape[1] != len(responses):
        raise ShapeError(
            f"outputs {outputs.shape}, y {y.shape} and {len(responses)} names do not agree."
        )
    labels, marginal = y[:, continuous:], (outputs[:, continuous:] > 0).astype(float)
    joint = marginal if joint_classes is None else as_array(joint_classes)
    table = Metrics()
    for k, name in enumerate(responses):
        values, column = {}, (outputs[:, k], y[:, k])
        if k < continuous:
            values[f"MAE {name}"] = mean_absolute_error(*column)
            values[f"RMSE {name}"] = root_mean_squared_error(*column)
        else:
            values[f"ACC {name}"] = accuracy(marginal[:, k - continuous], y[:, k])
            values[f"ACC joint rule {name}"] = accuracy(joint[:, k - continuous], y[:, k])
            table.add({f"AUC {name}": area_under_curve(*column)}, class_reason(y[:, k]))
        table.add(values, None if np.isfinite(y[:, k]).any() else UNSEEN)
    if labels.shape[1]:
        both = {"joint ACC": joint, "joint ACC marginal rule": marginal}
        table.add({name: joint_accuracy(said, labels) for name, said in both.items()}, UNSEEN)
    return table
