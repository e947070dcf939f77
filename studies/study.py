"""One object for a study: which fits it has, how one is made, and where their records are.

A study's module names its settings and its fit, and leaves the rest to this object::

    STUDY = Study("encoder-size", settings, fit, device="cpu")
    STUDY.run("paper")            # fits what has no record yet, and writes it
    STUDY.collect("stored")       # what a page draws
    STUDY.refit(record)           # for ``cevit verify``

Its line in ``cevit_lib/records/studies.json`` says where the object stands, so that ``python -m
studies NAME`` and ``cevit verify`` find it.
"""

import contextlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from cevit_lib.errors import DataError, ParameterError, ProvenanceError, TrainingError
from cevit_lib.paths import granted_cores
from cevit_lib.records import (
    add_arms,
    find_record,
    load_records,
    new_record,
    record_id,
    source_hash,
    write_record,
)
from cevit_lib.records.build import identifying, jsonable
from cevit_lib.records.recipes import STUDIES, imported
from cevit_lib.records.store import remedy

Setting = tuple[dict[str, Any], int]
"""Full configuration and seed of one fit."""


@dataclass(frozen=True)
class Grid:
    """Records of a study, and how many its grid has."""

    study: str
    records: list[dict[str, Any]]
    expected: int

    @property
    def complete(self) -> bool:
        return len(self.records) == self.expected

    @property
    def note(self) -> str:
        """``50 folds``, or ``37 of 50 folds`` for a grid with gaps."""
        counted = "" if self.complete else f"{len(self.records)} of "
        return f"{counted}{self.expected} folds"

    @property
    def smoke(self) -> bool:
        return any(record["scale"] == "smoke" for record in self.records)

    def whole(self) -> list[dict[str, Any]]:
        """Return the records of a grid without gaps.

        Raises
        ------
        ProvenanceError
            Some are missing; the message counts them.
        """
        if not self.complete:
            counted = f"{len(self.records)} of {self.expected} records"
            raise ProvenanceError(f"study {self.study!r} has {counted}; {remedy(self.study)}")
        return self.records


@dataclass(frozen=True)
class Study:
    """A study: independent fits, each of which ends in one record.

    Parameters
    ----------
    name : str
        Its key in ``cevit_lib/records/studies.json``.
    settings : callable
        ``settings(scale)`` returns configuration and seed of every fit, in an order that stays.
    fit : callable
        ``fit(configuration, seed, scale)`` returns the content of a record: ``metrics``, and what
        else ``cevit_lib.records.new_record`` takes. With ``together`` it takes a list of fits
        instead.
    device : str, optional
        ``"cpu"`` for small numerical studies: they run on one thread, so that their bits do not
        depend on the number of cores. Otherwise ``fit`` is told the device, as its last argument
        ``device``.
    together : tuple of str, optional
        Keys of the configuration in which fits that are trained side by side may differ. Where it
        is given, ``fit`` is called as ``fit(fits, scale, device)`` for fits that differ in nothing
        else, and returns one content each.
    first : tuple of str, optional
        Arms that every fit gets before any gets another one, for a grid that takes several calls.
    facts : callable, optional
        ``facts(configuration)`` describes the data where they are part of a record's identity.
    """

    name: str
    settings: Callable[[str], list[Setting]]
    fit: Callable[..., Any]
    device: str | None = None
    together: tuple[str, ...] | None = None
    first: tuple[str, ...] = ()
    facts: Callable[[dict], dict | None] = lambda configuration: None
    at_once: int = 25
    """Most fits side by side: 25 of the paper's simulation fill an H100. What is cut off loses at
    most so many.
    """

    def run(
        self,
        scale: str = "paper",
        folder: str | os.PathLike | None = None,
        devices: Sequence[str | None] = (None,),
        only: Iterable[int] | None = None,
        report: Callable[[str], Any] = print,
    ) -> list[dict[str, Any]]:
        """Fit what has no record yet, and return the records.

        Parameters
        ----------
        scale : {"paper", "smoke"}
        folder : path, optional
            Where records go (default ``results``; smoke records to the scratch folder).
        devices : sequence of str
            A worker process each, such as ``("cuda:0", "cuda:1")`` or ``("cpu", "cpu")``. One alone
            needs no worker; ``None`` is the accelerator that is there.
        only : iterable of int, optional
            Numbers of the fits to make, counted from 0.
        report : callable
            Told in one line what was done.

        Raises
        ------
        ParameterError
            A number that the study does not have.
        TrainingError
            Some fits failed: the message lists them. All others have their records; the next call
            tries those alone.
        """
        wanted = self.settings(scale)
        numbers = list(range(len(wanted)) if only is None else only)
        if unknown := set(numbers) - set(range(len(wanted))):
            known = f"fits 0 to {len(wanted) - 1} at scale {scale!r}"
            raise ParameterError(f"study {self.name!r} has {known}, not {_listed(unknown)}.")
        missing = [k for k in numbers if self._missing(wanted[k], scale, folder)]
        report(f"{self.name}: {len(numbers) - len(missing)} of {len(numbers)} fits have a record")
        shares = zip(devices, self.deal(scale, missing, len(devices)), strict=True)
        tasks = [(scale, folder, device, share) for device, share in shares if share]
        told = _in_workers(self._make, tasks) if len(tasks) > 1 else []
        told += self._make(*tasks[0], report) if len(tasks) == 1 else []
        lacking = [k for k in numbers if self._missing(wanted[k], scale, folder)]
        if lacking:
            counted = f"{len(numbers) - len(lacking)} of {len(numbers)} fits have a record"
            raise TrainingError(
                f"{self.name}: {counted}; without one are numbers {_listed(lacking)}. "
                f"{' | '.join(told)} The same call tries only these again."
            )
        return [self._stored(wanted[k], scale, folder) for k in numbers]

    def refit(self, record: dict[str, Any]) -> dict[str, Any]:
        """Fit one record again, alone, for ``cevit verify``.

        Raises
        ------
        DataError
            The data are not here, or are others.
        """
        arms = {} if record.get("arms") is None else {"arms": list(record["arms"])}
        fit = (record["configuration"] | arms, record["seeds"][0])
        again = self._fitted([fit], record["scale"], None)[0]
        if again["data"] != record["data"]:
            both = f"{again['data']} here, {record['data']} there"
            raise DataError(f"the data are not those of the record: {both}.")
        return again

    def collect(self, scale: str = "stored", folder: str | os.PathLike | None = None) -> Grid:
        """Return the records that a page draws.

        Parameters
        ----------
        scale : {"stored", "smoke", "paper"}
            Stored ones; those of a tiny grid, fitted now; or the paper's, with the gaps fitted now
            on every CUDA device that is there.
        folder : path, optional
            Where records are read and written.

        Raises
        ------
        ProvenanceError
            ``"stored"`` and no record that may be published, or none with all its arms; the message
            names the run that makes it.
        """
        if scale == "smoke":
            with one_thread():
                made = self.run("smoke", folder, ("cpu",), report=lambda line: None)
            return Grid(self.name, made, len(made))
        wanted = self.settings("paper")
        if scale == "paper":
            return Grid(self.name, self.run("paper", folder, _accelerators()), len(wanted))
        arms = {self._key(c, [seed]): c.get("arms", ()) for c, seed in wanted}
        found = []
        for record in load_records(self.name, folder=folder):
            asked = arms.get(self._key(record["configuration"], record["seeds"]))
            if asked is not None and not _lacking(asked, record):
                found.append(record)
        grid = Grid(self.name, found, len(wanted))
        if not found:  # a page draws a part of a grid, but not nothing
            grid.whole()
        return grid

    def listing(self, scale: str = "paper", folder: str | os.PathLike | None = None) -> list[dict]:
        """Return one entry a fit: its number, the id of its record, and whether that exists."""
        entries = []
        for number, fit in enumerate(self.settings(scale)):
            name = record_id(self.name, fit[0], [fit[1]], scale, self.facts(fit[0]))
            done = self._missing(fit, scale, folder) is None
            entries.append({"number": number, "id": name, "done": done})
        return entries

    def deal(self, scale: str, missing: Iterable[int], hands: int) -> list[list[int]]:
        """Return a share of the missing fits for each worker, fits of one shape evenly: they take
        equally long.
        """
        wanted = self.settings(scale)
        ordered = sorted(missing, key=lambda k: (self._shape(wanted[k][0]), k))
        return [ordered[hand::hands] for hand in range(hands)]

    def _make(
        self, scale: str, folder: Any, device: str | None, numbers: list[int], report=print
    ) -> list[str]:
        """Fit a share and write its records; return why parts of it have none."""
        wanted, begun, told, done = self.settings(scale), time.perf_counter(), [], 0
        missing = (self._missing(wanted[k], scale, folder) for k in numbers)
        todo = [portion for fit in missing for portion in self._portions(fit)]
        where = device or (_accelerators()[0] or f"the CPU ({granted_cores()} cores)")
        report(f"{self.name}: {len(numbers)} fits on {where}; the first one's time tells how long")
        for part in self._parts(todo):
            try:
                made = self._fitted(part, scale, device)
            except TrainingError as error:  # the other parts do not depend on this one
                told.append(str(error))
                continue
            for fit, record in zip(part, made, strict=True):
                stored = self._stored(fit, scale, folder)
                if stored is None:
                    write_record(record, folder)
                elif _lacking(record["arms"] or (), stored):  # else another process was faster
                    add_arms(stored, record, folder)
            took, done = time.perf_counter() - begun, done + len(part)
            left = took / done * (len(todo) - done) / 3600
            made = f"{done / len(todo):.0%} made after {took:.0f} s"
            report(f"{self.name}: {made}, about {left:.1f} hours left")
        return told

    def _portions(self, fit: Setting) -> list[Setting]:
        """Return a fit with the arms that come first, and with the others."""
        configuration, seed = fit
        early = [arm for arm in configuration.get("arms", ()) if arm in self.first]
        late = [arm for arm in configuration.get("arms", ()) if arm not in self.first]
        portions = [(configuration | {"arms": arms}, seed) for arms in (early, late) if arms]
        return portions or [fit]

    def _parts(self, fits: list[Setting]) -> list[list[Setting]]:
        """Return the fits that are made at once: one, or as many of one shape as a device holds."""
        if self.together is None:
            return [[fit] for fit in fits]
        shapes: dict[str, list[Setting]] = {}
        for fit in fits:
            shapes.setdefault(self._shape(fit[0]), []).append(fit)
        return [
            alike[start : start + self.at_once]
            for alike in shapes.values()
            for start in range(0, len(alike), self.at_once)
        ]

    def _key(self, configuration: dict, seeds: list[int]) -> str:
        return json.dumps([jsonable(identifying(self.name, configuration)), seeds], sort_keys=True)

    def _shape(self, configuration: dict) -> str:
        return repr({k: v for k, v in configuration.items() if k not in (self.together or ())})

    def _fitted(self, fits: list[Setting], scale: str, device: str | None) -> list[dict[str, Any]]:
        """Return the records of some fits, unwritten."""
        begun, here = time.perf_counter(), {} if self.device else {"device": device}
        with one_thread() if self.device == "cpu" else contextlib.nullcontext():
            if self.together is None:
                contents = [self.fit(*fit, scale, **here) for fit in fits]
            else:
                contents = self.fit(fits, scale, **here)
        took = {"seconds": (time.perf_counter() - begun) / len(fits), "device": self.device}
        return [
            new_record(
                self.name, c, [seed], scale=scale, **took | {"data": self.facts(c)} | content
            )
            for (c, seed), content in zip(fits, contents, strict=True)
        ]

    def _missing(self, fit: Setting, scale: str, folder: Any) -> Setting | None:
        """Return what is still to be fitted: all of it, its missing arms, or nothing."""
        (configuration, seed), stored = fit, self._stored(fit, scale, folder)
        if stored is None:
            return fit
        lacking = _lacking(configuration.get("arms", ()), stored)
        return (configuration | {"arms": lacking}, seed) if lacking else None

    def _stored(self, fit: Setting, scale: str, folder: Any) -> dict[str, Any] | None:
        """Return the record of a fit; a smoke record counts only where this very code made it."""
        found = find_record(self.name, fit[0], [fit[1]], scale, self.facts(fit[0]), folder)
        old = found is not None and scale == "smoke" and found["source"] != source_hash()
        return None if old else found


def _lacking(asked: Iterable[str], record: dict) -> list[str]:
    """Return the arms that a record of a study whose records grow does not have."""
    arms = record.get("arms")
    return [] if arms is None else [name for name in asked if name not in arms]


def find(name: str) -> Study:
    """Return a study by its name.

    Raises
    ------
    ParameterError
        There is none of that name that can be run.
    """
    runs = [study for study, entry in STUDIES.items() if "study" in entry]
    if name not in runs:
        raise ParameterError(
            f"study {name!r} has no grid of fits; there are {', '.join(sorted(runs))}."
        )
    return imported(name, STUDIES[name]["study"])


def replications(
    replicate: Callable, configuration: dict, seed: int, workers: int = 1
) -> dict[str, list]:
    """Return columns of a Monte Carlo study: ``replicate(configuration, stream)`` gives a row from
    its own stream.
    """
    streams = np.random.SeedSequence(seed).spawn(configuration["replications"])
    rows = Parallel(workers)(delayed(replicate)(configuration, stream) for stream in streams)
    return {name: [row[name] for row in rows] for name in rows[0]}


def fitted(estimator: Any, outputs: Any, y: Any) -> Any:
    """Return an estimator, fitted; what it warns of (not converged, near singular) is expected in a
    Monte Carlo study, and recorded.
    """
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return estimator.fit(outputs, y)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Matrices and networks so small that several threads only wait for each other."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _in_workers(make: Callable, tasks: list[tuple]) -> list[str]:
    """Make each task in a process of its own; joblib's workers stay, with all that they have
    compiled.
    """
    import torch

    work = delayed(_in_worker)
    # torch's own number is what the user's OMP_NUM_THREADS says, where it says anything
    threads = min(torch.get_num_threads(), max(1, granted_cores() // len(tasks)))
    told = Parallel(n_jobs=len(tasks), batch_size=1)(work(make, task, threads) for task in tasks)
    return [f"{task[2]}, {line}" for task, lines in zip(tasks, told, strict=True) for line in lines]


def _in_worker(make: Callable, task: tuple, threads: int) -> list[str]:
    import torch

    torch.set_num_threads(threads)
    if str(task[2]).startswith("cuda"):
        torch.cuda.set_device(task[2])
    return make(*task)


def _accelerators() -> tuple[str | None, ...]:
    import torch

    return tuple(f"cuda:{k}" for k in range(torch.cuda.device_count())) or (None,)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
