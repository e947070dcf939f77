"""Figures of the chapter on estimating the copula. Each takes records or numbers and draws; none
fits anything.
"""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from cevit_lib.clinic.style import COLORS, METHODS, drawn, new_figure
from studies.charts import TRUTH, ZERO, across, legend_below, lines, panel_size

NAMES = [f"rho{i}{j}" for i in range(1, 5) for j in range(i + 1, 5)]
ARMS = {
    "ml": ("max. likelihood", "exact"),
    "independence": ("independence", "independence"),
    "rho12 only": (r"$\rho_{12}$ only", "reference"),
    "fmcem": ("fMCEM", "fmcem"),
    "fmcem-variances": ("fMCEM + variances", "fmcem-variant"),
    "em-cov2cor": ("exact EM, cov2cor", "em"),
    "em": ("exact EM", "em"),
    "mcmc": ("MCMC", "mcmc"),
}
"""Estimator -> words and method."""
WORDS = {name: words for name, (words, _) in ARMS.items()}
LOOKS = {words: METHODS[method] for words, method in ARMS.values()}
PALETTE = {words: look.color for words, look in LOOKS.items()}


def _replications(records: list[dict]) -> pd.DataFrame:
    """Return one row a replication, estimator and quantity, with the label of its record."""
    tables = [
        pd.DataFrame(record["columns"]).assign(label=record["configuration"]["label"])
        for record in records
    ]
    rows = pd.concat(tables).melt("label", value_name="estimate")
    rows[["method", "quantity"]] = rows["variable"].str.split(".", n=1, expand=True)
    return rows.assign(method=rows["method"].map(WORDS))


@drawn
def estimate_boxplots(records: list[dict], truth: np.ndarray) -> Figure:
    """Draw the paper's boxplots of the six correlations, one panel a record, with truth lines."""
    rows = _replications(records)
    order = ["fMCEM", "MCMC", "max. likelihood"]
    grid = sns.catplot(
        rows,
        kind="box",
        x="quantity",
        y="estimate",
        order=NAMES,
        hue_order=order,
        row="label",
        boxprops={"alpha": 0.6},
        hue="method",
        palette=PALETTE,
        linewidth=0.9,
        fliersize=2,
        **panel_size(1, 2.3),
    )
    for ax in grid.axes.flat:
        ax.hlines(truth, np.arange(6) - 0.45, np.arange(6) + 0.45, **TRUTH | {"linestyle": "--"})
    grid.set_titles("{row_name}").set(xlabel="")
    grid.set_xticklabels([rf"$\rho_{{{name[3:]}}}$" for name in NAMES])
    sns.move_legend(grid, "outside upper center", ncol=3, title="")
    return grid.figure


@drawn
def bias_against_signal(records: list[dict]) -> Figure:
    """Draw the mean bias of the mixed entries and that of rho34 against the standard deviation of
    the signal.
    """
    panels = {"mixed correlations (mean of four)": NAMES[1:5], r"$\rho_{34}$": NAMES[5:]}
    rows = [
        {
            r"SD of $X'\beta'$": float(record["configuration"]["label"]),
            "bias": np.mean([record["metrics"][name]["bias"][entry] for entry in entries]),
            "error": np.mean([record["metrics"][name]["sd"][entry] for entry in entries]) / 10,
            "method": WORDS[name],
            "panel": panel,
        }
        for record in records
        for name in ("fmcem", "fmcem-variances", "ml")
        for panel, entries in panels.items()
    ]
    grid = lines(
        pd.DataFrame(rows), [*rows[0]][:3], LOOKS, col="panel", sharey=False, **panel_size(2, 3)
    )
    return legend_below(across(grid, 0, **ZERO).figure)


@drawn
def held_out_bars(records: list[dict]) -> Figure:
    """Draw what each matrix loses against the true one, in log-likelihood of fresh patients, by
    signal strength.
    """
    names = ["independence", "rho12 only", "fmcem", "fmcem-variances", "em"]
    rows = pd.DataFrame(
        {
            "strength": record["configuration"]["label"],
            "loss against the truth": -record["metrics"][name]["heldout"]["mean"],
            "method": WORDS[name],
        }
        for record in records
        for name in names
    )
    figure, ax = new_figure(3.2)
    sns.barplot(
        rows, x="strength", y="loss against the truth", hue="method", palette=PALETTE, ax=ax
    )
    ax.get_legend().remove()
    ax.set(yscale="log", xlabel="")
    return legend_below(figure)


@drawn
def cost_against_n(columns: dict) -> Figure:
    """Draw processor seconds against the number of patients, both on logarithmic scales."""
    names = {
        "Gibbs": "mcmc",
        "ExactEM": "em-cov2cor",
        "MaximumLikelihood": "ml",
        "FastMCEM": "fmcem",
    }
    seconds = {WORDS[name]: columns[f"{key}.seconds"] for key, name in names.items()}
    rows = pd.DataFrame(seconds | {"n": columns["n"]}).astype(float)
    rows = rows.melt("n", var_name="method", value_name="processor seconds")
    grid = lines(rows, ["n", "processor seconds"], LOOKS, height=3.4, aspect=1.5)
    grid.set(xscale="log", yscale="log", xlabel="patients")
    return legend_below(grid.figure, columns=2)


@drawn
def overfit_curves(records: list[dict]) -> Figure:
    """Draw rho12 by source of the outputs against p/n, and what fresh patients lose by the
    in-sample estimate.
    """
    words = {
        "in-sample": "training outputs",
        "cross-fitted": "cross-fitted",
        "oracle": "fresh patients",
    }
    rows = pd.DataFrame(
        {
            "p / n": record["configuration"]["ratio"],
            "penalty": record["configuration"]["penalty"],
            "outputs": word,
            "rho": record["metrics"][f"{source}.ml.rho12"]["mean"],
            "loss": record["metrics"]["oracle.ml.heldout"]["mean"]
            - record["metrics"][f"{source}.ml.heldout"]["mean"],
        }
        for record in records
        for source, word in words.items()
    )
    looks = zip(words.values(), ("in-sample", "exact", "truth"), strict=True)
    palette = {word: METHODS[method].color for word, method in looks}
    figure, (left, right) = new_figure(3.2, columns=2)
    look = {"hue": "outputs", "style": "penalty", "palette": palette, "markers": ["o", "s"]}
    look |= {"dashes": {"none": "", "ridge": (1, 1.5)}, "errorbar": None}
    sns.lineplot(rows, x="p / n", y="rho", ax=left, **look)
    fresh = rows[rows["outputs"] != "fresh patients"]
    sns.lineplot(fresh, x="p / n", y="loss", ax=right, legend=False, **look)
    left.axhline(0.72, **ZERO)
    left.set(ylabel=r"$\hat\rho_{12}$", ylim=(0, 0.8))
    right.set(ylabel="loss on fresh patients", yscale="log")
    return figure


@drawn
def thrown_away(gap: np.ndarray) -> Figure:
    """Draw, patient by patient, the conditional variance of a latent score that fMCEM sets to
    zero.
    """
    figure, ax = new_figure(3.2, width=5)
    sns.histplot(gap, bins=40, color=METHODS["fmcem"].color, alpha=0.6, ax=ax)
    ax.axvline(float(np.mean(gap)), color=COLORS["ink"], linestyle="--", label="mean")
    ax.set(xlabel=r"$\mathrm{Var}(u_3 \mid y, u_1, u_2)$ left out", ylabel="patients")
    ax.legend()
    return figure
