"""The patients of the axial-length studies: PAPILA's table, or invented ones of its shape."""

import os

import numpy as np
import torch

from cevit_lib.datasets import PairedEyes, load_papila
from studies.axial_length.model import design_matrix

SIMULATION_SEED = 20261128


def simulated_table(
    rng: np.random.Generator, myopia: float | None = None, n: int = 244
) -> PairedEyes:
    """Return invented patients of the shape of PAPILA's table, for a reader who does not have it.

    Lengths and refractions are jointly normal given age and sex, with round numbers near those of
    adults' eyes; each response is missing with the frequency of the real table.
    """
    age, female = np.clip(rng.normal(61, 15, n), 20, 90).round(), rng.random(n) < 0.62
    design = design_matrix(np.column_stack([age, female]))
    coefficients = np.array(
        [[24.0, 24.0, -0.1, -0.1], [-0.15, -0.15, 0.4, 0.4], [-0.7, -0.7, 0.4, 0.4]]
    )
    correlation = np.array(
        [
            [1, 0.9, -0.5, -0.45],
            [0.9, 1, -0.45, -0.5],
            [-0.5, -0.45, 1, 0.75],
            [-0.45, -0.5, 0.75, 1],
        ]
    )
    errors = rng.standard_normal((n, 4)) @ np.linalg.cholesky(correlation).T
    y = (design @ coefficients + errors * [1.2, 1.2, 2.0, 2.0]).round(2)
    y[rng.random((n, 4)) < [0.02, 0.02, 0.06, 0.06]] = np.nan
    if myopia is not None:
        y[:, 2:] = np.where(np.isnan(y[:, 2:]), np.nan, y[:, 2:] <= myopia)
    kind = "SE" if myopia is None else "myopia"
    covariates = np.repeat(np.column_stack([age, female])[:, None], 2, 1).astype(float)
    return PairedEyes(
        None,
        torch.from_numpy(y),
        tuple(f"{k:03}" for k in range(n)),
        ("AL_OS", "AL_OD", f"{kind}_OS", f"{kind}_OD"),
        continuous=4 if myopia is None else 2,
        name="simulated",
        covariates=torch.from_numpy(covariates),
        covariate_names=("age", "female"),
        notes={"myopia_limit_D": myopia},
    )


def source_for(scale: str) -> str:
    """Return "papila", or "simulated" for a smoke run without the real table."""
    here = os.path.isfile(os.path.join(os.environ.get("CEVIT_DATA", ""), "papila", "clinical.csv"))
    return "papila" if here or scale != "smoke" else "simulated"


def load_table(source: str, myopia: float | None, missing: str = "drop") -> PairedEyes:
    """Return the real or the simulated patients; ``missing`` as in ``load_papila``."""
    if source == "papila":
        return load_papila(myopia=myopia, missing=missing)
    data = simulated_table(np.random.default_rng(SIMULATION_SEED), myopia)
    return data.subset(data.complete) if missing == "drop" else data


def design_of(data: PairedEyes) -> np.ndarray:
    """Return the design matrix; age and sex are the same for both eyes of a patient."""
    return design_matrix(data.covariates[:, 0].numpy())
