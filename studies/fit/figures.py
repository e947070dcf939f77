"""Figures of the page on training: the two algorithms, whose residuals an estimate sees, and Gamma
by epoch.
"""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from cevit_lib.clinic.style import COLORS, METHODS, drawn, new_figure
from studies.charts import TRUTH, legend_below
from studies.overview import draw_arrow, draw_box

ONE_STAGE, ALGORITHM_3 = METHODS["exact"], METHODS["fmcem"]


@drawn
def two_algorithms() -> Figure:
    """Draw when either algorithm estimates the copula parameters, and from whose residuals."""
    figure, ax = new_figure(3.9, width=5.4)
    ax.set(xlim=(0, 100), ylim=(0, 62))
    ax.set_axis_off()
    ink, paper, ours = COLORS["ink"], ALGORITHM_3.color, ONE_STAGE.color
    ax.text(0, 60, "Algorithm 3: estimate once, between two trainings", color=paper)
    draw_box(ax, (13, 47, 24, 15), "many epochs,\nempirical loss", ink)
    draw_box(ax, (50, 47, 30, 15), "fMCEM on\nresiduals of\ntraining patients", paper)
    draw_box(ax, (87, 47, 24, 15), "more epochs,\ncopula loss", ink)
    draw_arrow(ax, (25.5, 47), (34.5, 47), ink)
    draw_arrow(ax, (65.5, 47), (74.5, 47), paper)
    ax.text(70, 49.5, r"$\hat\Gamma, \hat\sigma$", ha="center", color=paper)
    ax.text(87, 35.5, "held fixed", ha="center", fontsize=9, color=paper)
    ax.text(0, 26, "One stage: estimate along the way", color=ours)
    draw_box(ax, (16, 12, 30, 15), "an epoch,\ncopula loss", ink)
    draw_box(ax, (80, 12, 36, 15), "likelihood on\nresiduals of\nheld-out patients", ours)
    draw_arrow(ax, (32, 15.5), (61, 15.5), ink)
    draw_arrow(ax, (61, 8.5), (32, 8.5), ours)
    ax.text(46.5, 3.5, r"$\hat\Gamma, \hat\sigma$", ha="center", color=ours)
    ax.text(46.5, 17.5, "network", ha="center", fontsize=9)
    return figure


@drawn
def whose_residuals(rows: pd.DataFrame) -> Figure:
    """Draw spread and correlation of the two lengths' residuals while a network trains.

    Parameters
    ----------
    rows : DataFrame
        Columns ``epoch``, ``patients``, ``SD`` and ``correlation``.
    """
    words = {"SD": r"SD of residuals", "correlation": "their correlation, left with right"}
    figure, axes = new_figure(3.2, columns=2)
    looks = {"seen": METHODS["in-sample"], "new": ONE_STAGE}
    for ax, (name, said), truth in zip(axes, words.items(), (1.0, 0.72), strict=True):
        sns.lineplot(
            rows,
            x="epoch",
            y=name,
            hue="patients",
            style="patients",
            palette={who: look.color for who, look in looks.items()},
            markers={who: look.marker for who, look in looks.items()},
            dashes=False,
            ax=ax,
            legend=name == "SD",
        )
        ax.axhline(truth, **TRUTH, label="errors, truth" if name == "SD" else None)
        ax.set(ylabel=said, ylim=(0, None))
    axes[0].legend(title="")
    return figure


CORRELATIONS = {"rho12": (0, 1), "rho34": (2, 3), "rho13": (0, 2)}


def estimates_by_epoch(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the estimates of the simulation's folds: one row a fold, epoch and correlation.

    One stage estimates after every epoch, and all correlations are kept of the last one; Algorithm
    3 after its warm-up of half the epochs, and again, in another arm, after all of them.
    """
    rows = []
    for record in records:
        trace, found = record["trace"]["one stage"], record["parameters"]
        last = len(trace["rho12"])
        arms = {"one stage": last, "algorithm 3, paper": last // 2}
        arms["algorithm 3, paper, further"] = last
        for name, (i, j) in CORRELATIONS.items():
            path = trace.get(name, [])[: last - 1]
            rows += [(name, "one stage", e, value) for e, value in enumerate(path, start=1)]
            rows += [
                (name, arm.split(",")[0].capitalize(), epoch, found[arm]["correlation"][i][j])
                for arm, epoch in arms.items()
                if arm in found
            ]
    frame = pd.DataFrame(rows, columns=["correlation", "method", "epoch", "estimate"])
    return frame.replace({"method": {"One stage": "one stage"}})


@drawn
def gamma_by_epoch(records: list[dict[str, Any]]) -> Figure:
    """Draw three correlations by epoch under both algorithms, mean and SD of the folds.

    Parameters
    ----------
    records : list
        Of the study "simulation".
    """
    rows = estimates_by_epoch(records)
    looks = {"one stage": ONE_STAGE, "Algorithm 3": ALGORITHM_3}
    truth = np.array(records[0]["parameters"]["true"]["correlation"])
    figure, axes = new_figure(3.3, columns=3, sharey=True)
    for ax, (name, place) in zip(axes, CORRELATIONS.items(), strict=True):
        own = rows[rows["correlation"] == name].groupby(["method", "epoch"])["estimate"]
        for method, part in own.agg(["mean", "std"]).fillna(0).groupby("method"):
            look, aside = looks[method], 0.0 if method == "one stage" else 0.3
            line = {"color": look.color, "marker": look.marker, "capsize": 2, "label": method}
            line["linestyle"] = "-" if method == "one stage" else "none"
            epochs = part.index.get_level_values("epoch") + aside  # bars beside each other
            ax.errorbar(epochs, part["mean"], part["std"], **line)
        ax.axhline(truth[place], **TRUTH, label="true errors")
        ax.set(
            xlabel="epoch", title=rf"$\hat\rho_{{{name[3:]}}}$", ylim=(-0.4, 1), xlim=(0.5, None)
        )
    axes[0].set_ylabel("estimate")
    return legend_below(figure)
