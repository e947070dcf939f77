"""Figures of the chapter on estimating the copula. Each takes records or numbers and draws; none
fits anything.
"""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from scipy.stats import norm, truncnorm

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
            "features / patients": record["configuration"]["ratio"],
            "penalty": record["configuration"]["penalty"],
            "outputs": word,
            "rho": record["metrics"][f"{source}.ml.rho12"]["mean"],
            "loss": record["metrics"]["oracle.ml.heldout"]["mean"]
            - record["metrics"][f"{source}.ml.heldout"]["mean"],
        }
        for record in records
        for source, word in words.items()
    )
    looks = [METHODS["in-sample"].color, METHODS["exact"].color, COLORS["grey"]]
    palette = dict(zip(words.values(), looks, strict=True))
    figure, (left, right) = new_figure(3.2, columns=2)
    look = {
        "hue": "outputs",
        "style": "penalty",
        "palette": palette,
        "markers": ["o", "s"],
        "dashes": {"none": "", "ridge": (1, 1.5)},
        "errorbar": None,
    }
    sns.lineplot(rows, x="features / patients", y="rho", ax=left, **look)
    fresh = rows[rows["outputs"] != "fresh patients"]
    sns.lineplot(fresh, x="features / patients", y="loss", ax=right, legend=False, **look)
    left.axhline(0.72, **ZERO)
    left.set(ylabel=r"$\hat\rho_{12}$", ylim=(0, 0.8))
    right.set(ylabel="loss on fresh patients", yscale="log")
    return figure


@drawn
def e_step_figure(patients: dict[str, tuple[float, float, float, int]]) -> Figure:
    """Draw what an E-step does with one hidden error of each patient: its normal given the lengths,
    what the label leaves of it, and the mean that fMCEM puts in its place.

    Parameters
    ----------
    patients : dict
        Title -> mean and SD of the error given the lengths, where the label cuts it, and the label.
    """
    figure, panels = new_figure(3.4, columns=len(patients), sharex=True, sharey=True)
    look, u = METHODS["fmcem"], np.linspace(-3.5, 3.5, 701)
    for ax, (title, (mean, sd, cut, label)) in zip(panels, patients.items(), strict=True):
        limits = np.sort([(cut - mean) / sd, np.inf if label else -np.inf])
        left = truncnorm(*limits, loc=mean, scale=sd)
        ax.plot(u, norm.pdf(u, mean, sd), "--", color=COLORS["grey"], label="given the lengths")
        ax.fill_between(u, left.pdf(u), color=look.color, alpha=0.3, label="given the label, too")
        ax.axvline(left.mean(), color=look.color, label="its mean: all that fMCEM keeps")
        ends = left.mean() + left.std() * np.array([-1, 1])
        ax.plot(ends, [0.1, 0.1], "|-", color=COLORS["ink"], label="its SD: discarded")
        ax.set(title=title, xlabel="hidden error $u_3$", yticks=[])
    return legend_below(figure, columns=2)


@drawn
def iterations_figure(paths: dict[str, np.ndarray], truth: np.ndarray) -> Figure:
    """Draw correlations over the iterations of fMCEM and of the exact EM, a panel each.

    Parameters
    ----------
    paths : dict
        "fmcem" and "em" -> matrices (iterations, 4, 4), the start first.
    truth : (4, 4)
    """
    entries = {r"$\rho_{13}$, length and label": (0, 2), r"$\rho_{34}$, both labels": (2, 3)}
    rows = pd.concat(
        pd.DataFrame({"estimate": path[:, i, j], "method": WORDS[name], "panel": panel})
        for name, path in paths.items()
        for panel, (i, j) in entries.items()
    )
    rows["iteration"] = rows.index
    looks = {WORDS[name]: LOOKS[WORDS[name]]._replace(marker="") for name in paths}
    grid = lines(rows, ["iteration", "estimate"], looks, col="panel", **panel_size(2, 2.8))
    for ax, (i, j) in zip(grid.axes.flat, entries.values(), strict=True):
        ax.axhline(truth[i, j], label="truth", **TRUTH)
    return legend_below(grid.figure)
