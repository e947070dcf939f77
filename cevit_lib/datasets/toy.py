"""The toy example of Supplement B.2: four responses and their covariates."""

from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from cevit_lib.datasets.synthetic import TEXT_CORRELATION

#: The printed ``Gamma_true`` in this book's order of responses: continuous left and right, then
#: binary left and right.
TOY_CORRELATION = TEXT_CORRELATION
#: Correlation of the covariates, ``sigma_ij = 0.75^|i - j|``.
COVARIATES = 0.75 ** np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
#: Coefficients of the continuous responses, whose SD is 1; the paper leaves them open, and
#: least-squares residuals do not depend on them.
BETA = np.ones(3)


@dataclass
class ToyData:
    """One data set of the toy example.

    Attributes
    ----------
    covariates : (n, 2, k) array
        Those of the left and of the right eye; equal where they are shared.
    y : (n, 4) array
        Continuous left, continuous right, binary left, binary right.
    outputs : (n, 4) array
        The true conditional means and logits.
    """

    covariates: np.ndarray
    y: np.ndarray
    outputs: np.ndarray


class ToyExample:
    r"""The data-generating mechanism of Supplement B.2, with what the text leaves open as
    arguments.

    :math:`y_j = X_j'\beta + \sigma\epsilon_j` and :math:`y_{2+j} = 1\{X_j'\beta' + w_j > 0\}`; the
    normal scores of :math:`(\epsilon_1, \epsilon_2, w_1, w_2)` are drawn from :math:`N(0, \Gamma)`.

    Parameters
    ----------
    n : int
        Patients a data set.
    beta_latent : sequence of float
        :math:`\beta'`, which the paper does not print. Its size is the strength of the signal.
    shared_covariates : bool
        Whether both eyes see the same covariates (open in the paper).
    latent : "logistic" or "probit"
        Law of :math:`w_j`: standard logistic, so that a logistic regression is the right model, or
        standard normal, as the displayed equation says literally.
    rng : numpy.random.Generator or int, optional

    Raises
    ------
    ValueError
        ``latent`` is neither of its two words.

    Examples
    --------
    >>> toy = ToyExample(n=50, beta_latent=(0.5, 0.5, 0.5), rng=0)
    >>> toy.sample().y.shape
    (50, 4)
    """

    def __init__(
        self,
        n=800,
        beta_latent=(0.5, 0.5, 0.5),
        shared_covariates=False,
        latent="logistic",
        rng=None,
    ):
        if latent not in ("logistic", "probit"):
            raise ValueError(f"latent must be 'logistic' or 'probit'; seen {latent!r}")
        self.n = n
        self.beta_latent = np.array(beta_latent, dtype=float)
        self.shared_covariates = shared_covariates
        self.latent = latent
        self.rng = np.random.default_rng(rng)

    @property
    def signal(self) -> float:
        """Standard deviation of ``X' beta'``, the strength of the binary signal."""
        return float(np.sqrt(self.beta_latent @ COVARIATES @ self.beta_latent))

    def sample(self, n: int | None = None) -> ToyData:
        """Draw one data set of ``n`` patients (``self.n`` if not given) from ``self.rng``."""
        n = self.n if n is None else n
        shape = (n, 1 if self.shared_covariates else 2, len(BETA))
        covariates = self.rng.standard_normal(shape) @ np.linalg.cholesky(COVARIATES).T
        covariates = np.broadcast_to(covariates, (n, 2, len(BETA)))
        u = self.rng.standard_normal((n, 4)) @ np.linalg.cholesky(TOY_CORRELATION).T
        mean, index = covariates @ BETA, covariates @ self.beta_latent
        if self.latent == "logistic":
            # u has the logistic quantile logit(Phi(u)); the logit of P(y = 1) is X' beta' itself
            noise, logit = log_ndtr(u[:, 2:]) - log_ndtr(-u[:, 2:]), index
        else:
            noise, logit = u[:, 2:], log_ndtr(index) - log_ndtr(-index)
        y = np.concatenate([mean + u[:, :2], (index + noise > 0).astype(float)], axis=1)
        return ToyData(covariates, y, np.concatenate([mean, logit], axis=1))
