"""The ablation on photographs (Section 6): ViT, ViT-A, CeViT and CeViT-A, each fold with all arms.

    python -m studies photographs photographs-disrupted

A fit is a fold with its arms, and one record. ViT is the arm "empirical"; CeViT is Algorithm 3, as
printed or with the exact likelihood of cross-fitted outputs, or training in one stage; with
adapters they are ViT-A and CeViT-A. ``photographs-disrupted`` trains on pairs of strangers' eyes.
Fits of one shape are trained side by side; those with a record are skipped. Encoder weights come
from ``studies.photographs.pretraining``, the plain rows from ``studies.photographs.references``.
"""

import functools
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import PairedEyes
from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import FrozenRandomWeightsWarning
from cevit_lib.estimation import FastMCEM, MaximumLikelihood
from cevit_lib.records import rounded
from cevit_lib.training import Recipe, Standardisation, find_device, streams
from cevit_lib.training.algorithm import FURTHER, WARM_UP, AlgorithmThree
from cevit_lib.training.ensemble import Ensemble, Members
from cevit_lib.training.objective import Objective, Renewal, Source, matched
from cevit_lib.training.side_by_side import SideBySide
from studies.photographs.data import (
    facts,
    left_out_parts,
    load_eyes,
    partition,
    predictions_of,
    strangers,
)
from studies.photographs.embedding import class_tokens, on_a_plane, points
from studies.photographs.pretraining import encoder_of
from studies.photographs.settings import grid
from studies.simulation.fits import Clock, scores
from studies.study import Setting, Study

CROSSED = Source(lambda: MaximumLikelihood(standard_errors=False), "cross-fitted")
RENEWED = {"matched": matched, "one stage": list}
"""Arm of one stage -> what its loss takes of the estimates."""
TWO_STAGES = {"algorithm 3, paper": Source(FastMCEM, "train"), "algorithm 3, exact": CROSSED}
SHOWN = {"partition": 0, "fold": 1, "adapters": True, "arm": "one stage"}
"""The one CeViT-A whose class tokens are laid on a plane."""


def fit(fits: list[Setting], scale: str, device: Any = None) -> list[dict[str, Any]]:
    """Train fits of one shape side by side and return what their records hold."""
    device = find_device(device)
    if device.type == "cuda":  # predictions in TF32; training is in bf16, the loss in float32
        torch.set_float32_matmul_precision("high")
    batch = Batch(fits, scale, device)
    for arm in batch.first["arms"]:
        batch.train(arm)
    return [batch.content(k) for k in range(len(fits))]


class Batch:
    """Fits of one shape in one program: their patients, networks, and what came of every arm."""

    def __init__(self, fits: list[Setting], scale: str, device: torch.device) -> None:
        self.fits, self.first, self.scale = fits, fits[0][0], scale
        self.device, self.clock = device, Clock(device)
        eyes = load_eyes(*(self.first[key] for key in ("data", "size", "mirror")))
        self.splits = [partition(eyes, c) for c, _ in fits]
        self.left_out = [
            left_out_parts(eyes, split, c, seed)
            for split, (c, seed) in zip(self.splits, fits, strict=True)
        ]
        self.eyes = [self._paired(eyes, k) for k in range(len(fits))]
        self.clock.mark("data")
        self.fresh = self._side_by_side()
        self.arms: dict[str, tuple[list[Tensor], list[CopulaParameters]]] = {}
        self.traces: dict[str, list[list[dict]]] = {}
        self.planes: dict[int, dict] = {}
        self.clock.mark("networks")

    def _paired(self, eyes: PairedEyes, k: int) -> PairedEyes:
        (c, seed), parts = self.fits[k], [self.splits[k].test, *self.left_out[k]]
        if c["pairs"] == "own":
            return eyes
        return strangers(eyes, parts, streams(seed, c["partition"], c["fold"]).data)

    def _side_by_side(self) -> SideBySide:
        """Return fresh networks, each with rows of its own among all fits' patients."""
        patients = len(self.eyes[0])
        start = [k * patients for k in range(len(self.fits))]
        train = [at + split.train for at, split in zip(start, self.splits, strict=True)]
        test = [at + split.test for at, split in zip(start, self.splits, strict=True)]
        images = torch.cat([eyes.load() for eyes in self.eyes]).to(self.device)
        y = torch.cat([eyes.y for eyes in self.eyes])
        crosses = []
        for parts in zip(*self.left_out, strict=True):
            left = [at + part for at, part in zip(start, parts, strict=True)]
            rest = [np.setdiff1d(own, out) for own, out in zip(train, left, strict=True)]
            crosses.append((self._members(images, y, rest), left))
        ensemble = Ensemble(networks_of(self.fits, self.scale), self.device)
        members, parts = self._members(images, y, train), {"train": train, "test": test}
        return SideBySide(ensemble, members, parts, self.order, crosses)

    def _members(self, images: Tensor, y: Tensor, rows: list[np.ndarray]) -> Members:
        scales = [Standardisation.of(y[own], self.eyes[0].continuous) for own in rows]
        chunk = self.first["recipe"]["batch_size"]
        return Members(images, y.to(self.device), np.stack(rows), scales, chunk)

    def order(self, number: int) -> list[np.random.Generator]:
        """All arms see the patients in one order, second stages in one of their own."""
        key = (number,) if number else ()
        return [streams(seed, c["partition"], c["fold"], *key).order for c, seed in self.fits]

    @functools.cached_property
    def two_stages(self) -> AlgorithmThree:
        """Algorithm 3 after its step 1; its two stages share the epochs."""
        recipe, epochs = self.first["recipe"], self.first["recipe"]["epochs"]
        halves = [Recipe(**recipe | {"epochs": n}) for n in (epochs // 2, epochs - epochs // 2)]
        steps = AlgorithmThree(self.fresh.copy(), *halves, {}, self.fresh)
        steps.warm_up()
        return steps

    def train(self, arm: str) -> None:
        """Train copies of the fresh networks by an arm's algorithm, and predict by them."""
        recipe = Recipe(**self.first["recipe"])
        if arm in RENEWED:
            networks = self.fresh.copy()
            renewal = Renewal(CROSSED, self.first["renewed_every"], RENEWED[arm])
            trace = networks.train(arm, recipe, Objective(renewal=renewal), WARM_UP)
            found = [CopulaParameters.from_dict(own[-1]["estimate"]) for own in trace]
        elif arm == "empirical":
            steps = AlgorithmThree(self.fresh.copy(), recipe, recipe, {arm: CROSSED}, self.fresh)
            networks, trace = steps.warm_up(), steps.traces["warm-up"]
            found = steps.estimate()[arm]
        else:
            steps = self.two_stages
            steps.sources = {arm: TWO_STAGES[arm]}
            found = steps.estimate()[arm]
            networks = steps.train(arm, found, order=FURTHER)
            trace = steps.traces[arm]
        self.arms[arm], self.traces[arm] = (networks.outputs("test"), found), trace
        if arm == SHOWN["arm"]:
            self._lay_on_a_plane(networks.ensemble)
        self.clock.mark(arm)

    def _lay_on_a_plane(self, ensemble: Ensemble) -> None:
        """Keep t-SNE coordinates of all eyes by the network that is shown, if it is among these."""
        for k, (c, _) in enumerate(self.fits):
            if any(c[key] != SHOWN[key] for key in ("partition", "fold", "adapters")):
                continue
            (model,), eyes = networks_of([self.fits[k]], self.scale), self.eyes[k]
            model.load_state_dict(ensemble.state(k), strict=False)
            tokens = class_tokens(model, eyes, self.device)
            plane = on_a_plane(tokens, min(30.0, len(eyes) / 2), 0)
            tested = np.isin(np.arange(len(eyes)), self.splits[k].test).repeat(2)
            columns = points(eyes, {"CeViT-A": plane}) | {"test": tested}
            self.planes[k] = {name: np.asarray(own).tolist() for name, own in columns.items()}

    def content(self, k: int) -> dict[str, Any]:
        """Return what the record of a fit holds."""
        eyes, split = self.eyes[k], self.splits[k]
        arms = {name: (out[k], used[k]) for name, (out, used) in self.arms.items()}
        y, weights = eyes.y[split.test], encoder_of(self.fits[k][0], self.scale)[1]
        metrics = {name: scores(outputs, y, used) for name, (outputs, used) in arms.items()}
        estimates = {name: used.to_dict() for name, (_, used) in arms.items()}
        outputs = {name: outputs for name, (outputs, _) in arms.items()}
        return {
            "metrics": rounded(metrics),
            "parameters": {"weights": weights} | estimates,
            "trace": rounded({arm: columns_of(each[k]) for arm, each in self.traces.items()}),
            "predictions": predictions_of(eyes, split, outputs),
            "columns": rounded(self.planes.get(k)),
            "times": self.clock.told() | {"fits": len(self.fits)},
            "dtype": "bf16, loss in float32" if self.device.type == "cuda" else "float32",
            "device": self.device,
        }


def networks_of(fits: list[Setting], scale: str) -> list[BiChannelViT]:
    """Return the fits' fresh networks."""
    with warnings.catch_warnings(action="ignore", category=FrozenRandomWeightsWarning):
        return [
            BiChannelViT(
                encoder_of(c, scale)[0],
                pretrained=c["weights"] != "random",
                adapters=c["adapters"],
                lora_rank=c["lora_rank"],
                rng=streams(seed, c["partition"], c["fold"]).weights,
            )
            for c, seed in fits
        ]


def columns_of(entries: list[dict]) -> dict[str, list]:
    """Return what a record keeps of a trace: losses, and the estimates made along the way."""
    found = {name: [entry[name] for entry in entries] for name in ("loss", "gradient_norm")}
    renewed = [entry for entry in entries if "estimate" in entry]
    if renewed:
        found["estimated after epoch"] = [entry["epoch"] for entry in renewed]
        found["rho12"] = [entry["estimate"]["correlation"][0][1] for entry in renewed]
        found["sigma1"] = [entry["estimate"]["scale"][0] for entry in renewed]
    return found


STUDIES = {
    name: Study(
        name,
        functools.partial(grid, name),
        fit,
        together=("partition", "fold"),
        facts=facts,
        at_once=40,
    )
    for name in ("photographs", "photographs-disrupted")
}
