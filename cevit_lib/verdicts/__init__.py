"""Verdicts on the paper's claims, computed by rule from records and printed numbers; see ``judge.py``."""

from cevit_lib.verdicts.claims import CLAIMS
from cevit_lib.verdicts.judge import (
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
