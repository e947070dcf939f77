"""Predictions per patient: both means, marginal and joint probabilities, and the joint Bayes rule
(Section 3.3).
"""

from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from cevit_lib.copula import (
    MOST_TOGETHER,
    CopulaParameters,
    bayes_classifier,
    class_probabilities,
)
from cevit_lib.datasets import PairedEyes
from cevit_lib.errors import ParameterError
from cevit_lib.training.fit import Fit, predict_outputs

#: What stands in every saved model and in the first line of every table of predictions.
NOT_CLINICAL = "not for clinical use"


@dataclass(frozen=True)
class Predictions:
    """What a fit says of some patients.

    Attributes
    ----------
    ids : tuple of str
        Identities of the n patients.
    responses : tuple of str
        Names of the p columns of ``outputs``.
    outputs : Tensor
        ``(n, p)`` means in the responses' own units, then logits.
    parameters : CopulaParameters
        Those that join the margins.
    """

    ids: tuple[str, ...]
    responses: tuple[str, ...]
    outputs: Tensor
    parameters: CopulaParameters

    @property
    def means(self) -> Tensor:
        """``(n, p0)`` predicted continuous responses."""
        return self.outputs[:, : self.parameters.p0]

    @property
    def probabilities(self) -> Tensor:
        """``(n, p1)`` marginal probability of each binary response."""
        return torch.sigmoid(self.outputs[:, self.parameters.p0 :])

    @property
    def joint(self) -> Tensor:
        """``(n, 2, ..., 2)`` joint probabilities, indexed by the binary responses."""
        return class_probabilities(self.outputs, self.parameters)

    def classes(self, rule: str = "joint") -> Tensor:
        """``(n, p1)`` predicted binary responses: the most probable combination, or each by its own
        margin.

        Raises
        ------
        ParameterError
            ``rule`` is neither ``"joint"`` nor ``"marginal"``.
        """
        if rule not in ("joint", "marginal"):
            raise ParameterError(
                f"rule={rule!r}: give 'joint' (Section 3.3) or 'marginal' (each probability above "
                "1/2)."
            )
        if rule == "marginal":
            return (self.probabilities > 0.5).long()
        return bayes_classifier(self.outputs, self.parameters).long()

    def table(self) -> pd.DataFrame:
        """Return one row a patient: id, means, marginal and joint probabilities, and the joint
        Bayes class; of many labels no joint probabilities, and each by its own margin.
        """
        p0, p1 = self.parameters.p0, self.parameters.p1
        columns: dict[str, list] = {"id": list(self.ids)}
        for k in range(p0):
            columns[f"mean {self.responses[k]}"] = self.means[:, k].tolist()
        for k in range(p1):
            columns[f"probability {self.responses[p0 + k]}"] = self.probabilities[:, k].tolist()
        together = p1 <= MOST_TOGETHER  # more have too many cells to tell
        classes = self.classes("joint" if together else "marginal")
        joint = self.joint.reshape(len(self.ids), -1) if together else None
        for cell in range(2**p1 if together else 0):
            columns[f"joint {cell:0{p1}b}"] = joint[:, cell].tolist()
        for k in range(p1):
            columns[f"class {self.responses[p0 + k]}"] = classes[:, k].tolist()
        return pd.DataFrame(columns)


def predict(
    fit: Fit,
    data: PairedEyes,
    *,
    parameters: CopulaParameters | None = None,
    device: str | torch.device | None = None,
) -> Predictions:
    """Return the predictions of a fit for the patients of ``data`` (their responses are not looked
    at).

    Parameters
    ----------
    fit : Fit
        Of a warm-up or of copula training.
    data : PairedEyes
        Patients.
    parameters : CopulaParameters, optional
        Joins the margins; default the fit's own, and independence where it has none.
    """
    if parameters is None:
        parameters = fit.parameters
    if parameters is None:
        p1 = len(fit.responses) - fit.continuous
        parameters = CopulaParameters.independent(fit.standardisation.sd, p1)
    return Predictions(
        data.ids, fit.responses, predict_outputs(fit, data, device=device), parameters
    )
