"""The stronger covariance phenomenon of Section 4: its measure, a truth to draw from, and ways to
distort it.

A truth is a sample of Gaussian scores q (n, 4), latent errors u (n, 4) and responses y = (q1 + u1,
q2 + u2, 1{q3 + u3 > 0}, 1{q4 + u4 > 0}). A distortion replaces q by plug-in scores, as a network
would; the responses stay.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cevit_lib.datasets.synthetic import TEXT_CORRELATION
from studies.theory.arrays import outputs_from_scores, scores_from_outputs

EXCHANGEABLE_CORRELATION = np.array(
    [[1.0, 0.7, 0.3, 0.3], [0.7, 1.0, 0.3, 0.3], [0.3, 0.3, 1.0, 0.569], [0.3, 0.3, 0.569, 1.0]]
)
"""Both eyes alike and one mixed correlation of .3: the counter-example to Proposition 2."""

SCORE_CORRELATION = 0.5
"""Between the true scores of the two eyes, within a task; each has variance 1."""


@dataclass(frozen=True)
class StrongerCovariance:
    """Covariances of two sets of scores: the definition in Section 4, for every pair of tasks.

    Attributes
    ----------
    estimated, truth : array (p, p)
        Cov(q-hat) and Cov(q).
    """

    estimated: np.ndarray
    truth: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        """``(p, p)`` array ``|Cov(q-hat)| / |Cov(q)|``, above 1 where the phenomenon occurs;
        infinite where the truth has none."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.abs(self.estimated) / np.abs(self.truth)


def stronger_covariance(outputs, truth, n_continuous: int = 2) -> StrongerCovariance:
    """Measure the stronger covariance phenomenon of a model's outputs against the true ones
    (Section 4, Eq. 15).

    Parameters
    ----------
    outputs, truth : array (n, p)
        Outputs mu (mean for a continuous response, logit for a binary one) of the model and of the
        truth, for the same patients. Both are turned into Gaussian scores q first.

    Returns
    -------
    StrongerCovariance
        Both covariance matrices, (p, p).
    """
    scores = (scores_from_outputs(a, n_continuous) for a in (outputs, truth))
    return StrongerCovariance(*(np.cov(each, rowvar=False) for each in scores))


@dataclass(frozen=True)
class ScoreDraw:
    """A sample from the model of Section 4. All arrays (n, 4); responses ordered (AL_L, AL_R, HM_L,
    HM_R)."""

    scores: np.ndarray
    errors: np.ndarray
    y: np.ndarray

    @property
    def outputs(self) -> np.ndarray:
        """Network outputs ``mu`` (n, 4) that belong to the true scores."""
        return outputs_from_scores(self.scores)


def draw_scores(
    n: int,
    rng: np.random.Generator,
    correlation=TEXT_CORRELATION,
    sd=1.0,
    score_correlation=SCORE_CORRELATION,
) -> ScoreDraw:
    """Draw scores, errors and responses.

    Parameters
    ----------
    sd : float
        Standard deviation of each score; 0 gives uninformative images.
    score_correlation : float
        Between the two eyes, within a task; the two tasks' scores are independent.

    Returns
    -------
    ScoreDraw
        Of ``n`` patients.
    """
    eye = np.array([[1.0, score_correlation], [score_correlation, 1.0]])
    pair = rng.standard_normal((n, 2, 2)) @ np.linalg.cholesky(eye).T
    scores = sd * pair.reshape(n, 4)
    errors = rng.standard_normal((n, 4)) @ np.linalg.cholesky(np.asarray(correlation)).T
    sums = scores + errors
    y = np.concatenate([sums[:, :2], (sums[:, 2:] > 0).astype(float)], axis=1)
    return ScoreDraw(scores, errors, y)


@dataclass(frozen=True)
class Distortion:
    """One way of being wrong about q.

    Attributes
    ----------
    name : str
        Key in records.
    strengths : tuple of float
        Values drawn on the page, the first one nearly harmless.
    apply : callable (scores, draw, columns, strength, noise) -> scores
        ``noise`` (n,) is one standard normal value per patient, the same for both eyes.
    weights : callable (strength) -> five numbers
        What a regression score q-hat is made of: the eye's own score and the other eye's, the own
        error and the other's, and the noise that both eyes share.
    keeps_variance : bool
        Whether q-hat is then divided by its standard deviation.
    """

    name: str
    strengths: tuple
    apply: Callable
    weights: Callable
    keeps_variance: bool = False

    def score_covariance(self, strength: float, rho: float) -> float:
        """Cov(q1-hat, q2-hat) in closed form (truth: 0.5); ``rho`` is the correlation of the
        errors, whose variance is 1."""
        return _moments(self._weights(strength, rho), rho)[0]

    def residual_correlation(self, strength: float, rho: float) -> float:
        """Probability limit of rho12-hat: the residual is e-hat = y - q-hat = q + e - q-hat."""
        residual = np.array([1.0, 0.0, 1.0, 0.0, 0.0]) - self._weights(strength, rho)
        covariance, variance = _moments(residual, rho)
        return covariance / variance

    def _weights(self, strength: float, rho: float) -> np.ndarray:
        weights = np.array(self.weights(strength), dtype=float)
        return weights / _moments(weights, rho)[1] ** 0.5 if self.keeps_variance else weights


def _moments(weights: np.ndarray, rho: float) -> tuple[float, float]:
    """Covariance between the eyes, and variance, of a weighted sum as :class:`Distortion` has
    them; scores and errors have variance 1."""
    own, other = weights[[0, 2]], weights[[1, 3]]
    between = np.array([SCORE_CORRELATION, rho])
    covariance = (own**2 + other**2) @ between + 2 * own @ other
    variance = own @ own + other @ other + 2 * (own * other) @ between
    return covariance + weights[4] ** 2, variance + weights[4] ** 2


def _signed_labels(draw, columns):
    """Signed labels (n, 2) for the binary pair; the errors themselves are tracked for the
    continuous one."""
    return 2 * draw.y[:, columns] - 1 if columns == [2, 3] else draw.errors[:, columns]


def _blur(q, k):
    return (1 - k) * q + k * q.mean(axis=1, keepdims=True)


#: Name -> :class:`Distortion`: the ways of being wrong about ``q`` that the page on stronger
#: covariance draws.
DISTORTIONS = {
    d.name: d
    for d in (
        Distortion(
            "shared-noise",
            (0.5, 1.0, 2.0, 10.0),
            lambda q, d, c, k, e: q + k * e[:, None],
            lambda k: (1, 0, 0, 0, k),
        ),
        Distortion(
            "shared-noise-rescaled",
            (0.5, 1.0, 2.0, 10.0),
            lambda q, d, c, k, e: (q + k * e[:, None]) / np.sqrt(1 + k**2 / q.var(axis=0)),
            lambda k: (1, 0, 0, 0, k),
            keeps_variance=True,
        ),
        Distortion(
            "constant-shift",
            (0.25, 0.5, 1.0, 2.0),
            lambda q, d, c, k, e: q + k,
            lambda k: (1, 0, 0, 0, 0),
        ),
        Distortion(
            "scaling",
            (0.5, 1.5, 2.0, 4.0, 10.0),
            lambda q, d, c, k, e: k * q,
            lambda k: (k, 0, 0, 0, 0),
        ),
        Distortion(
            "label-tracking",
            (0.25, 0.5, 1.0, 2.0),
            lambda q, d, c, k, e: q + k * _signed_labels(d, c),
            lambda k: (1, 0, k, 0, 0),
        ),
        Distortion(
            "own-latent-tracking",
            (0.25, 0.5, 1.0),
            lambda q, d, c, k, e: q + k * d.errors[:, c],
            lambda k: (1, 0, k, 0, 0),
        ),
        Distortion(
            "shared-latent-tracking",
            (0.25, 0.5, 1.0),
            lambda q, d, c, k, e: q + k * d.errors[:, c].mean(axis=1, keepdims=True),
            lambda k: (1, 0, k / 2, k / 2, 0),
        ),
        Distortion(
            "averaging",
            (0.25, 0.5, 1.0),
            lambda q, d, c, k, e: _blur(q, k),
            lambda k: (1 - k / 2, k / 2, 0, 0, 0),
        ),
        Distortion(
            "averaging-rescaled",
            (0.25, 0.5, 0.75, 0.9),
            lambda q, d, c, k, e: _blur(q, k) * q.std(axis=0) / _blur(q, k).std(axis=0),
            lambda k: (1 - k / 2, k / 2, 0, 0, 0),
            keeps_variance=True,
        ),
    )
}


def distort(
    draw: ScoreDraw,
    name: str,
    strength: float,
    rng: np.random.Generator,
    tasks: str = "classification",
):
    """Return plug-in scores (n, 4): one pair of columns distorted, the other as drawn.

    Parameters
    ----------
    name : str
        A key of ``DISTORTIONS``, or ``"none"``.
    tasks : {"classification", "regression"}
        Distort (q3, q4) or (q1, q2).

    Raises
    ------
    KeyError
        Unknown distortion; the message lists those known.
    """
    scores = draw.scores.copy()
    noise = rng.standard_normal(len(scores))
    if name == "none":
        return scores
    if name not in DISTORTIONS:
        raise KeyError(f"no distortion {name!r}: choose one of {', '.join(DISTORTIONS)} or none")
    columns = [2, 3] if tasks == "classification" else [0, 1]
    scores[:, columns] = DISTORTIONS[name].apply(scores[:, columns], draw, columns, strength, noise)
    return scores


def recalibrate(scores, calibration_scores, calibration_y, n_continuous: int = 2) -> np.ndarray:
    """Recalibrate each binary score on other patients: q -> a + b q, the probit regression of the
    label on the score.

    Parameters
    ----------
    scores : array (n, p)
        Scores to change; the continuous ones are left alone.
    calibration_scores, calibration_y : array (m, p)
        Scores and responses of patients that are not among the first.

    Returns
    -------
    array (n, p)
        Scores; the binary ones are replaced by ``a + b q``.
    """
    from studies.theory.overfitting import fit_probit

    scores = np.array(scores, dtype=float)
    for k in range(n_continuous, scores.shape[1]):
        design = np.stack([np.ones(len(calibration_y)), calibration_scores[:, k]], 1)
        intercept, slope = fit_probit(design, calibration_y[:, k])
        scores[:, k] = intercept + slope * scores[:, k]
    return scores
