"""Every chapter is built alike and short: the question first, three lines to remember, exercises at
three levels, where to go."""

import re
from pathlib import Path

import pytest

from cevit_lib.errors import NotebookError
from cevit_lib.runner.notebook import has_sentinel, notebook_parameters, read_notebook
from tools import convert, pages
from tools.form import form, parts

ROOT = Path(__file__).resolve().parents[1]
PART = parts(ROOT)
CHAPTERS = [page for page in pages.chapters(ROOT) if PART[page.stem] != "Appendix"]
LAST = ["Three lines to remember", "Exercises", "Where to go"]
LEVELS = ("easy", "medium", "hard")
_LEVEL = re.compile(r"^\*\*.+?\*\* \((easy|medium|hard|project), (\d+) minutes\)\. ", re.MULTILINE)
_FENCE = re.compile(r"^```\{code-cell\}.*?^```$", re.MULTILINE | re.DOTALL)
_EXERCISE = re.compile(r"^```\{exercise-start\}(.*?)^```\{exercise-end\}", re.MULTILINE | re.DOTALL)
_SOLUTION = re.compile(
    r"^```\{solution-start\} (\S+)\n(.*?)^```\{solution-end\}", re.MULTILINE | re.DOTALL
)


def sections(prose: str) -> list[tuple[str, str]]:
    """Title and text of every section of the second level."""
    parts = re.split(r"^## (.+)$", prose, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def opening_faults(prose: str) -> list[str]:
    """Question or answer first, then goals, prerequisites and minutes in one box."""
    head = prose.split("\n## ")[0]
    box = re.search(
        r"^```\{admonition\} Goals, prerequisites, time$(.*?)^```$", head, re.MULTILINE | re.DOTALL
    )
    told = re.sub(r"\s+", " ", box[1]) if box else ""
    wanted = {
        "below the title must be the page's question or its answer: **...**": (
            r"^# .+?\n\n\*\*[^*]+[?.]\*\*[ \n]",
            head,
        ),
        "no box 'Goals, prerequisites, time' above the first section": (".", told),
        "the box lacks goals: 'You will be able to'": ("You will be able to", told),
        "the box lacks prerequisites": (r"\b[Yy]ou need\b|No prerequisites", told),
        "the box lacks the time to read it": (r"Reading takes (about )?\w+ minutes", told),
        "the box lacks the time to run it": (r"\b(seconds?|minutes?) on a CPU\b", told),
    }
    found = wanted.items()
    return [said for said, (how, where) in found if not re.search(how, where, re.MULTILINE)]


def ending_faults(prose: str) -> list[str]:
    """The last three sections, in this order: three lines, exercises, where to go."""
    found = sections(prose)[-3:]
    if (titles := [title for title, _ in found]) != LAST:
        return [f"the last three sections must be {LAST}, they are {titles}"]
    three, exercises, where = (text for _, text in found)
    lines = re.findall(r"^(?:- |\d\. )", three, re.MULTILINE)
    wrong = {
        f"'Three lines to remember' has {len(lines)} lines": len(lines) != 3,
        "'Where to go' links to no other page": not re.search(r"\{(ref|doc)\}|\]\(\S+\.md", where),
    }
    told = int((re.findall(r"exercises (\d+) minutes", " ".join(prose.split())) or [0])[0])
    minutes = sum(int(m) for level, m in _LEVEL.findall(exercises) if level in LEVELS)
    wrong[f"the box says {told} minutes of exercises, they are {minutes}"] = told != minutes
    return [said for said, is_so in wrong.items() if is_so] + exercise_faults(exercises)


def exercise_faults(text: str) -> list[str]:
    """A title and a level each, all three levels, from easy to hard; a folded solution behind."""
    bodies, solutions = _EXERCISE.findall(text), _SOLUTION.findall(text)
    labels = re.findall(r"^:label: (ex-\S+)$", "\n".join(bodies), re.MULTILINE)
    levels = [level for level, _ in _LEVEL.findall("\n".join(bodies))]
    answered = [label for label, _ in solutions]
    wrong = {
        "an exercise lacks ':label: ex-...' or '**Title** (easy, 5 minutes). Text'": (
            not len(bodies) == len(labels) == len(levels)
        ),
        f"exercises are {levels}, and not easy, medium and hard": not set(levels) >= set(LEVELS),
        f"exercises go from easy to hard, here: {levels}": (
            levels != sorted(levels, key=(*LEVELS, "project").index)
        ),
        f"solutions {answered} do not follow their exercises {labels}": answered != labels,
        "a solution is not ':class: dropdown'": any(
            ":class: dropdown" not in body for _, body in solutions
        ),
    }
    return [said for said, is_so in wrong.items() if is_so]


def chapter_faults(text: str) -> list[str]:
    """What a chapter lacks; an empty list is a well-built one."""
    prose = _FENCE.sub("", text.split("\n---\n", 1)[1])
    return opening_faults(prose) + ending_faults(prose)


def form_faults(notebook, name: str) -> list[str]:
    """What a page lacks of the form that every page has; an empty list is a well-formed page."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    try:
        declared = notebook_parameters(notebook, name)
    except NotebookError as error:
        return [str(error)]
    faults = [
        f"{line.strip()!r} is a shell line or magic, whose failure would go unnoticed"
        for line in "\n".join(cell.source for cell in code).splitlines()
        if line.lstrip().startswith(("!", "%"))
    ]
    faults += [
        f"{line!r} is longer than 88 characters, or kept from formatting"
        for line in "\n".join(cell.source for cell in code).splitlines()
        if len(line) > 88 or "fmt: skip" in line
    ]
    head = [cell.metadata.get("tags", []) for cell in code].index(["parameters"])
    calls = re.search(r"\bcheck_parameters\(\s*\{(.*)\}", code[head + 1].source, re.DOTALL)
    checked = re.findall(r'"(\w+)":', calls[1]) if calls else None
    if checked != list(declared):
        faults.append(f"the cell below the parameters {list(declared)} checks {checked}")
    if not has_sentinel(notebook) or "remove-cell" not in code[-1].metadata.get("tags", []):
        faults.append("the last code cell, tagged remove-cell, does not call finished()")
    return faults


PAGES = pages.all_notebooks(ROOT)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_has_the_form_that_every_page_has(page):
    faults = form_faults(read_notebook(page), page.name)
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("[parameters]", "[other]", "0 cells tagged 'parameters'"),
        ("[remove-cell]", "[parameters]", "2 cells tagged 'parameters'"),
        ("finished()\n", "print()\n", "does not call finished"),
        ("[remove-cell]", "[hide-cell]", "tagged remove-cell"),
        ("check_parameters(", "print(", "checks None"),
        ('"scale": ', '"sale": ', "checks ['sale']"),
        ("finished()\n", "!ls\nfinished()\n", "shell line"),
        ("finished()\n", "%%bash\nfinished()\n", "magic"),
        ("finished()\n", "finished()  # fmt: skip\n", "kept from formatting"),
        ("finished()\n", f"finished()  # {'x' * 80}\n", "longer than 88"),
    ],
)
def test_what_a_page_lacks_is_named(tmp_path, old, new, named):
    text = """```{code-cell} ipython3
:tags: [parameters]

scale: str = "stored"
```

```{code-cell} ipython3
check_parameters({"scale": str}, globals())
```

```{code-cell} ipython3
:tags: [remove-cell]

finished()
```
"""
    page = tmp_path / "page.md"
    page.write_text(text)
    assert form_faults(read_notebook(page), "page.md") == [] and old in text
    page.write_text(text.replace(old, new))
    assert named in "; ".join(form_faults(read_notebook(page), "page.md"))


def test_clean_copies_equal_their_pages():
    committed = {path: path.read_text("utf-8") for path in (ROOT / "notebooks/ipynb").glob("*")}
    copies = convert.clean_copies(ROOT)
    differing = {p.name for p in copies | committed if copies.get(p) != committed.get(p)}
    assert not differing, "run python -m tools.convert"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_is_built_like_the_others(chapter):
    faults = chapter_faults(chapter.read_text(encoding="utf-8"))
    assert not faults, "\n".join(faults)


#: What a chapter may have at most; two pages show one figure more.
LIMITS = {"words": 1300, "figures": 3, "tables": 2, "folded": 5, "long": 0}
ONE_MORE_FIGURE = {"copula_loss", "stronger_covariance"}
WALK = [each for each in CHAPTERS if PART[each.stem] in ("Build it", "Does it help?", "Use it")]


@pytest.mark.parametrize("name", sorted({page.stem for page in WALK} | ONE_MORE_FIGURE))
def test_a_chapter_is_read_in_half_an_hour(name):
    counted = form(ROOT / "notebooks" / f"{name}.md")
    limits = LIMITS | {"figures": LIMITS["figures"] + (name in ONE_MORE_FIGURE)}
    over = {what: n for what, n in counted.items() if n > limits[what]}
    assert not over, f"{over} is more than {limits}; python -m tools.form counts"


def test_the_walk_is_read_in_a_day():
    words = {page.stem: form(page)["words"] for page in WALK}
    assert sum(words.values()) <= 14_000, words


def test_what_a_page_shows_is_counted(tmp_path):
    text = """# A title

One, two $x + y$ {ref}`four`.

```{math}
not = words
```

```{code-cell} ipython3
:tags: [hide-input]

import pandas as pd
```

```{code-cell} ipython3
pd.DataFrame([1])
```

```{code-cell} ipython3
---
mystnb:
  figure:
    name: fig-a
    caption: Not counted
---
draw()
```

```{solution-start} ex-a
:class: dropdown
```
Not counted.

```{code-cell} ipython3
pd.DataFrame([2])
```
```{solution-end}
```

Five.
"""
    page = tmp_path / "page.md"
    page.write_text(text)
    counted = {"words": 8, "figures": 1, "tables": 1, "folded": 1, "long": 0}
    assert form(page) == counted
    page.write_text(text.replace("draw()", "x = 1\n" * 20 + "moving_cells()"))
    assert form(page) == counted | {"figures": 0, "long": 1}


GOOD = (
    """---
kernel
---

(x)=
# A title

**What is asked?**

```{admonition} Goals, prerequisites, time
:class: tip
You will be able to do it. You need {ref}`data`. Reading takes 10 minutes, running
half a minute on a CPU, the exercises 15 minutes.
```

```{code-cell} ipython3
## not a section
```

## Matter

Text.

## Three lines to remember

- One.
- Two.
- Three.

## Exercises
"""
    + "".join(
        f"""
```{{exercise-start}}
:label: ex-{level}
```
**Title** ({level}, 5 minutes). Text.
```{{exercise-end}}
```

```{{solution-start}} ex-{level}
:class: dropdown
```
Because.
```{{solution-end}}
```
"""
        for level in LEVELS
    )
    + """
## Where to go

{ref}`data`.
"""
)


@pytest.mark.parametrize(
    ("planted", "instead", "said"),
    [
        ("**What is asked?**", "What is asked?", "must be the page's question"),
        ("You will be able to do it.", "It is fun.", "lacks goals"),
        ("half a minute on a CPU", "half a minute", "the time to run"),
        ("Reading takes 10 minutes, ", "", "the time to read"),
        ("You need {ref}`data`.", "", "prerequisites"),
        ("## Three lines to remember", "## Summary", "the last three sections"),
        ("- Three.\n", "", "has 2 lines"),
        ("(hard, ", "(medium, ", "and not easy, medium and hard"),
        ("**Title** (easy, 5 minutes). ", "", "lacks ':label"),
        ("(easy, 5 ", "(easy, 6 ", "says 15 minutes of exercises, they are 16"),
        (":class: dropdown\n```\nBecause", "```\nBecause", "is not ':class: dropdown'"),
        ("{solution-start} ex-medium", "{solution-start} ex-hard", "do not follow their exercises"),
        ("(easy, ", "(hard, ", "from easy to hard"),
        ("```{solution-end}\n", "", "do not follow their exercises"),
        ("\n{ref}`data`.\n", "\nHome.\n", "links to no other page"),
    ],
)
def test_what_a_chapter_lacks_is_named(planted, instead, said):
    assert chapter_faults(GOOD) == [] and planted in GOOD
    assert said in "; ".join(chapter_faults(GOOD.replace(planted, instead, 1)))
