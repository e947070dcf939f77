"""Pictures that more than one page shows: four answers of two eyes, and the paper's Algorithm 3 as
a flow.

``python -m studies.overview`` draws the first page's picture anew into ``assets/four_cells.svg``.
"""

from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse

from cevit_lib.clinic.style import COLORS, METHODS, drawn, new_figure
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


def draw_flow(ax: Any, boxes: dict[str, tuple], arrows: list[tuple[str, str, str]]) -> None:
    """Draw boxes of text and arrows between them.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    boxes : dict
        Name -> x, y, words and colour.
    arrows : list of (start, end, words)
        An arrow has the colour of its end where that is an eye's, else of its start where that is,
        else black.
    """
    patches, eyes = {}, (COLORS["left"], COLORS["right"])
    for name, (x, y, words, ink) in boxes.items():
        frame = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": ink, "lw": 1.5}
        look = {"ha": "center", "va": "center", "fontsize": 8.5, "linespacing": 1.4}
        patches[name] = ax.text(x, y, words, bbox=frame, **look).get_bbox_patch()
    for start, end, words in arrows:
        inks = [boxes[name][3] for name in (end, start) if boxes[name][3] in eyes]
        places = np.array([boxes[end][:2], boxes[start][:2]])
        look = {"arrowstyle": "-|>", "lw": 1.3, "color": (inks or [COLORS["ink"]])[0]}
        look |= {"patchA": patches[start], "patchB": patches[end]}
        ax.annotate("", *places, arrowprops=look)
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1} if words else None
        ax.text(*places.mean(0) + (1, 1), words, fontsize=8, bbox=ground)
    ax.set_axis_off()


@drawn
def algorithm_three() -> Figure:
    """The paper's Algorithm 3 as a flow: who is seen by which step, and what passes from one to the
    next.
    """
    ink, method = COLORS["ink"], METHODS["exact"].color
    boxes = {
        "train": (12, 62, "training patients\n(images, responses)", ink),
        "held": (12, 22, "held-out patients\n(images, responses)", COLORS["grey"]),
        "warm": (42, 62, "1. warm-up\nempirical loss", METHODS["empirical"].color),
        "estimate": (42, 22, "2. estimate\n$\\hat\\sigma$, $\\hat\\Gamma$ from outputs", method),
        "copula": (74, 62, "3. copula loss\n$\\hat\\sigma$, $\\hat\\Gamma$ held fixed", method),
        "control": (
            74,
            90,
            "control: empirical loss,\nsame start and epochs",
            METHODS["empirical"].color,
        ),
        "predict": (74, 22, "new patients:\nfour outputs, four cells", ink),
    }
    arrows = [
        ("train", "warm", ""),
        ("warm", "copula", "weights"),
        ("warm", "estimate", "outputs for\nheld-out patients"),
        ("held", "estimate", ""),
        ("estimate", "copula", r"$\hat\sigma$, $\hat\Gamma$"),
        ("warm", "control", ""),
        ("copula", "predict", ""),
    ]
    figure, ax = new_figure(3.9)
    ax.set(xlim=(0, 88), ylim=(12, 98))
    draw_flow(ax, boxes, arrows)
    return figure


if __name__ == "__main__":
    with matplotlib.rc_context({"svg.hashsalt": "cevit"}):
        four_cells().savefig(project_root() / "assets" / "four_cells.svg", metadata={"Date": None})
