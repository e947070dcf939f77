"""Pictures of the report on a fit: predictions, calibration, and the correlations of what is left
unexplained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cevit_lib.clinic.style import COLORS, METHODS, drawn, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cevit_lib.metrics import CalibrationCurve

LINE = {"color": COLORS["grey"], "linewidth": 1}


@drawn
def plot_predicted(
    panels: list[tuple[str, np.ndarray, np.ndarray]], half_width: list[float]
) -> Figure:
    """Scatter predictions against what was observed, with the line of equality and the band of the
    intervals.

    Parameters
    ----------
    panels : list of (name, predicted (n,), observed (n,))
        One continuous response each; what was not observed is left out.
    half_width : list of float
        Of the prediction interval of each, in its units.
    """
    import seaborn as sns

    figure, axes = new_figure(3.2, columns=len(panels), squeeze=False)
    for ax, (name, predicted, observed), half in zip(axes[0], panels, half_width, strict=True):
        seen = pd.DataFrame({f"observed {name}": observed, "predicted": predicted}).dropna()
        ends = seen.iloc[:, 0].agg(["min", "max"])
        ax.fill_between(
            ends, ends - half, ends + half, color=COLORS["light"], alpha=0.6, linewidth=0
        )
        ax.plot(ends, ends, **LINE)
        eye = "OS" if "_OS" in name else "OD" if "_OD" in name else "both"
        sns.scatterplot(
            seen,
            x=f"observed {name}",
            y="predicted",
            ax=ax,
            color=COLORS[eye],
            s=14,
            alpha=0.7,
            linewidth=0,
        )
    return figure


@drawn
def plot_calibrated(curves: dict[str, CalibrationCurve]) -> Figure:
    """Draw the share of positives against the mean predicted probability, groups of patients with
    95 % intervals.
    """
    figure, axes = new_figure(3.2, columns=len(curves), squeeze=False)
    for ax, (name, curve) in zip(axes[0], curves.items(), strict=True):
        ax.plot([0, 1], [0, 1], **LINE)
        spread = np.abs([curve.observed - curve.low, curve.high - curve.observed])
        ax.errorbar(
            curve.predicted,
            curve.observed,
            spread,
            color=METHODS["exact"].color,
            fmt="o",
            capsize=2,
        )
        ax.set(xlabel=f"predicted probability of {name}", ylabel="share observed")
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return figure


@drawn
def plot_correlation(
    panels: dict[str, np.ndarray],
    names: list[str],
    texts: dict[str, np.ndarray] | None = None,
    largest: float = 1.0,
    bar: str = "correlation",
) -> Figure:
    """Draw symmetric matrices side by side as heat maps with their numbers, without their
    diagonals.

    Parameters
    ----------
    panels : dict
        Title -> matrix ``(p, p)``.
    names : list of str
        Of the ``p`` responses.
    texts : dict, optional
        Title -> what is written into the cells, ``(p, p)``; two decimals are the default.
    largest : float
        Value at the ends of the colours.
    bar : str
        What the colours mean.
    """
    import seaborn as sns

    texts = texts or {title: np.vectorize("{:.2f}".format)(m) for title, m in panels.items()}
    figure, axes = new_figure(2.9, columns=len(panels), sharey=True, squeeze=False)
    short = [name.replace(" ", "\n") for name in names]
    for ax, (title, matrix) in zip(axes[0], panels.items(), strict=True):
        sns.heatmap(
            pd.DataFrame(matrix, index=names, columns=short),
            mask=np.eye(len(names), dtype=bool),
            annot=texts[title],
            fmt="",
            annot_kws={"fontsize": 8},
            square=True,
            ax=ax,
            cmap="PRGn",
            vmin=-largest,
            vmax=largest,
            cbar=False,
        )
        ax.set_title(title)
        ax.tick_params(length=0, labelsize=8, rotation=0, grid_alpha=0)
    figure.colorbar(axes[0, 0].collections[0], ax=list(axes[0]), shrink=0.8, label=bar)
    return figure
