"""The records behind the pages on data and fit: stored, made now at full size, or one small live
fold.
"""

import argparse
from typing import Any, Literal

from cevit_lib.clinic import (
    configuration_of,
    data_configuration,
    fit_fold,
    load_data,
    run_fit,
)
from cevit_lib.clinic.options import add_fit_arguments
from cevit_lib.errors import ProvenanceError
from cevit_lib.records import load_records

SMOKE = {
    "synthetic": ["--n", "600", "--epochs", "8", "--copula-epochs", "3", "--fold", "1"],
    "grape": [
        "--size",
        "24",
        "--epochs",
        "4",
        "--copula-epochs",
        "2",
        "--estimate-on",
        "train",
        "--fold",
        "1",
    ],
}


def options_of(data: str, seed: int, *more: str) -> argparse.Namespace:
    """Return what ``cevit fit --data DATA --seed SEED ...`` would be given."""
    parser = argparse.ArgumentParser()
    add_fit_arguments(parser)
    return parser.parse_args(["--data", data, "--seed", str(seed), *more])


def records_of(data: Literal["synthetic", "grape"], scale: str, seed: int) -> list[dict[str, Any]]:
    """Return one record a fold of the default fit of a data set, in the order of the folds.

    Parameters
    ----------
    data : {"synthetic", "grape"}
        Data set.
    scale : {"stored", "smoke", "paper"}
        ``"stored"`` reads all folds from ``results/``; ``"paper"`` first fits those that are
        missing; ``"smoke"`` fits one fold of a tiny version now and stores nothing.
    seed : int
        Root seed.

    Raises
    ------
    ProvenanceError
        A fold is missing; the message gives the command that makes it.
    """
    if scale == "smoke":
        options = options_of(data, seed, "--scale", "smoke", *SMOKE[data])
        loaded = load_data(data_configuration(options))
        return [fit_fold(configuration_of(options, 1), seed, loaded, "smoke")[0]]
    options = options_of(data, seed)
    if scale == "paper" and run_fit(options):
        raise ProvenanceError(f"a fold of {data!r} failed; its message stands above.")
    wanted = {key: value for key, value in configuration_of(options, 1).items() if key != "fold"}
    try:
        found = [
            r for r in load_records(f"fit-{data}", configuration=wanted) if r["seeds"] == [seed]
        ]
    except ProvenanceError as error:
        raise ProvenanceError(
            f"{error} (the command: cevit fit --data {data} --seed {seed})"
        ) from None
    if len(found) != options.folds:
        raise ProvenanceError(
            f"{len(found)} of {options.folds} folds of {data!r} have a record with seed {seed}; "
            f"make them with: cevit fit --data {data} --seed {seed}"
        )
    return sorted(found, key=lambda record: record["configuration"]["fold"])
