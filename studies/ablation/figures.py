"""Pictures of the ablation on real eyes; frames come from ``studies.ablation.tables`` and
``patients``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import seaborn as sns

from cevit_lib.clinic.report_figures import plot_correlation
from cevit_lib.clinic.style import COLORS, METHODS, drawn, new_figure
from studies.charts import ZERO, boxes, differences

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARMS = {
    "constant": ("training mean", "reference"),
    "age and camera": ("age, camera", "reference"),
    "PCA of pixels": ("PCA of pixels", "reference"),
    "frozen encoder": ("frozen encoder", "reference"),
    "warm-up": ("warm-up", "reference"),
    "empirical": ("ViT", "empirical"),
    "independence": ("Γ = I", "independence"),
    "fmcem": ("CeViT, fMCEM", "fmcem"),
    "cross-fitted": ("CeViT, cross-fitted", "exact"),
    "empirical, adapters": ("ViT-A", "empirical"),
    "independence, adapters": ("Γ = I, A", "independence"),
    "fmcem, adapters": ("CeViT-A, fMCEM", "fmcem"),
    "cross-fitted, adapters": ("CeViT-A, cross-fitted", "exact"),
}
"""Arm -> words and method, from plain to whole."""
LOOKS = {words: METHODS[method] for words, method in ARMS.values()}
RESPONSES = ["RNFL left", "RNFL right", "field left", "field right"]


def label(arm: str) -> str:
    """Return an arm's name in pictures and tables."""
    return ARMS[arm][0] if arm in ARMS else arm


def named(level: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table of arms that have a name in pictures, in their order and under
    that name.
    """
    return level.loc[[arm for arm in ARMS if arm in level.index]].rename(label)


@drawn
def plot_metrics(frame: pd.DataFrame, metrics: list[str]) -> Figure:
    """Draw box plots by arm, one panel a metric, one value a seed and fold; references stand above
    the networks.

    Parameters
    ----------
    frame : DataFrame
        Of ``metrics_frame``.
    metrics : list of str
    """
    named_arms = frame[frame["arm"].isin(ARMS)].assign(method=lambda own: own["arm"].map(label))
    return boxes(named_arms, metrics, LOOKS, "value").figure


def plot_gamma(matrices: dict[str, tuple[np.ndarray, np.ndarray]], **state: Any) -> Figure:
    """Draw the mean of every estimated correlation as heat maps, with its SD over fits below the
    number.

    Parameters
    ----------
    matrices : dict
        Estimate -> mean and SD, two arrays of shape (4, 4).
    """
    words = {"fmcem": "fMCEM, in-sample", "cross-fitted": "exact, cross-fitted"}
    both = np.vectorize("{:.2f}\n({:.2f})".format)
    texts = {words.get(name, name): both(*pair) for name, pair in matrices.items()}
    means = {words.get(name, name): mean for name, (mean, _) in matrices.items()}
    return plot_correlation(means, RESPONSES, texts, **state)


@drawn
def plot_differences(rows: pd.DataFrame) -> Figure:
    """Draw paired differences with the corrected 95 % intervals, one panel a metric, one line a
    question.
    """
    return differences(rows, {arm: METHODS[method].color for arm, (_, method) in ARMS.items()})


@drawn
def plot_power(
    power: Callable[..., float], designs: list[tuple[str, int, float]], seen: float
) -> Figure:
    """Draw the power of the corrected test against the true d_z, one line a design.

    Parameters
    ----------
    power : callable
        ``power(d, folds, test_share)``.
    designs : list of (name, folds, test_share)
    seen : float
        A d_z to mark.
    """
    grid = np.linspace(0, 3, 61)
    curves = {name: [power(d, folds, share) for d in grid] for name, folds, share in designs}
    figure, ax = new_figure(3.2, width=5)
    ink = [COLORS["ink"]] * len(designs)
    sns.lineplot(pd.DataFrame(curves, index=grid), palette=ink, ax=ax)
    ax.axhline(0.8, **ZERO)
    ax.axvline(
        abs(seen),
        label=f"$|d_z| = {abs(seen):.2f}$, seen",
        color=METHODS["exact"].color,
        linewidth=1.2,
        linestyle="-.",
    )
    ax.set(xlabel="true $d_z$ over folds", ylabel="power at the 5 % level", ylim=(0, 1.02))
    ax.legend(fontsize=8)
    return figure


@drawn
def plot_errors(predictions: pd.DataFrame) -> Figure:
    """Draw predicted against observed thickness, and the errors of both eyes of each patient
    against each other.
    """
    eyes = {eye: predictions.filter(regex=f"RNFL_{eye}$") for eye in ("OS", "OD")}
    rows = pd.concat(
        [own.set_axis(["seen", "said"], axis=1).assign(eye=eye) for eye, own in eyes.items()]
    )
    figure, (left, right) = new_figure(3.2, columns=2)
    dots = {"s": 14, "alpha": 0.6}
    sns.scatterplot(
        rows, x="seen", y="said", hue="eye", style="eye", palette=COLORS, ax=left, **dots
    )
    ends = rows["seen"].min(), rows["seen"].max()
    left.plot(ends, ends, **ZERO)
    left.set(xlabel=r"observed RNFL ($\mu$m)", ylabel=r"predicted RNFL ($\mu$m)", title="thickness")
    left.legend()
    errors = rows.assign(error=rows["said"] - rows["seen"]).pivot(columns="eye", values="error")
    sns.scatterplot(errors, x="OS", y="OD", color=COLORS["both"], ax=right, **dots)
    right.axhline(0, **ZERO)
    right.axvline(0, **ZERO)
    r = errors.corr().loc["OS", "OD"]
    right.set(title=f"errors of a patient, r = {r:.2f}")
    right.set(xlabel=r"error OS ($\mu$m)", ylabel=r"error OD ($\mu$m)")
    return figure
