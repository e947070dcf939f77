"""One fit: a fold with its warm-up, its control and its copula arm, and the record it ends in."""

from __future__ import annotations

import copy
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cevit_lib import estimation
from cevit_lib.clinic.configuration import facts_of, file_hash, load_data, split_of, study_of
from cevit_lib.clinic.options import ARMS, ESTIMATORS, TINY
from cevit_lib.clinic.performance import usual_of
from cevit_lib.copula import MOST_TOGETHER
from cevit_lib.datasets import PairedEyes
from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import ParameterError
from cevit_lib.metrics import evaluate
from cevit_lib.records import new_record, rounded
from cevit_lib.training import (
    Fit,
    OneStage,
    Recipe,
    fit_feasible_cevit,
    fit_one_stage,
    predict,
    streams,
)


def fit_fold(
    configuration: dict[str, Any],
    seed: int,
    data: PairedEyes,
    scale: str = "paper",
    weights: str | Path | None = None,
    **where: Any,
) -> tuple[dict[str, Any], Fit]:
    """Fit one fold with all its arms; return its record (not written) and the copula's fit.

    Fold 0 trains on all patients: its record has no metrics, for nobody is left to test on.
    ``weights`` is the file whose hash the configuration holds, where it holds one; ``device`` and
    ``checkpoint`` are no part of what identifies the fit either.
    """
    start = time.perf_counter()
    split, randomness = split_of(data, configuration, seed), streams(seed, configuration["fold"])
    training, test = data.subset(split.train), data.subset(split.test)
    model = build_model(configuration, training, randomness.weights, weights)
    arms = _fit(model, training, configuration, randomness.order, **where)
    fitted = arms["copula"]
    last = [entry["estimate"] for entry in fitted.trace if "estimate" in entry][-1:]
    told = {**fitted.notes, **dict(*last)}  # one stage estimates along the way
    outputs, metrics = {name: [] for name in arms}, {}
    if len(test):
        outputs, metrics = _tested(arms, test, where.get("device"))
    further = [entry for entry in arms[ARMS[1]].trace if entry["stage"] == ARMS[1]]
    usual = usual_of(training.y.numpy(), data.responses, data.continuous, data.domains)
    record = new_record(
        study_of(configuration),
        configuration,
        [seed],
        metrics,
        scale=scale,
        parameters={**fitted.parameters.to_dict(), **fitted.standardisation.to_dict()},
        trace=[rounded(entry) for entry in (*fitted.trace, *further)],
        predictions={
            "id": list(test.ids),
            **({"visit": list(test.visits)} if test.visits else {}),
            "y": rounded(test.y.tolist()),
            "usual": rounded(usual),
            **outputs,
        },
        data=facts_of(data, configuration, seed),
        seconds=time.perf_counter() - start,
        dtype="float32",
        status="done" if told["converged"] else "not converged",
        notes=_remarks(fitted, told["shrunk"], len(training), len(test)),
    )
    return record, fitted


def _tested(arms: dict[str, Fit], test: PairedEyes, device: str | None) -> tuple[dict, dict]:
    """Return each arm's outputs for the test patients, and its metrics."""
    outputs, metrics = {}, {}
    for name, arm in arms.items():
        p = predict(arm, test, parameters=arms["copula"].parameters, device=device)
        together = p.parameters.p1 <= MOST_TOGETHER
        classes = p.classes() if name == "copula" and together else None
        found = evaluate(p.outputs, test.y, test.responses, test.continuous, classes)
        outputs[name], metrics[name] = rounded(p.outputs.tolist()), asdict(found)
    return outputs, metrics


def refit(record: dict[str, Any]) -> dict[str, Any]:
    """Fit the fold of a record again from its configuration and seed, for ``cevit verify``.

    A record made with a file of weights needs that file, named by ``CEVIT_WEIGHTS``; one of
    somebody's own table needs ``CEVIT_TABLE`` and ``CEVIT_IMAGES``.
    """
    configuration, weights = record["configuration"], os.environ.get("CEVIT_WEIGHTS")
    data = load_data({**configuration["data"], "folder": None})
    return fit_fold(configuration, record["seeds"][0], data, record["scale"], weights)[0]


def build_model(
    configuration: dict[str, Any],
    data: PairedEyes,
    rng: np.random.Generator,
    weights: str | Path | None = None,
) -> BiChannelViT:
    """Return a fresh encoder for the images and the responses of ``data``.

    Raises
    ------
    ParameterError
        The configuration was made with another file of weights, or with one and none is given.
    """
    encoder, known = dict(configuration["encoder"]), configuration["encoder"]["weights"]
    if known != (file_hash(weights) if weights and known else None):
        raise ParameterError(
            f"this fit stands on the weights file with sha256 {known}…; name it by --weights or "
            "CEVIT_WEIGHTS."
        )
    encoder["weights"] = weights if known else None
    channels, size = data.images.shape[2], data.images.shape[-1]
    if encoder["backbone"] == "tiny":  # 36 patches an eye, 16 in the synthetic window
        encoder |= TINY | {"backbone": "vit_tiny_patch16_224", "patch_size": max(3, size // 6)}
    if configuration["data"]["name"] == "table":
        layout = configuration["data"]["layout"]
        encoder["tasks"] = _tasks(layout)
        encoder["covariates"] = units_of(data) if layout.get("covariates") else ()
    network = BiChannelViT(
        **encoder,
        img_size=size,
        in_chans=channels,
        domains=len(data.domains),
        rng=rng,
        normalise=data.name != "synthetic",
    )
    if "augmentation" in configuration:
        augment(network, **configuration["augmentation"])
    return network


def augment(network: nn.Module, rotation: float = 0.0, colour: float = 0.0) -> None:
    """Change what a network sees, each photograph on its own, as long as it trains.

    Nothing is flipped: a left eye that is flipped looks like a right one, and the network has
    adapters and heads for each. A turn has the same law for an eye that was mirrored on reading.

    Parameters
    ----------
    network : torch.nn.Module
        Its first input are images ``(n, domains, 3, height, width)``, 0 to 1.
    rotation : float
        Largest turn in degrees, to either side; black comes where nothing was.
    colour : float
        Brightness, contrast and saturation are multiplied by numbers from 1 less this to 1 plus it.
    """
    from torchvision.transforms import v2

    turn = v2.RandomRotation(rotation, v2.InterpolationMode.BILINEAR)
    change = v2.Compose([turn, v2.ColorJitter(colour, colour, colour)])

    def changed(network: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not network.training:
            return None
        images, *further = inputs
        return (
            torch.stack([change(one) for one in images.flatten(0, 1)]).view_as(images),
            *further,
        )

    network.register_forward_pre_hook(changed)


def units_of(data: PairedEyes) -> list[tuple[float, float]]:
    """Return mean and SD of each covariate among training patients, both eyes together; one that is
    the same in all of them is in units of its own.
    """
    columns = (values[values.isfinite()] for values in data.covariates.flatten(0, 1).T)
    return [(float(seen.mean()), float(seen.std()) or 1.0) for seen in columns]


def _tasks(layout: dict[str, Any]) -> tuple[str, ...]:
    """Return the encoder's task for each declared response, in the order of the columns."""
    whole = layout.get("patient_level", ())
    return tuple(
        f"patient {kind}" if name in whole else kind
        for kind in ("continuous", "binary")
        for name in layout.get(kind, {})
    )


def _fit(
    model: BiChannelViT,
    training: PairedEyes,
    configuration: dict[str, Any],
    rng: np.random.Generator,
    **where: Any,
) -> dict[str, Fit]:
    """Train all arms of a fold; the control has the epochs of the copula's."""
    kind = getattr(estimation, ESTIMATORS[configuration["estimator"]])
    estimator = kind(**configuration.get("estimator_settings", {}))
    chosen = {"estimator": estimator, "estimate_on": configuration["estimate_on"]}
    recipes = {
        stage: Recipe(batch_size=configuration["batch_size"], **recipe)
        for stage, recipe in configuration["recipes"].items()
    }
    if configuration.get("algorithm") == "one-stage":
        settings, recipe, same = OneStage(**chosen), recipes["one_stage"], copy.deepcopy(rng)
        control = settings.network(copy.deepcopy(model), training, same, **where)
        fitted = fit_one_stage(model, training, recipe, settings, rng=rng, **where)
        control.train(ARMS[1], recipe, None, 0)
        return {ARMS[1]: control.fit, ARMS[2]: fitted}
    preset = configuration["preset"]
    steps = fit_feasible_cevit(
        model, training, **chosen, **recipes, preset=preset, rng=rng, **where
    )
    control = steps.arm(None, ARMS[1])
    return dict(zip(ARMS, (steps.warm_up, control, steps.copula), strict=True))


def _remarks(fit: Fit, shrunk: float, training: int, test: int) -> str:
    weights = fit.model.origin
    if weights == "random" and not fit.model.configuration["lora_rank"]:
        weights = "random, trained here in full"
    more = f"; correlation shrunk by {shrunk:.3g}" if shrunk else ""
    return f"backbone weights: {weights}; {training} patients to train, {test} to test{more}"
