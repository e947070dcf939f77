"""Pictures of the simulation study; frames come from ``studies.simulation.tables``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cevit_lib.clinic.report_figures import plot_correlation
from cevit_lib.clinic.style import METHODS, drawn
from studies.charts import TRUTH, ZERO, across, boxes, differences, legend_below, lines, panel_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARMS = {
    "warm-up": ("warm-up", "reference"),
    "empirical": ("empirical", "empirical"),
    "independence": ("independence", "independence"),
    "fmcem": ("fMCEM", "fmcem"),
    "in-sample": ("exact, in-sample", "in-sample"),
    "held-out": ("exact, held-out", "exact"),
    "true": (r"true $\Gamma$", "truth"),
}
"""Arm -> words and method."""
LOOKS = {words: METHODS[method] for words, method in ARMS.values()}
RESPONSES = ["AL left", "AL right", "HM left", "HM right"]


def _named(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the rows whose arm has a name in pictures, with that name."""
    words = {arm: word for arm, (word, _) in ARMS.items()}
    return frame.assign(method=frame[column].map(words)).dropna(subset="method")


@drawn
def plot_metrics(frame: pd.DataFrame, metrics: list[str], value: str = "value") -> Figure:
    """Draw box plots of metrics by arm, one panel a metric, with the mean of the Bayes-optimal row as a line.

    Parameters
    ----------
    frame : DataFrame
        Of ``metrics_frame``; the last epoch is drawn.
    metrics : list of str
    value : {"value", "excess"}
        The metric itself, or how much worse it is than the Bayes-optimal row on the same patients.
    """
    own = frame[(frame["epoch"] == "last") & frame["metric"].isin(metrics)]
    best = own[own["arm"] == "Bayes-optimal"].groupby("metric")[value].mean()
    grid = boxes(_named(own, "arm"), metrics, LOOKS, value)
    for metric, ax in grid.axes_dict.items():
        ax.axvline(best[metric], **TRUTH)
    return grid.figure


def plot_gamma(errors: dict[str, np.ndarray], **state: Any) -> Figure:
    """Draw the mean error of each correlation as heat maps, one an estimate.

    Parameters
    ----------
    errors : dict
        Estimate -> matrix of shape (4, 4), estimate minus truth.
    """
    shown = {ARMS[name][0]: errors[name] for name in ARMS if name in errors}
    texts = {name: np.vectorize("{:+.2f}".format)(matrix) for name, matrix in shown.items()}
    largest = max(0.05, *(np.abs(matrix).max() for matrix in shown.values()))
    return plot_correlation(shown, RESPONSES, texts, largest, "estimate minus truth", **state)


@drawn
def plot_differences(rows: pd.DataFrame) -> Figure:
    """Draw the paired differences of ``comparisons``, with intervals over data sets."""
    arms = {arm: ARMS.get(arm.partition(", ")[0], ("", "truth"))[1] for arm in rows["a"]}
    return differences(rows, {arm: METHODS[method].color for arm, method in arms.items()})


@drawn
def plot_sensitivity(
    panels: list[tuple[str, str, pd.DataFrame]], value: str, ylabel: str
) -> Figure:
    """Draw a comparison against a setting, one panel a setting, one line an arm.

    Parameters
    ----------
    panels : list of (column, axis label, DataFrame)
        Of ``sensitivity`` or ``estimate_errors``.
    value : str
        Column to draw; intervals over data sets belong to ``difference`` alone.
    """
    rows = pd.concat(
        [own.assign(panel=words, setting=own[at]) for at, words, own in panels]
    ).sort_values("setting")
    place = rows.groupby("panel")["setting"].rank("dense") - 1
    rows["place"] = place + 0.06 * (rows["a"].map(list(ARMS).index) - 4)  # bars stand side by side
    columns = ["place", value]
    if value == "difference":
        rows["error"] = (rows["high"] - rows["low"]) / 2
        columns.append("error")
    shape = {"col": "panel", "col_wrap": 2, "sharex": False, "sharey": False}
    shape["col_order"] = [words for _, words, _ in panels]
    grid = lines(_named(rows, "a"), columns, LOOKS, **shape, **panel_size(2, 2.3))
    for ax, (at, _, own) in zip(grid.axes.flat, panels, strict=True):
        settings = sorted(own[at].unique())
        ax.set_xticks(range(len(settings)), [f"{setting:g}" for setting in settings])
    grid.set_axis_labels("", ylabel)
    across(grid, 0, **ZERO)
    legend_below(grid.figure, columns=4)
    return grid.figure


@drawn
def plot_curves(curves: pd.DataFrame) -> Figure:
    """Draw the warm-up's two losses by epoch, and each arm's held-out loss since its first epoch.

    Parameters
    ----------
    curves : DataFrame
        Of ``curves``: mean over fits by stage and epoch.
    """
    warm = curves[curves["stage"] == "warm-up"].assign(panel="warm-up: empirical loss per patient")
    held_out = warm.assign(loss=warm["validation_loss"], method="warm-up, held out")
    own = curves["validation_loss"]
    change = own - own.groupby(curves["stage"]).transform("first")
    arms = curves.assign(loss=change, panel="arms: held-out loss minus first epoch's")
    arms = _named(arms.query("stage != 'warm-up'"), "stage")
    rows = pd.concat([warm.assign(method="warm-up, training"), held_out, arms])
    plain = {"marker": ""}
    looks = {
        "warm-up, training": METHODS["empirical"]._replace(line="-", **plain),
        "warm-up, held out": METHODS["empirical"]._replace(**plain),
    } | LOOKS
    shape = {"col": "panel", "sharex": False, "sharey": False}
    grid = lines(rows, ["epoch", "loss"], looks, **shape, **panel_size(2, 3.2))
    grid.set_axis_labels("epoch", "")
    across(grid, 0, **ZERO)
    legend_below(grid.figure, columns=4)
    return grid.figure
