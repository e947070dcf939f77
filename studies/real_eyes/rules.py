"""How the records of this chapter are judged; committed before the records were made."""

from typing import Any

import numpy as np


def holds(step: dict[str, Any]) -> bool:
    """A step of the log score holds where its 95 % interval over patients is above 0 and at most
    one in twenty partitions says otherwise.
    """
    return bool(step["low"] > 0 and np.mean(np.asarray(step["repeats"]) > 0) >= 0.95)


def calibrated(statement: dict[str, Any]) -> bool:
    """A statement is calibrated where the 95 % interval over patients of observed minus predicted
    covers 0.
    """
    return bool(statement["off"]["low"] <= 0 <= statement["off"]["high"])


def covers(region: dict[str, Any], nominal: float) -> bool:
    """A region covers what it says where the 95 % interval over patients of its coverage holds the
    nominal one.
    """
    return bool(region["low"] <= nominal <= region["high"])


def keeps_level(hold: int, defined: int, nominal: float = 0.95) -> bool:
    """Intervals keep their level where the share that hold the truth is at least the nominal one
    less two Monte Carlo errors.
    """
    error = (nominal * (1 - nominal) / defined) ** 0.5
    return hold / defined >= nominal - 2 * error


def repairs(bias: dict[str, float], strangers: dict[str, float]) -> bool:
    """An analysis repairs missing eyes where its mean bias is within two standard errors of 0, or a
    tenth of what it is when the eyes are strangers.
    """
    return abs(bias["mean"]) <= max(2 * bias["se"], 0.1 * abs(strangers["mean"]))
