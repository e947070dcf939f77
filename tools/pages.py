"""From notebooks to a rendered book: run, look at what came out, dress it for the page, build.

Commands (the Makefile is a thin wrapper)::

    python -m tools.pages build     every page of _toc.yml at scale=stored, scanned, then HTML in _build/html
    python -m tools.pages smoke     every notebook at scale=smoke into build/smoke
    python -m tools.pages check     only look at what lies in book/executed
    python -m tools.pages test      smoke, build, then the test suite; ends with the suite's own summary

Each ends with a non-zero exit and names the fault. Notebooks run through ``cevit run``, so a notebook that
did not reach its last cell never gets as far as the book.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cevit_lib.errors import NotebookError, ParameterError
from cevit_lib.paths import project_root, results_folder
from cevit_lib.records.provenance import source_hash

EXECUTED = Path("book/executed")
SMOKE_MARKS = (
    "SMOKE RUN",
    "smoke run: not a result",
)  # the badge's mark and the one across a figure
DIRTY_MARK = "DIRTY ·"  # the badge of records made with uncommitted code
_SENTINEL = re.compile(r"^\s*(\w+\.)*finished\(\)\s*$", re.MULTILINE)
_BADGE = re.compile(r"^(\w+\.)*(live_)?badge\(.*\)\s*\Z", re.MULTILINE)  # the cell's last line
_LINK = re.compile(r"\]\((\.\./book/)?(\w+)\.md((?:#[\w-]+)?)\)")
LARGEST_PAGE = (
    2_000_000  # bytes of an executed notebook: more is nearly always a progress bar or a photograph
)


def all_notebooks(root: Path | None = None) -> list[Path]:
    """Every notebook, by name."""
    return sorted(((root or project_root()) / "notebooks").glob("*.md"))


def chapters(root: Path | None = None) -> list[Path]:
    """The notebooks that stand in ``_toc.yml``, in the order of the book.

    Raises
    ------
    NotebookError
        A chapter of the table of contents has no source in ``notebooks``.
    """
    import yaml

    root = root or project_root()
    table = yaml.safe_load((root / "_toc.yml").read_text())
    found = [
        root / "notebooks" / f"{Path(name).stem}.md"
        for name in _files(table)
        if Path(name).parent == EXECUTED
    ]
    missing = [path.name for path in found if not path.is_file()]
    if missing:
        raise NotebookError(
            f"_toc.yml names chapters without a source in notebooks: {', '.join(missing)}"
        )
    return found


def _files(entry: object) -> Iterable[str]:
    """Names under ``root`` and ``file`` anywhere in a table of contents."""
    if isinstance(entry, dict):
        for key, value in entry.items():
            if key in ("root", "file"):
                yield str(value).removesuffix(".ipynb").removesuffix(".md")
            else:
                yield from _files(value)
    elif isinstance(entry, list):
        for value in entry:
            yield from _files(value)


def stamp(source: Path) -> str:
    """Hash of all that can change a page: its source, the library, the records, the locked packages and Python."""
    root = project_root()
    parts = [source.read_bytes(), source_hash().encode(), sys.version.encode()]
    lock = root / "requirements.lock"
    parts.append(lock.read_bytes() if lock.is_file() else b"")
    for record in sorted(path for path in results_folder().rglob("*") if path.is_file()):
        parts.append(record.relative_to(results_folder()).as_posix().encode() + record.read_bytes())
    # the pages about real eyes look different where the data are
    parts.append(b"data" if os.environ.get("CEVIT_DATA") else b"no data")
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def execute(sources: list[Path], folder: Path, scale: str, jobs: int = 2) -> dict[str, str | None]:
    """Run notebooks by ``cevit run``, each in a process of its own, ``jobs`` at a time.

    Parameters
    ----------
    sources : list of Path
        Markdown notebooks.
    folder : Path
        Where ``NAME.ipynb`` goes.
    scale : str
        ``stored``, ``smoke`` or ``paper``.

    Returns
    -------
    faults : dict
        Notebook name -> what went wrong, or None.
    """
    folder.mkdir(parents=True, exist_ok=True)
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    environment = os.environ | {
        "CEVIT_ROOT": str(project_root()),
        "CEVIT_SCRATCH": str(project_root() / "build" / "smoke"),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "PYTHONHASHSEED": "0",
        "TQDM_DISABLE": "1",
    }

    def run(source: Path) -> tuple[str, str | None]:
        begun = time.monotonic()
        target = folder / f"{source.stem}.ipynb"
        command = [
            sys.executable,
            "-m",
            "cevit_lib.clinic.cli",
            "run",
            str(source),
            "--output",
            str(target),
        ]
        if _takes_scale(source):
            command += ["-p", "scale", scale]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        fault = None
        if done.returncode:
            fault = (
                "\n".join((done.stdout + done.stderr).strip().splitlines()[-25:])
                or f"exit {done.returncode}"
            )
        took = time.monotonic() - begun
        print(f"{'FAILED ' if fault else ''}{source.stem} ({scale}): {took:.0f} s", flush=True)
        return source.stem, fault

    with ThreadPoolExecutor(jobs) as pool:
        return dict(pool.map(run, sources))


def _takes_scale(source: Path) -> bool:
    """Whether a notebook has the parameter ``scale``; a page that only computes light things needs none."""
    from cevit_lib.runner.convert import notebook_parameters, read_notebook

    try:
        return "scale" in notebook_parameters(read_notebook(source), source.name)
    except (NotebookError, ParameterError):
        return True  # the runner will say what is wrong with it


def scan(path: Path) -> list[str]:
    """What forbids an executed notebook to be published; an empty list when nothing does.

    Looks for error outputs, cells that were not run, output of a smoke run or of uncommitted code, figures without
    name, caption or alternative text, and oversized output.
    """
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    faults = []
    if path.stat().st_size > LARGEST_PAGE:
        faults.append(
            f"is {path.stat().st_size / 1e6:.1f} MB large, more than {LARGEST_PAGE / 1e6:.0f} MB"
        )
    injected = notebook.metadata.get("papermill", {}).get("parameters", {})
    if injected.get("scale", "stored") == "smoke":
        faults.append("was run at scale=smoke")
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and cell.source.strip():
            faults += [f"cell {number}: {fault}" for fault in _cell_faults(cell)]
    return faults


def _cell_faults(cell) -> Iterable[str]:
    if cell.execution_count is None:
        yield f"was not executed ({cell.source.strip().splitlines()[0][:60]!r})"
    text = ""
    for output in cell.outputs:
        kinds = output.get("data", {})
        if output.output_type == "error":
            yield f"failed with {output.ename}: {output.evalue[:200]}"
        plain = "".join(kinds.get("text/plain", ""))
        text += "".join(output.get("text", "")) + plain
        pictured = any(kind.startswith("image/") for kind in kinds)
        if plain.startswith("<Figure size") and not pictured:
            yield "prints a figure's size instead of the figure (use cevit_lib.clinic.style.new_figure)"
        if pictured:
            options = cell.metadata.get("mystnb", {})
            wanted = {
                "figure: name": options.get("figure", {}).get("name"),
                "figure: caption": options.get("figure", {}).get("caption"),
                "image: alt": options.get("image", {}).get("alt"),
            }
            missing = [key for key, value in wanted.items() if not value]
            if missing:
                yield f"draws a figure without {', '.join(missing)} in its mystnb metadata"
    if any(mark in text for mark in SMOKE_MARKS):
        yield "shows numbers of a smoke run"
    if DIRTY_MARK in text:
        yield "shows numbers made with uncommitted code"


def dress(path: Path, mark: str | None = None) -> None:
    """Make an executed notebook fit for the page, in place.

    The parameters and their check are folded; what papermill injected, the closing cell and the code of the line below
    a figure are taken off the page. Links between sources become links between pages. The paths and times that
    papermill wrote are removed, so that the file says nothing of the machine. ``mark`` (see `stamp`) is kept so that an
    unchanged page is not run again.
    """
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(_link_on_the_page, cell.source)
        tags = set(cell.metadata.get("tags", []))
        code = cell.source if cell.cell_type == "code" else ""
        if "parameters" in tags or "check_parameters(" in code:
            tags.add("hide-input")
        if "injected-parameters" in tags or _SENTINEL.search(code):
            tags.add("remove-cell")
        if "hide-input" in tags and _BADGE.search(code):
            tags = tags - {"hide-input"} | {"remove-input"}
        kept = {
            key: value
            for key, value in cell.metadata.items()
            if key not in ("papermill", "execution", "tags")
        }
        prompt = (
            "Parameters"
            if "parameters" in tags
            else "Check of the parameters"
            if "check_param" in code
            else None
        )
        if prompt:
            kept["mystnb"] = {"code_prompt_show": prompt, "code_prompt_hide": prompt} | dict(
                kept.get("mystnb", {})
            )
        cell.metadata = nbformat.from_dict(kept | ({"tags": sorted(tags)} if tags else {}))
    kernel = notebook.metadata.get(
        "kernelspec", {"name": "python3", "display_name": "Python 3", "language": "python"}
    )
    language = notebook.metadata.get("language_info", {"name": "python"})
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": kernel, "language_info": language, "cevit": {"stamp": mark}}
    )
    text = nbformat.writes(notebook)
    temporary = path.with_suffix(".dressed")
    temporary.write_text(text + "\n", encoding="utf-8")
    os.replace(temporary, path)


def _link_on_the_page(found: re.Match) -> str:
    """A link between sources, as it must read on the executed page: chapters lie beside it, prose one folder up."""
    folder, name, rest = found.groups()
    if not folder and (project_root() / "notebooks" / f"{name}.md").is_file():
        return f"]({name}.ipynb{rest})"
    if (project_root() / "book" / f"{name}.md").is_file():
        return f"](../{name}.md{rest})"
    return found.group()  # the build will name it


def kept(path: Path, mark: str) -> bool:
    """Whether a dressed page was made from exactly this source, library, records and packages."""
    try:
        return json.loads(path.read_text())["metadata"]["cevit"]["stamp"] == mark and not scan(path)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def make_pages() -> dict[str, str | None]:
    """Bring ``book/executed`` up to date with ``_toc.yml`` and return name -> fault.

    A page whose run failed or whose output may not be published is not put there, and an old one of the same name is
    taken away.
    """
    root = project_root()
    final, raw = root / EXECUTED, root / "build" / "executed"
    final.mkdir(parents=True, exist_ok=True)
    sources = {source.stem: source for source in chapters(root)}
    for old in final.glob("*.ipynb"):
        if old.stem not in sources:
            old.unlink()
    marks = {name: stamp(source) for name, source in sources.items()}
    due = [
        source for name, source in sources.items() if not kept(final / f"{name}.ipynb", marks[name])
    ]
    faults: dict[str, str | None] = dict.fromkeys(sources)
    faults |= execute(due, raw, "stored")
    for source in due:
        made, page = raw / f"{source.stem}.ipynb", final / f"{source.stem}.ipynb"
        page.unlink(missing_ok=True)
        if faults[source.stem] is None:
            faults[source.stem] = "; ".join(scan(made)) or None
        if faults[source.stem] is None:
            os.replace(made, page)
            dress(page, marks[source.stem])
    return faults


def check(folder: Path | None = None) -> dict[str, str | None]:
    """Scan every page in a folder of executed notebooks (default ``book/executed``)."""
    folder = folder or project_root() / EXECUTED
    return {path.stem: "; ".join(scan(path)) or None for path in sorted(folder.glob("*.ipynb"))}


def render(root: Path | None = None) -> str | None:
    """Build the HTML with every warning an error; return what went wrong, or None.

    Jupyter Book 2 would ignore ``_config.yml`` and end well without these pages, so their presence is checked too.
    """
    root = root or project_root()
    program = "from jupyter_book.cli.main import main; main()"
    command = [
        sys.executable,
        "-c",
        program,
        "build",
        str(root),
        "-W",
        "-n",
        "--keep-going",
        "--all",
    ]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    if done.returncode:
        lines = [
            line
            for line in said.splitlines()
            if "WARNING" in line or "ERROR" in line or "rror:" in line
        ]
        return "\n".join(lines) or said[-3000:]
    html = root / "_build" / "html"
    import yaml

    names = _files(yaml.safe_load((root / "_toc.yml").read_text()))
    missing = [name for name in names if not (html / f"{name}.html").is_file()]
    return f"pages were not written: {', '.join(missing)}" if missing else None


def build() -> dict[str, str | None]:
    """Pages, then HTML. With a faulty page no HTML is made: a book is published whole or not at all."""
    faults = make_pages()
    if any(faults.values()):
        return faults
    return faults | check() | {"HTML": render()}


def smoke() -> dict[str, str | None]:
    """Every notebook at scale=smoke, live, into ``build/smoke``."""
    return execute(all_notebooks(), project_root() / "build" / "smoke", "smoke")


def _report(stage: str, faults: dict[str, str | None]) -> bool:
    """Print faults; True when there are none."""
    for name, fault in faults.items():
        if fault:
            print(f"\n{stage}: {name}: {fault}", file=sys.stderr)
    bad = sum(bool(fault) for fault in faults.values())
    print(f"{stage}: {len(faults) - bad} of {len(faults)} good", flush=True)
    return not bad


def test(arguments: list[str]) -> int:
    """Smoke runs, the book, then pytest, which is told how both stages went and reports them in its own summary."""
    stages = {"smoke": smoke(), "build": build()}
    for stage, faults in stages.items():
        _report(stage, faults)
    report = project_root() / "build" / "stages.json"
    report.parent.mkdir(exist_ok=True)
    report.write_text(json.dumps(stages, indent=1))
    environment = os.environ | {"CEVIT_STAGES": str(report)}
    command = [sys.executable, "-m", "pytest", "-m", "not weekly", "-n", "2", "--dist", "loadfile"]
    return subprocess.run([*command, *arguments], cwd=project_root(), env=environment).returncode


def main(arguments: list[str] | None = None) -> int:
    """Entry of ``python -m tools.pages``."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.pages", description=__doc__.splitlines()[0]
    )
    parser.add_argument("command", choices=("build", "smoke", "check", "test"))
    parser.add_argument("rest", nargs="*", help="test: arguments for pytest, after --")
    options = parser.parse_args(arguments)
    if options.command == "test":
        return test(options.rest)
    faults = {"build": build, "smoke": smoke, "check": check}[options.command]()
    good = _report(options.command, faults)
    if good and options.command == "build":
        print(f"the book is in {project_root() / '_build' / 'html' / 'index.html'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
