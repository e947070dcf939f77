"""Figures of "CeViT, line by line": the architecture, what alpha does, where the class token looks,
eyes on a plane.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cevit_lib.clinic.style import COLORS, drawn, new_figure
from studies.charts import TRUTH, legend_below, panel_size
from studies.overview import draw_flow


@drawn
def architecture(layers: int = 12, width: int = 768, tokens: int = 197) -> Figure:
    """Draw the bi-channel encoder: green parts are shared, blue ones belong to the left eye, orange
    ones to the right.

    Parameters
    ----------
    layers, width, tokens : int
        What the labels say.
    """
    left, right, both = COLORS["left"], COLORS["right"], COLORS["both"]
    boxes = {
        "image 1": (22, 4, "image, left eye (OS)", left),
        "image 2": (78, 4, "image, right eye (OD)", right),
        "tokens": (50, 17, f"patches, class token, positions: {tokens} tokens of {width}", both),
        "attention": (50, 31, "norm, self-attention with LoRA, + residual", both),
        "MLP": (50, 42, "norm, MLP with LoRA", both),
        "adapter 1": (15, 42, "adapter of the left eye\n$\\alpha_1 A_{l1}$", left),
        "adapter 2": (85, 42, "adapter of the right eye\n$\\alpha_2 A_{l2}$", right),
        "sum": (50, 53, "residual + MLP + adapter", COLORS["grey"]),
        "heads 1": (20, 68, "heads $\\beta_1$ (continuous), $\\beta_3$ (binary)", left),
        "heads 2": (80, 68, "heads $\\beta_2$ (continuous), $\\beta_4$ (binary)", right),
    }
    arrows = [("tokens", "attention"), ("attention", "MLP"), ("MLP", "sum")]
    for eye in "12":
        arrows += [(f"image {eye}", "tokens"), ("attention", f"adapter {eye}")]
        arrows += [(f"adapter {eye}", "sum"), ("sum", f"heads {eye}")]
    figure, ax = new_figure(5.4)
    ax.set(xlim=(0, 100), ylim=(0, 73))
    ax.add_patch(Rectangle((1, 25), 98, 33, facecolor="none", edgecolor=COLORS["grey"], ls="--"))
    ax.text(2, 55.5, f"one of {layers} blocks", fontsize=9, color=COLORS["grey"])
    ax.text(50, 60, "class tokens $h_1, h_2$", fontsize=9, ha="center")
    draw_flow(ax, boxes, [(*ends, "") for ends in arrows])
    return figure


@drawn
def alpha_effect(alpha: np.ndarray, distance: np.ndarray, same: np.ndarray) -> Figure:
    """Draw how far the class tokens of one photograph, fed to both eyes, part as alpha grows.

    Parameters
    ----------
    alpha : array (m,)
        Of both eyes.
    distance : array (m,)
        Norm of the difference of the tokens, relative to their size.
    same : array (m,)
        The same after the second layers were divided by ``alpha``.
    """
    words = {"adapters kept": distance, r"$V_2, d_2$ divided by $\alpha$": same}
    figure, ax = new_figure(3.2, width=5)
    ink = [COLORS["ink"], COLORS["grey"]]
    sns.lineplot(pd.DataFrame(words, index=alpha), markers=True, palette=ink, ax=ax)
    ax.axvline(0.1, **TRUTH)
    ax.set(
        xlabel=r"$\alpha$ of both eyes",
        ylabel="distance of the two tokens, relative",
        ylim=(0, None),
    )
    return figure


@drawn
def attention(grids: np.ndarray, titles: Sequence[str]) -> Figure:
    """Draw grids of attention weights, one row an eye, one column a head; all panels share their
    colours.

    The colours follow the square root, so that the even share stays visible beside a peak of forty
    times as much.

    Parameters
    ----------
    grids : array (2, heads, rows, columns)
        Weights of the class token in one layer, left eye first.
    titles : sequence of str
        One for each head.
    """
    times = np.asarray(grids, dtype=float) * np.asarray(grids[0][0]).size
    figure, axes = new_figure(2.9, 2, len(titles), squeeze=False)
    look = {"norm": PowerNorm(0.5, 0, max(times.max(), 2.0)), "cmap": "Greys", "cbar": False}
    look |= {
        "linewidths": 0.3,
        "linecolor": COLORS["light"],
        "square": True,
        "xticklabels": False,
        "yticklabels": False,
    }
    for row, eye, eyes_grids in zip(axes, ("OS", "OD"), times, strict=True):
        for ax, title, grid in zip(row, titles, eyes_grids, strict=True):
            sns.heatmap(grid, ax=ax, **look)
            ax.set_title(title if eye == "OS" else "", fontsize=9)
        row[0].set_ylabel(eye, color=COLORS[eye], fontweight="bold")
    figure.colorbar(axes[0, 0].collections[0], ax=axes, shrink=0.8, label="times the even share")
    return figure


def _eyes(record: dict, views: Sequence[str]) -> pd.DataFrame:
    """Return one row an eye and view of a record of the study "embedding", with its t-SNE
    coordinates.
    """
    table = pd.DataFrame(record["columns"])
    words = {0: "field 22 dB or more", 1: "field below 22 dB"}
    place = ["first coordinate", "second coordinate"]
    parts = [
        table[[f"{view}: first", f"{view}: second"]]
        .astype(float)
        .set_axis(place, axis=1)
        .assign(view=view, eye=table["eye"], test=table.get("test", False))
        .assign(field=table["binary"].astype(int).map(words))
        for view in views
    ]
    return pd.concat(parts)


def _cloud(data: pd.DataFrame, color: str, label: str) -> None:
    """Draw eyes and the contours of their density; eyes of test patients have a rim."""
    look = {"x": "first coordinate", "y": "second coordinate", "color": color}
    sns.kdeplot(data, **look, levels=6, linewidths=1, linestyles="-" if label == "OS" else "--")
    look["marker"] = "o" if label == "OS" else "s"
    sns.scatterplot(data, **look, s=10, alpha=0.6, linewidth=0, label=label, legend=False)
    test = data[data["test"].astype(bool)]
    if len(test):
        sns.scatterplot(test, **look, s=35, edgecolor="black", label=f"{label}, test", legend=False)


def _planes(rows: pd.DataFrame, **facets: Any) -> sns.FacetGrid:
    grid = sns.FacetGrid(
        rows, hue="eye", hue_order=["OS", "OD"], palette=COLORS, **facets, **panel_size(2, 2.9)
    )
    return grid.map_dataframe(_cloud).set(xticks=[], yticks=[])


@drawn
def eyes_on_a_plane(
    record: dict, views: Sequence[str] = ("as photographed", "left mirrored")
) -> Figure:
    """Contours of the density of t-SNE coordinates, one column an eye, one row a view.

    Parameters
    ----------
    record : dict
        Of the study "embedding".
    views : sequence of str
        Beginnings of the record's columns.
    """
    grid = _planes(
        _eyes(record, views),
        row="view",
        col="eye",
        sharex="row",
        sharey="row",
        col_order=["OS", "OD"],
    )
    grid.set_axis_labels("first coordinate", "second coordinate")
    return grid.set_titles("{row_name}: {col_name}").figure


@drawn
def eyes_by_class(record: dict, view: str = "left mirrored") -> Figure:
    """Contours of both eyes together, one panel a class of the binary response; eyes of test
    patients have a rim.
    """
    rows = _eyes(record, [view])
    counts = rows.groupby("field")["eye"].value_counts().unstack(fill_value=0)
    words = {name: f"{name} ({row['OS']} OS, {row['OD']} OD)" for name, row in counts.iterrows()}
    grid = _planes(rows.replace({"field": words}), col="field")
    grid.set_axis_labels("first coordinate", "second coordinate").set_titles("{col_name}")
    return legend_below(grid.figure, columns=4)
