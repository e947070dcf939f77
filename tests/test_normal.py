"""The bivariate normal probability: mpmath, identities, exact limits, derivatives of two orders,
float32, devices.
"""

import json
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
import torch
from copula_oracles import double
from reference.make_bivariate_normal import bivariate

from cevit_lib.normal import (
    bivariate_normal_cdf,
    log_bivariate_normal_cdf,
    log_normal_cdf,
)
from cevit_lib.normal.bivariate import log_cdf_of_pairs
from cevit_lib.normal.central import PlackettNodes
from cevit_lib.normal.wedge import correlation_slope, log_wedge_value

REFERENCE = Path(__file__).with_name("reference") / "bivariate_normal.json"
SWITCHES = [0.0, 0.924, -0.924, 0.925, -0.925, 0.926, -0.926, 0.9999, -0.9999]
INFINITY = math.inf
# lower bound of log P and the relative error of P that the library promises there in float64
PROMISED = [
    (math.log(1e-3), 1e-13),
    (math.log(1e-10), 1e-11),
    (math.log(1e-37), 1e-9),
    (math.log(1e-300), 1e-5),
]


@pytest.fixture(scope="module")
def stored():
    rows = json.loads(REFERENCE.read_text())
    with mp.workdps(40):
        exact = [mp.mpf(row[3]) for row in rows]
    return double([row[:3] for row in rows]), exact


def log_errors(values, exact):
    with mp.workdps(40):
        return np.array(
            [float(abs(mp.mpf(v) - e)) for v, e in zip(values.tolist(), exact, strict=True)]
        )


@pytest.mark.parametrize("route", [log_bivariate_normal_cdf, log_wedge_value])
def test_accuracy_promised_in_float64(stored, route):
    points, exact = stored
    value = route(*points.unbind(1))
    error, size = log_errors(value, exact), np.array([float(e) for e in exact])
    upper = INFINITY
    for lower, allowed in PROMISED:
        chosen = (size > lower) & (size <= upper)
        assert chosen.sum() > 20
        assert error[chosen].max() < allowed, lower
        upper = lower
    deeper = size <= upper  # some units of the last place of log P itself
    assert (error[deeper] / -size[deeper]).max() < 1e-13
    gap = value.exp().numpy() - np.exp(size)
    assert np.abs(gap).max() < 5e-16


def test_float32_is_that_of_float64_at_its_rounded_inputs(stored):
    rounded = stored[0].float()
    exact = log_bivariate_normal_cdf(*rounded.double().unbind(1))
    single = log_bivariate_normal_cdf(*rounded.unbind(1))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=1e-7, atol=2e-8)


def with_slopes(*operands):
    """``log Phi_2`` and its derivatives in both limits and in the correlation."""
    leaves = [operand.clone().requires_grad_() for operand in operands]
    value = log_bivariate_normal_cdf(*leaves)
    usable = value[value > -INFINITY].sum()
    return value.detach(), *torch.autograd.grad(usable, leaves)


def test_gradients_promised_where_likely():
    """Against mpmath's own derivatives of the defining formulas: d/dx = phi(x) Phi(k) / P, d/drho =
    phi_2 / P.
    """
    x, y, r = double(
        [[0.3, -1.2, 0.0], [1.0, -1.0, -0.95], [-0.5, 0.9, 0.5], [0.0, 0.0, 0.3], [2.0, -1.5, -0.7]]
    ).unbind(1)
    found = with_slopes(x, y, r)
    with mp.workdps(30):
        for i in range(len(x)):
            a, b, c = (mp.mpf(v[i].item()) for v in (x, y, r))
            s = mp.sqrt(1 - c * c)
            p = bivariate(a, b, c)
            exact = [
                mp.log(p),
                mp.npdf(a) * mp.ncdf((b - c * a) / s) / p,
                mp.npdf(b) * mp.ncdf((a - c * b) / s) / p,
                mp.npdf(a) * mp.npdf((b - c * a) / s) / s / p,
            ]
            for value, expected in zip(found, exact, strict=True):
                assert abs(value[i].item() / float(expected) - 1) < 1e-12


def test_exact_limits():
    x, y = double([-1.0, 0.5, 2.0, -3.0]), double([0.3, 0.5, -2.5, -3.0])
    assert torch.allclose(
        log_bivariate_normal_cdf(x, y, 1.0), log_normal_cdf(torch.minimum(x, y)), rtol=1e-14
    )
    lower = (torch.erf(x / 2**0.5) + torch.erf(y / 2**0.5)) / 2  # Phi(x) + Phi(y) - 1
    assert torch.allclose(
        bivariate_normal_cdf(x, y, -1.0), lower.clamp_min(0.0), rtol=1e-13, atol=1e-16
    )
    for r in (-1.0, -0.4, 0.0, 0.4, 1.0):
        unbounded = log_bivariate_normal_cdf(torch.full_like(y, INFINITY), y, r)
        assert torch.allclose(unbounded, log_normal_cdf(y), rtol=1e-14)
        assert (log_bivariate_normal_cdf(torch.full_like(y, -INFINITY), y, r) == -INFINITY).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_never_nan_on_an_extreme_grid(dtype):
    limit = torch.tensor([-INFINITY, -1e3, -40, -8, -1, 0, 1, 8, 40, 1e3, INFINITY], dtype=dtype)
    r = torch.tensor([0, 1e-3, -1e-3, 0.5, -0.5, 0.99, -0.99, 0.9999, -0.9999, 1, -1], dtype=dtype)
    x, y, r = (v.reshape(-1) for v in torch.meshgrid(limit, limit, r, indexing="ij"))
    value, *slopes = with_slopes(x, y, r)
    assert not torch.isnan(value).any()
    assert (value <= 0).all()
    assert all(torch.isfinite(slope).all() for slope in slopes)
    inside = (x.abs() <= 1e3) & (y.abs() <= 1e3) & (r.abs() < 1)
    assert torch.isfinite(value[inside]).all()


def test_tail_gradient_keeps_pulling():
    """Where naive formulas have gradient 0 or NaN: the slope at x = y = -t is about t / (1 + rho) a
    coordinate.
    """
    for dtype, t in ((torch.float32, 12.0), (torch.float64, 40.0), (torch.float64, 300.0)):
        x = torch.full((1,), -t, dtype=dtype, requires_grad=True)
        (slope,) = torch.autograd.grad(log_bivariate_normal_cdf(x, x.detach(), 0.5).sum(), x)
        assert abs(slope.item() / (t / 1.5) - 1) < 2 / t


TAIL = (-6.0, -9.0, -3.0), (-5.0, 2.0, 2.5), (-0.4, 0.6, -0.9)
TIES = (0.3, -0.7, 1.0, 0.0, 0.5), (0.4, -0.2, -1.0, 0.0, 0.5)


@pytest.mark.parametrize("x, y, r", [TAIL] + [(*TIES, (rho,) * 5) for rho in SWITCHES])
def test_gradcheck_and_gradgradcheck(x, y, r):
    operands = tuple(double(v).requires_grad_() for v in (x, y, r))
    how = {"eps": 1e-7 if max(map(abs, r)) > 0.99 else 1e-6, "rtol": 1e-3}
    assert torch.autograd.gradcheck(log_bivariate_normal_cdf, operands, **how)
    assert torch.autograd.gradgradcheck(log_bivariate_normal_cdf, operands, **how)


@pytest.mark.parametrize("rho", [0.1, 0.43, 0.9, 0.98, 0.995, -0.6])
@pytest.mark.parametrize("digits", [8, 12])
def test_pairs_that_share_their_nodes(rho, digits):
    x, y = 2 * torch.randn(2, 3000, generator=torch.Generator().manual_seed(5)).double()
    sign = torch.arange(3000).remainder(3).double() - 1
    nodes = PlackettNodes.of(double([rho]))
    value, slopes = log_cdf_of_pairs(torch.stack((x, y), -1), sign, nodes, digits)
    shared = value, *slopes.unbind(-1), correlation_slope(x, y, rho * sign, value)
    single = with_slopes(x, y, rho * sign)
    for got, expected in zip(shared, single, strict=True):
        torch.testing.assert_close(got, expected, rtol=3 * 10.0**-digits, atol=1e-9 * 10.0**-digits)


def test_function_transforms_and_one_graph():
    operands = double([[0.1, -2.0, -7.0], [0.3, 0.4, -9.0], [0.2, -0.6, 0.95]]).unbind(0)
    passed = with_slopes(*operands)
    gradient = torch.func.grad(log_bivariate_normal_cdf, argnums=(0, 1, 2))
    for got, expected in zip(torch.func.vmap(gradient)(*operands), passed[1:], strict=True):
        assert torch.allclose(got, expected, rtol=1e-12)
    twice = torch.func.jacrev(torch.func.jacrev(lambda v: log_bivariate_normal_cdf(*v)))
    hessian = twice(torch.stack(operands)[:, 1])
    assert torch.allclose(hessian, hessian.mT, rtol=1e-10)
    compiled = torch.compile(log_bivariate_normal_cdf, fullgraph=True, backend="aot_eager")
    leaves = [v.clone().requires_grad_() for v in operands]
    value = compiled(*leaves)
    assert torch.allclose(value, passed[0], rtol=1e-13)
    for got, expected in zip(torch.autograd.grad(value.sum(), leaves), passed[1:], strict=True):
        assert torch.allclose(got, expected, rtol=1e-12)
