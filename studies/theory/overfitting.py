"""Models that really overfit, in closed form or in seconds: linear and probit regression with many
features, a small network trained past interpolation; and cross-fitting, which replaces in-sample
outputs by held-out ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import log_ndtr

from cevit_lib.datasets.synthetic import TEXT_CORRELATION
from studies.theory.arrays import outputs_from_scores
from studies.theory.gain import draw_two_eyes


@dataclass(frozen=True)
class LinearEyes:
    """Features of two eyes and the four responses that follow from them.

    Attributes
    ----------
    features : array, shape (n, 2, k)
        Left eye first.
    scores : array, shape (n, 4)
        True Gaussian scores, each of SD 1.
    y : array, shape (n, 4)
        Responses.
    """

    features: np.ndarray
    scores: np.ndarray
    y: np.ndarray

    def subset(self, rows) -> "LinearEyes":
        """Return the patients at ``rows`` only."""
        return LinearEyes(self.features[rows], self.scores[rows], self.y[rows])


def draw_linear_eyes(n: int, n_features: int, rng: np.random.Generator) -> LinearEyes:
    """Draw features (correlated between the eyes), scores q_k = x'b_k with variance 1, and
    responses under Gamma.

    One coefficient vector per task, the same for both eyes: a shared encoder is the right model.
    """
    features = np.stack(draw_two_eyes(n, n_features, 0.5, rng), 1)
    weights = rng.standard_normal((2, n_features))
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    scores = np.einsum("nek,tk->nte", features, weights).reshape(n, 4)
    sums = scores + rng.standard_normal((n, 4)) @ np.linalg.cholesky(TEXT_CORRELATION).T
    y = np.concatenate([sums[:, :2], (sums[:, 2:] > 0).astype(float)], 1)
    return LinearEyes(features, scores, y)


def fit_probit(x, y, penalty: float = 1e-3) -> np.ndarray:
    """Probit regression; ``penalty`` (ridge) keeps separated data finite."""
    signs, ridge = 2 * y - 1, penalty * np.eye(x.shape[1])

    def mills(b):
        t = signs * (x @ b)
        return t, np.exp(-0.5 * t**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(t))

    def loss(b):
        t, ratio = mills(b)
        return 0.5 * b @ ridge @ b - log_ndtr(t).sum(), ridge @ b - x.T @ (signs * ratio)

    def curvature(b):
        t, ratio = mills(b)
        return (x * (ratio * (ratio + t))[:, None]).T @ x + ridge

    start, options = np.zeros(x.shape[1]), {"gtol": 1e-8}
    return minimize(loss, start, jac=True, hess=curvature, method="trust-exact", options=options).x


def fit_linear(train: LinearEyes, shared: bool) -> Callable[[LinearEyes], np.ndarray]:
    """Least squares for the continuous and probit regression for the binary responses.

    Parameters
    ----------
    shared : bool
        One coefficient vector per task for both eyes (a shared encoder), or one per eye.

    Returns
    -------
    A function from eyes to outputs (n, 4).
    """
    groups = [[0, 1]] if shared else [[0], [1]]
    fitted = {}
    for group in groups:
        x = np.concatenate([train.features[:, e] for e in group])
        means = np.linalg.lstsq(x, np.concatenate([train.y[:, e] for e in group]), rcond=None)[0]
        binary = fit_probit(x, np.concatenate([train.y[:, 2 + e] for e in group]))
        fitted |= {e: (means, binary) for e in group}

    def predict(eyes: LinearEyes) -> np.ndarray:
        columns = [eyes.features[:, e] @ fitted[e][t] for t in (0, 1) for e in (0, 1)]
        return outputs_from_scores(np.stack(columns, 1))

    return predict


def cross_fit(eyes: LinearEyes, fit: Callable, folds: int, rng: np.random.Generator) -> np.ndarray:
    """Held-out outputs (n, 4): each patient is predicted by a model that has not seen them.

    Parameters
    ----------
    fit : callable
        From training eyes to a predicting function, such as ``lambda train: fit_linear(train,
        shared=True)``.
    """
    order = rng.permutation(len(eyes.y))
    outputs = np.empty_like(eyes.y)
    for held_out in np.array_split(order, folds):
        outputs[held_out] = fit(eyes.subset(np.setdiff1d(order, held_out)))(eyes.subset(held_out))
    return outputs


class TwoEyeNetwork(torch.nn.Module):
    """One hidden layer shared by both eyes, one head for the mean and one for the logit, shared
    too."""

    def __init__(self, n_features: int, width: int):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(n_features, width), torch.nn.ReLU())
        self.heads = torch.nn.Linear(width, 2)

    def forward(self, features):
        """features (n, 2, k) -> outputs (n, 4), ordered (mean_L, mean_R, logit_L, logit_R)."""
        return self.heads(self.body(features)).transpose(1, 2).reshape(len(features), 4)


def train_network(
    train: LinearEyes,
    test: LinearEyes,
    checkpoints,
    seed: int,
    width: int = 128,
    rate: float = 3e-3,
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Train on squared error plus cross entropy, full batch, and yield (step, outputs on train,
    outputs on test)."""
    generator = torch.Generator().manual_seed(seed)
    network = TwoEyeNetwork(train.features.shape[2], width)
    with torch.no_grad():
        for parameter in network.parameters():
            bound = parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.0
            parameter.copy_((2 * torch.rand(parameter.shape, generator=generator) - 1) * bound)
    x, y, held_out = (
        torch.as_tensor(a, dtype=torch.float32) for a in (train.features, train.y, test.features)
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    for step in range(1, max(checkpoints) + 1):
        outputs = network(x)
        loss = torch.nn.functional.mse_loss(outputs[:, :2], y[:, :2])
        loss = loss + torch.nn.functional.binary_cross_entropy_with_logits(outputs[:, 2:], y[:, 2:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in checkpoints:
            with torch.no_grad():
                yield step, network(x).double().numpy(), network(held_out).double().numpy()
