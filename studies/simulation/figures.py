"""Pictures of the simulation study; frames come from ``studies.simulation.tables``."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from cevit_lib.clinic.style import COLORS, METHODS, drawn, new_figure
from studies.charts import TRUTH, ZERO
from studies.simulation import tables
from studies.theory import gain
from studies.verdicts.predictions import SD_OF_SCORES, correlation_at

STRENGTHS = {0.0: METHODS["reference"], 1.0: METHODS["exact"], 1.25: METHODS["in-sample"]}
"""Strength of the dependence -> its look."""
BY_SIZE = dict(zip(tables.BY_SIZE, ("empirical", "independence", "exact"), strict=True))
"""Arm that is fitted to fewer patients -> whose look it has."""
SIGMAS = {
    "learned weights: sigma that it learns": METHODS["in-sample"],
    "learned weights: held-out sigma": METHODS["fmcem-variant"],
    "independence: held-out sigma": METHODS["independence"],
    "one stage: held-out sigma": METHODS["exact"],
}
"""Line of a long training -> its look."""


@drawn
def plot_gain(points: pd.DataFrame) -> Figure:
    """Draw what theory lets the dependence take off an estimation error, by the correlation of the
    two eyes' images, and what fits of a linear model show.

    Parameters
    ----------
    points : DataFrame
        Columns ``r, strength, lengths, labels``: squared error on each response alone over that of
        the joint fit.
    """
    figure, axes = new_figure(2.6, columns=2, sharey=True)
    images = np.sin(np.linspace(0, np.pi / 2, 12))  # closer where it is steep
    for strength, own in points.groupby("strength"):
        look = STRENGTHS[strength]
        theory = np.array([gain(correlation_at(strength), r, SD_OF_SCORES) for r in images])
        for ax, kind, pair in zip(axes, ("lengths", "labels"), ((0, 1), (2, 3)), strict=True):
            label = f"strength {strength:g}"
            curve = {"color": look.color, "linestyle": look.line, "label": label}
            ax.plot(images, 100 * (1 - 1 / theory[:, pair].mean(1)), **curve)
            dots = {"color": look.color, "marker": look.marker, "linestyle": "none"}
            ax.plot(own["r"], 100 * (1 - 1 / own[kind]), **dots)
            ax.set(title=kind, xlabel="$r$")
    axes[0].set_ylabel(r"$100\,(1 - 1/G)$")
    axes[1].legend()
    return figure


@drawn
def plot_predicted(cells: pd.DataFrame) -> Figure:
    """Draw the measured gain against the predicted one, a point a cell with 95 % intervals.

    Parameters
    ----------
    cells : DataFrame
        Of ``studies.verdicts.predictions.gain_cells``; those at r = 1, where training fails, are
        left out.
    """
    figure, ax = new_figure(3.6)
    cells = cells[cells["r"] < 1]
    for strength, own in cells.groupby("strength"):
        look, x, y = STRENGTHS[strength], 100 * own["predicted"], 100 * own["measured"]
        bars = 100 * own[["measured_half", "predicted_half"]].fillna(0.0)
        style = {"color": look.color, "marker": look.marker, "linestyle": "none"}
        label = f"strength {strength:g}"
        ax.errorbar(x, y, bars["measured_half"], bars["predicted_half"], label=label, **style)
        for place, r in zip(zip(x, y, strict=True), own["r"], strict=True):
            if place[0] > 1e-9:  # the others lie on each other
                ax.annotate(f" $r$ = {r:g}", place, color=look.color, va="bottom")
    ends = [0, max(20.0, 100 * cells["predicted"].max())]
    ax.plot(ends, ends, **TRUTH)
    ax.axhline(0, **ZERO)
    ax.set(xlabel=r"predicted gain, $100\,v\,(1 - 1/G)$", ylabel="measured gain, per cent")
    ax.legend()
    return figure


@drawn
def plot_waterfall(steps: pd.DataFrame) -> Figure:
    """Draw what each step takes off the empirical loss's squared error, with 95 % intervals; a bar
    begins where the one above ends, but for the first, which is no part of the path.
    """
    figure, ax = new_figure(2.6)
    place = np.arange(len(steps))
    start = steps["mean"].where(place > 0, 0.0).cumsum() - steps["mean"].where(place > 0, 0.0)
    colors = [COLORS["light"], *[METHODS["exact"].color] * len(steps)][: len(steps)]
    ax.barh(place, steps["mean"], left=start, color=colors, height=0.6, alpha=0.5)
    bars = (steps["mean"] - steps["low"]).fillna(0), (steps["high"] - steps["mean"]).fillna(0)
    ink = {"color": COLORS["ink"], "linestyle": "none", "linewidth": 1.2}
    ax.errorbar(start + steps["mean"], place, xerr=bars, **ink)
    ax.axvline(0, **ZERO)
    ax.set_yticks(place, steps["step"])
    ax.set(xlabel="less squared error, in per cent of the empirical loss's")
    ax.invert_yaxis()
    return figure


@drawn
def plot_when(size: pd.DataFrame, sigmas: pd.DataFrame) -> Figure:
    """Draw each network's error by the number of patients, at the epochs that its arm chose, and
    sigma by epoch of a long training.

    Parameters
    ----------
    size, sigmas : DataFrame
        Of ``studies.simulation.tables.by_size`` and ``sigmas``.
    """
    figure, (left, right) = new_figure(3.2, columns=2)
    if len(size):
        colors = {arm: METHODS[look].color for arm, look in BY_SIZE.items()}
        how = {"palette": colors, "hue_order": colors, "dodge": True, "size": 3, "jitter": 0.15}
        sns.stripplot(size[size["chosen"]], x="n", y="error", hue="arm", ax=left, alpha=0.7, **how)
        left.set(xlabel="patients $n$", ylabel="RMSE to truth", yscale="log")
        left.set_yticks((0.5, 1, 2, 4), ("0.5", "1", "2", "4"))
        left.minorticks_off()
    for method, own in sigmas.groupby("method", sort=False):
        look = SIGMAS[method]
        right.plot(own["epoch"], own["sigma"], color=look.color, linestyle=look.line, label=method)
    right.axhline(1, **TRUTH)
    right.set(xlabel="epoch", ylabel=r"$\sigma_1$")
    for ax in (left, right):
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=7)
    return figure
