"""Verdicts on the paper's claims, computed by rule from records and printed numbers; see ``judge.py``."""

from studies.verdicts.claims import CLAIMS
from studies.verdicts.judge import (
    FALSE,
    IN_PART,
    NOT_REPRODUCED,
    NOT_RUN,
    PRIVATE,
    REPRODUCED,
    WORDS,
    Claim,
    Evidence,
    Verdict,
    VerdictTable,
    count_words,
    judge,
    judge_all,
)

__all__ = [
    "CLAIMS",
    "FALSE",
    "IN_PART",
    "NOT_REPRODUCED",
    "NOT_RUN",
    "PRIVATE",
    "REPRODUCED",
    "WORDS",
    "Claim",
    "Evidence",
    "Verdict",
    "VerdictTable",
    "count_words",
    "judge",
    "judge_all",
]
