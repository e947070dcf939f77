"""The copula parameters ``S_C`` of the paper (Section 2.2): scales of the continuous responses and
correlations.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cevit_lib.errors import NotPositiveDefiniteError, ScaleError, ShapeError

MINIMUM_EIGENVALUE = 1e-3
"""Below this smallest eigenvalue ``CopulaLoss`` refuses a correlation matrix: gradients grow like
its inverse.
"""


@dataclass(frozen=True, eq=False)
class CopulaParameters:
    r"""Scales :math:`\sigma` and correlation matrix :math:`\Gamma` of a mixed Gaussian copula (the
    paper's ``S_C``).

    The latent vector is :math:`u = (e_1, ..., e_{p_0}, u_{p_0+1}, ..., u_p) \sim N(0, \Gamma)`:
    first the standardised residuals of the ``p0`` continuous responses, then the latent scores of
    the ``p1`` binary ones.

    Parameters
    ----------
    correlation : tensor or nested list, shape (p, p)
        :math:`\Gamma`, symmetric with unit diagonal and positive definite. May require gradients.
    scale : tensor or list, shape (p0,)
        :math:`\sigma > 0`, in the units of the continuous responses. Its length says how many
        responses are continuous.
    validate : bool
        False skips every check: no host synchronisation on CUDA, and matrices that are not positive
        definite can be built, for example to ``shrink`` them.

    Raises
    ------
    ShapeError
        ``correlation`` is not square, or ``scale`` is longer than its side.
    ScaleError
        A scale is not positive and finite.
    NotPositiveDefiniteError
        ``correlation`` is not symmetric, has no unit diagonal, is not finite or has an eigenvalue
        <= 0.

    Examples
    --------
    >>> parameters = CopulaParameters([[1.0, 0.5], [0.5, 1.0]], [2.0])
    >>> parameters.p0, parameters.p1
    (1, 1)
    """

    correlation: Tensor
    scale: Tensor
    validate: bool = True

    def __post_init__(self) -> None:
        correlation = _as_float_tensor(self.correlation)
        scale = _as_float_tensor(self.scale).to(correlation.device)
        object.__setattr__(self, "correlation", correlation)
        object.__setattr__(self, "scale", scale.reshape(0) if scale.numel() == 0 else scale)
        _check_shapes(self.correlation, self.scale)
        if self.validate:
            _check_scale(self.scale)
            _check_correlation(self.correlation)
            smallest = self.smallest_eigenvalue()
            if smallest <= 0:
                raise NotPositiveDefiniteError(
                    "correlation is not positive definite: its smallest eigenvalue is "
                    f"{smallest:.3g}; CopulaParameters(correlation, scale, validate=False)"
                    ".shrink() pulls it towards the identity"
                )

    @property
    def p(self) -> int:
        """Number of responses."""
        return self.correlation.shape[-1]

    @property
    def p0(self) -> int:
        """Number of continuous responses."""
        return self.scale.shape[-1]

    @property
    def p1(self) -> int:
        """Number of binary responses."""
        return self.p - self.p0

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient with respect to the scales or the correlations is wanted."""
        return self.correlation.requires_grad or self.scale.requires_grad

    def smallest_eigenvalue(self) -> float:
        """Return the smallest eigenvalue of the correlation matrix (one host synchronisation on
        CUDA).
        """
        matrix = self.correlation.detach().double().cpu()
        return float(torch.linalg.eigvalsh((matrix + matrix.T) / 2)[0])

    def shrink(
        self, weight: float | None = None, minimum_eigenvalue: float = 1e-2
    ) -> "CopulaParameters":
        r"""Return parameters with :math:`(1 - w) \Gamma + w I` in place of :math:`\Gamma`.

        Parameters
        ----------
        weight : float, optional
            :math:`w` in [0, 1]. By default the smallest one that lifts the smallest eigenvalue to
            ``minimum_eigenvalue`` (0 when it is there already).
        minimum_eigenvalue : float
            Below 1; used only without ``weight``.

        Raises
        ------
        ValueError
            ``weight`` is out of range.
        """
        if weight is None:
            smallest = self.smallest_eigenvalue()  # at most 1, that of the identity
            lacking = minimum_eigenvalue - smallest
            weight = lacking / (1 - smallest) if lacking > 0 else 0.0
        if not 0 <= weight <= 1:
            raise ValueError(f"weight must lie in [0, 1], not {weight}")
        identity = torch.eye(self.p, dtype=self.correlation.dtype, device=self.correlation.device)
        return CopulaParameters(
            (1 - weight) * self.correlation + weight * identity, self.scale, validate=False
        )

    def margin(self, columns: list[int]) -> "CopulaParameters":
        """Return the parameters of some responses alone, continuous ones first; a Gaussian copula
        simply forgets the others.
        """
        correlation = self.correlation[columns][:, columns]
        scale = self.scale[[column for column in columns if column < self.p0]]
        return CopulaParameters(correlation, scale, validate=False)

    def to(self, *args: Any, **kwargs: Any) -> "CopulaParameters":
        """Return the parameters moved or cast as ``torch.Tensor.to`` would (device, dtype or
        both).
        """
        return CopulaParameters(
            self.correlation.to(*args, **kwargs), self.scale.to(*args, **kwargs), validate=False
        )

    def detach(self) -> "CopulaParameters":
        """Return the parameters cut from the graph that made them."""
        return CopulaParameters(self.correlation.detach(), self.scale.detach(), validate=False)

    def to_dict(self) -> dict[str, list]:
        """Return nested lists, as a record stores them."""
        return {
            "correlation": self.correlation.detach().cpu().tolist(),
            "scale": self.scale.detach().cpu().tolist(),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "CopulaParameters":
        """Return the parameters that ``to_dict`` stored, in float64."""
        return cls(stored["correlation"], stored["scale"])

    @classmethod
    def independent(cls, scale: Any, p1: int) -> "CopulaParameters":
        """Return the identity correlation matrix for these scales and ``p1`` binary responses."""
        scale = _as_float_tensor(scale)
        return cls(torch.eye(scale.numel() + p1, dtype=scale.dtype, device=scale.device), scale)


def _as_float_tensor(values: Any) -> Tensor:
    """Return a floating tensor; anything that is not a tensor of floats becomes float64."""
    if isinstance(values, Tensor):
        return values if values.is_floating_point() else values.double()
    return torch.as_tensor(values, dtype=torch.float64)


def _check_shapes(correlation: Tensor, scale: Tensor) -> None:
    if (
        correlation.dim() != 2
        or correlation.shape[0] != correlation.shape[1]
        or correlation.shape[0] == 0
    ):
        raise ShapeError(
            f"correlation has shape {tuple(correlation.shape)}; expected a square matrix (p, p)"
        )
    if scale.dim() != 1 or scale.shape[0] > correlation.shape[0]:
        raise ShapeError(
            f"scale has shape {tuple(scale.shape)} beside a correlation matrix of shape "
            f"{tuple(correlation.shape)}; expected one scale for each continuous response, "
            "(p0,) with p0 <= p"
        )


def _check_scale(scale: Tensor) -> None:
    wrong = ~(torch.isfinite(scale) & (scale > 0))
    if bool(wrong.any()):
        place = int(wrong.nonzero()[0])
        raise ScaleError(
            f"scale[{place}] is {float(scale[place]):g}; a standard deviation must be "
            "positive and finite: look for a constant or missing column of residuals"
        )


def _check_correlation(correlation: Tensor) -> None:
    matrix = correlation.detach().double().cpu()
    if not bool(torch.isfinite(matrix).all()):
        row, column = (~torch.isfinite(matrix)).nonzero()[0].tolist()
        raise NotPositiveDefiniteError(
            f"correlation[{row}, {column}] is {float(matrix[row, column])}, not a finite number"
        )
    # float32 matrices that went through a division are symmetric only to rounding
    tolerance = 1e-5 if correlation.dtype != torch.float64 else 1e-8
    asymmetry = (matrix - matrix.T).abs()
    if float(asymmetry.max()) > tolerance:
        row, column = divmod(int(asymmetry.argmax()), matrix.shape[0])
        raise NotPositiveDefiniteError(
            f"correlation is not symmetric: [{row}, {column}] is {float(matrix[row, column]):.6g} "
            f"and [{column}, {row}] is {float(matrix[column, row]):.6g}; "
            "average the two, or find which is right"
        )
    diagonal = (matrix.diagonal() - 1).abs()
    if float(diagonal.max()) > tolerance:
        place = int(diagonal.argmax())
        raise NotPositiveDefiniteError(
            f"correlation[{place}, {place}] is {float(matrix[place, place]):.6g}, not 1: "
            "a covariance was passed; divide by the standard deviations (they belong into scale)"
        )


def check_not_near_singular(parameters: CopulaParameters) -> None:
    """Refuse a correlation matrix whose smallest eigenvalue is below ``MINIMUM_EIGENVALUE``.

    Raises
    ------
    NotPositiveDefiniteError
        The message names the eigenvalue and offers ``CopulaParameters.shrink``.
    """
    smallest = parameters.smallest_eigenvalue()
    if not smallest >= MINIMUM_EIGENVALUE:
        raise NotPositiveDefiniteError(
            f"the smallest eigenvalue of the correlation matrix is {smallest:.3g}, below "
            f"{MINIMUM_EIGENVALUE:g}: a loss with it is dominated by a few observations. If you "
            "want to go on, pass parameters.shrink() (smallest eigenvalue 0.01) or "
            "parameters.shrink(minimum_eigenvalue=...)"
        )
