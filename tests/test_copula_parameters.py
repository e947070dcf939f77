"""CopulaParameters: what it refuses and how it says so, shrinking, storing, moving."""

import pytest
import torch

from cevit_lib.copula import CopulaLoss, CopulaParameters, log_density
from cevit_lib.errors import NotPositiveDefiniteError, ScaleError, ShapeError

GAMMA = [[1.0, 0.5, 0.2], [0.5, 1.0, 0.3], [0.2, 0.3, 1.0]]
# exchangeable with -0.4999: smallest eigenvalue 1 - 2 * 0.4999 = 2e-4
NEARLY = [[1.0, -0.4999, -0.4999], [-0.4999, 1.0, -0.4999], [-0.4999, -0.4999, 1.0]]


@pytest.mark.parametrize(
    ("correlation", "scale", "error", "message"),
    [
        ([[1.0, 0.5]], [1.0], ShapeError, r"\(1, 2\)"),
        (GAMMA, [1.0] * 4, ShapeError, r"\(4,\).*\(3, 3\)"),
        (GAMMA, [[1.0]], ShapeError, r"\(1, 1\)"),
        (GAMMA, [1.0, 0.0], ScaleError, r"scale\[1\] is 0"),
        (GAMMA, [-2.0], ScaleError, r"scale\[0\] is -2"),
        (GAMMA, [float("nan")], ScaleError, "nan"),
        ([[1.0, 0.5], [0.4, 1.0]], [1.0], NotPositiveDefiniteError, r"not symmetric.*0\.5.*0\.4"),
        (
            [[1.0, 0.5], [0.5, 2.0]],
            [1.0],
            NotPositiveDefiniteError,
            r"\[1, 1\] is 2, not 1.*covariance",
        ),
        (
            [[1.0, float("nan")], [float("nan"), 1.0]],
            [1.0],
            NotPositiveDefiniteError,
            r"\[0, 1\] is nan",
        ),
        (
            [[1.0, 1.2], [1.2, 1.0]],
            [1.0],
            NotPositiveDefiniteError,
            r"smallest eigenvalue is -0\.2.*shrink",
        ),
    ],
)
def test_refusals_say_what_and_where(correlation, scale, error, message):
    with pytest.raises(error, match=message):
        CopulaParameters(correlation, scale)
    assert issubclass(error, ValueError)


def test_near_singular_is_refused_by_the_loss_with_a_remedy():
    parameters = CopulaParameters(NEARLY, [1.0])
    with pytest.raises(NotPositiveDefiniteError, match=r"0\.0002.*shrink"):
        CopulaLoss(parameters)
    with pytest.raises(NotPositiveDefiniteError, match="shrink"):
        log_density(torch.zeros(1, 3), torch.zeros(1, 3), parameters)
    shrunk = parameters.shrink()
    assert shrunk.smallest_eigenvalue() == pytest.approx(0.01, abs=1e-12)
    CopulaLoss(shrunk)
    CopulaLoss(parameters, validate=False)


def test_shrink_is_exact_and_never_silent():
    parameters = CopulaParameters(GAMMA, [2.0])
    assert torch.equal(parameters.shrink().correlation, parameters.correlation)
    half = parameters.shrink(0.5)
    assert half.correlation[0, 1] == pytest.approx(0.25) and half.correlation[0, 0] == 1
    assert torch.equal(parameters.shrink(1.0).correlation, torch.eye(3, dtype=torch.float64))
    indefinite = CopulaParameters([[1.0, 1.2], [1.2, 1.0]], [1.0], validate=False)
    assert indefinite.shrink(minimum_eigenvalue=0.1).smallest_eigenvalue() == pytest.approx(0.1)
    for wrong in ({"weight": 1.5}, {"minimum_eigenvalue": 1.5}):
        with pytest.raises(ValueError, match="must lie in"):
            parameters.shrink(**wrong)
