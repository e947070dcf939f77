"""One look for every picture of the book and of a report: colours with a fixed meaning, sizes, the
house style.

A function that draws takes data, returns a ``matplotlib.figure.Figure``, never fits anything, and
is decorated with `drawn`. Importing this module does not import matplotlib, which takes a second
and which the core does without.

Blue is the left eye and orange the right, and nothing else. Every method has one colour, marker and
line on all pages. The colours stay apart for deuteranopes, who are one in twenty men (a test
computes how far), and none is the only carrier of a meaning: `METHODS` gives a marker and a line
with it.
"""

from __future__ import annotations

import functools
import io
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLORS", "METHODS", "PAGE_WIDTH", "drawn", "mark_smoke", "new_figure", "png"]


class Look(NamedTuple):
    """How a method is drawn."""

    color: str
    marker: str
    line: str | tuple
    face: str | None = None  #: inside of the marker, where it is not the colour itself


INK = "#1a1a1a"

#: Meaning -> colour, of what is no method.
COLORS: dict[str, str] = {
    "left": "#0072B2",  # the left eye (OS) is domain 1
    "right": "#D55E00",  # the right eye (OD) is domain 2
    "OS": "#0072B2",
    "OD": "#D55E00",
    "both": "#117755",  # what the two eyes share
    "ink": INK,
    "grey": "#6f6f6f",  # 4.9 : 1 on white, so that thin text in it is still readable
    "light": "#D9D9D9",
}

#: Method -> colour, marker and line. "exact" is maximum likelihood, and the copula loss under its
#: estimate from held-out patients; "in-sample" is the same estimate from training patients; "paper"
#: is what the paper prints.
METHODS: dict[str, Look] = {
    "truth": Look(INK, "x", ":"),
    "paper": Look("#7a2936", "D", "-."),
    "reference": Look("#bdbdbd", ".", ":"),
    "empirical": Look("#8c8c8c", "X", "--"),
    "independence": Look("#665200", "d", "-."),
    "exact": Look("#3c1a70", "o", "-"),
    "in-sample": Look("#c58ae0", "v", (0, (3, 1))),
    "fmcem": Look("#b02a88", "s", "--"),
    "fmcem-variant": Look("#f87b92", "d", (0, (1, 1))),
    "em": Look("#29564f", "^", "-."),
    "mcmc": Look("#10a85a", "P", (0, (5, 1))),
    "posterior": Look("#8fa32a", "v", ":"),
}

PAGE_WIDTH = 7.2  #: inches; the text column of a page
_RC = {
    "figure.dpi": 200,  # of the parts of a vector drawing that are pixels
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.08,
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": COLORS["grey"],
    "axes.labelcolor": INK,
    "text.color": INK,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "axes.formatter.use_mathtext": True,
}


def drawn(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Decorate a function that returns a figure: the house style inside it, a finished figure
    outside.

    The decorated function takes two more arguments: ``note``, the state of a grid of fits such as
    ``37 of 50 folds`` (written above the figure where the grid has gaps), and ``smoke``, whether
    the figure shows no result. A record of a smoke run among the arguments marks the figure by
    itself.
    """

    @functools.wraps(draw)
    def finished(*data: Any, note: str = "", smoke: bool = False, **options: Any) -> Figure:
        import matplotlib.pyplot as plt

        records = [one for each in data for one in (each if isinstance(each, list) else [each])]
        smoke |= any(isinstance(r, dict) and r.get("scale") == "smoke" for r in records)
        with warnings.catch_warnings(), plt.style.context(["default", _RC]):
            # seaborn's grids lay themselves out first; the layout below replaces theirs
            warnings.filterwarnings("ignore", "The figure layout has changed")
            figure = draw(*data, **options)
            figure.set_layout_engine("constrained")
            if " of " in note:
                figure.suptitle(f"grid not complete: {note}", color=METHODS["paper"].color)
            if smoke:
                mark_smoke(figure)
            figure.draw_without_rendering()  # marks on the axes are made now, in this style
        plt.close(figure)
        _vector_figures()
        return figure

    return finished


def _vector_figures() -> None:
    """In a notebook, let figures be shown as vector drawings; equal figures are equal bytes."""
    ipython = sys.modules.get("IPython")
    if ipython and ipython.get_ipython():
        import matplotlib
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        matplotlib.rcParams["svg.hashsalt"] = "cevit"
        set_matplotlib_formats("svg", metadata={"Date": None})


def new_figure(
    height: float, rows: int = 1, columns: int = 1, *, width: float = PAGE_WIDTH, **subplots: Any
) -> tuple[Figure, Any]:
    """Figure and axes, sizes in inches, outside pyplot's state; ``subplots`` as in
    ``Figure.subplots``.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(rows, columns, **subplots)


def mark_smoke(figure: Figure) -> Figure:
    """Write across a figure that it comes from a smoke run, which tests the machinery and shows no
    result.
    """
    said = "smoke run: not a result"
    figure.text(
        0.5,
        0.5,
        said,
        fontsize=20,
        color=COLORS["grey"],
        alpha=0.45,
        rotation=25,
        ha="center",
        va="center",
        zorder=10,
    )
    return figure


def png(figure: Figure) -> bytes:
    """Return a figure as a picture of pixels, 1,080 across the page; equal figures are equal
    bytes.
    """
    from matplotlib import style

    stream = io.BytesIO()
    with style.context("default"):  # not a matplotlibrc of the current folder
        figure.savefig(stream, dpi=150, bbox_inches="tight", metadata={"Software": None})
    return stream.getvalue()
