"""Charts that several chapters draw, by seaborn and in the house style: tidy frames in, a grid of
panels out.

A frame's column ``method`` holds the words of its methods; ``looks`` maps these words to a `Look`,
in the order of the legend.
"""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from seaborn import FacetGrid

from cevit_lib.clinic.style import COLORS, PAGE_WIDTH, Look, new_figure

TRUTH = {"color": COLORS["ink"], "linestyle": ":", "linewidth": 1.2}
"""How a line of the truth, or of the best that is possible, is drawn."""
ZERO = {"color": COLORS["grey"], "linestyle": "-", "linewidth": 0.8}
"""How a line of reference is drawn."""


def panel_size(columns: int, height: float) -> dict[str, float]:
    """Return seaborn's ``height`` and ``aspect`` of panels that fill the width of a page."""
    return {"height": height, "aspect": PAGE_WIDTH / columns / height}


def _line(x: Any, y: Any, *ends: Any, **look: Any) -> None:
    plt.errorbar(x, y, ends or None, **look)


def lines(
    frame: pd.DataFrame, columns: list[str], looks: dict[str, Look], **grid: Any
) -> FacetGrid:
    """Draw one line a method in each panel.

    Parameters
    ----------
    frame : DataFrame
    columns : [x, y], [x, y, error] or [x, y, below, above]
        What is drawn, with bars of these lengths on both sides of ``y``.
    looks : dict
    **grid
        Of ``seaborn.FacetGrid``.
    """
    colors, markers, styles, faces = zip(*looks.values(), strict=True)
    panels = sns.FacetGrid(
        frame,
        hue="method",
        hue_order=list(looks),
        palette=colors,
        hue_kws={
            "marker": markers,
            "linestyle": styles,
            "markerfacecolor": [face or color for face, color in zip(faces, colors, strict=True)],
        },
        **grid,
    )
    return panels.map(_line, *columns).set_titles("{col_name}")


def dots(looks: dict[str, Look]) -> dict[str, Look]:
    """Return the looks without the lines between points."""
    return {words: look._replace(line="none") for words, look in looks.items()}


def boxes(frame: pd.DataFrame, metrics: list[str], looks: dict[str, Look], value: str) -> FacetGrid:
    """Draw box plots of metrics by method, one panel a metric, two in a row.

    Parameters
    ----------
    frame : DataFrame
        Columns ``metric``, ``method`` and ``value``.
    metrics : list of str
        ``_L`` and ``_R`` at their ends are written as the eyes they mean.
    looks : dict
    value : str
        Column to draw.
    """
    looks = {word: look for word, look in looks.items() if word in set(frame["method"])}
    grid = sns.catplot(
        frame,
        kind="box",
        x=value,
        y="method",
        hue="method",
        order=looks,
        palette={word: look.color for word, look in looks.items()},
        col="metric",
        col_wrap=2,
        col_order=metrics,
        sharex=False,
        width=0.65,
        linewidth=0.9,
        linecolor=COLORS["ink"],
        fliersize=2,
        boxprops={"alpha": 0.6},
        **panel_size(2, 0.7 + 0.2 * len(looks)),
    )
    for metric, ax in grid.axes_dict.items():
        ax.set_title(metric.replace("_L", ", left eye").replace("_R", ", right eye"))
    return grid.set_axis_labels("", "")


def across(grid: FacetGrid, y: float, **look: Any) -> FacetGrid:
    """Draw a line across all panels."""
    for ax in grid.axes.flat:
        ax.axhline(y, **look)
    return grid


def legend_below(figure: Figure, columns: int = 3) -> Figure:
    """Put one legend for all panels below them."""
    found = {
        word: handle
        for ax in figure.axes
        for handle, word in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=columns)
    return figure


def differences(rows: pd.DataFrame, colors: dict[str, str]) -> Figure:
    """Draw paired differences with their 95 % intervals, one panel a metric, one line a question.

    Parameters
    ----------
    rows : DataFrame
        Columns ``metric, label, a, difference, low, high``; ``a`` is the arm that is asked about.
    colors : dict
        Arm -> colour.
    """
    count = rows["label"].nunique()
    figure, axes = new_figure(
        max(1.9, 0.9 + 0.3 * count),
        columns=rows["metric"].nunique(),
        sharey=True,
        squeeze=False,
    )
    for ax, (metric, own) in zip(axes[0], rows.groupby("metric", sort=False), strict=True):
        ax.axvline(0, **ZERO)
        sns.stripplot(
            own,
            x="difference",
            y="label",
            hue="a",
            ax=ax,
            palette=colors,
            jitter=False,
            size=6,
            legend=False,
            zorder=3,
        )
        ax.hlines(range(len(own)), own["low"], own["high"], colors=own["a"].map(colors))
        better = "left" if metric.startswith(("MAE", "RMSE", "Brier")) else "right"
        words = f"difference in {metric}\n({better} of 0 is better)"
        ax.set(xlabel=words, ylabel="", ylim=(count - 0.5, -0.5))
        ax.locator_params(axis="x", nbins=4)
    return figure
