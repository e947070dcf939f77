"""The second step of Algorithm 3 in a checkpoint: the copula parameters and the estimator as it was fitted."""

import re
from typing import Any

import numpy as np
from torch import Tensor

from cevit_lib.copula import CopulaParameters
from cevit_lib.training import checkpoint as files
from cevit_lib.training.processes import processes

STAGE = "estimate"


def recall_estimate(
    checkpoint: files.Checkpoint | None,
    identity: dict,
    estimator: Any,
    outputs: Tensor,
    rng: np.random.Generator,
) -> tuple[CopulaParameters, dict[str, Any]] | None:
    """Return parameters and remarks of an estimate that was kept, and give the estimator what it had learnt."""
    stored = (
        checkpoint.load(STAGE, _identify(identity, outputs)) if checkpoint is not None else None
    )
    if stored is None:
        return None
    for name, value in stored["estimator"].items():
        setattr(estimator, name, _unpacked(value))
    files.set_rng_state(rng, stored["order"])
    return _unpacked(stored["parameters"]), stored["remarks"]


def keep_estimate(
    checkpoint: files.Checkpoint | None,
    identity: dict,
    estimator: Any,
    outputs: Tensor,
    rng: np.random.Generator,
    parameters: CopulaParameters,
    remarks: dict[str, Any],
) -> None:
    """Write the estimate; of several processes the first one writes."""
    if checkpoint is None or not processes().main:
        return
    learnt = {name: _packed(value) for name, value in vars(estimator).items() if name.endswith("_")}
    state = {
        "parameters": _packed(parameters),
        "remarks": remarks,
        "estimator": learnt,
        "order": files.rng_state(rng),
    }
    checkpoint.save(STAGE, _identify(identity, outputs), state)


def _identify(identity: dict, outputs: Tensor) -> dict[str, Any]:
    # a generator prints its address, which is another one in every process
    named = {key: re.sub(r" at 0x[0-9A-Fa-f]+", "", str(value)) for key, value in identity.items()}
    return {**named, "outputs": list(outputs.shape)}


def _packed(value: Any) -> Any:
    """Return arrays as tagged lists, copula parameters as what they store: plain values, read back without any code."""
    if isinstance(value, CopulaParameters):
        return {"copula parameters": value.to_dict()}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {"dict": {str(key): _packed(element) for key, element in value.items()}}
    if isinstance(value, (list, tuple)):
        return [_packed(element) for element in value]
    return (
        value if value is None or isinstance(value, (str, int, float, bool, Tensor)) else str(value)
    )


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(element) for element in value]
    if not isinstance(value, dict):
        return value
    if "copula parameters" in value:
        return CopulaParameters.from_dict(value["copula parameters"])
    if "array" in value:
        return np.array(value["array"])
    return {key: _unpacked(element) for key, element in value["dict"].items()}
