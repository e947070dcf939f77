"""Judged claims as HTML: a bar of counts, and tables that become cards on a telephone.

Without scripts the whole table is there; ``filter.js`` adds the choice of a verdict and a section.
"""

import re
from collections import Counter
from html import escape
from importlib.resources import files

from studies.verdicts.judge import FALSE, NOT_RUN, UNTESTABLE, WORDS, count_words
from studies.verdicts.moved import MOVED

#: Word of a verdict -> class of its colour in ``assets/style.css``.
LOOKS = {word: f"cevit-word-{place}" for place, word in enumerate(WORDS)}


def counts_bar(judged) -> str:
    """Return the counts as one bar and, below it, in words; a word without a claim is left out."""
    counts = {word: number for word, number in count_words(judged).items() if number}
    parts = "".join(
        f'<span class="{LOOKS[word]}" style="flex-grow: {number}">{number}</span>'
        for word, number in counts.items()
    )
    words = "".join(
        f'<li><i class="{LOOKS[word]}"></i> {number} {word}</li>' for word, number in counts.items()
    )
    return (
        f'<div class="cevit-counts"><div aria-hidden="true">{parts}</div>'
        f"<ul><li>{len(judged)} claims:</li>{words}</ul></div>"
    )


class VerdictTable(list):
    """Judged claims that Jupyter shows as an HTML table: what is claimed and where, the verdict
    with its numbers, its rule and its figure.
    """

    def _repr_html_(self) -> str:
        rows = [
            (
                f'<tr id="claim-{claim.key}" data-word="{verdict.word}" '
                f'data-section="{section(claim)}">',
                str(number),
                f"{escape(claim.text)} <small>{escape(claim.place)}</small>",
                f'<i class="{LOOKS[verdict.word]}"></i> <strong>{verdict.word}</strong>',
                _told(claim, verdict),
            )
            for number, (claim, verdict) in enumerate(self, 1)
        ]
        sections = Counter(section(claim) for claim, _ in self)
        choices = _choice("word", "Verdict", count_words(self))
        choices += _choice("section", "Section", dict(sorted(sections.items())))
        table = _table(("No.", "Claim", "Verdict", "Because"), rows)
        script = files(__package__).joinpath("filter.js").read_text(encoding="utf-8")
        return (
            f'<div><form class="cevit-filter" hidden>{choices}<output></output></form>{table}</div>'
            f"<script>{script}</script>"
        )


class MovedTable(list):
    """Judged claims whose rule moved after its records had been seen, as Jupyter shows them."""

    def _repr_html_(self) -> str:
        rows = []
        for claim, verdict in self:
            if moved := MOVED.get(claim.key):
                before = [moved.earlier] if moved.earlier else []
                before = map(_ruled, [*before, (moved.rule, moved.word)])
                link = f'<a href="#claim-{claim.key}">{claim.key}</a>'
                now = _ruled((claim.rule, verdict.word))
                why = re.sub(r"\*(.*?)\*", r"<em>\1</em>", escape(moved.why))
                rows.append(("<tr>", link, "<br>then ".join(before), now, why))
        return _table(("Claim", "Old rule and verdict", "New rule and verdict", "Why"), rows)


def section(claim) -> str:
    """Section of the paper, or part of its supplement, that a claim stands in."""
    return claim.place.split(",")[0].split(".")[0]


def _ruled(pair: tuple[str, str]) -> str:
    """Return a rule and the word that it leads to."""
    return f"{escape(pair[0])}: <strong>{pair[1]}</strong>"


def _told(claim, verdict) -> str:
    """Why a verdict is as it is: its numbers, the repairs that were tried, rule and figure."""
    told = escape(verdict.because)
    if verdict.word == FALSE:
        told += "".join(f"<br>Tried: {escape(repair)}." for repair in verdict.repairs)
    if claim.evidence and verdict.word != NOT_RUN:
        page, _, place = claim.evidence.partition("#")
        kind = "Figure" if place.startswith("fig-") else "Page"
        kind = "On public eyes" if verdict.word == UNTESTABLE and claim.decide is None else kind
        name = page.removesuffix(".html").replace("_", " ")
        told += f'<br>{kind}: <a href="{escape(claim.evidence)}">{name}</a>'
    studies = ", ".join(claim.studies) or "none"
    rule = f"{escape(claim.rule)}<small>Records: {studies}</small>"
    return told + (f"<details><summary>Rule</summary>{rule}</details>" if claim.decide else "")


def _choice(name: str, label: str, counts: dict[str, int]) -> str:
    """Return a list from which one value of a row is chosen."""
    options = "".join(
        f'<option value="{value}">{value} ({number})</option>'
        for value, number in counts.items()
        if number
    )
    options = f'<option value="">all</option>{options}'
    return f'<label>{label} <select name="{name}">{options}</select></label>'


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table; a row begins with its tag."""
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    body = "".join(f"{tag}<td>{'</td><td>'.join(cells)}</td></tr>" for tag, *cells in rows)
    return (
        f'<table class="table cevit-verdicts"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )
