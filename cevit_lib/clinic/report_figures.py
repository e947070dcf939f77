"""Pictures of the report on a fit: predicted against observed, and how far probabilities can be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cevit_lib.clinic.style import color, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cevit_lib.metrics import CalibrationCurve


def plot_predicted(
    panels: list[tuple[str, np.ndarray, np.ndarray]], half_width: list[float]
) -> Figure:
    """Scatter predictions against what was observed, with the line of equality and the band of the intervals.

    Parameters
    ----------
    panels : list of (name, predicted (n,), observed (n,))
        One continuous response each; what was not observed is left out.
    half_width : list of float
        Of the prediction interval of each, in its units.
    """
    with style():
        figure, axes = new_figure("wide", columns=len(panels), squeeze=False)
        for ax, (name, predicted, observed), half in zip(axes[0], panels, half_width, strict=True):
            seen = np.isfinite(observed) & np.isfinite(predicted)
            ends = np.array(
                [observed[seen].min(initial=np.inf), observed[seen].max(initial=-np.inf)]
            )
            if seen.any():
                ax.fill_between(
                    ends, ends - half, ends + half, color=color("light"), alpha=0.6, linewidth=0
                )
                ax.plot(ends, ends, color=color("grey"), linewidth=1)
            eye = "OS" if "_OS" in name else "OD" if "_OD" in name else "both"
            ax.scatter(
                observed[seen], predicted[seen], s=12, color=color(eye), alpha=0.7, linewidths=0
            )
            ax.set_xlabel(f"observed {name}")
            ax.set_ylabel("predicted")
    return figure


def plot_calibrated(curves: dict[str, CalibrationCurve]) -> Figure:
    """Draw the share of positives against the mean predicted probability, groups of patients with 95 % intervals."""
    with style():
        figure, axes = new_figure("wide", columns=max(1, len(curves)), squeeze=False)
        for ax, (name, curve) in zip(axes[0], curves.items(), strict=False):
            ax.plot([0, 1], [0, 1], color=color("grey"), linewidth=1)
            spread = np.abs(np.stack([curve.observed - curve.low, curve.high - curve.observed]))
            ax.errorbar(
                curve.predicted, curve.observed, spread, fmt="o", color=color("ours"), capsize=2
            )
            ax.set_xlabel(f"predicted probability of {name}")
            ax.set_ylabel("share observed")
            ax.set_xlim(-0.02, 1.02)
            ax.set_ylim(-0.02, 1.02)
    return figure


def plot_photographs(panels: list[tuple[str, np.ndarray]]) -> Figure:
    """Show pictures side by side.

    Parameters
    ----------
    panels : list of (title, (height, width, 3) bytes)
    """
    with style(axes__grid=False):
        figure, axes = new_figure((7.2, 2.2), columns=len(panels), squeeze=False)
        for ax, (title, picture) in zip(axes[0], panels, strict=True):
            ax.imshow(picture)
            ax.set_title(title)
            ax.set_axis_off()
    return figure


def plot_updates(
    before: np.ndarray, after: np.ndarray, truth: np.ndarray, names: list[str], response: str
) -> Figure:
    """Draw each patient's prediction and interval before and after a measurement, and what was held back.

    Parameters
    ----------
    before, after : (n, 3) arrays
        Mean, lower and upper end.
    truth : (n,) array
    names : list of str
        Of the patients.
    response : str
        What is predicted, with its unit.
    """
    with style(axes__grid__axis="x"):
        figure, ax = new_figure((7.2, 0.32 * len(names) + 1.2))
        place = np.arange(len(names))
        for values, shift, kind, label in (
            (before, -0.16, "grey", "photographs alone"),
            (after, 0.16, "ours", "and the measured fellow eye"),
        ):
            ends = np.abs(values[:, 1:] - values[:, :1]).T
            ax.errorbar(
                values[:, 0],
                place + shift,
                xerr=ends,
                fmt="o",
                color=color(kind),
                capsize=2,
                label=label,
            )
        ax.scatter(truth, place, marker="x", color=color("truth"), zorder=3, label="held back")
        ax.set_yticks(place, names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_xlabel(response)
        ax.set_ylabel("patient")
        figure.legend(loc="outside upper center", ncols=3)
    return figure
