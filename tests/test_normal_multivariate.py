"""Orthant probabilities in one to eight dimensions: a one-factor oracle, brute force, slopes."""

import math

import numpy as np
import pytest
import torch
from copula_oracles import double

from benchmarks.normal import one_factor
from cevit_lib.normal import log_multivariate_normal_cdf


@pytest.mark.parametrize(
    "p, largest, spread",
    [(1, 0.9, 1.2), (2, 0.9, 1.2), (3, 0.9, 1.2), (4, 0.9, 1.2), (3, 0.99, 0.8), (4, 0.99, 0.8)],
)
def test_exact_up_to_four_close_to_singular_too(p, largest, spread):
    z, correlation, exact = one_factor(p, 200, p, largest, spread)
    error = (log_multivariate_normal_cdf(z, double([0.0] * p), correlation) - exact).abs()
    likely = exact > math.log(1e-8)
    assert likely.sum() > 150
    assert error[likely].max() < 1e-8
    assert error.max() < 0.02  # rarer ones by the lattice


@pytest.mark.parametrize("p", [5, 6, 8])
def test_five_to_eight_by_the_lattice(p):
    z, correlation, exact = one_factor(p, 100, 20 + p)
    found = log_multivariate_normal_cdf(z, double([0.0] * p), correlation)
    assert (found - exact).abs().median() < 2e-3
    assert (found - exact).abs().max() < 0.1
    again = log_multivariate_normal_cdf(z, double([0.0] * p), correlation)
    assert torch.equal(again, found)


def test_mean_and_covariance_are_standardised():
    z, correlation, exact = one_factor(3, 20, 3, 0.7, 0.7)
    sd, mean = double([0.5, 2.0, 3.0]), double([1.0, -1.0, 0.5])
    value = log_multivariate_normal_cdf(mean + sd * z, mean, correlation * sd[:, None] * sd)
    assert torch.allclose(value, exact, rtol=0, atol=1e-10)


def symmetric(entries, p):
    rows, columns = torch.tril_indices(p, p)
    matrix = torch.zeros(*entries.shape[:-1], p, p, dtype=entries.dtype)
    matrix[..., rows, columns] = entries
    return torch.tril(matrix) + torch.tril(matrix, -1).mT


@pytest.mark.parametrize("p", [3, 4, 5, 8])
def test_never_nan_never_negative(p):
    rng = np.random.default_rng(50 + p)
    z = double(rng.choice([-math.inf, -1e3, -37, -10, -1, 0, 1, 10, 1e3, math.inf], size=(60, p)))
    z = z.requires_grad_()
    correlation = one_factor(p, 60, 60 + p, 0.999)[1].requires_grad_()
    value = log_multivariate_normal_cdf(z, double([0.0] * p), correlation)
    assert not torch.isnan(value).any()
    assert (value < 1e-12).all()
    assert torch.equal(value == -math.inf, (z == -math.inf).any(-1))
    gradients = torch.autograd.grad(value[value > -math.inf].sum(), (z, correlation))
    assert not any(torch.isnan(g).any() for g in gradients)


@pytest.mark.parametrize("p", [3, 4, 5, 7])
def test_gradcheck(p):
    z, correlation, _ = one_factor(p, 2, 30 + p, 0.6)
    rows, columns = torch.tril_indices(p, p)
    operands = (z, double(np.linspace(-0.2, 0.3, p)), (1.3 * correlation)[:, rows, columns])
    operands = tuple(v.clone().requires_grad_() for v in operands)

    def function(upper, mean, entries):
        return log_multivariate_normal_cdf(upper, mean, symmetric(entries, p))

    assert torch.autograd.gradcheck(function, operands)
    assert p > 5 or torch.autograd.gradgradcheck(function, operands)


@pytest.mark.parametrize("p", [3, 5])
def test_vmap_float32_and_parts_of_a_batch(p):
    z, correlation, exact = one_factor(p, 300, 70 + p, 0.6, 0.6)
    mean, leaf = double([0.0] * p), z.clone().requires_grad_()
    whole = log_multivariate_normal_cdf(leaf, mean, correlation)  # p = 5: in parts
    (slope,) = torch.autograd.grad(whole.sum(), leaf)
    mapped = torch.func.vmap(log_multivariate_normal_cdf, in_dims=(0, None, 0))
    assert torch.allclose(mapped(z[:6], mean, correlation[:6]), whole[:6], rtol=1e-12)
    few = z[:6].clone().requires_grad_()
    value = log_multivariate_normal_cdf(few, mean, correlation[:6])
    assert torch.allclose(torch.autograd.grad(value.sum(), few)[0], slope[:6], rtol=1e-12)
    single = log_multivariate_normal_cdf(z[:6].float(), mean.float(), correlation[:6].float())
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), exact[:6], atol=1e-5 if p == 3 else 5e-3)
