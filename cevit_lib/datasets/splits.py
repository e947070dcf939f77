"""Splits by patient: both eyes, and every visit, of one patient stay on one side, and no side lacks a class."""

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
    stratify: bool = True,
    require_classes: bool = True,
) -> list[Split]:
    """Divide the patients into ``folds`` test sets of equal size (within one), stratified by the joint binary pattern.

    Patients of one pattern are shuffled and dealt to the folds in turn, going on where the pattern before stopped:
    sizes and shares of every pattern then differ by at most one patient.

    Parameters
    ----------
    data : PairedEyes
        Rows with the same id belong to one patient and are never separated.
    folds : int
        Number of test sets, 2 or more.
    rng : numpy.random.Generator
        Source of the shuffle.
    stratify : bool
        Deal pattern by pattern; otherwise all patients as one pattern.
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
    patients, owner = np.unique(np.asarray(data.ids), return_inverse=True)
    if not 2 <= folds <= len(patients):
        raise DataError(
            f"{folds} folds of {len(patients)} patients: give between 2 and the number of patients."
        )
    fold_of = _deal(
        _stratum_of_patient(data, owner, len(patients)) if stratify else np.zeros(len(patients)),
        folds,
        rng,
    )
    splits = [
        Split(train=np.flatnonzero(fold_of[owner] != k), test=np.flatnonzero(fold_of[owner] == k))
        for k in range(folds)
    ]
    for k, split in enumerate(splits):
        assert_disjoint(data, split)
        if require_classes:
            _require_classes(data, split.test, f"test part of fold {k + 1} of {folds}")
            _require_classes(data, split.train, f"training part of fold {k + 1} of {folds}")
    return splits


def hold_out(data: PairedEyes, share: float, rng: np.random.Generator) -> Split:
    """Set aside about ``share`` of the patients as ``test``, stratified; a class may be missing there.

    Raises
    ------
    DataError
        The share leaves no patient on one of the sides.
    """
    if not 0 < share < 1:
        raise DataError(
            f"share {share} of the patients to hold out: give a number between 0 and 1."
        )
    patients, owner = np.unique(np.asarray(data.ids), return_inverse=True)
    count = round(share * len(patients))
    if count == 0 or count == len(patients):
        raise DataError(
            f"a share of {share} of {len(patients)} patients leaves one side empty; give another share or more data."
        )
    # Evenly spaced places in the list sorted by pattern: every pattern gives its share.
    stratum = _stratum_of_patient(data, owner, len(patients))
    order = rng.permutation(len(patients))
    order = order[np.argsort(stratum[order], kind="stable")]
    chosen = order[np.floor((np.arange(count) + rng.random()) * len(patients) / count).astype(int)]
    out = np.isin(owner, chosen)
    split = Split(train=np.flatnonzero(~out), test=np.flatnonzero(out))
    assert_disjoint(data, split)
    return split


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
            f"{len(both)} patients stand in training and in test data, among them {', '.join(both[:5])}."
        )


def _stratum_of_patient(data: PairedEyes, owner: np.ndarray, count: int) -> np.ndarray:
    stratum = np.zeros(count, dtype=int)
    np.maximum.at(stratum, owner, data.strata())
    return stratum


def _deal(stratum: np.ndarray, folds: int, rng: np.random.Generator) -> np.ndarray:
    order = rng.permutation(len(stratum))
    order = order[np.argsort(stratum[order], kind="stable")]
    fold_of = np.empty(len(stratum), dtype=int)
    fold_of[order] = np.arange(len(stratum)) % folds
    return rng.permutation(folds)[fold_of]


def _require_classes(data: PairedEyes, rows: np.ndarray, where: str) -> None:
    for k, values in enumerate(data.binary[rows].T):
        zeros, ones = int((values == 0).sum()), int((values == 1).sum())
        if zeros == 0 or ones == 0:
            name = data.responses[data.continuous + k]
            raise DataError(
                f"{where}: response {name!r} has {zeros} zeros and {ones} ones; "
                "use fewer folds, another seed or another rule."
            )
