"""The strict runner: every way in which a run can go wrong ends in a message that names it, and
loses nothing."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import nbformat
import papermill
import psutil
import pytest

from cevit_lib.edge import read_mapping
from cevit_lib.errors import NotebookError, OutputError, ParameterError
from cevit_lib.runner import check_parameters, declared_parameters, run_notebook
from cevit_lib.runner import run as run_module
from cevit_lib.runner.engine import Watch
from cevit_lib.runner.notebook import read_notebook
from cevit_lib.runner.run import default_output, join_pairs

ROOT = Path(__file__).resolve().parents[1]
PAGE = """---
kernelspec:
  display_name: somebody's own
  name: not-python3
---

# Tiny

```{code-cell} ipython3
:tags: [parameters]

scale: str = "smoke"
rate: float = 1e-4
seeds: list[int] = [0, 1]
flag: bool = True
what: str = "nothing"
target: str = ""
```

```{code-cell} ipython3
from cevit_lib.runner import check_parameters, finished
check_parameters({
    "scale": (str, ("stored", "smoke", "paper")),
    "rate": (float, (0, 1)),
    "seeds": (list[int], (0, None)),
    "flag": bool,
    "what": str,
    "target": str,
}, globals())
```

```{code-cell} ipython3
# a comment is no name for a cell
import os, signal, subprocess, sys, time
print(repr((rate, seeds, flag, scale)))
if what == "fail":
    raise ValueError("planted")
if what == "sleep":
    time.sleep(600)
if what == "die":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(target, "w") as file:
        file.write(str(child.pid))
    os.kill(os.getpid(), signal.SIGKILL)
if what == "exit":
    sys.exit(0)
if what == "write":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    from cevit_lib.records.store import write_whole
    from pathlib import Path
    count = 0
    while True:
        write_whole(Path(target), b'{"filler": "' + b"x" * 2_000_000 + b'"}')
        write_whole(Path(target + ".pids"), f"{os.getpid()} {child.pid}".encode())
```

```{code-cell} ipython3
:tags: [remove-cell]

finished()
```
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """A page, beside somebody's kernel of the name that every Python's kernel has."""
    path = tmp_path_factory.mktemp("pages") / "tiny.md"
    path.write_text(PAGE)
    spec = path.parent / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": ["/bin/false"], "display_name": "x", "language": "python"}))
    return path


def start(page: Path, output: Path, *options: str, **more) -> subprocess.Popen:
    # from a folder that is not the project's: nothing may depend on where the command starts
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "cevit_lib.clinic.cli",
            "run",
            str(page),
            "-o",
            str(output),
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=page.parent,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "CEVIT_ROOT": str(ROOT), "JUPYTER_PATH": str(page.parent)},
        **more,
    )


def wait_for(condition, seconds: float = 120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def is_running(process: int) -> bool:
    return any(
        one.pid == process and one.info["status"] != psutil.STATUS_ZOMBIE
        for one in psutil.process_iter(["status"])
    )


RUNS = {
    "deep/fine": "-p what nothing -p rate 1e-3 -p seeds [3,4] -p flag false",
    "fail": "-p what fail",
    "die": "-p what die -p target {folder}/worker",
    "exit": "-p what exit",
    "sleep": "-p what sleep --timeout 6",
}


@pytest.fixture(scope="module")
def ended(page, tmp_path_factory) -> dict:
    """All planted faults at once: five parallel runs must not get in each other's way either."""
    folder = tmp_path_factory.mktemp("out")
    (folder / "fail.ipynb").write_text("an earlier run")
    runs = {
        name: start(page, folder / f"{name}.ipynb", *options.format(folder=folder).split())
        for name, options in RUNS.items()
    }
    return {
        name: (*run.communicate(timeout=300), run.returncode, folder) for name, run in runs.items()
    }


def test_good_run_is_put_in_place_with_typed_parameters_and_hidden_cells(ended):
    out, err, status, folder = ended["deep/fine"]
    assert status == 0, err
    text = (folder / "deep" / "fine.ipynb").read_text()
    notebook = json.loads(text)
    assert "(0.001, [3, 4], False, 'smoke')" in text
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    # neither the nonce nor a path of this machine is published
    assert "finished " not in "".join(str(cell.get("outputs")) for cell in notebook["cells"])
    assert str(folder) not in text and str(ROOT) not in text
    assert sorted(path.name for path in (folder / "deep").iterdir()) == ["fine.ipynb"]
    # without a terminal: one line per cell, and nothing that redraws a line
    assert len(re.findall(r"^tiny \[\d/5\]", err, re.MULTILINE)) == 5 and "\r" not in err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fail", ["code cell 4 of 5", "import os, signal", "ValueError: planted"]),
        ("die", ["code cell 4 of 5", "kernel died", "out of memory"]),
        ("sleep", ["code cell 4 of 5", "longer than --timeout 6 s"]),
        ("exit", ["stopped before its last cell"]),
    ],
)
def test_planted_fault_is_named_and_the_notebook_kept(ended, name, words):
    out, err, status, folder = ended[name]
    assert status == 1, err
    message = err.strip().splitlines()[-1]
    assert all(word in message for word in [*words, "tiny.md", f"{name}.failed.ipynb"]), message
    assert "Traceback" not in err
    assert json.loads((folder / f"{name}.failed.ipynb").read_text())["cells"]
    if name == "fail":
        assert (folder / "fail.ipynb").read_text() == "an earlier run"
    if name == "die":  # a kernel that is killed leaves its workers to us
        wait_for(lambda: not is_running(int((folder / "worker").read_text())), seconds=5)
    assert not list(folder.glob(".*"))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to send to another process")
def test_sigterm_ends_a_stubborn_kernel_and_its_children_and_leaves_no_half_record(page, tmp_path):
    target, output = tmp_path / "record.json", tmp_path / "tiny.ipynb"
    output.write_text("an earlier run")
    pids = Path(f"{target}.pids")
    run = start(page, output, "-p", "what", "write", "-p", "target", str(target))
    wait_for(lambda: pids.is_file() or run.poll() is not None)
    kernel, child = map(int, pids.read_text().split())
    run.send_signal(signal.SIGTERM)
    err = run.communicate(timeout=60)[1]
    assert run.returncode == 128 + signal.SIGTERM
    assert "stopped by SIGTERM in code cell 4 of 5" in err and "Traceback" not in err
    # the command has returned: kernel and child are gone, or are going
    wait_for(lambda: not is_running(kernel) and not is_running(child), seconds=5)
    assert json.loads(target.read_text())["filler"].strip("x") == ""
    assert output.read_text() == "an earlier run"


def test_plain_papermill_runs_the_clean_copy_and_a_misspelt_name_stops_it(page, tmp_path):
    copy = tmp_path / "tiny.ipynb"
    nbformat.write(read_notebook(page), copy)
    with pytest.raises(
        papermill.PapermillExecutionError, match="unknown parameter 'rat' .nearest: 'rate'"
    ):
        papermill.execute_notebook(
            str(copy), str(tmp_path / "out.ipynb"), {"rat": 1.0}, cwd=str(ROOT), progress_bar=False
        )


# ---- before any kernel starts
# ------------------------------------------------------------------------------------


@pytest.fixture
def no_kernel(monkeypatch):
    monkeypatch.setattr(run_module, "_execute", Mock(side_effect=AssertionError("it was started")))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rat": 1}, "unknown parameter 'rat' .nearest: 'rate'"),
        ({"zzz": 1}, r"unknown parameter 'zzz'\. This notebook takes: scale, rate"),
        ({"rate": "fast"}, "'rate' must be float, got str 'fast'"),
        ({"rate": "NaN"}, "'rate' must be float"),
        ({"flag": "2"}, "'flag' must be bool, got str '2'; write -p flag true"),
        ({"flag": 1}, "'flag' must be bool, got int 1"),
        ({"seeds": "3,4"}, r"'seeds' must be list\[int\].*write -p seeds \"\[3, 4\]\""),
        ({"seeds": 3}, r"'seeds' must be list\[int\]"),
        ({"seeds": "[3, 4.5]"}, r"'seeds\[1\]' must be int, got float 4.5"),
        ({"scale": 3}, "'scale' must be str, got int 3"),
        ({"rat": 1, "flag": "2"}, "'rat'.*; parameter 'flag'"),
    ],
)
def test_bad_parameters_are_refused_before_the_kernel_starts(page, no_kernel, given, message):
    with pytest.raises(ParameterError, match=message):
        run_notebook(page, given)


@pytest.mark.parametrize(
    "line", ["a: float", "import os", "a: int = b()", "a: Path = 1", "a, b = 1, 2", "a = 1"]
)
def test_a_parameters_cell_that_cannot_be_checked_is_refused(line):
    assert declared_parameters('"""Doc."""\na: int = 1') == {"a": (int, 1)}
    with pytest.raises(ParameterError, match="may hold only 'name: type = default'"):
        declared_parameters(line)


def test_check_parameters_converts_what_papermill_gets_wrong_and_lists_every_fault():
    spec = {
        "rate": (float, (0, 1)),
        "flag": bool,
        "seeds": (list[int], (0, None)),
        "scale": (str, ("paper", "smoke")),
    }
    names = {"rate": "1e-4", "flag": "False", "seeds": "[3,4]", "scale": "smoke"}
    check_parameters(spec, names)
    assert names == {"rate": 1e-4, "flag": False, "seeds": [3, 4], "scale": "smoke"}
    wrong = {"rate": 2, "flag": "x", "seeds": [-1], "In": ["", "# Parameters\nsale = 'paper'\n"]}
    with pytest.raises(ParameterError) as caught:
        check_parameters(spec, wrong)
    told = (
        "unknown parameter 'sale' (nearest: 'scale')",
        "'rate' must lie in [0, 1], got 2",
        "'seeds' must lie in [0, None], got -1",
        "'scale' is not defined",
    )
    assert [words for words in told if words not in str(caught.value)] == []


def test_a_parameter_file_is_read_as_yaml_1_2(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text("rate: 1e-4\nseeds: [3, 4]\nword: no\nclock: 1:30\ncode: 010\nnone: ~\n")
    read = {"rate": 1e-4, "seeds": [3, 4], "word": "no", "clock": "1:30", "code": "010"}
    assert read_mapping(file) == read | {"none": None}


@pytest.mark.parametrize(
    "content, told",
    [
        ("- 1\n", "must hold lines 'name: value', got list"),
        ("a: [\n", "cannot be read"),
        ("a: 1\nb: 2\na: 3\n", "'a' stands twice"),
        ("\0", "cannot be read"),
        (None, "p.yaml cannot be read"),
    ],
)
def test_what_is_no_parameter_file_is_refused(tmp_path, content, told):
    if content:
        (tmp_path / "p.yaml").write_text(content)
    with pytest.raises(ParameterError, match=told):
        read_mapping(tmp_path / "p.yaml")


def test_pairs_on_the_command_line_may_hold_negative_numbers():
    assert join_pairs(["run", "x", "-p", "rate", "-1e-4", "-p", "a=b=c", "--scale", "smoke"]) == [
        "run",
        "x",
        "--parameter=rate=-1e-4",
        "--parameter=a=b=c",
        "--scale",
        "smoke",
    ]


def test_a_smoke_run_without_output_does_not_replace_a_page_of_the_book(page):
    declared = {"scale": (str, "stored"), "rate": (float, 1e-4)}
    for values, folder in (
        ({"scale": "smoke"}, "build/smoke"),
        ({"scale": "stored", "rate": 1e-4}, "book/executed"),
        ({}, "book/executed"),
        ({"rate": 1e-3}, "build/run"),  # another page than the book's
        ({"scale": "paper"}, "build/run"),
    ):
        assert default_output(page, values, declared) == ROOT / folder / "tiny.ipynb"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [("finished()\n", "1\n", "must call finished"), ("[parameters]", "[x]", "has 0 cells")],
)
def test_a_notebook_that_cannot_be_run_strictly_is_refused(tmp_path, no_kernel, old, new, message):
    page = tmp_path / "page.md"
    with pytest.raises(NotebookError, match="no notebook"):
        run_notebook(page.stem)
    page.write_text(PAGE.replace(old, new))
    with pytest.raises(NotebookError, match=message):
        run_notebook(page)


@pytest.mark.parametrize(
    "name, told",
    [("x.md", "NAME.ipynb"), (".", "NAME.ipynb"), ("tiny.ipynb", "is read by this command")],
)
def test_an_output_that_cannot_be_meant_is_refused(page, no_kernel, tmp_path, name, told):
    nbformat.write(read_notebook(page), tmp_path / "tiny.ipynb")
    with pytest.raises((OutputError, ParameterError), match=told):
        run_notebook(tmp_path / "tiny.ipynb", output=tmp_path / name)


def test_an_executed_notebook_runs_again_with_its_defaults(ended, tmp_path):
    folder = ended["deep/fine"][3]
    again = run_notebook(
        folder / "deep" / "fine.ipynb", {"seeds": [5]}, output=tmp_path / "again.ipynb"
    )
    text = again.read_text()
    assert "(0.0001, [5], True, 'smoke')" in text and text.count("injected-parameters") == 2
    ran = json.loads(text)["metadata"]["papermill"]["parameters"]
    assert ran["rate"] == 1e-4 and ran["seeds"] == [5], "what was run, not what was given"


def test_a_library_that_is_not_ours_is_named(page, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "HERE", tmp_path / "other")
    with pytest.raises(NotebookError, match="imported cevit_lib from .*; run it by the cevit of"):
        run_notebook(page, output=tmp_path / "out.ipynb")


@pytest.mark.parametrize(
    "status, told",
    [(-11, "SIGSEGV ended it"), (3, "ended with status 3"), (-9, "ran out of memory")],
)
def test_the_end_of_a_kernel_is_told_as_it_was(status, told):
    watch = Watch("tiny")
    code = f"import os; os.kill(os.getpid(), {-status}) if {status} < 0 else os._exit({status})"
    watch.kernel = SimpleNamespace(process=subprocess.Popen([sys.executable, "-c", code]))
    watch.kernel.process.wait()
    assert told in watch.end_of_kernel()
