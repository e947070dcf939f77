"""The simulation study of Section 5: one warm-up and its arms for every fold of every synthetic data set.

    python -m studies.simulation.fits                 the paper's grid, records in results/simulation
    python -m studies.simulation.fits --study tuning  choice of the hyper-parameters, before any arm is compared

A fit is a warm-up with all its arms, and one record. Fits of one shape are trained side by side in one program
(``cevit_lib.training.ensemble``); a fit's numbers do not depend on its neighbours, and fits with a record are skipped.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed

from cevit_lib.copula import MINIMUM_EIGENVALUE, CopulaParameters, bayes_classifier, log_density
from cevit_lib.datasets import SyntheticPairs, hold_out, split_by_patient
from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import TrainingError
from cevit_lib.estimation import FastMCEM, MaximumLikelihood
from cevit_lib.metrics import evaluate
from cevit_lib.records import find_record, new_record, rounded, write_record
from cevit_lib.training import Recipe, Standardisation, find_device, streams
from cevit_lib.training.compiling import WRONG_GRADIENT
from cevit_lib.training.ensemble import (
    Ensemble,
    EnsembleCopulaLoss,
    Members,
    empirical_loss,
    train_ensemble,
)
from studies.simulation.settings import PAPER as PAPER
from studies.simulation.settings import SMOKE as SMOKE
from studies.simulation.settings import STUDIES, grid

SHRINK_TO = 0.05
WORTH_COMPILING = 15_000  # steps of one member; shorter studies are done before a compiler is
ESTIMATES = ("true", "held-out", "in-sample", "fmcem")
"""Copula parameters by where they come from: the truth, exact likelihood on held-out or training outputs, fMCEM."""


@dataclass(frozen=True)
class Patients:
    """Rows of one fit in the common tensor of images, by their part."""

    train: np.ndarray
    held_out: np.ndarray
    test: np.ndarray


def run_study(
    study: str,
    scale: str = "paper",
    *,
    device: str | None = None,
    at_once: int = 25,
    folder: Any = None,
    report: Callable = print,
    only: Iterable[int] | None = None,
) -> list[dict]:
    """Fit what has no record yet, fits of one shape at once, and return the records of the whole study.

    Parameters
    ----------
    study : str
        Key of ``STUDIES``.
    scale : {"paper", "smoke"}
    device : str, optional
        ``cuda``, ``cpu``; default the accelerator that is there.
    at_once : int
        Most fits trained side by side: 25 of the paper's fill an H100 and need 13 GiB of its memory. What is cut off
        loses at most so many.
    folder : path, optional
        Where records go (default: ``results``).
    report : callable
        Told in one line what was done.
    only : iterable of int, optional
        Numbers of the fits to make, counted from 0; for a job of its own on each device.
    """
    wanted = grid(study, scale)
    wanted = wanted if only is None else [wanted[k] for k in only]
    records = {
        k: find_record(study, c, [seed], scale, folder=folder) for k, (c, seed) in enumerate(wanted)
    }
    missing = [k for k, record in records.items() if record is None]
    report(f"{study}: {len(wanted) - len(missing)} of {len(wanted)} fits have a record")
    for shape in {_shape(wanted[k][0]) for k in missing}:
        alike = [k for k in missing if _shape(wanted[k][0]) == shape]
        for start in range(0, len(alike), at_once):
            part = alike[start : start + at_once]
            begun = time.perf_counter()
            for k, record in zip(
                part, fit_together(study, [wanted[k] for k in part], scale, device), strict=True
            ):
                write_record(record, folder)
                records[k] = record
            report(f"{study}: {len(part)} fits in {time.perf_counter() - begun:.0f} s", flush=True)
    return [records[k] for k in sorted(records)]


def _shape(configuration: dict) -> str:
    """Fits with one shape can share a program: everything but data set, fold and dependence is alike."""
    return repr(
        {
            key: value
            for key, value in configuration.items()
            if key not in ("dataset", "fold", "strength")
        }
    )


def refit(record: dict) -> dict:
    """Fit one record again, alone, for ``cevit verify``."""
    fit = (record["configuration"], record["seeds"][0])
    return fit_together(record["study"], [fit], record["scale"], None)[0]


def true_correlation(strength: float) -> np.ndarray:
    """Return the printed Gamma with its correlations multiplied; 0 is independence."""
    from cevit_lib.datasets.synthetic import TEXT_CORRELATION

    printed = np.array(TEXT_CORRELATION)
    return np.eye(4) + strength * (printed - np.eye(4))


def draw(configuration: dict, seed: int) -> SyntheticPairs:
    """Return the data set of a fit: the same for all folds, and for all studies that name its number."""
    rng = streams(configuration["data_seed"], configuration["dataset"]).data
    return SyntheticPairs(
        configuration["n"],
        rng,
        configuration["process"],
        correlation=true_correlation(configuration["strength"]),
        window=configuration.get("window"),
    )


def fit_together(
    study: str, fits: list[tuple[dict, int]], scale: str, device: str | None
) -> list[dict]:
    """Train fits of one shape side by side and return their records (not written).

    Where a compiled program goes wrong on the way, the fits are made again without it.
    """
    made = _fit_together(study, fits, scale, device)
    if made is None:
        _PROGRAMS.clear()
        made = _fit_together(study, fits, scale, device, compiled=False)
    return made


def _fit_together(study, fits, scale, device, compiled: bool = True) -> list[dict] | None:
    """Return records, or None where a compiled program diverged or no longer has the right gradients at the end."""
    begun, where = time.perf_counter(), find_device(device)
    if where.type == "cuda":
        torch.set_float32_matmul_precision(
            "high"
        )  # predictions in TF32; training is in bf16, the loss in float32
    clock, first = _Clock(where), fits[0][0]
    data, patients, members = _assemble(fits, where)
    clock.mark("data")
    warm = Recipe(**first["warm_up"])
    ensemble = _ensemble(fits, where, compiled)
    clock.mark("networks")
    how = _compile(ensemble, members, warm)
    clock.mark("compiling")
    try:
        trace, trackers, estimates = _arms(fits, data, patients, members, ensemble, clock)
    except TrainingError:
        if (
            ensemble.compiled
        ):  # a wrong gradient may be why; without the program it trains, or fails for good
            return None
        raise
    if (
        ensemble.compiled
        and ensemble.trust_compiler(_first_batch(members, warm), warm.precision) > WRONG_GRADIENT
    ):
        return None
    total = time.perf_counter() - begun
    return [
        _record(
            study,
            fits[k],
            scale,
            data[k],
            patients[k],
            {n: t.result(k) for n, t in trackers.items()},
            {n: e[k] for n, e in estimates.items()},
            trace[k],
            clock,
            total,
            len(fits),
            where,
            how,
        )
        for k in range(len(fits))
    ]


def _arms(fits, data, patients, members, ensemble, clock):
    """Make the warm-ups, the estimates and every arm; return traces, trackers by arm, and the estimates."""
    first = fits[0][0]
    warm, initial = Recipe(**first["warm_up"]), ensemble.copy() if first["from_scratch"] else None
    trackers = {"warm-up": _Tracker(members, patients, data, None, warm.batch_size)}
    trace = _train(
        ensemble, members, None, warm, _orders(fits, "warm-up"), "warm-up", trackers["warm-up"]
    )
    clock.mark("warm-up")
    outputs = {
        part: ensemble.outputs(members, _rows(patients, part), warm.batch_size)
        for part in ("train", "held_out")
    }
    estimates = _estimates(data, patients, outputs, first)
    clock.mark("estimation")
    plan = [(arm, ensemble, Recipe(**first["further"])) for arm in first["arms"]]
    plan += [(f"{arm}, from scratch", initial, warm) for arm in first["from_scratch"]]
    for name, start, recipe in plan:
        chosen = _parameters(name.split(",")[0], estimates)
        twin = start.copy()
        trackers[name] = _Tracker(members, patients, data, chosen, recipe.batch_size)
        further = _train(twin, members, chosen, recipe, _orders(fits, name), name, trackers[name])
        trace = [own + more for own, more in zip(trace, further, strict=True)]
        clock.mark(name)
    return trace, trackers, estimates


def _compile(ensemble: Ensemble, members: Members, recipe: Recipe) -> str:
    """Run every program once, so that the time to compile is not counted as training; check it, and say what came."""
    if not ensemble.compiled:
        return "not compiled"
    far = ensemble.trust_compiler(_first_batch(members, recipe), recipe.precision)
    ensemble.outputs(members, members.rows[:, : recipe.batch_size], recipe.batch_size)
    if not ensemble.compiled:
        _PROGRAMS.clear()
    told = f"outputs and gradients of the compiled program within {far:.2g} of the uncompiled one's"
    return told if ensemble.compiled else f"not compiled: {told}"


def _first_batch(members: Members, recipe: Recipe) -> torch.Tensor:
    """Return the images of a batch as an epoch cuts it, ``(members, b, 2, channels, height, width)``."""
    rows = np.array_split(members.rows, -(-members.rows.shape[1] // recipe.batch_size), 1)[0]
    return members.images[torch.as_tensor(rows, device=members.images.device)].float()


def _orders(fits, name: str) -> list[np.random.Generator]:
    """Arms after one warm-up see the patients in one order; a fit from scratch sees them as the warm-up did."""
    key = () if name == "warm-up" or "from scratch" in name else (1,)
    return [streams(seed, c["dataset"], c["fold"], *key).order for c, seed in fits]


class _Clock:
    """Seconds of each stage, told as it ends; the device's queue is emptied before every reading."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.times, self.last = device, {}, time.perf_counter()

    def mark(self, stage: str) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        self.times[stage], self.last = now - self.last, now
        if (
            self.device.type == "cuda"
        ):  # stages of many fits take minutes; on a processor the fits are few and small
            print(f"  {stage}: {self.times[stage]:.0f} s", flush=True)


def _assemble(fits, device):
    """Return data sets, rows and ``Members`` of the fits; the images of a data set are there once."""
    wanted = {(c["dataset"], c["strength"]): (c, seed) for c, seed in fits}
    drawn = Parallel(n_jobs=min(os.cpu_count() or 1, len(wanted)), prefer="threads")(
        delayed(draw)(c, seed) for c, seed in wanted.values()
    )
    unique = dict(zip(wanted, drawn, strict=True))
    start = dict(zip(wanted, np.cumsum([0, *map(len, drawn)]), strict=False))
    half = (
        torch.bfloat16 if device.type == "cuda" else torch.float32
    )  # the network reads bf16 there in any case
    images = torch.cat([d.images.to(half) for d in drawn]).to(device)
    y = torch.cat([d.y for d in drawn]).to(device)
    data, patients, scales = [], [], []
    for c, seed in fits:
        key = (c["dataset"], c["strength"])
        own = unique[key]
        bare = own.replace(
            images=torch.zeros(len(own), 2, 1, 1, 1)
        )  # a split reads labels: no image need be copied
        split = split_by_patient(bare, c["folds"], streams(seed, c["dataset"]).split)[c["fold"] - 1]
        inner = hold_out(
            bare.subset(split.train),
            c["held_out_share"],
            streams(seed, c["dataset"], c["fold"]).split,
        )
        rows = (split.train[inner.train], split.train[inner.test], split.test)
        part = Patients(*(start[key] + r for r in rows))
        data.append(own)
        patients.append(part)
        scales.append(Standardisation.of(own.y[part.train - start[key]], 2))
    return data, patients, Members(images, y, _rows(patients, "train"), scales)


def _rows(patients: list[Patients], part: str) -> np.ndarray:
    """Return ``(members, b)`` rows; parts that differ by a patient are cut to the shortest."""
    rows = [getattr(p, part) for p in patients]
    return np.stack([own[: min(map(len, rows))] for own in rows])


_PROGRAMS: dict[str, Callable] = {}  # one for each architecture, so that nothing is compiled twice


def _ensemble(fits, device: torch.device, compiled: bool = True) -> Ensemble:
    """Return fresh networks for the fits; only what was compiled is shared with earlier ones."""
    first = fits[0][0]
    if (
        not compiled
        or device.type != "cuda"
        or _steps(first) * max(len(fits), 10) < WORTH_COMPILING
    ):
        return Ensemble(_networks(fits), device)
    key = repr((first["encoder"], first["adapters"], first.get("window"), str(device)))
    found = Ensemble(_networks(fits), device, compiled=True, program=_PROGRAMS.get(key))
    _PROGRAMS[key] = found.program
    return found


def _steps(configuration: dict) -> int:
    """Steps of a warm-up and its arms, nearly; a step that is not compiled costs as much for one fit as for ten."""
    further, scratch = len(configuration["arms"]), len(configuration["from_scratch"])
    epochs = (
        configuration["warm_up"]["epochs"] * (1 + scratch)
        + configuration["further"]["epochs"] * further
    )
    return int(epochs * configuration["n"] / configuration["warm_up"]["batch_size"])


def _networks(fits) -> list[BiChannelViT]:
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


def _train(ensemble, members, parameters, recipe, orders, stage, tracker):
    if parameters is None:
        loss: Any = empirical_loss
    else:
        inside = [
            s.parameters_inside(p) for s, p in zip(members.standardisation, parameters, strict=True)
        ]
        loss = EnsembleCopulaLoss(inside, ensemble.device)
    trace = train_ensemble(
        ensemble, members, loss, recipe, orders, stage=stage, after_epoch=tracker
    )
    tracker.test(ensemble)
    return trace


def _parameters(
    arm: str, estimates: dict[str, list[CopulaParameters]]
) -> list[CopulaParameters] | None:
    """Return the copula parameters under which an arm trains; ``None`` is the empirical loss."""
    if arm == "empirical":
        return None
    if arm.startswith("independence"):
        source = "true" if arm == "independence at the true scale" else "held-out"
        return [CopulaParameters.independent(p.scale, 2) for p in estimates[source]]
    return estimates[arm]


def _estimates(data, patients, outputs, configuration) -> dict[str, list[CopulaParameters]]:
    """Return every estimate of every fit; a tuning fit, which has no arms, is spared all but the held-out one."""
    wanted = ESTIMATES if configuration["arms"] or configuration["from_scratch"] else ("held-out",)
    made = [name for name in wanted if name != "true"]
    jobs = []
    for k, (own, part) in enumerate(zip(data, patients, strict=True)):
        for name in made:
            at = "held_out" if name == "held-out" else "train"
            y = own.y[_local(own, getattr(part, at))][: outputs[at].shape[1]]
            jobs.append(delayed(_fitted)(name, outputs[at][k].clone(), y))
    workers = min(
        os.cpu_count() or 1, max(1, len(jobs) // 20)
    )  # a worker's start costs some seconds
    results = iter(Parallel(n_jobs=workers)(jobs))
    found: dict[str, list[CopulaParameters]] = {name: [] for name in made}
    for _ in data:
        for name in made:
            found[name].append(CopulaParameters.from_dict(next(results)))
    if "true" in wanted:
        found["true"] = [CopulaParameters(own.truth.correlation, own.truth.scale) for own in data]
    return found


def _local(own: SyntheticPairs, rows: np.ndarray) -> np.ndarray:
    return rows % len(own)  # data sets of one shape have one length and stand one after another


def _fitted(name: str, outputs: torch.Tensor, y: torch.Tensor) -> dict:
    """Return one estimate as plain lists (it may come from another process), shrunk where a loss would refuse it."""
    estimator = FastMCEM() if name == "fmcem" else MaximumLikelihood(standard_errors=False)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # what did not converge or was shrunk is seen in the stored matrix
        parameters = estimator.fit(outputs, y).parameters_
    if parameters.smallest_eigenvalue() < MINIMUM_EIGENVALUE:
        parameters = parameters.shrink(minimum_eigenvalue=SHRINK_TO)
    return parameters.to_dict()


class _Tracker:
    """Follow an arm: held-out loss after every epoch, weights of each member's best epoch."""

    def __init__(self, members, patients, data, parameters, chunk) -> None:
        self.members, self.data, self.parameters, self.chunk = members, data, parameters, chunk
        self.rows = {part: _rows(patients, part) for part in ("held_out", "test")}
        at = {
            part: torch.as_tensor(rows, device=members.y.device) for part, rows in self.rows.items()
        }
        self.y = {part: members.y[rows].cpu() for part, rows in at.items()}
        self.best = [float("inf")] * len(patients)
        self.best_epoch = [0] * len(patients)
        self.best_weights: Ensemble | None = None
        self.outputs: dict[str, torch.Tensor] = {}

    def __call__(self, epoch: int, ensemble: Ensemble) -> list[dict]:
        if self.best_weights is None:
            self.best_weights = ensemble.copy()
        held = ensemble.outputs(self.members, self.rows["held_out"], self.chunk)
        losses = [self._loss(k, held[k]) for k in range(len(held))]
        for k, value in enumerate(losses):
            if value < self.best[k]:
                self.best[k], self.best_epoch[k] = value, epoch + 1
                self.best_weights.take(ensemble, k)
        return [{"validation_loss": value} for value in losses]

    def test(self, ensemble: Ensemble) -> None:
        """Predict the test patients by the last and by the best weights, which are then let go."""
        for name, networks in (("last", ensemble), ("best", self.best_weights)):
            self.outputs[name] = networks.outputs(self.members, self.rows["test"], self.chunk)
        self.best_weights = None

    def _loss(self, k: int, outputs: torch.Tensor) -> float:
        """The arm's own loss in units of training, so that every arm chooses its epoch by what it minimises."""
        if self.parameters is not None:
            return -float(
                log_density(
                    outputs, self.y["held_out"][k], self.parameters[k], validate=False
                ).mean()
            )
        scale = self.members.standardisation[k]
        return float(
            empirical_loss(scale.apply(outputs)[None], scale.apply(self.y["held_out"][k])[None])[0]
        )

    def result(self, k: int) -> dict[str, Any]:
        return {
            "last": self.outputs["last"][k],
            "best": self.outputs["best"][k],
            "best_epoch": self.best_epoch[k],
            "y": self.y["test"][k],
            "rows": self.rows["test"][k],
        }


def scores(
    outputs: torch.Tensor, y: torch.Tensor, parameters: CopulaParameters
) -> dict[str, float]:
    """Return every metric of one set of predictions; the joint rule and the likelihood use ``parameters``."""
    joint = bayes_classifier(outputs, parameters)
    values = evaluate(outputs, y, ("y1", "y2", "y3", "y4"), 2, joint).values
    probability = torch.sigmoid(outputs[:, 2:])
    values |= {
        f"Brier y{k + 3}": float((probability[:, k] - y[:, k + 2]).square().mean())
        for k in range(2)
    }
    values["log-likelihood"] = float(log_density(outputs, y, parameters, validate=False).mean())
    return values


def _record(
    study, fit, scale, own, part, arms, estimates, trace, clock, total, together, device, how
):
    configuration, seed = fit
    used = {"warm-up": estimates["held-out"]}
    for name in arms:
        if name != "warm-up":
            chosen = _parameters(
                name.split(",")[0], {key: [value] for key, value in estimates.items()}
            )
            used[name] = chosen[0] if chosen else estimates["held-out"]
    y, rows = next(iter(arms.values()))["y"], _local(own, next(iter(arms.values()))["rows"])
    truth = CopulaParameters(own.truth.correlation, own.truth.scale)
    metrics: dict[str, Any] = {"Bayes-optimal": scores(own.truth.outputs[rows], y, truth)}
    for name, arm in arms.items():
        metrics[name] = scores(arm["last"], y, used[name])
        metrics[name] |= _regression_error(arm["last"], own.truth.outputs[rows])
        metrics[f"{name}, at its best epoch"] = scores(arm["best"], y, used[name]) | {
            "epoch": arm["best_epoch"]
        }
    return new_record(
        study,
        configuration,
        [seed],
        rounded(metrics),
        scale=scale,
        parameters={name: value.to_dict() for name, value in estimates.items()},
        trace=rounded(trace),
        notes=f"synthetic data {own.hash}, split {_split_hash(own, part)}: {len(part.train)} patients to train on, "
        f"{len(part.held_out)} held out, {len(part.test)} to test; {how}",
        seconds=total / together,
        times={**{f"{k} (all fits)": v for k, v in clock.times.items()}, "fits": together},
        dtype="bf16, loss in float32, predictions in TF32" if device.type == "cuda" else "float32",
        device=device,
    )


def _split_hash(own: SyntheticPairs, part: Patients) -> str:
    parts = (part.train, part.held_out, part.test)
    rows = b"".join(_local(own, r).astype(np.int64).tobytes() + b"|" for r in parts)
    return hashlib.sha256(rows).hexdigest()[:16]


def _regression_error(outputs: torch.Tensor, truth: torch.Tensor) -> dict[str, float]:
    """RMSE to the true regression functions: what is left of the error when the noise is taken off."""
    error = (outputs[:, :2] - truth[:, :2]).square().mean(0).sqrt()
    return {f"RMSE to truth y{k + 1}": float(error[k]) for k in range(2)}


def main(arguments: list[str] | None = None) -> int:
    """Entry of ``python -m studies.simulation.fits``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", choices=sorted(STUDIES), nargs="*", default=["simulation"])
    parser.add_argument("--scale", choices=("paper", "smoke"), default="paper")
    parser.add_argument("--device")
    parser.add_argument("--at-once", type=int, default=25, help="most fits trained side by side")
    parser.add_argument("--results", help="folder of the records")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the fits, counted from 0")
    options = parser.parse_args(arguments)
    for study in options.study:
        run_study(
            study,
            options.scale,
            device=options.device,
            at_once=options.at_once,
            folder=options.results,
            only=options.only,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
