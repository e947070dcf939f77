"""The contract of every estimator: arguments stored as given, ``fit`` returns ``self``, results end in ``_``."""

import inspect
import warnings

import numpy as np
import torch

from cevit_lib.copula import CopulaParameters
from cevit_lib.errors import (
    NearSingularWarning,
    NotConvergedWarning,
    NotPositiveDefiniteError,
    ShapeError,
)
from cevit_lib.estimation.correlation import (
    EIGENVALUE_FLOOR,
    keep_positive_definite,
    smallest_eigenvalue,
)
from cevit_lib.estimation.observed import Observed, observe

#: An estimate whose smallest eigenvalue lies below this is reported as near-singular.
NEAR_SINGULAR = 1e-3


class CopulaEstimator:
    """Base of the estimators of the copula parameters ``S_C = {sigma, Gamma}``.

    Attributes ending in ``_`` exist after ``fit``.

    Attributes
    ----------
    parameters_ : CopulaParameters
        Float64 ``correlation`` of shape (p, p) and ``scale`` of shape (p0,).
    n_iter_ : int
        Iterations made.
    converged_ : bool
        Whether the tolerance was met.
    history_ : dict
        ``"correlation"``: (n_iter + 1, p, p) array, the start first; ``"objective"``, ``"change"``: one an iteration.
    """

    remedy = "raise max_iter (cevit fit: --max-iter) or tol, or check the outputs for near-perfect separation"

    def get_params(self) -> dict:
        """Return the constructor's arguments by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def __repr__(self) -> str:
        defaults = {
            name: spec.default for name, spec in inspect.signature(type(self)).parameters.items()
        }
        changed = (
            (name, value)
            for name, value in self.get_params().items()
            if value is not defaults[name]
        )
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed)})"

    def fit(self, outputs, y):
        """Estimate ``sigma`` and ``Gamma`` from outputs and responses.

        Parameters
        ----------
        outputs : (n, p) tensor or array
            Conditional means of the continuous responses and logits of the binary ones, continuous first: of the
            training patients (as the paper) or of held-out ones.
        y : (n, p) tensor or array
            Responses in the same order, ``NaN`` where not observed.

        Returns
        -------
        self

        Raises
        ------
        ShapeError, LabelError, DataError
            Arrays that do not fit each other; a label that is not 0, 1 or NaN; a response that is never observed, or an
            entry that is not finite.
        ScaleError
            The residuals of a continuous response do not vary.

        Warns
        -----
        NotConvergedWarning, NearSingularWarning
            The estimate is there all the same; the message names a remedy.
        """
        observed = observe(outputs, y, self.continuous)
        self.history_ = {"objective": [], "change": [], "correlation": []}
        self.n_iter_, self.converged_ = 0, False
        scale, correlation = self._estimate(observed)
        self.history_ = {name: np.array(values) for name, values in self.history_.items()}
        if observed.n < observed.p:
            warnings.warn(
                f"{type(self).__name__}: {observed.n} patients cannot determine the correlations of {observed.p} "
                "responses; the estimate is finite but means little. Give at least as many patients as responses.",
                NearSingularWarning,
                stacklevel=2,
            )
        self._finish(scale, correlation)
        return self

    def _estimate(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError

    def _finish(self, scale: np.ndarray, correlation: np.ndarray) -> None:
        correlation = keep_positive_definite(0.5 * (correlation + correlation.T))
        smallest = smallest_eigenvalue(correlation)
        self.parameters_ = CopulaParameters(
            torch.from_numpy(correlation.copy()), torch.from_numpy(scale.copy())
        )
        if smallest < NEAR_SINGULAR:
            warnings.warn(
                f"{type(self).__name__}: the smallest eigenvalue of the estimate is {smallest:.2g}, "
                f"below {NEAR_SINGULAR:g}; the copula loss will refuse it. Shrink it (CopulaParameters.shrink), "
                "estimate on held-out outputs, or check that there are more patients than responses.",
                NearSingularWarning,
                stacklevel=3,
            )
        if not self.converged_:
            warnings.warn(
                f"{type(self).__name__} stopped after {self.n_iter_} iterations without meeting its tolerance; "
                f"{self.remedy}.",
                NotConvergedWarning,
                stacklevel=3,
            )


def starting_correlation(initial, p: int) -> np.ndarray:
    """Return the initial correlation matrix: the identity for ``None``, else a checked copy of what was given.

    Raises
    ------
    ShapeError, NotPositiveDefiniteError
        The matrix is not (p, p), or not a positive definite correlation matrix.
    """
    if initial is None:
        return np.eye(p)
    matrix = np.array(torch.as_tensor(initial).detach().cpu().numpy(), dtype=np.float64)
    if matrix.shape != (p, p):
        raise ShapeError(
            f"initial must have shape ({p}, {p}), one row a response; seen {matrix.shape}"
        )
    smallest = smallest_eigenvalue(matrix)
    if (
        not np.allclose(np.diag(matrix), 1.0)
        or not np.allclose(matrix, matrix.T)
        or smallest < EIGENVALUE_FLOOR
    ):
        raise NotPositiveDefiniteError(
            f"initial must be a symmetric positive definite matrix with unit diagonal; its smallest eigenvalue is "
            f"{smallest:.2g}. Shrink it towards the identity first."
        )
    return matrix
