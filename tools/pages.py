"""From notebooks to a rendered book: run, look at what came out, dress it for the page, build.

Commands (the Makefile is a thin wrapper)::

    python -m tools.pages build     every page of _toc.yml at scale=stored, then HTML in _build/html
    python -m tools.pages test      that, smoke runs, then the tests; ends with their summary

Each ends with a non-zero exit and names the fault. Notebooks run through ``cevit run``, so a
notebook that did not reach its last cell never gets as far as the book. A page is run again when
its source, a module that it imported, a record or file that it read, the locked packages or Python
have changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock, Timeout
from sphinx_external_toc.parsing import parse_toc_yaml

from cevit_lib.edge import guarded, in_words
from cevit_lib.errors import NotebookError, ParameterError
from cevit_lib.paths import project_root
from tools.dress import dress, scan
from tools.inputs import changed, remember

EXECUTED = Path("book/executed")
#: The longest runs begin first, or the last of them would run alone.
LONGEST = ("your_eyes", "ablation", "fit", "simulation", "estimation", "copula_loss")
#: Two at a time, whatever runs: notebooks or Sphinx, each with one thread.
POOL = ThreadPoolExecutor(2)
Faults = dict[str, str | None]


def all_notebooks(root: Path | None = None) -> list[Path]:
    """Every notebook, by name."""
    return sorted(((root or project_root()) / "notebooks").glob("*.md"))


def contents(root: Path | None = None) -> list[str]:
    """Every page in ``_toc.yml``, in the order of the book, as ``book/NAME`` without a suffix."""
    return list(parse_toc_yaml((root or project_root()) / "_toc.yml"))


def chapters(root: Path | None = None) -> list[Path]:
    """The notebooks that stand in ``_toc.yml``, in the order of the book.

    Raises
    ------
    NotebookError
        A chapter of the table of contents has no source in ``notebooks``.
    """
    root = root or project_root()
    names = [Path(name).name for name in contents(root) if Path(name).parent == EXECUTED]
    found = [root / "notebooks" / f"{name}.md" for name in names]
    if missing := [path.name for path in found if not path.is_file()]:
        raise NotebookError(
            f"_toc.yml names chapters without a source in notebooks: {', '.join(missing)}"
        )
    return found


def execute(sources: list[Path], folder: Path, scale: str) -> Faults:
    """Run notebooks by ``cevit run``, each in a process of its own, two at a time.

    Parameters
    ----------
    sources : list of Path
        Markdown notebooks.
    folder : Path
        Where ``NAME.ipynb`` goes, and ``NAME.json`` with what it read.
    scale : str
        ``stored``, ``smoke`` or ``paper``.

    Returns
    -------
    faults : dict
        Notebook name -> what went wrong, or None.
    """
    folder.mkdir(parents=True, exist_ok=True)
    root, ended = project_root(), []
    environment = {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        **os.environ,
        "CEVIT_ROOT": str(root),
        "CEVIT_SCRATCH": str(root / "build" / "smoke"),
        "PYTHONHASHSEED": "0",
        "TQDM_DISABLE": "1",
    }

    def run(source: Path) -> tuple[str, str | None]:
        begun, target = time.monotonic(), folder / source.stem
        command = [sys.executable, "-m", "cevit_lib.clinic.cli", "run", str(source)]
        command += ["--output", f"{target}.ipynb"]
        if takes_scale(source):
            command += ["-p", "scale", scale]
        reads = {"CEVIT_READS": f"{target}.json"}
        done = subprocess.run(command, env=environment | reads, capture_output=True, text=True)
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-25:])
        fault = (said or f"exit {done.returncode}") if done.returncode else None
        ended.append(source)
        took = f"{source.stem} ({scale}): {time.monotonic() - begun:.0f} s"
        failed = "FAILED " if fault else ""
        print(f"{len(ended)} of {len(sources)}  {failed}{took}", flush=True)
        return source.stem, fault

    rank = {name: place for place, name in enumerate(LONGEST)}
    longest_first = sorted(sources, key=lambda source: rank.get(source.stem, len(rank)))
    return dict(POOL.map(run, longest_first))


def takes_scale(source: Path) -> bool:
    """Whether a notebook has the parameter ``scale``; a page that only computes light things needs
    none."""
    from cevit_lib.runner.notebook import notebook_parameters, read_notebook

    try:
        return "scale" in notebook_parameters(read_notebook(source), source.name)
    except (NotebookError, ParameterError):
        return True  # the runner will say what is wrong with it


def make_pages() -> Faults:
    """Bring ``book/executed`` up to date with ``_toc.yml`` and return name -> fault.

    A page whose run failed or whose output may not be published is not put there, and an old one of
    the same name is taken away.
    """
    root = project_root()
    final, raw = root / EXECUTED, root / "build" / "executed"
    final.mkdir(parents=True, exist_ok=True)
    sources = {source.stem: source for source in chapters(root)}
    for old in final.glob("*.ipynb"):
        if old.stem not in sources:
            old.unlink()
    due = [source for name, source in sources.items() if changed(raw / f"{name}.inputs.json")]
    faults: Faults = dict.fromkeys(sources)
    since = time.time()
    faults |= execute(due, raw, "stored")
    for source in due:
        (final / f"{source.stem}.ipynb").unlink(missing_ok=True)
        try:
            faults[source.stem] = faults[source.stem] or _put_in_place(source, raw, final, since)
        except OSError as error:  # what the other pages said is not lost over it
            faults[source.stem] = in_words(error)
    return faults


def _put_in_place(source: Path, raw: Path, final: Path, since: float) -> str | None:
    """Look at an executed page and put it into the book; return what forbids it."""
    made, page = raw / f"{source.stem}.ipynb", final / f"{source.stem}.ipynb"
    if fault := "; ".join(scan(made)):
        return fault
    dress(made)
    os.replace(made, page)
    reads = json.loads(made.with_suffix(".json").read_text(encoding="utf-8"))
    lock, python = project_root() / "requirements.lock", Path(sys.prefix) / "pyvenv.cfg"
    inputs = [*reads, source, Path(__file__).with_name("dress.py"), lock, python, page]
    remember(raw / f"{source.stem}.inputs.json", inputs, since, made=page)
    return None


def jupyter_book(root: Path, *options: str) -> subprocess.CompletedProcess:
    """Call ``jupyter-book build`` of this very Python."""
    program = "from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-c", program, "build", str(root), *options]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


def render(root: Path | None = None) -> str | None:
    """Build the HTML with every warning an error; return what went wrong, or None.

    With nothing changed since the last good build nothing is done; a changed page is read alone;
    anything else (the library with its docstrings, settings, styles) is read afresh. Jupyter Book 2
    would ignore ``_config.yml`` and end well without these pages, so their presence is checked too.
    """
    root = root or project_root()
    html, memory = root / "_build" / "html", root / "_build" / "inputs.json"
    pages = [*(root / "book").glob("*.md"), *(root / EXECUTED).glob("*.ipynb")]
    frame = [root / "_config.yml", root / "_toc.yml", *(root / "book").glob("*.bib")]
    frame += [
        path
        for folder in ("assets", "book/_templates", "book/api")
        for path in _within(root / folder)
    ]
    frame += [path for folder in ("cevit_lib", "tools") for path in _within(root / folder, ".py")]
    moved = changed(memory, [*pages, *frame, "$CEVIT_REPOSITORY"])
    if not moved:
        return None
    since, few = time.time(), moved <= set(map(str, pages))
    memory.unlink(missing_ok=True)
    done = jupyter_book(root, "-W", "-n", "--keep-going", *([] if few else ["--all"]))
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    if done.returncode:
        lines = [line for line in said.splitlines() if re.search("WARNING|ERROR|rror:", line)]
        return "\n".join(lines) or said[-3000:]
    if missing := [name for name in contents(root) if not (html / f"{name}.html").is_file()]:
        return f"pages were not written: {', '.join(missing)}"
    remember(memory, [*pages, *frame, "$CEVIT_REPOSITORY"], since)
    return None


def _within(folder: Path, suffix: str = "") -> list[Path]:
    return sorted(path for path in folder.rglob(f"*{suffix}") if path.is_file())


def publish(faults: Faults) -> Faults:
    """HTML of the pages. With a faulty page none is made: a book is published whole or not at
    all."""
    return faults if any(faults.values()) else faults | {"HTML": render()}


def build() -> Faults:
    """Pages, then HTML."""
    return publish(make_pages())


def build_and_smoke() -> dict[str, Faults]:
    """Build the book and run every notebook at scale=smoke; a page without the parameter runs
    once."""
    pages = make_pages()
    html = POOL.submit(publish, pages)  # beside the first smoke runs
    once = {name for name in pages if not takes_scale(project_root() / f"notebooks/{name}.md")}
    others = [source for source in all_notebooks() if source.stem not in once]
    smoked = execute(others, project_root() / "build" / "smoke", "smoke")
    return {"smoke": {name: pages[name] for name in once} | smoked, "build": html.result()}


def _report(stage: str, faults: Faults) -> bool:
    """Print faults; True when there are none."""
    for name, fault in faults.items():
        if fault:
            print(f"\n{stage}: {name}: {fault}", file=sys.stderr)
    bad = sum(bool(fault) for fault in faults.values())
    print(f"{stage}: {len(faults) - bad} of {len(faults)} good", flush=True)
    return not bad


def test() -> int:
    """The book and the smoke runs, then pytest, which is told how both went and reports them in its
    own summary."""
    stages = build_and_smoke()
    for stage, faults in stages.items():
        _report(stage, faults)
    report = project_root() / "build" / "stages.json"
    report.write_text(json.dumps(stages, indent=1), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-m", "not weekly", "-n", "2", "--dist", "loadfile"]
    environment = os.environ | {"CEVIT_STAGES": str(report)}
    return subprocess.run(command, cwd=project_root(), env=environment).returncode


def publish_book() -> int:
    """Build the book and say where it is."""
    good = _report("build", build())
    if good:
        page = project_root() / "_build" / "html" / "index.html"
        print(f"the book is in {page}; open it with a browser: {page.as_uri()}")
    return 0 if good else 1


def main(arguments: list[str] | None = None) -> int:
    """Entry of ``python -m tools.pages``."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.pages", description=__doc__.splitlines()[0]
    )
    parser.add_argument("command", choices=("build", "test"))
    options = parser.parse_args(arguments)
    work = test if options.command == "test" else publish_book
    return guarded("python -m tools.pages", lambda: alone(work), refused=1)


def alone(work: Callable[[], int]) -> int:
    """Do some work while nobody else builds in this clone.

    Raises
    ------
    NotebookError
        Somebody does.
    """
    root = project_root()
    (root / "build").mkdir(exist_ok=True)
    try:
        with FileLock(root / "build" / "lock", timeout=0):
            return work()
    except Timeout:
        raise NotebookError(
            f"another build is at work in {root}; wait until it has ended"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
