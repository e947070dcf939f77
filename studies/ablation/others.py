"""What stands beside the four models: the two predecessors, plain regressions, and the frozen
encoder under one.

    python -m studies ablation-references ablation-probe
    python -m studies ablation-predecessors --device cuda:0 --share 6

All see the same training and test patients as the fits of ``studies.ablation.fits``. CeCNN and
OU-Copula train in full; each network alone leaves most of an accelerator idle, so that several
processes may share one. The references train in a moment.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import torch

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import PairedEyes
from cevit_lib.datasets.splits import Split
from cevit_lib.estimation import GaussianScoreCorrelation, MaximumLikelihood
from cevit_lib.records import rounded
from cevit_lib.training import Fit, Recipe, find_device, streams
from cevit_lib.training.algorithm import AlgorithmThree
from cevit_lib.training.network import OneNetwork
from cevit_lib.training.objective import Source, estimated
from studies.ablation.data import about, load_eyes, one_eye, partition, predictions_of
from studies.ablation.predecessors import CeCNN, CutResNet, OUCopulaCNN
from studies.ablation.pretraining import Encoders
from studies.ablation.settings import grid
from studies.simulation.fits import scores
from studies.study import Study

PIXELS, COMPONENTS = 48, 30
Arms = dict[str, tuple[torch.Tensor, CopulaParameters]]
"""Arm -> outputs for the test patients, and the copula parameters that they are read with."""


def fit_references(c: dict, seed: int, scale: str) -> dict[str, Any]:
    """Regress on nothing, on age and camera, and on small pictures."""
    eyes, split = _eyes_and_split(c)
    arms = {name: regress(x, eyes, split) for name, x in plain_features(eyes).items()}
    return _content(eyes, split, arms, None)


def fit_probe(c: dict, seed: int, scale: str) -> dict[str, Any]:
    """Regress on what the frozen encoder says."""
    eyes, split = _eyes_and_split(c)
    backbone, told = Encoders(scale)(c)
    arms = {"frozen encoder": regress(frozen_features(backbone, eyes), eyes, split)}
    return _content(eyes, split, arms, told)


def fit_predecessors(c: dict, seed: int, scale: str, device: Any = None) -> dict[str, Any]:
    """Train CeCNN on each eye and OU-Copula on both, with the ViTs' epochs."""
    eyes, split = _eyes_and_split(c)
    where, key = find_device(device), (seed, c["partition"], c["fold"])
    train, test = eyes.subset(split.train), eyes.subset(split.test)
    left, right = (
        _stages(CeCNN, (one_eye(train, j), one_eye(test, j)), c, (*key, j), where) for j in range(2)
    )
    arms: Arms = {}
    for stage in left:
        (one, gamma), (other, delta) = left[stage], right[stage]
        outputs = torch.stack([one, other], dim=2).flatten(1)  # response by response, eye by eye
        arms[f"CeCNN {stage}"] = outputs, side_by_side([gamma, delta])
    both = _stages(OUCopulaCNN, (train, test), c, (*key, 2), where)
    arms |= {f"OUCopulaCNN {stage}": arm for stage, arm in both.items()}
    dtype = "bf16, loss in float32" if where.type == "cuda" else "float32"
    content = _content(eyes, split, arms, {"kind": c["weights"]})
    return content | {"dtype": dtype, "device": where}


def _stages(
    kind: type[CutResNet],
    data: tuple[PairedEyes, PairedEyes],
    c: dict,
    key: tuple[int, ...],
    device: torch.device,
) -> Arms:
    """Return a predecessor's arms: after the warm-up, more epochs of it, and copula training
    instead."""
    train, test = data
    torch.manual_seed(int(streams(*key).weights.integers(2**31)))
    network = OneNetwork(
        Fit.fresh(kind(pretrained=c["weights"] == "imagenet"), train, standardise=True),
        {"train": train, "test": test},
        lambda turn: streams(*key, *((turn,) if turn else ())).order,
        device,
    )
    sources = {"estimate": Source(GaussianScoreCorrelation, "train")}
    steps = AlgorithmThree(network, Recipe(**c["warm_up"]), Recipe(**c["further"]), sources)
    found = {"warm-up": steps.warm_up()}
    estimate = steps.estimate()["estimate"]
    found |= {"empirical": steps.train("empirical"), "copula": steps.train("copula", estimate)}
    return {name: (own.outputs("test")[0], estimate[0]) for name, own in found.items()}


def side_by_side(parameters: list[CopulaParameters]) -> CopulaParameters:
    """Return both eyes' parameters as one: correlated within an eye, independent across, measures
    before eyes."""
    correlation = torch.eye(4, dtype=torch.float64)
    for j, own in enumerate(parameters):
        correlation[j, 2 + j] = correlation[2 + j, j] = own.correlation.detach()[0, 1]
    return CopulaParameters(
        correlation, torch.cat([own.scale.detach().reshape(-1) for own in parameters])
    )


def plain_features(eyes: PairedEyes) -> dict[str, np.ndarray]:
    """Return ``(n, eyes, k)`` columns of each reference: nothing, age and camera, and small
    pictures."""
    n = len(eyes)
    small = torch.nn.functional.interpolate(eyes.load().flatten(0, 1), PIXELS, mode="area")
    return {
        "constant": np.zeros((n, 2, 1)),
        "age and camera": eyes.covariates.numpy(),
        "PCA of pixels": small.reshape(n, 2, -1).double().numpy(),
    }


@torch.no_grad()
def frozen_features(backbone: torch.nn.Module, eyes: PairedEyes) -> np.ndarray:
    """Return ``(n, eyes, 2 width)``: class token and mean of the patch tokens, nothing trained."""
    parts = eyes.load().flatten(0, 1).split(64)
    tokens = torch.cat([backbone.eval().forward_features(part * 2 - 1) for part in parts])
    both = torch.cat([tokens[:, 0], tokens[:, 1:].mean(1)], 1).double().numpy()
    return both.reshape(len(eyes), 2, -1)


def regress(
    columns: np.ndarray, eyes: PairedEyes, split: Split
) -> tuple[torch.Tensor, CopulaParameters]:
    """Fit ridge and logistic regressions, one an eye and response; return test outputs and copula
    parameters.

    The parameters are estimated from cross-validated outputs of the training patients, as those of
    the networks.
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


def _eyes_and_split(c: dict) -> tuple[PairedEyes, Split]:
    eyes = load_eyes(c["data"], c["size"], c["mirror"])
    return eyes, partition(eyes, c)


def _content(eyes: PairedEyes, split: Split, arms: Arms, told: dict | None) -> dict[str, Any]:
    """Return what a record holds of a fit's arms."""
    y = eyes.y[split.test]
    metrics = {name: scores(outputs, y, used) for name, (outputs, used) in arms.items()}
    estimates = {name: used.to_dict() for name, (_, used) in arms.items()}
    return {
        "metrics": rounded(metrics),
        "parameters": {"weights": told} | estimates,
        "predictions": predictions_of(
            eyes, split, {n: outputs for n, (outputs, _) in arms.items()}
        ),
        "notes": about(eyes, split),
        "dtype": "float32",
    }


def _study(name: str, fit: Any, device: str | None = "cpu") -> Study:
    return Study(name, functools.partial(grid, name), fit, device)


REFERENCES = _study("ablation-references", fit_references)
PROBE = _study("ablation-probe", fit_probe)
PREDECESSORS = _study("ablation-predecessors", fit_predecessors, None)
