"""Figures of the page on the network: its two lanes, and what links the eyes."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cevit_lib.clinic.style import COLORS, drawn, new_figure
from studies.overview import draw_arrow, draw_box


@drawn
def architecture(layers: int = 12, width: int = 768, tokens: int = 197) -> Figure:
    """Draw the bi-channel encoder as two lanes that meet in the loss alone.

    Green boxes have the same weights in both lanes, blue and orange ones belong to an eye; a lock
    marks what is frozen.

    Parameters
    ----------
    layers, width, tokens : int
        What the labels say.
    """
    figure, ax = new_figure(6.6, width=5)  # narrow: both lanes stay on a telephone's screen
    ax.set(xlim=(0, 100), ylim=(0, 103))
    ax.set_axis_off()
    frame = {"facecolor": "none", "edgecolor": COLORS["grey"], "ls": "--"}
    ax.add_patch(Rectangle((0, 34), 100, 37, **frame))
    ax.text(50, 36, f"one of {layers} blocks", fontsize=8, ha="center", color=COLORS["grey"])
    for y in (83, 63, 47):
        ax.plot((39, 61), (y, y), color=COLORS["both"], ls=":", lw=1.5)
        ax.text(50, y + 1, "same weights", fontsize=7, ha="center", color=COLORS["both"])
    for eye, x, side in (("left", 20, -1), ("right", 80, 1)):
        _lane(ax, eye, x, side, f"{tokens} x {width}", width)
    words = r"copula loss with $\hat\Gamma$ and $\hat\sigma$:" + "\nthe only link between the eyes"
    draw_box(ax, (50, 4, 66, 7), words, COLORS["ink"])
    return figure


def _lane(ax: Axes, eye: str, x: float, side: int, shape: str, width: int) -> None:
    """Draw one eye's way from its image, at the top, to its two outputs; ``x`` is its middle."""
    ink, both, j = COLORS[eye], COLORS["both"], 1 if eye == "left" else 2
    inner, outer = x - 8.5 * side, x + 10.9 * side
    attention = "attention: $W_0$, and\n$BA$ (LoRA), which trains"
    mlp, adapter = "MLP: $W_0$,\nand $BA$,\nwhich trains", rf"$\alpha_{j} A_{{l{j}}}$,"
    heads = f"two heads, train:\nlength $\\mu_{j}$, logit $\\mu_{j + 2}$"
    draw_box(ax, (x, 97, 38, 8), rf"image $\mathcal{{X}}_{j}$, {eye} eye" + "\n3 x 224 x 224", ink)
    draw_box(ax, (x, 83, 38, 7), "patches and positions", both, locked=True)
    draw_box(ax, (x, 63, 38, 8), attention, both, locked=True)
    draw_box(ax, (inner, 47, 21, 12), mlp, both, locked=True)
    draw_box(ax, (outer, 47, 15, 12), f"adapter\n{adapter}\ntrains", ink)
    draw_box(ax, (x, 18, 38, 8), heads, ink)
    for start, end in (((x, 93), (x, 86.8)), ((x, 14), (x, 7.8))):
        draw_arrow(ax, start, end, ink)
    draw_arrow(ax, (x, 79.4), (x, 67.6), ink, f"{shape} tokens")
    for place in (inner, outer):
        draw_arrow(ax, (x, 59), (place, 53.4), ink)
        draw_arrow(ax, (place, 41), (x, 34), ink)
    draw_arrow(ax, (x, 34), (x, 22.2), ink, f"class token $h_{j}$: {width}")


@drawn
def links(network: np.ndarray, losses: dict[str, np.ndarray]) -> Figure:
    """Draw which eye's image each output sees, and which outputs each loss ties together.

    Parameters
    ----------
    network : array (4, 2)
        Slopes of the outputs in the images' pixels, as a share of each output's own.
    losses : dict
        Name -> array (4, 4), second derivatives in two outputs of one patient, with diagonal 1.
    """
    outputs = ["length OS", "length OD", "label OS", "label OD"]
    shape = {"width": 5.6, "width_ratios": [1, *[2] * len(losses)]}
    figure, axes = new_figure(2.9, 1, 1 + len(losses), **shape)
    panels = {"network": (network, ["image OS", "image OD"])}
    panels |= {name: (values, outputs) for name, values in losses.items()}
    look = {"annot": True, "fmt": ".2g", "cmap": "Greys", "cbar": False, "vmin": 0, "vmax": 1.3}
    look["annot_kws"] = {"size": 8}
    for ax, (name, (values, columns)) in zip(axes, panels.items(), strict=True):
        shown = pd.DataFrame(values, outputs, columns).round(2) + 0.0  # no minus before a zero
        sns.heatmap(
            shown.abs(),
            ax=ax,
            **look | {"annot": shown},
            linewidths=1,
            yticklabels=not ax.get_subplotspec().colspan.start,
        )
        ax.set_title(name)
        for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
            label.set_color(COLORS[label.get_text()[-2:]])
        ax.tick_params(axis="x", rotation=90, length=0, labelsize=8)
        ax.tick_params(axis="y", rotation=0, length=0, labelsize=8)
    return figure
