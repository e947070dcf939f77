"""Figures of the chapter on real eyes without photographs: they draw what its records hold."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cevit_lib.clinic.style import COLORS, METHODS, Look, drawn, new_figure
from studies.charts import TRUTH, across, differences, legend_below, lines, panel_size
from studies.real_eyes.alternatives import EXPOSURES
from studies.real_eyes.steps import STEPS

LOOKS = {
    "eyes as strangers": METHODS["independence"],
    "GEE": Look(COLORS["both"], "s", "--"),
    "copula": METHODS["exact"],
}
TITLES = {
    "uwhvf": "UWHVF: visual fields",
    "papila": "PAPILA: axial length, myopia",
}


def title_of(record: dict[str, Any]) -> str:
    """Return the words above a data set's panel."""
    return TITLES[record["data"]["name"].split()[-1]]


@drawn
def plot_steps(records: list[dict[str, Any]]) -> Figure:
    """Draw what each step of dependence adds to the held-out log score of a patient."""
    looks = {"within an eye": COLORS["ink"], "between eyes": COLORS["both"]}
    rows = pd.DataFrame(
        record["metrics"]["steps"][step] | {"metric": title_of(record), "a": step}
        for record in records
        for step in STEPS
    )
    rows["label"] = "dependence\n" + rows["a"]
    figure = differences(rows.rename(columns={"mean": "difference"}), looks)
    for ax, (title, own) in zip(figure.axes, rows.groupby("metric", sort=False), strict=True):
        for place, (step, repeats) in enumerate(zip(own["a"], own["repeats"], strict=True)):
            drawn_at = [place + 0.18] * len(repeats)
            ax.plot(repeats, drawn_at, "|", color=looks[step], alpha=0.6)
        ax.set(title=title, xlabel="gain in log score of a patient (nats)")
    return figure


@drawn
def plot_statements(records: list[dict[str, Any]]) -> Figure:
    """Draw mean predicted probabilities of statements about two eyes beside what was observed."""
    figure, axes = new_figure(3.2, columns=len(records), sharey=True)
    for ax, record in zip(axes, records, strict=True):
        statements = record["metrics"]["statements"]
        place = np.arange(len(statements))
        seen = pd.DataFrame([own["observed"] for own in statements.values()])
        look = {"color": COLORS["ink"], "linewidth": 5, "alpha": 0.25}
        ax.hlines(place, seen["low"], seen["high"], label="observed, 95 %", **look)
        ax.plot(seen["mean"], place, "|", color=COLORS["ink"], markersize=13)
        for words, arm in (("eyes as strangers", "within an eye"), ("copula", "all")):
            predicted = [own[arm]["predicted"] for own in statements.values()]
            look = {"color": LOOKS[words].color, "marker": LOOKS[words].marker}
            ax.plot(predicted, place, linestyle="none", label=words, **look)
        ax.set_yticks(place, [words.replace(", ", ",\n") for words in statements])
        ax.set(xlim=(0, 1), ylim=(len(place) - 0.5, -0.5), xlabel="probability")
        ax.set_title(title_of(record))
    return legend_below(figure)


@drawn
def plot_false_alarms(records: list[dict[str, Any]]) -> Figure:
    """Draw how often a nominal 5 % test finds an effect that is not there."""
    rows = []
    for record in records:
        for name, count in record["metrics"].items():
            kind, analysis, exposure, words = name.replace(": ", ", ").split(", ")
            if words == "no effect" and count["defined"]:
                share = 1 - count["hold"] / count["defined"]
                error = 2 * (share * (1 - share) / count["defined"]) ** 0.5
                panel = f"{kind}, exposure {exposure}"
                method = "eyes as strangers" if analysis == "strangers" else analysis
                x = record["configuration"]["correlation"]
                rows.append({"method": method, "panel": panel, "x": x, "y": share, "error": error})
    frame = pd.DataFrame(rows).sort_values("x")
    frame["x"] += frame["method"].map(dict(zip(LOOKS, (-0.012, 0, 0.012), strict=True)))
    order = [f"{kind}, exposure {e}" for kind in ("number", "label") for e in EXPOSURES]
    grid = lines(
        frame,
        ["x", "y", "error"],
        LOOKS,
        col="panel",
        col_order=order,
        col_wrap=2,
        **panel_size(2, 1.9),
    )
    grid.set(ylim=(0, None)).set_axis_labels("correlation of the two eyes", "false alarms")
    return legend_below(across(grid, 0.05, **TRUTH).figure)
