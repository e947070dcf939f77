"""From notebook to page: what may not be published is refused, and what is wrong stops the build by
name."""

import json
import os
import shutil
import time
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_output as output

from cevit_lib.clinic.style import mark_smoke, new_figure
from cevit_lib.records import badge, load_records
from studies.verdicts import CLAIMS
from tools import inputs, pages
from tools.dress import DIRTY_MARK, SMOKE_MARKS, dress, scan

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def stages() -> dict:
    """How the book and the smoke runs went; `make test` has run them already."""
    written = os.environ.get("CEVIT_STAGES")
    return json.loads(Path(written).read_text()) if written else pages.build_and_smoke()


@pytest.mark.parametrize("name", [source.stem for source in pages.all_notebooks(ROOT)])
def test_every_notebook_runs_at_smoke_scale(name, stages):
    assert stages["smoke"][name] is None, stages["smoke"][name]


def test_the_book_builds_with_warnings_as_errors(stages):
    faults = {name: fault for name, fault in stages["build"].items() if fault}
    assert not faults, "\n".join(f"{name}: {fault}" for name, fault in faults.items())


@pytest.fixture(scope="module")
def read(stages) -> dict[str, list[str]]:
    """What each page of the book said that it read; it is made again when that changes."""
    names = [page.stem for page in pages.chapters(ROOT)]
    return {n: json.loads((ROOT / "build/executed" / f"{n}.json").read_text()) for n in names}


def test_a_page_says_what_it_read(read):
    """Its modules and its records, and not those of another page."""
    records = map(str, (ROOT / "results/simulation").glob("*.json"))
    own = {str(ROOT / "studies/simulation/tables.py"), *records}
    assert own <= set(read["simulation"]) and not own & set(read["data"])


def test_every_record_that_a_rule_names_is_shown(read):
    """By a page of evidence: the page of verdicts reads them all."""
    files = [Path(name) for page in read.keys() - {"verdicts"} for name in read[page]]
    shown = {path.parent.name for path in files if path.parent.parent.name == "results"}
    named = {study for claim in CLAIMS for study in claim.studies}
    assert not named - shown, "drawn by no page but that of verdicts"


# --- the scan of executed notebooks


def notebook(*cells, **metadata):
    return nbformat.v4.new_notebook(metadata=metadata, cells=list(cells))


def cell(source="1 + 1", outputs=(), count=1, **metadata):
    return nbformat.v4.new_code_cell(
        source, outputs=list(outputs), execution_count=count, metadata=metadata
    )


def said(text):
    return output("stream", name="stdout", text=text)


def shown(text):
    return output("execute_result", data={"text/plain": text}, execution_count=1)


FIGURE = output("display_data", data={"image/png": "aGk=", "text/plain": "<Figure>"})
GOOD = {"mystnb": {"figure": {"name": "fig-a", "caption": "A"}, "image": {"alt": "The line rises"}}}


def without(missing: str) -> dict:
    parts = GOOD["mystnb"].items()
    return {"mystnb": {k: {a: b for a, b in v.items() if a != missing} for k, v in parts}}


def scanned(tmp_path, made) -> str:
    path = tmp_path / "page.ipynb"
    nbformat.write(made, path)
    return "; ".join(scan(path))


def dressed(tmp_path, *cells, **metadata):
    path = tmp_path / "page.ipynb"
    nbformat.write(notebook(*cells, **metadata), path)
    dress(path)
    return nbformat.read(path, 4)


def test_a_good_page_passes_the_scan(tmp_path):
    made = notebook(
        cell(outputs=[said("2")]),
        cell("draw()", [FIGURE], count=2, **GOOD),
        cell("  ", count=None),
        nbformat.v4.new_markdown_cell("Text on a SMOKE RUN is no output of one."),
    )
    assert scanned(tmp_path, made) == ""


ERROR = output("error", ename="ZeroDivisionError", evalue="division by zero", traceback=[])
RATED = {"papermill": {"parameters": {"rate": 0.2}}}
SMOKED = {"papermill": {"parameters": {"scale": "smoke"}}}


@pytest.mark.parametrize(
    ("planted", "metadata", "named"),
    [
        (cell("1 / 0", [ERROR]), {}, "cell 1: failed with ZeroDivisionError: division by zero"),
        (cell("fit()", count=None), {}, "cell 1: was not executed ('fit()')"),
        (cell("rate: float = 0.1", tags=["parameters"]), RATED, "was run at rate=0.2, not as it"),
        (cell(), SMOKED, "was run at scale='smoke', not as"),
        # whatever the parameters say: the mark of the badge and the one across a figure give it
        # away
        (cell(outputs=[said("SMOKE RUN · record 12ab34…")]), {}, "numbers of a smoke run"),
        (cell(outputs=[shown("SMOKE RUN · record 12ab34…")]), {}, "numbers of a smoke run"),
        (cell(outputs=[said("DIRTY · record 12ab34…")]), {}, "uncommitted code"),
        (cell("draw()", [FIGURE], **without("name")), {}, "without figure: name"),
        (cell("draw()", [FIGURE], **without("caption")), {}, "without figure: caption"),
        (cell("draw()", [FIGURE], **without("alt")), {}, "without image: alt"),
        (
            cell("figure", [shown("<Figure size 500x300>")], **GOOD),
            {},
            "a figure's size and draws none",
        ),
        (cell(outputs=[said("step\n" * 500_000)]), {}, "MB large"),
    ],
)
def test_what_may_not_be_published_is_refused_by_name(tmp_path, planted, metadata, named):
    assert named in scanned(tmp_path, notebook(cell(), planted, **metadata))


def test_the_marks_are_those_that_the_badge_prints():
    """The scan looks for what `records.badge` and `figures.mark_smoke` really write."""
    record = load_records("formula-checks")[0]
    worse = badge(record | {"scale": "smoke", "dirty": True})
    for marks in (SMOKE_MARKS, [DIRTY_MARK]):
        assert [any(mark in told for mark in marks) for told in (badge(record), worse)] == [0, 1]
    assert any(text.get_text() in SMOKE_MARKS for text in mark_smoke(new_figure(2.0)[0]).texts)


def badge_of(name):
    said = f"record {name} · CPU"
    return output(
        "display_data", data={"text/html": f'<p class="cevit-badge">{said}</p>', "text/plain": said}
    )


def test_dressing_hides_the_machinery_and_forgets_the_machine(tmp_path):
    check = "from cevit_lib.runner import check_parameters\ncheck_parameters({}, globals())"
    cells = [
        cell("scale: str = 'stored'", tags=["parameters"]),
        cell("scale = 'stored'", tags=["injected-parameters"]),
        cell(check, tags=["hide-input"]),
        cell("import a\n" + check, tags=["hide-input"]),
        cell("x", papermill={"start_time": "now"}, **GOOD),
        cell("seconds = 1\nlive_badge(seconds)", tags=["hide-input"]),
        cell("plot()", tags=["hide-input"]),
        cell("from a import b\nfinished()"),
    ]
    machine = {"input_path": "/home/someone/x.ipynb"}
    made = dressed(tmp_path, *cells, papermill=machine)
    tags = [one.metadata.get("tags", []) for one in made.cells]
    shown = [["parameters"], ["hide-input"], [], ["remove-input"], ["hide-input"]]
    assert [tag for tag in tags if "remove-cell" not in tag] == shown and len(tags) == len(cells)
    assert "someone" not in str(made) and "start_time" not in str(made)
    assert made.cells[4].metadata["mystnb"] == GOOD["mystnb"]


def test_where_numbers_come_from_stands_in_one_fold_to_which_captions_lead(tmp_path):
    drawn = [cell("draw()", [FIGURE], mystnb={"figure": {"name": n, "caption": n}}) for n in "ab"]
    line = {"tags": ["hide-input"]}
    cells = [drawn[0], cell("badge(r)", [badge_of("one")], **line), drawn[1]]
    cells += [cell("badge(r)", [badge_of("one")], **line), nbformat.v4.new_markdown_cell("## C")]
    cells += [cell("live_badge()", [said("kept"), badge_of("two")], **line)]
    *others, fold = dressed(tmp_path, *cells).cells
    assert (
        "{numref}`a`, {numref}`b`: record one" in fold.source and "- C: record two" in fold.source
    )
    assert [len(each.outputs) for each in others if each.cell_type == "code"] == [1, 0, 1, 0, 1]
    caption = others[0].metadata["mystnb"]["figure"]["caption"]
    assert caption.startswith('a <a class="cevit-source"') and caption.endswith(">record one</a>")


# --- what is made again, and when


def test_an_input_that_changed_appeared_or_went_is_named(tmp_path, monkeypatch):
    memory, source, folder = tmp_path / "memory.json", tmp_path / "a.md", tmp_path / "records"
    folder.mkdir()
    source.write_text("one")
    names = [str(source), str(folder), "$CEVIT_DATA"]
    assert inputs.changed(memory) == {str(memory)}
    inputs.remember(memory, names, since=time.time() + 1)
    assert inputs.changed(memory, names) == set()
    (folder / "r.json").touch()
    source.unlink()
    monkeypatch.setenv("CEVIT_DATA", "elsewhere")
    assert inputs.changed(memory) == set(names) and "new" in inputs.changed(memory, ["new"])
    source.write_text("edited while the page ran")
    for made, named in ((None, {str(source)}), (source, set())):
        inputs.remember(memory, names, since=time.time() - 60, made=made)
        assert inputs.changed(memory) == named


# --- planted faults


GOOD_TEXT = """# A book

See {cite}`genz2004numerical` and {eq}`eq-one`.

$$
a = b
$$ (eq-one)

```{bibliography}
```
"""
PLANTED = {
    "nobody1999nothing": "{cite}`nobody1999nothing`",
    "no-such-label": "{ref}`no-such-label`",
    "eq-none": "{eq}`eq-none`",
    "unheard-of": "{term}`unheard-of`",
    "no_such_picture.png": "![x](no_such_picture.png)",
}


def test_a_book_is_built_once_a_changed_page_alone_and_what_is_missing_is_named(
    tmp_path, monkeypatch
):
    """A book of one page with the project's `_config.yml`, its styles and its bibliography."""
    for folder in ("assets", "book/_templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for name in ("_config.yml", "book/references.bib"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/preface\n")
    (tmp_path / "book" / "preface.md").write_text(GOOD_TEXT)
    assert pages.render(tmp_path) is None
    assert (tmp_path / "_build" / "html" / "index.html").is_file()
    called, real = [], pages.jupyter_book
    monkeypatch.setattr(pages, "jupyter_book", lambda *given: called.append(given) or real(*given))
    assert pages.render(tmp_path) is None and not called
    (tmp_path / "book" / "preface.md").write_text(GOOD_TEXT + "\n\n".join(PLANTED.values()))
    said = pages.render(tmp_path)
    assert [name for name in PLANTED if name not in said] == [] and "--all" not in called[0]
    assert not (tmp_path / "_build" / "inputs.json").exists(), "a failed build counts as made"


def test_a_faulty_notebook_does_not_get_into_the_book(tmp_path, monkeypatch):
    """A page that failed leaves neither itself nor an older one of its name behind, and no book is
    built."""
    for folder in ("cevit_lib", "notebooks", "book/executed"):
        (tmp_path / folder).mkdir(parents=True)
    listed = "format: jb-book\nroot: book/preface\nchapters:\n"
    for name in ("fine", "smoked", "unwritten", "broken"):
        (tmp_path / "notebooks" / f"{name}.md").touch()
        listed += f"- file: book/executed/{name}\n"
    (tmp_path / "_toc.yml").write_text(listed)
    final = tmp_path / "book" / "executed"
    for name in ("broken", "no_longer_in_the_contents"):
        (final / f"{name}.ipynb").touch()

    def run(sources, folder, scale):
        folder.mkdir(parents=True)
        for name, text in {"fine": "2", "smoked": "SMOKE RUN · record", "broken": "2"}.items():
            nbformat.write(notebook(cell(outputs=[said(text)])), folder / f"{name}.ipynb")
            (folder / f"{name}.json").write_text("[]")
        return dict.fromkeys(source.stem for source in sources) | {"broken": "cell 3 failed"}

    monkeypatch.setattr(pages, "execute", run)
    monkeypatch.setenv("CEVIT_ROOT", str(tmp_path))
    faults = pages.build()
    assert faults["fine"] is None and "smoke run" in faults["smoked"]
    assert "unwritten.ipynb" in faults["unwritten"] and faults["broken"] == "cell 3 failed"
    assert [path.name for path in final.glob("*.ipynb")] == ["fine.ipynb"]
    assert not (tmp_path / "_build").exists(), "a book with a faulty page was built all the same"
    assert pages.main(["build"]) == 1


def test_a_second_build_in_one_clone_waits_for_nobody_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pages, "project_root", lambda: tmp_path)
    monkeypatch.setattr(pages, "publish_book", lambda: pages.main(["build"]))
    assert pages.main(["build"]) == 1
    assert "another build is at work" in capsys.readouterr().err
