"""Figures of the page on data: a pair of images, two eyes of a patient, splits."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cevit_lib.clinic.style import COLORS, drawn, new_figure
from studies.charts import ZERO


@drawn
def plot_pair(images: np.ndarray) -> Figure:
    """Draw one synthetic pair with the pixels that the responses read, and their corner of the left
    eye, enlarged.

    Parameters
    ----------
    images : array, shape (2, height, width)
        Left eye, then right eye.
    """
    paper = {"facecolor": "white", "pad": 1.5, "alpha": 0.9, "lw": 0}
    figure, axes = new_figure(2.9, columns=3)
    panels = (("OS", images[0]), ("OD", images[1]), ("OS", images[0][:12, :12]))
    for ax, (eye, image) in zip(axes, panels, strict=True):
        ax.imshow(image, vmin=-2.2, vmax=2.2, cmap="Greys")
        ax.set(title=f"{eye}, 72 x 72 pixels", xticks=[], yticks=[])
        ax.grid(visible=False)
        for k in range(3):
            ax.add_patch(
                Rectangle(
                    (3 * k - 0.5, 3 * k - 0.5), 3, 3, fill=False, edgecolor=COLORS[eye], linewidth=2
                )
            )
    for ax in axes[:2]:
        ax.add_patch(Rectangle((47.5, 47.5), 24, 24, fill=False, linewidth=1.5))
        ax.text(59.5, 44.5, "block (3, 3)", ha="center", fontsize=8, bbox=paper)
    axes[2].set_title("OS, first 12 pixels")
    for k in range(3):
        axes[2].text(3 * k + 3, 3 * k + 1.3, rf"$\Omega_{k + 1}$", bbox=paper)
    return figure


@drawn
def plot_two_eyes(panels: dict[str, np.ndarray], unit: str = "") -> Figure:
    """Scatter the right eye against the left eye, one panel per quantity, with the correlation
    written in.

    Parameters
    ----------
    panels : dict
        Title -> array of shape (n, 2), left eye in the first column.
    unit : str
        Of both axes.
    """
    figure, axes = new_figure(3.2, columns=len(panels))
    names = [f"left eye (OS){unit}", f"right eye (OD){unit}"]
    for ax, (title, pairs) in zip(axes, panels.items(), strict=True):
        frame = pd.DataFrame(pairs, columns=names).dropna()
        look = {"s": 14 if len(frame) < 500 else 5, "alpha": 0.5, "linewidth": 0}
        look["rasterized"] = len(frame) > 500
        ax.axline((frame.min().min(),) * 2, slope=1, **ZERO)
        sns.scatterplot(frame, x=names[0], y=names[1], color=COLORS["both"], ax=ax, **look)
        ax.set_title(f"{title}, correlation {frame.corr().iloc[0, 1]:.2f}")
        ax.set_aspect("equal", "datalim")
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
