"""Splits by patient: both eyes, and every visit, of one patient stay on one side."""

from dataclasses import dataclass

import numpy as np

from cevit_lib.datasets.paired import PairedEyes
from cevit_lib.errors import DataError


@dataclass(frozen=True)
class Split:
    """One division of the rows of a data set.

    Attributes
    ----------
    train, test : numpy.ndarray
        Row numbers, sorted; disjoint in rows and in patients.
    """

    train: np.ndarray
    test: np.ndarray


def split_by_patient(
    data: PairedEyes,
    folds: int,
    rng: np.random.Generator,
    *,
    require_classes: bool = True,
) -> list[Split]:
    """Divide the patients into ``folds`` test sets of equal size (within one).

    Patients of one joint binary pattern are shuffled and dealt to the folds in turn, going on
    where the pattern before stopped: sizes and shares of every pattern then differ by at most one
    patient.

    Parameters
    ----------
    data : PairedEyes
        Rows with the same id belong to one patient and are never separated.
    folds : int
        Number of test sets, 2 or more.
    rng : numpy.random.Generator
        Source of the shuffle.
    require_classes : bool
        Refuse a division with a side on which some binary response has only one class.

    Returns
    -------
    list of Split
        One for each fold; every patient is tested once.

    Raises
    ------
    DataError
        Too few patients, or a side without a class (the message gives the counts).
    """
    stratum, owner = _patients(data)
    if not 2 <= folds <= len(stratum):
        raise DataError(
            f"{folds} folds of {len(stratum)} patients: give between 2 and the number of patients."
        )
    order = _shuffled(stratum, rng)
    fold_of = np.empty(len(stratum), dtype=int)
    fold_of[order] = np.arange(len(stratum)) % folds
    fold_of = rng.permutation(folds)[fold_of]
    splits = [_split(data, fold_of[owner] == k) for k in range(folds)]
    for k, split in enumerate(splits if require_classes else (), 1):
        _require_classes(data, split.test, f"test part of fold {k} of {folds}")
        _require_classes(data, split.train, f"training part of fold {k} of {folds}")
    return splits


def hold_out(data: PairedEyes, share: float, rng: np.random.Generator) -> Split:
    """Set aside about ``share`` of the patients as ``test``, stratified; a class may be missing
    there.

    Raises
    ------
    DataError
        The share leaves no patient on one of the sides.
    """
    stratum, owner = _patients(data)
    count = round(share * len(stratum))
    if not 0 < count < len(stratum):
        raise DataError(
            f"a share of {share} of {len(stratum)} patients leaves one side empty; "
            "give another share between 0 and 1, or more data."
        )
    # Evenly spaced places in the list sorted by pattern: every pattern gives its share.
    order = _shuffled(stratum, rng)
    places = (np.arange(count) + rng.random()) * len(stratum) / count
    return _split(data, np.isin(owner, order[np.floor(places).astype(int)]))


def assert_disjoint(data: PairedEyes, split: Split) -> None:
    """Stop when a patient stands on both sides of a split.

    Raises
    ------
    DataError
        Names up to five such patients.
    """
    names = np.asarray(data.ids)
    both = sorted(set(names[split.train]) & set(names[split.test]))
    if both:
        raise DataError(
            f"{len(both)} patients stand in training and in test data, among them "
            f"{', '.join(both[:5])}."
        )


def _patients(data: PairedEyes) -> tuple[np.ndarray, np.ndarray]:
    """Return the pattern of each patient, and of each row the number of its patient."""
    patients, owner = np.unique(np.asarray(data.ids), return_inverse=True)
    stratum = np.zeros(len(patients), dtype=int)
    np.maximum.at(stratum, owner, data.strata())
    return stratum, owner


def _shuffled(stratum: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the patients sorted by pattern, in random order within each."""
    order = rng.permutation(len(stratum))
    return order[np.argsort(stratum[order], kind="stable")]


def _split(data: PairedEyes, tested: np.ndarray) -> Split:
    split = Split(train=np.flatnonzero(~tested), test=np.flatnonzero(tested))
    assert_disjoint(data, split)
    return split


def _require_classes(data: PairedEyes, rows: np.ndarray, where: str) -> None:
    for k, values in enumerate(data.binary[rows].T):
        zeros, ones = int((values == 0).sum()), int((values == 1).sum())
        if zeros == 0 or ones == 0:
            name = data.responses[data.continuous + k]
            raise DataError(
                f"{where}: response {name!r} has {zeros} zeros and {ones} ones; "
                "use fewer folds, another seed or another rule."
            )
