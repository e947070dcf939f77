"""The paper's synthetic pairs (Section 5, Supplement B.1)."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.errors import ParameterError

#: The printed correlation of the errors (Section 5): continuous left and right, then binary left
#: and right.
TEXT_CORRELATION = np.array(
    [
        [1.0, 0.720, 0.294, 0.213],
        [0.720, 1.0, 0.205, 0.336],
        [0.294, 0.205, 1.0, 0.569],
        [0.213, 0.336, 0.569, 1.0],
    ]
)


@dataclass(frozen=True)
class SyntheticTruth:
    """What generated a synthetic data set.

    Attributes
    ----------
    g1, g2 : torch.Tensor
        ``(n, 2)`` regression functions of the continuous and of the binary responses at each eye's
        image.
    outputs : torch.Tensor
        ``(n, 4)`` what a perfect network would put out: the two means ``g1``, then the logits of
        ``P(y = 1 | image)``.
    correlation : torch.Tensor
        ``(4, 4)`` correlation of the latent errors; the printed matrix of Section 5, unless another
        was asked for.
    scale : torch.Tensor
        ``(2,)`` standard deviations of the continuous errors.
    """

    g1: torch.Tensor
    g2: torch.Tensor
    outputs: torch.Tensor
    correlation: torch.Tensor
    scale: torch.Tensor

    def subset(self, at: torch.Tensor) -> "SyntheticTruth":
        """Return the truth of some patients."""
        return replace(self, g1=self.g1[at], g2=self.g2[at], outputs=self.outputs[at])


class SyntheticPairs(PairedEyes):
    """Pairs of one-channel 72 x 72 images with four mixed responses (Section 5 and Supplement B.1).

    Each image has nine blocks of 24 x 24 pixels. Pixels are normal with the same correlation 1/2
    between the two eyes; in the bottom-right block they have mean 0.5 and variance 0.25, elsewhere
    mean 0 and variance 0.5. With ``S1, S2, S3`` the sums over pixels 1-3, 4-6 and 7-9 (rows and
    columns alike; ``tanh`` inside ``S1`` and ``S3``), ``g1 = S1 + S2 + S3`` and ``g2 = S2``. All
    those pixels lie in the top-left block: the special block (3, 3) never enters a response.

    ``y_j = g1 + e_j`` and ``y_{j+2} = 1{g2 + e_{j+2} > 0}`` with the printed 4 x 4 correlation. The
    margin is a probit, so the true logit is ``logit Phi(g2)``.

    Parameters
    ----------
    n : int
        Number of patients.
    rng : numpy.random.Generator, or two of them
        Source of randomness; of two the second draws the errors, so that they can be drawn again
        on the same images.
    correlation : array of shape (4, 4)
        Of the errors; the printed one unless a sensitivity study asks for another.
    pixel_correlation : float
        Of each pixel between the two eyes; the paper's is 1/2, at 1 both eyes show one image.
    window : int, optional
        Keep only the first ``window`` rows and columns of the images (at least 9). The responses
        read nothing else, so this is the same regression with fewer idle pixels: a lesson that a
        laptop learns in seconds.

    Raises
    ------
    ParameterError
        ``n`` is not positive, ``pixel_correlation`` not from 0 to 1 or ``correlation`` no positive
        definite correlation matrix.
    """

    SIZE = 72
    BLOCK = 24

    def __init__(
        self,
        n: int,
        rng: np.random.Generator | tuple[np.random.Generator, np.random.Generator],
        *,
        correlation: np.ndarray = TEXT_CORRELATION,
        pixel_correlation: float = 0.5,
        window: int | None = None,
    ) -> None:
        window = self.SIZE if window is None else window
        if not (n > 0 and 9 <= window <= self.SIZE and 0 <= pixel_correlation <= 1):
            raise ParameterError(
                f"n={n}, pixel_correlation={pixel_correlation}, window={window}: give a positive "
                "n, a correlation from 0 to 1, and a window of 9 (all that the responses read) to "
                f"{self.SIZE} pixels."
            )
        correlation = _checked(np.array(correlation, dtype=float))
        rng, source = rng if isinstance(rng, tuple) else (rng, rng)
        images = _draw_images(n, rng, window, pixel_correlation)
        g1, g2 = regression_functions(images)
        error = source.standard_normal((n, 4)) @ np.linalg.cholesky(correlation).T
        y = np.concatenate([g1 + error[:, :2], g2 + error[:, 2:] > 0], axis=1)
        super().__init__(
            images=torch.from_numpy(images[:, :, None]),
            y=torch.from_numpy(y),
            ids=tuple(f"S{i:05d}" for i in range(n)),
            responses=("y1_OS", "y2_OD", "y3_OS", "y4_OD"),
            continuous=2,
            name="synthetic",
            notes={"window": window, "flow": {"patients drawn": n, "kept": n}},
            truth=_truth(torch.from_numpy(g1), torch.from_numpy(g2), correlation),
        )


def regression_functions(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``g1`` and ``g2`` (Supplement B.1), each ``(n, 2)``, of images ``(n, 2, 72, 72)``."""
    images = np.asarray(images, dtype=float)
    axes = (-2, -1)
    s1 = np.tanh(images[..., 0:3, 0:3]).sum(axes)
    s2 = images[..., 3:6, 3:6].sum(axes)
    s3 = np.tanh(images[..., 6:9, 6:9]).sum(axes)
    return s1 + s2 + s3, s2


def _draw_images(n: int, rng: np.random.Generator, window: int, correlation: float) -> np.ndarray:
    """Draw ``(n, 2, window, window)`` pixels; a shared and an own normal part make the correlation
    between eyes.
    """
    size, block = SyntheticPairs.SIZE, SyntheticPairs.BLOCK
    shared = rng.standard_normal((n, 1, window, window), dtype=np.float32)
    images = rng.standard_normal((n, 2, window, window), dtype=np.float32)
    own, common = np.sqrt(np.float32(1 - correlation)), np.sqrt(np.float32(correlation))
    # equal parts are added first: the paper's data sets keep the bits that their hashes name
    images = own * (images + shared) if own == common else own * images + common * shared
    scale = np.full((size, size), np.sqrt(0.5), dtype=np.float32)
    scale[-block:, -block:] = 0.5
    mean = np.zeros((size, size), dtype=np.float32)
    mean[-block:, -block:] = 0.5
    return mean[:window, :window] + scale[:window, :window] * images


def _truth(g1: torch.Tensor, g2: torch.Tensor, correlation: np.ndarray) -> SyntheticTruth:
    logits = torch.special.log_ndtr(g2) - torch.special.log_ndtr(-g2)
    outputs, scale = torch.cat([g1, logits], dim=1), torch.ones(2, dtype=torch.float64)
    return SyntheticTruth(g1, g2, outputs, torch.from_numpy(correlation), scale)


def _checked(correlation: np.ndarray) -> np.ndarray:
    square = (
        correlation.shape == (4, 4)
        and np.allclose(correlation, correlation.T)
        and np.allclose(np.diag(correlation), 1)
    )
    if not square or np.linalg.eigvalsh(correlation)[0] <= 0:
        raise ParameterError(
            "correlation must be a 4 x 4 positive definite matrix with ones on its diagonal."
        )
    return correlation
