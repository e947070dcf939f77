"""Pictures that more than one page shows: four answers of two eyes, boxes and arrows.

``python -m studies.overview`` draws the first page's picture anew into ``assets/four_cells.svg``,
and into ``assets/social.png``, which other sites show beside a link to the book.
"""

from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Ellipse, FancyBboxPatch, Rectangle
from PIL import Image

from cevit_lib.clinic.style import COLORS, drawn, new_figure
from cevit_lib.normal import bivariate_normal_cdf
from cevit_lib.paths import project_root


def cell_probabilities(probabilities: tuple[float, float], correlation: float) -> np.ndarray:
    """Probability of each pair of answers, ``[left, right]``, for two margins joined by a Gaussian
    copula.

    Parameters
    ----------
    probabilities : (float, float)
        Chance of "yes" for the left and for the right eye.
    correlation : float
        Correlation of the two latent scores, the paper's rho_34.

    Returns
    -------
    numpy.ndarray, shape (2, 2)
        ``[0, 0]`` neither eye ... ``[1, 1]`` both.
    """
    left, right = probabilities
    scores = torch.special.ndtri(torch.tensor(probabilities, dtype=torch.float64))
    both = float(bivariate_normal_cdf(*scores, torch.tensor(correlation, dtype=torch.float64)))
    return np.array([[1 - left - right + both, right - both], [left - both, both]])


def draw_cells(ax: Any, threshold: Any, correlation: float, texts: Any) -> None:
    """Draw the bivariate normal of two latent scores, cut into four answers by its thresholds.

    The contours hold about 22, 50, 75, 90 and 97.5 per cent.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    threshold : (float, float)
        Of the left and of the right eye; "yes" lies above.
    correlation : float
    texts : (2, 2)
        What is written into the cells, indexed [left, right].
    """
    for level in (7.4, 4.6, 2.8, 1.4, 0.5):  # squared distances from the mean
        axes = 2 * np.sqrt(level * np.array([1 + correlation, 1 - correlation]))
        ax.add_patch(
            Ellipse((0, 0), *axes, angle=45, facecolor="#0000001c", edgecolor=COLORS["grey"])
        )
    ax.axvline(threshold[0], color=COLORS["left"])
    ax.axhline(threshold[1], color=COLORS["right"], linestyle="--")
    paper = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 2}
    for left, right in np.ndindex(2, 2):
        place = 4.1 * left - 2.05, 4.4 * right - 2.2
        ax.text(*place, texts[left][right], ha="center", va="center", bbox=paper)
    ax.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2), aspect="equal")
    ax.grid(visible=False)


@drawn
def four_cells(
    probabilities: tuple[float, float] = (0.35, 0.45), correlation: float = 0.569
) -> Figure:
    """Latent scores of both eyes without and with dependence, cut into the four answers by the same
    two thresholds.
    """
    figure, panels = new_figure(3.7, columns=2, sharex=True, sharey=True)
    threshold = -torch.special.ndtri(torch.tensor(probabilities, dtype=torch.float64)).numpy()
    names = np.array([["neither", "right only"], ["left only", "both"]])
    for ax, rho in zip(panels, (0.0, correlation), strict=True):
        shares = cell_probabilities(probabilities, rho)
        draw_cells(ax, threshold, rho, np.vectorize("{}\n{:.0f} %".format)(names, 100 * shares))
    panels[0].set(ylabel="latent score, right eye (OD)", title="eyes treated as two patients")
    panels[1].set(title=f"eyes of one patient, correlation {correlation:g}")
    figure.supxlabel("latent score, left eye (OS)", fontsize=10)
    return figure


def draw_box(ax: Any, place: tuple, words: str, ink: str, locked: bool = False) -> None:
    """Draw a box of text, with a lock in its corner where what it holds is frozen.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    place : (x, y, width, height)
        Centre and size, in data units.
    words, ink : str
        Text, and colour of the frame.
    locked : bool
    """
    x, y, width, height = place
    corner = (x - width / 2, y - height / 2)
    frame = {"boxstyle": "round,pad=0,rounding_size=1", "facecolor": "white", "edgecolor": ink}
    ax.add_patch(FancyBboxPatch(corner, width, height, lw=1.5, zorder=3, **frame))
    look = {"ha": "center", "va": "center", "fontsize": 8.5, "linespacing": 1.35, "zorder": 4}
    ax.text(x, y, words, **look)
    if locked:
        left, top = corner[0] + width - 2.2, corner[1] + height
        ax.add_patch(Rectangle((left - 1, top - 1.3), 2, 1.9, color=COLORS["ink"], zorder=5))
        bow = {"theta1": 0, "theta2": 180, "color": COLORS["ink"], "lw": 1.3, "zorder": 5}
        ax.add_patch(Arc((left, top + 0.6), 1.3, 2, **bow))


def draw_arrow(ax: Any, start: tuple, end: tuple, ink: str, words: str = "") -> None:
    """Draw an arrow between two points, with words beside its middle."""
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "lw": 1.3, "color": ink})
    middle = (start[0] + end[0]) / 2 + 1, (start[1] + end[1]) / 2
    ax.text(*middle, words, fontsize=8, va="center", color=COLORS["grey"])


if __name__ == "__main__":
    assets, figure = project_root() / "assets", four_cells()
    with matplotlib.rc_context({"svg.hashsalt": "cevit"}):
        figure.savefig(assets / "four_cells.svg", metadata={"Date": None})
    figure.set_size_inches(8, 4.2)
    figure.suptitle("Two eyes are not two patients", fontsize=18, weight="bold")
    figure.savefig(assets / "social.png", dpi=150, bbox_inches=None, metadata={"Software": None})
    Image.open(assets / "social.png").quantize(64).save(assets / "social.png", optimize=True)
