"""Many labels: the composite likelihood of pairs, as a loss and as an estimator."""

import numpy as np
import pytest
import torch
from copula_oracles import patients

from cevit_lib.copula import (
    CopulaLoss,
    CopulaParameters,
    PairwiseCopulaLoss,
    condition_on,
    copula_loss,
    log_density,
)
from cevit_lib.estimation import MaximumLikelihood, PairwiseLikelihood

NAN = float("nan")


def exchangeable(p: int, rho: float) -> torch.Tensor:
    return torch.full((p, p), rho, dtype=torch.float64).fill_diagonal_(1)


def with_holes(n: int, p0: int, p1: int, rho: float):
    """Outputs, and responses of a copula with one correlation; a tenth is not observed."""
    rng = np.random.default_rng(0)
    outputs, y = patients(exchangeable(p0 + p1, rho).numpy(), p0, n, rng)
    y[torch.from_numpy(rng.uniform(size=y.shape)) < 0.1] = NAN
    return outputs, y


def test_with_two_labels_it_is_the_whole_likelihood():
    outputs, y = with_holes(40, 2, 2, 0.4)
    parameters = CopulaParameters(exchangeable(4, 0.4), [2.0, 2.0])
    torch.testing.assert_close(
        PairwiseCopulaLoss(parameters)(outputs, y), CopulaLoss(parameters)(outputs, y)
    )


def test_other_parameters_make_another_loss_and_come_back_from_its_state():
    """Training in one stage renews them after an epoch, and a checkpoint brings them back."""
    outputs, y = with_holes(30, 2, 5, 0.5)
    first, second = (CopulaParameters(exchangeable(7, rho), [2.0, 2.0]) for rho in (0.1, 0.5))
    loss, again = copula_loss(first), copula_loss(first)
    assert isinstance(loss, PairwiseCopulaLoss)  # five labels are too many together
    before, wanted = loss(outputs, y), copula_loss(second)(outputs, y)
    loss.set_parameters(second)
    assert before != wanted
    torch.testing.assert_close(loss(outputs, y), wanted, rtol=0, atol=0)
    again.load_state_dict(loss.state_dict())
    torch.testing.assert_close(again(outputs, y), wanted, rtol=0, atol=0)


def test_three_labels_in_pairs_are_the_sum_of_their_pairs():
    outputs, y = with_holes(30, 1, 3, 0.5)
    parameters = CopulaParameters(exchangeable(4, 0.5), [2.0])
    total = -(1 - 3 / 2) * log_density(outputs[:, :1], y[:, :1], parameters.margin([0]))
    for pair in ([0, 1, 2], [0, 1, 3], [0, 2, 3]):
        total -= log_density(outputs[:, pair], y[:, pair], parameters.margin(pair)) / 2
    outputs.requires_grad_()
    loss = PairwiseCopulaLoss(parameters, "none")(outputs, y)
    torch.testing.assert_close(loss, total)
    assert torch.autograd.grad(loss.sum(), outputs)[0].isfinite().all()


@pytest.mark.parametrize("p0, p1", [(2, 0), (1, 1), (0, 2)])
def test_of_two_responses_it_is_maximum_likelihood(p0, p1):
    outputs, y = with_holes(400, p0, p1, 0.5)
    y = torch.where(y.isnan().any(1, keepdim=True), NAN, y)  # whole pairs or nothing
    kept = ~y.isnan().any(1)
    ours, theirs = (
        estimator.fit(outputs[kept], y[kept], continuous=p0).parameters_
        for estimator in (PairwiseLikelihood(), MaximumLikelihood(fit_scale=False))
    )
    torch.testing.assert_close(ours.correlation, theirs.correlation, atol=1e-4, rtol=0)
    torch.testing.assert_close(ours.scale, theirs.scale)


def test_six_labels_and_two_lengths_are_estimated_where_nothing_else_can():
    outputs, y = with_holes(3000, 2, 6, 0.5)
    found = PairwiseLikelihood().fit(outputs, y, continuous=2)
    error = (found.parameters_.correlation - exchangeable(8, 0.5)).abs()
    assert (
        found.converged_ and error.max() < 4.5 * 0.04
    )  # SE of a tetrachoric correlation, n = 2430
    assert error.sum() / (8 * 7) < 0.03
    torch.testing.assert_close(
        found.parameters_.scale, torch.full((2,), 2.0).double(), rtol=0.1, atol=0
    )


def test_an_update_needs_only_the_dimensions_of_what_was_measured():
    """Twelve labels have no joint probability here; with one length and two labels one has."""
    outputs, y = with_holes(5, 2, 12, 0.5)
    parameters = CopulaParameters(exchangeable(14, 0.5), [2.0, 2.0])
    told = torch.full_like(y, NAN)
    told[:, 1], told[:, 3], told[:, 5] = 0.3, 1.0, 0.0
    found = condition_on(outputs, told, parameters)
    few = [0, 1, 3, 5, 9]
    small = condition_on(outputs[:, few], told[:, few], parameters.margin(few))
    torch.testing.assert_close(found.mean, small.mean, atol=1e-9, rtol=0)
    torch.testing.assert_close(found.probability[:, 7], small.probability[:, 2], atol=1e-9, rtol=0)
    assert found.probability[:, 1].tolist() == [1.0] * 5
