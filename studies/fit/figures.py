"""Figures of the page on the fit: traces, arms, correlations, cells."""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from cevit_lib.clinic.report_figures import plot_correlation
from cevit_lib.clinic.style import COLORS, METHODS, drawn
from studies.charts import panel_size

__all__ = ["CELLS", "plot_arms", "plot_cells", "plot_correlation", "plot_trace"]

CELLS = ("neither", "right only", "left only", "both")
"""Joint probabilities in the order 00, 01, 10, 11."""
PALETTE = {name: METHODS[name].color for name in ("empirical", "independence")}
PALETTE["copula"] = METHODS["exact"].color


@drawn
def plot_trace(record: dict[str, Any]) -> Figure:
    """Draw training and held-out loss by epoch of the warm-up, and of both continuations from
    it.
    """
    trace = pd.DataFrame(record["trace"])
    warm = trace["stage"] == "warm-up"
    trace["epoch"] = trace.groupby("stage").cumcount() + 1 + sum(warm) * ~warm
    trace["loss function"] = np.where(trace["stage"] == "copula", "copula", "empirical")
    trace["panel"] = np.where(
        warm, "step 1, warm-up", "from the same warm-up: two losses, two scales"
    )
    words = {"loss": "training", "validation_loss": "held out"}
    rows = trace.rename(columns=words).melt(
        ["epoch", "loss function", "panel"], words.values(), "patients", "mean loss per patient"
    )
    grid = sns.relplot(
        rows.astype({"mean loss per patient": float}),
        kind="line",
        x="epoch",
        y="mean loss per patient",
        hue="loss function",
        style="patients",
        palette=PALETTE,
        col="panel",
        facet_kws={"sharex": False, "sharey": False},
        **panel_size(2, 3),
    )
    sns.move_legend(grid, "outside lower center", ncol=6)
    return grid.set_titles("{col_name}").figure


@drawn
def plot_arms(records: list[dict[str, Any]], metrics: dict[str, str]) -> Figure:
    """Draw one point per fold and arm, folds joined by lines, one panel per metric.

    Parameters
    ----------
    records : list
        One record a fold.
    metrics : dict
        Name of a metric in the records -> title of its panel.
    """
    rows = pd.DataFrame(
        {
            "fold": fold,
            "arm": arm.replace(", ", ",\n"),
            "panel": title,
            "value": values["values"][metric],
        }
        for fold, record in enumerate(records)
        for arm, values in record["metrics"].items()
        for metric, title in metrics.items()
    ).astype({"value": float})
    shape = {"col": "panel", "sharey": False} | panel_size(len(metrics), 3)
    grid = sns.FacetGrid(rows, **shape).set_titles("{col_name}")
    look = {"units": "fold", "estimator": None, "color": COLORS["light"], "marker": "o"}
    look |= {"markerfacecolor": COLORS["grey"], "markersize": 4}
    grid.map_dataframe(sns.lineplot, x="arm", y="value", **look)
    grid.map_dataframe(
        sns.pointplot,
        x="arm",
        y="value",
        errorbar=None,
        linestyle="none",
        marker="D",
        color=COLORS["ink"],
    )
    return grid.set_axis_labels("", "").figure


@drawn
def plot_cells(
    joint: np.ndarray, independent: np.ndarray, ids: list[str], observed: list[str]
) -> Figure:
    """Draw the four joint probabilities of some patients, by the copula and by independence with
    the same margins.

    Parameters
    ----------
    joint, independent : array, shape (k, 4)
        Probabilities of 00, 01, 10 and 11.
    ids, observed : list of str
        Patients, and the cell that was observed.
    """
    words = [f"patient {name}\nobserved: {cell}" for name, cell in zip(ids, observed, strict=True)]
    rows = pd.DataFrame(
        {"patient": word, "method": method, "cell": cell.replace(" ", "\n"), "probability": p}
        for method, table in (("independence", independent), ("copula", joint))
        for word, row in zip(words, table, strict=True)
        for cell, p in zip(CELLS, row, strict=True)
    )
    grid = sns.catplot(
        rows,
        kind="bar",
        x="cell",
        y="probability",
        hue="method",
        palette=PALETTE,
        col="patient",
        **panel_size(len(ids), 3),
    )
    sns.move_legend(grid, "outside lower center", ncol=2, title="")
    return grid.set_titles("{col_name}").set_xlabels("").figure
