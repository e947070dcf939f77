"""Figures of "CeViT, line by line": the architecture, what alpha does, where the class token looks, eyes on a plane."""

import io

import numpy as np

from cevit_lib.clinic.old_style import color, mark_smoke, new_figure, style

EYES = {"OS": "left", "OD": "right"}
_DARK = "#1a1a1a"


def as_svg(figure):
    """Return the figure as a vector drawing for a page; text becomes outlines, so that every reader sees the same."""
    from IPython.display import SVG

    with style(svg__fonttype="path"):
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return SVG(stream.getvalue())


def architecture(layers: int = 12, width: int = 768, tokens: int = 197):
    """Draw the bi-channel encoder: green parts are shared, blue ones belong to the left eye, orange ones to the right.

    Parameters
    ----------
    layers, width, tokens : int
        What the labels say.
    """
    with style():
        figure, ax = new_figure((7.2, 5.4))
        ax.set(xlim=(0, 100), ylim=(0, 76))
        ax.axis("off")
        for eye, x in (("left", 22), ("right", 78)):
            name = "left eye (OS)" if eye == "left" else "right eye (OD)"
            _box(ax, x, 4, 22, 6, f"image, {name}", color(eye))
            _arrow(ax, (x, 7), (50 - 14 if eye == "left" else 50 + 14, 13.5), color(eye))
        _box(
            ax,
            50,
            17,
            46,
            7,
            f"patches, class token, positions: {tokens} tokens of {width}",
            color("both"),
        )
        ax.add_patch(_rounded(50, 41, 94, 33, "none", color("grey"), "--"))
        ax.text(4.5, 55.2, f"one of {layers} blocks", fontsize=9, color=color("grey"))
        _box(ax, 50, 32, 46, 7, "norm, self-attention with LoRA, + residual", color("both"))
        _box(ax, 50, 43, 30, 7, "norm, MLP with LoRA", color("both"))
        _box(ax, 16, 43, 20, 9, "adapter of the left eye\n$\\alpha_1 A_{l1}$", color("left"))
        _box(ax, 84, 43, 20, 9, "adapter of the right eye\n$\\alpha_2 A_{l2}$", color("right"))
        _box(ax, 50, 53, 28, 5, "residual + MLP + adapter", color("grey"))
        _arrow(ax, (50, 20.5), (50, 28.5), _DARK)
        _arrow(ax, (50, 35.5), (50, 39.5), _DARK)
        _arrow(ax, (50, 46.5), (50, 50.5), _DARK)
        for eye, x, side in (("left", 16, -1), ("right", 84, 1)):
            _arrow(ax, (50 + side * 23, 34), (x, 38.5), color(eye))
            _arrow(ax, (x, 47.5), (50 + side * 14.5, 53), color(eye))
            _box(ax, 50 + side * 28, 67, 40, 7, _heads(eye), color(eye))
            _arrow(ax, (50 + side * 2, 55.5), (50 + side * 22, 63.5), color(eye))
        ax.text(
            50, 60.2, "class tokens $h_1, h_2$", fontsize=9, ha="center", va="bottom", color=_DARK
        )
    return figure


def _heads(eye: str) -> str:
    one, two = ("1", "3") if eye == "left" else ("2", "4")
    return f"heads $\\beta_{one}$ (continuous), $\\beta_{two}$ (binary)"


def _rounded(x, y, w, h, face, edge, line="-"):
    from matplotlib.patches import FancyBboxPatch

    return FancyBboxPatch(
        (x - w / 2, y - h / 2),
        w,
        h,
        boxstyle="round,pad=0.2,rounding_size=1.2",
        facecolor=face,
        edgecolor=edge,
        linestyle=line,
        linewidth=1.3,
    )


def _box(ax, x, y, w, h, label, edge):
    from matplotlib.colors import to_rgba

    ax.add_patch(_rounded(x, y, w, h, to_rgba(edge, 0.13), edge))
    ax.text(x, y, label, ha="center", va="center", fontsize=8.5, color=_DARK)


def _arrow(ax, start, end, ink):
    ax.annotate(
        "",
        end,
        start,
        arrowprops={"arrowstyle": "-|>", "color": ink, "lw": 1.3, "shrinkA": 0, "shrinkB": 0},
    )


def alpha_effect(logits, distance, same):
    """Draw how far the class tokens of one photograph, fed to both eyes, part as alpha grows.

    Parameters
    ----------
    logits : array (m,)
        Values of ``alpha~`` of both eyes.
    distance : array (m,)
        Norm of the difference of the tokens, relative to their size.
    same : array (m,)
        The same after the second layers were divided by ``alpha``.
    """
    with style():
        figure, (left, right) = new_figure("wide", columns=2)
        alpha = 1 / (1 + np.exp(-np.asarray(logits)))
        dense = np.linspace(min(logits), max(logits), 101)
        left.plot(dense, 1 / (1 + np.exp(-dense)), color=color("ink"))
        left.axhline(0.1, color=color("grey"), ls="--", lw=1)
        left.text(
            max(logits),
            0.12,
            "the earlier code's fixed 0.1",
            fontsize=8,
            color=color("grey"),
            ha="right",
        )
        left.set(
            xlabel=r"$\tilde\alpha$, which trains", ylabel=r"$\alpha = \mathcal{S}(\tilde\alpha)$"
        )
        right.plot(alpha, distance, marker="o", label="adapters kept", color=color("right"))
        right.plot(
            alpha,
            same,
            marker="s",
            ls="--",
            label=r"$V_2, d_2$ divided by $\alpha$",
            color=color("left"),
        )
        right.set(
            xlabel=r"$\alpha$ of both eyes",
            ylabel="distance of the two tokens, relative",
            ylim=(0, None),
        )
        right.legend()
    return figure


def attention(grids, titles, smoke: bool = False):
    """Draw grids of attention weights, one row an eye, one column a head; all panels share their colours.

    The colours follow the square root, so that the even share stays visible beside a peak of forty times as much.

    Parameters
    ----------
    grids : array (2, heads, rows, columns)
        Weights of the class token in one layer, left eye first.
    titles : sequence of str
        One for each head.
    """
    from matplotlib.colors import PowerNorm

    grids = np.asarray(grids, dtype=float)
    with style(axes__grid=False):
        figure, axes = new_figure((7.2, 2.9), 2, grids.shape[1], squeeze=False)
        even = 1 / grids[0, 0].size
        top = max(grids.max() / even, 2.0)
        for j, eye in enumerate(EYES):
            for s, ax in enumerate(axes[j]):
                picture = ax.imshow(grids[j, s] / even, norm=PowerNorm(0.5, 0, top))
                ax.set(xticks=[], yticks=[])
                for spine in ax.spines.values():
                    spine.set_visible(False)
                if j == 0:
                    ax.set_title(titles[s], fontsize=9)
            axes[j, 0].set_ylabel(eye, color=color(eye), fontweight="bold")
        figure.colorbar(picture, ax=axes, shrink=0.8, label="times the even share")
    return mark_smoke(figure) if smoke else figure


def eyes_on_a_plane(record, views=("as photographed", "left mirrored")):
    """Contours of the density of t-SNE coordinates, one column an eye, one row a view.

    Parameters
    ----------
    record : dict
        Of the study "embedding".
    views : sequence of str
        Beginnings of the record's columns.
    """
    with style(axes__grid=False):
        figure, axes = new_figure(
            (7.2, 2.9 * len(views)), len(views), 2, squeeze=False, sharex="row", sharey="row"
        )
        for row, view in zip(axes, views, strict=True):
            eye, _, points = _columns(record, view)
            for ax, (name, meaning) in zip(row, EYES.items(), strict=True):
                _contours(ax, points[eye == name], points, color(meaning), name)
                ax.set_title(
                    f"{name}, {view}" if name == "OS" or "left" not in view else f"{name}, as it is"
                )
    return mark_smoke(figure) if record["scale"] == "smoke" else figure


def eyes_by_class(record, view: str = "left mirrored"):
    """Contours of both eyes together, one panel a class of the binary response; eyes of test patients have a rim."""
    eye, binary, points = _columns(record, view)
    test = np.array(record["columns"].get("test", np.zeros(len(eye))), dtype=bool)
    with style(axes__grid=False):
        figure, axes = new_figure("wide", columns=2, sharex=True, sharey=True)
        for ax, value, title in zip(
            axes, (0, 1), ("field 22 dB or more", "field below 22 dB"), strict=True
        ):
            for name, meaning in EYES.items():
                own = (eye == name) & (binary == value)
                _contours(ax, points[own], points, color(meaning), name)
                if test.any():
                    ax.plot(
                        *points[own & test].T,
                        "o" if name == "OS" else "s",
                        ms=5.5,
                        mfc=color(meaning),
                        mec="black",
                        mew=1.2,
                        label=f"of these, test ({(own & test).sum()})",
                    )
            ax.set_title(title)
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, frameon=False)
    return mark_smoke(figure) if record["scale"] == "smoke" else figure


def _columns(record, view):
    """Eye, binary response and coordinates ``(n, 2)`` of all eyes of a record."""
    columns = record["columns"]
    points = np.stack([columns[f"{view}: first"], columns[f"{view}: second"]], axis=1).astype(float)
    return np.array(columns["eye"]), np.array(columns["binary"], dtype=float), points


def _contours(ax, points, everything, ink, label):
    """Points and the contours of their kernel density, drawn over the range of all points."""
    from scipy.stats import gaussian_kde

    low, high = everything.min(0), everything.max(0)
    pad = 0.15 * (high - low)
    x, y = np.meshgrid(
        *(np.linspace(a - p, b + p, 90) for a, b, p in zip(low, high, pad, strict=True))
    )
    density = gaussian_kde(points.T)(np.stack([x.ravel(), y.ravel()])).reshape(x.shape)
    marker = "o" if label == "OS" else "s"
    ax.plot(*points.T, marker, ms=2.6, alpha=0.55, color=ink, label=f"{label} ({len(points)})")
    ax.contour(
        x,
        y,
        density,
        levels=density.max() * np.array([0.15, 0.35, 0.55, 0.75, 0.95]),
        colors=[ink],
        linewidths=1.1,
        linestyles="-" if label == "OS" else "--",
    )
    ax.set(xticks=[], yticks=[], xlabel="first coordinate", ylabel="second coordinate")
