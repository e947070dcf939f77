"""Pictures of the chapter "The loss": its pull on residuals and logits, its tails, the joint Bayes
rule.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cevit_lib.clinic.style import METHODS, drawn, new_figure
from studies.charts import TRUTH, ZERO, across, legend_below, lines, panel_size

CELLS = np.array([["neither eye", "right eye only"], ["left eye only", "both eyes"]])
#: A computation of the likelihood -> its look: two alternating sums as the paper prints them, and
#: ours.
SUMS = {
    "alternating sum, float32": METHODS["paper"]._replace(marker="", line=":"),
    "alternating sum, float64": METHODS["paper"]._replace(marker=""),
    "one probability, in logs": METHODS["exact"]._replace(marker=""),
}


@drawn
def pull_figure(axis: np.ndarray, pulls: Mapping[str, np.ndarray]) -> Figure:
    """Return the plane of both residuals with the paths on which training moves a patient through
    it.

    Parameters
    ----------
    axis : (m,)
        Residuals of either eye, in SDs.
    pulls : mapping of two names to (m, m, 2)
        Minus the gradient at [left, right], under squared error and under the copula loss. A path
        is thick where the pull is strong, on one scale.
    """
    figure, panels = new_figure(3.7, columns=2, sharex=True, sharey=True)
    for ax, (name, pull), method in zip(panels, pulls.items(), ("empirical", "exact"), strict=True):
        ax.plot(axis[[0, -1]], axis[[0, -1]], **ZERO)
        along = np.moveaxis(pull, (1, 0, 2), (1, 2, 0))  # [left or right, y, x]
        width = 0.3 + 0.4 * np.linalg.norm(along, axis=0)
        look = {"color": METHODS[method].color, "density": 0.7, "arrowsize": 1.2}
        ax.streamplot(axis, axis, *along, linewidth=width, **look)
        ax.set(title=name, xlabel="residual of the left eye, $e_1$", aspect="equal")
        ax.locator_params(nbins=5)
    panels[0].set(ylabel="residual of the right eye, $e_2$")
    return figure


@drawn
def logit_pull_figure(
    residual: np.ndarray, slopes: Mapping[str, Mapping[int, np.ndarray]]
) -> Figure:
    """Return the loss's slope in the left eye's logit against that eye's residual, a panel a label.

    Parameters
    ----------
    residual : (m,)
    slopes : mapping of loss to {label: (m,)}
        The losses are the cross entropy and the copula loss, in this order.
    """
    x, y = "residual of the left eye, $e_1$", r"$\partial\,\mathrm{loss}/\partial\mu_3$"
    looks = zip(slopes, ("empirical", "exact"), strict=True)
    looks = {name: METHODS[method]._replace(marker="") for name, method in looks}
    rows = pd.concat(
        pd.DataFrame({x: residual, y: slope, "method": name, "label": f"$y_3 = {label}$"})
        for name, found in slopes.items()
        for label, slope in found.items()
    )
    grid = lines(rows, [x, y], looks, col="label", **panel_size(2, 2.6))
    return legend_below(across(grid, 0, **ZERO).figure)


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
    log_probability, gradient : mappings of a name of ``SUMS`` to (m,)
        Values that are not finite leave a gap.
    """
    x = "standardised upper limit of both scores, $t$"
    panels = {"log probability": log_probability, "its derivative": gradient}
    rows = pd.concat(
        pd.DataFrame({x: t, "value": values, "method": name, "panel": panel})
        for panel, found in panels.items()
        for name, values in found.items()
    ).replace([np.inf, -np.inf], np.nan)
    looks = dict(reversed(SUMS.items()))
    limits = {"xlim": (t.max(), t.min())}
    grid = lines(rows, [x, "value"], looks, col="panel", sharey=False, **limits, **panel_size(2, 3))
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
