"""The loss modules: reductions, precision, missing responses, devices, compilation."""

import numpy as np
import pytest
import torch
from copula_oracles import GAMMA, MEASURED, OUTPUTS, SCALE

from cevit_lib.copula import CopulaLoss, CopulaParameters, EmpiricalLoss

PAPER = CopulaParameters(GAMMA, SCALE)
LEARNT = CopulaParameters(torch.tensor(GAMMA, requires_grad=True), SCALE)
Y = torch.tensor(np.concatenate([MEASURED, [[0, 0], [0, 1], [1, 0], [1, 1]]], 1))
X = torch.tensor(OUTPUTS)
HOLES = Y.clone()
HOLES[0, 0] = HOLES[1, 2] = torch.nan
HOLES[3] = torch.nan


@pytest.mark.parametrize(
    "make", [lambda **k: CopulaLoss(PAPER, **k), EmpiricalLoss], ids=["copula", "empirical"]
)
@pytest.mark.parametrize("y", [Y, HOLES], ids=["complete", "missing"])
def test_reductions_are_alike(make, y):
    rows = make(reduction="none")(X, y)
    assert rows.shape == (4,)
    assert float(make()(X, y)) == pytest.approx(float(rows.sum()), rel=1e-14)
    assert float(make(reduction="mean")(X, y)) == pytest.approx(float(rows.sum()) / 4, rel=1e-14)


def test_empirical_loss_is_squared_error_plus_cross_entropy_with_the_right_sign():
    expected = ((OUTPUTS[:, :2] - MEASURED) ** 2).sum()
    p = 1 / (1 + np.exp(-OUTPUTS[:, 2:]))
    labels = Y[:, 2:].numpy()
    expected -= (labels * np.log(p) + (1 - labels) * np.log1p(-p)).sum()
    assert float(EmpiricalLoss()(X, Y)) == pytest.approx(expected, rel=1e-13)
    right, wrong = torch.tensor([[0.0, 0, 5, 5]]), torch.tensor([[0.0, 0, -5, -5]])
    target = torch.tensor([[0.0, 0, 1, 1]])
    assert EmpiricalLoss()(right, target) < EmpiricalLoss()(wrong, target)


def test_identity_correlation_has_the_gradient_of_the_empirical_loss():
    """With Gamma = I and sigma^2 = 1/2 the two losses differ by a constant."""
    half = CopulaParameters.independent([0.5**0.5] * 2, 2)
    gradients = []
    for loss in (CopulaLoss(half), EmpiricalLoss()):
        values = X.clone().requires_grad_()
        gradients.append(torch.autograd.grad(loss(values, HOLES), values)[0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dtype_follows_the_outputs_and_is_never_half(dtype):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = CopulaLoss(PAPER).half()(X.to(dtype), Y)  # the parameters stay in float64
        learnt = CopulaLoss(PAPER)(X.to(dtype), Y, LEARNT)
        assert EmpiricalLoss()(X.to(dtype), Y).dtype == loss.dtype
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    same = CopulaLoss(PAPER)(X.to(dtype).double(), Y)
    rounding = 2e-6 if dtype != torch.float64 else 1e-14
    assert float(loss) == pytest.approx(float(same), rel=rounding)
    assert float(learnt) == pytest.approx(float(same), rel=rounding)


def test_compiles_to_the_same_numbers():
    """The graph is captured whole; running it in Python (aot_eager) leaves out only the code
    generator.
    """
    loss = CopulaLoss(PAPER, reduction="mean", validate=False)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    results = []
    for call in (loss, compiled):
        values = X.clone().requires_grad_()
        value = call(values, HOLES)
        value.backward()
        results.append((value.detach(), values.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-12)
