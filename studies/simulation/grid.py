"""The records of one study of the simulation: stored, fitted now at smoke size, or made where they are missing."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any, Literal

from cevit_lib.records import load_records, record_id
from cevit_lib.records.store import record_path


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
        return (
            f"{self.expected} folds"
            if self.complete
            else f"{len(self.records)} of {self.expected} folds"
        )

    @property
    def smoke(self) -> bool:
        return any(record["scale"] == "smoke" for record in self.records)


def study_records(
    study: str,
    scale: Literal["stored", "smoke", "paper"],
    folder: Any = None,
    required: bool = True,
) -> Grid:
    """Return a study's records: stored ones, a tiny grid fitted now, or the paper's grid with its gaps fitted now.

    Parameters
    ----------
    study : str
        Key of ``studies.simulation.fits.STUDIES``.
    scale : {"stored", "smoke", "paper"}
        ``"paper"`` uses every CUDA device that is there, and skips what has a record.
    folder : path, optional
        Where records are read and written (default ``results``; a smoke grid keeps none).
    required : bool
        Without it, a stored study that has no record yet is a grid of none, and whoever shows it says so.

    Raises
    ------
    ProvenanceError
        ``"stored"`` and no record that may be published; the message names the run that makes it.
    """
    from studies.simulation import fits as simulation

    if scale == "smoke":
        with tempfile.TemporaryDirectory() as scratch:
            made = simulation.run_study(
                study, "smoke", folder=scratch, report=lambda *_, **__: None
            )
        return Grid(study, made, len(made))
    wanted = [
        record_id(study, configuration, [seed], "paper")
        for configuration, seed in simulation.grid(study)
    ]
    if scale == "paper":
        return Grid(study, _fit_missing(study, folder), len(wanted))
    known = set(wanted)
    if not required and not any(record_path(study, "any", folder=folder).parent.glob("*.json")):
        return Grid(study, [], len(wanted))
    found = [record for record in load_records(study, folder=folder) if record["id"] in known]
    return Grid(study, found, len(wanted))


def _fit_missing(study: str, folder: Any) -> list[dict]:
    import torch

    from studies.simulation.fits import run_study
    from studies.workers import run_on_devices

    devices = [f"cuda:{k}" for k in range(torch.cuda.device_count())]
    if len(devices) > 1:
        return run_on_devices(study, "paper", devices, folder=folder)
    return run_study(study, "paper", folder=folder)
