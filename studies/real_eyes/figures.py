"""Figures of the page on both eyes' axial length: they draw what the study's records hold."""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from cevit_lib.clinic.style import COLORS, METHODS, drawn, new_figure
from studies.charts import TRUTH, ZERO, across, dots, legend_below, lines, panel_size

LOOKS = {"independence": METHODS["independence"], "copula": METHODS["exact"]}
PALETTE = {arm: look.color for arm, look in LOOKS.items()}
REGIONS = {
    "region": ("both lengths,\n90 % ellipse", 0.9, "region_area"),
    "difference": ("left minus right,\n95 %", 0.95, "difference_width"),
    "fellow": ("right, once left\nis known, 95 %", 0.95, "fellow_width"),
}
"""Kind of region -> words, nominal coverage, name of its size."""

NOTHING = np.full((4, 4), np.nan)


@drawn
def plot_regions(record: dict[str, Any]) -> Figure:
    """Draw what joint predictions cover, with patient-bootstrap intervals, and how large they are
    beside independence.
    """
    coverage, arms = record["metrics"]["coverage"], record["metrics"]["arms"]
    rows = pd.DataFrame(
        {
            "method": arm,
            "region": words,
            "place": place + shift,
            "covered": coverage[arm][region]["value"],
            "below": coverage[arm][region]["value"] - coverage[arm][region]["low"],
            "above": coverage[arm][region]["high"] - coverage[arm][region]["value"],
            "size": arms[arm][size] / arms["independence"][size],
        }
        for arm, shift in zip(LOOKS, (-0.16, 0.16), strict=True)
        for place, (region, (words, _, size)) in enumerate(REGIONS.items())
    )
    figure, (left, right) = new_figure(3.4, columns=2)
    for arm, own in rows.groupby("method", sort=False):
        look = {"fmt": LOOKS[arm].marker, "color": LOOKS[arm].color, "label": arm, "capsize": 3}
        left.errorbar(own["place"], own["covered"], [own["below"], own["above"]], **look)
    words, nominal, _ = zip(*REGIONS.values(), strict=True)
    left.hlines(nominal, np.arange(3) - 0.42, np.arange(3) + 0.42, **TRUTH, label="aimed at")
    left.set_xticks(range(3), words, fontsize=8)
    left.set(ylim=(0.75, 1.01), ylabel="share of patients covered")
    left.legend(loc="lower right")
    look = {"hue": "method", "palette": PALETTE, "legend": False}
    sns.barplot(rows, x="region", y="size", ax=right, **look)
    for bars in right.containers:
        right.bar_label(bars, fmt="%.2f", fontsize=8)
    right.tick_params(axis="x", labelsize=8)
    right.set(ylim=(0, 1.2), xlabel="", ylabel="size beside independence")
    return figure


@drawn
def plot_gain(record: dict[str, Any]) -> Figure:
    """Draw the quantiles over patients of the log likelihood that the dependence buys."""
    gain = record["metrics"]["gain"]
    mean, other = gain["mean"]["value"], gain["mean_without_extreme"]
    figure, ax = new_figure(3.4, width=5.6)
    ax.axhline(0, **ZERO)
    ax.plot(gain["probabilities"], gain["quantiles"], "o-", color=PALETTE["copula"])
    ax.axhline(mean, color=COLORS["ink"], linestyle="--", linewidth=1, label=f"mean {mean:.2f}")
    ax.axhline(other, **TRUTH, label=f"mean without the most extreme patient {other:.2f}")
    ax.set_yscale("symlog", linthresh=5)
    ticks = [-100, -10, -4, -2, 0, 2, 4, 10]
    ax.set_yticks(ticks, map(str, ticks))
    ax.set(xlabel="share of patients", ylabel="gain in log likelihood")
    ax.minorticks_off()
    ax.legend(loc="lower right")
    return figure


@drawn
def plot_joint(record: dict[str, Any], levels: tuple[float, ...]) -> Figure:
    """Draw how often the four responses fall into the model's most probable region, against its
    nominal probability.
    """
    x, y = "nominal probability of the region", "share of patients inside"
    parts = [
        pd.DataFrame({x: levels, y: record["metrics"]["joint"][arm]["observed"], "method": arm})
        for arm in LOOKS
    ]
    grid = lines(pd.concat(parts), [x, y], LOOKS, height=4, aspect=1.15, xlim=(0, 1), ylim=(0, 1))
    grid.ax.plot([0, 1], [0, 1], **TRUTH, label="right model")
    grid.ax.legend(loc="lower right")
    return grid.figure


@drawn
def plot_patient_calibration(record: dict[str, Any]) -> Figure:
    """Draw calibration curves of the two answers about a patient, with Wilson's intervals."""
    panels = {"any": "at least one eye myopic", "both": "both eyes myopic"}
    parts = [
        pd.DataFrame(record["metrics"]["calibration"][arm][level]["curve"]).assign(
            method=arm, panel=words
        )
        for arm in LOOKS
        for level, words in panels.items()
    ]
    rows = pd.concat(parts)
    rows = rows.assign(below=rows["observed"] - rows["low"], above=rows["high"] - rows["observed"])
    columns = ["predicted", "observed", "below", "above"]
    grid = lines(rows, columns, LOOKS, col="panel", **panel_size(2, 3))
    for ax in grid.axes.flat:
        ax.plot([0, 0.8], [0, 0.8], **TRUTH)
    grid.axes.flat[0].legend(loc="upper left")
    return grid.set_axis_labels("predicted probability", "share observed").figure


@drawn
def plot_thresholds(
    record: dict[str, Any], continuous: dict[str, Any], drop: float = 1.92
) -> Figure:
    """Draw the estimate of ``rho_34`` for each limit of myopia, and the labels' profile likelihood
    for two limits.

    Parameters
    ----------
    record : dict
        Of study ``axial-length-thresholds``.
    continuous : dict
        The same fit to the refraction in dioptres, for the line of reference.
    drop : float
        By how much the log likelihood falls at the ends of a 95 % interval.
    """
    limits, reference = record["metrics"], continuous["correlation"][2][3]
    fits = [
        found["estimate"] or {"correlation": NOTHING, "errors": {}} for found in limits.values()
    ]
    rho = np.array([fit["correlation"][2][3] for fit in fits], dtype=float)
    error = np.array([fit["errors"].get("correlation", NOTHING)[2][3] for fit in fits], dtype=float)
    sure, place = np.isfinite(error), np.arange(len(limits))
    ends = np.minimum(1.96 * error, [rho, 1 - rho])[:, sure]
    figure, (left, right) = new_figure(3.4, columns=2)
    left.axhline(reference, **TRUTH, label=f"in dioptres {reference:.2f}")
    look = {"fmt": "o", "color": PALETTE["copula"], "capsize": 3}
    left.errorbar(place[sure], rho[sure], ends, **look)
    look = {"color": METHODS["paper"].color, "markersize": 9, "label": "singular, no error"}
    left.plot(place[~sure], rho[~sure], "x", **look)
    for at, found in enumerate(limits.values()):
        counts = f"{found['both']}\n{found['left only'] + found['right only']}"
        left.text(at, 1.2, counts, ha="center", va="center", fontsize=8)
    left.set_xticks(range(len(limits)), limits)
    left.set(
        xlabel="limit of myopia (D)",
        ylabel=r"estimate of $\rho_{34}$, 95 %",
        ylim=(0, 1.3),
        yticks=[0, 0.25, 0.5, 0.75, 1.0],
    )
    left.set_title("patients positive in both eyes / in one eye", fontsize=9)
    left.legend(loc="lower left")
    for limit, line in (("-0.5", "-"), ("-6", "--")):
        values = np.array(limits.get(limit, {}).get("profile") or np.nan, dtype=float)
        if np.isfinite(values).all():
            grid = record["configuration"]["grid"]
            right.plot(grid, values - values.max(), line, color=COLORS["ink"], label=f"{limit} D")
    right.axhline(-drop, **ZERO)
    right.text(-0.95, -drop + 0.15, "95 % interval above this line", fontsize=8)
    right.set(
        ylim=(-8, 0.8),
        xlim=(-1, 1),
        xlabel=r"$\rho_{34}$",
        ylabel="profile log likelihood of the labels",
    )
    right.legend(loc="center left", bbox_to_anchor=(0.0, 0.45))
    return figure


@drawn
def plot_update(lengths: np.ndarray, curves: dict[str, tuple[np.ndarray, ...]]) -> Figure:
    """Draw what the right eye's predictions become as the left eye is measured.

    Parameters
    ----------
    lengths : array, shape (k,)
        Left eye's length (mm).
    curves : dict
        What is known of the left label -> mean and SD (mm) of the right length and probability of
        its label, each (k,).
    """
    figure, (left, right) = new_figure(3.4, columns=2)
    mean, sd, _ = curves["left label unknown"]
    left.fill_between(
        lengths, mean - 1.96 * sd, mean + 1.96 * sd, color=COLORS["light"], alpha=0.7, label="95 %"
    )
    left.plot(lengths, lengths, **ZERO, label="equal eyes")
    lines_of = {"left not myopic": "--", "left label unknown": ":", "left myopic": "-"}
    for name, (mean, _, probability) in curves.items():
        look = {"color": COLORS["right"], "linestyle": lines_of[name], "label": name}
        left.plot(lengths, mean, **look | {"label": None})
        right.plot(lengths, probability, **look)
    left.set(ylabel="right eye's axial length (mm)")
    right.set(ylabel="probability that the right eye is myopic", ylim=(0, 1))
    left.legend(loc="upper left")
    right.legend(loc="center left", bbox_to_anchor=(0.0, 0.62))
    figure.supxlabel("left eye's axial length (mm)", fontsize=10)
    return figure


@drawn
def plot_missing(record: dict[str, Any]) -> Figure:
    """Draw the error of the mean right length, and of lengths filled in, when responses are deleted
    on purpose.
    """
    panels = {
        "bias": "mean right length minus truth (mm)",
        "imputed_error": "mean error of deleted lengths (mm)",
    }
    looks = {
        "deleted at random": METHODS["exact"],
        "deleted by the left eye": METHODS["exact"]._replace(marker="s", face="white"),
    }
    analyses = ("complete patients", "all, independent", "all, copula")
    rows = pd.DataFrame(
        {
            "method": mechanism,
            "panel": panel,
            "place": place + shift,
            **record["metrics"]["deleted"][f"{mechanism[8:]}:{analysis}:{quantity}"],
        }
        for mechanism, shift in zip(looks, (-0.15, 0.15), strict=True)
        for place, analysis in enumerate(analyses)
        for quantity, panel in panels.items()
    )
    grid = lines(
        rows,
        ["place", "mean", "sd"],
        dots(looks),
        col="panel",
        sharey=False,
        xlim=(-0.5, 2.5),
        **panel_size(2, 3),
    )
    words = [analysis.replace(" ", "\n") for analysis in analyses]
    grid.set(xticks=range(3), xticklabels=words).set_axis_labels("", "")
    return legend_below(across(grid, 0, **TRUTH).figure)
