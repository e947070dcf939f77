"""The one data structure of the compendium: patients with both eyes, their responses, and what is missing."""

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from cevit_lib.datasets.images import ImageFiles
from cevit_lib.errors import DataError, LabelError, ShapeError


@dataclass(frozen=True)
class PairedEyes:
    """Paired eyes: one row a patient, never one row an eye.

    Attributes
    ----------
    images : torch.Tensor, ImageFiles or None
        ``(n, domains, channels, height, width)``: a tensor (bytes are scaled to [0, 1] when loaded), or files that are
        read when needed. ``None`` for a table without photographs: all but ``load`` works.
    y : torch.Tensor
        ``(n, p)`` float64, continuous responses first, then the binary ones (0, 1); ``NaN`` = not observed.
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

    def __post_init__(self) -> None:
        n, p = self.y.shape
        pictures = n if self.images is None else len(self.images)
        if pictures != n or len(self.ids) != n:
            raise ShapeError(
                f"{pictures} images and {len(self.ids)} ids for {n} rows of y; all three must agree."
            )
        if len(self.responses) != p or not 0 <= self.continuous <= p:
            raise ShapeError(
                f"{len(self.responses)} response names, {self.continuous} continuous, for {p} columns of y."
            )
        expected = (n, len(self.domains), len(self.covariate_names))
        if self.covariates is not None and tuple(self.covariates.shape) != expected:
            raise ShapeError(
                f"covariates have shape {tuple(self.covariates.shape)}; expected {expected}."
            )
        if self.images is not None and (
            len(self.images.shape) != 5 or self.images.shape[1] != len(self.domains)
        ):
            raise ShapeError(
                f"images have shape {tuple(self.images.shape)}; expected "
                f"(n, {len(self.domains)}, channels, height, width)."
            )
        wrong = torch.isfinite(self.binary) & (self.binary != 0) & (self.binary != 1) | torch.isinf(
            self.binary
        )
        if wrong.any():
            i, k = (int(v) for v in torch.nonzero(wrong)[0])
            column = self.responses[self.continuous + k]
            raise LabelError(
                f"patient {self.ids[i]!r}, column {column!r}: {float(self.binary[i, k])} is no binary response; "
                "write 0, 1 or NaN for not observed."
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

    def subset(self, index: np.ndarray) -> "PairedEyes":
        """Return the patients at ``index`` (integers, in that order) with everything that belongs to them."""
        rows = np.asarray(index)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        at = torch.as_tensor(rows, dtype=torch.long)
        images = self.images
        if images is not None:
            images = images.subset(rows) if isinstance(images, ImageFiles) else images[at]
        covariates = None if self.covariates is None else self.covariates[at]
        truth = self.truth.subset(at) if hasattr(self.truth, "subset") else self.truth
        changes = dict(
            images=images,
            y=self.y[at],
            ids=tuple(self.ids[i] for i in rows),
            truth=truth,
            covariates=covariates,
        )
        return PairedEyes(**{**self._fields(), **changes})

    def eye(self, j: int) -> "PairedEyes":
        """Return one eye of every patient, with its own responses: what a network of one eye, such as CeCNN, is given.

        Columns of ``y`` are taken to stand measure by measure, within a measure eye by eye (as everywhere here).

        Raises
        ------
        ShapeError
            There is no eye ``j`` (counted from 0), or the responses do not come in one column an eye.
        """
        domains = len(self.domains)
        if not 0 <= j < domains:
            raise ShapeError(
                f"eye {j}: there are {domains}, counted from 0 ({', '.join(self.domains)})."
            )
        if self.continuous % domains or len(self.responses) % domains:
            raise ShapeError(
                f"{self.continuous} continuous of {len(self.responses)} responses do not come in one column for each "
                f"of {domains} eyes; a response of the patient belongs to no eye."
            )
        images = self.images
        if isinstance(images, ImageFiles):
            paths = tuple(row[j : j + 1] for row in images.paths)
            images = replace(images, paths=paths, mirrored=images.mirrored[j : j + 1])
        elif images is not None:
            images = images[:, j : j + 1]
        covariates = None if self.covariates is None else self.covariates[:, j : j + 1]
        changes = dict(
            images=images,
            y=self.y[:, j::domains],
            responses=self.responses[j::domains],
            truth=None,
            continuous=self.continuous // domains,
            domains=self.domains[j : j + 1],
            covariates=covariates,
        )
        return PairedEyes(**{**self._fields(), **changes})

    def with_images(self, images: torch.Tensor) -> "PairedEyes":
        """Return the same patients with their images already in memory."""
        return PairedEyes(**{**self._fields(), "images": images})

    def load(self, index: np.ndarray | None = None) -> torch.Tensor:
        """Return the images of some patients (all by default), float32 ``(k, domains, channels, height, width)``.

        Bytes become numbers in [0, 1]; floating-point images are returned as they are.

        Raises
        ------
        DataError
            The data set is a table only.
        """
        if self.images is None:
            raise DataError(
                f"{self.name!r} is a table without photographs; load it with a folder of images to train."
            )
        rows = np.arange(len(self)) if index is None else np.asarray(index)
        images = (
            self.images[rows]
            if isinstance(self.images, ImageFiles)
            else self.images[torch.as_tensor(rows)]
        )
        return images.float() / 255 if images.dtype == torch.uint8 else images.float()

    @cached_property
    def hash(self) -> str:
        """First 16 digits of the SHA-256 of ids, responses and image bytes; equal data have equal hashes."""
        total = hashlib.sha256("\0".join((*self.ids, *self.responses)).encode())
        # NaN has many bit patterns: one of them stands for all, or equal data could differ.
        total.update(torch.nan_to_num(self.y, nan=-9.75e300).contiguous().numpy().tobytes())
        if isinstance(self.images, ImageFiles):
            total.update(self.images.digest())
        elif self.images is not None:
            total.update(self.images.contiguous().numpy().tobytes())
        if self.covariates is not None:
            total.update("\0".join(self.covariate_names).encode())
            total.update(
                torch.nan_to_num(self.covariates, nan=-9.75e300).contiguous().numpy().tobytes()
            )
        return total.hexdigest()[:16]

    def strata(self) -> np.ndarray:
        """``(n,)`` integers: the pattern of binary responses (0, 1, not observed) as a number in base 3."""
        codes = torch.nan_to_num(self.binary, nan=2.0).long().numpy()
        return (
            (codes * 3 ** np.arange(codes.shape[1])).sum(1)
            if codes.shape[1]
            else np.zeros(len(self), dtype=int)
        )

    def _fields(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in PairedEyes.__dataclass_fields__}
