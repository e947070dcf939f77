"""The one data structure of the compendium: patients with both eyes, their responses, and what is
missing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cevit_lib.errors import DataError, LabelError, ShapeError

if TYPE_CHECKING:
    from cevit_lib.datasets.images import ImageFiles


@dataclass(frozen=True)
class PairedEyes:
    """Paired eyes: one row a patient, never one row an eye.

    Attributes
    ----------
    images : torch.Tensor, ImageFiles or None
        ``(n, domains, channels, height, width)``: a tensor (bytes are scaled to [0, 1] when
        loaded), or files that are read when needed. ``None`` for a table without photographs: all
        but ``load`` works.
    y : torch.Tensor
        ``(n, p)`` float64, continuous responses first, then the binary ones (0, 1); ``NaN`` = not
        observed.
    ids : tuple of str
        Identity of each patient as text, so that ``"007"`` stays ``"007"``.
    responses : tuple of str
        The ``p`` names of the columns of ``y``, with units where there are some.
    continuous : int
        ``p0``: how many of the columns are continuous.
    name : str
        Name of the data set, for records and messages.
    domains : tuple of str
        What the domains are; left eye (OS) first, as in the paper.
    notes : dict
        How the rows came about: flow of patients, options such as mirroring, thresholds.
    truth : object, optional
        The generating process of synthetic data (:class:`SyntheticTruth`).
    covariates : torch.Tensor, optional
        ``(n, domains, k)`` float64 numbers beside the images, such as age; ``NaN`` = not observed.
    covariate_names : tuple of str
        The ``k`` names.
    visits : tuple of str
        The visit of each row, where patients have several.

    Raises
    ------
    ShapeError
        Counts of images, rows, ids or names disagree.
    LabelError
        A binary response is neither 0, 1 nor NaN; the message names row and column.
    """

    images: torch.Tensor | ImageFiles | None
    y: torch.Tensor
    ids: tuple[str, ...]
    responses: tuple[str, ...]
    continuous: int
    name: str = "paired eyes"
    domains: tuple[str, ...] = ("OS", "OD")
    notes: dict[str, Any] = field(default_factory=dict)
    truth: Any = None
    covariates: torch.Tensor | None = None
    covariate_names: tuple[str, ...] = ()
    visits: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n, p, eyes = *self.y.shape, len(self.domains)
        pictures = n if self.images is None else len(self.images)
        if pictures != n or len(self.ids) != n or len(self.visits) not in (0, n):
            raise ShapeError(
                f"{pictures} images and {len(self.ids)} ids for {n} rows of y; all must agree."
            )
        if len(self.responses) != p or not 0 <= self.continuous <= p:
            raise ShapeError(
                f"{len(self.responses)} response names, {self.continuous} continuous, "
                f"for {p} columns of y."
            )
        if self.images is not None and tuple(self.images.shape[1:-3]) != (eyes,):
            raise ShapeError(
                f"images have shape {tuple(self.images.shape)}; expected "
                f"(n, {eyes}, channels, height, width)."
            )
        expected = (n, eyes, len(self.covariate_names))
        if self.covariates is not None and tuple(self.covariates.shape) != expected:
            raise ShapeError(
                f"covariates have shape {tuple(self.covariates.shape)}; expected {expected}."
            )
        wrong = ~torch.isnan(self.binary) & (self.binary != 0) & (self.binary != 1)
        for i, k in torch.nonzero(wrong)[:1].tolist():
            column = self.responses[self.continuous + k]
            raise LabelError(
                f"patient {self.ids[i]!r}, column {column!r}: {float(self.binary[i, k])} is no "
                "binary response; write 0, 1 or NaN for not observed."
            )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def binary(self) -> torch.Tensor:
        """The binary columns of ``y``, ``(n, p - p0)``."""
        return self.y[:, self.continuous :]

    @cached_property
    def complete(self) -> np.ndarray:
        """Whether every response of the patient is observed, ``(n,)`` booleans."""
        return torch.isfinite(self.y).all(1).numpy()

    def replace(self, **changes: Any) -> PairedEyes:
        """Return the same patients with other attributes, such as ``images`` that lie in memory."""
        return PairedEyes(
            **{each.name: getattr(self, each.name) for each in fields(self)} | changes
        )

    def subset(self, index: np.ndarray) -> PairedEyes:
        """Return the patients at ``index`` (integers, in that order) with all that belongs to them.

        A boolean ``index`` keeps the patients for whom it is true.
        """
        rows = np.arange(len(self))[np.asarray(index)]
        images, at = self.images, torch.as_tensor(rows)
        if images is not None:
            images = images[at] if torch.is_tensor(images) else images.subset(rows)
        return self.replace(
            images=images,
            y=self.y[at],
            ids=tuple(self.ids[i] for i in rows),
            visits=tuple(self.visits[i] for i in rows) if self.visits else (),
            truth=None if self.truth is None else self.truth.subset(at),
            covariates=None if self.covariates is None else self.covariates[at],
        )

    def load(self, index: np.ndarray | None = None) -> torch.Tensor:
        """Return the images of some patients (all by default) as float32.

        Bytes become numbers in [0, 1]; floating-point images are returned as they are.

        Returns
        -------
        torch.Tensor
            ``(k, domains, channels, height, width)``.

        Raises
        ------
        DataError
            The data set is a table only.
        """
        return numbers(self.stored(index))

    def stored(self, index: np.ndarray | None = None) -> torch.Tensor:
        """Return what :meth:`load` makes numbers of: bytes, a quarter of their size, where the
        images are bytes."""
        if self.images is None:
            raise DataError(
                f"{self.name!r} is a table without photographs; load it with a folder of images "
                "to train."
            )
        images = self.images[np.arange(len(self)) if index is None else np.asarray(index)]
        return images if images.dtype == torch.uint8 else images.float()

    @cached_property
    def hash(self) -> str:
        """First 16 digits of the SHA-256 of all that is observed; equal data have equal hashes."""
        total = hashlib.sha256("\0".join((*self.ids, *self.visits, *self.responses)).encode())
        total.update(_bytes(self.y))
        if torch.is_tensor(self.images):
            total.update(self.images.contiguous().numpy().tobytes())
        elif self.images is not None:
            total.update(self.images.digest())
        if self.covariates is not None:
            total.update("\0".join(self.covariate_names).encode())
            total.update(_bytes(self.covariates))
        return total.hexdigest()[:16]

    def strata(self) -> np.ndarray:
        """``(n,)`` integers: the pattern of binary responses (0, 1, not observed) in base 3."""
        codes = torch.nan_to_num(self.binary, nan=2.0).long().numpy()
        return (codes * 3 ** np.arange(codes.shape[1])).sum(1)


def numbers(images: torch.Tensor) -> torch.Tensor:
    """Return images as float32, bytes in [0, 1]."""
    return images.float() / 255 if images.dtype == torch.uint8 else images


def _bytes(values: torch.Tensor) -> bytes:
    """Return the bytes of numbers; NaN has many bit patterns, of which one stands for all."""
    return torch.nan_to_num(values, nan=-9.75e300).contiguous().numpy().tobytes()
