"""The simulation study of Section 5: every arm of every fold of every data set.

    python -m studies simulation           the paper's grid, records in results/simulation
    python -m studies simulation-tuning    choice of rates and epochs, before arms are compared

A fit is one fold with all its arms, and one record. Fits of one shape are trained side by side in
one program (``cevit_lib.training.side_by_side``); a fit's numbers do not depend on its neighbours.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor

from cevit_lib.copula import CopulaParameters, bayes_classifier, log_density
from cevit_lib.datasets import SyntheticPairs, hold_out, split_by_patient
from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import TrainingError
from cevit_lib.estimation import FastMCEM, MaximumLikelihood
from cevit_lib.metrics import evaluate
from cevit_lib.paths import granted_cores
from cevit_lib.records import rounded
from cevit_lib.training import Recipe, Standardisation, find_device, streams
from cevit_lib.training.algorithm import FURTHER, WARM_UP, AlgorithmThree
from cevit_lib.training.compiling import WRONG_GRADIENT
from cevit_lib.training.ensemble import Ensemble, Members
from cevit_lib.training.objective import Objective, Renewal, Source, independent, matched
from cevit_lib.training.side_by_side import SideBySide
from studies.simulation.settings import ARMS, FURTHER_RECIPE, GRIDS, LATER, grid, recipe_of
from studies.study import Setting, Study
from studies.verdicts.predictions import correlation_at

WORTH_COMPILING = 15_000  # steps of one member; shorter studies are done before a compiler is
HELD_OUT = Source(lambda: MaximumLikelihood(standard_errors=False), "held-out")
SOURCES = {"algorithm 3, paper": Source(FastMCEM, "train"), "algorithm 3, exact": HELD_OUT}
"""Where Algorithm 3 has its estimate from: as printed, and by exact likelihood of new patients."""
BEST = {"own": "at its own best epoch", "common": "at the common best epoch"}
"""Epochs beside the last one: of an arm's own held-out loss, and of one criterion for all."""
SEEN_FEATURES = 500  # test patients from whom the features' correlation is measured
KEPT_ERRORS = 1000  # test patients whose errors a record keeps where the errors were drawn again


def draw(configuration: dict, seed: int) -> SyntheticPairs:
    """Return the data set of a fit: the same for all folds, and for all studies that name its
    number; a redraw has the same images and other errors.
    """
    c = configuration
    rng = streams(c["data_seed"], c["dataset"]).data
    if c["redraw"]:
        rng = rng, streams(c["data_seed"], c["dataset"], c["redraw"]).data
    return SyntheticPairs(
        c["n"],
        rng,
        correlation=correlation_at(c["strength"]),
        pixel_correlation=c["pixel_correlation"],
        window=c.get("window"),
    )


def fit(fits: list[Setting], scale: str, device: str | None) -> list[dict[str, Any]]:
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
    return batch.contents()


class Batch:
    """Fits of one shape in one program: their data, networks, and what came of every arm."""

    def __init__(self, fits: list[Setting], device: torch.device, compiled: bool = True) -> None:
        self.clock, self.fits = Clock(device), fits
        self.first, self.device, self.how = fits[0][0], device, "not compiled"
        self.data, self.patients, members = assemble(fits, device)
        self.truths = [CopulaParameters(d.truth.correlation, d.truth.scale) for d in self.data]
        self.clock.mark("data")
        parts = {part: stacked(self.patients, part) for part in ("train", "held-out", "test")}
        self.arms: dict[str, Followed] = {}
        self.warm_ups: dict[Recipe, tuple[AlgorithmThree, Followed]] = {}
        self.fresh = SideBySide(
            _ensemble(fits, device, compiled), members, parts, self.order, watch=self.follow
        )
        self.clock.mark("networks")

    def order(self, number: int) -> list[np.random.Generator]:
        """All arms see the patients in one order, second stages in one of their own."""
        key = (number,) if number else ()
        return [streams(seed, c["dataset"], c["fold"], *key).order for c, seed in self.fits]

    def follow(self, stage: str) -> Followed:
        self.arms[stage] = Followed(len(self.fits))
        return self.arms[stage]

    def fit(self) -> bool:
        """Train every arm; return False where a compiled program has to be given up."""
        ensemble = self.fresh.ensemble
        if ensemble.compiled:
            self._check_program(ensemble)
        self.clock.mark("compiling")
        try:
            for arm in self.first["arms"]:
                self._train(arm)
        except TrainingError:
            if ensemble.compiled:  # a wrong gradient may be why; without the program it trains,
                return False  # or fails for good
            raise
        return not ensemble.compiled or self._trust(ensemble) <= WRONG_GRADIENT

    def objective(self, kind: str) -> Objective:
        """Return what an arm of one stage minimises."""
        uses = {
            "independence": independent,
            "matched": matched,
            "one stage": list,
            "one stage, true Gamma": self._with_true_correlation,
        }
        if kind in uses:
            return Objective(renewal=Renewal(HELD_OUT, use=uses[kind]))
        if kind == "one stage, later":
            return Objective(renewal=Renewal(HELD_OUT, first=LATER))
        return Objective(learned_weights=kind == "uncertainty")

    def _with_true_correlation(self, estimates: list[CopulaParameters]) -> list[CopulaParameters]:
        pairs = zip(self.truths, estimates, strict=True)
        return [CopulaParameters(true.correlation, own.scale) for true, own in pairs]

    def _train(self, arm: str) -> None:
        """Train copies of the fresh networks by an arm's algorithm, and follow its last stage."""
        further = arm.endswith(", further")
        kind = arm.removesuffix(", further").removesuffix(", tuned")
        settings = recipe_of(arm, self.first["recipe"])
        if kind == "empirical" and not further:
            steps, self.arms[arm] = self._warmed_up(Recipe(**settings))
            self._seen(arm, steps.networks, steps.traces["warm-up"])
            return
        if not further and kind not in SOURCES:
            networks = self.fresh.copy()
            recipe = Recipe(**settings)
            trace = networks.train(arm, recipe, self.objective(kind), WARM_UP)
            self._seen(arm, networks, trace)
            return
        # the two stages share the epochs, or the second has the paper's further ones
        halves = settings["epochs"] // 2, settings["epochs"] - settings["epochs"] // 2
        first = settings if further else settings | {"epochs": halves[0]}
        second = settings | (FURTHER_RECIPE if further else {"epochs": halves[1]})
        steps, _ = self._warmed_up(Recipe(**first))
        steps.further = Recipe(**second)
        steps.sources = {kind: SOURCES[kind]} if kind in SOURCES else {}
        found = steps.estimate().get(kind)
        networks = steps.train(arm, found, order=FURTHER)
        self.arms[arm].estimates = found
        self._seen(arm, networks, steps.traces[arm])

    def _warmed_up(self, recipe: Recipe) -> tuple[AlgorithmThree, Followed]:
        """Return Algorithm 3 after its step 1, which all arms with one recipe for it share."""
        if recipe not in self.warm_ups:
            steps = AlgorithmThree(self.fresh.copy(), recipe, recipe, {})
            steps.warm_up()
            self.clock.mark(f"{recipe.epochs} epochs of the empirical loss")
            self.warm_ups[recipe] = steps, self.arms.pop("warm-up")
        return self.warm_ups[recipe]

    def _seen(self, arm: str, networks: SideBySide, trace: list[list[dict]]) -> None:
        self.arms[arm].finish(networks, trace)
        if arm == "one stage":
            self.arms[arm].alike = self._alike(networks)
        self.clock.mark(arm)

    @torch.no_grad()
    def _alike(self, networks: SideBySide) -> list[float]:
        """Return the correlation of the two eyes' features in each trained network: what theory
        calls r, of test patients.
        """
        (model,), found = networks_of(self.fits[:1]), []
        for k, rows in enumerate(networks.parts["test"]):
            model.load_state_dict(networks.ensemble.state(k), strict=False)
            images = networks.members.images[torch.as_tensor(rows[:SEEN_FEATURES])]
            found.append(correlation_of_features(model.to(self.device).features(images.float())))
        return found

    def _check_program(self, ensemble: Ensemble) -> None:
        """Run every program once, so that compiling is not counted as training, and check it."""
        far, rows = self._trust(ensemble), self.fresh.members.rows[:, : self._batch_size]
        ensemble.outputs(self.fresh.members, rows)
        told = f"of the compiled program within {far:.2g} of the uncompiled one's"
        self.how = f"outputs and gradients {told}"
        if not ensemble.compiled:
            _PROGRAMS.clear()
            self.how = f"not compiled: {self.how}"

    @property
    def _batch_size(self) -> int:
        return self.first["recipe"]["batch_size"]

    def _trust(self, ensemble: Ensemble) -> float:
        """Compare the compiled program on a batch as an epoch cuts it."""
        members = self.fresh.members
        rows = np.array_split(members.rows, -(-members.rows.shape[1] // self._batch_size), 1)[0]
        images = members.images[torch.as_tensor(rows, device=self.device)].float()
        return ensemble.trust_compiler(images, Recipe(**self.first["recipe"]).precision)

    def contents(self) -> list[dict[str, Any]]:
        """Return what the records of the fits hold."""
        workers = -1 if self.device.type == "cuda" else 1
        jobs = [delayed(read)(*self.predicted(k)) for k in range(len(self.fits))]
        found = Parallel(n_jobs=workers)(jobs)
        self.clock.mark("metrics")
        return [self.content(k, metrics) for k, metrics in enumerate(found)]

    def predicted(self, k: int) -> tuple[Tensor, Tensor, dict[str, tuple]]:
        """Return a member's test responses, their true regression functions, and by arm and epoch
        its outputs and copula parameters.
        """
        truth = self.data[k].truth.outputs[local(self.data[k], self.fresh.parts["test"][k])]
        rows = {"truth": (truth, self.truths[k])}
        for name, arm in self.arms.items():
            for when, (outputs, used) in arm.read.items():
                key = f"{name}, {BEST[when]}" if when in BEST else name
                rows[key] = (outputs[k].clone(), used[k])
        return self.fresh.responses("test")[k], truth, rows

    def content(self, k: int, metrics: dict[str, dict]) -> dict[str, Any]:
        """Return what the record of a fit holds, its arms in the order in which they were made."""
        own, part, c = self.data[k], self.patients[k], self.first
        parameters = {"true": self.truths[k].to_dict()}
        for name, arm in self.arms.items():
            recipe = recipe_of(name, c["recipe"])
            for when, told in BEST.items():
                metrics[f"{name}, {told}"]["epoch"] = int(arm.best_epoch[when][k])
            shown = (arm.estimates or arm.read["last"][1])[k]
            rate, epochs = recipe["learning_rate"], recipe["epochs"]
            parameters[name] = shown.to_dict() | {"epochs": epochs, "learning_rate": rate}
        how = "bf16, loss in float32, predictions in TF32"
        return {
            "metrics": rounded(metrics),
            "parameters": parameters,
            "trace": rounded({name: arm.columns(k) for name, arm in self.arms.items()}),
            "arrays": self._errors(k),
            "notes": f"synthetic data {own.hash}, split {_split_hash(own, part)}: "
            f"{len(part['train'])} patients to train on, {len(part['held-out'])} held out, "
            f"{len(part['test'])} to test; {self.how}",
            "times": {**self.clock.told(), "fits": len(self.fits)},
            "dtype": how if self.device.type == "cuda" else "float32",
            "device": self.device,
        }

    def _errors(self, k: int) -> dict[str, np.ndarray] | None:
        """Return the errors of the first test patients' means, where errors were drawn again."""
        if not self.fits[k][0]["redraw"]:
            return None
        _, truth, rows = self.predicted(k)
        errors = [(rows[arm][0] - truth)[:KEPT_ERRORS, :2].numpy() for arm in self.arms]
        return {"errors": np.stack(errors).astype(np.float16), "arms": np.array(list(self.arms))}


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
            print(f"  {stage}: {self.times[stage]:.1f} s", flush=True)

    def told(self) -> dict[str, float]:
        """Return the seconds as a record names them."""
        return {f"{stage} (all fits)": seconds for stage, seconds in self.times.items()}


def assemble(fits: list[Setting], device: torch.device) -> tuple[list, list, Members]:
    """Return data sets, patients' rows by part, and ``Members``; a data set's images are once."""
    wanted = {_data_of(c): (c, seed) for c, seed in fits}
    drawn = Parallel(n_jobs=min(granted_cores(), len(wanted)), prefer="threads")(
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
        key = _data_of(c)
        data.append(unique[key])
        rows = split(unique[key], c, seed)
        scales.append(Standardisation.of(data[-1].y[rows["train"]], 2))
        patients.append({part: start[key] + own for part, own in rows.items()})
    chunk = fits[0][0]["recipe"]["batch_size"]
    return data, patients, Members(images, y, stacked(patients, "train"), scales, chunk)


def _data_of(c: dict) -> tuple:
    return tuple(c[name] for name in ("dataset", "strength", "pixel_correlation", "redraw"))


def split(own: SyntheticPairs, c: dict, seed: int) -> dict[str, np.ndarray]:
    """Return the rows of a fold's patients to train on, held out, and to test."""
    bare = own.replace(images=torch.zeros(len(own), 2, 1, 1, 1))  # it reads labels, and copies none
    if c["redraw"]:  # other labels, the same patients: they are dealt without looking
        bare = bare.replace(y=torch.zeros_like(own.y))
    rng, looked = streams(seed, c["dataset"]).split, not c["redraw"]
    outer = split_by_patient(bare, c["folds"], rng, require_classes=looked)[c["fold"] - 1]
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
        return Ensemble(networks_of(fits), device)
    key = repr((first["encoder"], first.get("window"), str(device)))
    found = Ensemble(networks_of(fits), device, compiled=True, program=_PROGRAMS.get(key))
    _PROGRAMS[key] = found.program
    return found


def _steps(c: dict) -> int:
    """Return the steps of a fit; one that is not compiled costs as much for one fit as for ten."""
    epochs = sum(recipe_of(arm, c["recipe"])["epochs"] for arm in c["arms"])
    return int(epochs * c["n"] / c["recipe"]["batch_size"])


def networks_of(fits: list[Setting]) -> list[BiChannelViT]:
    """Return the fits' fresh networks."""
    return [
        BiChannelViT(
            "vit_tiny_patch16_224",
            pretrained=False,
            adapters=False,
            lora_rank=0,
            normalise=False,
            rng=streams(seed, c["dataset"], c["fold"]).weights,
            img_size=c.get("window") or 72,
            in_chans=1,
            **c["encoder"],
        )
        for c, seed in fits
    ]


@dataclass
class Followed:
    """A stage of many networks: two held-out criteria after every epoch, and the weights of each
    member's best epoch by either.
    """

    members: int
    epochs: int = 0
    estimates: list[CopulaParameters] | None = None
    """Those that the stage was trained under from its start."""
    best: dict[str, np.ndarray] = field(default_factory=dict)
    best_epoch: dict[str, np.ndarray] = field(default_factory=dict)
    kept: dict[str, SideBySide] = field(default_factory=dict)
    read: dict[str, tuple[list[Tensor], list[CopulaParameters]]] = field(default_factory=dict)
    """``"last"``, ``"own"`` and ``"common"``: outputs of the test patients, and what exact
    likelihood finds in the held-out ones'."""
    trace: list[list[dict]] = field(default_factory=list)
    alike: list[float] | None = None
    """Each member's correlation of the two eyes' features."""

    def __call__(self, networks: SideBySide, loss: Callable) -> list[dict]:
        self.epochs += 1
        values = criteria(networks, loss)
        for name, value in values.items():
            if name not in self.kept:
                self.kept[name] = networks.copy()
                self.best[name] = np.full(self.members, np.inf)
                self.best_epoch[name] = np.zeros(self.members, dtype=int)
            better = np.flatnonzero(value < self.best[name])
            self.best[name][better], self.best_epoch[name][better] = value[better], self.epochs
            self.kept[name].ensemble.take(networks.ensemble, better)
        told = [
            {"held-out loss": a, "common criterion": b}
            for a, b in zip(*values.values(), strict=True)
        ]
        learnt = getattr(loss, "scale", None)
        if learnt is not None:  # uncertainty weighting's own, in the responses' units
            sds = networks.members.units.sd[:, 0].cpu().numpy()
            scales = learnt.cpu().numpy()[:, : sds.shape[1]] * sds
            each = zip(networks.outputs("held-out"), networks.responses("held-out"), strict=True)
            errors = [(out - y)[:, :2].square().mean(0).sqrt().tolist() for out, y in each]
            told = [
                one | {"learnt": scale.tolist(), "held-out sd": sd}
                for one, scale, sd in zip(told, scales, errors, strict=True)
            ]
        return told

    def finish(self, networks: SideBySide, trace: list[list[dict]]) -> None:
        """Predict the test patients by the last and by the best weights, which are let go."""
        self.trace = trace
        for name, own in {"last": networks, **self.kept}.items():
            held = own.outputs("held-out"), own.responses("held-out")
            self.read[name] = own.outputs("test"), own.estimate(HELD_OUT, *held)
        self.kept = {}

    def columns(self, k: int) -> dict[str, list]:
        """Return what a record keeps of a member's trace, one list a column."""
        entries = self.trace[k]
        names = ("loss", "held-out loss", "common criterion")
        found = {name: [entry[name] for entry in entries] for name in names}
        if "learnt" in entries[0]:
            for prefix, name in (("", "learnt"), ("held-out ", "held-out sd")):
                columns = zip(*(entry[name] for entry in entries), strict=True)
                found |= {f"{prefix}sigma{j + 1}": list(c) for j, c in enumerate(columns)}
        each = [entry.get("estimate") for entry in entries]  # None: under the parameters before
        if any(each):
            found |= {f"sigma{j + 1}": [e and e["scale"][j] for e in each] for j in range(2)}
            found["rho12"] = [e and e["correlation"][0][1] for e in each]
            found["rho34"] = [e and e["correlation"][2][3] for e in each]
        if self.alike is not None:
            found["features' correlation"] = [self.alike[k]]
        return found


def criteria(networks: SideBySide, loss: Callable) -> dict[str, np.ndarray]:
    """Return each member's held-out loss as it is trained, and the criterion common to all arms:
    RMSE of the standardised lengths plus Brier score of the labels.
    """
    device, units = networks.ensemble.device, networks.members.units
    outputs, y = (
        units.apply(torch.stack(each).to(device, torch.float32))
        for each in (networks.outputs("held-out"), networks.responses("held-out"))
    )
    with torch.no_grad():
        own = loss(outputs, y)
        rmse = (outputs - y)[..., :2].square().mean(1).sqrt().mean(-1)
        brier = (outputs[..., 2:].sigmoid() - y[..., 2:]).square().mean((1, 2))
    return {"own": own.cpu().double().numpy(), "common": (rmse + brier).cpu().double().numpy()}


def correlation_of_features(features: Tensor) -> float:
    """Return the correlation over patients of left and right features ``(n, 2, d)``, all together:
    of covariances and variances added over the features.
    """
    left, right = (features - features.mean(0)).double().unbind(1)
    joint = (left * right).sum()
    return float(joint / (left.square().sum() * right.square().sum()).sqrt())


def read(y: Tensor, truth: Tensor, rows: dict[str, tuple]) -> dict[str, dict]:
    """Return the metrics of each row of predictions."""
    return {
        name: scores(outputs, y, used) | ({} if name == "truth" else errors_to(outputs, truth))
        for name, (outputs, used) in rows.items()
    }


def scores(outputs: Tensor, y: Tensor, parameters: CopulaParameters) -> dict[str, float]:
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
    alone = CopulaParameters.independent(parameters.scale, 2)
    for name, own in {"log-likelihood": parameters, "log-likelihood, independence": alone}.items():
        values[name] = float(log_density(outputs, y, own, validate=False).mean())
    return values


def errors_to(outputs: Tensor, truth: Tensor) -> dict[str, float]:
    """Return the RMSE to the true regression functions: what is left without the noise."""
    means = (outputs[:, :2] - truth[:, :2]).square().mean(0).sqrt()
    chances = (outputs[:, 2:].sigmoid() - truth[:, 2:].sigmoid()).square().mean(0).sqrt()
    return {f"RMSE to truth y{k + 1}": float(means[k]) for k in range(2)} | {
        f"error of probability y{k + 3}": float(chances[k]) for k in range(2)
    }


def _split_hash(own: SyntheticPairs, part: dict[str, np.ndarray]) -> str:
    parts = (part["train"], part["held-out"], part["test"])
    rows = b"".join(local(own, r).astype(np.int64).tobytes() + b"|" for r in parts)
    return hashlib.sha256(rows).hexdigest()[:16]


VARIES = ("dataset", "fold", "strength", "pixel_correlation", "redraw")
FIRST = {"simulation": ARMS}
STUDIES = {
    name: Study(name, partial(grid, name), fit, together=VARIES, first=FIRST.get(name, ()))
    for name in GRIDS
}
"""Fits that differ by data set, fold, dependence or errors share a program; those of one rate and
as many epochs come before tuned and further ones.
"""
