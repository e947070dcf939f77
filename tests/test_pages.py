"""From notebook to page: what may not be published is refused, and what is wrong stops the build by name."""

import json
import os
import shutil
from pathlib import Path

import nbformat
import pytest
import yaml

from cevit_lib.errors import NotebookError
from tools import pages

ROOT = Path(__file__).resolve().parents[1]
STAGES = os.environ.get(
    "CEVIT_STAGES"
)  # written by `make test`, which has run these stages already


def stage(name: str) -> dict | None:
    return json.loads(Path(STAGES).read_text())[name] if STAGES else None


@pytest.mark.parametrize("source", pages.all_notebooks(ROOT), ids=lambda source: source.stem)
def test_every_notebook_runs_at_smoke_scale(source, tmp_path):
    faults = stage("smoke")
    if faults is None:
        faults = pages.execute([source], tmp_path, "smoke", jobs=1)
    assert faults[source.stem] is None, faults[source.stem]


def test_the_book_builds_with_warnings_as_errors():
    faults = stage("build")
    if faults is None:
        faults = pages.build()
    assert not any(faults.values()), "\n".join(
        f"{name}: {fault}" for name, fault in faults.items() if fault
    )


# --- the scan of executed notebooks


def notebook(*cells, **metadata):
    made = nbformat.v4.new_notebook(metadata=metadata)
    made.cells = list(cells)
    return made


def cell(source="1 + 1", outputs=(), count=1, **metadata):
    return nbformat.v4.new_code_cell(
        source, outputs=list(outputs), execution_count=count, metadata=metadata
    )


def said(text):
    return nbformat.v4.new_output("stream", name="stdout", text=text)


FIGURE = nbformat.v4.new_output(
    "display_data", data={"image/png": "aGk=", "text/plain": "<Figure>"}
)
GOOD = {"mystnb": {"figure": {"name": "fig-a", "caption": "A"}, "image": {"alt": "The line rises"}}}


def scanned(tmp_path, made) -> str:
    path = tmp_path / "page.ipynb"
    nbformat.write(made, path)
    return "; ".join(pages.scan(path))


def test_a_good_page_passes_the_scan(tmp_path):
    made = notebook(
        cell(outputs=[said("2")]),
        cell("draw()", [FIGURE], count=2, **GOOD),
        cell("  ", count=None),
        nbformat.v4.new_markdown_cell("Text on a SMOKE RUN is no output of one."),
    )
    assert scanned(tmp_path, made) == ""


def test_a_failed_cell_is_refused_and_named(tmp_path):
    error = nbformat.v4.new_output(
        "error", ename="ZeroDivisionError", evalue="division by zero", traceback=[]
    )
    assert "cell 1: failed with ZeroDivisionError: division by zero" in scanned(
        tmp_path, notebook(cell(), cell("1 / 0", [error], count=2))
    )


def test_a_cell_that_was_not_executed_is_refused(tmp_path):
    assert "cell 1: was not executed ('fit()')" in scanned(
        tmp_path, notebook(cell(), cell("fit()", count=None))
    )


def test_output_of_a_smoke_run_is_refused(tmp_path):
    injected = {"parameters": {"scale": "smoke"}}
    assert "was run at scale=smoke" in scanned(tmp_path, notebook(cell(), papermill=injected))
    # whatever the parameters say: the mark of the badge and the mark across a figure give it away
    badge = "SMOKE RUN · record 12ab34… · 1 record"
    assert "numbers of a smoke run" in scanned(tmp_path, notebook(cell(outputs=[said(badge)])))
    shown = nbformat.v4.new_output("execute_result", data={"text/plain": badge}, execution_count=1)
    assert "numbers of a smoke run" in scanned(tmp_path, notebook(cell(outputs=[shown])))


def test_numbers_of_uncommitted_code_are_refused(tmp_path):
    assert "uncommitted code" in scanned(
        tmp_path, notebook(cell(outputs=[said("DIRTY · record 12ab34…")]))
    )


def test_the_marks_are_those_that_the_badge_prints():
    """The scan looks for what `records.badge` and `figures.mark_smoke` really write."""
    from cevit_lib.clinic.style import mark_smoke, new_figure
    from cevit_lib.records import badge

    record = {
        "id": "0" * 64,
        "device": {"type": "cpu", "cores": 2},
        "versions": {"torch": "2"},
        "seeds": [0],
        "commit": "a" * 40,
        "scale": "smoke",
        "dirty": True,
    }
    assert any(mark in badge([record]) for mark in pages.SMOKE_MARKS) and pages.DIRTY_MARK in badge(
        [record]
    )
    record |= {"scale": "paper", "dirty": False}
    assert not any(mark in badge([record]) for mark in (*pages.SMOKE_MARKS, pages.DIRTY_MARK))
    figure, _ = new_figure(2.0)
    assert any(text.get_text() in pages.SMOKE_MARKS for text in mark_smoke(figure).texts)


@pytest.mark.parametrize("missing", ["name", "caption", "alt"])
def test_a_figure_without_name_caption_or_alt_is_refused(tmp_path, missing):
    options = json.loads(json.dumps(GOOD))
    for part in options["mystnb"].values():
        part.pop(missing, None)
    assert missing in scanned(tmp_path, notebook(cell("draw()", [FIGURE], **options)))


def test_a_figure_that_was_not_drawn_is_refused(tmp_path):
    shown = nbformat.v4.new_output(
        "execute_result", data={"text/plain": "<Figure size 500x300>"}, execution_count=1
    )
    assert "instead of the figure" in scanned(tmp_path, notebook(cell("figure", [shown], **GOOD)))


def test_output_without_end_is_refused(tmp_path):
    assert "MB large" in scanned(tmp_path, notebook(cell(outputs=[said("step\n" * 500_000)])))


def test_dressing_hides_the_machinery_and_forgets_the_machine(tmp_path):
    path = tmp_path / "page.ipynb"
    cells = [
        cell("scale: str = 'stored'", tags=["parameters"]),
        cell("scale = 'stored'", tags=["injected-parameters"]),
        cell("from a import b\nfinished()"),
        cell("x", papermill={"start_time": "now"}, **GOOD),
        cell("seconds = 1\nlive_badge(seconds)", tags=["hide-input"]),
        cell("plot()", tags=["hide-input"]),
    ]
    machine = {"input_path": "/home/someone/x.ipynb"}
    nbformat.write(
        notebook(*cells, papermill=machine, kernelspec={"name": "python3", "display_name": "x"}),
        path,
    )
    pages.dress(path, "stamp")
    tags = [set(one.metadata.get("tags", [])) for one in nbformat.read(path, 4).cells]
    assert (
        "hide-input" in tags[0]
        and "remove-cell" in tags[1]
        and "remove-cell" in tags[2]
        and tags[3] == set()
    )
    assert tags[4] == {"remove-input"} and tags[5] == {"hide-input"}
    assert "someone" not in path.read_text() and "start_time" not in path.read_text()
    assert nbformat.read(path, 4).cells[3].metadata["mystnb"] == GOOD["mystnb"]
    assert pages.kept(path, "stamp")
    assert not pages.kept(path, "another") and not pages.kept(tmp_path / "none.ipynb", "stamp")


def test_links_between_sources_become_links_between_pages(tmp_path, monkeypatch):
    monkeypatch.setenv("CEVIT_ROOT", str(tmp_path))
    for name in ("notebooks/other.md", "book/notation.md"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x")
    text = "[a](other.md) [b](other.md#x) [c](notation.md) [d](../book/notation.md) [e](lost.md) [f](https://x.org/other.md)"
    path = tmp_path / "page.ipynb"
    nbformat.write(notebook(nbformat.v4.new_markdown_cell(text)), path)
    pages.dress(path)
    assert nbformat.read(path, 4).cells[0].source == (
        "[a](other.ipynb) [b](other.ipynb#x) [c](../notation.md) [d](../notation.md) [e](lost.md) "
        "[f](https://x.org/other.md)"
    )


def test_the_stamp_moves_with_source_library_and_records(tmp_path, monkeypatch):
    source, results = tmp_path / "a.md", tmp_path / "results"
    results.mkdir()
    monkeypatch.setenv("CEVIT_RESULTS", str(results))
    source.write_text("one")
    first = pages.stamp(source)
    assert pages.stamp(source) == first
    (results / "r.json").write_text("{}")
    with_record = pages.stamp(source)
    source.write_text("two")
    with_text = pages.stamp(source)
    monkeypatch.setattr(pages, "source_hash", lambda: "another library")
    assert len({first, with_record, with_text, pages.stamp(source)}) == 4


def test_a_chapter_without_source_is_named(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "_toc.yml").write_text(
        "root: a\nchapters:\n- file: book/executed/lost\n- file: book/notation\n"
    )
    with pytest.raises(NotebookError, match="lost.md"):
        pages.chapters(tmp_path)


# --- planted faults in a small book with the project's own settings


def small_book(folder: Path, text: str) -> Path:
    """A book of one chapter with the project's `_config.yml`, its styles and its bibliography."""
    shutil.copy(ROOT / "_config.yml", folder)
    shutil.copytree(ROOT / "assets", folder / "assets", ignore=shutil.ignore_patterns("mathjax"))
    (folder / "book").mkdir()
    shutil.copytree(ROOT / "book" / "_templates", folder / "book" / "_templates")
    shutil.copy(ROOT / "book" / "references.bib", folder / "book")
    (folder / "_toc.yml").write_text(
        "format: jb-book\nroot: book/preface\nchapters:\n- file: book/executed/chapter\n"
    )
    (folder / "book" / "preface.md").write_text("# A book\n\n```{bibliography}\n```\n")
    (folder / "book" / "executed").mkdir()
    made = notebook(
        nbformat.v4.new_markdown_cell(text),
        cell("1 + 1", [said("2")]),
        kernelspec={"name": "python3", "display_name": "Python 3", "language": "python"},
    )
    nbformat.write(made, folder / "book" / "executed" / "chapter.ipynb")
    return folder


GOOD_TEXT = """# A chapter

See {cite}`genz2004numerical` and {eq}`eq-one`.

$$
a = b
$$ (eq-one)
"""


def test_a_small_good_book_builds(tmp_path):
    """The control: without it the next test could pass for any reason."""
    assert pages.render(small_book(tmp_path, GOOD_TEXT)) is None
    assert (tmp_path / "_build" / "html" / "index.html").is_file()


def test_missing_references_fail_the_build_by_name(tmp_path):
    planted = [
        "{cite}`nobody1999nothing`",
        "{ref}`no-such-label`",
        "{eq}`eq-none`",
        "{term}`unheard-of`",
        "![x](no_such_picture.png)",
    ]
    said = pages.render(small_book(tmp_path, GOOD_TEXT + "\n\n".join(["", *planted])))
    assert said is not None
    for name in (
        "nobody1999nothing",
        "no-such-label",
        "eq-none",
        "unheard-of",
        "no_such_picture.png",
    ):
        assert name in said, f"{name} is not named in:\n{said}"


def test_a_page_of_the_contents_that_does_not_exist_fails_the_build(tmp_path):
    book = small_book(tmp_path, GOOD_TEXT)
    (book / "book" / "executed" / "chapter.ipynb").unlink()
    assert "chapter" in (pages.render(book) or "")


def test_a_faulty_notebook_does_not_get_into_the_book(tmp_path, monkeypatch):
    """A page that failed leaves neither itself nor an older one of its name behind, and no book is built."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "cevit_lib").mkdir()
    for name in ("fine", "smoked", "broken"):
        (tmp_path / "notebooks" / f"{name}.md").write_text("x")
    listed = "".join(f"- file: book/executed/{name}\n" for name in ("fine", "smoked", "broken"))
    (tmp_path / "_toc.yml").write_text(f"root: book/preface\nchapters:\n{listed}")
    final = tmp_path / "book" / "executed"
    final.mkdir(parents=True)
    (final / "broken.ipynb").write_text("an older state")
    (final / "gone.ipynb").write_text("no longer in the contents")

    def run(sources, folder, scale, jobs=2):
        folder.mkdir(parents=True, exist_ok=True)
        for source in sources:
            outputs = [said("SMOKE RUN · record")] if source.stem == "smoked" else []
            nbformat.write(notebook(cell(outputs=outputs)), folder / f"{source.stem}.ipynb")
        return {
            source.stem: "cell 3 failed" if source.stem == "broken" else None for source in sources
        }

    monkeypatch.setattr(pages, "execute", run)
    monkeypatch.setenv("CEVIT_ROOT", str(tmp_path))
    faults = pages.build()
    assert (
        faults["fine"] is None
        and "smoke run" in faults["smoked"]
        and faults["broken"] == "cell 3 failed"
    )
    assert [path.name for path in final.iterdir()] == ["fine.ipynb"]
    assert not (tmp_path / "_build").exists(), "a book with a faulty page was built all the same"
    assert pages.main(["build"]) == 1


def test_the_contents_name_only_files_that_exist_or_are_made():
    names = list(pages._files(yaml.safe_load((ROOT / "_toc.yml").read_text())))
    assert len(names) == len(set(names))
    for name in names:
        if Path(name).parent != pages.EXECUTED:
            assert (ROOT / f"{name}.md").is_file(), name
