"""The picture of the first page: two yes-or-no answers, one pair of margins, two joint distributions.

``python -m studies.overview`` draws it anew into ``assets/four_cells.png``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cevit_lib.clinic.old_style import color, new_figure, save, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_REACH = 3.0  # standard deviations shown on each side


def cell_probabilities(probabilities: tuple[float, float], correlation: float) -> np.ndarray:
    """Probability of each pair of answers, ``[left, right]``, for two margins joined by a Gaussian copula.

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
    import torch

    from cevit_lib.normal import bivariate_normal_cdf

    left, right = probabilities
    scores = torch.special.ndtri(torch.tensor(probabilities, dtype=torch.float64))
    both = float(
        bivariate_normal_cdf(scores[0], scores[1], torch.tensor(correlation, dtype=torch.float64))
    )
    return np.array([[1 - left - right + both, right - both], [left - both, both]])


def four_cells(
    probabilities: tuple[float, float] = (0.35, 0.45), correlation: float = 0.569
) -> Figure:
    """Latent scores of both eyes without and with dependence, cut into the four answers by the same two thresholds.

    Returns
    -------
    matplotlib.figure.Figure
    """
    with style():
        figure, panels = new_figure((7.2, 3.7), columns=2, sharex=True, sharey=True)
        for axes, rho in zip(panels, (0.0, correlation), strict=True):
            _panel(axes, probabilities, rho)
        panels[0].set_ylabel("latent score, right eye (OD)")
        figure.supxlabel("latent score, left eye (OS)", fontsize=10)
    return figure


def _panel(axes, probabilities, rho) -> None:
    import torch

    grid = np.linspace(-_REACH, _REACH, 181)
    x, y = np.meshgrid(grid, grid)
    density = np.exp(-(x**2 - 2 * rho * x * y + y**2) / (2 * (1 - rho**2))) / (
        2 * math.pi * math.sqrt(1 - rho**2)
    )
    axes.contourf(
        x, y, density, levels=np.linspace(0.003, density.max(), 9), cmap="Blues", alpha=0.8
    )
    axes.grid(False)
    # a "yes" lies above its threshold, the point with that much probability to its right
    thresholds = [
        -float(torch.special.ndtri(torch.tensor(p, dtype=torch.float64))) for p in probabilities
    ]
    axes.axvline(thresholds[0], color=color("left"), linestyle="-")
    axes.axhline(thresholds[1], color=color("right"), linestyle="--")
    cells = cell_probabilities(probabilities, rho)
    names = np.array([["neither", "right only"], ["left only", "both"]])
    for left, right in np.ndindex(2, 2):
        place = [(-_REACH if answer == 0 else _REACH) * 0.62 for answer in (left, right)]
        label = f"{names[left, right]}\n{100 * cells[left, right]:.0f} %"
        axes.text(
            *place,
            label,
            ha="center",
            va="center",
            fontsize=10,
            bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 2},
        )
    axes.set(xlim=(-_REACH, _REACH), ylim=(-_REACH, _REACH), aspect="equal")
    axes.set_title(
        "eyes treated as two patients" if rho == 0 else f"eyes of one patient, correlation {rho:g}"
    )


def algorithm_three() -> Figure:
    """The paper's Algorithm 3 as a flow: who is seen by which step, and what passes from one to the next.

    Returns
    -------
    matplotlib.figure.Figure
    """
    boxes = {
        "train": (14, 62, "training patients\n(images, responses)", "left"),
        "held": (14, 22, "held-out patients\n(images, responses)", "grey"),
        "warm": (42, 62, "1. warm-up\nempirical loss", "both"),
        "estimate": (42, 22, "2. estimate\n$\\hat\\sigma$, $\\hat\\Gamma$ from outputs", "copula"),
        "copula": (72, 62, "3. copula loss\n$\\hat\\sigma$, $\\hat\\Gamma$ held fixed", "both"),
        "control": (72, 88, "control: empirical loss,\nsame start and epochs", "grey"),
        "predict": (72, 22, "new patients:\nfour outputs, four cells", "ink"),
    }
    arrows = [
        ("train", "warm", ""),
        ("warm", "copula", "weights"),
        ("warm", "estimate", "outputs for\nheld-out patients"),
        ("held", "estimate", ""),
        ("estimate", "copula", "$\\hat\\sigma$, $\\hat\\Gamma$"),
        ("warm", "control", ""),
        ("copula", "predict", ""),
    ]
    with style():
        figure, axes = new_figure((7.2, 3.9))
        axes.set(xlim=(0, 88), ylim=(8, 98))
        axes.axis("off")
        for start, end, said in arrows:
            (x0, y0), (x1, y1) = boxes[start][:2], boxes[end][:2]
            axes.annotate(
                "",
                (x1, y1),
                (x0, y0),
                arrowprops={
                    "arrowstyle": "-|>",
                    "color": color("ink"),
                    "lw": 1.3,
                    "shrinkA": 36,
                    "shrinkB": 42 if x0 != x1 else 22,
                },
                zorder=1,
            )
            axes.text(
                (x0 + x1) / 2 + (1 if x0 == x1 else 0),
                (y0 + y1) / 2 + (2 if x0 != x1 else 0),
                said,
                fontsize=8,
                ha="left" if x0 == x1 else "center",
                va="bottom" if x0 != x1 else "center",
            )
        for x, y, said, ink in boxes.values():
            box = {
                "boxstyle": "round,pad=0.5",
                "facecolor": "white",
                "edgecolor": color(ink),
                "lw": 1.6,
            }
            axes.text(
                x,
                y,
                said,
                ha="center",
                va="center",
                fontsize=8.5,
                zorder=2,
                linespacing=1.4,
                bbox=box,
            )
    return figure


if __name__ == "__main__":
    from cevit_lib.paths import project_root

    save(four_cells(), project_root() / "assets" / "four_cells.png")
