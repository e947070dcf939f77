"""The contract of every estimator: arguments stored as given, ``fit`` returns ``self``, results end
in ``_``."""

import inspect
import warnings
from dataclasses import dataclass

import numpy as np
import torch

from cevit_lib.copula import CopulaParameters
from cevit_lib.errors import NearSingularWarning, NotConvergedWarning
from cevit_lib.estimation.correlation import keep_positive_definite, smallest_eigenvalue
from cevit_lib.estimation.observed import Observed, observe

#: An estimate whose smallest eigenvalue lies below this is reported as near-singular.
NEAR_SINGULAR = 1e-3


#: Makes a class's fields the arguments that its constructor stores.
arguments = dataclass(repr=False, eq=False)


class CopulaEstimator:
    """Base of the estimators of the copula parameters ``S_C = {sigma, Gamma}``.

    A subclass stores its arguments and gives ``_estimate``. Attributes ending in ``_`` exist after
    ``fit``.

    Attributes
    ----------
    parameters_ : CopulaParameters
        Float64 ``correlation`` of shape (p, p) and ``scale`` of shape (p0,).
    n_iter_ : int
        Iterations made.
    converged_ : bool
        Whether the tolerance was met.
    history_ : dict
        ``"correlation"``: (n_iter + 1, p, p) array, the start first; ``"objective"``, ``"change"``:
        one an iteration.
    """

    remedy = (
        "raise max_iter (cevit fit: --max-iter) or tol, or check the outputs for near-perfect "
        "separation"
    )

    def __repr__(self) -> str:
        stored = inspect.signature(type(self)).parameters.values()
        pairs = [(each.name, getattr(self, each.name), each.default) for each in stored]
        changed = [f"{name}={value!r}" for name, value, usual in pairs if value is not usual]
        return f"{type(self).__name__}({', '.join(changed)})"

    def fit(self, outputs, y, continuous: int | None = None):
        """Estimate ``sigma`` and ``Gamma`` from outputs and responses.

        Parameters
        ----------
        outputs : (n, p) tensor or array
            Conditional means of the continuous responses and logits of the binary ones, continuous
            first: of the training patients (as the paper) or of held-out ones.
        y : (n, p) tensor or array
            Responses in the same order, ``NaN`` where not observed.
        continuous : int, optional
            Number of continuous responses; found from the values of ``y`` if not given.

        Returns
        -------
        self

        Raises
        ------
        ShapeError, LabelError, DataError
            Arrays that do not fit each other; a label that is not 0, 1 or NaN; a response that is
            never observed, or an entry that is not finite.
        ScaleError
            The residuals of a continuous response do not vary.

        Warns
        -----
        NotConvergedWarning, NearSingularWarning
            The estimate is there all the same; the message names a remedy.
        """
        return self.fit_observed(observe(outputs, y, continuous))

    def fit_observed(self, observed: Observed):
        """Do what ``fit`` does with patients that are checked and grouped already."""
        self.history_ = {"objective": [], "change": [], "correlation": []}
        self.n_iter_, self.converged_ = 0, False
        scale, correlation = self._estimate(observed)
        self.history_ = {name: np.array(values) for name, values in self.history_.items()}
        correlation = keep_positive_definite(0.5 * (correlation + correlation.T))
        self.parameters_ = CopulaParameters(
            torch.from_numpy(correlation.copy()), torch.from_numpy(scale.copy())
        )
        self._warn(observed, smallest_eigenvalue(correlation))
        return self

    def _estimate(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        """Return ``sigma`` and ``Gamma``; set ``n_iter_`` and ``converged_``, fill ``history_``."""
        raise NotImplementedError

    def _warn(self, observed: Observed, smallest: float) -> None:
        name = type(self).__name__
        if observed.n < observed.p:
            warnings.warn(
                f"{name}: {observed.n} patients cannot determine the correlations of {observed.p} "
                "responses; the estimate is finite but means little. Give at least as many "
                "patients as responses.",
                NearSingularWarning,
                stacklevel=4,
            )
        if smallest < NEAR_SINGULAR:
            warnings.warn(
                f"{name}: the smallest eigenvalue of the estimate is {smallest:.2g}, below "
                f"{NEAR_SINGULAR:g}; the copula loss will refuse it. Shrink it "
                "(CopulaParameters.shrink), estimate on held-out outputs, or check that there are "
                "more patients than responses.",
                NearSingularWarning,
                stacklevel=4,
            )
        if not self.converged_:
            warnings.warn(
                f"{name} stopped after {self.n_iter_} iterations without meeting its tolerance; "
                f"{self.remedy}.",
                NotConvergedWarning,
                stacklevel=4,
            )
