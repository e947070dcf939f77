"""A label by a rule: ``se <= -6``, ``sex == F``, ``dx in [glaucoma, POAG] else [normal]``."""

import operator
import re
import unicodedata
from dataclasses import dataclass

import numpy as np
import pandas as pd

from cevit_lib.errors import DataError

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
#: Text that says that nobody knows: it is no label, neither 1 nor 0.
UNKNOWN = re.compile(
    r".*\?.*|[\W_]*|#(n/a|value!|ref!|name\?|null!|div/0!|num!)|u/?k|unk|ukn|dk|n[./]?[adkrg]\.?"
    r"|tb[ad]|errors?|invalid|lost|blank|incomplete"
    r"|.*\b(un(grad|known|clear|sure|certain|determined|defined|read|assess|avail|classif|specified|decid"
    r"|interpret|evalu|able|record|tested|report|reliab)\w*"
    r"|in(determinate|conclus)\w*|equivocal|questionable|doubtful|don'?t know|lost to"
    r"|missing|pending|refused|declined|withdrawn|withheld|excluded|artefact|artifact"
    r"|(poor|bad|low|insufficient|inadequate) (quality|image|view|photo)\w*"
    r"|no (image|photo|picture|view|data|info|record|answer|exam|test|result)\w*"
    r"|(not|non|cannot|can't|could not|nicht|pas|no)[ -](be )?(grad|read|assess|evalu|exam|done"
    r"|avail|record|know|test|measur|report|applic|perform|taken|seen|sure|clear|possib|visib|usab"
    r"|interpret|determined|classif|specified|provided|beurteil|auswertbar|bekannt|untersucht|connu)\w*"
    r"|unbekannt|unklar|fehlt|inconnu\w*|desconocid\w*|sconosciut\w*|onbekend|okänd|nieznan\w*"
    r")\b.*|.*(未知|不详|不明|无法|缺失|불명|неизвест).*"
)
_NEGATED = re.compile(
    r"\b(no|not|non|without|w/o|never|denies|negative|absent|absence|exclud\w*|rule[ds]? out|r/o"
    r"|kein\w*|ohne|nicht|sans|pas|sin|senza|geen)\b|[无無没未]"
)
_COMPARED = re.compile(r"(.+?)\s*(<=|>=|==|!=|<|>)\s*(.+)")
_LISTED = re.compile(r"(.+?)\s+(not in|in)\s*(\[.*\])|(.+?)\s+(contains)\s+(.+)", re.IGNORECASE)
_STRANGE = re.compile(rf"(=<|=>|(?<![<>=!])=(?=\s*{NUMBER.pattern}$))")
_COMPARE = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
OTHER_FORMS = (
    "write the text as it stands there, a list such as 'dx in [glaucoma, POAG]', or "
    "'dx contains glaucoma'; 'else [normal]' behind it names what is 0, and all other text is then "
    "not observed"
)


def folded(text: object) -> str:
    """Return a text for comparison: spaces, width and case do not count, and 1.0 is 1."""
    return whole(" ".join(unicodedata.normalize("NFKC", str(text)).split()).casefold())


def whole(text: str) -> str:
    """Return a whole number without the .0 that programs add."""
    return re.sub(r"^([+-]?\d+)\.0+$", r"\1", text)


@dataclass(frozen=True)
class Criterion:
    """One column, or a rule on it: ``se <= -6``, ``sex == F``, ``dx contains glaucoma``.

    Attributes
    ----------
    column : str
    comparison : str or None
        ``None`` for a plain column.
    limit : str or None
        What is compared with.
    words, zeros : tuple of str
        For ``==``, ``!=``, ``in``, ``not in`` and ``contains``: the texts that the rule names, and
        those after ``else``; with the latter everything else is not observed.
    """

    column: str
    comparison: str | None = None
    limit: str | None = None
    words: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Criterion":
        """Read a criterion; one without a comparison is a plain column.

        Raises
        ------
        DataError
            It looks like a rule and is none.
        """
        text = str(text).strip().replace("≤", "<=").replace("≥", ">=").replace("−", "-")
        rule, _, zeros = text.partition(" else ")
        strange = _STRANGE.search(rule)
        if strange:
            raise DataError(
                f"rule {text!r}: {strange[1]!r} is no comparison; write <=, >=, <, >, == or !=."
            )
        match = _LISTED.fullmatch(rule) or _COMPARED.fullmatch(rule)
        if not match:
            return cls(text)
        column, comparison, limit = (part for part in match.groups() if part is not None)
        comparison = comparison.casefold()
        ordered = comparison in _COMPARE
        if ordered and (zeros or not NUMBER.fullmatch(limit)):
            raise DataError(
                f"rule {text!r}: {limit!r} is no number to compare with; "
                "write it as 'se <= -6', and 'else' only behind ==, in and contains."
            )
        one = (folded(limit.strip("\"'")),)
        words = () if ordered else _words(limit) if "in" in comparison else one
        return cls(column, comparison, limit, words, _words(zeros))

    @property
    def of_text(self) -> bool:
        """It compares text (``sex == F``), not numbers."""
        named = (*self.words, *self.zeros)
        return bool(named) and not all(NUMBER.fullmatch(word) for word in named)

    @property
    def meaning(self) -> tuple:
        """What the rule says of a value, whatever its column is called."""
        return self.comparison, self.words or float(self.limit or 0), set(self.zeros)

    def holds(self, values: pd.Series) -> pd.Series:
        """Return 1.0 where the rule holds, 0.0 where not and NaN where text says neither."""
        if self.comparison in _COMPARE:
            return _COMPARE[self.comparison](values, float(self.limit)).astype(float)
        if self.of_text:
            return values.map(lambda text: self._judged(folded(text))).astype(float)
        hit = values.isin(list(map(float, self.words)))
        known = hit | (values.isin(list(map(float, self.zeros))) if self.zeros else True)
        return self._turned(hit.astype(float)).where(known)

    def names(self, text: str) -> bool:
        """Tell whether one of the rule's words fits a text."""
        return any(self.finds(word, text) for word in self.words)

    def finds(self, word: str, text: str) -> bool:
        """Tell whether a word of the rule is the text, or with ``contains`` a part of it."""
        return word in folded(text) if self.comparison == "contains" else word == folded(text)

    def _turned(self, hit):
        return 1.0 - hit if self.comparison in ("!=", "not in") else hit

    def _judged(self, text: str) -> float:
        hit, partly = self.names(text), self.comparison == "contains"
        named = text in (*self.words, *self.zeros)
        if not named and (UNKNOWN.fullmatch(text) or (partly and hit and _NEGATED.search(text))):
            return np.nan
        if not hit and self.zeros and text not in self.zeros:
            return np.nan
        return self._turned(float(hit))


def _words(text: str) -> tuple[str, ...]:
    """Return the texts of a list ``[a, b]``, or of one word."""
    parts = text.strip().removeprefix("[").removesuffix("]").split(",")
    return tuple(folded(part.strip().strip("\"'")) for part in parts if part.strip())
