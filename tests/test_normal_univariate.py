"""log Phi, hazard, normal score, truncated moments: against mpmath and quadrature."""

import mpmath as mp
import pytest
import torch
from copula_oracles import double

from cevit_lib.normal import (
    log_normal_cdf,
    normal_hazard,
    normal_score,
    truncated_normal_mean,
    truncated_normal_variance,
)


def exact_log_cdf(x):
    return mp.log(mp.erfc(-mp.mpf(x) / mp.sqrt(2)) / 2)


def exact_score(logit):
    """Root of log Phi(-q) = log S(-|mu|), by mpmath's own root finder; near zero the inverse of
    erf.
    """
    logit = mp.mpf(logit)
    if abs(logit) < 1:
        return mp.sqrt(2) * mp.erfinv(mp.tanh(logit / 2))
    target = -mp.log1p(mp.exp(abs(logit)))
    start = mp.sqrt(2 * abs(logit)) if abs(logit) > 5 else abs(logit) * mp.mpf("0.6")
    return mp.sign(logit) * mp.findroot(lambda q: exact_log_cdf(-q) - target, start)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-6), (torch.float64, 4e-15)])
def test_log_cdf_and_slope_at_any_distance(dtype, tolerance):
    points = [-1e4, -1000, -100, -40, -10, -3.1, -2.9, -1, 0, 1, 5]
    x = torch.tensor(points, dtype=dtype, requires_grad=True)
    value = log_normal_cdf(x)
    (slope,) = torch.autograd.grad(value.sum(), x)
    with mp.workdps(30):
        for i, point in enumerate(points):
            exact = exact_log_cdf(point)
            assert abs(value[i].item() / float(exact) - 1) < tolerance
            assert abs(slope[i].item() / float(mp.npdf(point) / mp.exp(exact)) - 1) < tolerance


def test_derivatives_of_three_orders():
    x = double([-60.0, -10.0, -3.0001, -1.0, 0.0, 2.0]).requires_grad_()
    assert torch.autograd.gradcheck(log_normal_cdf, x)
    assert torch.autograd.gradgradcheck(log_normal_cdf, x)
    assert torch.autograd.gradgradcheck(normal_hazard, double([-5.0, -1.0, 1.0]).requires_grad_())


@pytest.mark.parametrize(
    "dtype, largest, tolerance", [(torch.float32, 80.0, 1e-6), (torch.float64, 500.0, 1e-12)]
)
def test_normal_score(dtype, largest, tolerance):
    size = [1e-30, 1e-8, 1e-3, 0.1, 0.99, 1.01, 3.0, 12.0, 17.0, 40.0, 79.9, 300.0, 499.0]
    logits = torch.tensor(
        [s * v for v in size if v <= largest for s in (-1, 1)] + [0.0], dtype=dtype
    )
    leaf = logits.clone().requires_grad_()
    score = normal_score(leaf)
    (slope,) = torch.autograd.grad(score.sum(), leaf)
    with mp.workdps(40):
        for mu, q, d in zip(logits.tolist(), score.tolist(), slope.tolist(), strict=True):
            exact = exact_score(mu)
            assert abs(q - float(exact)) <= tolerance * abs(float(exact)) + 3e-16, mu
            # the logistic density over the normal density
            expected = mp.exp(
                -abs(mp.mpf(mu)) - 2 * mp.log1p(mp.exp(-abs(mp.mpf(mu)))) + exact**2 / 2
            ) * mp.sqrt(2 * mp.pi)
            assert abs(d / float(expected) - 1) < tolerance, mu


def test_normal_score_beyond_and_its_curvature():
    logits = double([700.0, 5000.0, 1e6])
    with mp.workdps(30):
        for mu, q in zip(logits.tolist(), normal_score(logits).tolist(), strict=True):
            exact = mp.findroot(lambda v, mu=mu: exact_log_cdf(-v) + mu, mp.sqrt(2 * mu))
            assert abs(q / float(exact) - 1) < 1e-12
    leaf = double([0.0, 1e-6, 0.3, -2.0, 20.0, -400.0, 1000.0]).requires_grad_()
    assert torch.autograd.gradcheck(normal_score, leaf)
    assert torch.autograd.gradgradcheck(normal_score, leaf)
    assert torch.isfinite(normal_score(torch.tensor([-3e38, 3e38]))).all()


def test_univariate_truncated_moments_to_40_sd():
    for x in (-40.0, -28.1, -27.9, -9.0, -3.0, 0.0, 1.5, 5.0):
        with mp.workdps(40):
            weight = mp.exp(exact_log_cdf(x))
            first = -mp.npdf(x) / weight
            variance = 1 - mp.mpf(x) * mp.npdf(x) / weight - first**2
        upper = double(2 * x + 1)  # mean 1, standard deviation 2
        assert truncated_normal_mean(upper, 1.0, 2.0).item() == pytest.approx(
            float(1 + 2 * first), rel=1e-13
        )
        assert truncated_normal_variance(upper, 1.0, 2.0).item() == pytest.approx(
            float(4 * variance), rel=2e-10
        )
        above = truncated_normal_mean(-upper, -1.0, 2.0, side=1.0)
        assert above.item() == pytest.approx(-float(1 + 2 * first), rel=1e-13)
