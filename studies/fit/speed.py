"""Pictures of the page on speed: ours, peers and the floor, from the records of ``benchmarks/``."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from cevit_lib.clinic.style import COLORS, METHODS, drawn, new_figure
from cevit_lib.records import load_records
from studies.charts import legend_below, lines, panel_size

#: Arm of a step -> whose it is, and what it is called.
ARMS = {
    "two passes": ("peer", "a pass for each eye"),
    "peft": ("peer", "peft's three products a layer"),
    "ours": ("ours", "one product a layer"),
    "by blocks": ("ours", "one product a layer, not replayed"),
    "without adapters": ("ours", "one product a layer"),
    "adapters alone": ("ours", "adapters alone"),
}
WHOSE = {"ours": METHODS["exact"].color, "peer": METHODS["empirical"].color}
#: What a step or a fit costs, and its look: what is compared with, then ours.
COSTS = {
    "BCE + MSE": METHODS["empirical"],
    "copula loss": METHODS["exact"],
    "earlier public code": METHODS["paper"],
    "maximum likelihood": METHODS["in-sample"],
    "fMCEM": METHODS["fmcem"],
    "EM, rescaled": METHODS["em"],
    "sampler": METHODS["mcmc"],
}
LOSSES = {
    "heads": "BCE + MSE",
    "copula": "copula loss",
    "earlier public class": "earlier public code",
}
ESTIMATORS = {
    "MaximumLikelihood": "maximum likelihood",
    "FastMCEM": "fMCEM",
    "ExactEM": "EM, rescaled",
    "Gibbs": "sampler",
}


def fit_records() -> dict[str, dict]:
    """Return the newest record of each part of the benchmark of training."""
    return {r["configuration"]["part"]: r for r in load_records("training-speed")}


def loss_records() -> dict[str, dict]:
    """Return the newest record of the loss for each kind of device."""
    return {r["device"]["type"]: r for r in load_records("likelihood-speed")}


def steps(record: dict) -> pd.DataFrame:
    """Return one row an arm: whose it is, its words, images a second, and the floor."""
    table = pd.DataFrame(record["columns"]).assign(floor=record["metrics"]["floor"])
    table[["whose", "words"]] = table["arm"].map(ARMS).tolist()
    for column, plain, said in (
        ("adapters", True, lambda _: ", without adapters"),
        ("compile", "none", lambda _: ", compiled"),
        ("pairs", 48, ", {} pairs".format),
    ):
        table["words"] += ["" if value == plain else said(value) for value in table[column]]
    return table.sort_values("images_per_second", ignore_index=True)


@drawn
def draw_steps(table: pd.DataFrame) -> Figure:
    """Draw the images a second of every arm, and the floor as a line."""
    figure, ax = new_figure(0.9 + 0.3 * len(table))
    look = {"hue": "whose", "palette": WHOSE, "saturation": 1, "ax": ax}
    sns.barplot(table, x="images_per_second", y="words", **look)
    for bars in ax.containers:
        ax.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=8)
    ax.axvline(table["floor"].iloc[0], color=COLORS["ink"], linestyle=":", label="floor")
    ax.set(xlabel="images a second, forward, backward and optimiser", ylabel="")
    ax.margins(x=0.12)
    ax.legend(title="")
    return figure


def fit_times(record: dict) -> pd.DataFrame:
    """Return seconds of a complete fit: printed, ours, and what the multiplications alone take."""
    found, machine = record["metrics"], record["configuration"]["machine"]
    rows = [
        ("printed, two RTX 4090", 3600 * found["paper_hours"], "peer"),
        (f"ours, one {machine}", found["whole_seconds"], "ours"),
        ("floor, the same card", found.get("floor_seconds"), "floor"),
    ]
    if "decoding_seconds" in found:
        rows.insert(2, ("photographs, decoded once", found["decoding_seconds"], "ours"))
    return pd.DataFrame(rows, columns=["what", "seconds", "whose"]).dropna()


@drawn
def draw_fit(table: pd.DataFrame) -> Figure:
    """Draw the seconds of a complete fit on a logarithmic axis."""
    figure, ax = new_figure(0.8 + 0.35 * len(table))
    look = {"hue": "whose", "palette": WHOSE | {"floor": COLORS["ink"]}, "legend": False}
    sns.stripplot(table, x="seconds", y="what", jitter=False, size=9, ax=ax, **look)
    for place, seconds in enumerate(table["seconds"]):
        ax.text(1.15 * seconds, place, f"{seconds:,.0f} s", va="center", fontsize=9)
    ax.set(xscale="log", xlim=(10, 1e5), ylabel="")
    return figure


def costs(losses: dict[str, dict], estimates: dict) -> pd.DataFrame:
    """Return milliseconds of the loss on both devices and of an estimate, by number of
    patients."""
    shown = {("cpu", "eager"): "loss, one CPU thread", ("cuda", "captured"): "loss, GPU, replayed"}
    rows = [
        (shown[place], LOSSES[name], row["n"], value)
        for record in losses.values()
        for row in record["metrics"]["table"]
        for name, value in row["milliseconds"].items()
        if (place := (row["device"], row["mode"])) in shown
        if row["dtype"] == "float32" and name in LOSSES
    ]
    columns = estimates["columns"]
    for name, words in ESTIMATORS.items():
        for n, seconds in zip(columns["n"], columns[f"{name}.seconds"], strict=True):
            rows.append(("estimate, one CPU thread", words, n, 1e3 * (seconds or float("nan"))))
    return pd.DataFrame(rows, columns=["panel", "method", "patients", "ms"]).dropna()


def say(steps: dict, fit: dict) -> str:
    """Return what a page's figures come to: the fastest step and the whole fit, beside their
    floors."""
    found, machine = fit["metrics"], fit["configuration"]["machine"]
    speeds, floor = steps["metrics"]["images_per_second"], steps["metrics"]["floor"]
    best = max(speed for arm, speed in speeds.items() if arm.startswith("ours"))
    told = f"The fastest step trains {best:,.0f} images a second, {best / floor:.0%} of the floor, "
    told += f"of which the adapters cost {steps['metrics']['adapter_cost']:.1%}. A complete fit "
    told += f"takes {found['whole_seconds']:.0f} s on one {machine}, {found['times_floor']:.1f} "
    told += f"times its floor: {found['pflop']:.1f} PFLOP at {found['matrix_tflops']:.0f} TFLOP/s"
    spent = found["warm-up_first_epoch_seconds"] - found["warm-up_epoch_seconds"]
    told += f". Compiling takes {spent:.0f} s of it"
    if "decoding_seconds" in found:
        told += f". A core decodes {found['decoded_per_second_and_core']:.0f} photographs a second;"
        told += f" kept bytes are read at {found['read_per_second']:,.0f}"
    return told + "."


@drawn
def draw_costs(table: pd.DataFrame) -> Figure:
    """Draw the milliseconds of loss and estimate on logarithmic axes."""
    apart = {"sharex": False, "sharey": False, **panel_size(3, 2.6)}
    grid = lines(table, ["patients", "ms"], COSTS, col="panel", **apart)
    grid.set(xscale="log", yscale="log").set_axis_labels("patients", "milliseconds")
    for ax in grid.axes.flat:
        low, high = np.log10(ax.get_ylim())
        ax.set_ylim(10 ** np.floor(low), 10 ** np.ceil(high))  # whole decades, which are labelled
    return legend_below(grid.figure, 4)


def fits_inside(records: dict[str, dict]) -> pd.DataFrame:
    """Return what more cards and bit-equal reruns do to the epochs of one fit."""
    parts = [
        pd.DataFrame(r["columns"])
        for r in records.values()
        if "epoch_seconds" in (r["columns"] or {})
    ]
    named = {
        "processes": "cards",
        "batch": "pairs a step",
        "compiled": "compiled",
        "deterministic": "deterministic",
        "images_per_second": "images a second",
    }
    table = pd.concat(parts)[list(named)].rename(columns=named)
    return table.groupby(list(table.columns[:-1]))["images a second"].max().reset_index()
