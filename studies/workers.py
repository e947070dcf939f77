"""The fits of a study shared out over the devices of one machine, by joblib's persistent workers.

    python -m studies.workers --study simulation --devices cuda:0 cuda:1

Each worker is a process with one device. It takes its share of the fits that have no record and trains as many of them
side by side as the device holds (``studies.simulation.fits.run_study``). joblib's workers stay when their task is
done, with all that they have imported and compiled, and are used again by the next study of the same program. Beyond
one machine the same fits are jobs of an engine, one a job: see ``workflow/``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

from cevit_lib.errors import CevitError, ParameterError, TrainingError


def listing(study: str, scale: str = "paper", folder: Any = None) -> list[dict[str, Any]]:
    """Return one entry a fit of a study: its number, counted from 0, the id of its record, and whether that exists.

    Raises
    ------
    ParameterError
        There is no such study.
    """
    from cevit_lib.records import record_id
    from cevit_lib.records.store import record_path
    from studies.simulation.fits import STUDIES, grid

    if study not in STUDIES:
        raise ParameterError(
            f"study {study!r} has no grid of fits; there are {', '.join(sorted(STUDIES))}."
        )
    names = [
        record_id(study, configuration, [seed], scale) for configuration, seed in grid(study, scale)
    ]
    return [
        {"number": k, "id": name, "done": record_path(study, name, scale, folder).is_file()}
        for k, name in enumerate(names)
    ]


def run_number(
    study: str, number: int, scale: str = "paper", device: str | None = None, folder: Any = None
) -> dict:
    """Make one fit of a study, unless its record exists, and return its record.

    Raises
    ------
    ParameterError
        There is no such study, or it has fewer fits.
    """
    from studies.simulation.fits import run_study

    known = len(listing(study, scale, folder))
    if not 0 <= number < known:
        raise ParameterError(
            f"--number {number}: study {study!r} has fits 0 to {known - 1} at scale {scale!r}."
        )
    return run_study(study, scale, device=device, folder=folder, only=[number])[0]


class SideBySide:
    """A study of ``studies.simulation`` under the interface of ``studies.study.Study``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def listing(self, scale: str, folder: Any) -> list[dict[str, Any]]:
        """Return one entry a fit."""
        return listing(self.name, scale, folder)

    def run(self, scale: str, folder: Any, devices: Sequence, only: Sequence[int] = ()) -> None:
        """Make some fits of the grid on one device, or all on several."""
        for number in only:
            run_number(self.name, number, scale, devices[0], folder)
        if not only:
            run_on_devices(self.name, scale, [device or "cpu" for device in devices], folder=folder)


def run_on_devices(
    study: str,
    scale: str = "paper",
    devices: Sequence[str] = ("cpu",),
    *,
    workers_per_device: int = 1,
    at_once: int | None = None,
    folder: Any = None,
    report: Callable = print,
) -> list[dict]:
    """Fit what has no record yet, shared out over devices, and return the records of the whole study.

    Parameters
    ----------
    study, scale, folder, report
        As for ``studies.simulation.fits.run_study``.
    devices : sequence of str
        Such as ``("cuda:0", "cuda:1")``; ``("cpu", "cpu")`` are two processes on the processor.
    workers_per_device : int
        Processes that share a device; one is best where many fits are trained side by side in it.
    at_once : int, optional
        Most fits side by side in one worker; default 50 over ``workers_per_device``, on a CPU 1.

    Raises
    ------
    TrainingError
        Some fits failed: the message lists them. All others have their records; the next call tries those alone.
    """
    from joblib import Parallel, delayed

    from cevit_lib.records import find_record
    from studies.simulation.fits import grid

    missing = [entry["number"] for entry in listing(study, scale, folder) if not entry["done"]]
    places = [device for _ in range(workers_per_device) for device in devices]
    shares = deal(study, scale, missing, len(places))
    tasks = [(place, share) for place, share in zip(places, shares, strict=True) if share]
    report(
        f"{study}: {len(missing)} fits to make by {len(tasks)} workers on {', '.join(dict.fromkeys(places))}"
    )
    threads = max(1, (os.cpu_count() or 1) // len(places))
    done = Parallel(n_jobs=max(1, len(tasks)), backend="loky", batch_size=1)(
        delayed(_work)(
            study,
            scale,
            place,
            at_once or _side_by_side(place, workers_per_device),
            folder,
            share,
            threads,
        )
        for place, share in tasks
    )
    failures = [told for told in done if told]
    records = [
        find_record(study, c, [seed], scale, folder=folder) for c, seed in grid(study, scale)
    ]
    lacking = [str(k) for k, record in enumerate(records) if record is None]
    if lacking:
        raise TrainingError(
            f"{study}: {len(records) - len(lacking)} of {len(records)} fits have a record; without one are numbers "
            f"{', '.join(lacking)}. {' | '.join(failures)} The same call tries only these again."
        )
    return records


def deal(study: str, scale: str, missing: Sequence[int], hands: int) -> list[list[int]]:
    """Return a share of the missing fits for each worker, fits of one shape evenly: they take equally long."""
    from studies.simulation.fits import _shape, grid

    wanted = grid(study, scale)
    ordered = sorted(missing, key=lambda k: (_shape(wanted[k][0]), k))
    return [ordered[hand::hands] for hand in range(hands)]


def _side_by_side(device: str, workers: int) -> int:
    return 1 if device == "cpu" else max(1, 50 // workers)


def _work(study, scale, device, at_once, folder, share, threads) -> str | None:
    """Run in a worker: fit a share; return why it stopped, if it did."""
    import torch

    from studies.simulation.fits import run_study

    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    elif device == "cpu":
        torch.set_num_threads(threads)
    told = []
    for start in range(0, len(share), at_once):
        part = share[start : start + at_once]
        try:
            run_study(study, scale, device=device, at_once=at_once, folder=folder, only=part)
        except CevitError as error:  # the other parts do not depend on this one
            told.append(f"{device}, fits {', '.join(map(str, part))}: {error}")
    return " ".join(told) or None


def main(arguments: list[str] | None = None) -> int:
    """Entry of ``python -m studies.workers``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", nargs="+", default=["simulation"])
    parser.add_argument("--scale", choices=("paper", "smoke"), default="paper")
    parser.add_argument("--devices", nargs="+", default=["cpu"])
    parser.add_argument("--workers-per-device", type=int, default=1)
    parser.add_argument("--at-once", type=int, help="most fits side by side in one worker")
    parser.add_argument("--results", help="folder of the records")
    options = parser.parse_args(arguments)
    for study in options.study:
        run_on_devices(
            study,
            options.scale,
            options.devices,
            workers_per_device=options.workers_per_device,
            at_once=options.at_once,
            folder=options.results,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
