"""The verdicts where readers look first: their counts as a sentence in the README and as a bar on
the book's first page.

python -m studies.verdicts.readme    writes both from the records
"""

import re
from pathlib import Path

from cevit_lib.paths import project_root
from studies.verdicts import CLAIMS, count_words, counts_bar, judge_all

BETWEEN = re.compile(r"(?<=<!-- claims -->\n).*?(?=<!-- /claims -->)", re.DOTALL)


def counts(folder: Path | None = None) -> str:
    """Return the counts as a sentence, in Markdown for the README."""
    judged = judge_all(CLAIMS, folder)
    found = ", ".join(f"{number} *{word}*" for word, number in count_words(judged).items())
    return f"Of {len(judged)} claims: {found}.\n"


def first_page(folder: Path | None = None) -> str:
    """Return the counts as a bar, as HTML for the preface."""
    return f"{counts_bar(judge_all(CLAIMS, folder))}\n"


def main() -> None:
    """Write both between their marks."""
    for name, made_by in (("README.md", counts), ("book/preface.md", first_page)):
        path = project_root() / name
        made = made_by()
        path.write_text(
            BETWEEN.sub(lambda _, made=made: made, path.read_text(encoding="utf-8")),
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
