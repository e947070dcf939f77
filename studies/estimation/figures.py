"""Figures of the chapter on estimating the copula. Each takes records or numbers and draws; none fits anything."""

import numpy as np

from cevit_lib.clinic.old_style import COLORS, LINES, MARKERS, new_figure

PAIRS = tuple(zip(*np.triu_indices(4, 1), strict=True))
NAMES = tuple(f"rho{i + 1}{j + 1}" for i, j in PAIRS)
LABELS = tuple(rf"$\rho_{{{i + 1}{j + 1}}}$" for i, j in PAIRS)

#: Estimator -> words, and the meaning whose colour, marker and line it takes.
WORDS = {
    "fmcem": ("fMCEM", "fmcem"),
    "mcmc": ("MCMC", "rank"),
    "ml": ("max. likelihood", "likelihood"),
    "em": ("exact EM", "exact"),
    "em-cov2cor": ("exact EM, cov2cor", "exact"),
    "fmcem-variances": ("fMCEM + variances", "mcem"),
    "fmcem-bivariate": ("fMCEM, bivariate", "score"),
}


def boxes(axes, values, positions, meaning: str, width: float = 0.24) -> None:
    """Draw one group of boxplots in the colour of a meaning."""
    drawn = axes.boxplot(
        values,
        positions=positions,
        widths=width,
        patch_artist=True,
        manage_ticks=False,
        flierprops={"markersize": 2},
    )
    for box in drawn["boxes"]:
        box.set(facecolor=COLORS[meaning], alpha=0.45, edgecolor=COLORS[meaning])
    for part in ("whiskers", "caps", "medians"):
        for line in drawn[part]:
            line.set(color=COLORS[meaning], linewidth=1.2)


def estimate_boxplots(records: list[dict], truth, estimators=("fmcem", "mcmc", "ml")):
    """Draw the paper's boxplots of the six correlations, one panel a record, with truth lines."""
    figure, axes = new_figure(
        (7.2, 2.4 * len(records)), rows=len(records), squeeze=False, sharex=True
    )
    for record, panel in zip(records, axes[:, 0], strict=True):
        for shift, name in zip(np.linspace(-0.27, 0.27, len(estimators)), estimators, strict=True):
            values = [record["columns"][f"{name}.{label}"] for label in NAMES]
            boxes(panel, values, np.arange(6) + shift, WORDS[name][1])
            panel.plot(
                [], [], color=COLORS[WORDS[name][1]], linewidth=6, alpha=0.6, label=WORDS[name][0]
            )
        ends = np.arange(6) - 0.45, np.arange(6) + 0.45
        panel.hlines(truth, *ends, color=COLORS["truth"], linestyle="--", linewidth=1.2)
        panel.set(
            xticks=range(6),
            xticklabels=LABELS,
            ylabel="estimate",
            title=record["configuration"]["label"],
        )
    axes[0, 0].legend(ncols=3, loc="upper center", bbox_to_anchor=(0.55, 1.02))
    return figure


def time_boxplots(record: dict, estimators=("fmcem", "em-cov2cor", "em", "ml", "mcmc")):
    """Draw processor seconds of each fit on a logarithmic scale."""
    figure, axes = new_figure((7.2, 2.8))
    for index, name in enumerate(estimators):
        boxes(axes, [record["columns"][f"{name}.seconds"]], [index], WORDS[name][1], 0.5)
    axes.set(yscale="log", ylabel="processor seconds", xticks=range(len(estimators)))
    axes.set_xticklabels([WORDS[name][0] for name in estimators])
    return figure


def bias_against_signal(records: list[dict], estimators=("fmcem", "fmcem-variances", "ml")):
    """Draw the mean bias of the mixed entries and that of rho34 against the standard deviation of the signal."""
    figure, axes = new_figure("wide", columns=2)
    strength = [float(record["configuration"]["label"]) for record in records]
    for name in estimators:
        word, meaning = WORDS[name]
        bias = np.array(
            [[record["metrics"][name]["bias"][label] for label in NAMES] for record in records]
        )
        error = (
            np.array(
                [[record["metrics"][name]["sd"][label] for label in NAMES] for record in records]
            )
            / 10
        )
        look = {
            "color": COLORS[meaning],
            "marker": MARKERS[meaning],
            "linestyle": LINES[meaning],
            "label": word,
        }
        axes[0].errorbar(strength, bias[:, 1:5].mean(axis=1), error[:, 1:5].mean(axis=1), **look)
        axes[1].errorbar(strength, bias[:, 5], error[:, 5], **look)
    for panel, title in zip(
        axes, ("mixed correlations (mean of four)", r"$\rho_{34}$"), strict=True
    ):
        panel.axhline(0, color=COLORS["truth"], linewidth=0.8)
        panel.set(xlabel=r"SD of $X'\beta'$", ylabel="bias", title=title)
    axes[0].legend(loc="lower right", bbox_to_anchor=(1.0, 0.12))
    return figure


def held_out_bars(
    records: list[dict], names=("independence", "rho12 only", "fmcem", "fmcem-variances", "em")
):
    """Draw what each matrix loses against the true one, in log-likelihood of fresh patients, by signal strength."""
    figure, axes = new_figure("wide")
    look = {
        "independence": ("independence", "empirical"),
        "rho12 only": (r"$\rho_{12}$ only", "score"),
    } | WORDS
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        loss = [-record["metrics"][name]["heldout"]["mean"] for record in records]
        places = np.arange(len(records)) + (index - (len(names) - 1) / 2) * width
        axes.bar(
            places, loss, width, color=COLORS[look[name][1]], label=look[name][0], edgecolor="white"
        )
    axes.set(yscale="log", ylabel="loss against the truth", xticks=range(len(records)))
    axes.set_xticklabels([record["configuration"]["label"] for record in records])
    axes.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.25))
    return figure


def cost_against_n(columns: dict):
    """Draw processor seconds against the number of patients, both on logarithmic scales."""
    figure, axes = new_figure("single")
    for name, (word, meaning) in {
        "Gibbs": ("MCMC, 2,500 sweeps", "rank"),
        "ExactEM": ("exact EM, cov2cor", "exact"),
        "MaximumLikelihood": ("max. likelihood", "likelihood"),
        "FastMCEM": ("fMCEM", "fmcem"),
    }.items():
        seconds = np.array(
            [np.nan if value is None else value for value in columns[f"{name}.seconds"]],
            dtype=float,
        )
        axes.loglog(
            columns["n"],
            seconds,
            color=COLORS[meaning],
            marker=MARKERS[meaning],
            linestyle=LINES[meaning],
            label=word,
        )
    axes.set(xlabel="patients", ylabel="processor seconds")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.25), ncols=2)
    return figure


def overfit_curves(records: dict[str, list[dict]]):
    """Draw rho12 by source of the outputs against p/n, and what fresh patients lose by the in-sample estimate."""
    figure, axes = new_figure("wide", columns=2)
    looks = {
        "in-sample": ("training outputs", "fmcem"),
        "cross-fitted": ("cross-fitted", "exact"),
        "oracle": ("fresh patients", "truth"),
    }
    for kind, line in (("none", "-"), ("ridge", ":")):
        found = records[kind]
        ratio = [record["configuration"]["ratio"] for record in found]
        for source, (word, meaning) in looks.items():
            rho = [record["metrics"][f"{source}.ml.rho12"]["mean"] for record in found]
            look = {"color": COLORS[meaning], "marker": MARKERS[meaning], "linestyle": line}
            axes[0].plot(ratio, rho, label=word if kind == "none" else None, **look)
            if source != "oracle":
                best, own = (
                    [record["metrics"][f"{each}.ml.heldout"]["mean"] for record in found]
                    for each in ("oracle", source)
                )
                axes[1].plot(ratio, np.subtract(best, own), **look)
    axes[0].axhline(0.72, color=COLORS["truth"], linewidth=0.8)
    axes[0].set(xlabel="p / n", ylabel=r"$\hat\rho_{12}$", ylim=(0, 0.8))
    axes[1].set(xlabel="p / n", ylabel="loss on fresh patients", yscale="log")
    axes[0].legend()
    return figure


def thrown_away(gap: np.ndarray):
    """Draw, patient by patient, the conditional variance of a latent score that fMCEM sets to zero."""
    figure, axes = new_figure("single")
    axes.hist(gap, bins=40, color=COLORS["fmcem"], alpha=0.6)
    axes.axvline(float(np.mean(gap)), color=COLORS["truth"], linestyle="--", label="mean")
    axes.set(xlabel=r"$\mathrm{Var}(u_3 \mid y, u_1, u_2)$ left out", ylabel="patients")
    axes.legend()
    return figure
