"""Pictures of the ablation on photographs; frames come from ``studies.photographs.tables``."""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from cevit_lib.clinic.report_figures import plot_correlation
from cevit_lib.clinic.style import COLORS, METHODS, drawn
from studies.charts import differences, legend_below, panel_size
from studies.photographs.settings import ARMS

LOOKS = ("empirical", "independence", "exact", "fmcem", "exact")
COLOR = {
    arm + adapters: METHODS[look].color
    for arm, look in zip(ARMS, LOOKS, strict=True)
    for adapters in ("", ", adapters")
}
PAIRS = {"own": COLORS["both"], "strangers'": COLORS["grey"]}
PLACE = {f"CeViT-A: {axis}": f"{axis} coordinate" for axis in ("first", "second")}
FIELDS = {0: "not below", 1: "below"}
RESPONSES = ["RNFL left", "RNFL right", "field left", "field right"]


@drawn
def plot_differences(rows: pd.DataFrame) -> Figure:
    """Draw paired differences with the corrected 95 % intervals, one panel a metric, one line a
    question.
    """
    return differences(rows, COLOR)


def plot_gamma(matrices: dict[str, tuple[np.ndarray, np.ndarray]], **state: Any) -> Figure:
    """Draw the mean of every estimated correlation as heat maps, with its SD over fits below the
    number.

    Parameters
    ----------
    matrices : dict
        Estimate -> mean and SD, two arrays of shape (4, 4).
    """
    both = np.vectorize("{:.2f}\n({:.2f})".format)
    texts = {name: both(*pair) for name, pair in matrices.items()}
    means = {name: mean for name, (mean, _) in matrices.items()}
    return plot_correlation(means, RESPONSES, texts, **state)


@drawn
def plot_disruption(rows: pd.DataFrame) -> Figure:
    """Draw what the dependence between eyes gains on patients' own pairs and on strangers'.

    Parameters
    ----------
    rows : DataFrame
        Of ``gains_of_dependence``.
    """
    kinds, pairs = rows["gain"], rows["pairs"]
    figure = differences(rows.assign(metric=kinds, label=pairs + " pairs", a=pairs), PAIRS)
    for ax, kind in zip(figure.axes, kinds.unique(), strict=True):
        ax.set_xlabel(f"gain in\n{kind}")
    return figure


@drawn
def plot_plane(record: dict) -> Figure:
    """Draw the class tokens of all eyes in one CeViT-A on a plane by t-SNE, as in the paper:
    contours of left and right eyes, one panel a class; eyes of test patients have a rim.

    Parameters
    ----------
    record : dict
        Of ``tables.shown_plane``.
    """
    table = pd.DataFrame(record["columns"]).rename(columns=PLACE)
    counts = table.groupby("binary")["eye"].value_counts().unstack(fill_value=0)
    titles = {
        label: f"field {FIELDS[label]} 22 dB ({row['OS']} OS, {row['OD']} OD)"
        for label, row in counts.iterrows()
    }
    table["field"] = table["binary"].map(titles)
    eyes = {"hue": "eye", "hue_order": ["OS", "OD"], "palette": COLORS}
    grid = sns.FacetGrid(table, col="field", **eyes, **panel_size(2, 2.9))
    grid.map_dataframe(_cloud).set(xticks=[], yticks=[]).set_titles("{col_name}")
    return legend_below(grid.figure, columns=4)


def _cloud(data: pd.DataFrame, color: str, label: str) -> None:
    """Draw eyes and the contours of their density."""
    look = dict(zip("xy", PLACE.values(), strict=True)) | {"color": color}
    sns.kdeplot(data, **look, levels=6, linewidths=1, linestyles="-" if label == "OS" else "--")
    look["marker"] = "o" if label == "OS" else "s"
    sns.scatterplot(data, **look, s=10, alpha=0.6, linewidth=0, label=label, legend=False)
    test = data[data["test"].astype(bool)]
    sns.scatterplot(test, **look, s=35, edgecolor="black", label=f"{label}, test", legend=False)
