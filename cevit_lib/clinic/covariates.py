"""A layout as it is declared or guessed; a covariate's column of words becomes one rule a word, but
for the most frequent.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from cevit_lib.datasets.cells import read_cells
from cevit_lib.datasets.layout import Layout, guess_layout, read_layout
from cevit_lib.datasets.rules import NUMBER, UNKNOWN, folded
from cevit_lib.edge import read_mapping
from cevit_lib.errors import DataError

MOST_WORDS = 12


def declared_layout(table: Path, source: Path | None) -> dict[str, Any]:
    """Return the layout as plain values, without what is default and not written in the file."""
    layout = read_layout(source) if source else guess_layout(list(read_cells(table).frame))
    written = read_mapping(source) if source else {}
    plain = vars(Layout(patient=""))
    kept = {k: v for k, v in vars(layout).items() if v != plain[k] or k in written}
    listed = {k: list(value) if isinstance(value, tuple) else value for k, value in kept.items()}
    return with_categories(listed, table)


def with_categories(layout: dict[str, Any], table: Path) -> dict[str, Any]:
    """Return a layout whose covariates are numbers or rules: ``site: site`` with the words A, B, C
    in its column, A most often, is ``site B: site in [B] else [A, C]`` and likewise for C.

    Raises
    ------
    DataError
        A column holds more different words than a category has.
    """
    declared = layout.get("covariates") or {}
    if not declared:
        return layout
    read = read_layout(layout)
    cells = read_cells(table, read.encoding, read.separator, read.sheet)
    found: dict[str, Any] = {}
    for name, text in declared.items():
        words = _words(read, text, cells.frame)
        if len(words) == 1 or len(words) > MOST_WORDS:
            raise DataError(
                f"covariate {name!r}: its column holds {len(words)} different words "
                f"({', '.join(words[:3])}), where 2 to {MOST_WORDS} tell patients apart; give a "
                f"number, a rule such as '{text} == {words[0]}', or take it out of the layout."
            )
        found |= {f"{name} {word}": _rule(text, word, words) for word in words[1:]} or {name: text}
    return layout | {"covariates": found}


def _rule(text: str, word: str, words: list[str]) -> str:
    """Return the rule of one word; another one that comes later is not observed."""
    if any(mark in each for each in words for mark in ",[]"):
        return f"{text} == {word}"
    others = ", ".join(each for each in words if each != word)
    return f"{text} in [{word}] else [{others}]"


def _words(read: Any, text: Any, frame: pd.DataFrame) -> list[str]:
    """Return the words in a covariate's column, the most frequent first; none where it is a rule
    or holds numbers.
    """
    rules = {read.criterion(text, eye) for eye in read.domains}
    columns = {rule.column for rule in rules}
    if any(rule.comparison for rule in rules) or len(columns) > 1 or not columns <= set(frame):
        return []
    words = [folded(cell) for cell in frame[columns.pop()] if not read.is_missing(cell)]
    words = sorted(word for word in words if not UNKNOWN.fullmatch(word))
    if all(NUMBER.fullmatch(word.replace(",", ".").replace("−", "-")) for word in words):
        return []
    return [word for word, _ in Counter(words).most_common()]
