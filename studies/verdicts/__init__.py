"""Verdicts on the paper's claims, computed by rule from records and printed numbers; see
``judge.py``.
"""

# these enter the claims, in the paper's order
from studies.verdicts import model, overfitting, lemmas, simulation, runs, later  # noqa: F401, I001
from studies.verdicts.judge import (
    CLAIMS,
    FALSE,
    IN_PART,
    MISPRINT,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    UNTESTABLE,
    WORDS,
    Claim,
    Evidence,
    Verdict,
    count_words,
    judge,
    judge_all,
)
from studies.verdicts.table import MovedTable, VerdictTable, counts_bar

__all__ = [
    "CLAIMS",
    "FALSE",
    "IN_PART",
    "MISPRINT",
    "MovedTable",
    "NOT_REPRODUCED",
    "NOT_RUN",
    "REPRODUCED",
    "UNTESTABLE",
    "WORDS",
    "Claim",
    "Evidence",
    "Verdict",
    "VerdictTable",
    "count_words",
    "counts_bar",
    "judge",
    "judge_all",
]
