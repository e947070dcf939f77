"""Checks of what goes into a likelihood; each says what was seen, what was expected and where."""

import torch
from torch import Tensor

from cevit_lib.copula.parameters import CopulaParameters
from cevit_lib.errors import LabelError, ShapeError


def check_pair(outputs: Tensor, y: Tensor, parameters: CopulaParameters) -> None:
    """Check shapes (no values, hence free on an accelerator).

    Raises
    ------
    ShapeError
        ``outputs`` and ``y`` differ in shape, are not (n, p), or their p is not that of the
        parameters.
    """
    check_same_shape(outputs, y)
    check_outputs(outputs, parameters)


def check_outputs(outputs: Tensor, parameters: CopulaParameters) -> None:
    """Check that ``outputs`` are (n, p) with the p of the parameters.

    Raises
    ------
    ShapeError
        They are not.
    """
    if outputs.dim() != 2:
        raise ShapeError(
            f"outputs have shape {tuple(outputs.shape)}; expected (n, p), "
            "one row for each observation"
        )
    if outputs.shape[-1] != parameters.p:
        raise ShapeError(
            f"outputs have {outputs.shape[-1]} columns but the parameters describe "
            f"{parameters.p} responses ({parameters.p0} continuous, then {parameters.p1} binary)"
        )


def check_same_shape(outputs: Tensor, y: Tensor) -> None:
    """Check that ``outputs`` and ``y`` are both (n, p).

    Raises
    ------
    ShapeError
        They are not.
    """
    if outputs.dim() != 2 or outputs.shape != y.shape:
        raise ShapeError(
            f"outputs have shape {tuple(outputs.shape)} and y has shape {tuple(y.shape)}; "
            "expected both (n, p), one row for each observation, continuous responses first"
        )


def check_labels(y: Tensor, p0: int) -> None:
    """Check that binary responses are 0, 1 or NaN and continuous ones finite or NaN (waits for an
    accelerator once).

    Raises
    ------
    LabelError
        The message names the first wrong row and column.
    """
    wrong = torch.isinf(y)
    labels = y[:, p0:]
    wrong[:, p0:] = ~((labels == 0) | (labels == 1) | torch.isnan(labels))
    if bool(wrong.any()):
        row, column = wrong.nonzero()[0].tolist()
        expected = (
            "0, 1 or NaN (not observed)"
            if column >= p0
            else "a finite number or NaN (not observed)"
        )
        kind = "binary" if column >= p0 else "continuous"
        raise LabelError(
            f"y[{row}, {column}] is {float(y[row, column]):g}; the {kind} response in column "
            f"{column} must be {expected}. {int(wrong.any(1).sum())} of {len(y)} rows are wrong; "
            "continuous responses come first"
        )
