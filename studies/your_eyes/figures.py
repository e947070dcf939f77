"""Pictures of the page on a reader's own eyes; those of every report come from the library."""

import numpy as np
from matplotlib.figure import Figure

from cevit_lib.clinic.report_figures import plot_calibrated, plot_predicted
from cevit_lib.clinic.style import COLORS, METHODS, drawn, new_figure

__all__ = ["plot_calibrated", "plot_predicted", "plot_updates"]


@drawn
def plot_updates(
    intervals: dict[str, np.ndarray], truth: np.ndarray, names: list[str], response: str
) -> Figure:
    """Draw each patient's prediction and interval before and after a measurement, and what was held
    back.

    Parameters
    ----------
    intervals : dict
        Words for before and for after -> mean, lower and upper end, ``(n, 3)``.
    truth : (n,) array
    names : list of str
        Of the patients.
    response : str
        What is predicted, with its unit.
    """
    figure, ax = new_figure(0.32 * len(names) + 1.2)
    looks = (METHODS["empirical"], -0.16), (METHODS["exact"], 0.16)
    for (words, values), (look, shift) in zip(intervals.items(), looks, strict=True):
        ends = np.abs(values[:, 1:] - values[:, :1]).T
        ax.errorbar(
            values[:, 0],
            np.arange(len(names)) + shift,
            xerr=ends,
            fmt=look.marker,
            color=look.color,
            capsize=2,
            label=words,
        )
    ax.plot(truth, range(len(names)), "x", color=COLORS["ink"], label="held back", zorder=3)
    ax.set_yticks(range(len(names)), names)
    ax.set(ylim=(len(names) - 0.5, -0.5), xlabel=response, ylabel="patient")
    figure.legend(loc="outside upper center", ncols=3)
    return figure
