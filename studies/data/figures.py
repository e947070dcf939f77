"""Pictures of the page on both eyes' axial length: they draw what the study's records hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cevit_lib.clinic.old_style import color, mark_smoke, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARMS = {
    "independence": ("independence", "empirical", "s", "--"),
    "eyes apart": ("eyes apart", "score", "d", "-."),
    "two steps": ("two steps", "exact", "v", ":"),
    "copula": ("copula", "copula", "o", "-"),
}
"""Arm -> label, colour, marker, line: the same in every picture."""
REGIONS = {
    "region": ("both lengths,\n90 % ellipse", 0.9, "region_area"),
    "difference": ("left minus right,\n95 %", 0.95, "difference_width"),
    "fellow": ("right, once left\nis known, 95 %", 0.95, "fellow_width"),
}
ANALYSES = {
    "complete patients": ("complete\npatients", "grey"),
    "all, independent": ("all,\nindependent", "empirical"),
    "all, copula": ("all,\ncopula", "copula"),
}


def _done(figure: Figure, *records: dict[str, Any]) -> Figure:
    return mark_smoke(figure) if any(record["scale"] == "smoke" for record in records) else figure


def plot_regions(
    record: dict[str, Any], arms: tuple[str, ...] = ("independence", "copula")
) -> Figure:
    """Draw what joint predictions cover, with patient-bootstrap intervals, and how large they are beside independence.

    Parameters
    ----------
    record : dict
        Of study ``axial-length``.
    arms : tuple of str
    """
    metrics = record["metrics"]
    with style():
        figure, (left, right) = new_figure("wide", columns=2)
        for k, arm in enumerate(arms):
            name, meaning, marker, _ = ARMS[arm]
            for place, (region, (_, _, size)) in enumerate(REGIONS.items()):
                at, found = place + 0.16 * (2 * k - len(arms) + 1), metrics["coverage"][arm][region]
                low, high = found["value"] - found["low"], found["high"] - found["value"]
                left.errorbar(
                    at,
                    found["value"],
                    [[low], [high]],
                    fmt=marker,
                    color=color(meaning),
                    capsize=3,
                    label=name if place == 0 else None,
                )
                share = metrics["arms"][arm][size] / metrics["arms"]["independence"][size]
                right.bar(at, share, 0.3, color=color(meaning), label=name if place == 0 else None)
                right.text(at, share + 0.02, f"{share:.2f}", ha="center", fontsize=8)
        for place, (_, nominal, _) in enumerate(REGIONS.values()):
            left.plot(
                [place - 0.42, place + 0.42],
                [nominal] * 2,
                ":",
                color=color("truth"),
                label="aimed at" if place == 0 else None,
            )
        for ax in (left, right):
            ax.set_xticks(
                range(len(REGIONS)), [text for text, _, _ in REGIONS.values()], fontsize=8
            )
        left.set(ylim=(0.75, 1.01), ylabel="share of patients covered")
        right.set(ylim=(0, 1.2), ylabel="size beside independence")
        left.legend(loc="lower right")
    return _done(figure, record)


def plot_gain(record: dict[str, Any]) -> Figure:
    """Draw the quantiles over patients of the log likelihood that the dependence buys."""
    gain = record["metrics"]["gain"]
    share, value = np.array(gain["probabilities"]), np.array(gain["quantiles"])
    with style():
        figure, ax = new_figure((5.6, 3.4))
        ax.axhline(0, color=color("grey"), linewidth=0.8)
        ax.plot(share, value, "o-", color=color("copula"))
        ax.axhline(
            gain["mean"]["value"],
            color=color("ink"),
            linestyle="--",
            linewidth=1,
            label=f"mean {gain['mean']['value']:.2f}",
        )
        ax.axhline(
            gain["mean_without_extreme"],
            color=color("grey"),
            linestyle=":",
            label=f"mean without the most extreme patient {gain['mean_without_extreme']:.2f}",
        )
        ax.set_yscale("symlog", linthresh=5)
        ax.set(
            xlabel="share of patients",
            ylabel="gain in log likelihood",
            yticks=[-100, -10, -4, -2, 0, 2, 4, 10],
        )
        ax.set_yticklabels(["-100", "-10", "-4", "-2", "0", "2", "4", "10"])
        ax.minorticks_off()
        ax.legend(loc="lower right")
    return _done(figure, record)


def plot_joint(record: dict[str, Any], levels: tuple[float, ...]) -> Figure:
    """Draw how often the four responses fall into the model's most probable region, against its nominal probability."""
    with style():
        figure, ax = new_figure((4.6, 4.0))
        ax.plot(
            [0, 1], [0, 1], color=color("truth"), linestyle=":", linewidth=1, label="right model"
        )
        for arm in ("independence", "copula"):
            name, meaning, marker, line = ARMS[arm]
            ax.plot(
                levels,
                record["metrics"]["joint"][arm]["observed"],
                line,
                marker=marker,
                color=color(meaning),
                label=name,
            )
        ax.set(
            xlabel="nominal probability of the region",
            ylabel="share of patients inside",
            xlim=(0, 1),
            ylim=(0, 1),
        )
        ax.legend(loc="lower right")
    return _done(figure, record)


def plot_patient_calibration(record: dict[str, Any]) -> Figure:
    """Draw calibration curves of the two answers about a patient, with Wilson's intervals."""
    with style():
        figure, axes = new_figure("wide", columns=2, sharex=True, sharey=True)
        for ax, level in zip(axes, ("any", "both"), strict=True):
            ax.plot([0, 0.8], [0, 0.8], color=color("truth"), linestyle=":", linewidth=1)
            for arm in ("independence", "copula"):
                name, meaning, marker, line = ARMS[arm]
                curve = {
                    key: np.array(values)
                    for key, values in record["metrics"]["calibration"][arm][level]["curve"].items()
                }
                bars = [curve["observed"] - curve["low"], curve["high"] - curve["observed"]]
                ax.errorbar(
                    curve["predicted"],
                    curve["observed"],
                    bars,
                    marker=marker,
                    linestyle=line,
                    capsize=3,
                    color=color(meaning),
                    label=name,
                )
            ax.set_title({"any": "at least one eye myopic", "both": "both eyes myopic"}[level])
            ax.set_xlabel("predicted probability")
        axes[0].set_ylabel("share observed")
        axes[0].legend(loc="upper left")
    return _done(figure, record)


def plot_thresholds(
    record: dict[str, Any], continuous: dict[str, Any], drop: float = 1.92
) -> Figure:
    """Draw the estimate of ``rho_34`` for each limit of myopia, and the labels' profile likelihood for two limits.

    Parameters
    ----------
    record : dict
        Of study ``axial-length-thresholds``.
    continuous : dict
        The same fit to the refraction in dioptres, for the line of reference.
    drop : float
        By how much the log likelihood falls at the ends of a 95 % interval.
    """
    limits = list(record["metrics"])
    with style():
        figure, (left, right) = new_figure("wide", columns=2)
        reference = continuous["correlation"][2][3]
        left.axhline(
            reference, color=color("truth"), linestyle=":", label=f"in dioptres {reference:.2f}"
        )
        for place, limit in enumerate(limits):
            _one_limit(left, place, record["metrics"][limit])
        left.set_xticks(range(len(limits)), limits)
        left.set(
            xlabel="limit of myopia (D)", ylim=(0, 1.3), ylabel=r"estimate of $\rho_{34}$, 95 %"
        )
        left.set_title("patients positive in both eyes / in one eye", fontsize=9)
        left.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
        left.legend(loc="lower left")
        for limit, (meaning, line) in zip(
            ("-0.5", "-6"), (("copula", "-"), ("exact", "--")), strict=True
        ):
            values = np.array(record["metrics"].get(limit, {}).get("profile") or [np.nan])
            if np.isfinite(values).all():
                right.plot(
                    record["configuration"]["grid"],
                    values - values.max(),
                    line,
                    color=color(meaning),
                    label=f"{limit} D",
                )
        right.axhline(-drop, color=color("grey"), linestyle=":", linewidth=1)
        right.text(-0.95, -drop + 0.15, "95 % interval above this line", fontsize=8)
        right.set(
            ylim=(-8, 0.8),
            xlim=(-1, 1),
            xlabel=r"$\rho_{34}$",
            ylabel="profile log likelihood of the labels",
        )
        right.legend(loc="center left", bbox_to_anchor=(0.0, 0.45))
    return _done(figure, record)


def _one_limit(ax: Any, place: int, found: dict[str, Any]) -> None:
    one = found["left only"] + found["right only"]
    ax.text(place, 1.2, f"{found['both']}\n{one}", ha="center", va="center", fontsize=8)
    if found["estimate"] is None:
        return
    value, error = (found["estimate"][key] for key in ("correlation", "errors"))
    value, error = (
        value[2][3],
        (error["correlation"][2][3] if error["correlation"][2][3] is not None else np.nan),
    )
    if np.isfinite(error):
        ends = [min(1.96 * error, value), min(1.96 * error, 1 - value)]
        ax.errorbar(place, value, [[ends[0]], [ends[1]]], fmt="o", color=color("copula"), capsize=3)
    else:
        ax.plot(place, value, "x", color=color("paper"), markersize=9, label="singular, no error")


def plot_update(
    lengths: np.ndarray, curves: dict[str, tuple[np.ndarray, ...]], scale: str
) -> Figure:
    """Draw what the right eye's predictions become as the left eye is measured.

    Parameters
    ----------
    lengths : array, shape (k,)
        Left eye's length (mm).
    curves : dict
        What is known of the left label -> mean and SD (mm) of the right length and probability of its label, each (k,).
    scale : str
        Of the record whose parameters were used.
    """
    looks = {
        "left not myopic": ("negative", "--"),
        "left label unknown": ("grey", ":"),
        "left myopic": ("positive", "-"),
    }
    with style():
        figure, (left, right) = new_figure("wide", columns=2)
        mean, sd, _ = curves["left label unknown"]
        left.fill_between(
            lengths, mean - 1.96 * sd, mean + 1.96 * sd, color=color("light"), label="95 %"
        )
        left.plot(
            lengths, lengths, color=color("truth"), linestyle=":", linewidth=1, label="equal eyes"
        )
        for name, (mean, _, probability) in curves.items():
            meaning, line = looks[name]
            left.plot(lengths, mean, line, color=color(meaning))
            right.plot(lengths, probability, line, color=color(meaning), label=name)
        left.set(xlabel="left eye's axial length (mm)", ylabel="right eye's axial length (mm)")
        right.set(
            xlabel="left eye's axial length (mm)",
            ylabel="probability that the right eye is myopic",
            ylim=(0, 1),
        )
        left.legend(loc="upper left")
        right.legend(loc="center left", bbox_to_anchor=(0.0, 0.62))
    return mark_smoke(figure) if scale == "smoke" else figure


def plot_missing(record: dict[str, Any]) -> Figure:
    """Draw the error of the mean right length, and of lengths filled in, when responses are deleted on purpose."""
    deleted = record["metrics"]["deleted"]
    panels = {
        "bias": "mean right length minus truth (mm)",
        "imputed_error": "mean error of deleted lengths (mm)",
    }
    with style():
        figure, axes = new_figure("wide", columns=2)
        for ax, (quantity, title) in zip(axes, panels.items(), strict=True):
            for k, (mechanism, marker) in enumerate((("at random", "o"), ("by the left eye", "s"))):
                for place, (analysis, (_, meaning)) in enumerate(ANALYSES.items()):
                    found = deleted[f"{mechanism}:{analysis}:{quantity}"]
                    ax.errorbar(
                        place + 0.2 * (2 * k - 1),
                        found["mean"],
                        found["sd"],
                        fmt=marker,
                        capsize=3,
                        color=color(meaning),
                        label=f"deleted {mechanism}" if place == 2 else None,
                    )
            ax.axhline(0, color=color("truth"), linestyle=":", linewidth=1)
            ax.set_xticks(range(3), [text for text, _ in ANALYSES.values()])
            ax.set_xlim(-0.5, 2.5)
            ax.set_ylabel(title)
        axes[0].legend(loc="center", bbox_to_anchor=(0.55, 0.6))
    return _done(figure, record)
