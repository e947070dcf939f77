"""An ensemble is its members: the same numbers as the same fits made one by one."""

from dataclasses import replace
from functools import partial

import checkpoint_program
import numpy as np
import pytest
import torch

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import SyntheticPairs
from cevit_lib.errors import TrainingError
from cevit_lib.training import Recipe, Standardisation, fit_copula, fit_warm_up, predict_outputs
from cevit_lib.training.ensemble import Ensemble, Members
from cevit_lib.training.objective import Objective
from cevit_lib.training.side_by_side import SideBySide

RECIPE = Recipe(2, 1e-3, 16)
network = partial(checkpoint_program.network, dropout=0.0)


@pytest.fixture(scope="module")
def study():
    data = [SyntheticPairs(40, np.random.default_rng(seed), window=24) for seed in range(2)]
    members = Members(
        torch.cat([d.images for d in data]),
        torch.cat([d.y for d in data]),
        np.arange(80).reshape(2, 40),
        [Standardisation.of(d.y, 2) for d in data],
    )
    return data, members


def test_members_are_the_single_fits(study):
    data, members = study
    alone = [
        fit_warm_up(network(k), d, RECIPE, rng=np.random.default_rng(k), device="cpu")
        for k, d in enumerate(data)
    ]
    networks = SideBySide(
        Ensemble([network(k) for k in range(2)]),
        members,
        {"train": list(members.rows)},
        lambda number: [np.random.default_rng(9 if number else k) for k in range(2)],
    )
    traces = networks.train("warm-up", RECIPE, None, 0)
    outputs = networks.outputs("train")
    for k in range(2):
        expected = predict_outputs(alone[k], data[k], device="cpu")
        torch.testing.assert_close(outputs[k], expected, atol=2e-5, rtol=0)
        for key in ("loss", "gradient_norm", "learning_rate"):
            together, single = (
                [entry[key] for entry in trace] for trace in (traces[k], alone[k].trace)
            )
            np.testing.assert_allclose(together, single, rtol=1e-4)

    gammas = [
        CopulaParameters(data[0].truth.correlation, [1.0, 1.0]),
        CopulaParameters.independent([1.3, 0.9], 2),
    ]
    own = networks.ensemble.parameters
    before = {name: value.detach().clone() for name, value in own.items()}
    twin = networks.copy()
    twin.train("copula", RECIPE, Objective(gammas), 1)
    for k, outputs in enumerate(twin.outputs("train")):
        single = fit_copula(
            alone[k], data[k], gammas[k], RECIPE, rng=np.random.default_rng(9), device="cpu"
        )
        expected = predict_outputs(single, data[k], device="cpu")
        torch.testing.assert_close(outputs, expected, atol=2e-5, rtol=0)
    assert all(torch.equal(before[name], value) for name, value in own.items())  # the twin alone


def test_a_member_is_taken_from_another_ensemble_and_loads_into_a_network_of_its_kind(study):
    one, other = (Ensemble([network(k), network(k + 1)]) for k in (0, 2))
    one.take(other, np.array([1]))
    images = study[0][0].images[:5]
    together = one(images.expand(2, *images.shape))
    for member, source in enumerate((network(0), network(3))):
        alone = network(6)
        alone.load_state_dict(one.state(member), strict=False)
        with torch.no_grad():
            assert torch.equal(alone(images), source(images))
            torch.testing.assert_close(together[member], source(images), atol=1e-5, rtol=0)
    assert all(value.requires_grad for value in one.parameters.values())


def test_a_diverged_member_is_named(study):
    _, members = study
    networks = SideBySide(
        Ensemble([network(0), network(1)]),
        members,
        {"train": list(members.rows)},
        lambda _: [np.random.default_rng(k) for k in range(2)],
    )
    with torch.no_grad():
        networks.ensemble.parameters["heads.continuous_1.weight"][1] = float("nan")
    with pytest.raises(TrainingError, match="member 2 of 2 is not finite in epoch 1, batch 1"):
        networks.train("warm-up", RECIPE, None, 0)


def test_a_program_with_wrong_gradients_is_dropped(study):
    """A compiler's mistake looks like networks that do not learn: the gradients are compared before
    they are used.
    """
    _, members = study
    ensemble = Ensemble([network(k) for k in range(2)])
    images = members.images[torch.as_tensor(members.rows[:, :20])]
    before = {name: value.detach().clone() for name, value in ensemble.parameters.items()}
    plain = ensemble.plain
    # the same program, other chunks
    assert ensemble.trust_compiler(images, "float32", chunk=8) < 1e-4

    def forgetful(parameters, buffers, images):
        """Give the right outputs, and no gradient to what the second member's adapters hold."""
        kept = {
            k: torch.stack([v[0], v[1].detach()]) if "adapter" in k else v
            for k, v in parameters.items()
        }
        return plain(kept, buffers, images)

    ensemble.program, ensemble.compiled = forgetful, True
    with pytest.warns(UserWarning, match="goes on uncompiled"):
        assert 0.4 < ensemble.trust_compiler(images, "float32") <= 1.0
    assert ensemble.program is plain and not ensemble.compiled
    assert all(torch.equal(before[name], value) for name, value in ensemble.parameters.items())
    assert all(value.grad is None for value in ensemble.parameters.values())


def test_the_units_of_members_lie_where_their_responses_do(study):
    """Else every step copies them to the device, and waits for it."""
    units = replace(study[1], y=study[1].y.to("meta")).units
    assert units.mean.is_meta and units.sd.is_meta


@pytest.mark.weekly
def test_the_compiled_program_has_the_gradients_of_the_uncompiled_one(study):
    _, members = study
    ensemble = Ensemble([network(k) for k in range(2)], compiled=True)
    assert (
        ensemble.trust_compiler(
            members.images[torch.as_tensor(members.rows[:, :8])], "float32", chunk=4
        )
        < 1e-3
    )
    assert ensemble.compiled
