"""Figures of the page on data: one patient, two eyes of many patients, splits."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Rectangle

from cevit_lib.clinic.style import COLORS, drawn, new_figure
from studies.charts import ZERO


@drawn
def plot_patient(images: np.ndarray, y: np.ndarray, rho: float) -> Figure:
    """Draw what one synthetic patient gives: two images, the pixels that are read, four responses.

    Parameters
    ----------
    images : array, shape (2, 72, 72)
        Left eye, then right eye.
    y : array, shape (4,)
        Lengths of the left and of the right eye, then labels.
    rho : float
        Correlation of the lengths' errors.
    """
    figure, axes = new_figure(4.2, 2, 3, width=5.6, width_ratios=[3, 3, 2.4])
    for row, eye, image, j in zip(axes, ("OS", "OD"), images, (0, 1), strict=True):
        name = "left eye (OS)" if eye == "OS" else "right eye (OD)"
        for ax, shown, title in zip(
            row, (image, image[:12, :12]), (name, "its corner"), strict=False
        ):
            ax.imshow(shown, vmin=-2.2, vmax=2.2, cmap="Greys")
            ax.set(xticks=[], yticks=[])
            ax.set_title(title, color=COLORS[eye])
            ax.grid(visible=False)
        _mark(row[0], row[1], COLORS[eye])
        said = f"length $y_{j + 1}$ = {y[j]:.2f}\n\nlabel $y_{j + 3}$ = {y[j + 2]:.0f}"
        row[2].text(0, 0.5, said, va="center", fontsize=12, color=COLORS[eye])
        row[2].set_axis_off()
    link = f"same patient:\nerrors of the lengths\ncorrelated {rho:.2f}"
    axes[0, 2].text(0, -0.12, link, va="center", color=COLORS["both"])
    return figure


def _mark(whole, corner, color: str) -> None:
    """Frame the three blocks of pixels in the corner, and the corner in the whole image."""
    whole.add_patch(Rectangle((-0.5, -0.5), 12, 12, fill=False, edgecolor=color, linewidth=1.5))
    paper = {"facecolor": "white", "pad": 1.5, "alpha": 0.9, "lw": 0}
    for k in range(3):
        at = (3 * k - 0.5, 3 * k - 0.5)
        corner.add_patch(Rectangle(at, 3, 3, fill=False, edgecolor=color, linewidth=2))
        corner.text(3 * k + 3, 3 * k + 1.3, rf"$\Omega_{k + 1}$", bbox=paper)
    for edge in (0, 1):  # from the frame to the enlargement
        start = (11.5, -0.5 + 12 * edge)
        ends = {"xyA": start, "coordsA": whole.transData}
        ends |= {"xyB": (0, 1 - edge), "coordsB": corner.transAxes}
        whole.figure.add_artist(ConnectionPatch(**ends, color=color, linewidth=0.8))


@drawn
def plot_two_eyes(panels: dict[str, np.ndarray]) -> Figure:
    """Scatter the right eye against the left eye, two panels a row, the correlation written in.

    Parameters
    ----------
    panels : dict
        Title -> array of shape (n, 2), left eye in the first column.
    """
    figure, axes = new_figure(6.4, 2, 2)
    for ax, (title, pairs) in zip(axes.flat, panels.items(), strict=True):
        frame = pd.DataFrame(pairs, columns=["left", "right"]).dropna()
        look = {"s": 14 if len(frame) < 500 else 7, "alpha": 0.5, "linewidth": 0}
        look["rasterized"] = len(frame) > 500
        ax.axline((frame.min().min(),) * 2, slope=1, **ZERO)
        sns.scatterplot(frame, x="left", y="right", color=COLORS["both"], ax=ax, **look)
        ax.set_title(f"{title}, correlation {frame.corr().iloc[0, 1]:.2f}")
        ax.set_aspect("equal", "datalim")
        ax.set_xlabel("left eye (OS)", color=COLORS["left"])
        ax.set_ylabel("right eye (OD)", color=COLORS["right"])
    return figure


@drawn
def plot_splits(by_eye: np.ndarray, by_patient: np.ndarray) -> Figure:
    """Show which fold each eye falls into, once with eyes and once with patients divided at random.

    Parameters
    ----------
    by_eye, by_patient : integer array, shape (patients, 2)
        Fold of each eye.
    """
    figure, axes = new_figure(2.6, rows=2)
    shades = [COLORS["ink"], "#E8E8E8", "#CFCFCF", "#B6B6B6", "#9D9D9D"]
    for ax, folds, title in zip(axes, (by_eye, by_patient), ("eyes", "patients"), strict=True):
        rows = pd.DataFrame(folds.T, index=["OS", "OD"])
        sns.heatmap(rows, cmap=shades, vmin=0, vmax=4, cbar=False, linewidths=1, ax=ax)
        cut = f"{(folds[:, 0] != folds[:, 1]).sum()} of {len(folds)} patients lie in two folds"
        ax.set(title=f"{title} divided at random: {cut} (test fold in black)", xticks=[])
        ax.tick_params(rotation=0)
    axes[1].set_xlabel("patients")
    return figure
