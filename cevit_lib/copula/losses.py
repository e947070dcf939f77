"""The two training losses of the paper: the copula loss, equation (11), and the empirical loss of
the warm-up.
"""

from itertools import combinations

import torch
from torch import Tensor, nn

from cevit_lib.copula.conditioning import tabulate
from cevit_lib.copula.density import log_density, same_dtype, without_autocast
from cevit_lib.copula.parameters import CopulaParameters, check_not_near_singular
from cevit_lib.copula.validation import check_labels, check_same_shape

MOST_TOGETHER = 4
"""Labels whose joint probability is cheap and exact; more are taken in pairs."""
REDUCTIONS = {"sum": torch.sum, "mean": torch.mean, "none": lambda values: values}


class CopulaLoss(nn.Module):
    """Negative log-likelihood of mixed responses under a Gaussian copula with fixed parameters.

    Parameters
    ----------
    parameters : CopulaParameters
        Kept in float64; the conditional algebra is done once, here.
    reduction : {"sum", "mean", "none"}
        Over observations (patients): the paper sums; training in this book takes the mean. An
        observation counts in the mean also when some of its responses are missing.
    validate : bool
        Check the smallest eigenvalue now and the labels at every call. With False no call waits for
        an accelerator: then check the labels once for the whole data set
        (``cevit_lib.copula.check_labels``).
    missing : bool, optional
        As in ``log_density``: False promises complete responses.

    Raises
    ------
    NotPositiveDefiniteError
        The smallest eigenvalue is below 1e-3; the message offers ``CopulaParameters.shrink``.

    Notes
    -----
    The value may be negative: it is minus the logarithm of a density. To learn the parameters pass
    them at each call, ``loss(outputs, y, CopulaParameters(correlation, scale, validate=False))``,
    with tensors that require gradients. Inside ``torch.autocast`` the loss computes in float32 by
    itself.

    Examples
    --------
    >>> loss = CopulaLoss(CopulaParameters([[1.0, 0.5], [0.5, 1.0]], [1.0]))
    >>> float(loss(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]])))  # log(2 pi) / 2 + log 2
    1.6120...
    """

    def __init__(
        self,
        parameters: CopulaParameters,
        reduction: str = "sum",
        validate: bool = True,
        missing: bool | None = None,
    ) -> None:
        super().__init__()
        self.reduction, self.validate, self.missing = _known(reduction), validate, missing
        self.set_parameters(parameters)

    def set_parameters(self, parameters: CopulaParameters) -> None:
        """Keep these parameters and, where they are fixed, what the likelihood makes of them."""
        if self.validate:
            check_not_near_singular(parameters)
        self.copula, self.tables = parameters, None
        if not parameters.requires_grad:
            self.tables = {missing: tabulate(parameters, missing) for missing in (False, True)}

    def _apply(self, fn, recurse: bool = True):
        """Follow the module to another device; ``.half()`` and the like leave the parameters in
        float64.
        """
        device = fn(torch.empty(0, device=self.copula.correlation.device)).device
        if device not in (self.copula.correlation.device, torch.device("mps", 0)):
            self.set_parameters(self.copula.to(device))
        return super()._apply(fn, recurse)

    def forward(
        self, outputs: Tensor, y: Tensor, parameters: CopulaParameters | None = None
    ) -> Tensor:
        """Return the loss of ``outputs`` (n, p) for the responses ``y`` (n, p), NaN where not
        observed.

        An Apple GPU has no float64, which the parameters are kept in: there the loss is computed,
        and returned, on the CPU, to which a few numbers a patient go; the gradient goes back to
        where ``outputs`` came from.
        """
        if outputs.device.type == "mps":
            outputs, y = outputs.cpu(), y.cpu()
        if parameters is None and outputs.device != self.copula.correlation.device:
            self.to(outputs.device)
        known = (self.copula, self.tables) if parameters is None else (parameters, None)
        values = log_density(
            outputs, y, known[0], validate=self.validate, missing=self.missing, tables=known[1]
        )
        return -REDUCTIONS[self.reduction](values)

    def get_extra_state(self) -> dict[str, Tensor]:
        """Return the parameters for a ``state_dict``: a checkpoint goes on under the same ones."""
        return {"correlation": self.copula.correlation, "scale": self.copula.scale}

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Take the parameters of a ``state_dict``."""
        self.set_parameters(CopulaParameters(**state, validate=False))


class PairwiseCopulaLoss(CopulaLoss):
    r"""Minus the composite log-likelihood of pairs of labels, for labels too many to be taken
    together.

    With :math:`y_1` the continuous responses and :math:`p_1` labels it is

    .. math::
       -\log f(y_1) - \frac{1}{p_1 - 1} \sum_{j<k} \log P(y_j, y_k \mid y_1),

    in which each label counts once: under independent labels, and for two of them, it is the whole
    likelihood. Each pair costs a bivariate probability, where all together cost one in
    :math:`p_1` dimensions.

    Parameters
    ----------
    parameters, reduction, validate, missing
        As of :class:`CopulaLoss`; two labels or more.

    Notes
    -----
    Source: C. Varin, N. Reid, D. Firth, An overview of composite likelihood methods (Statistica
    Sinica 21, 2011).
    """

    def set_parameters(self, parameters: CopulaParameters) -> None:
        """Keep these parameters, and a loss for each pair of labels."""
        self.copula, p0 = parameters, parameters.p0
        self.columns = [[*range(p0), *pair] for pair in combinations(range(p0, parameters.p), 2)]
        self.weights = [1 / (parameters.p1 - 1)] * len(self.columns)
        if p0:  # the pairs count the continuous responses p1 / 2 times
            self.columns.insert(0, [*range(p0)])
            self.weights.insert(0, 1 - parameters.p1 / 2)
        self.parts = nn.ModuleList(
            CopulaLoss(parameters.margin(columns), "none", self.validate)
            for columns in self.columns
        )

    def forward(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of ``outputs`` (n, p) for the responses ``y`` (n, p), NaN where not
        observed.
        """
        values = 0.0
        for part, columns, weight in zip(self.parts, self.columns, self.weights, strict=True):
            part.validate, part.missing = self.validate, self.missing
            values = values + weight * part(outputs[:, columns], y[:, columns])
        return REDUCTIONS[self.reduction](values)


def copula_loss(parameters: CopulaParameters, reduction: str = "mean") -> nn.Module:
    """Return the loss of the copula stage: of all labels together, or of pairs where there are more
    than ``MOST_TOGETHER``.
    """
    kind = CopulaLoss if parameters.p1 <= MOST_TOGETHER else PairwiseCopulaLoss
    return kind(parameters, reduction)


class EmpiricalLoss(nn.Module):
    r"""The warm-up's loss :math:`\mathcal L_0`, equation (14): squared errors plus binary cross
    entropies.

    The cross entropy is printed without its minus sign; here it is
    :math:`-\{y \log \mathcal S(\mu) + (1 - y) \log \mathcal S(-\mu)\}`, which training makes small.

    Parameters
    ----------
    p0 : int
        Number of continuous responses (2 in the paper).
    reduction : {"sum", "mean", "none"}
        Over observations, as in ``CopulaLoss``; within one, the responses' terms are always added.
    validate : bool
        Check the labels at every call (waits for an accelerator).
    """

    def __init__(self, p0: int = 2, reduction: str = "sum", validate: bool = True) -> None:
        super().__init__()
        self.p0, self.reduction, self.validate = p0, _known(reduction), validate

    def forward(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of ``outputs`` (n, p) for the responses ``y`` (n, p), NaN where not
        observed: that adds nothing and has gradient 0.
        """
        check_same_shape(outputs, y)
        if self.validate:
            check_labels(y, self.p0)
        with without_autocast(outputs):
            squared, crossed = _squared_and_crossed(*same_dtype(outputs, y), self.p0)
            return REDUCTIONS[self.reduction](squared.sum(-1) + crossed.sum(-1))


class UncertaintyWeightedLoss(nn.Module):
    r"""Squared errors and cross entropies with weights that are learnt along (Kendall et al. 2018).

    The mean over observations of :math:`\sum_j \{r_j^2 / (2\sigma_j^2) + \log\sigma_j\} +
    \sum_k \{\mathrm{BCE}_k / T_k^2 + \log T_k\}`: what practitioners use where several
    responses have to be balanced. It knows no dependence. Its minimum over :math:`\sigma_j` is the
    RMS of the *training* residuals, so that it follows a network that learns its patients by heart.

    Parameters
    ----------
    p0, p1 : int
        Numbers of continuous and of binary responses.
    members : tuple of int
        Leading dimensions of the outputs, for networks side by side, each with weights of its own.

    Attributes
    ----------
    log_scale : torch.nn.Parameter
        ``(*members, p0 + p1)``: :math:`\log\sigma_j` and :math:`\log T_k`, divided by ``PACE``.

    Notes
    -----
    Source: A. Kendall, Y. Gal, R. Cipolla, Multi-task learning using uncertainty to weigh losses
    (CVPR 2018), equations (7) and (10).
    """

    PACE = 10.0
    """How much faster than the network's weights they move: a step of Adam is a rate long, and the
    logarithm of a scale has farther to go.
    """

    def __init__(self, p0: int = 2, p1: int = 2, members: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.p0 = p0
        self.log_scale = nn.Parameter(torch.zeros(*members, p0 + p1))

    @property
    def scale(self) -> Tensor:
        r"""The learnt :math:`\sigma_j` and :math:`T_k`, ``(*members, p)``."""
        return (self.PACE * self.log_scale.detach()).exp()

    def forward(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss ``(*members,)`` of ``outputs`` and ``y`` ``(*members, n, p)``, NaN where
        not observed.
        """
        with without_autocast(outputs):
            outputs, y = same_dtype(outputs, y)
            squared, crossed = _squared_and_crossed(outputs, y, self.p0)
            log_scale = self.PACE * self.log_scale[..., None, :].to(outputs)
            terms = torch.cat([0.5 * squared, crossed], -1) * (-2 * log_scale).exp() + log_scale
            return torch.where(torch.isnan(y), 0.0, terms).sum(-1).mean(-1)


def _squared_and_crossed(outputs: Tensor, y: Tensor, p0: int) -> tuple[Tensor, Tensor]:
    """Return squared errors (..., n, p0) and cross entropies (..., n, p1), 0 where not observed."""
    observed = ~torch.isnan(y)
    y = torch.where(observed, y, 0.0)  # before any arithmetic: no NaN can reach a gradient
    squared = (outputs[..., :p0] - y[..., :p0]).square()
    crossed = nn.functional.binary_cross_entropy_with_logits(
        outputs[..., p0:], y[..., p0:], reduction="none"
    )
    masked = torch.where(observed[..., :p0], squared, 0.0)
    return masked, torch.where(observed[..., p0:], crossed, 0.0)


def _known(reduction: str) -> str:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, not {reduction!r}")
    return reduction
