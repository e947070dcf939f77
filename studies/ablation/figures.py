"""Pictures of the ablation on real eyes. Frames come from ``ablation_tables`` and ``ablation_patients``."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from cevit_lib.clinic.old_style import color, mark_smoke, new_figure, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ARMS = {
    "constant": ("training mean", "grey"),
    "age and camera": ("age, camera", "grey"),
    "PCA of pixels": ("PCA of pixels", "score"),
    "frozen encoder": ("frozen encoder", "score"),
    "CeCNN copula": ("CeCNN", "rank"),
    "OUCopulaCNN copula": ("OU-Copula", "rank"),
    "warm-up": ("warm-up", "empirical"),
    "empirical": ("ViT", "empirical"),
    "independence": ("Γ = I", "likelihood"),
    "fmcem": ("CeViT, fMCEM", "fmcem"),
    "cross-fitted": ("CeViT, cross-fitted", "exact"),
    "empirical, adapters": ("ViT-A", "empirical"),
    "independence, adapters": ("Γ = I, A", "likelihood"),
    "fmcem, adapters": ("CeViT-A, fMCEM", "fmcem"),
    "cross-fitted, adapters": ("CeViT-A, cross-fitted", "exact"),
}
"""Arm -> label and colour, from plain to whole."""
RESPONSES = ("RNFL left", "RNFL right", "field left", "field right")


def label(arm: str) -> str:
    """Return an arm's name in pictures and tables."""
    return ARMS[arm][0] if arm in ARMS else arm


def named(level: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table of arms that have a name in pictures, in their order and under that name."""
    return level.loc[[arm for arm in ARMS if arm in level.index]].rename(label)


def _done(figure: Figure, note: str, smoke: bool) -> Figure:
    if " of " in note:
        figure.suptitle(f"grid not complete: {note}", color=color("paper"), fontsize=10)
    return mark_smoke(figure) if smoke else figure


def plot_metrics(
    frame: pd.DataFrame, metrics: list[str], *, note: str = "", smoke: bool = False
) -> Figure:
    """Draw box plots by arm, one panel a metric, one value a seed and fold; references stand above the networks.

    Parameters
    ----------
    frame : DataFrame
        Of ``metrics_frame``.
    metrics : list of str
    note : str
        State of the grid.
    smoke : bool
        Mark the picture as no result.
    """
    arms = [arm for arm in ARMS if arm in set(frame["arm"])]
    rows = -(-len(metrics) // 2)
    with style(axes__grid__axis="x"):
        figure, axes = new_figure(
            (7.2, rows * (0.9 + 0.22 * len(arms))), rows, 2, squeeze=False, sharey=True
        )
        for ax, metric in zip(axes.flat, metrics, strict=False):
            own = frame[frame["metric"] == metric]
            drawn = [own[own["arm"] == arm]["value"].dropna().to_numpy() for arm in arms]
            new = "orientation" in inspect.signature(ax.boxplot).parameters  # since matplotlib 3.10
            lying = {"orientation": "horizontal"} if new else {"vert": False}
            parts = ax.boxplot(
                drawn,
                widths=0.6,
                patch_artist=True,
                flierprops={"markersize": 2.5},
                medianprops={"color": color("ink")},
                **lying,
            )
            for box, arm in zip(parts["boxes"], arms, strict=True):
                box.set(facecolor=color(ARMS[arm][1]), alpha=0.5)
            ax.set_title(metric.replace("_L", ", left eye").replace("_R", ", right eye"))
            ax.set_yticks(range(1, len(arms) + 1), [label(arm) for arm in arms], fontsize=8)
        axes[0][0].invert_yaxis()
        for ax in axes.flat[len(metrics) :]:
            ax.set_visible(False)
    return _done(figure, note, smoke)


def plot_gamma(
    matrices: dict[str, tuple[np.ndarray, np.ndarray]], *, note: str = "", smoke: bool = False
) -> Figure:
    """Draw the mean of every estimated correlation as heat maps, with its SD over fits below the number.

    Parameters
    ----------
    matrices : dict
        Estimate -> mean and SD, two arrays of shape (4, 4).
    """
    with style(axes__grid=False):
        figure, axes = new_figure("wide", columns=len(matrices), squeeze=False)
        for ax, (name, (mean, spread)) in zip(axes[0], matrices.items(), strict=True):
            shown = ax.imshow(mean, vmin=-1, vmax=1, cmap="PuOr")
            ax.grid(False)
            for i, j in np.ndindex(4, 4):
                if i != j:
                    ink = "white" if abs(mean[i, j]) > 0.7 else "black"
                    ax.text(
                        j,
                        i,
                        f"{mean[i, j]:.2f}\n({spread[i, j]:.2f})",
                        ha="center",
                        va="center",
                        color=ink,
                        fontsize=7.5,
                    )
            ax.set_xticks(range(4), [text.replace(" ", "\n") for text in RESPONSES], fontsize=8)
            ax.set_yticks(range(4), RESPONSES if ax is axes[0][0] else [""] * 4)
            ax.set_title(
                {"fmcem": "fMCEM, in-sample", "cross-fitted": "exact, cross-fitted"}.get(name, name)
            )
        figure.colorbar(shown, ax=list(axes[0]), shrink=0.7, label="correlation")
    return _done(figure, note, smoke)


def plot_differences(rows: pd.DataFrame, *, note: str = "", smoke: bool = False) -> Figure:
    """Draw paired differences with the corrected 95 % intervals, one panel a metric, one line a question."""
    metrics, questions = list(rows["metric"].unique()), list(rows["label"].unique())
    with style(axes__grid__axis="x"):
        figure, axes = new_figure(
            (7.2, 1.0 + 0.33 * len(questions)), columns=len(metrics), sharey=True, squeeze=False
        )
        for ax, metric in zip(axes[0], metrics, strict=True):
            ax.axvline(0, color=color("grey"), linewidth=1)
            for row in rows[rows["metric"] == metric].to_dict("records"):
                y, ink = -questions.index(row["label"]), color(ARMS.get(row["a"], ("", "ink"))[1])
                if np.isfinite(row["low"]):
                    ax.plot([row["low"], row["high"]], [y, y], color=ink)
                ax.plot(row["difference"], y, "o", color=ink)
            better = "left" if metric.startswith(("MAE", "RMSE", "Brier")) else "right"
            ax.set_xlabel(f"difference in {metric} ({better} of 0 is better)", fontsize=8.5)
        axes[0][0].set_yticks([-k for k in range(len(questions))], questions, fontsize=8)
    return _done(figure, note, smoke)


def plot_power(
    power: Any, designs: list[tuple[str, int, float]], *, seen: float | None = None
) -> Figure:
    """Draw the power of the corrected test against the true d_z, one line a design.

    Parameters
    ----------
    power : callable
        ``power(d, folds, test_share)``.
    designs : list of (name, folds, test_share)
    seen : float, optional
        A d_z to mark.
    """
    grid = np.linspace(0, 3, 61)
    with style():
        figure, ax = new_figure("single")
        for (name, folds, share), line in zip(designs, ("-", "--", ":"), strict=False):
            ax.plot(grid, [power(d, folds, share) for d in grid], line, label=name)
        ax.axhline(0.8, color=color("grey"), linewidth=1)
        if seen is not None and np.isfinite(seen):
            name = f"|d_z| = {abs(seen):.2f}, seen"
            ax.axvline(abs(seen), color=color("copula"), linewidth=1, linestyle="-.", label=name)
        ax.set(xlabel="true d_z over folds", ylabel="power at the 5 % level", ylim=(0, 1.02))
        ax.legend(fontsize=8)
    return figure


def plot_errors(predictions: pd.DataFrame, *, note: str = "", smoke: bool = False) -> Figure:
    """Draw predicted against observed thickness, and the errors of both eyes of each patient against each other."""
    with style():
        figure, (left, right) = new_figure("wide", columns=2)
        errors = {}
        for eye, mark in (("OS", "o"), ("OD", "s")):
            seen, said = predictions[f"seen RNFL_{eye}"], predictions[f"said RNFL_{eye}"]
            errors[eye] = said - seen
            left.plot(seen, said, mark, ms=3, alpha=0.6, color=color(eye), label=eye)
        ends = [predictions["seen RNFL_OS"].min(), predictions["seen RNFL_OS"].max()]
        left.plot(ends, ends, color=color("grey"), linewidth=1)
        left.set(xlabel="observed RNFL (um)", ylabel="predicted RNFL (um)", title="thickness")
        left.legend()
        r = np.corrcoef(errors["OS"], errors["OD"])[0, 1]
        right.plot(errors["OS"], errors["OD"], "o", ms=3, alpha=0.6, color=color("both"))
        right.axhline(0, color=color("grey"), linewidth=1)
        right.axvline(0, color=color("grey"), linewidth=1)
        right.set(
            xlabel="error OS (um)",
            ylabel="error OD (um)",
            title=f"errors of a patient, r = {r:.2f}",
        )
    return _done(figure, note, smoke)
