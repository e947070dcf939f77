"""The README's table of claims: the verdicts page's words on the claims that most readers ask for, with their records.

python -m cevit_lib.verdicts.readme
"""

import re
from pathlib import Path

from cevit_lib.paths import project_root
from cevit_lib.verdicts.claims import CLAIMS
from cevit_lib.verdicts.judge import count_words, judge_all

ASKED_FOR = (
    "theorem-2-1", "song", "corollary-a-1", "prediction", "lora", "remark-3", "toy-iterations", "toy-mixed", "toy-r34",
    "toy-mcmc", "toy-speed", "phenomenon", "proposition-1", "proposition-2", "proposition-3", "minima",
    "simulation-mae", "simulation-acc", "simulation-auc", "real-copula", "real-adapters",
)  # fmt: skip
HEAD = "| No. | Claim | Place in the paper | Verdict | Because | Records |\n|---|---|---|---|---|---|\n"
BETWEEN = re.compile(r"(?<=<!-- claims -->\n).*?(?=<!-- /claims -->)", re.DOTALL)


def claims_table(folder: Path | None = None) -> str:
    """Return the sentence with the counts and the table, as Markdown; a row has the number of the verdicts page."""
    judged = judge_all(CLAIMS, folder)
    counts = ", ".join(f"{number} *{word}*" for word, number in count_words(judged).items())
    rows = [_row(number, claim, verdict) for number, (claim, verdict) in enumerate(judged, 1)
            if claim.key in ASKED_FOR]  # fmt: skip
    return f"Of {len(judged)} claims: {counts}.\n\n{HEAD}{''.join(rows)}"


def _row(number: int, claim, verdict) -> str:
    records = ", ".join(f"`results/{study}`" for study in claim.studies) if verdict.word != "not run yet" else ""
    cells = (str(number), claim.text, claim.place, verdict.word, verdict.because.split(";")[0], records)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def main() -> None:
    path = project_root() / "README.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(BETWEEN.sub(lambda _: claims_table(), text), encoding="utf-8")


if __name__ == "__main__":
    main()
