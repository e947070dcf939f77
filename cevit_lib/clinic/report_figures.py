"""Pictures of the report on a fit: predictions, calibration, and the correlations of what is left
unexplained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cevit_lib.clinic.style import COLORS, METHODS, drawn, new_figure
from cevit_lib.clinic.tables import Domains, eye_of
from cevit_lib.datasets.layout import EYES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cevit_lib.metrics.calibration import CalibrationCurve

LINE = {"color": COLORS["grey"], "linewidth": 1}
ACROSS = 3  # panels side by side; more are drawn below
MANY, CROWDED = 6, 12  # responses: more are drawn below each other, and more without numbers


def _panels(count: int) -> tuple[Figure, list]:
    """Return a figure with so many square panels, and their axes."""
    columns = min(count, ACROSS)
    rows = -(-count // columns)
    figure, axes = new_figure(2.9 * rows, rows, columns, squeeze=False)
    for ax in axes.flat[count:]:
        ax.remove()
    return figure, list(axes.flat[:count])


def _colour(name: str, domains: Domains) -> str:
    eye = eye_of(name, domains)
    return COLORS[("left", "right")[domains.index(eye)] if eye else "both"]


@drawn
def plot_predicted(
    panels: list[tuple[str, np.ndarray, np.ndarray]],
    half_width: list[float],
    domains: Domains = EYES,
) -> Figure:
    """Scatter predictions against what was observed, with the line of equality and the band of the
    intervals.

    Parameters
    ----------
    panels : list of (name, predicted (n,), observed (n,))
        One continuous response each; what was not observed is left out.
    half_width : list of float
        Of the prediction interval of each, in its units.
    domains : tuple of str
        Names of the left and of the right eye, as the responses end.
    """
    figure, axes = _panels(len(panels))
    for ax, (name, predicted, observed), half in zip(axes, panels, half_width, strict=True):
        ends = np.array([np.nanmin(observed), np.nanmax(observed)])
        band = {"color": COLORS["light"], "alpha": 0.6, "linewidth": 0}
        ax.fill_between(ends, ends - half, ends + half, **band)
        ax.plot(ends, ends, **LINE)
        ax.scatter(observed, predicted, color=_colour(name, domains), s=14, alpha=0.7, linewidth=0)
        ax.set(title=name, xlabel="observed", ylabel="predicted")
    return figure


@drawn
def plot_calibrated(curves: dict[str, CalibrationCurve]) -> Figure:
    """Draw the share of positives against the mean predicted probability, groups of patients with
    95 % intervals.
    """
    figure, axes = _panels(len(curves))
    for ax, (name, curve) in zip(axes, curves.items(), strict=True):
        ax.plot([0, 1], [0, 1], **LINE)
        spread = np.abs([curve.observed - curve.low, curve.high - curve.observed])
        look = {"color": METHODS["exact"].color, "fmt": "o", "capsize": 2}
        ax.errorbar(curve.predicted, curve.observed, spread, **look)
        ax.set(title=name, xlabel="predicted probability", ylabel="share observed")
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return figure


@drawn
def plot_correlation(
    panels: dict[str, np.ndarray],
    names: list[str],
    texts: dict[str, np.ndarray] | None = None,
) -> Figure:
    """Draw symmetric matrices as heat maps with their numbers, without their diagonals.

    Many responses are drawn with one matrix below the other, very many without numbers.

    Parameters
    ----------
    panels : dict
        Title -> matrix ``(p, p)``.
    names : list of str
        Of the ``p`` responses.
    texts : dict, optional
        Title -> what is written into the cells, ``(p, p)``; two decimals are the default.
    """
    import seaborn as sns

    count = len(names)
    texts = texts or {title: np.vectorize("{:.2f}".format)(m) for title, m in panels.items()}
    if count > MANY:
        figure, axes = new_figure(5.6 * len(panels), rows=len(panels), squeeze=False)
    else:
        figure, axes = new_figure(2.9, columns=len(panels), sharey=True, squeeze=False)
    short = names if count > MANY else [name.replace(" ", "\n") for name in names]
    for ax, (title, matrix) in zip(axes.flat, panels.items(), strict=True):
        sns.heatmap(
            pd.DataFrame(matrix, index=names, columns=short),
            mask=np.eye(count, dtype=bool),
            annot=texts[title] if count <= CROWDED else None,
            fmt="",
            annot_kws={"fontsize": 8},
            square=True,
            ax=ax,
            cmap="PRGn",
            vmin=-1.0,
            vmax=1.0,
            cbar=False,
        )
        ax.set_title(title)
        ax.tick_params(length=0, labelsize=8, rotation=0, grid_alpha=0)
        ax.tick_params(axis="x", rotation=90 if count > MANY else 0)
    figure.colorbar(axes[0, 0].collections[0], ax=list(axes.flat), shrink=0.8, label="correlation")
    return figure
