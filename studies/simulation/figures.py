"""Pictures of the simulation study; frames come from ``studies.simulation.tables``."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cevit_lib.clinic.report_figures import plot_correlation
from cevit_lib.clinic.style import METHODS, drawn
from studies.charts import TRUTH, ZERO, across, boxes, differences, legend_below, lines, panel_size

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
    """Draw box plots of metrics by arm, one panel a metric, with the mean of the Bayes-optimal row
    as a line.

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
    largest = max(0.05, np.abs(list(shown.values())).max())
    return plot_correlation(shown, RESPONSES, texts, largest, "estimate minus truth", **state)


@drawn
def plot_differences(rows: pd.DataFrame) -> Figure:
    """Draw the paired differences of ``comparisons``, with intervals over data sets."""
    bases = {arm: arm.partition(", ")[0] for arm in rows["a"]}
    methods = {arm: ARMS.get(base, ("", "truth"))[1] for arm, base in bases.items()}
    return differences(rows, {arm: METHODS[method].color for arm, method in methods.items()})


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
    rows = pd.concat([own.assign(panel=words, setting=own[at]) for at, words, own in panels])
    rows = rows.sort_values("setting")
    place = rows.groupby("panel")["setting"].rank("dense") - 1
    rows["place"] = place + 0.06 * (rows["a"].map(list(ARMS).index) - 4)  # bars side by side
    errors = {"error": (rows["high"] - rows["low"]) / 2} if value == "difference" else {}
    grid = lines(
        _named(rows.assign(**errors), "a"),
        ["place", value, *errors],
        LOOKS,
        col="panel",
        col_order=[words for _, words, _ in panels],
        col_wrap=2,
        sharex=False,
        sharey=False,
        **panel_size(2, 2.3),
    )
    for ax, (at, _, own) in zip(grid.axes.flat, panels, strict=True):
        settings = sorted(own[at].unique())
        ax.set_xticks(range(len(settings)), [f"{setting:g}" for setting in settings])
    return legend_below(across(grid, 0, **ZERO).set_axis_labels("", ylabel).figure, columns=4)


@drawn
def plot_curves(curves: pd.DataFrame) -> Figure:
    """Draw the warm-up's two losses by epoch, and each arm's held-out loss since its first epoch.

    Parameters
    ----------
    curves : DataFrame
        Of ``curves``: mean over fits by stage and epoch.
    """
    warm = curves[curves["stage"] == "warm-up"].assign(panel="warm-up: empirical loss per patient")
    arms = curves[curves["stage"] != "warm-up"]
    first = arms.groupby("stage")["validation_loss"].transform("first")
    parts = [
        warm.assign(method="warm-up, training"),
        warm.assign(method="warm-up, held out", loss=warm["validation_loss"]),
        _named(
            arms.assign(
                loss=arms["validation_loss"] - first,
                panel="arms: held-out loss minus first epoch's",
            ),
            "stage",
        ),
    ]
    looks = {
        "warm-up, training": METHODS["empirical"]._replace(marker="", line="-"),
        "warm-up, held out": METHODS["empirical"]._replace(marker=""),
        **LOOKS,
    }
    grid = lines(
        pd.concat(parts),
        ["epoch", "loss"],
        looks,
        col="panel",
        sharex=False,
        sharey=False,
        **panel_size(2, 3.2),
    )
    return legend_below(across(grid, 0, **ZERO).set_axis_labels("epoch", "").figure, columns=4)
