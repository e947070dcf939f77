"""The simulation study of Section 5: one warm-up and its arms for every fold of every data set.

    python -m studies simulation           the paper's grid, records in results/simulation
    python -m studies simulation-tuning    choice of the hyper-parameters, before arms are compared

A fit is a warm-up with all its arms, and one record. Fits of one shape are trained side by side in
one program (``cevit_lib.training.ensemble``); a fit's numbers do not depend on its neighbours.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed

from cevit_lib.copula import CopulaParameters, bayes_classifier, log_density
from cevit_lib.datasets import SyntheticPairs, hold_out, split_by_patient
from cevit_lib.datasets.synthetic import TEXT_CORRELATION
from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import TrainingError
from cevit_lib.estimation import FastMCEM, MaximumLikelihood
from cevit_lib.metrics import evaluate
from cevit_lib.records import rounded
from cevit_lib.training import Recipe, Standardisation, find_device, streams
from cevit_lib.training.algorithm import WARM_UP, AlgorithmThree
from cevit_lib.training.compiling import WRONG_GRADIENT
from cevit_lib.training.ensemble import Ensemble, Members
from cevit_lib.training.objective import Source, independent
from cevit_lib.training.side_by_side import SideBySide, empirical_loss
from studies.simulation.settings import GRIDS, grid
from studies.study import Fit, Study

WORTH_COMPILING = 15_000  # steps of one member; shorter studies are done before a compiler is
SOURCES = {
    "held-out": Source(lambda: MaximumLikelihood(standard_errors=False), "held-out"),
    "in-sample": Source(lambda: MaximumLikelihood(standard_errors=False), "train"),
    "fmcem": Source(FastMCEM, "train"),
}
"""Estimates of the copula parameters: exact likelihood on new or on training outputs, fMCEM."""


def true_correlation(strength: float) -> np.ndarray:
    """Return the printed Gamma with its correlations multiplied; 0 is independence."""
    printed = np.array(TEXT_CORRELATION)
    return np.eye(4) + strength * (printed - np.eye(4))


def draw(configuration: dict, seed: int) -> SyntheticPairs:
    """Return the data set of a fit: the same for all folds, and for all studies that name its
    number.
    """
    rng = streams(configuration["data_seed"], configuration["dataset"]).data
    return SyntheticPairs(
        configuration["n"],
        rng,
        configuration["process"],
        correlation=true_correlation(configuration["strength"]),
        window=configuration.get("window"),
    )


def fit(fits: list[Fit], scale: str, device: str | None) -> list[dict[str, Any]]:
    """Train fits of one shape side by side and return the contents of their records.

    Where a compiled program goes wrong on the way, the fits are made again without it.
    """
    where = find_device(device)
    if where.type == "cuda":  # predictions in TF32; training is in bf16, the loss in float32
        torch.set_float32_matmul_precision("high")
    batch = Batch(fits, where)
    if not batch.fit():
        _PROGRAMS.clear()
        batch = Batch(fits, where, compiled=False)
        batch.fit()
    return [batch.content(k) for k in range(len(fits))]


class Batch:
    """Fits of one shape in one program: their data, networks, and what came of every stage."""

    def __init__(self, fits: list[Fit], device: torch.device, compiled: bool = True) -> None:
        self.clock, self.fits = Clock(device), fits
        self.first, self.device, self.how = fits[0][0], device, "not compiled"
        self.warm_up = Recipe(**self.first["warm_up"])
        self.data, self.patients, members = assemble(fits, device)
        self.clock.mark("data")
        parts = {part: stacked(self.patients, part) for part in ("train", "held-out", "test")}
        self.followed: dict[str, Followed] = {}
        self.used: dict[str, Any] = {}
        self.networks = SideBySide(
            _ensemble(fits, device, compiled), members, parts, self.order, watch=self.follow
        )
        self.clock.mark("networks")

    def order(self, number: int) -> list[np.random.Generator]:
        """Arms after one warm-up see the patients in one order; one from scratch as it did."""
        key = (number,) if number else ()
        return [streams(seed, c["dataset"], c["fold"], *key).order for c, seed in self.fits]

    def follow(self, stage: str) -> Followed:
        self.followed[stage] = Followed(self.used.get(stage), len(self.fits))
        return self.followed[stage]

    def fit(self) -> bool:
        """Make every stage; return False where a compiled program has to be given up."""
        ensemble = self.networks.ensemble
        if ensemble.compiled:
            self._check_program(ensemble)
        self.clock.mark("compiling")
        try:
            self._stages()
        except TrainingError:
            if ensemble.compiled:  # a wrong gradient may be why; without the program it trains,
                return False  # or fails for good
            raise
        return not ensemble.compiled or self._trust(ensemble) <= WRONG_GRADIENT

    def _stages(self) -> None:
        c, truths = self.first, [truth_of(own) for own in self.data]
        arms = {name: {} for name in c["arms"]}
        arms |= {
            name: {"from_scratch": True, "order": WARM_UP} for name in c.get("from_scratch", ())
        }
        # a tuning fit, which has no arms, is spared all estimates but the one of its scores
        sources = SOURCES if arms else {"held-out": SOURCES["held-out"]}
        steps = self.steps = AlgorithmThree(
            self.networks, self.warm_up, Recipe(**c["further"]), sources, self.networks.copy()
        )
        self._seen("warm-up", steps.warm_up())
        steps.estimate()
        steps.estimates |= {"true": truths} if arms else {}
        self.clock.mark("estimation")
        for name, how in arms.items():
            stage = f"{name}, from scratch" if how else name
            self.used[stage] = parameters_of(name, steps.estimates)
            self._seen(stage, steps.train(stage, self.used[stage], **how))

    def _seen(self, stage: str, networks: SideBySide) -> None:
        self.followed[stage].test(networks)
        self.clock.mark(stage)

    def _check_program(self, ensemble: Ensemble) -> None:
        """Run every program once, so that compiling is not counted as training, and check it."""
        far, rows = self._trust(ensemble), self.networks.members.rows[:, : self.warm_up.batch_size]
        ensemble.outputs(self.networks.members, rows)
        told = f"of the compiled program within {far:.2g} of the uncompiled one's"
        self.how = f"outputs and gradients {told}"
        if not ensemble.compiled:
            _PROGRAMS.clear()
            self.how = f"not compiled: {self.how}"

    def _trust(self, ensemble: Ensemble) -> float:
        """Compare the compiled program on a batch as an epoch cuts it."""
        members, size = self.networks.members, self.warm_up.batch_size
        rows = np.array_split(members.rows, -(-members.rows.shape[1] // size), 1)[0]
        images = members.images[torch.as_tensor(rows, device=self.device)].float()
        return ensemble.trust_compiler(images, self.warm_up.precision)

    def content(self, k: int) -> dict[str, Any]:
        """Return what the record of a fit holds, its arms in the order in which they were made."""
        own, part = self.data[k], self.patients[k]
        estimates = {name: each[k] for name, each in self.steps.estimates.items()}
        at = local(own, self.networks.parts["test"][k])
        y, truth = self.networks.responses("test")[k], own.truth.outputs[at]
        metrics: dict[str, Any] = {"Bayes-optimal": scores(truth, y, truth_of(own))}
        for name, followed in self.followed.items():
            used = (self.used.get(name) or self.steps.estimates["held-out"])[k]
            last, best = followed.outputs["last"][k], followed.outputs["best"][k]
            metrics[name] = scores(last, y, used) | _regression_error(last, truth)
            metrics[f"{name}, at its best epoch"] = scores(best, y, used)
            metrics[f"{name}, at its best epoch"]["epoch"] = followed.best_epoch[k]
        how = "bf16, loss in float32, predictions in TF32"
        return {
            "metrics": rounded(metrics),
            "parameters": {name: value.to_dict() for name, value in estimates.items()},
            "trace": rounded([entry for each in self.steps.traces.values() for entry in each[k]]),
            "notes": f"synthetic data {own.hash}, split {_split_hash(own, part)}: "
            f"{len(part['train'])} patients to train on, {len(part['held-out'])} held out, "
            f"{len(part['test'])} to test; {self.how}",
            "times": {**self.clock.told(), "fits": len(self.fits)},
            "dtype": how if self.device.type == "cuda" else "float32",
            "device": self.device,
        }


def truth_of(own: SyntheticPairs) -> CopulaParameters:
    """Return the copula parameters that a data set was drawn with."""
    return CopulaParameters(own.truth.correlation, own.truth.scale)


def parameters_of(arm: str, estimates: dict, scales: str = "held-out") -> Any:
    """Return the copula parameters under which an arm trains; ``None`` is the empirical loss."""
    if arm == "empirical":
        return None
    if arm.startswith("independence"):
        return independent(estimates["true" if arm.endswith("true scale") else scales])
    return estimates[arm]


class Clock:
    """Seconds of each stage, told as it ends; the device's queue is emptied before each reading."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.times, self.last = device, {}, time.perf_counter()

    def mark(self, stage: str) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        self.times[stage], self.last = now - self.last, now
        if self.device.type == "cuda":  # stages of many fits take minutes; on a CPU fits are small
            print(f"  {stage}: {self.times[stage]:.0f} s", flush=True)

    def told(self) -> dict[str, float]:
        """Return the seconds as a record names them."""
        return {f"{stage} (all fits)": seconds for stage, seconds in self.times.items()}


def assemble(fits: list[Fit], device: torch.device) -> tuple[list, list, Members]:
    """Return data sets, patients' rows by part, and ``Members``; a data set's images are once."""
    wanted = {(c["dataset"], c["strength"]): (c, seed) for c, seed in fits}
    drawn = Parallel(n_jobs=min(os.cpu_count() or 1, len(wanted)), prefer="threads")(
        delayed(draw)(c, seed) for c, seed in wanted.values()
    )
    unique = dict(zip(wanted, drawn, strict=True))
    start = dict(zip(wanted, np.cumsum([0, *map(len, drawn)]), strict=False))
    # on an accelerator the network reads bf16 in any case
    half = torch.bfloat16 if device.type == "cuda" else torch.float32
    images = torch.cat([d.images.to(half) for d in drawn]).to(device)
    y = torch.cat([d.y for d in drawn]).to(device)
    data, patients, scales = [], [], []
    for c, seed in fits:
        key = (c["dataset"], c["strength"])
        data.append(unique[key])
        rows = split(unique[key], c, seed)
        scales.append(Standardisation.of(data[-1].y[rows["train"]], 2))
        patients.append({part: start[key] + own for part, own in rows.items()})
    chunk = fits[0][0]["warm_up"]["batch_size"]
    return data, patients, Members(images, y, stacked(patients, "train"), scales, chunk)


def split(own: SyntheticPairs, c: dict, seed: int) -> dict[str, np.ndarray]:
    """Return the rows of a fold's patients to train on, held out, and to test."""
    bare = own.replace(images=torch.zeros(len(own), 2, 1, 1, 1))  # it reads labels, and copies none
    outer = split_by_patient(bare, c["folds"], streams(seed, c["dataset"]).split)[c["fold"] - 1]
    rng = streams(seed, c["dataset"], c["fold"]).split
    inner = hold_out(bare.subset(outer.train), c["held_out_share"], rng)
    train, held_out = outer.train[inner.train], outer.train[inner.test]
    return {"train": train, "held-out": held_out, "test": outer.test}


def stacked(patients: list[dict[str, np.ndarray]], part: str) -> np.ndarray:
    """Return ``(members, b)`` rows; parts that differ by a patient are cut to the shortest."""
    rows = [own[part] for own in patients]
    return np.stack([own[: min(map(len, rows))] for own in rows])


def local(own: SyntheticPairs, rows: np.ndarray) -> np.ndarray:
    """Return the numbers of rows within their data set; those of one shape are equally long."""
    return rows % len(own)


_PROGRAMS: dict[str, Callable] = {}  # one for each architecture, so that nothing is compiled twice


def _ensemble(fits, device: torch.device, compiled: bool = True) -> Ensemble:
    """Return fresh networks for the fits; only what was compiled is shared with earlier ones."""
    first = fits[0][0]
    small = _steps(first) * max(len(fits), 10) < WORTH_COMPILING
    if not compiled or device.type != "cuda" or small:
        return Ensemble(networks(fits), device)
    key = repr((first["encoder"], first["adapters"], first.get("window"), str(device)))
    found = Ensemble(networks(fits), device, compiled=True, program=_PROGRAMS.get(key))
    _PROGRAMS[key] = found.program
    return found


def _steps(c: dict) -> int:
    """Return the steps of a fit; one that is not compiled costs as much for one fit as for ten."""
    epochs = c["warm_up"]["epochs"] * (1 + len(c.get("from_scratch", ())))
    epochs += c["further"]["epochs"] * len(c["arms"])
    return int(epochs * c["n"] / c["warm_up"]["batch_size"])


def networks(fits: list[Fit]) -> list[BiChannelViT]:
    """Return the fits' fresh networks."""
    return [
        BiChannelViT(
            "vit_tiny_patch16_224",
            pretrained=False,
            adapters=c["adapters"],
            lora_rank=0,
            normalise=False,
            rng=streams(seed, c["dataset"], c["fold"]).weights,
            img_size=c.get("window") or 72,
            in_chans=1,
            **c["encoder"],
        )
        for c, seed in fits
    ]


class Followed:
    """A stage: its held-out loss after every epoch, the weights of each member's best one."""

    def __init__(self, parameters: list[CopulaParameters] | None, members: int) -> None:
        self.parameters, self.epochs = parameters, 0
        self.best, self.best_epoch = [float("inf")] * members, [0] * members
        self.kept: SideBySide | None = None
        self.outputs: dict[str, list[torch.Tensor]] = {}

    def __call__(self, networks: SideBySide, loss: Callable) -> list[dict]:
        self.epochs += 1
        if self.kept is None:
            self.kept = networks.copy()
        held = zip(networks.outputs("held-out"), networks.responses("held-out"), strict=True)
        units = networks.members.standardisation
        losses = [self._loss(k, units[k], *pair) for k, pair in enumerate(held)]
        for k, value in enumerate(losses):
            if value < self.best[k]:
                self.best[k], self.best_epoch[k] = value, self.epochs
                self.kept.ensemble.take(networks.ensemble, k)
        return [{"validation_loss": value} for value in losses]

    def test(self, networks: SideBySide) -> None:
        """Predict the test patients by the last and by the best weights, which are let go."""
        self.outputs = {"last": networks.outputs("test"), "best": self.kept.outputs("test")}
        self.kept = None

    def _loss(self, k: int, scale: Standardisation, outputs, y) -> float:
        """The arm's own loss: every arm chooses its epoch by what it minimises."""
        if self.parameters is None:
            return empirical(scale, outputs, y)
        return -float(log_density(outputs, y, self.parameters[k], validate=False).mean())


def empirical(scale: Standardisation, outputs: torch.Tensor, y: torch.Tensor) -> float:
    """Return the mean empirical loss in units of training."""
    return float(empirical_loss(scale.apply(outputs)[None], scale.apply(y)[None])[0])


def scores(
    outputs: torch.Tensor, y: torch.Tensor, parameters: CopulaParameters
) -> dict[str, float]:
    """Return every metric of one set of predictions; the joint rule and the likelihood use
    ``parameters``.
    """
    joint = bayes_classifier(outputs, parameters)
    values = evaluate(outputs, y, ("y1", "y2", "y3", "y4"), 2, joint).values
    probability = torch.sigmoid(outputs[:, 2:])
    values |= {
        f"Brier y{k + 3}": float((probability[:, k] - y[:, k + 2]).square().mean())
        for k in range(2)
    }
    values["log-likelihood"] = float(log_density(outputs, y, parameters, validate=False).mean())
    return values


def _split_hash(own: SyntheticPairs, part: dict[str, np.ndarray]) -> str:
    parts = (part["train"], part["held-out"], part["test"])
    rows = b"".join(local(own, r).astype(np.int64).tobytes() + b"|" for r in parts)
    return hashlib.sha256(rows).hexdigest()[:16]


def _regression_error(outputs: torch.Tensor, truth: torch.Tensor) -> dict[str, float]:
    """RMSE to the true regression functions: what is left without the noise."""
    error = (outputs[:, :2] - truth[:, :2]).square().mean(0).sqrt()
    return {f"RMSE to truth y{k + 1}": float(error[k]) for k in range(2)}


STUDIES = {
    name: Study(name, partial(grid, name), fit, together=("dataset", "fold", "strength"))
    for name in GRIDS
}
"""Fits that differ by data set, fold and dependence share a program."""
