"""One fit: a fold with its warm-up, its control and its copula arm, and the record that it ends in."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cevit_lib.clinic.configuration import facts_of, file_hash, load_data, split_of, study_of
from cevit_lib.clinic.options import ARMS, ESTIMATORS, TINY
from cevit_lib.errors import ParameterError

if TYPE_CHECKING:
    from cevit_lib.datasets import PairedEyes
    from cevit_lib.training import FeasibleFit, Fit


def fit_fold(
    configuration: dict[str, Any],
    seed: int,
    data: PairedEyes,
    scale: str = "paper",
    device: str = "auto",
    weights: str | Path | None = None,
    checkpoint: Any = None,
) -> tuple[dict[str, Any], FeasibleFit]:
    """Fit one fold with all its arms; return its record (not written) and the fit itself.

    ``weights`` names the file whose hash the configuration holds, where it holds one. Fold 0 trains on all patients:
    its record has no metrics, for nobody is left to test on.
    """
    from cevit_lib.records import new_record, rounded
    from cevit_lib.training import streams

    start = time.perf_counter()
    split, randomness = split_of(data, configuration, seed), streams(seed, configuration["fold"])
    training, test = data.subset(split.train), data.subset(split.test)
    model = build_model(configuration, data, randomness.weights, weights)
    fitted = _fit(model, training, configuration, randomness.order, device, checkpoint)
    control = fitted.arm(None, ARMS[1], device=device, checkpoint=checkpoint)
    arms = dict(zip(ARMS, (fitted.warm_up, control, fitted.copula), strict=True))
    outputs, metrics = (
        _tested(arms, test, fitted, device) if len(test) else ({name: [] for name in ARMS}, {})
    )
    record = new_record(
        study_of(configuration),
        configuration,
        [seed],
        metrics,
        scale=scale,
        parameters={**fitted.parameters.to_dict(), **fitted.copula.standardisation.to_dict()},
        trace=[
            rounded(entry)
            for entry in (*fitted.copula.trace, *control.trace[len(fitted.warm_up.trace) :])
        ],
        predictions={"id": list(test.ids), "y": rounded(test.y.tolist()), **outputs},
        data=facts_of(data, configuration, seed),
        seconds=time.perf_counter() - start,
        dtype="float32",
        status="done" if fitted.copula.notes["converged"] else "not converged",
        notes=_remarks(fitted, len(training), len(test)),
    )
    return record, fitted


def _tested(
    arms: dict[str, Fit], test: PairedEyes, fitted: FeasibleFit, device: str
) -> tuple[dict, dict]:
    """Return each arm's outputs for the test patients, and its metrics."""
    from cevit_lib.metrics import evaluate
    from cevit_lib.records import rounded
    from cevit_lib.training import predict

    outputs, metrics = {}, {}
    for name, arm in arms.items():
        p = predict(arm, test, parameters=fitted.parameters, device=device)
        classes = p.classes() if name == "copula" else None
        metrics[name] = evaluate(
            p.outputs, test.y, test.responses, test.continuous, classes
        ).to_dict()
        outputs[name] = rounded(p.outputs.tolist())
    return outputs, metrics


def refit(record: dict[str, Any]) -> dict[str, Any]:
    """Fit the fold of a record again from its configuration and seed, for ``cevit verify``.

    A record made with a file of weights needs that file, named by ``CEVIT_WEIGHTS``; one of somebody's own table needs
    ``CEVIT_TABLE`` and ``CEVIT_IMAGES``.
    """
    configuration = record["configuration"]
    data = load_data({**configuration["data"], "folder": None})
    weights = os.environ.get("CEVIT_WEIGHTS")
    return fit_fold(configuration, record["seeds"][0], data, record["scale"], weights=weights)[0]


def build_model(
    configuration: dict[str, Any], data: PairedEyes, rng: Any, weights: str | Path | None = None
) -> Any:
    """Return a fresh encoder for the images and the responses of ``data``.

    Raises
    ------
    ParameterError
        The configuration was made with another file of weights, or with one and none is given.
    """
    from cevit_lib.encoder import BiChannelViT

    encoder = dict(configuration["encoder"])
    if encoder["weights"] != (file_hash(weights) if weights and encoder["weights"] else None):
        raise ParameterError(
            f"this fit stands on the weights file with sha256 {encoder['weights']}…; name it by --weights or "
            "CEVIT_WEIGHTS."
        )
    encoder["weights"] = weights if encoder["weights"] else None
    kwargs: dict[str, Any] = {}
    if encoder["backbone"] == "tiny":
        encoder["backbone"], kwargs = "vit_tiny_patch16_224", dict(TINY)
        kwargs["patch_size"] = max(
            3, data.images.shape[-1] // 6
        )  # 36 patches an eye, 16 in the synthetic window
    kwargs |= {"img_size": data.images.shape[-1], "in_chans": data.images.shape[2]}
    if configuration["data"]["name"] == "table":
        kwargs["tasks"] = _tasks(configuration["data"]["layout"])
    return BiChannelViT(
        **encoder, domains=len(data.domains), rng=rng, normalise=data.name != "synthetic", **kwargs
    )


def _tasks(layout: dict[str, Any]) -> tuple[str, ...]:
    """Return the encoder's task for each declared response, in the order of the columns of ``y``."""
    whole = layout.get("patient_level", ())
    return tuple(
        f"patient {kind}" if name in whole else kind
        for kind in ("continuous", "binary")
        for name in layout.get(kind, {})
    )


def _fit(
    model: Any,
    training: PairedEyes,
    configuration: dict[str, Any],
    rng: Any,
    device: str,
    checkpoint: Any,
) -> FeasibleFit:
    from cevit_lib import estimation
    from cevit_lib.training import Recipe, fit_feasible_cevit

    estimator = getattr(estimation, ESTIMATORS[configuration["estimator"]])
    estimator = estimator(**configuration.get("estimator_settings", {}))
    warm_up, copula = (
        Recipe(batch_size=configuration["batch_size"], **configuration["recipes"][stage])
        for stage in ("warm_up", "copula")
    )
    return fit_feasible_cevit(
        model,
        training,
        estimator=estimator,
        estimate_on=configuration["estimate_on"],
        warm_up=warm_up,
        copula=copula,
        preset=configuration["preset"],
        rng=rng,
        device=device,
        checkpoint=checkpoint,
    )


def _remarks(fitted: FeasibleFit, training: int, test: int) -> str:
    fit: Fit = fitted.copula
    origin = fit.model.origin
    weights = (
        "random, trained here in full"
        if origin == "random" and not fit.model.configuration["lora_rank"]
        else origin
    )
    shrunk = f"; correlation shrunk by {fit.notes['shrunk']:.3g}" if fit.notes["shrunk"] else ""
    return f"backbone weights: {weights}; {training} patients to train, {test} to test{shrunk}"
