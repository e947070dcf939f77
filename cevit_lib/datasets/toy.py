"""The toy example of Supplement B.2: four responses, their covariates, and least-squares and logistic plug-ins."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_ndtr

from cevit_lib.datasets.synthetic import TEXT_CORRELATION

#: The printed ``Gamma_true`` in this book's order of responses: continuous left and right, then binary left and right.
TOY_CORRELATION = TEXT_CORRELATION
#: Correlation of neighbouring covariates: ``sigma_ij = 0.75^|i - j|``.
AR_COEFFICIENT = 0.75


def ar_covariance(k: int = 3) -> np.ndarray:
    """Return the (k, k) AR(1) covariance of the covariates."""
    return AR_COEFFICIENT ** np.abs(np.subtract.outer(np.arange(k), np.arange(k)))


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
    r"""The data-generating mechanism of Supplement B.2, with what the text leaves open as arguments.

    :math:`y_j = X_j'\beta + \sigma\epsilon_j` and :math:`y_{2+j} = 1\{X_j'\beta' + w_j > 0\}`; the normal scores of
    :math:`(\epsilon_1, \epsilon_2, w_1, w_2)` are drawn from :math:`N(0, \Gamma)`.

    Parameters
    ----------
    n : int
        Patients a data set.
    beta_latent : sequence of float
        :math:`\beta'`, which the paper does not print. Its size is the strength of the signal.
    shared_covariates : bool
        Whether both eyes see the same covariates (open in the paper).
    latent : "logistic" or "probit"
        Law of :math:`w_j`: standard logistic, so that a logistic regression is the right model, or standard normal, as
        the displayed equation says literally.
    beta : sequence of float
        :math:`\beta` of the continuous responses (open too; least-squares residuals do not depend on it).
    scale : float
        :math:`\sigma` of both continuous responses.
    correlation : (4, 4) array
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
        beta=(1.0, 1.0, 1.0),
        scale=1.0,
        correlation=TOY_CORRELATION,
        rng=None,
    ):
        if latent not in ("logistic", "probit"):
            raise ValueError(f"latent must be 'logistic' or 'probit'; seen {latent!r}")
        self.n = n
        self.beta_latent = tuple(float(value) for value in beta_latent)
        self.shared_covariates = shared_covariates
        self.latent = latent
        self.beta = tuple(float(value) for value in beta)
        self.scale = scale
        self.correlation = np.asarray(correlation, dtype=float)
        self.rng = np.random.default_rng(rng)

    @property
    def signal(self) -> float:
        """Standard deviation of ``X' beta'``, the strength of the binary signal."""
        beta = np.array(self.beta_latent)
        return float(np.sqrt(beta @ ar_covariance(len(beta)) @ beta))

    def sample(self, n: int | None = None) -> ToyData:
        """Draw one data set of ``n`` patients (``self.n`` if not given) from ``self.rng``."""
        n = self.n if n is None else n
        k = len(self.beta)
        eyes = 1 if self.shared_covariates else 2
        covariates = self.rng.standard_normal((n, eyes, k)) @ np.linalg.cholesky(ar_covariance(k)).T
        covariates = np.broadcast_to(covariates, (n, 2, k))
        u = self.rng.standard_normal((n, 4)) @ np.linalg.cholesky(self.correlation).T
        mean = covariates @ np.array(self.beta)
        index = covariates @ np.array(self.beta_latent)
        if self.latent == "logistic":
            # u has the logistic quantile v = logit(Phi(u)); the logit of P(y = 1) is then X' beta' itself
            noise, logit = log_ndtr(u[:, 2:]) - log_ndtr(-u[:, 2:]), index
        else:
            noise, logit = u[:, 2:], log_ndtr(index) - log_ndtr(-index)
        y = np.concatenate(
            [mean + self.scale * u[:, :2], (index + noise > 0).astype(float)], axis=1
        )
        return ToyData(covariates, y, np.concatenate([mean, logit], axis=1))


def plug_in_outputs(data: ToyData, on: ToyData | None = None) -> np.ndarray:
    """Return outputs (n, 4) of least-squares and logistic fits to ``data``, evaluated on ``on`` (default: ``data``).

    Each response is regressed on an intercept and its own eye's covariates: the warm-up stage of the toy example.
    """
    on = data if on is None else on
    columns = []
    for response in range(4):
        eye = response % 2
        fit = least_squares if response < 2 else logistic_regression
        coefficients = fit(with_intercept(data.covariates[:, eye]), data.y[:, response])
        columns.append(with_intercept(on.covariates[:, eye]) @ coefficients)
    return np.stack(columns, axis=1)


def double_sigmoid(outputs: np.ndarray) -> np.ndarray:
    r"""Return outputs whose logits were replaced by their probabilities.

    An estimator that takes these for logits applies the sigmoid twice, :math:`c = -\Phi^{-1}\{\mathcal S(\hat p)\}`:
    a reading that the paper's notation invites, where :math:`\hat\mu` is a logit here and a probability there.
    """
    return np.concatenate([outputs[:, :2], expit(outputs[:, 2:])], axis=1)


def with_intercept(covariates: np.ndarray) -> np.ndarray:
    """Return the covariates with a leading column of ones."""
    return np.concatenate([np.ones((len(covariates), 1)), covariates], axis=1)


def least_squares(design: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return ordinary least-squares coefficients."""
    return np.linalg.lstsq(design, y, rcond=None)[0]


def logistic_regression(
    design: np.ndarray, y: np.ndarray, ridge: float = 1e-8, max_iter: int = 50, tol: float = 1e-10
) -> np.ndarray:
    """Return maximum likelihood coefficients of a logistic regression, by Newton's method with step halving.

    Parameters
    ----------
    design : (n, k) array, intercept included
    y : (n,) array of 0 and 1
    ridge : float
        Half of it times the sum of squared coefficients is added to the negative log-likelihood. With separable
        classes no maximum exists, and the default keeps the coefficients finite (and very large).
    """
    coefficients = np.zeros(design.shape[1])

    def objective(b):
        return np.logaddexp(0.0, (1.0 - 2.0 * y) * (design @ b)).sum() + 0.5 * ridge * b @ b

    value = objective(coefficients)
    for _ in range(max_iter):
        probability = expit(design @ coefficients)
        weight = probability * (1.0 - probability)
        gradient = design.T @ (y - probability) - ridge * coefficients
        step = np.linalg.solve(
            (design.T * weight) @ design + ridge * np.eye(len(gradient)), gradient
        )
        length = 1.0
        while length > 1e-8 and objective(coefficients + length * step) > value:
            length *= 0.5
        coefficients, before = coefficients + length * step, value
        value = objective(coefficients)
        if before - value < tol * (1.0 + abs(value)):
            break
    return coefficients
