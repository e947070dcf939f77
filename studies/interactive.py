"""Figures that a reader can move: a static picture, and above it, where scripts run, an SVG with
controls.

A `MovingFigure` is HTML with everything inside: no request, no kernel, no library. Where scripts do
not run, and on paper, the static picture is seen. The tests compare the mathematics of
``interactive.js`` with `cevit_lib.copula`.
"""

import base64
import json
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files

import numpy as np
import torch
from IPython.core.pylabtools import print_figure
from matplotlib.figure import Figure
from scipy.stats import norm

from cevit_lib.clinic.style import COLORS, METHODS, drawn, new_figure
from cevit_lib.copula import CopulaParameters, condition_on
from cevit_lib.datasets.synthetic import TEXT_CORRELATION
from studies.estimation.figures import e_step_figure
from studies.overview import four_cells
from studies.theory.gain import gain

CORRELATION = TEXT_CORRELATION.tolist()  # JSON for the page
CHANCES = [0.35, 0.45]  # of high myopia, left and right

_STYLE = """<style>
.cevit-moving { max-width: 34rem; margin: 0 auto; background: #fff; color: #1a1a1a; }
.cevit-moving { padding: 0.5rem; text-align: left; }
html[data-theme="dark"] .cevit-moving.moves { background: transparent; color: #e0e0e0; }
.cevit-moving .live { display: none; }
.cevit-moving.moves .live { display: block; }
.cevit-moving.moves > img { display: none; }
.cevit-moving label { display: flex; flex-wrap: wrap; gap: 0.6rem; align-items: center; }
.cevit-moving label { font-size: 0.9em; margin: 0.2rem 0; }
.cevit-moving label > span { flex: 0 1 15rem; }
.cevit-moving input { flex: 1 1 8rem; min-width: 6rem; }
@media (max-width: 600px) { .cevit-moving label > span { flex: 1 0 100%; } }
@media (max-width: 600px) { .cevit-moving label { gap: 0 0.6rem; } }
.cevit-moving svg { width: 100%; max-width: 25rem; height: auto; display: block; }
.cevit-moving svg { margin: 0 auto; font-size: 13px; }
.cevit-moving svg text { fill: currentColor; }
.cevit-moving .told { font-size: 0.9em; margin: 0.3rem 0 0; }
@media print { .cevit-moving.moves .live { display: none; } }
@media print { .cevit-moving.moves > img { display: block; } }
</style>"""


@cache
def script() -> str:
    """The text of ``interactive.js``."""
    return files("studies").joinpath("interactive.js").read_text(encoding="utf-8")


@dataclass
class MovingFigure:
    """A figure with controls; in print, or without scripts, its picture.

    Attributes
    ----------
    name : str
        A drawing of ``interactive.js``.
    picture : matplotlib.figure.Figure
        What is seen where nothing moves.
    alt : str
        What the picture shows.
    controls : list of (name, label, value, low, high) or (name, label, choices)
    options : dict
        Constants of the drawing.
    """

    name: str
    picture: Figure
    alt: str
    controls: list[tuple]
    options: dict = field(default_factory=dict)

    def _repr_svg_(self) -> str:
        return print_figure(self.picture, "svg", metadata={"Date": None})

    def _repr_html_(self) -> str:
        picture = base64.b64encode(self._repr_svg_().encode()).decode()
        alt, options = escape(self.alt, quote=True), escape(json.dumps(self.options), quote=True)
        return (
            f'{_STYLE}<div class="cevit-moving" data-figure="{self.name}" data-options="{options}">'
            f'<img src="data:image/svg+xml;base64,{picture}" alt="{alt}">'
            f'<div class="live"><form class="controls">'
            f'{"".join(map(_control, self.controls))}<button type="reset">Reset</button></form>'
            f'<svg viewBox="-20 0 400 380" role="img" aria-label="{alt}"></svg>'
            f'<p class="told" aria-live="polite"></p></div></div>'
            f"<script>{script()}\ncevitMoving.start(document.currentScript.previousElementSibling);</script>"
        )


def _control(control: tuple) -> str:
    if len(control) == 3:
        name, label, choices = control
        inside = "".join(f"<option>{escape(choice)}</option>" for choice in choices)
        return f'<label><span>{escape(label)}</span><select name="{name}">{inside}</select></label>'
    name, label, value, low, high = control
    slider = (
        f'<input type="range" name="{name}" min="{low}" max="{high}" step="0.01" value="{value}">'
    )
    return f"<label><span>{escape(label)}</span>{slider}<output>{value:.2f}</output></label>"


def moving_cells(correlation: float = 0.569) -> MovingFigure:
    """Four cells of two yes-or-no answers under thresholds and a correlation that the reader sets.

    Parameters
    ----------
    correlation : float
        Of the latent scores, at the start.
    """
    return MovingFigure(
        "four-cells",
        four_cells(tuple(CHANCES), correlation),
        "Two contour plots cut into four answers by the same thresholds; with correlation the eyes "
        "agree more often",
        [
            ("left", "chance of high myopia, left eye", CHANCES[0], 0.02, 0.98),
            ("right", "chance of high myopia, right eye", CHANCES[1], 0.02, 0.98),
            ("rho", "correlation of the latent scores", correlation, -0.95, 0.95),
        ],
    )


def moving_update(length: float = 1.0) -> MovingFigure:
    """What is expected of the right eye once the left one has been measured.

    Parameters
    ----------
    length : float
        Residual of the left eye's length, in standard deviations, at the start.
    """
    return MovingFigure(
        "update",
        _update_picture(length),
        "A long left eye moves the expected right eye upwards, narrows it, and raises its chance "
        "of high myopia",
        [
            ("length", "left eye longer than predicted, SDs", length, -3.0, 3.0),
            ("label", "left eye highly myopic", ["unknown", "yes", "no"]),
            ("strength", "dependence (1: the paper's example)", 1.0, 0.0, 1.0),
        ],
        {"correlation": CORRELATION, "chances": CHANCES},
    )


def moving_e_step(length: float = 1.0, score: float = 1.0) -> MovingFigure:
    """What an E-step of fMCEM keeps of a hidden error and what it discards.

    Parameters
    ----------
    length : float
        Residual of the left eye's length, in standard deviations, at the start.
    score : float
        The network's score ``q`` of the left eye's label.
    """
    rho = CORRELATION[0][2]
    known = rho * length, np.sqrt(1 - rho**2), -score
    titles = {"an expected label, $y_3 = 1$": 1, "a surprising label, $y_3 = 0$": 0}
    return MovingFigure(
        "e-step",
        e_step_figure({title: (*known, label) for title, label in titles.items()}),
        "After an expected label a hidden error's density is hardly cut and stays wide, after a "
        "surprising one it is narrow; fMCEM keeps its mean alone",
        [
            ("length", "left eye longer than predicted, SDs", length, -3.0, 3.0),
            ("score", "score q: how sure the network is", score, -2.5, 2.5),
            ("label", "left eye highly myopic", ["yes", "no"]),
        ],
        {"rho": rho, "colour": METHODS["fmcem"].color, "ink": "currentColor"},
    )


def moving_gain(sd_of_scores: float) -> MovingFigure:
    """What a joint loss takes off an estimation error, by the correlation of the two eyes' errors:
    of two lengths, and of two labels.

    Parameters
    ----------
    sd_of_scores : float
        Standard deviation of the labels' normal scores over patients.
    """
    return MovingFigure(
        "gain",
        _gain_picture(sd_of_scores),
        "The share that the dependence takes away rises with the correlation of the errors, "
        "steeply for lengths and little for labels, and falls as the images become alike",
        [
            ("rho", "correlation of the two eyes' errors", 0.72, 0.0, 0.95),
            ("r", "correlation r of the two eyes' features", 0.5, 0.0, 1.0),
            ("v", "share v of the error that is variance", 1.0, 0.0, 1.0),
        ],
        {"sd": sd_of_scores},
    )


@drawn
def _gain_picture(sd_of_scores: float) -> Figure:
    figure, panels = new_figure(2.8, columns=2, sharey=True)
    errors = np.linspace(0, 0.9, 16)
    pairs = [np.kron(np.eye(2), [[1, rho], [rho, 1]]) for rho in errors]
    for r, line in zip((0.0, 0.5, 0.9), ("-", "--", ":"), strict=True):
        gains = np.array([gain(pair, r, sd_of_scores) for pair in pairs])
        for ax, kind in zip(panels, (0, 2), strict=True):
            share = 100 * (1 - 1 / gains[:, kind])
            ax.plot(errors, share, line, color=COLORS["ink"], label=f"$r = {r:g}$")
    for ax, kind in zip(panels, ("lengths", "labels"), strict=True):
        ax.set(title=kind, xlabel="correlation of the two eyes' errors")
    panels[0].set_ylabel(r"$100\,(1 - 1/G)$")
    panels[0].legend()
    return figure


@drawn
def _update_picture(length: float) -> Figure:
    outputs = torch.tensor([[0.0, 0.0, *np.log(np.divide(CHANCES, np.subtract(1, CHANCES)))]])
    seen = torch.tensor([[length, np.nan, np.nan, np.nan]])
    after = condition_on(outputs.double(), seen.double(), CopulaParameters(CORRELATION, [1.0, 1.0]))
    mean, sd, chance = (float(part[0, 1]) for part in (after.mean, after.sd, after.probability))
    figure, (left, right) = new_figure(3.2, columns=2)
    z = np.linspace(-3.5, 3.5, 141)
    colors = [COLORS["grey"], COLORS["right"]]
    left.plot(z, norm.pdf(z), "--", color=colors[0], label="before")
    left.plot(z, norm.pdf(z, mean, sd), color=colors[1], label="after")
    left.set(xlabel="length of the right eye, SDs from its prediction", yticks=[])
    left.legend()
    right.barh(["before", "after"], [100 * CHANCES[1], 100 * chance], color=colors)
    right.invert_yaxis()
    right.set(xlabel="chance of high myopia, right eye (%)", xlim=(0, 100))
    figure.suptitle(f"the left eye is {length:g} SD longer than predicted", fontsize=10)
    return figure
