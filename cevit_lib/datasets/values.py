"""The values of a table's cells: numbers, labels by rules, and what each label was made from."""

import functools
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from cevit_lib.datasets.cells import Problem
from cevit_lib.datasets.layout import Layout
from cevit_lib.datasets.rules import NUMBER, OTHER_FORMS, Criterion, folded
from cevit_lib.edge import nearest

LISTED, LISTED_TEXTS = 12, 60  # values of a label that are listed one by one
RESULTS = {1.0: "1", 0.0: "0"}


def counted(texts) -> str:
    """Return values with their counts, the most frequent ones first."""
    found = Counter(texts).most_common()
    more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
    return ", ".join(f"{text!r} ({count})" for text, count in found[:LISTED]) + more


@dataclass(eq=False)
class Values:
    """Reads the responses of everybody; what is wrong goes to ``problems`` and is not observed.

    Attributes
    ----------
    frame : pandas.DataFrame
        The rows that are used, as text.
    lines : pandas.DataFrame
        Line of each row of the data (rows) and eye (columns), ``NaN`` where there is none.
    layout : Layout
    mark : str
        The decimal mark.
    problems : list of Problem
    labels : dict
        Filled while reading: name of a label to the texts that it was made from, with results.
    numbers : dict
        Filled while reading: column to its numbers, by line, as far as they are numbers.
    """

    frame: pd.DataFrame
    lines: pd.DataFrame
    layout: Layout
    mark: str
    problems: list[Problem]
    labels: dict[str, Counter] = field(default_factory=dict)
    numbers: dict[str, pd.Series] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # each column once, so that a wrong cell is told once
        self._numbers = functools.cache(self._numbers)
        self._values_of = functools.cache(self._values_of)
        self._absent = functools.cache(self.layout.is_missing)

    def read(self, name: str, text: str | dict[str, str], eye: str) -> np.ndarray:
        """Return a response or a covariate of one eye of everybody."""
        criterion, lines = self.layout.criterion(text, eye), self.lines[eye]
        values = self._values_of(name, criterion)
        if name in self.layout.binary and criterion.column in self.frame:
            texts = self._texts(criterion.column).reindex(lines.dropna())
            results = values.reindex(texts.index).map(RESULTS.get)
            results = results.where(results.notna(), "not observed")
            self.labels.setdefault(name, Counter()).update(zip(texts, results, strict=True))
        return values.reindex(lines).to_numpy()

    def patient(self, name: str, text: str | dict[str, str]) -> np.ndarray:
        """Return a response of the patient, on which the rows of both eyes must agree."""
        left, right = (self.read(name, text, eye) for eye in self.layout.domains)
        column = self.layout.criterion(text, self.layout.domains[0]).column
        differ = np.isfinite(left) & np.isfinite(right) & (left != right)
        for one, two in np.sort(self.lines.to_numpy()[differ]).astype(int).tolist():
            said = (
                f"the patient's rows (lines {one} and {two}) disagree on {name!r}; correct one, or "
                "take it from 'patient_level'"
            )
            self.problems.append(Problem(said, two, column))
        return np.where(np.isnan(left), right, left)

    def _texts(self, column: str) -> pd.Series:
        empty = pd.Series("", self.frame.index, dtype=object)  # a column that need not be there
        return self.frame.get(column, empty)

    def _without(self, values: pd.Series, wrong: pd.Series, column: str, said: str) -> pd.Series:
        for line, text in self._texts(column)[wrong].items():
            self.problems.append(Problem(f"{text!r} {said}", line, column))
        return values.mask(wrong)

    def _numbers(self, column: str, said: str) -> pd.Series:
        texts = self._texts(column)
        written = texts.str.replace("−", "-")
        if self.mark == ",":
            # the other mark is left as something that is no number: "1.234,5" is not 1.2345
            written = written.str.replace(".", "?").str.replace(",", ".")
        absent = (texts.map(self._absent) | written.map(self._absent)).astype(bool)
        wrong = ~absent & ~written.str.fullmatch(NUMBER.pattern).astype(bool)
        values = self._without(written.mask(absent), wrong, column, said).astype(float)
        self.numbers[column] = values
        return values

    def _values_of(self, name: str, criterion: Criterion) -> pd.Series:
        column, binary = criterion.column, name in self.layout.binary
        if criterion.of_text:
            texts = self._texts(column)
            values = criterion.holds(texts).mask(texts.map(self._absent).astype(bool))
            if name in self.layout.covariates:
                self._unheard(criterion, texts[values.isna()])
            return values
        said = "is no number; correct it, or leave the cell empty for not observed"
        if binary and not criterion.comparison:
            said += f"; of words make a rule, such as '{name}: {column} == yes'"
        values = self._numbers(column, said)
        low, high = self.layout.limits.get(name, (-np.inf, np.inf))
        outside = (values < float(low)) | (values > float(high))
        said = f"is outside the limits {low} to {high} of {name!r}"
        values = self._without(values, outside, column, said)
        if criterion.comparison:
            return criterion.holds(values).mask(values.isna())
        odd = values.notna() & ~values.isin([0, 1]) & binary
        said = "is no binary response; write 0 or 1, or a rule in the layout"
        return self._without(values, odd, column, said)

    def _unheard(self, criterion: Criterion, texts: pd.Series) -> None:
        """Tell once a column which words of a covariate are none of its categories."""
        strange = texts[~texts.map(self._absent).astype(bool)]
        known = ", ".join(sorted((*criterion.words, *criterion.zeros)))
        said = f"{counted(strange)}: none of the categories {known}, so not observed"
        problem = Problem(said, None, criterion.column, error=False)
        if len(strange) and problem not in self.problems:
            self.problems.append(problem)

    def told(self) -> dict[str, str]:
        """Return for each label what it was made from: every value, its count and its result."""
        rules = {
            name: self.layout.criterion(self.layout.binary[name], self.layout.domains[0])
            for name in self.labels
        }
        return {
            name: _listing(found, LISTED_TEXTS if rules[name].of_text else LISTED)
            for name, found in self.labels.items()
            if found
        }

    def doubts(self, error: bool) -> list[Problem]:
        """Return what makes one doubt a rule on text: words never found, text that it never names.

        A rule none of whose words is found is an error where ``error`` says so.
        """
        return [
            problem
            for name, found in self.labels.items()
            for problem in self._doubts_of(name, found, error)
        ]

    def _doubts_of(self, name: str, found: Counter, error: bool) -> list[Problem]:
        text = self.layout.binary[name]
        rule = self.layout.criterion(text, self.layout.domains[0])
        seen = Counter()
        for (cell, _), count in found.items():
            seen[cell] += 0 if self.layout.is_missing(cell) else count
        there = [cell for cell, count in seen.items() if count]
        if not rule.of_text or not there:
            return []
        never = [word for word in rule.words if not any(rule.finds(word, cell) for cell in there)]
        holds = counted(seen.elements())
        said = f"rule {text!r} of {name!r}"
        if len(never) == len(rule.words):
            told = f"{said} fits none of {sum(seen.values())} cells{nearest(never[0], there)}"
            return [Problem(f"{told}; the column holds {holds}: {OTHER_FORMS}", error=error)]
        doubts = [f"{said}: {word!r} is never found{nearest(word, there)}" for word in never]
        others = {cell: seen[cell] for cell, result in found if result in ("0", "1")}
        others = {cell: count for cell, count in others.items() if not rule.names(cell)}
        if len({folded(cell) for cell in others}) > 1 and not rule.zeros:
            others = counted(Counter(others).elements())
            doubts.append(f"{said} judges what it does not name: {others}; {OTHER_FORMS}")
        return [Problem(doubt, error=False) for doubt in doubts]


def _listing(found: Counter, most: int) -> str:
    if len(found) <= most:
        parts = [f"{text!r} {count} -> {result}" for (text, result), count in found.most_common()]
        return "; ".join(parts)
    groups: dict[str, Counter] = {}
    for (text, result), count in found.items():
        groups.setdefault(result, Counter())[text] += count
    parts = [f"{seen.total()}{_range(seen)} -> {result}" for result, seen in sorted(groups.items())]
    return f"{len(found)} values: " + "; ".join(parts)


def _range(texts: Counter) -> str:
    """Return between which numbers texts lie, where they are numbers."""
    plain = [text.replace("−", "-").replace(",", ".") for text in texts]
    numbers = [float(text) for text in plain if NUMBER.fullmatch(text)]
    return f" ({min(numbers):g} to {max(numbers):g})" if numbers else ""
