"""Pictures of the chapter "The copula loss": latent cells, tails, printed cells, classifiers."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cevit_lib.clinic.style import COLORS, METHODS, drawn, new_figure
from studies.charts import TRUTH, ZERO, across, legend_below, lines, panel_size
from studies.overview import draw_cells

CELLS = np.array([["neither eye", "right eye only"], ["left eye only", "both eyes"]])


@drawn
def four_cells_figure(
    threshold: Sequence[float], correlation: float, probability: np.ndarray
) -> Figure:
    """Return the bivariate normal of the two latent scores, cut into four label cells by its
    thresholds.

    Parameters
    ----------
    threshold : (2,)
        Thresholds ``c`` of the left and the right eye.
    correlation : float
        Of the scores.
    probability : (2, 2)
        Probability of each cell, indexed [y_3, y_4]; written into the cells.
    """
    figure, ax = new_figure(4.4, width=4.6)
    draw_cells(ax, threshold, correlation, np.vectorize("{}\n{:.3f}".format)(CELLS, probability))
    ax.text(threshold[0] + 0.1, -3, "$c_3$", color=COLORS["left"])
    ax.text(-3.1, threshold[1] + 0.1, "$c_4$", color=COLORS["right"])
    ax.set(xlabel="latent score of the left eye, $u_3$")
    ax.set(ylabel="latent score of the right eye, $u_4$")
    return figure


@drawn
def tails_figure(
    t: np.ndarray, log_probability: Mapping[str, np.ndarray], gradient: Mapping[str, np.ndarray]
) -> Figure:
    """Return log-probability and its derivative against the standardised limit, one line for each
    way to compute it.

    Parameters
    ----------
    t : (m,)
        Upper limits of both coordinates, from the nearest to the furthest.
    log_probability, gradient : mappings of name to (m,)
        The same three names; values that are not finite leave a gap. The last name is drawn as the
        right one.
    """
    x = "standardised upper limit of both scores"
    panels = {"log probability": log_probability, "its derivative": gradient}
    rows = pd.concat(
        pd.DataFrame({x: t, "value": values, "method": name, "panel": panel})
        for panel, found in panels.items()
        for name, values in found.items()
    ).replace([np.inf, -np.inf], np.nan)
    methods = zip(log_probability, ("fmcem-variant", "independence", "exact"), strict=True)
    looks = {name: METHODS[method]._replace(marker="") for name, method in reversed([*methods])}
    grid = lines(
        rows,
        [x, "value"],
        looks,
        col="panel",
        sharey=False,
        xlim=(t.max(), t.min()),
        **panel_size(2, 3),
    )
    last = rows.dropna().groupby(["panel", "method"]).tail(1)
    for row in last[last[x] > t.min()].itertuples(index=False):  # the line stops before the end
        grid.axes_dict[row.panel].plot(
            row[0], row.value, "x", color=looks[row.method].color, markersize=9, markeredgewidth=2
        )
    left, _ = grid.set_ylabels("").axes.flat
    left.set_yscale("symlog", linthresh=10)
    left.set_ylim(top=0)
    return legend_below(grid.figure)


@drawn
def printed_cells_figure(
    logit: np.ndarray, right: np.ndarray, printed: np.ndarray, simulated: np.ndarray
) -> Figure:
    """Return the four conditional cells against the logit of the left eye, right and printed, with
    simulated shares.

    Parameters
    ----------
    logit : (m,)
    right, printed, simulated : (m, 2, 2)
        Indexed [.., y_3, y_4]; ``simulated`` may hold NaN where nothing was drawn.
    """
    x, y = r"logit of the left eye, $\mu_3$", "probability given $y_1, y_2$"
    found = {"as printed": printed, "right": right, "simulated": simulated}
    looks = {
        "as printed": METHODS["paper"]._replace(marker=""),
        "right": METHODS["exact"]._replace(marker=""),
        "simulated": METHODS["truth"]._replace(marker="o", line="none"),
    }
    rows = pd.concat(
        pd.DataFrame({x: logit, y: values[:, a, b], "method": method}).assign(
            cell=f"$(y_3, y_4) = ({a}, {b})$, {CELLS[a, b]}"
        )
        for a, b in np.ndindex(2, 2)
        for method, values in found.items()
    )
    grid = lines(rows, [x, y], looks, col="cell", col_wrap=2, sharey=False, **panel_size(2, 2.5))
    for ax, (a, b) in zip(grid.axes.flat, np.ndindex(2, 2), strict=True):
        below = np.minimum(printed[:, a, b], 0)
        ax.fill_between(logit, below, 0, color=METHODS["paper"].color, alpha=0.3)
    return legend_below(across(grid, 0, **ZERO).figure)


@drawn
def classifier_figure(p: np.ndarray, cell: np.ndarray, agree: np.ndarray) -> Figure:
    """Return the map of the joint Bayes rule over the two marginal probabilities.

    Parameters
    ----------
    p : (m,)
        Values of both probabilities.
    cell : (m, m)
        Chosen cell 0 to 3 (2 y_3 + y_4), indexed [p_3, p_4].
    agree : (m, m) of bool
        Whether thresholds at one half choose the same.
    """
    figure, ax = new_figure(4.4, width=4.6)
    tones = ["#EEEEEE", "#F6DECE", "#DCEAF5", "#D3E9E0"]  # none, right, left, both
    ax.contourf(p, p, cell.T, levels=[-0.5, 0.5, 1.5, 2.5, 3.5], colors=tones)
    ax.contourf(p, p, ~agree.T, levels=[0.5, 1.5], colors="none", hatches=["////"])
    ax.axvline(0.5, **TRUTH)
    ax.axhline(0.5, **TRUTH)
    for a, b in np.ndindex(2, 2):
        ax.text(0.2 + 0.65 * a, 0.2 + 0.65 * b, CELLS[a, b], ha="center")
    ax.set(
        xlabel="probability for the left eye, $p_3$",
        ylabel="probability for the right eye, $p_4$",
        aspect="equal",
    )
    return figure
