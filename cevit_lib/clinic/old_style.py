"""One look for every picture of the book.

The functions that draw live in the modules of this package; they take data or records, return a
``matplotlib.figure.Figure``, and never fit anything. This file holds what they share: colours with a fixed
meaning, sizes, and the style context. ``import cevit_lib.clinic.style`` does not import matplotlib.

The eight colours are those of Okabe and Ito, which stay apart for the common kinds of colour blindness. A colour
is never the only carrier of a meaning: pair it with `MARKERS`, `LINES` or a direct label.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # matplotlib takes a second to import and the core installs without it
    from matplotlib.figure import Figure

__all__ = [
    "COLORS",
    "LINES",
    "MARKERS",
    "SIZES",
    "PAGE_WIDTH",
    "DPI",
    "color",
    "mark_smoke",
    "new_figure",
    "save",
    "style",
]

INK = "#1a1a1a"
GREY = "#6f6f6f"  # 4.9 : 1 on white, so that thin text in it is still readable

#: Meaning -> colour. Use the meaning in plot functions, never a hex code.
COLORS: dict[str, str] = {
    # eyes: the left eye (OS) is domain 1, the right eye (OD) domain 2
    "left": "#0072B2",
    "right": "#D55E00",
    "both": "#117755",
    # where a number comes from
    "truth": INK,
    "paper": "#A34A79",
    "ours": "#0072B2",
    # losses and encoders
    "empirical": GREY,
    "copula": "#D55E00",
    # estimators
    "exact": "#0072B2",
    "fmcem": "#D55E00",
    "mcem": "#009E73",
    "likelihood": "#A34A79",
    "rank": "#B07A00",
    "score": "#3B8FBF",
    # the two classes of a binary response
    "negative": "#0072B2",
    "positive": "#D55E00",
    # supporting matter
    "ink": INK,
    "grey": GREY,
    "light": "#D9D9D9",
}
COLORS |= {"OS": COLORS["left"], "OD": COLORS["right"]}

#: Meaning -> marker, so that a picture printed in grey can still be read.
MARKERS: dict[str, str] = {
    "left": "o",
    "right": "s",
    "OS": "o",
    "OD": "s",
    "truth": "x",
    "paper": "D",
    "ours": "o",
    "empirical": "s",
    "copula": "o",
    "exact": "o",
    "fmcem": "s",
    "mcem": "^",
    "likelihood": "v",
    "rank": "P",
    "score": "d",
}

#: Meaning -> line style.
LINES: dict[str, str | tuple] = {
    "left": "-",
    "right": "--",
    "OS": "-",
    "OD": "--",
    "truth": ":",
    "paper": "-.",
    "ours": "-",
    "empirical": "--",
    "copula": "-",
    "exact": "-",
    "fmcem": "--",
    "mcem": "-.",
    "likelihood": ":",
    "rank": (0, (5, 1)),
    "score": (0, (1, 1)),
}

PAGE_WIDTH = 7.2  #: inches; the text column of a page
DPI = 110  #: dots per inch on a page: sharp at column width, well below 200 KB a figure
#: Name -> (width, height) in inches.
SIZES: dict[str, tuple[float, float]] = {
    "single": (4.6, 3.4),
    "wide": (PAGE_WIDTH, 3.2),
    "tall": (PAGE_WIDTH, 5.6),
    "square": (4.6, 4.6),
}

_RC = {
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "text.color": INK,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.frameon": False,
    "image.cmap": "cividis",  # even in lightness, and the same to every kind of colour vision
    "svg.fonttype": "none",
    "axes.formatter.use_mathtext": True,
}
_CYCLE = ["#0072B2", "#D55E00", "#009E73", "#A34A79", "#B07A00", "#56B4E9", INK]


def color(meaning: str) -> str:
    """Colour of a meaning (``color("left")``); an unknown meaning is an error that lists the known ones.

    Raises
    ------
    KeyError
        No colour has been given to this meaning.
    """
    if meaning not in COLORS:
        raise KeyError(f"no colour is defined for {meaning!r}; known: {', '.join(sorted(COLORS))}")
    return COLORS[meaning]


@contextlib.contextmanager
def style(**changes: object) -> Iterator[None]:
    """Context in which figures have the book's look.

    Parameters
    ----------
    **changes
        Further matplotlib settings, dots written as two underscores: ``style(axes__grid=False)``.

    Examples
    --------
    >>> with style():                                                  # doctest: +SKIP
    ...     figure, axes = new_figure("wide", columns=2)
    """
    import matplotlib
    from cycler import cycler

    settings = {**_RC, "axes.prop_cycle": cycler(color=_CYCLE)}
    settings |= {name.replace("__", "."): value for name, value in changes.items()}
    with matplotlib.rc_context(settings):
        yield


def new_figure(
    size: str | tuple[float, float] = "single", rows: int = 1, columns: int = 1, **subplots: object
):
    """Figure and axes in the book's look, outside pyplot's state, so that a loop of figures leaves none open.

    Parameters
    ----------
    size : str or (float, float)
        A name of `SIZES`, or inches.
    rows, columns : int
        Panels; passed to ``Figure.subplots`` together with ``subplots`` (``sharey=True`` and the like).

    Returns
    -------
    figure : matplotlib.figure.Figure
    axes : matplotlib.axes.Axes or numpy.ndarray of them
    """
    with style():
        figure = _book_figure()(figsize=SIZES[size] if isinstance(size, str) else size)
        axes = figure.subplots(rows, columns, **subplots)
    return figure, axes


@functools.cache
def _book_figure() -> type[Figure]:
    """The figure's class; made on first use, because it needs matplotlib."""
    from matplotlib.figure import Figure

    class BookFigure(Figure):
        """A figure that a notebook shows by itself: without pyplot, Jupyter would print only its size."""

        def _repr_png_(self) -> bytes:
            stream = io.BytesIO()
            with style():
                self.savefig(stream, format="png", bbox_inches="tight", metadata={"Software": None})
            return stream.getvalue()

        def _repr_html_(self) -> None:
            """Leave the choice of format to the page."""

    return BookFigure


def mark_smoke(figure: Figure) -> Figure:
    """Write across a figure that it comes from a smoke run, which tests the machinery and shows no result."""
    figure.text(
        0.5,
        0.5,
        "smoke run: not a result",
        rotation=25,
        ha="center",
        va="center",
        fontsize=20,
        color=GREY,
        alpha=0.45,
        zorder=10,
    )
    return figure


def save(figure: Figure, path: str | Path, **options: object) -> Path:
    """Write a figure with the book's settings; no time stamp is kept, so that equal figures are equal files."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if path.suffix in {".svg", ".pdf"} else {"Software": None}
    if path.suffix == ".pdf":
        metadata = {"CreationDate": None}
    with style():
        figure.savefig(path, bbox_inches="tight", metadata=metadata, **options)
    return path
