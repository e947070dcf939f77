"""Pictures of the chapter "The copula loss": latent cells, tails, printed cells, classifiers, speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cevit_lib.clinic.old_style import color, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL_NAMES = ("neither eye", "right eye only", "left eye only", "both eyes")


def four_cells_figure(
    threshold: Sequence[float],
    location: Sequence[float],
    covariance: np.ndarray,
    probability: np.ndarray,
) -> Figure:
    """Return the bivariate normal of the two latent scores, cut into four label cells by its thresholds.

    Parameters
    ----------
    threshold : (2,)
        Thresholds ``c`` of the left and the right eye.
    location, covariance : (2,) and (2, 2)
        Mean and covariance of the scores.
    probability : (2, 2)
        Probability of each cell, indexed [y_3, y_4]; written into the cells.
    """
    axis = np.linspace(-3.4, 3.4, 201)
    points = np.stack(np.meshgrid(axis, axis), -1) - np.asarray(location)
    distance = np.einsum("abi,ij,abj->ab", points, np.linalg.inv(covariance), points)
    with style(axes__grid=False):
        figure, axes = new_figure("square")
        levels = [
            0.5,
            1.4,
            2.8,
            4.6,
            7.4,
        ]  # squared distances that hold about 22, 50, 75, 90 and 97.5 per cent
        axes.contour(axis, axis, distance, levels=levels, colors=color("grey"), linewidths=1.0)
        axes.axvline(threshold[0], color=color("left"), linestyle="-")
        axes.axhline(threshold[1], color=color("right"), linestyle="--")
        corners = [
            ((-3.2, "left"), (-3.2, "bottom")),
            ((-3.2, "left"), (3.2, "top")),
            ((3.2, "right"), (-3.2, "bottom")),
            ((3.2, "right"), (3.2, "top")),
        ]
        for (x, ha), (y, va), name, value in zip(
            *zip(*corners, strict=True), CELL_NAMES, np.ravel(probability), strict=True
        ):
            axes.text(x, y, f"{name}\n{value:.3f}", ha=ha, va=va)
        axes.set(
            xlabel="latent score of the left eye, $u_3$",
            ylabel="latent score of the right eye, $u_4$",
        )
        axes.text(threshold[0] + 0.08, -1.9, "$c_3$", color=color("left"))
        axes.text(-2.2, threshold[1] + 0.1, "$c_4$", color=color("right"))
        axes.set_aspect("equal")
    return figure


def tails_figure(
    t: np.ndarray, log_probability: Mapping[str, np.ndarray], gradient: Mapping[str, np.ndarray]
) -> Figure:
    """Return log-probability and its derivative against the standardised limit, one line for each way to compute it.

    Parameters
    ----------
    t : (m,)
        Upper limits of both coordinates.
    log_probability, gradient : mappings of name to (m,)
        The same names; values that are not finite leave a gap. The last name is drawn as the right one.
    """
    names = list(log_probability)
    looks = [
        (color("grey"), (0, (1, 1)), 2.4),
        (color("fmcem"), "--", 2.4),
        (color("exact"), "-", 1.4),
    ][-len(names) :]
    with style():
        figure, axes = new_figure("wide", columns=2)
        panels = (
            (log_probability, "log probability", "symlog"),
            (gradient, "its derivative", "linear"),
        )
        for ax, (values, title, scale) in zip(axes, panels, strict=True):
            for name, (tone, line, width) in zip(names, looks, strict=True):
                shown = np.where(np.isfinite(values[name]), values[name], np.nan)
                ax.plot(t, shown, color=tone, linestyle=line, linewidth=width, label=name)
                last = np.flatnonzero(np.isfinite(shown))
                if len(last) and len(last) < len(t):  # the line stops: log of zero, or not a number
                    end = last[np.argmin(t[last])]
                    ax.plot(
                        t[end], shown[end], marker="x", color=tone, markersize=9, markeredgewidth=2
                    )
            ax.set(xlabel="standardised upper limit of both scores", title=title)
            ax.set_xlim(t.max(), t.min())
            if scale == "symlog":
                ax.set_yscale("symlog", linthresh=10)
                ax.set_ylim(top=0)
        axes[1].legend(loc="upper left")
    return figure


def printed_cells_figure(
    logit: np.ndarray, right: np.ndarray, printed: np.ndarray, simulated: np.ndarray
) -> Figure:
    """Return the four conditional cells against the logit of the left eye, right and printed, with simulated shares.

    Parameters
    ----------
    logit : (m,)
    right, printed, simulated : (m, 2, 2)
        Indexed [.., y_3, y_4]; ``simulated`` may hold NaN where nothing was drawn.
    """
    with style():
        figure, axes = new_figure("tall", rows=2, columns=2, sharex=True)
        for k, ax in enumerate(axes.flat):
            cell = (slice(None), k // 2, k % 2)
            ax.axhline(0, color=color("ink"), linewidth=0.8)
            ax.plot(logit, printed[cell], color=color("paper"), linestyle="-.", label="as printed")
            ax.plot(logit, right[cell], color=color("ours"), label="right")
            ax.plot(
                logit, simulated[cell], "o", color=color("ink"), markersize=3.5, label="simulated"
            )
            ax.fill_between(
                logit, printed[cell], 0, where=printed[cell] < 0, color=color("paper"), alpha=0.3
            )
            ax.set_title(f"$(y_3, y_4) = ({k // 2}, {k % 2})$, {CELL_NAMES[k]}")
        for ax in axes[1]:
            ax.set_xlabel("logit of the left eye, $\\mu_3$")
        for ax in axes[:, 0]:
            ax.set_ylabel("probability given $y_1, y_2$")
        axes[0, 1].legend()
    return figure


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
    from matplotlib.colors import ListedColormap

    tones = ["#E3EDF5", "#F6DECE", "#D3E9E0", "#EFE3EB"]
    with style(axes__grid=False, hatch__linewidth=0.6):
        figure, ax = new_figure("square")
        ax.pcolormesh(
            p,
            p,
            cell.T,
            cmap=ListedColormap(tones),
            vmin=-0.5,
            vmax=3.5,
            shading="nearest",
            rasterized=True,
        )
        ax.contourf(
            p, p, (~agree).T.astype(float), levels=[0.5, 1.5], colors="none", hatches=["////"]
        )
        ax.axvline(0.5, color=color("grey"), linestyle=":", linewidth=1.2)
        ax.axhline(0.5, color=color("grey"), linestyle=":", linewidth=1.2)
        for k, (x, y) in enumerate([(0.2, 0.2), (0.2, 0.85), (0.85, 0.2), (0.85, 0.85)]):
            ax.text(x, y, CELL_NAMES[k], ha="center")
        ax.set(
            xlabel="probability for the left eye, $p_3$",
            ylabel="probability for the right eye, $p_4$",
        )
        ax.set_aspect("equal")
    return figure
