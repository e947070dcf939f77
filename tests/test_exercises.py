"""Self-checks of the exercises: each number has one, a wrong one is told so and then gets a hint,
variants change what the text states."""

import re

import numpy as np
import pytest

from studies import exercises
from studies.exercises import EXERCISES, answer, check, variant
from tools import handout, pages

IN_WORDS = {
    *("ex-meet", "ex-swap", "ex-fixed-points", "ex-training-residuals", "ex-which-half"),
    *("ex-swap-loss", "ex-which-numbers", "ex-no-target", "ex-verdict-by-hand", "ex-no-gain"),
    *("ex-write-a-rule", "ex-own-any", "ex-own-pair"),
}
VARIED = [label for label, own in EXERCISES.items() if own.vary]


def test_every_number_has_its_check():
    """A page does not finish where its official solution fails: it asserts the check."""
    blanks = [
        cell.source.removeprefix(handout.ANSWER)
        for page in pages.chapters()
        for cell in handout.unsolved(page).cells
        if cell.source.startswith(handout.ANSWER)
    ]
    for label, blank in zip(handout.tasks(), blanks, strict=True):
        assert (label in EXERCISES) != (label in IN_WORDS), label
        assert bool(blank) == blank.startswith(f'\n\ncheck("{label}", ...') == (label in EXERCISES)
    solved = "".join(page.read_text() for page in pages.chapters())
    assert set(re.findall(r'assert check\(\s*"(ex-[\w-]+)"', solved)) == set(EXERCISES)


def test_a_second_wrong_try_gets_the_hint(capsys):
    """The gain by hand: 1 - (1 - rho^2) / (1 - rho^2 r^2)."""
    right = [1 - (1 - 0.55**2) / (1 - (0.55 * r) ** 2) for r in (0.9, 0.0)]
    hint, tries = EXERCISES["ex-gain"].answer.__doc__, ((..., ...), (0.5, 0.3), (0.5, 0.3), right)
    passed = [check("ex-gain", *values) for values in (*tries, right[:1], (0.5, 0.3))]
    assert passed == [False, False, False, True, False, False]
    said = capsys.readouterr().out.splitlines()
    for line, words in zip(said, ("put a", "try", hint, "is right", "2 are", "try"), strict=True):
        assert words in line and (hint in line) == (words == hint)


@pytest.mark.parametrize("label", ["ex-between-cells", "ex-fmcem-collapse"])
def test_other_draws_are_within_what_is_accepted(label, monkeypatch):
    here, draw = answer(label), np.random.default_rng
    monkeypatch.setattr(exercises.np.random, "default_rng", lambda seed: draw(seed + 77))
    assert 0 < np.abs(answer(label) - here).max() < EXERCISES[label].within


def test_the_parts_of_a_correlation_sum_to_it():
    assert answer("ex-between-cells", [2.0]).sum() == pytest.approx(0.569, abs=1e-6)


@pytest.mark.parametrize("label", VARIED)
def test_a_variant_states_its_numbers_and_has_another_answer(label):
    text, own = handout.tasks()[label], EXERCISES[label]
    assert set(own.vary) <= set(re.findall(r"(?<![\w.])-?(?:\d+/\d+|\d*\.?\d+)", text))
    rng = np.random.default_rng(1)
    for said, key in (variant(label, text, rng) for _ in range(3)):
        assert said != text
        assert not np.allclose(key, answer(label), rtol=own.within, atol=own.within)


def minutes() -> list[str]:
    """Rows of the table of minutes: a chapter, and its exercises from easy to hard."""
    rows, level = (
        [],
        re.compile(r"^\*\*.+?\*\* \((?:easy|medium|hard), (\d+) minutes\)", re.MULTILINE),
    )
    for page in pages.chapters():
        text = page.read_text()
        each = [int(found) for found in level.findall(text)]
        label = re.search(r"^\(([\w-]+)\)=$", text, re.MULTILINE)[1]
        if each:
            rows.append(f"| {{ref}}`{label}` | {', '.join(map(str, each))} | {sum(each)} |")
    return rows


def test_the_teaching_notes_sum_the_minutes():
    table = "\n".join(
        ["| Page | Minutes of each exercise | Together |", "|---|---|---|", *minutes()]
    )
    assert table in (pages.project_root() / "book/teaching_notes.md").read_text(), table
