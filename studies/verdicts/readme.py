"""The verdicts where readers look first: a table of claims in the README, their counts as a bar on
the book's first page.

python -m studies.verdicts.readme    writes both from the records
"""

import re
from pathlib import Path

from cevit_lib.paths import project_root
from studies.verdicts import CLAIMS, NOT_RUN, count_words, counts_bar, judge_all

ASKED_FOR = (
    "theorem-2-1",
    "song",
    "corollary-a-1",
    "prediction",
    "lora",
    "remark-3",
    "toy-iterations",
    "toy-mixed",
    "toy-r34",
    "toy-mcmc",
    "toy-speed",
    "phenomenon",
    "proposition-1",
    "proposition-2",
    "proposition-2-singular",
    "proposition-3",
    "minima",
    "simulation-mae",
    "simulation-acc",
    "simulation-auc",
    "real-copula",
    "real-adapters",
)
HEAD = "| No. | Claim | Place in the paper | Verdict | Because | Records |\n" + "|---" * 6 + "|\n"
BETWEEN = re.compile(r"(?<=<!-- claims -->\n).*?(?=<!-- /claims -->)", re.DOTALL)


def claims_table(folder: Path | None = None) -> str:
    """Return the sentence with the counts and the table, as Markdown; a row has the number of the
    verdicts page.
    """
    judged = judge_all(CLAIMS, folder)
    counts = ", ".join(f"{number} *{word}*" for word, number in count_words(judged).items())
    rows = [
        _row(number, claim, verdict)
        for number, (claim, verdict) in enumerate(judged, 1)
        if claim.key in ASKED_FOR
    ]
    return f"Of {len(judged)} claims: {counts}.\n\n{HEAD}{''.join(rows)}"


def first_page(folder: Path | None = None) -> str:
    """Return the counts as a bar, as HTML for the preface."""
    return f"{counts_bar(judge_all(CLAIMS, folder))}\n"


def _row(number: int, claim, verdict) -> str:
    records = (
        ", ".join(f"`results/{study}`" for study in claim.studies)
        if verdict.word != NOT_RUN
        else ""
    )
    cells = (
        str(number),
        claim.text,
        claim.place,
        verdict.word,
        verdict.because.split(";")[0],
        records,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def main() -> None:
    """Write both between their marks."""
    for name, made_by in (("README.md", claims_table), ("book/preface.md", first_page)):
        path = project_root() / name
        made = made_by()
        path.write_text(
            BETWEEN.sub(lambda _, made=made: made, path.read_text(encoding="utf-8")),
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
