"""Figures of the pages on data and fit: a pair of images, two eyes of a patient, splits, traces, arms, cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cevit_lib.clinic.old_style import color, mark_smoke, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELLS = (
    "neither",
    "right only",
    "left only",
    "both",
)  # joint probabilities in the order 00, 01, 10, 11


def plot_pair(images: np.ndarray, *, zoom: int = 12) -> Figure:
    """Draw one synthetic pair, and the corner that the responses read.

    Parameters
    ----------
    images : array, shape (2, height, width)
        Left eye, then right eye.
    zoom : int
        How many rows and columns of the left eye the third panel shows.
    """
    from matplotlib.patches import Rectangle

    with style(axes__grid=False):
        figure, axes = new_figure("wide", columns=3)
        for panel, (image, name) in enumerate(
            zip((*images, images[0][:zoom, :zoom]), ("OS", "OD", "OS"), strict=True)
        ):
            ax = axes[panel]
            ax.grid(False)
            ax.imshow(image, vmin=-2.2, vmax=2.2)
            ax.set_xticks([])
            ax.set_yticks([])
            corner = panel == 2
            ax.set_title(f"{name}, first {zoom} pixels" if corner else f"{name}, 72 x 72 pixels")
            if not corner:
                ax.add_patch(
                    Rectangle((47.5, 47.5), 24, 24, fill=False, edgecolor="white", linewidth=1.5)
                )
                ax.text(
                    59.5,
                    45.5,
                    "block (3, 3)",
                    ha="center",
                    color="white",
                    fontsize=8,
                    weight="bold",
                )
            for k in range(3):
                box = Rectangle(
                    (3 * k - 0.5, 3 * k - 0.5),
                    3,
                    3,
                    fill=False,
                    edgecolor=color("right"),
                    linewidth=1.8,
                )
                ax.add_patch(box)
                if corner:
                    label = f"$\\Omega_{k + 1}$"
                    ax.text(
                        3 * k + 3.0,
                        3 * k + 1.3,
                        label,
                        fontsize=10,
                        bbox={"facecolor": "white", "pad": 1.5, "alpha": 0.9, "lw": 0},
                    )
    return figure


def plot_two_eyes(panels: list[tuple[str, np.ndarray]], unit: str = "") -> Figure:
    """Scatter the right eye against the left eye, one panel per quantity, with the correlation written in.

    Parameters
    ----------
    panels : list of (title, array of shape (n, 2))
        Left eye in the first column.
    unit : str
        Of both axes.
    """
    with style():
        figure, axes = new_figure("wide", columns=len(panels), squeeze=False)
        for ax, (title, pairs) in zip(axes[0], panels, strict=True):
            pairs = pairs[np.isfinite(pairs).all(1)]
            low, high = pairs.min(), pairs.max()
            ax.plot([low, high], [low, high], color=color("light"), linewidth=1)
            ax.scatter(
                pairs[:, 0],
                pairs[:, 1],
                s=10 if len(pairs) < 500 else 4,
                color=color("both"),
                alpha=0.5,
                linewidths=0,
            )
            ax.set_xlabel(f"left eye (OS){unit}")
            ax.set_ylabel(f"right eye (OD){unit}")
            ax.set_title(f"{title}, correlation {np.corrcoef(pairs.T)[0, 1]:.2f}")
            ax.set_aspect("equal", "datalim")
    return figure


def plot_splits(by_eye: np.ndarray, by_patient: np.ndarray) -> Figure:
    """Show which fold each eye falls into, once with eyes and once with patients divided at random.

    Parameters
    ----------
    by_eye, by_patient : integer array, shape (patients, 2)
        Fold of each eye.
    """
    from matplotlib.colors import ListedColormap

    with style(axes__grid=False):
        figure, axes = new_figure((7.2, 2.6), rows=2)
        shades = ListedColormap(["#0072B2", "#E8E8E8", "#C9C9C9", "#AAAAAA", "#8C8C8C"])
        for ax, folds, title in zip(
            axes, (by_eye, by_patient), ("eyes divided", "patients divided"), strict=True
        ):
            ax.imshow(folds.T, cmap=shades, aspect="auto", vmin=0, vmax=4)
            cut = int((folds[:, 0] != folds[:, 1]).sum())
            ax.set_title(
                f"{title} at random: {cut} of {len(folds)} patients lie in two folds (test fold in blue)"
            )
            ax.set_yticks([0, 1], ["OS", "OD"])
            ax.set_xticks([])
            ax.set_xticks(np.arange(len(folds)) - 0.5, minor=True)
            ax.grid(False)
            ax.grid(which="minor", axis="x", color="white", linewidth=1.5)
            ax.tick_params(which="minor", length=0)
        axes[1].set_xlabel("patients")
    return figure


def plot_trace(record: dict[str, Any]) -> Figure:
    """Draw training and held-out loss by epoch of the warm-up, and of both continuations from it."""
    stages: dict[str, list[dict]] = {}
    for entry in record["trace"]:
        stages.setdefault(entry["stage"], []).append(entry)
    warm = len(stages["warm-up"])
    names = [name for name in stages if name != "warm-up"]
    with style():
        figure, axes = new_figure("wide", columns=2)
        _losses(axes[0], stages["warm-up"], 0, "empirical", "")
        axes[0].set_title("step 1, warm-up: empirical loss")
        for name in names:
            kind = "copula" if name == "copula" else "empirical"
            _losses(axes[1], stages[name], warm, kind, f"{kind} loss, ")
        axes[1].set_title("from the same warm-up: two losses, two scales")
        for ax in axes:
            ax.set_xlabel("epoch")
            ax.set_ylabel("mean loss per patient")
            ax.xaxis.get_major_locator().set_params(integer=True)
            low, high = ax.get_ylim()
            ax.set_ylim(low, high + 0.4 * (high - low))  # room for the legend
            ax.legend(loc="upper right")
    return mark_smoke(figure) if record["scale"] == "smoke" else figure


def plot_arms(records: list[dict[str, Any]], metrics: dict[str, str]) -> Figure:
    """Draw one point per fold and arm, folds joined by lines, one panel per metric.

    Parameters
    ----------
    records : list
        One record a fold.
    metrics : dict
        Name of a metric in the records -> title of its panel.
    """
    arms = list(records[0]["metrics"])
    with style():
        figure, axes = new_figure("wide", columns=len(metrics), squeeze=False)
        for ax, (metric, title) in zip(axes[0], metrics.items(), strict=True):
            values = np.array(
                [[_number(r["metrics"][arm]["values"][metric]) for arm in arms] for r in records]
            )
            ax.plot(values.T, color=color("light"), linewidth=1)
            ax.plot(values.T, "o", color=color("grey"), markersize=3.5)
            ax.plot(
                np.nanmean(values, axis=0),
                "D",
                color=color("copula"),
                markersize=7,
                label="mean of folds",
            )
            ax.set_xticks(range(len(arms)), [arm.replace(", ", ",\n") for arm in arms])
            ax.set_xlim(-0.4, len(arms) - 0.6)
            ax.set_title(title)
        axes[0][0].legend()
    return mark_smoke(figure) if records[0]["scale"] == "smoke" else figure


def plot_correlation(panels: list[tuple[str, np.ndarray]], names: list[str]) -> Figure:
    """Draw correlation matrices side by side as heat maps with their numbers.

    Parameters
    ----------
    panels : list of (title, (p, p) array)
    names : list of str
        Of the ``p`` responses.
    """
    with style(axes__grid=False):
        figure, axes = new_figure("wide", columns=len(panels), squeeze=False)
        for ax, (title, matrix) in zip(axes[0], panels, strict=True):
            ax.grid(False)
            ax.imshow(matrix, vmin=-1, vmax=1, cmap="PuOr")
            for i in range(len(matrix)):
                for j in range(len(matrix)):
                    ink = "white" if abs(matrix[i, j]) > 0.75 else "black"
                    ax.text(
                        j, i, f"{matrix[i, j]:.2f}", ha="center", va="center", color=ink, fontsize=9
                    )
            ax.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
            ax.set_yticks(range(len(names)), names)
            ax.set_title(title)
    return figure


def plot_cells(
    joint: np.ndarray, independent: np.ndarray, ids: list[str], observed: list[str]
) -> Figure:
    """Draw the four joint probabilities of some patients, by the copula and by independence with the same margins.

    Parameters
    ----------
    joint, independent : array, shape (k, 4)
        Probabilities of 00, 01, 10 and 11.
    ids, observed : list of str
        Patients, and the cell that was observed.
    """
    with style():
        figure, axes = new_figure("wide", columns=len(ids), sharey=True)
        place = np.arange(4)
        for ax, with_copula, without, name, seen in zip(
            np.atleast_1d(axes), joint, independent, ids, observed, strict=True
        ):
            ax.bar(place - 0.2, without, 0.38, color=color("empirical"), label="independent")
            ax.bar(place + 0.2, with_copula, 0.38, color=color("copula"), label="copula")
            ax.set_xticks(place, [cell.replace(" ", "\n") for cell in CELLS])
            ax.set_title(f"patient {name}\nobserved: {seen}")
        np.atleast_1d(axes)[0].set_ylabel("probability")
        np.atleast_1d(axes)[0].legend()
    return figure


def _losses(ax: Any, entries: list[dict], before: int, kind: str, prefix: str) -> None:
    epochs = [before + k + 1 for k in range(len(entries))]
    ax.plot(
        epochs, [entry["loss"] for entry in entries], color=color(kind), label=f"{prefix}training"
    )
    held = [_number(entry.get("validation_loss")) for entry in entries]
    if np.isfinite(held).any():
        ax.plot(epochs, held, color=color(kind), linestyle="--", label=f"{prefix}held out")


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
