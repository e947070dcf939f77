"""Derivatives: first and second order, in outputs and parameters, with missing responses; what is
saved for them.
"""

import numpy as np
import pytest
import torch
from copula_oracles import GAMMA, MEASURED, OUTPUTS, SCALE
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jacrev, vmap

from cevit_lib.copula import CopulaParameters, log_density

LABELS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
Y = torch.tensor(np.concatenate([MEASURED, LABELS], 1))
HOLES = Y.clone()
HOLES[0, 0] = HOLES[1, 2] = HOLES[2, 1] = HOLES[2, 3] = torch.nan
HOLES[3] = torch.nan
PAPER = CopulaParameters(GAMMA, SCALE)


def outputs():
    return torch.tensor(OUTPUTS, requires_grad=True)


@pytest.mark.parametrize(("p0", "p1"), [(2, 2), (0, 1), (2, 1), (0, 2), (3, 0), (1, 3)])
@pytest.mark.parametrize("missing", [False, True])
def test_first_and_second_order_in_the_outputs(p0, p1, missing):
    rng = np.random.default_rng(p1)
    loadings = rng.uniform(-0.8, 0.8, p0 + p1)
    gamma = np.outer(loadings, loadings) + np.diag(1 - loadings**2)
    y = torch.tensor(np.concatenate([rng.normal(size=(3, p0)), rng.integers(0, 2, (3, p1))], 1))
    if missing:
        y[0, 0] = y[1, -1] = y[2] = torch.nan
    values = torch.tensor(rng.normal(size=(3, p0 + p1)), requires_grad=True)
    parameters = CopulaParameters(gamma, np.ones(p0))
    assert gradcheck(lambda v: log_density(v, y, parameters), (values,))
    assert gradgradcheck(lambda v: log_density(v, y, parameters), (values,))


@pytest.mark.parametrize("y", [Y, HOLES], ids=["complete", "missing"])
def test_first_and_second_order_in_the_parameters(y):
    rows, columns = np.tril_indices(4, -1)
    start = torch.tensor(GAMMA[rows, columns], requires_grad=True)
    scale = torch.tensor(SCALE, requires_grad=True)

    def function(values, free, scales):
        lower = torch.zeros(4, 4, dtype=torch.float64).index_put(
            (torch.tensor(rows), torch.tensor(columns)), free
        )
        gamma = lower + lower.T + torch.eye(4, dtype=torch.float64)
        return log_density(
            values, y, CopulaParameters(gamma, scales, validate=False), validate=False
        )

    assert gradcheck(function, (outputs(), start, scale))
    assert gradgradcheck(function, (outputs(), start, scale))


def test_both_routes_agree():
    """Fixed parameters take the fused route, learnt ones the composite: the same value and
    gradient.
    """
    learnt = CopulaParameters(torch.tensor(GAMMA, requires_grad=True), SCALE)
    for y in (Y, HOLES):
        results = []
        for parameters in (PAPER, learnt):
            values = outputs()
            value = log_density(values, y, parameters)
            results.append((value.detach(), torch.autograd.grad(value.sum(), values)[0]))
        torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("missing", [False, True])
def test_saved_for_backward_is_48_bytes_an_observation(missing):
    n, sizes = 4096, {}
    values = torch.randn(n, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    y = torch.cat([values[:, :2], (values[:, 2:] > 0).float()], 1)

    def pack(kept):
        sizes[kept.data_ptr()] = kept.numel() * kept.element_size()
        return kept

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        log_density(values.requires_grad_(), y, PAPER, missing=missing).sum()
    assert sum(sizes.values()) / n < 49  # and the small tables of constants


def test_torch_func():
    def total(v, y):
        return log_density(v, y, PAPER, validate=False).sum()

    values, leaf = torch.tensor(OUTPUTS), outputs()
    (expected,) = torch.autograd.grad(log_density(leaf, HOLES, PAPER).sum(), leaf)
    torch.testing.assert_close(grad(total)(values, HOLES), expected, rtol=1e-12, atol=1e-13)
    per_row = vmap(grad(total))(values[:, None], HOLES[:, None])
    torch.testing.assert_close(per_row[:, 0], expected, rtol=1e-12, atol=1e-13)
    hessian = jacrev(grad(total))(values, Y)
    other = torch.autograd.functional.hessian(lambda v: log_density(v, Y, PAPER).sum(), values)
    torch.testing.assert_close(hessian, other, rtol=1e-9, atol=1e-11)
