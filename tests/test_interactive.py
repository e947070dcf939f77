"""Figures that move: their JavaScript computes what the library computes, and without scripts a
picture is there.
"""

import json
import shutil
import subprocess
from functools import partial
from importlib.resources import files

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from scipy.stats import truncnorm

from cevit_lib.copula import CopulaParameters, condition_on
from cevit_lib.normal import bivariate_normal_cdf
from studies import interactive
from studies.theory.gain import gain


def run(expression):
    """Evaluate a JavaScript expression on the functions of ``interactive.js``, by node: the
    machine's own or the one that playwright brings.
    """
    node = shutil.which("node") or files("playwright") / "driver" / "node"
    print_it = f"const c = globalThis.cevitMoving; console.log(JSON.stringify({expression}));"
    program = f"{interactive.script()}\n{print_it}"
    done = subprocess.run([node, "-e", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_normal_probabilities_in_javascript():
    x = np.linspace(-12, 8, 81)
    ours = np.array(run(f"{x.tolist()}.map(c.cdf)"))
    np.testing.assert_allclose(ours, ndtr(x), rtol=1e-12)
    p = np.linspace(0.02, 0.98, 33)
    np.testing.assert_allclose(
        run(f"{p.tolist()}.map(c.score)"), torch.special.ndtri(torch.tensor(p)), atol=1e-12
    )


def test_pairs_in_javascript_over_all_that_the_sliders_reach():
    rng = np.random.default_rng(3)
    a, b, r = rng.uniform(-2.1, 2.1, 60), rng.uniform(-2.1, 2.1, 60), rng.uniform(-0.95, 0.95, 60)
    a[:2], b[:2], r[:2] = 2.05, -2.05, (-0.95, 0.95)
    said = run(f"{np.stack([a, b, r], 1).tolist()}.map((v) => c.pair(...v))")
    np.testing.assert_allclose(said, bivariate_normal_cdf(*map(torch.tensor, (a, b, r))), atol=1e-9)


@pytest.mark.parametrize("label", [None, 0, 1])
@pytest.mark.parametrize("strength", [0.0, 0.4, 1.0])
def test_the_update_in_javascript_is_condition_on(label, strength):
    weak = strength * np.array(interactive.CORRELATION) + (1 - strength) * np.eye(4)
    logits = [np.log(p / (1 - p)) for p in interactive.CHANCES]
    outputs = torch.tensor([[0.0, 0.0, *logits]], dtype=torch.float64)
    for length in (-2.5, 0.0, 1.3):
        y = torch.tensor(
            [[length, np.nan, np.nan if label is None else label, np.nan]], dtype=torch.float64
        )
        expected = condition_on(outputs, y, CopulaParameters(weak, [1.0, 1.0]))
        js = {None: "null", 0: "false", 1: "true"}[label]
        weaker = f"c.weaken({interactive.CORRELATION}, {strength})"
        call = f"c.update({weaker}, {interactive.CHANCES}, {length}, {js})"
        curve = "[...Array(1601).keys()].map((k) => u.density(-8 + k / 100))"
        said = run(
            f"(() => {{ const u = {call}; return [u.mean, u.sd, u.probability, {curve}]; }})()"
        )
        library = [float(part[0, 1]) for part in (expected.mean, expected.sd, expected.probability)]
        assert said[:3] == pytest.approx(library, abs=1e-7)
        # the drawn curve has this mean and this spread, and area one
        z, curve = np.arange(-8, 8.005, 0.01), np.array(said[3]) * 0.01
        mean = (z * curve).sum()
        assert curve.sum() == pytest.approx(1, abs=1e-6) and mean == pytest.approx(
            said[0], abs=1e-5
        )
        assert ((z - mean) ** 2 * curve).sum() == pytest.approx(said[1] ** 2, abs=1e-4)


def test_what_a_label_leaves_of_a_hidden_error_in_javascript():
    rng = np.random.default_rng(5)
    mean, q = rng.uniform(-1, 1, 40), rng.uniform(-3, 3, 40)
    sd, label = rng.uniform(0.5, 1, 40), rng.integers(0, 2, 40)
    rows = np.stack([mean, sd, q, label], 1).tolist()
    made = "const t = c.truncated(...v); return [t.mean, t.sd, t.density(0.3)];"
    said = np.array(run(f"{rows}.map((v) => {{ {made} }})"))
    cut = (-q - mean) / sd
    law = truncnorm(np.where(label, cut, -np.inf), np.where(label, np.inf, cut), mean, sd)
    np.testing.assert_allclose(said, np.stack([law.mean(), law.std(), law.pdf(0.3)], 1), atol=1e-7)


@pytest.mark.parametrize("sd, highest", [(1.0, 0.95), (2.1, 0.8)])
@pytest.mark.parametrize("r", [0.0, 0.5, 0.9, 1.0])
def test_the_gain_in_javascript_is_that_of_the_library(r, sd, highest):
    for rho in (0.0, 0.5, highest):
        expected = gain(np.kron(np.eye(2), [[1, rho], [rho, 1]]), r, sd)[[0, 2]]
        said = run(f"[c.gainOfLengths({rho}, {r}), c.gainOfLabels({rho}, {r}, {sd})]")
        np.testing.assert_allclose(said, expected, rtol=2e-4)


MADE = [
    interactive.moving_cells,
    interactive.moving_update,
    interactive.moving_e_step,
    partial(interactive.moving_gain, 2.1),
]


@pytest.mark.parametrize("made", MADE)
def test_a_moving_figure_is_whole_by_itself(made):
    figure = made()
    html = figure._repr_html_()
    assert "http" not in html.replace("http://www.w3.org", "") and len(html) < 200_000
    assert html.index("<img") < html.index('class="live"'), (
        "the picture stands first, for readers without scripts"
    )
    assert html.count("<label>") == 3 and 'type="reset"' in html
    assert "<svg" in figure._repr_svg_()
