"""Verdicts on the paper's claims: each is a function of named records and of the paper's printed
numbers.

A verdict is never typed. ``judge(claim)`` reads the records that the claim names; where one of
those studies has no record the verdict is "not run yet", where the claim is about images that are
not public it is "cannot be tested here", and otherwise the claim's rule looks at the numbers. A
claim, its place, its rule in words with its threshold, the repairs that were tried and the rule
itself stand together, in ``model.py``, ``overfitting.py``, ``lemmas.py``, ``simulation.py`` and
``runs.py``, in the paper's order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cevit_lib.records import load_records, paper_numbers
from cevit_lib.records.store import record_path

REPRODUCED = "reproduced"
IN_PART = "reproduced in part"
NOT_REPRODUCED = "not reproduced"
MISPRINT = "misprint: holds once corrected"
FALSE = "false as stated"
UNTESTABLE = "cannot be tested here"
NOT_RUN = "not run yet"

#: The words of a verdict and what each needs.
WORDS = {
    REPRODUCED: "Our computation meets the rule, under the conditions that the paper states.",
    IN_PART: "The rule holds for a part of what is claimed, or under a condition that the paper "
    "does not state; the line names it.",
    NOT_REPRODUCED: "What is claimed was computed, and does not meet the rule.",
    MISPRINT: "The print fails when taken literally; with a sign, symbol or term put right, as the "
    "errata show, the rule holds.",
    FALSE: "A counter-example satisfies everything that the statement assumes, and every "
    "charitable repair that was tried fails as well; the line says which were tried.",
    UNTESTABLE: "It is about images or machines that are not at hand.",
    NOT_RUN: "There is no record; this is no judgement.",
}

TRUE_R12, TRUE_R34 = 0.72, 0.569  # of the printed correlation matrix


class MissingRecordError(LookupError):
    """A rule asks for a record that is not there, although its study has others."""


@dataclass
class Evidence:
    """Records and printed numbers, read once and on demand.

    Parameters
    ----------
    folder : path, optional
        Where the records are; default ``results/``.
    """

    folder: Path | None = None
    _cache: dict = field(default_factory=dict)

    def has(self, study: str) -> bool:
        """Whether the study has any record."""
        return any(record_path(study, "any", "paper", self.folder).parent.glob("*.json"))

    def records(self, study: str, **configuration) -> list[dict]:
        """Records of a study that hold the given configuration values; they must be fit for
        publication.
        """
        if study not in self._cache:
            self._cache[study] = load_records(study, folder=self.folder)
        return [
            r
            for r in self._cache[study]
            if all(r["configuration"].get(k) == v for k, v in configuration.items())
        ]

    def one(self, study: str, **configuration) -> dict:
        """The only such record.

        Raises
        ------
        MissingRecordError
            There is none; the verdict is then "not run yet".
        LookupError
            There are several; the message says which configuration was asked for.
        """
        found = self.records(study, **configuration)
        if len(found) != 1:
            kind = LookupError if found else MissingRecordError
            raise kind(f"{len(found) or 'no'} record of {study} with {configuration}")
        return found[0]

    def mean(self, study: str, name: str, **configuration) -> tuple[float, float]:
        """Mean and standard error of a column of one Monte Carlo record."""
        entry = self.one(study, **configuration)["metrics"][name]
        return entry["mean"], entry["se"] or 0.0

    def part(self, name: str) -> dict:
        """Metrics of one part of the formula checks."""
        return self.one("formula-checks", part=name)["metrics"]

    def printed(self, name: str) -> dict:
        """The paper's numbers, ``results/paper/<name>.json``."""
        return paper_numbers(name)


@dataclass(frozen=True)
class Verdict:
    """A word of ``WORDS`` and the numbers that led to it.

    Attributes
    ----------
    word : str
        One of ``WORDS``.
    because : str
        The numbers, in words.
    repairs : tuple of str
        Charitable repairs of the statement that were tried, each with how it fails.

    Raises
    ------
    ValueError
        Another word, or "false as stated" without a repair that was tried.
    """

    word: str
    because: str
    repairs: tuple[str, ...] = ()

    def __post_init__(self):
        if self.word not in WORDS:
            raise ValueError(f"verdict {self.word!r} is none of: {'; '.join(WORDS)}")
        if self.word == FALSE and not self.repairs:
            raise ValueError(
                f"{FALSE!r} without a repair ({self.because}): try one that saves the statement, "
                "and say in `repairs` how it fails"
            )


@dataclass(frozen=True)
class Claim:
    """One claim of the paper.

    Attributes
    ----------
    key, place, text : str
        A stable key, where the paper says it, what it says.
    rule : str
        The rule in words.
    studies : tuple of str
        Studies whose records the rule reads; all must exist.
    decide : callable (Evidence) -> Verdict, or None for a claim about the private images
    evidence : str
        Page and anchor of the figure that shows it, or of the section where there is none.
    """

    key: str
    place: str
    text: str
    rule: str
    studies: tuple[str, ...]
    decide: Callable[[Evidence], Verdict] | None
    evidence: str = ""


CLAIMS: list[Claim] = []
"""All claims, in the paper's order: that in which the modules name them, and are imported."""


def claim(
    place: str, text: str, rule: str, studies: str | tuple[str, ...] = (), evidence: str = ""
) -> Callable:
    """Enter the claim that the decorated rule decides; arguments as for :class:`Claim`, whose key
    is its name.
    """
    studies = (studies,) if isinstance(studies, str) else studies

    def enter(decide: Callable[[Evidence], Verdict]) -> Callable[[Evidence], Verdict]:
        key = decide.__name__.replace("_", "-")
        CLAIMS.append(Claim(key, place, text, rule, studies, decide, evidence))
        return decide

    return enter


def private(key: str, place: str, text: str, evidence: str) -> None:
    """Enter a claim on the private images, which no rule decides; the ablation asks it of public
    eyes.
    """
    rule = "The claim is about the hospital's images, which are not public."
    CLAIMS.append(Claim(key, place, text, rule, (), None, evidence))


def judge(claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim."""
    if claim.decide is None:
        return Verdict(UNTESTABLE, "the images of Section 6 are not public")
    missing = [study for study in claim.studies if not evidence.has(study)]
    if missing:
        return Verdict(NOT_RUN, f"no record of {', '.join(missing)}")
    try:
        return claim.decide(evidence)
    except MissingRecordError as error:
        return Verdict(NOT_RUN, str(error))


def judge_all(claims, folder: Path | None = None) -> list[tuple[Claim, Verdict]]:
    """Judge every claim on the same evidence."""
    evidence = Evidence(folder)
    return [(claim, judge(claim, evidence)) for claim in claims]


def count_words(judged) -> dict[str, int]:
    """How many claims got each word, in the order of ``WORDS``."""
    return {word: sum(verdict.word == word for _, verdict in judged) for word in WORDS}
