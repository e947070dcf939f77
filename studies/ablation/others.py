"""What stands beside the four models: the two predecessors, plain regressions, and the frozen encoder under one.

All see the same training and test patients as the fits of ``studies.ablation.fits``. CeCNN and OU-Copula train in
full, one network at a time in several processes of one device; the references train in a moment.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import PairedEyes
from cevit_lib.datasets.splits import Split
from cevit_lib.estimation import GaussianScoreCorrelation, MaximumLikelihood
from cevit_lib.records import new_record, rounded
from cevit_lib.training import Fit, Recipe, streams
from cevit_lib.training.algorithm import AlgorithmThree, Arm, Plan, Source, estimated
from cevit_lib.training.feasible import OneNetwork
from cevit_lib.training.loop import Stage
from studies.ablation.data import load_eyes, one_eye, partition
from studies.ablation.predecessors import CeCNN, OUCopulaCNN
from studies.simulation.fits import scores

PIXELS, COMPONENTS = 48, 30
WORKERS = 6  # processes on one accelerator; each network alone leaves most of it idle


def fit_others(
    study: str,
    wanted: list,
    missing: list[int],
    scale: str,
    device: torch.device,
    data: str | None,
    encoders: Any,
):
    """Yield number and record of each missing fit of a study, as they end."""
    if study == "ablation-predecessors":
        workers = min(WORKERS, len(missing)) if device.type == "cuda" else 1
        jobs = (delayed(_numbered)(k, study, wanted[k], scale, str(device), data) for k in missing)
        yield from Parallel(n_jobs=workers, return_as="generator_unordered")(jobs)
        return
    for k in missing:
        (configuration, seed), begun = wanted[k], time.perf_counter()
        eyes = load_eyes(
            configuration["data"], configuration["size"], configuration["mirror"], data
        )
        split, told = partition(eyes, configuration), None
        features = plain_features(eyes)
        if study == "ablation-probe":
            backbone, told = encoders(configuration)
            features = {"frozen encoder": frozen_features(backbone, eyes, device)}
        arms, used = {}, {}
        with threadpool_limits(
            1
        ):  # matrices so small that several threads only wait for each other
            for name, columns in features.items():
                arms[name], used[name] = regress(columns, eyes, split)
        yield (
            k,
            _record(
                study,
                configuration,
                seed,
                scale,
                eyes,
                split,
                arms,
                used,
                told,
                begun,
                torch.device("cpu"),
            ),
        )


def _numbered(number, study, fit, scale, device, data):
    torch.set_num_threads(
        max(1, torch.get_num_threads() // WORKERS) if device != "cpu" else torch.get_num_threads()
    )
    return number, fit_predecessors(study, fit, scale, torch.device(device), data)


def fit_predecessors(
    study: str, fit: tuple, scale: str, device: torch.device, data: str | None
) -> dict:
    """Train CeCNN on each eye and OU-Copula on both, with the ViTs' epochs, and return the record."""
    (c, seed), begun = fit, time.perf_counter()
    eyes = load_eyes(c["data"], c["size"], c["mirror"], data)
    split = partition(eyes, c)
    train, test = eyes.subset(split.train), eyes.subset(split.test)
    arms, used = {}, {}
    single = [
        _arms("CeCNN", one_eye(train, j), one_eye(test, j), c, seed, j, device) for j in range(2)
    ]
    for stage in single[0][0]:
        name = f"CeCNN {stage}"
        arms[name] = torch.stack(
            [single[j][0][stage][:, k] for k in range(2) for j in range(2)], 1
        )
        used[name] = side_by_side([own[1] for own in single])
    both, estimate = _arms("OUCopulaCNN", train, test, c, seed, 2, device)
    arms |= {f"OUCopulaCNN {stage}": outputs for stage, outputs in both.items()}
    used |= {f"OUCopulaCNN {stage}": estimate for stage in both}
    return _record(
        study, c, seed, scale, eyes, split, arms, used, {"kind": c["weights"]}, begun, device
    )


def _arms(
    kind: str,
    train: PairedEyes,
    test: PairedEyes,
    c: dict,
    seed: int,
    number: int,
    device: torch.device,
):
    """Return test outputs of a predecessor after each stage of Algorithm 3; and its estimate."""
    key = (c["partition"], c["fold"], number)
    torch.manual_seed(int(streams(seed, *key).weights.integers(2**31)))
    model = {"CeCNN": CeCNN, "OUCopulaCNN": OUCopulaCNN}[kind](
        pretrained=c["weights"] == "imagenet"
    )
    network = OneNetwork(
        Fit.fresh(model, train, standardise=True),
        {"train": train, "test": test},
        lambda turn: streams(seed, *key, *((turn,) if turn else ())).order,
        Stage("", device=device),
    )
    scores_of_training = {"estimate": Source(GaussianScoreCorrelation, "train")}
    plan = Plan(Recipe(**c["warm_up"]), Recipe(**c["further"]), scores_of_training)
    steps = AlgorithmThree(network, plan)
    arms = {"warm-up": steps.warm_up()}
    (estimate,) = steps.estimate()["estimate"]
    arms |= {"empirical": steps.train(Arm("empirical"))}
    arms |= {"copula": steps.train(Arm("copula", "estimate"))}
    return {name: own.outputs("test")[0] for name, own in arms.items()}, estimate


def side_by_side(parameters: list[CopulaParameters]) -> CopulaParameters:
    """Return both eyes' parameters as one: correlated within an eye, independent across, measures before eyes."""
    correlation = torch.eye(4, dtype=torch.float64)
    for j, own in enumerate(parameters):
        correlation[j, 2 + j] = correlation[2 + j, j] = own.correlation.detach()[0, 1]
    return CopulaParameters(
        correlation, torch.cat([own.scale.detach().reshape(-1) for own in parameters])
    )


def plain_features(eyes: PairedEyes) -> dict[str, np.ndarray]:
    """Return ``(n, eyes, k)`` columns of each reference: nothing, age and camera, and small pictures."""
    n = len(eyes)
    small = torch.nn.functional.interpolate(eyes.load().flatten(0, 1), PIXELS, mode="area")
    return {
        "constant": np.zeros((n, 2, 1)),
        "age and camera": eyes.covariates.numpy(),
        "PCA of pixels": small.reshape(n, 2, -1).double().numpy(),
    }


@torch.no_grad()
def frozen_features(
    backbone: torch.nn.Module, eyes: PairedEyes, device: torch.device
) -> np.ndarray:
    """Return ``(n, eyes, 2 width)``: class token and mean of the patch tokens, nothing trained."""
    backbone = backbone.to(device).eval()
    tokens = torch.cat(
        [
            backbone.forward_features(part.to(device) * 2 - 1).cpu()
            for part in eyes.load().flatten(0, 1).split(64)
        ]
    )
    both = torch.cat([tokens[:, 0], tokens[:, 1:].mean(1)], 1).double().numpy()
    return both.reshape(len(eyes), 2, -1)


def regress(
    columns: np.ndarray, eyes: PairedEyes, split: Split
) -> tuple[torch.Tensor, CopulaParameters]:
    """Fit ridge and logistic regressions, one an eye and response; return test outputs and copula parameters.

    The parameters are estimated from cross-validated outputs of the training patients, as those of the networks.
    """
    from sklearn.model_selection import KFold

    inner = np.zeros((len(split.train), 4))
    for fit, left_out in KFold(5, shuffle=True, random_state=0).split(split.train):
        inner[left_out] = _predict(columns, eyes.y.numpy(), split.train[fit], split.train[left_out])
    exact = MaximumLikelihood(standard_errors=False)
    with warnings.catch_warnings():  # what did not converge is seen in the stored matrix
        warnings.simplefilter("ignore")
        fitted, _ = estimated(exact, torch.from_numpy(inner), eyes.y[split.train])
    return torch.from_numpy(_predict(columns, eyes.y.numpy(), split.train, split.test)), fitted


def _predict(columns: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression, RidgeCV

    found = np.zeros((len(test), 4))
    for j in range(2):
        reduce = _reduction(columns[:, j].shape[1], len(train)).fit(columns[train, j])
        x, new = reduce.transform(columns[train, j]), reduce.transform(columns[test, j])
        found[:, j] = RidgeCV(np.logspace(-2, 4, 13)).fit(x, y[train, j]).predict(new)
        label = y[train, 2 + j]
        if (
            len(np.unique(label)) < 2
        ):  # an inner part without a class: its prior, half a patient added to each side
            found[:, 2 + j] = np.log((label.sum() + 0.5) / (len(label) - label.sum() + 0.5))
        else:
            found[:, 2 + j] = (
                LogisticRegression(C=0.1, max_iter=2000).fit(x, label).decision_function(new)
            )
    return found


def _reduction(width: int, patients: int):
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if width <= COMPONENTS:
        return make_pipeline(StandardScaler())
    return make_pipeline(StandardScaler(), PCA(min(COMPONENTS, patients - 1), random_state=0))


def _record(
    study, configuration, seed, scale, eyes, split, arms, used, told, begun, device
) -> dict:
    from studies.ablation.fits import about, predictions_of

    y = eyes.y[split.test]
    return new_record(
        study,
        configuration,
        [seed],
        rounded({name: scores(own, y, used[name]) for name, own in arms.items()}),
        scale=scale,
        parameters={"weights": told} | {name: own.to_dict() for name, own in used.items()},
        predictions=predictions_of(eyes, split, arms),
        notes=about(eyes, split),
        seconds=time.perf_counter() - begun,
        dtype="bf16, loss in float32" if device.type == "cuda" else "float32",
        device=device,
    )
