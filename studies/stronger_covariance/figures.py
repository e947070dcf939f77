"""Figures of "Stronger covariance"; all draw records."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from cevit_lib.clinic.style import COLORS, METHODS, Look, drawn, new_figure
from studies.charts import TRUTH, ZERO, across, legend_below, lines, panel_size

TRUE_R34, TRUE_R12 = 0.569, 0.72
LABELS = {
    "none": "no distortion",
    "shared-noise": "shared noise",
    "shared-noise-rescaled": "shared noise, rescaled",
    "constant-shift": "constant shift",
    "scaling": "scaling",
    "label-tracking": "label tracking",
    "own-latent-tracking": "own-latent tracking",
    "shared-latent-tracking": "shared-latent tracking",
    "averaging": "averaging of the eyes",
    "averaging-rescaled": "averaging, rescaled",
}
"""Distortion -> words."""
WORDS = {
    "maximum-likelihood": "maximum likelihood",
    "posterior": "proper posterior",
    "exact-em": "exact E-step + cov2cor",
    "gibbs": "Gibbs, inverse Wishart + cov2cor",
    "fmcem": "fMCEM (univariate)",
    "fmcem-bivariate": "fMCEM (bivariate)",
}
"""Estimator -> words."""
LOOKS = {
    "maximum likelihood": METHODS["exact"],
    "proper posterior": METHODS["posterior"],
    "exact E-step + cov2cor": METHODS["em"],
    "Gibbs, inverse Wishart + cov2cor": METHODS["mcmc"],
    "fMCEM (univariate)": METHODS["fmcem"],
    "fMCEM (bivariate)": METHODS["fmcem-variant"],
}
SOURCES = {"in-sample": METHODS["in-sample"].color, "cross-fitted": METHODS["exact"].color}
"""Source of the outputs -> colour of maximum likelihood from them."""
BY_SOURCE = {
    "maximum likelihood, in-sample": METHODS["in-sample"],
    "maximum likelihood, cross-fitted": METHODS["exact"],
    "fMCEM, in-sample": METHODS["fmcem"]._replace(face="white"),
    "fMCEM, cross-fitted": METHODS["fmcem"],
}
PATHS = {
    words: Look(shade, marker, line)
    for words, shade, marker, line in zip(
        list(LABELS.values())[1:],
        sns.cubehelix_palette(len(LABELS) - 1, start=2.2, rot=0.9, dark=0.15, light=0.68),
        "os^vDPXd*",
        ["-", "--", "-.", ":"] * 2 + ["-"],
        strict=True,
    )
}
"""A distortion's words -> its look; distortions are no methods and have shades of their own."""
RHO34 = r"estimate of $\rho_{34}$"
RHO12 = r"estimate of $\rho_{12}$"


def tidy(records: list[dict]) -> pd.DataFrame:
    """Return a row for each record and each quantity that was replicated, with the settings of its
    record.

    Further columns: ``quantity``, ``mean``, ``error`` (two standard errors), the ``values`` of the
    replications, and what the quantity belongs to: ``method`` (an estimator's words), ``source`` of
    the outputs and ``step`` of training.
    """
    rows = [
        record["configuration"]
        | {
            "quantity": key.split(":")[-1],
            "method": next((WORDS[part] for part in key.split(":") if part in WORDS), None),
            "source": next((part for part in key.split(":") if part in SOURCES), None),
            "step": next((int(part) for part in key.split(":") if part.isdigit()), None),
            "mean": entry["mean"],
            "error": 2 * (entry["se"] or 0),
            "values": record["columns"][key],
        }
        for record in records
        for key, entry in record["metrics"].items()
    ]
    return pd.DataFrame(rows).astype({"mean": float, "error": float})


def _paths(records: list[dict]) -> pd.DataFrame:
    """Return the distorted records' rows by strength; every path begins without distortion."""
    frame = tidy(records)
    start = frame[frame["distortion"] == "none"]
    starts = [
        start.assign(distortion=name, strength=float(name == "scaling"))
        for name in list(LABELS)[1:]
    ]
    rows = pd.concat([frame[frame["distortion"] != "none"], *starts]).sort_values("strength")
    return rows.assign(path=rows["distortion"].map(LABELS))


@drawn
def plot_paths(records: list[dict]) -> Figure:
    """Proposition 1: maximum likelihood's rho34 against Cov(q-hat)/Cov(q), one path a distortion,
    bars of 2 SE.

    The proposition says that every point right of 1 lies above the dotted line.
    """
    rows = _paths(records)
    ratio = rows[rows["quantity"] == "ratio34"].set_index(["path", "strength"])["mean"]
    shown = rows[(rows["method"] == "maximum likelihood") & (rows["quantity"] == "r34")]
    shown = shown.join(ratio.rename("ratio"), on=["path", "strength"]).assign(method=shown["path"])
    grid = lines(shown, ["ratio", "mean", "error"], PATHS, **panel_size(1, 4.6))
    grid.ax.axvspan(1.0, 400, color=COLORS["light"], alpha=0.35, linewidth=0)
    grid.set(
        xscale="log",
        ylim=(-0.1, 1.05),
        xlabel="Cov of the plug-in scores / Cov of the true ones",
        ylabel=RHO34,
    )
    return legend_below(across(grid, TRUE_R34, **TRUTH).figure)


@drawn
def plot_singularity(records: list[dict]) -> Figure:
    """Proposition 2: fMCEM's smallest eigenvalue under label tracking, and R2(u3 | u1, u2) without
    any distortion.
    """
    shown = ["maximum-likelihood", "exact-em", "fmcem"]
    rows = tidy(records)
    rows = rows[rows["method"].isin([WORDS[role] for role in shown])]
    tracked = rows.query("correlation == 'exchangeable' and quantity == 'smallest_eigenvalue'")
    spread = rows.query("correlation == 'toy' and quantity == 'r_squared_3'")
    worst = tracked["values"].map(min).clip(1e-7)
    parts = [
        tracked.assign(x=tracked["strength"], mean=worst, error=0.0),
        spread.assign(x=spread["sd"]),
    ]
    shown = pd.concat(parts).sort_values("x")
    grid = lines(
        shown,
        ["x", "mean", "error"],
        LOOKS,
        col="correlation",
        sharex=False,
        sharey=False,
        **panel_size(2, 3),
    )
    left, right = grid.set_titles("").axes.flat
    left.axhline(1e-3, **ZERO)
    left.text(4.3, 3e-4, "the loss refuses below", fontsize=8, color=COLORS["grey"])
    left.set(
        yscale="log",
        xlabel="$k$ in $q + k(2y - 1)$",
        ylabel="smallest eigenvalue, worst replication",
    )
    right.axhline(0.0884, **TRUTH)
    right.set(
        xscale="log",
        ylim=(0, 1.02),
        xlabel="SD of the true scores",
        ylabel="$R^2$ of $u_3$ on $u_1, u_2$",
    )
    return legend_below(grid.figure)


def _by_source(records: list[dict]) -> pd.DataFrame:
    """Return the rows by estimator and source of the outputs, ``ratio`` being features per
    patient.
    """
    rows = tidy(records)
    scores = rows["quantity"].str.startswith("ratio")  # these have a source and no estimator
    words = rows["method"].mask(scores, "maximum likelihood").replace(r" \(.*", "", regex=True)
    rows["weights"] = rows.get("shared", True)
    rows["weights"] = rows["weights"].map({True: "shared weights", False: "separate weights"})
    rows = rows.assign(method=words + ", " + rows["source"], ratio=rows["features"] / rows["n"])
    return rows.sort_values(["weights", "ratio"], ascending=[False, True])


@drawn
def plot_residuals(record: dict, linear: list[dict]) -> Figure:
    """Proposition 3: residual correlation under each distortion (left), least squares with many
    features (right).
    """
    figure, (left, right) = new_figure(4.6, columns=2)
    left.axvspan(1.0, 60, color=COLORS["light"], alpha=0.35, linewidth=0)
    for name, path in record["metrics"]["paths"].items():
        look, points = PATHS[LABELS[name]], path["points"]
        left.plot(path["ratio"], path["limit"], color=look.color, linestyle=look.line)
        left.plot(
            points["ratio"],
            points["estimate"],
            look.marker,
            color=look.color,
            label=LABELS[name].replace("latent", "error"),
        )
    left.set(xscale="log", xlabel="Cov of plug-in means / true", ylabel=r"limit of $\hat\rho_{12}$")
    rows = _by_source(linear).query("quantity == 'r12' and method.str.startswith('maximum')")
    sns.lineplot(
        rows.explode("values"),
        x="ratio",
        y="values",
        hue="source",
        style="weights",
        palette=SOURCES,
        markers=True,
        errorbar=("se", 2),
        err_style="bars",
        ax=right,
    )
    right.set(xlabel="features per eye / patients", ylabel=RHO12, ylim=(0.3, 0.8))
    for ax in (left, right):
        ax.axhline(TRUE_R12, **TRUTH)
        ax.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure


@drawn
def plot_network(record: dict) -> Figure:
    """A network from its first steps to past interpolation: Cov ratio, rho12, rho34 and new
    patients' likelihood.
    """
    panels = {
        "ratio34": ("Cov of scores / truth\n(classification)", "log", 1),
        "r12": (RHO12, "linear", TRUE_R12),
        "r34": (RHO34, "linear", TRUE_R34),
        "test_log_likelihood": ("negative log-likelihood\nper new patient", "log", np.nan),
    }
    rows = _by_source([record])
    rows = rows[rows["method"].str.startswith("maximum") | (rows["quantity"] == "r34")]
    loss = rows["quantity"] == "test_log_likelihood"
    rows["mean"] = rows["mean"].mask(loss, -rows["mean"])
    grid = lines(
        rows,
        ["step", "mean", "error"],
        BY_SOURCE,
        col="quantity",
        col_order=list(panels),
        col_wrap=2,
        sharey=False,
        **panel_size(2, 2.6),
    )
    for quantity, ax in grid.axes_dict.items():
        words, scale, reference = panels[quantity]
        ax.axhline(reference, **TRUTH)
        ax.set(title="", xscale="log", yscale=scale, ylabel=words)
    return legend_below(grid.set_xlabels("training step").figure, columns=2)
