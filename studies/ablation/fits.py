"""The ablation on real eyes (Section 6): ViT, ViT-A, CeViT, CeViT-A and their controls, fold by
fold.

    python -m studies ablation              ten seeds of five folds, records in results/
    CEVIT_ABLATION_WEIGHTS=imagenet python -m studies ablation
    python -m studies ablation --scale smoke         drawn eyes, seconds on a CPU

A fit is a warm-up with all its arms, and one record. ViT is the arm "empirical" and CeViT an arm
with dependence, both after the same warm-up, patients, order and epochs; ViT-A and CeViT-A are the
same with adapters. The copula parameters come from the training patients alone: from their own
outputs (as the paper) or from cross-fitted ones. Fits of one shape are trained side by side; those
with a record are skipped. The other parts of the study are in ``studies.ablation.others``, the
encoders' weights in ``studies.ablation.pretraining``.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cevit_lib.datasets import PairedEyes, split_by_patient
from cevit_lib.datasets.splits import Split
from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import FrozenRandomWeightsWarning
from cevit_lib.estimation import FastMCEM, MaximumLikelihood
from cevit_lib.records import rounded
from cevit_lib.training import Recipe, Standardisation, find_device, streams
from cevit_lib.training.algorithm import FURTHER, WARM_UP, AlgorithmThree
from cevit_lib.training.ensemble import Ensemble, Members
from cevit_lib.training.objective import Source, independent
from cevit_lib.training.side_by_side import SideBySide
from studies.ablation.data import about, load_eyes, partition, predictions_of
from studies.ablation.pretraining import Encoders
from studies.ablation.settings import grid
from studies.encoder.embedding import class_tokens, on_a_plane, points
from studies.simulation.fits import Clock, empirical, scores
from studies.study import Fit, Study

SOURCES = {
    "fmcem": Source(FastMCEM, "train"),
    "cross-fitted": Source(lambda: MaximumLikelihood(standard_errors=False), "cross-fitted"),
}
SHOWN = {"seed": 0, "fold": 1, "arm": "cross-fitted"}
"""The one CeViT-A whose class tokens are laid on a plane."""


def fit_together(fits: list[Fit], scale: str, device: Any = None) -> list[dict]:
    """Train fits of one shape side by side and return what their records hold."""
    device, first = find_device(device), fits[0][0]
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    eyes = load_eyes(first["data"], first["size"], first["mirror"])
    batch = Batch(fits, eyes, Encoders(scale), device)
    batch.fit()
    return [batch.content(k) for k in range(len(fits))]


class Batch:
    """Fits of one shape in one program: their patients, networks, and what came of every stage."""

    def __init__(
        self, fits: list[Fit], eyes: PairedEyes, encoders: Encoders, device: torch.device
    ) -> None:
        self.fits, self.eyes, self.encoders, self.device = fits, eyes, encoders, device
        self.clock, self.first = Clock(device), fits[0][0]
        self.warm_up, self.further = (Recipe(**self.first[s]) for s in ("warm_up", "further"))
        self.splits = [partition(eyes, c) for c, _ in fits]
        self.images, self.y = eyes.load().to(device), eyes.y.to(device)
        self.clock.mark("data")
        train = [split.train for split in self.splits]
        parts = {"train": train, "test": [split.test for split in self.splits]}
        count, inner_count = smallest(self.first, len(eyes))
        ensemble = Ensemble(_networks(fits, encoders), device)
        own = zip(self.splits, fits, strict=True)
        divided = [inner_splits(eyes, split, c, seed) for split, (c, seed) in own]
        crosses = [
            (self.members([own.train for own in each], inner_count), [own.test for own in each])
            for each in zip(*divided, strict=True)
        ]
        watch = None if self.first["arms"] else self.watch
        members = self.members(train, count)
        self.networks = SideBySide(ensemble, members, parts, self.order, crosses, watch)
        self.arms: dict[str, list[Tensor]] = {}
        self.used: dict[str, Any] = {}
        self.planes: dict[int, dict] = {}
        self.clock.mark("networks")

    def members(self, rows: list[np.ndarray], count: int) -> Members:
        """Return members on ``count`` of their training patients: a longer part loses its last."""
        eyes = self.eyes
        scales = [Standardisation.of(eyes.y[own], eyes.continuous, eyes.responses) for own in rows]
        own = np.stack([own[:count] for own in rows])
        return Members(self.images, self.y, own, scales, self.warm_up.batch_size)

    def order(self, number: int) -> list[np.random.Generator]:
        """Arms after one warm-up see the patients in one order."""
        key = (number,) if number else ()
        return [streams(seed, c["partition"], c["fold"], *key).order for c, seed in self.fits]

    def watch(self, stage: str) -> Callable:
        """Return the left-out patients' loss after every epoch: what tuning compares."""

        def losses(networks: SideBySide, loss: Any) -> list[dict]:
            seen = zip(
                networks.members.standardisation,
                networks.outputs("left-out"),
                networks.responses("left-out"),
                strict=True,
            )
            return [{"validation_loss": empirical(*own)} for own in seen]

        return losses

    def fit(self) -> None:
        """Make the cross-fits, the warm-up, the estimates and every arm; a tuning fit the first."""
        wanted = self.first["arms"]
        sources = {n: s for n, s in SOURCES.items() if n in ("cross-fitted", *wanted)}
        steps = self.steps = AlgorithmThree(
            self.networks, self.warm_up, self.further, sources, self.networks.copy()
        )
        steps.outputs["cross-fitted"] = steps.cross_fit()
        self.clock.mark("cross-fits")
        if not wanted:
            return
        self._seen("warm-up", steps.warm_up())
        steps.estimate()
        self.clock.mark("estimation")
        for arm in wanted:
            self.used[arm] = used = parameters_of(arm, steps.estimates)
            # the stored records' CeViT saw the patients in the order in which its warm-up saw
            # them, all other arms in one of their own
            order = WARM_UP if arm == "cross-fitted" else FURTHER
            self._seen(arm, steps.train(arm, used, order=order))

    def _seen(self, stage: str, networks: SideBySide) -> None:
        self.arms[stage] = networks.outputs("test")
        if stage == SHOWN["arm"] and self.first["adapters"]:
            self.planes = _planes(self.fits, networks.ensemble, self.eyes, self.encoders)
        self.clock.mark(stage)

    def content(self, k: int) -> dict[str, Any]:
        """Return what the record of a fit holds."""
        split, steps = self.splits[k], self.steps
        y, estimates = self.eyes.y[split.test], {n: [e[k]] for n, e in steps.estimates.items()}
        metrics: dict[str, Any] = {}
        for name, outputs in self.arms.items():
            used = self.used.get(name) or steps.estimates["cross-fitted"]
            metrics[name] = scores(outputs[k], y, used[k])
        whole = Standardisation.of(self.eyes.y[split.train], self.eyes.continuous)
        crossed = steps.outputs["cross-fitted"][k]
        loss = empirical(whole, crossed, self.eyes.y[split.train])
        metrics["cross-fits"] = {"empirical loss": loss}
        predicted = {name: outputs[k] for name, outputs in self.arms.items()}
        weights = self.encoders(self.fits[k][0])[1]
        return {
            "metrics": rounded(metrics),
            "parameters": {"weights": weights} | {n: e[0].to_dict() for n, e in estimates.items()},
            "trace": rounded({stage: _columns(each[k]) for stage, each in steps.traces.items()}),
            "predictions": predictions_of(self.eyes, split, predicted) if predicted else None,
            "columns": self.planes.get(k),
            "notes": about(self.eyes, split),
            "times": self.clock.told() | {"fits": len(self.fits)},
            "dtype": "bf16, loss in float32" if self.device.type == "cuda" else "float32",
            "device": self.device,
        }


def parameters_of(arm: str, estimates: dict) -> Any:
    """Return the copula parameters under which an arm trains; ``None`` is the empirical loss."""
    if arm == "independence":
        return independent(estimates["cross-fitted"])
    return None if arm == "empirical" else estimates[arm]


def inner_splits(eyes: PairedEyes, split: Split, c: dict, seed: int) -> list[Split]:
    """Divide a fold's training patients for cross-fitting; rows are those of all patients."""
    rng, seen = streams(seed, c["partition"], c["fold"]).split, eyes.subset(split.train)
    parts = split_by_patient(seen, c["cross_fits"], rng, require_classes=False)
    return [Split(split.train[part.train], split.train[part.test]) for part in parts]


def _columns(entries: list[dict]) -> dict[str, list]:
    """Return what a record keeps of a stage's trace."""
    kept = [name for name in ("loss", "gradient_norm", "validation_loss") if name in entries[0]]
    return {name: [entry[name] for entry in entries] for name in kept}


def _networks(fits: list[Fit], encoders: Encoders) -> list[BiChannelViT]:
    networks = []
    for c, seed in fits:
        rng = streams(seed, c["partition"], c["fold"]).weights
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FrozenRandomWeightsWarning)
            networks.append(
                BiChannelViT(
                    encoders(c)[0],
                    pretrained=c["weights"] != "random",
                    adapters=c["adapters"],
                    lora_rank=c["lora_rank"],
                    rng=rng,
                )
            )
    return networks


def smallest(configuration: dict, patients: int) -> tuple[int, int]:
    """Return how many patients every warm-up and every cross-fit trains on: the smallest part of
    that division.

    Networks side by side need equally many. The number is that of the division, not of the
    neighbours, so that a fit made alone is the same fit.
    """
    train = patients - -(-patients // configuration["folds"])
    return train, train - -(-train // configuration["cross_fits"])


def _planes(
    fits: list[Fit], ensemble: Ensemble, eyes: PairedEyes, encoders: Encoders
) -> dict[int, dict]:
    """Return t-SNE coordinates of all eyes by the fit that is shown, if it is among these: one row
    an eye."""
    chosen = [
        k for k, (c, seed) in enumerate(fits) if (seed, c["fold"]) == (SHOWN["seed"], SHOWN["fold"])
    ]
    for k in chosen:
        (model,), n = _networks([fits[k]], encoders), len(eyes)
        model.load_state_dict(ensemble.state(k), strict=False)
        tested = np.isin(np.arange(n), partition(eyes, fits[k][0]).test)
        plane = on_a_plane(class_tokens(model, eyes, ensemble.device), min(30.0, n / 2), 0)
        columns = points(eyes, {"CeViT-A": plane}) | {"test": np.repeat(tested, 2)}
        return {k: rounded({name: np.asarray(values).tolist() for name, values in columns.items()})}
    return {}


def _study(name: str) -> Study:
    return Study(name, functools.partial(grid, name), fit_together, together=("fold", "partition"))


ABLATION = _study("ablation")
TUNING = _study("ablation-tuning")
