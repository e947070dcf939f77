"""The GPU's kernel gives the numbers of the CPU: in Triton's interpreter, and on a GPU where there
is one.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from copula_oracles import GAMMA, SCALE

from cevit_lib.copula import CopulaLoss, CopulaParameters, likelihood_constants, log_density
from cevit_lib.copula.conditioning import all_patterns

PAPER = CopulaParameters(GAMMA, SCALE)
OPPOSED = CopulaParameters([[1, 0.2, -0.5], [0.2, 1, -0.8], [-0.5, -0.8, 1]], [0.7])
LABELS_ONLY = CopulaParameters([[1, 0.95], [0.95, 1]], [])
HERE = Path(__file__).parent


def batch(
    parameters: CopulaParameters, spread: float, n: int = 24
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs that reach ``spread`` and responses, a fifth of them missing."""
    generator = torch.Generator().manual_seed(int(spread))
    outputs = spread * torch.randn(n, parameters.p, generator=generator, dtype=torch.float64)
    y = torch.randn(n, parameters.p, generator=generator, dtype=torch.float64)
    y[:, parameters.p0 :] = (y[:, parameters.p0 :] > 0).double()
    y[torch.rand(y.shape, generator=generator) < 0.2] = torch.nan
    y[0] = torch.nan
    return outputs, y


CASES = [
    (PAPER, 1.0),
    (PAPER, 500.0),
    (OPPOSED, 100.0),
    (LABELS_ONLY, 4.0),
]


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """What the kernel returns for each case, with holes, complete, and in float32 and transposed
    memory.
    """
    if find_spec("triton") is None:
        pytest.skip(
            "Triton is not installed (it comes with PyTorch for Linux): nothing to interpret"
        )
    from cevit_lib.copula.kernel import pack

    cases = []
    for parameters, spread in CASES:
        outputs, y = batch(parameters, spread)
        table = pack(likelihood_constants(parameters, all_patterns(parameters.p0)))
        cases.append((outputs, y, table, True))
        cases.append((outputs.float().T.contiguous().T, y.float(), table, True))
        cases.append((outputs, y.nan_to_num(1.0), pack(likelihood_constants(parameters)), False))
    broken = torch.tensor(
        [[0.0, torch.nan, 1.0, 1.0], [0.0, 0.0, torch.nan, 1.0], [0.0, 0.0, 0.0, torch.inf]]
    )
    cases.append((broken, torch.zeros(3, 4), pack(likelihood_constants(PAPER)), False))
    file = tmp_path_factory.mktemp("kernel") / "cases.pt"
    torch.save(cases, file)
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, HERE / "triton_program.py", file], env=environment, check=True)
    return list(zip(cases, torch.load(file), strict=True))


def by_operations(outputs, y, parameters):
    leaf = outputs.double().clone().requires_grad_()
    value = log_density(leaf, y.double(), parameters)
    value.sum().backward()
    return value.detach(), leaf.grad


@pytest.mark.parametrize("number", range(len(CASES)))
def test_the_kernel_computes_the_same_numbers(interpreted, number):
    for kind in range(3):
        (outputs, y, _, _), (value, gradient) = interpreted[3 * number + kind]
        expected, slope = by_operations(outputs, y, CASES[number][0])
        assert value.dtype == gradient.dtype == outputs.dtype
        relative = 1e-7 if outputs.dtype == torch.float32 else 1e-11
        torch.testing.assert_close(value.double(), expected, rtol=relative, atol=relative)
        torch.testing.assert_close(gradient.double(), slope, rtol=10 * relative, atol=relative)
        assert (gradient[torch.isnan(y)] == 0).all()


def test_the_kernel_hides_no_broken_output(interpreted):
    """A model that diverged gives NaN or an infinite loss, never a plausible number."""
    _, (value, gradient) = interpreted[-1]
    assert torch.isnan(value[:2]).all() and not torch.isfinite(value[2])
    assert torch.isnan(gradient[:2]).any(1).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize(("parameters", "spread"), CASES)
def test_the_gpu_gives_the_numbers_of_the_cpu(parameters, spread):
    outputs, y = batch(parameters, spread, 5000)
    loss = CopulaLoss(parameters, reduction="none", validate=False).cuda()
    assert isinstance(loss.tables[True].fast, torch.Tensor)
    leaf, y = outputs.cuda().requires_grad_(), y.cuda()
    torch.cuda.set_sync_debug_mode("error")  # nothing waits for the device
    try:
        value = -loss(leaf, y)  # the loss is minus the log density
        value.sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected, slope = by_operations(outputs, y.cpu(), parameters)
    torch.testing.assert_close(value.detach().cpu(), expected, rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(leaf.grad.cpu(), slope, rtol=1e-9, atol=1e-10)
