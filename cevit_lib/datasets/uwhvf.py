"""UWHVF: visual fields of both eyes over years, without photographs (Montesano et al., 2022)."""

import os
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch

from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.datasets.sheets import observed
from cevit_lib.errors import DataError
from cevit_lib.paths import data_folder

HOW_TO_GET = (
    "UWHVF is public: https://github.com/uw-biomedical-ml/uwhvf "
    "(described in https://doi.org/10.1167/tvst.11.1.1). 'cevit download uwhvf' fetches its three "
    "summary tables."
)
SERIES, SLOPES, P_VALUES = (
    f"{name}.csv" for name in ("Series_Summary", "Cluster_Slope_MTD", "Cluster_pvalue_MTD")
)
CLUSTERS = [f"Cluster_{k}" for k in range(1, 7)]
COVARIATES = {
    "age": "Baseline_Age",
    "years": "Follow_up_length",
    "tests": "N_fields",
    "first_MD": "Baseline_MTD",
}
NUMBERS = ["Slope_MTD", *COVARIATES.values()]
EYES = {"OS": "Left", "OD": "Right"}


def load_uwhvf(
    folder: str | os.PathLike | None = None,
    *,
    tests: int = 5,
    years: float = 2.0,
    p_value: float = 0.01,
    missing: Literal["drop", "keep"] = "drop",
) -> PairedEyes:
    """Load how the visual field of both eyes changed, of patients whose series are long enough.

    Continuous responses: slope of the mean deviation (dB a year). Binary responses: at least one of
    six clusters of the field falls, with p below ``p_value``; a trend of its own, for a label cut
    from the slope would be a function of it. Domain 1 is the left eye (OS). There are no
    photographs (``images`` is ``None``). Covariates of each eye: age at the first test (years,
    shifted by de-identification), length of the series (years), number of tests and mean deviation
    of the first test (dB), which is also a point of the slope's regression.

    Parameters
    ----------
    folder : path, optional
        Folder with the three summary tables; default ``CEVIT_DATA/uwhvf``.
    tests : int
        Fewest tests of a series that is used, 4 or more.
    years : float
        Shortest length of such a series.
    p_value : float
        Limit of the binary response.
    missing : {"drop", "keep"}
        ``"drop"`` keeps the patients with such a series of both eyes, ``"keep"`` also those with
        one, the other eye being ``NaN``.

    Returns
    -------
    PairedEyes
        942 patients by default, responses ``(slope_OS, slope_OD, falls_OS, falls_OD)`` with
        ``continuous=2``. ``notes["flow"]`` counts who left.

    Raises
    ------
    ParameterError
        ``missing`` is none of the words above.
    DataError
        A table is absent or incomplete, a column or a number is not there (as of series that are
        too short for a trend), or no patient is left; the message names it.
    """
    try:
        tables = _read_tables(data_folder("uwhvf", folder))
        eyes = tables["series"].copy()
        long = (eyes["N_fields"] >= tests) & (eyes["Follow_up_length"] >= years)
        holes = eyes.index[tables.isna().any(axis=1) & (long | eyes["Eye"].isna())]
        if len(holes):
            raise DataError(
                f"{len(holes)} eyes with a series that is long enough have no number in one of the "
                f"three tables, the first is {holes[0]!r}: a table is a part or was changed, or "
                "the series are too short for a trend (4 tests, half a year)."
            )
    except DataError as error:
        raise DataError(f"{error} {HOW_TO_GET}") from None
    falls = (tables["slope"] < 0) & (tables["p_value"] < p_value)
    eyes["falls"] = falls.any(axis=1).astype(float)
    eyes.loc[~long, ["Slope_MTD", "falls"]] = np.nan
    data = _paired(eyes)
    one = int((torch.isfinite(data.y).sum(1) == 2).sum())
    flow = {
        "eyes": len(eyes),
        "eyes with a shorter series": int((~long).sum()),
        "patients": len(data),
        "patients with such a series of one eye only": one,
    }
    limits = {"tests": tests, "years": years, "p_value": p_value}
    kept = observed(data, missing, flow, limits)
    if not len(kept):
        raise DataError(
            f"of {len(data)} patients none has {tests} tests over {years} years of both eyes, and "
            f"{one} have them of one eye; ask for shorter series, or for missing='keep'."
        )
    return kept


def _read_table(path: Path, texts: list[str], numbers: list[str]) -> pd.DataFrame:
    """Return some columns of a table, as text or as numbers; an empty number is NaN."""
    try:
        table = pd.read_csv(path, dtype=dict.fromkeys(texts, str))
        lacking = [name for name in texts + numbers if name not in table]
        if lacking:
            raise DataError(f"{path} lacks the column {lacking[0]!r}; it has {', '.join(table)}.")
        return table[texts + numbers].astype(dict.fromkeys(numbers, float))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {' '.join(str(error).split())}.") from None


def _read_tables(root: Path) -> pd.DataFrame:
    """Return one row an eye: its series, and slope and p-value of the six clusters."""
    series = _read_table(root / SERIES, ["PatID", "Eye"], NUMBERS)
    tables = [series.set_index(series["PatID"] + "_" + series["Eye"])]
    for name in (SLOPES, P_VALUES):
        tables.append(_read_table(root / name, ["Unnamed: 0"], CLUSTERS).set_index("Unnamed: 0"))
    if not all(table.index.is_unique for table in tables):
        raise DataError(f"{root}: an eye is twice in one table; fetch the three tables again.")
    return pd.concat(tables, axis=1, keys=["series", "slope", "p_value"])


def _paired(eyes: pd.DataFrame) -> PairedEyes:
    """Return one row a patient, in the tables' order; an eye that is not there is NaN."""
    ids = eyes["PatID"].drop_duplicates()
    sides = [eyes[eyes["Eye"] == side].set_index("PatID").reindex(ids) for side in EYES.values()]
    y = [side[name] for name in ("Slope_MTD", "falls") for side in sides]
    covariates = np.stack([side[list(COVARIATES.values())] for side in sides], axis=1)
    return PairedEyes(
        images=None,
        y=torch.tensor(np.column_stack(y)),
        ids=tuple(ids),
        responses=tuple(f"{name}_{eye}" for name in ("slope", "falls") for eye in EYES),
        continuous=2,
        name="uwhvf",
        covariates=torch.tensor(covariates),
        covariate_names=tuple(COVARIATES),
    )
