"""What an estimator sees: residuals, labels and thresholds, grouped by which responses are
observed."""

from dataclasses import dataclass

import numpy as np
import torch

from cevit_lib.copula import check_labels
from cevit_lib.errors import DataError, ScaleError, ShapeError
from cevit_lib.normal import normal_score


@dataclass(frozen=True)
class Pattern:
    """The patients who share one set of observed responses.

    Attributes
    ----------
    continuous, binary, missing : (a,), (b,), (m,) int arrays
        Columns of ``y`` that these patients have, by kind, and those that they lack; ``a + b + m =
        p``.
    residual : (n_pattern, a) array
        ``y - mu`` of the observed continuous responses, in the units of ``y``.
    threshold, sign : (n_pattern, b) arrays
        ``c = Phi^-1(S(-mu))`` and ``2 y - 1``: the latent score lies above ``c`` where the sign is
        positive.
    """

    continuous: np.ndarray
    binary: np.ndarray
    missing: np.ndarray
    residual: np.ndarray
    threshold: np.ndarray
    sign: np.ndarray

    def __len__(self) -> int:
        return len(self.residual)

    @property
    def seen(self) -> np.ndarray:
        """The observed columns, continuous first."""
        return np.concatenate([self.continuous, self.binary])

    def blocks(self, size: int):
        """Yield the same pattern cut into blocks of at most ``size`` patients, which fit the
        processor's cache."""
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield Pattern(
                self.continuous,
                self.binary,
                self.missing,
                self.residual[part],
                self.threshold[part],
                self.sign[part],
            )


@dataclass(frozen=True)
class Observed:
    """All patients with at least one observed response, as a list of :class:`Pattern`."""

    patterns: list[Pattern]
    n: int
    p: int
    p0: int

    def pair(self, j: int, k: int) -> Pattern:
        """Return the patients who have both responses ``j < k``, with these alone."""
        kinds = np.split(np.arange(2), [sum(column < self.p0 for column in (j, k))])
        scores = [[np.empty((0, len(kind)))] for kind in (*kinds, kinds[1])]
        for part in self.patterns:
            a, b = ((own == j) | (own == k) for own in (part.continuous, part.binary))
            if a.sum() + b.sum() == 2:
                own = part.residual[:, a], part.threshold[:, b], part.sign[:, b]
                for column, more in zip(scores, own, strict=True):
                    column.append(more)
        return Pattern(*kinds, np.arange(0), *map(np.concatenate, scores))

    def residual_scale(self) -> np.ndarray:
        """Return ``sigma``: the SD of each column of residuals (Section 2.3), over the patients who
        have it.

        Raises
        ------
        ScaleError
            A column of residuals is constant (or holds one value): it has no scale.
        """
        scale = np.empty(self.p0)
        for column in range(self.p0):
            values = np.concatenate(
                [part.residual[:, part.continuous == column].ravel() for part in self.patterns]
            )
            scale[column] = values.std() if len(values) else 0.0
            if not scale[column] > 1e-12 * max(1.0, np.abs(values).max(initial=0.0)):
                raise ScaleError(
                    f"the residuals of continuous response {column + 1} have standard deviation "
                    f"{scale[column]:.3g} over {len(values)} patients; a positive one is needed. "
                    "Check for a constant column, or for outputs that reproduce the training "
                    "responses exactly (estimate on held-out outputs instead)."
                )
        return scale


def as_float64(values, name: str) -> np.ndarray:
    """Return a tensor, data frame or array as a two-dimensional float64 NumPy array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise ShapeError(f"{name} must have shape (n, p), one row a patient; seen {array.shape}")
    return array


def count_continuous(y: np.ndarray) -> int:
    """Return the number of leading columns that hold a value other than 0, 1 or NaN: the continuous
    responses.
    """
    other = ~(np.isnan(y) | (y == 0) | (y == 1))
    binary = ~other.any(axis=0)
    return int(np.argmax(binary)) if binary.any() else y.shape[1]


def observe(outputs, y, continuous: int | None = None) -> Observed:
    """Check ``outputs`` and ``y`` and group the patients by their observed responses.

    Parameters
    ----------
    outputs : (n, p) tensor or array
        Conditional means of the continuous responses, then logits of the binary ones.
    y : (n, p) tensor or array
        Responses in the same order; ``NaN`` where not observed.
    continuous : int, optional
        Number of continuous responses ``p0``; found from the values of ``y`` if not given.

    Raises
    ------
    ShapeError, LabelError, DataError
        Shapes differ, a label is not 0/1, an output is not finite where its response is observed, a
        response is never observed, or fewer than two patients are left.
    """
    outputs, y = as_float64(outputs, "outputs"), as_float64(y, "y")
    if outputs.shape != y.shape:
        raise ShapeError(
            f"outputs and y must have the same shape (n, p); seen {outputs.shape} and {y.shape}"
        )
    p = y.shape[1]
    if continuous is not None and not 0 <= continuous <= p:
        raise ShapeError(f"continuous must lie between 0 and p = {p}; seen {continuous}")
    p0 = count_continuous(y) if continuous is None else continuous
    check_labels(torch.from_numpy(y), p0)
    seen = ~np.isnan(y)
    _check_values(outputs, y, seen)
    patterns = [_pattern(outputs, y, p0, mask, rows) for mask, rows in _group(seen) if mask.any()]
    n = sum(len(pattern) for pattern in patterns)
    if n < 2:
        raise DataError(
            f"a correlation needs at least two patients with an observed response; seen {n}"
        )
    return Observed(patterns, n, p, p0)


def _check_values(outputs: np.ndarray, y: np.ndarray, seen: np.ndarray) -> None:
    if not seen.any(axis=0).all():
        column = int(np.argmin(seen.any(axis=0)))
        raise DataError(
            f"response {column + 1} is never observed (all NaN); drop the column from outputs and y"
        )
    bad = seen & ~(np.isfinite(outputs) & np.isfinite(y))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise DataError(
            f"row {row}, response {column + 1}: output {outputs[row, column]:g} and response "
            f"{y[row, column]:g} must both be finite where the response is observed (use NaN in y "
            "for a missing one)"
        )


def _group(seen: np.ndarray):
    """Yield each distinct row of the mask with the indices (or the slice of all) of its
    patients."""
    if seen.all():
        yield seen[0], slice(None)
        return
    masks, inverse = np.unique(seen, axis=0, return_inverse=True)
    for index, mask in enumerate(masks):
        yield mask, np.flatnonzero(inverse.ravel() == index)


def _pattern(outputs: np.ndarray, y: np.ndarray, p0: int, mask: np.ndarray, rows) -> Pattern:
    columns = np.arange(len(mask))
    continuous, binary = columns[mask & (columns < p0)], columns[mask & (columns >= p0)]
    # Columns are gathered one kind at a time: at n = 10^6 this keeps the peak memory near that of
    # the inputs.
    residual = np.ascontiguousarray(y[rows][:, continuous] - outputs[rows][:, continuous])
    logits = torch.from_numpy(np.ascontiguousarray(outputs[rows][:, binary]))
    threshold = -normal_score(logits).numpy()
    sign = 2.0 * np.ascontiguousarray(y[rows][:, binary]) - 1.0
    return Pattern(continuous, binary, columns[~mask], residual, threshold, sign)
