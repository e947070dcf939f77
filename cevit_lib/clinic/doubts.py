"""What a table's values make one doubt: codes taken for numbers, slips, labels that hang together,
responses of which nothing is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pandas as pd

from cevit_lib.datasets import PairedEyes
from cevit_lib.datasets.cells import Problem
from cevit_lib.datasets.layout import Layout
from cevit_lib.datasets.table import Arranged

#: Numbers that often stand for "not observed": -1, 9, 99, 99.9, 9.99, 999.9 ...
CODES = {-1.0} | {
    sign * int(digit * length) / 10**places
    for sign in (1, -1)
    for digit in "789"
    for length in (1, 2, 3, 4, 5)
    for places in range(max(1, length - 1))
}
#: Words in the name of a measure of an eye: what it is, its lowest and highest value, the unit.
PLAUSIBLE = [
    ({"al", "axl", "axial"}, "axial length", 15, 40, "mm"),
    ({"se", "seq", "mse", "sph", "spherical", "refraction"}, "refraction", -40, 30, "D"),
]
NESTED = "nested labels get some probability in combinations that cannot be; keep one of them"
ENOUGH = 10  # observations from which something can be said


def doubts(arranged: Arranged) -> Iterator[Problem]:
    """Yield what the values of a table make one doubt; errors where there is no other reading."""
    layout = arranged.layout
    for names, column in _columns(layout).items():
        if column not in arranged.numbers or column not in arranged.cells.frame:
            continue
        values = arranged.numbers[column].dropna()
        declared = any(name in layout.limits for name in names)
        words = {word for name in names for word in re.split(r"[^a-z]+", name.casefold())}
        known = [each[1:] for each in PLAUSIBLE if words & each[0] and layout.organ == "eye"]
        plausible = () if declared or not known else known[0]
        texts = arranged.cells.frame[column].reindex(values.index)
        yield from _codes(values, texts, column, plausible, declared)
        if not declared:
            yield from _slips(values, column, plausible)
    yield from _rules(layout)
    yield from _hanging(arranged.data, layout)


def nothing_left(data: PairedEyes, layout: Layout) -> Iterator[Problem]:
    """Yield which responses, classes or domains nobody is left with: nothing can be fitted then."""
    y, organ = data.y.numpy(), layout.organ
    of = np.array([layout.eye_of(name) for name in data.responses])
    told = {eye: np.isfinite(y[:, of == eye]).any(1) for eye in data.domains if (of == eye).any()}
    empty = [eye for eye, there in told.items() if not there.any()]
    if empty:
        other = next(eye for eye in data.domains if eye != empty[0])
        yield Problem(
            f"no response of {empty[0]} is left, only of {other}: the model is for pairs, and a "
            f"table of one {organ} a patient tells nothing about both; add the rows, columns "
            f"or photographs of {empty[0]}, or correct 'eye', 'laterality' or 'eyes' in the layout"
        )
    elif len(told) == 2 and not np.logical_and(*told.values()).any():
        yield Problem(
            f"no patient has responses of both {organ}s ({', '.join(data.domains)}): nothing tells "
            "how they hang together; have the two rows of a patient one id?"
        )
    columns = {
        f"response {name!r}": y[:, k] for k, name in enumerate(data.responses) if of[k] not in empty
    }
    for k, name in enumerate(data.covariate_names):
        columns[f"covariate {name!r}"] = data.covariates[:, :, k].numpy()
    for what, column in columns.items():
        kinds = np.unique(column[np.isfinite(column)])
        if len(kinds) < 2:
            seen = f"is {kinds[0]:g} wherever it is observed" if len(kinds) else "is never observed"
            yield Problem(
                f"{what} {seen}: there is nothing to learn; fill its column, correct its rule, or "
                "take it out of the layout"
            )


def _columns(layout: Layout) -> dict[tuple[str, ...], str]:
    """Return the columns of numbers with the responses that are read from them."""
    columns: dict[str, list[str]] = {}
    for name, text in (layout.continuous | layout.binary | layout.covariates).items():
        for eye in layout.domains:
            rule = layout.criterion(text, eye)
            compared = rule.comparison and not (rule.of_text or rule.zeros)
            if compared or not (rule.comparison or name in layout.binary):
                columns.setdefault(rule.column, []).append(name)
    return {(*dict.fromkeys(names), column): column for column, names in columns.items()}


def _codes(
    values: pd.Series, texts: pd.Series, column: str, plausible: tuple, declared: bool
) -> Iterator[Problem]:
    """Yield the numbers that may be codes for "not observed": beyond what is plausible or all
    others, which is an error, or by their number or writing unlike their neighbours.
    """
    others = values[~values.isin(CODES)]
    low, high, half = others.min(), others.max(), (others.max() - others.min()) / 2
    pointed, enough = texts.str.contains(r"[.,]\d", regex=True), len(others) > ENOUGH
    for code in sorted(set(values) & CODES):
        here = values == code
        count, near = int(here.sum()), int((abs(others - code) <= 1).sum())
        beyond = enough and (low >= 0 > code or not low - half <= code <= high + half)
        if plausible:
            beyond = not plausible[1] <= code <= plausible[2]
        odd = pointed[others.index].mean() > 0.97 and not pointed[here].any()
        if beyond or (enough and (odd or (count > 1 and count > 3 * near))):
            beside = f" beside {low:g} to {high:g}" if len(others) else ""
            text = (
                f"{code:g} stands in {count} cells{beside}: a code for not observed? Declare it in "
                f"the layout by 'missing: [{code:g}]'; if it is a measurement, say so by 'limits'"
            )
            line = int(values.index[here][0])
            yield Problem(text, line, column, error=bool(beyond) and not declared)


def _slips(values: pd.Series, column: str, plausible: tuple) -> Iterator[Problem]:
    """Yield the numbers that no eye has, and those that a shifted decimal point explains."""
    values = values[~values.isin(CODES)]
    if plausible:
        what, low, high, unit = plausible
        for line, value in values[(values < low) | (values > high)].items():
            text = (
                f"{value:g} is no plausible {what} ({low} to {high} {unit}): a slip of the "
                "decimal point or another unit? Correct it, or declare 'limits' in the layout"
            )
            yield Problem(text, line, column)
        return
    usual = values.median()
    spread = (values - usual).abs().median()
    if len(values) > ENOUGH and 0 < spread < abs(usual) / 4:
        ratio = values / usual
        usually = ratio[ratio.between(0.125, 8)]
        alone = (ratio < usually.min() / 3) | (ratio > usually.max() * 3)  # no tail leads there
        for line, value in values[alone].items():
            text = f"{value:g} beside a median of {usual:g}: a slip of the decimal point?"
            yield Problem(text, line, column, error=False)


def _rules(layout: Layout) -> Iterator[Problem]:
    """Yield labels that follow, in part at least, from another response of the same column."""
    eye = layout.domains[0]
    read = {
        name: layout.criterion(text, eye).column
        for name, text in (layout.continuous | layout.binary).items()
    }
    for one, two in combinations(read, 2):
        if read[one] == read[two] and two not in layout.continuous:
            text = f"{one!r} and {two!r} stand on one column {read[one]!r}: what one makes certain "
            yield Problem(f"{text}of the other no copula can say; keep one of them", error=False)


def _hanging(data: PairedEyes, layout: Layout) -> Iterator[Problem]:
    """Yield responses that are copied to both, and labels one of which is 1 only where another
    is.
    """
    y = data.y.numpy()
    places = {name: k for k, name in enumerate(data.responses)}
    for name in layout.continuous | layout.binary:
        if name in layout.patient_level:
            continue
        pairs = y[:, [places[f"{name}_{eye}"] for eye in data.domains]]
        left, right = pairs[np.isfinite(pairs).all(1)].T
        same, share = int((left == right).sum()), 1 if name in layout.binary else 0.5
        rare = min(np.sum(left == 1), np.sum(left == 0)) if share == 1 else ENOUGH
        if len(left) >= ENOUGH and rare >= 3 and same >= len(left) * share:
            text = (
                f"{name!r} is the same in both {layout.organ}s of {same} of {len(left)} patients: "
                "was one value copied to both? A response of the patient belongs under "
                "'patient_level'"
            )
            yield Problem(text, error=False)
    for one, two in combinations(data.responses[data.continuous :], 2):
        a, b = y[:, places[one]], y[:, places[two]]
        if layout.eye_of(one) in ("", layout.eye_of(two)) or not layout.eye_of(two):
            yield from _nested((one, a), (two, b))


def _nested(one: tuple[str, np.ndarray], two: tuple[str, np.ndarray]) -> Iterator[Problem]:
    (first, a), (second, b) = one, two
    seen = np.isfinite(a) & np.isfinite(b)
    for inner, x, outer, z in ((first, a, second, b), (second, b, first, a)):
        ones, zeros = int((x[seen] == 1).sum()), int((z[seen] == 0).sum())
        never = not ((x == 1) & (z == 0))[seen].any()
        if never and ones * zeros >= 5 * seen.sum():
            text = f"{inner!r} is 1 in {ones} patients and {outer!r} then always too: {NESTED}"
            yield Problem(text, error=False)
