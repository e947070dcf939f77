"""The house style: figures are finished where they are drawn, and colours keep apart what they
mean.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np

from cevit_lib.clinic.style import COLORS, METHODS, drawn, png


def test_a_figure_is_finished_where_it_is_drawn():
    """Equal figures are equal bytes, none stays open in pyplot, the reader's own settings come
    back.
    """

    @drawn
    def line(record):
        figure, axes = plt.subplots()
        axes.plot([0, 1])
        return figure

    before = dict(plt.rcParams)
    first, second = line({"scale": "paper"}), line([{"scale": "smoke"}], note="37 of 50 folds")
    assert png(first) == png(line({})) and not plt.get_fignums() and plt.rcParams == before
    black = {"axes.facecolor": "black", "savefig.facecolor": "black", "lines.linestyle": ":"}
    with plt.rc_context(black):  # as a matplotlibrc in the current folder would have it
        pictures = [png(picture) for picture in (line({}), first)]
    assert pictures == [png(first)] * 2
    assert not first.texts and second.get_suptitle() == "grid not complete: 37 of 50 folds"
    assert [text.get_text() for text in second.texts if "smoke" in text.get_text()]


def test_the_colours_of_methods_stay_apart_for_deuteranopes():
    """Distances in CIELAB, for usual eyes and for deuteranopes (Machado 2009); 2.3 is just
    noticeable.
    """
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    deuteranope = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])

    def lab(color, seen):
        light = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)]) / 255
        light = np.where(light <= 0.04045, light / 12.92, ((light + 0.055) / 1.055) ** 2.4)
        x, y, z = np.cbrt(xyz @ np.clip(seen @ light, 0, 1) / (0.9505, 1, 1.089))
        return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])

    methods = {name: look.color for name, look in METHODS.items()}
    assert len({look[1:3] for look in METHODS.values()}) == len(METHODS)  # nor by colour alone
    eyes = {eye: COLORS[eye] for eye in ("left", "right")}
    for a, b in itertools.combinations(methods | eyes, 2):
        one, other = ((methods | eyes)[name] for name in (a, b))
        for seen in (np.eye(3), deuteranope):
            apart = np.linalg.norm(lab(one, seen) - lab(other, seen))
            assert apart > (10 if {a, b} & set(eyes) else 15), (a, b, apart)
    assert eyes == {"left": "#0072B2", "right": "#D55E00"} and COLORS["OS"] == eyes["left"]
