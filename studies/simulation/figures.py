"""Pictures of the simulation study. Frames come from ``studies.simulation.tables``; nothing is computed here
beyond what a plot needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cevit_lib.clinic.style import color, mark_smoke, new_figure, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ARMS = {
    "warm-up": ("warm-up", "grey", "o"),
    "empirical": ("empirical", "empirical", "s"),
    "independence": ("independence", "score", "d"),
    "fmcem": ("fMCEM", "fmcem", "s"),
    "in-sample": ("exact,\nin-sample", "likelihood", "v"),
    "held-out": ("exact,\nheld-out", "exact", "o"),
    "true": ("true $\\Gamma$", "truth", "x"),
}
"""Arm -> label, colour and marker, the same in every picture."""
RESPONSES = ["AL left", "AL right", "HM left", "HM right"]


def label(arm: str) -> str:
    """Return an arm's name for a picture; a name without an entry stands for itself."""
    base, comma, rest = arm.partition(", ")
    return (ARMS[base][0] if base in ARMS else base) + (f",\n{rest}" if comma else "")


def _look(arm: str) -> tuple[str, str]:
    _, meaning, marker = ARMS.get(arm.partition(", ")[0].partition(" at ")[0], ("", "ink", "o"))
    return color(meaning), marker


def _done(figure: Figure, note: str, smoke: bool) -> Figure:
    """Write the state of the grid into the picture where it has gaps, and mark a smoke run."""
    if " of " in note:
        figure.suptitle(f"grid not complete: {note}", color=color("paper"), fontsize=10)
    return mark_smoke(figure) if smoke else figure


def plot_metrics(
    frame: pd.DataFrame,
    metrics: list[str],
    arms: list[str] | None = None,
    *,
    value: str = "value",
    note: str = "",
    smoke: bool = False,
) -> Figure:
    """Draw box plots of metrics by arm, one panel a metric, with the mean of the Bayes-optimal row as a line.

    Parameters
    ----------
    frame : DataFrame
        Of ``metrics_frame``; the last epoch is drawn.
    metrics, arms : list of str
    value : {"value", "excess"}
        The metric itself, or how much worse it is than the Bayes-optimal row on the same patients.
    note : str
        State of the grid, such as ``37 of 50 folds``.
    smoke : bool
        Mark the picture as no result.
    """
    own = frame[frame["epoch"] == "last"]
    arms = [arm for arm in arms or list(ARMS) if arm in set(own["arm"])]
    columns = min(2, len(metrics))
    rows = -(-len(metrics) // columns)
    with style(axes__grid__axis="y"):
        figure, axes = new_figure(
            (7.2, 0.4 + 2.5 * rows), rows=rows, columns=columns, squeeze=False
        )
        for ax, metric in zip(axes.flat, metrics, strict=False):
            values = own[own["metric"] == metric]
            drawn = [values[values["arm"] == arm][value].dropna().to_numpy() for arm in arms]
            parts = ax.boxplot(
                drawn, widths=0.55, patch_artist=True, medianprops={"color": color("ink")}
            )
            for box, arm in zip(parts["boxes"], arms, strict=True):
                box.set(facecolor=_look(arm)[0], alpha=0.55)
            ax.axhline(
                values[values["arm"] == "Bayes-optimal"][value].mean(),
                color=color("truth"),
                linestyle=":",
            )
            ax.set_xticks(
                range(1, len(arms) + 1), [label(arm) for arm in arms], fontsize=8, rotation=35
            )
            title = metric.replace("_L", ", left eye").replace("_R", ", right eye")
            ax.set_title(
                f"{title}, excess" if value == "excess" else f"{title} (dotted: Bayes-optimal)"
            )
        for ax in axes.flat[len(metrics) :]:
            ax.set_visible(False)
    return _done(figure, note, smoke)


def plot_gamma(errors: dict[str, np.ndarray], *, note: str = "", smoke: bool = False) -> Figure:
    """Draw the mean error of each correlation as heat maps, one an estimate.

    Parameters
    ----------
    errors : dict
        Estimate -> matrix of shape (4, 4), estimate minus truth.
    """
    order = [name for name in ("fmcem", "in-sample", "held-out") if name in errors]
    largest = max(0.05, *(np.abs(errors[name]).max() for name in order))
    with style(axes__grid=False):
        figure, axes = new_figure("wide", columns=len(order), squeeze=False)
        for ax, name in zip(axes[0], order, strict=True):
            shown = ax.imshow(errors[name], vmin=-largest, vmax=largest, cmap="PuOr")
            ax.grid(False)
            for i, j in np.ndindex(4, 4):
                ink = "white" if abs(errors[name][i, j]) > 0.7 * largest else "black"
                if i != j:
                    ax.text(
                        j,
                        i,
                        f"{errors[name][i, j]:+.2f}",
                        ha="center",
                        va="center",
                        color=ink,
                        fontsize=9,
                    )
            ax.set_xticks(range(4), [text.replace(" ", "\n") for text in RESPONSES], fontsize=8)
            ax.set_yticks(range(4), RESPONSES if ax is axes[0][0] else [""] * 4)
            ax.set_title(label(name).replace("\n", " "))
        figure.colorbar(shown, ax=list(axes[0]), shrink=0.7, label="estimate minus truth")
    return _done(figure, note, smoke)


def plot_differences(rows: pd.DataFrame, *, note: str = "", smoke: bool = False) -> Figure:
    """Draw paired differences with intervals over data sets, one panel a metric, one line a question.

    Parameters
    ----------
    rows : DataFrame
        Of ``comparisons``; the same questions for each metric.
    """
    metrics, questions = list(rows["metric"].unique()), list(rows["label"].unique())
    place = {question: -k for k, question in enumerate(questions)}
    with style(axes__grid__axis="x"):
        figure, axes = new_figure(
            (7.2, 0.9 + 0.32 * len(questions)), columns=len(metrics), sharey=True, squeeze=False
        )
        for ax, metric in zip(axes[0], metrics, strict=True):
            ax.axvline(0, color=color("grey"), linewidth=1)
            for row in rows[rows["metric"] == metric].to_dict("records"):
                ink, marker = _look(row["a"])
                y = place[row["label"]]
                if np.isfinite(row["low"]):
                    ax.plot([row["low"], row["high"]], [y, y], color=ink)
                ax.plot(row["difference"], y, marker, color=ink)
            less = metric.startswith(("MAE", "RMSE", "Brier"))
            ax.set_xlabel(f"difference in {metric}\n({'left' if less else 'right'} of 0 is better)")
            ax.xaxis.set_major_locator(_few_ticks())
        axes[0][0].set_yticks([place[q] for q in questions], questions, fontsize=8)
    return _done(figure, note, smoke)


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(4)


def plot_sensitivity(
    panels: list[tuple[str, str, pd.DataFrame]],
    *,
    value: str = "difference",
    ylabel: str = "",
    note: str = "",
    smoke: bool = False,
) -> Figure:
    """Draw paired differences against a setting, one panel a setting, one line an arm, intervals over data sets.

    Parameters
    ----------
    panels : list of (column, axis label, DataFrame)
        Of ``sensitivity``.
    value : str
        Column to draw; intervals belong to ``difference`` alone.
    """
    with style():
        lines = 1 if len(panels) <= 3 else 2
        figure, axes = new_figure(
            (7.2, 3.6 if lines == 1 else 5.6), lines, -(-len(panels) // lines), squeeze=False
        )
        for ax in axes.flat[len(panels) :]:
            ax.remove()
        for ax, (column, xlabel, rows) in zip(axes.flat, panels, strict=False):
            for shift, arm in enumerate(rows["a"].unique()):
                own = rows[rows["a"] == arm].sort_values(column)
                ink, marker = _look(arm)
                at = np.arange(len(own)) + 0.08 * (shift - 1)
                ax.plot(
                    at,
                    own[value],
                    marker=marker,
                    color=ink,
                    linewidth=1,
                    label=label(arm).replace("\n", " "),
                )
                if value == "difference":
                    ax.vlines(at, own["low"], own["high"], color=ink, linewidth=1)
            settings = sorted(rows[column].unique())
            ax.set_xticks(
                range(len(settings)), [f"{setting:g}" for setting in settings], fontsize=8
            )
            ax.axhline(0, color=color("grey"), linewidth=1)
            ax.set_xlabel(xlabel)
        for ax in axes[:, 0]:
            ax.set_ylabel(ylabel)
        named = {
            text: line
            for ax in figure.axes
            for line, text in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            named.values(), named, loc="outside lower center", ncols=len(named), fontsize=8
        )
    return _done(figure, note, smoke)


def plot_curves(curves: pd.DataFrame, *, note: str = "", smoke: bool = False) -> Figure:
    """Draw the warm-up's two losses by epoch, and each arm's held-out loss since its first epoch.

    Parameters
    ----------
    curves : DataFrame
        Of ``curves``: mean over fits by stage and epoch.
    """
    with style():
        figure, axes = new_figure("wide", columns=2)
        warm = curves[curves["stage"] == "warm-up"]
        axes[0].plot(warm["epoch"], warm["loss"], color=color("empirical"), label="training")
        axes[0].plot(
            warm["epoch"], warm["validation_loss"], "--", color=color("empirical"), label="held out"
        )
        axes[0].set(title="warm-up", ylabel="empirical loss per patient")
        axes[0].legend()
        for arm in [name for name in curves["stage"].unique() if name != "warm-up"]:
            own = curves[curves["stage"] == arm]
            ink, marker = _look(arm)
            change = own["validation_loss"] - own["validation_loss"].iloc[0]
            axes[1].plot(
                own["epoch"], change, marker=marker, color=ink, label=label(arm).replace("\n", " ")
            )
        axes[1].axhline(0, color=color("grey"), linewidth=1)
        axes[1].set(title="arms, each by its own loss", ylabel="held-out loss minus first epoch's")
        axes[1].legend(fontsize=8)
        for ax in axes:
            ax.set_xlabel("epoch")
            ax.xaxis.get_major_locator().set_params(integer=True)
    return _done(figure, note, smoke)
