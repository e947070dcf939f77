"""Figures of "When it helps" and "Proofs, checked": they draw closed forms and the records of
formula checks.
"""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from cevit_lib.clinic.style import COLORS, METHODS, drawn, new_figure
from studies.charts import TRUTH, ZERO, dots, lines, panel_size
from studies.theory import orthant_moments, printed_orthant_covariance

TRUE_R34, TRUE_R12 = 0.569, 0.72
INK = COLORS["ink"]


@drawn
def plot_total_covariance(record: dict) -> Figure:
    """Remark 4: what is left for the latent correlation (left), and the within part at a fixed
    rho34 (right).
    """
    metrics = record["metrics"]
    change = np.linspace(-0.25, 0.5, 7)  # rho12 stays below 1
    left_over = {
        r"$\rho_{12}$ (regression)": TRUE_R12 - change,
        r"$\rho_{34}$ (classification)": TRUE_R34 - change,
    }
    within = {
        "centred scores" if name == "centred" else f"scores of {name}".replace("+-", "±"): curve[
            "within"
        ]
        for name, curve in metrics["curves"].items()
    }
    figure, (left, right) = new_figure(3.2, columns=2)
    sns.lineplot(pd.DataFrame(left_over, index=change), palette=[INK, COLORS["grey"]], ax=left)
    left.set(
        xlabel="error of Cov of the scores",
        ylabel="correlation that keeps the responses'\njoint distribution",
    )
    frame = pd.DataFrame(within, index=metrics["covariance"])
    colors = [INK, COLORS["grey"], COLORS["both"], COLORS["both"]]
    sns.lineplot(frame, palette=colors, ax=right)
    right.set(
        xlabel=r"$\mathrm{Cov}(q_3, q_4)$",
        ylabel=r"mean $\mathrm{Cov}(y_3, y_4 \mid \mathrm{images})$",
        ylim=(0, 0.1),
    )
    right.legend(fontsize=8, loc="upper left")
    return figure


@drawn
def plot_rules(record: dict) -> Figure:
    """Joint and per-eye accuracy of the marginal, the joint and the printed rule, for three
    populations.
    """
    words = {"uniform": "p uniform", "logit-1.5": "logits, SD 1.5", "logit-3": "logits, SD 3"}
    panels = {"per_eye": "probability of one eye right", "joint": "probability of both eyes right"}
    rules = {"marginal": ("independence", -0.2), "joint": ("exact", 0), "printed": ("paper", 0.2)}
    rows = pd.DataFrame(
        {
            "place": place + shift,
            "method": f"{rule} rule",
            "panel": panels[metric],
            "expected accuracy": record["metrics"][name][rule][metric],
        }
        for place, name in enumerate(words)
        for rule, (_, shift) in rules.items()
        for metric in panels
    )
    looks = {f"{rule} rule": METHODS[method] for rule, (method, _) in rules.items()}
    grid = lines(rows, ["place", "expected accuracy"], dots(looks), col="panel", **panel_size(2, 3))
    grid.set(xticks=range(3), xticklabels=words.values(), ylim=(0.35, 0.9))
    grid.set_xlabels("").axes.flat[0].legend(loc="lower left")
    return grid.figure


@drawn
def plot_minima(record: dict) -> Figure:
    """Where a wrong rho34 drives the margins of an unrestricted model."""
    found, truth = record["metrics"]["binary_pair"], record["metrics"]["true_margins"]
    words = [
        f"{eye} eye, true $P(y = 1) = {p:.3f}$"
        for eye, p in zip(("left", "right"), truth, strict=True)
    ]
    rows = pd.DataFrame.from_dict(found, orient="index", columns=words).set_axis(map(float, found))
    figure, ax = new_figure(3.4, width=5)
    colors = [COLORS["left"], COLORS["right"]]
    sns.lineplot(100 * (rows - truth), palette=colors, markers=["o", "s"], ax=ax)
    ax.axhline(0, **TRUTH)
    ax.axvline(TRUE_R34, **ZERO)
    ax.set(
        xlabel=r"$\rho_{34}$ in the loss (true: .569)",
        ylabel="error of the margin (percentage points)",
    )
    return figure


@drawn
def plot_truncation(record: dict) -> Figure:
    """The Tallis lemma: conditional correlation against the threshold, right and printed claim."""
    c = np.linspace(-3, 3, 61)
    found = orthant_moments(c, c, TRUE_R34)
    ours, printed = (
        {"color": METHODS[key].color, "linestyle": METHODS[key].line} for key in ("exact", "paper")
    )
    figure, (left, right) = new_figure(3.2, columns=2)
    left.plot(c, found.correlation, **ours)
    left.axhline(TRUE_R34, **TRUTH, label=r"$\rho = .569$; the lemma says above this")
    right.plot(c, found.covariance, **ours, label=r"right: $\rho + D$")
    right.plot(
        c, printed_orthant_covariance(c, c, TRUE_R34), **printed, label=r"printed: $\rho - D$"
    )
    for ax, name in ((left, "Corr"), (right, "Cov")):
        ylabel = rf"$\mathrm{{{name}}}(Z_1, Z_2 \mid \mathrm{{both}} > c)$"
        ax.set(xlabel="threshold $c$ of both", ylabel=ylabel, ylim=(0, 1.25))
        ax.legend(fontsize=8, loc="upper left")
    return figure


@drawn
def plot_printed_density(record: dict) -> Figure:
    """How often Eq. (10) as printed is no probability, and how far its log is off."""
    rows = pd.DataFrame(record["metrics"]["by_logit_sd"]).T.rename_axis("SD of the logits")
    panels = {
        "share_not_positive": r"patients with $P(y_3, y_4) \leq 0$ (%)",
        "mean_log_error": r"mean |error of $\log P$|, where it exists",
    }
    rows["share_not_positive"] *= 100
    figure, axes = new_figure(3.2, columns=2)
    for ax, (column, words) in zip(axes, panels.items(), strict=True):
        sns.barplot(rows, x="SD of the logits", y=column, color=METHODS["paper"].color, ax=ax)
        ax.set(ylabel=words)
    return figure


@drawn
def plot_counter_example(record: dict) -> Figure:
    """Two joint distributions with equal margins: the one with the larger covariance is less
    concordant.
    """
    example = record["metrics"]["counter_example"]
    support = [f"{value:g}" for value in example["support"]]
    agree = {"small": "its_concordance", "large": "its_smaller_concordance"}
    figure, axes = new_figure(3.2, columns=2)
    for ax, (size, key) in zip(axes, agree.items(), strict=True):
        weights = pd.DataFrame(example[f"{size}_weights"], support, support).T[::-1]
        texts = weights.map(lambda weight: f"{weight:.2f}" if weight > 1e-9 else "")
        sns.heatmap(
            weights,
            annot=texts,
            square=True,
            ax=ax,
            cmap="Greys",
            vmin=0,
            vmax=0.25,
            fmt="",
            cbar=False,
        )
        covariance, agreement = example[f"{size}_covariance"], example[key]
        ax.set_title(rf"$\mathrm{{Cov}} = {covariance:.2f}$, $E\,P(y_3 = y_4) = {agreement:.3f}$")
        ax.set(xlabel="$q_3$", ylabel="$q_4$")
        ax.tick_params(rotation=0)
    return figure
