"""The ablation on real eyes (Section 6): ViT, ViT-A, CeViT, CeViT-A and their controls, fold by fold.

    python -m studies.ablation.fits --study ablation              ten seeds of five folds, records in results/
    python -m studies.ablation.fits --study ablation --weights imagenet
    python -m studies.ablation.fits --scale smoke                 drawn eyes, seconds on a CPU

A fit is a warm-up with all its arms, and one record. ViT is the arm "empirical" and CeViT an arm with dependence, both
after the same warm-up, patients, order and epochs; ViT-A and CeViT-A are the same with adapters. The copula parameters
come from the training patients alone: from their own outputs (as the paper) or from cross-fitted ones. Fits of one
shape are trained side by side; those with a record are skipped. The other parts of the study are in
``studies.ablation.others``, the encoders' weights in ``studies.ablation.pretraining``.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from torch import Tensor

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import PairedEyes, split_by_patient
from cevit_lib.datasets.splits import Split
from cevit_lib.encoder import BiChannelViT
from cevit_lib.errors import FrozenRandomWeightsWarning
from cevit_lib.records import find_record, new_record, rounded, write_record
from cevit_lib.training import Recipe, Standardisation, find_device, streams
from cevit_lib.training.ensemble import (
    Ensemble,
    EnsembleCopulaLoss,
    Members,
    empirical_loss,
    train_ensemble,
)
from studies.ablation.data import Encoders, load_eyes, partition, weights_folder
from studies.ablation.settings import STUDIES, grid
from studies.simulation.fits import _Clock, _fitted, scores

Fit = tuple[dict[str, Any], int]
SHOWN = {"seed": 0, "fold": 1, "arm": "cross-fitted"}
"""The one CeViT-A whose class tokens are laid on a plane."""


def run_study(
    study: str = "ablation",
    scale: str = "paper",
    *,
    device: str | None = None,
    at_once: int = 25,
    folder: Any = None,
    data: str | None = None,
    weights: str | None = None,
    store: str | None = None,
    report: Callable = print,
    only: Iterable[int] | None = None,
) -> list[dict]:
    """Fit what has no record yet, fits of one shape at once, and return the records of the study.

    Parameters
    ----------
    study : str
        Key of ``STUDIES``.
    scale : {"paper", "smoke"}
    device : str, optional
        Default the accelerator that is there.
    at_once : int
        Most fits side by side. What is cut off loses at most so many.
    folder, data : path, optional
        Of the records and of GRAPE.
    weights : {"imagenet", "random"}, optional
        Other encoder weights than the pre-trained ones; such fits have records of their own.
    store : path, optional
        Folder of the pre-trained weights.
    report : callable
        Told in one line what was done.
    only : iterable of int, optional
        Numbers of the fits to make, counted from 0.
    """
    from studies.ablation.others import fit_others

    wanted = grid(study, scale, weights)
    wanted = wanted if only is None else [wanted[k] for k in only]
    records = {
        k: find_record(study, c, [seed], scale, folder=folder) for k, (c, seed) in enumerate(wanted)
    }
    missing = [k for k, record in records.items() if record is None]
    report(f"{study}: {len(wanted) - len(missing)} of {len(wanted)} fits have a record")
    if not missing:
        return [records[k] for k in sorted(records)]
    where, begun = find_device(device), time.perf_counter()
    encoders = Encoders(weights_folder(store, scale))
    if study in ("ablation", "ablation-transductive", "ablation-tuning"):
        done = _batches(study, wanted, missing, scale, where, at_once, data, encoders)
    else:
        done = fit_others(study, wanted, missing, scale, where, data, encoders)
    for k, record in done:
        write_record(record, folder)
        records[k] = record
        if k == missing[-1] or len([r for r in records.values() if r]) % at_once == 0:
            report(
                f"{study}: {sum(r is not None for r in records.values())} of {len(wanted)} after "
                f"{time.perf_counter() - begun:.0f} s",
                flush=True,
            )
    return [records[k] for k in sorted(records)]


def _batches(study, wanted, missing, scale, device, at_once, data, encoders):
    """Yield number and record of each fit, as soon as those trained beside it are done."""
    for shape in dict.fromkeys(_shape(wanted[k][0]) for k in missing):
        alike = [k for k in missing if _shape(wanted[k][0]) == shape]
        for start in range(0, len(alike), at_once):
            part = alike[start : start + at_once]
            yield from zip(
                part,
                fit_together(study, [wanted[k] for k in part], scale, device, data, encoders),
                strict=True,
            )


def _shape(configuration: dict) -> str:
    return repr(
        {key: value for key, value in configuration.items() if key not in ("fold", "partition")}
    )


def refit(record: dict) -> dict:
    """Fit one record again, alone, for ``cevit verify`` (needs the encoder's weights in their folder)."""
    from studies.ablation.others import fit_others

    study, scale = record["study"], record["scale"]
    fit, encoders, device = (
        (record["configuration"], record["seeds"][0]),
        Encoders(weights_folder(None, scale)),
        None,
    )
    if study in ("ablation", "ablation-transductive", "ablation-tuning"):
        return fit_together(study, [fit], scale, find_device(device), None, encoders)[0]
    return next(iter(fit_others(study, [fit], [0], scale, find_device(device), None, encoders)))[1]


def fit_together(
    study: str,
    fits: list[Fit],
    scale: str,
    device: torch.device,
    data: str | None,
    encoders: Encoders,
) -> list[dict]:
    """Train fits of one shape side by side and return their records (not written)."""
    begun, clock, first = time.perf_counter(), _Clock(device), fits[0][0]
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    eyes = load_eyes(first["data"], first["size"], first["mirror"], data)
    images, y = eyes.load().to(device), eyes.y.to(device)
    splits = [partition(eyes, c) for c, _ in fits]
    told = [encoders(c)[1] for c, _ in fits]
    clock.mark("data")
    fresh = Ensemble(_networks(fits, encoders), device)
    clock.mark("networks")
    crossed, traces = _cross_fit(fits, eyes, images, y, splits, fresh)
    clock.mark("cross-fits")
    arms: dict[str, Tensor] = {}
    estimates: dict[str, list[CopulaParameters]] = {}
    planes: dict[int, dict] = {}
    if first["arms"]:
        members = _members(
            [s.train for s in splits], eyes, images, y, smallest(first, len(eyes))[0]
        )
        ensemble, test = fresh.copy(), [s.test for s in splits]
        traces["warm-up"] = _train(
            ensemble, members, None, Recipe(**first["warm_up"]), fits, "warm-up"
        )
        arms["warm-up"] = _outputs(ensemble, members, test, first)
        seen = _outputs(ensemble, members, [s.train for s in splits], first)
        clock.mark("warm-up")
        estimates = _estimates(
            eyes, splits, {"fmcem": seen, "cross-fitted": crossed}, first["arms"]
        )
        clock.mark("estimation")
        for arm in first["arms"]:
            twin = ensemble.copy()
            chosen = parameters_of(arm, estimates)
            traces[arm] = _train(twin, members, chosen, Recipe(**first["further"]), fits, arm)
            arms[arm] = _outputs(twin, members, test, first)
            if arm == SHOWN["arm"] and first["adapters"]:
                planes = _planes(fits, twin, eyes, encoders)
            clock.mark(arm)
    share = (time.perf_counter() - begun) / len(fits)
    return [
        _record(
            study,
            fits[k],
            scale,
            eyes,
            splits[k],
            {n: o[k] for n, o in arms.items()},
            {n: e[k] for n, e in estimates.items()},
            {n: t[k] for n, t in traces.items()},
            crossed[k],
            told[k],
            clock,
            share,
            len(fits),
            device,
            planes.get(k),
        )
        for k in range(len(fits))
    ]


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
    """Return how many patients every warm-up and every cross-fit trains on: the smallest part of that division.

    Networks side by side need equally many. The number is that of the division, not of the neighbours, so that a fit
    made alone is the same fit.
    """
    train = patients - -(-patients // configuration["folds"])
    return train, train - -(-train // configuration["cross_fits"])


def _members(
    rows: list[np.ndarray], eyes: PairedEyes, images: Tensor, y: Tensor, count: int
) -> Members:
    """Return members on ``count`` of their training patients: a part with one more leaves its last one out."""
    scales = [Standardisation.of(eyes.y[own], eyes.continuous, eyes.responses) for own in rows]
    return Members(images, y, np.stack([own[:count] for own in rows]), scales)


def _outputs(
    ensemble: Ensemble, members: Members, rows: list[np.ndarray], configuration: dict
) -> list[Tensor]:
    """Return each member's outputs for all of its rows, whose numbers may differ by a patient."""
    longest = max(map(len, rows))
    padded = np.stack([np.pad(own, (0, longest - len(own)), mode="edge") for own in rows])
    found = ensemble.outputs(members, padded, configuration["warm_up"]["batch_size"])
    return [found[k, : len(own)] for k, own in enumerate(rows)]


def _train(
    ensemble, members, parameters, recipe, fits, stage, *key, after_epoch=None
) -> list[list[dict]]:
    """Train all members in place; arms after one warm-up see the patients in one order."""
    loss: Any = empirical_loss
    if parameters is not None:
        inside = [
            s.parameters_inside(p) for s, p in zip(members.standardisation, parameters, strict=True)
        ]
        loss = EnsembleCopulaLoss(inside, ensemble.device)
    further = () if stage.startswith(("warm-up", "cross-fit")) else (1,)
    orders = [streams(seed, c["partition"], c["fold"], *key, *further).order for c, seed in fits]
    return train_ensemble(
        ensemble, members, loss, recipe, orders, stage=stage, after_epoch=after_epoch
    )


def _inner(eyes: PairedEyes, split: Split, configuration: dict, seed: int) -> list[Split]:
    """Divide a fold's training patients for cross-fitting; rows are those of all patients."""
    rng = streams(seed, configuration["partition"], configuration["fold"]).split
    parts = split_by_patient(
        eyes.subset(split.train), configuration["cross_fits"], rng, require_classes=False
    )
    return [Split(split.train[p.train], split.train[p.test]) for p in parts]


def _cross_fit(fits, eyes, images, y, splits, fresh: Ensemble):
    """Return outputs for every training patient from a warm-up that did not see him, and the traces.

    These warm-ups start from the weights of the fit's own.

    A tenth of these patients would say nothing about six correlations, and their own residuals say too little: what a
    network has learnt by heart is no longer error.
    """
    first = fits[0][0]
    inner = [_inner(eyes, split, c, seed) for split, (c, seed) in zip(splits, fits, strict=True)]
    found = [
        torch.full((len(split.train), eyes.y.shape[1]), torch.nan, dtype=torch.float64)
        for split in splits
    ]
    traces: dict[str, list] = {}
    for number in range(first["cross_fits"]):
        members = _members(
            [own[number].train for own in inner], eyes, images, y, smallest(first, len(eyes))[1]
        )
        left_out = [own[number].test for own in inner]
        ensemble = fresh.copy()
        watch = None if first["arms"] else _Watch(eyes, members, left_out, first)
        stage = f"cross-fit {number + 1}"
        traces[stage] = _train(
            ensemble,
            members,
            None,
            Recipe(**first["warm_up"]),
            fits,
            stage,
            2 + number,
            after_epoch=watch,
        )
        for own, split, rows, outputs in zip(
            found, splits, left_out, _outputs(ensemble, members, left_out, first), strict=True
        ):
            own[torch.as_tensor(np.searchsorted(split.train, rows))] = outputs
    return found, traces


class _Watch:
    """The left-out patients' empirical loss after every epoch, in units of training: what tuning compares."""

    def __init__(self, eyes, members, left_out, configuration) -> None:
        self.eyes, self.members, self.rows, self.configuration = (
            eyes,
            members,
            left_out,
            configuration,
        )

    def __call__(self, epoch: int, ensemble: Ensemble) -> list[dict]:
        outputs = _outputs(ensemble, self.members, self.rows, self.configuration)
        return [
            {"validation_loss": _empirical(o, self.eyes.y[rows], scale)}
            for o, rows, scale in zip(outputs, self.rows, self.members.standardisation, strict=True)
        ]


def _empirical(outputs: Tensor, y: Tensor, scale: Standardisation) -> float:
    return float(empirical_loss(scale.apply(outputs)[None], scale.apply(y)[None])[0])


def _planes(
    fits: list[Fit], ensemble: Ensemble, eyes: PairedEyes, encoders: Encoders
) -> dict[int, dict]:
    """Return t-SNE coordinates of all eyes by the fit that is shown, if it is among these: one row an eye."""
    from studies.encoder.embedding import class_tokens, on_a_plane

    chosen = [
        k for k, (c, seed) in enumerate(fits) if (seed, c["fold"]) == (SHOWN["seed"], SHOWN["fold"])
    ]
    for k in chosen:
        (model,), n = _networks([fits[k]], encoders), len(eyes)
        model.load_state_dict(ensemble.state(k), strict=False)
        tested = np.isin(np.arange(n), partition(eyes, fits[k][0]).test)
        plane = on_a_plane(class_tokens(model, eyes, ensemble.device), min(30.0, n / 2), 0).reshape(
            -1, 2
        )
        columns = {
            "patient": np.repeat(eyes.ids, 2),
            "eye": np.tile(["OS", "OD"], n),
            "test": np.repeat(tested, 2),
            "continuous": eyes.y[:, :2].reshape(-1),
            "binary": eyes.y[:, 2:].reshape(-1),
            "CeViT-A: first": plane[:, 0],
            "CeViT-A: second": plane[:, 1],
        }
        return {k: rounded({name: np.asarray(values).tolist() for name, values in columns.items()})}
    return {}


def parameters_of(
    arm: str, estimates: dict[str, list[CopulaParameters]]
) -> list[CopulaParameters] | None:
    """Return the copula parameters under which an arm trains; ``None`` is the empirical loss."""
    if arm == "empirical":
        return None
    if arm == "independence":
        return [CopulaParameters.independent(p.scale, p.p1) for p in estimates["cross-fitted"]]
    return estimates[arm]


def _estimates(eyes, splits, outputs, arms) -> dict[str, list[CopulaParameters]]:
    names = [name for name in outputs if name in arms or name == "cross-fitted"]
    jobs = [
        delayed(_fitted)(name, outputs[name][k].clone(), eyes.y[split.train])
        for name in names
        for k, split in enumerate(splits)
    ]
    workers = min(os.cpu_count() or 1, max(1, len(jobs) // 20))
    found = [CopulaParameters.from_dict(one) for one in Parallel(n_jobs=workers)(jobs)]
    return {name: found[j * len(splits) : (j + 1) * len(splits)] for j, name in enumerate(names)}


def predictions_of(eyes: PairedEyes, split: Split, arms: dict[str, Tensor]) -> dict[str, list]:
    """Return the test patients' ids, responses and every arm's outputs, for a record."""
    table = {"patient": [eyes.ids[i] for i in split.test], "y": eyes.y[split.test].tolist()}
    return table | {name: rounded(outputs.tolist()) for name, outputs in arms.items()}


def about(eyes: PairedEyes, split: Split) -> str:
    """Return what a record says of the data behind it."""
    tested = ",".join(eyes.ids[i] for i in split.test)
    return f"{eyes.name} {eyes.hash}: {len(split.train)} patients to train on, {len(split.test)} to test: {tested}"


def _record(
    study,
    fit,
    scale,
    eyes,
    split,
    arms,
    estimates,
    traces,
    crossed,
    told,
    clock,
    share,
    together,
    device,
    plane=None,
):
    configuration, seed = fit
    y, used = eyes.y[split.test], {}
    for name in arms:
        chosen = (
            parameters_of(name, {k: [v] for k, v in estimates.items()})
            if name != "warm-up"
            else None
        )
        used[name] = chosen[0] if chosen else estimates["cross-fitted"]
    metrics: dict[str, Any] = {
        name: scores(outputs, y, used[name]) for name, outputs in arms.items()
    }
    whole = Standardisation.of(eyes.y[split.train], eyes.continuous)
    metrics["cross-fits"] = {"empirical loss": _empirical(crossed, eyes.y[split.train], whole)}
    columns = ("loss", "gradient_norm", "validation_loss")
    trace = {
        stage: {c: [e[c] for e in entries] for c in columns if c in entries[0]}
        for stage, entries in traces.items()
    }
    return new_record(
        study,
        configuration,
        [seed],
        rounded(metrics),
        scale=scale,
        parameters={
            "weights": told,
            **{name: value.to_dict() for name, value in estimates.items()},
        },
        trace=rounded(trace),
        predictions=predictions_of(eyes, split, arms) if arms else None,
        columns=plane,
        notes=about(eyes, split),
        seconds=share,
        times={**{f"{k} (all fits)": v for k, v in clock.times.items()}, "fits": together},
        dtype="bf16, loss in float32" if device.type == "cuda" else "float32",
        device=device,
    )


def main(arguments: list[str] | None = None) -> int:
    """Entry of ``python -m studies.ablation.fits``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", choices=sorted(STUDIES), nargs="*", default=list(STUDIES))
    parser.add_argument("--scale", choices=("paper", "smoke"), default="paper")
    parser.add_argument("--device")
    parser.add_argument("--at-once", type=int, default=25, help="most fits trained side by side")
    parser.add_argument("--data", help="folder of GRAPE (default: CEVIT_DATA/grape)")
    parser.add_argument(
        "--weights", choices=("imagenet", "random"), help="instead of the pre-trained ones"
    )
    parser.add_argument("--weights-folder", help="where pre-training left its weights")
    parser.add_argument("--results", help="folder of the records")
    o = parser.parse_args(arguments)
    for study in o.study:
        run_study(
            study,
            o.scale,
            device=o.device,
            at_once=o.at_once,
            folder=o.results,
            data=o.data,
            weights=o.weights,
            store=o.weights_folder,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
