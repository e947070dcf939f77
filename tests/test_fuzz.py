"""Whatever a user types and whatever files are named, no command ends in a traceback.

A try takes a good command, changes or adds some of its options (wrong kinds of file, empty and torn
ones, folders, numbers in odd spellings), now and then fills the disk, and runs it in this process.
What would train, start a kernel or ask the network is cut off there.
"""

import contextlib
import io
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cevit_lib.clinic import cli
from cevit_lib.errors import DataError, NotebookError, TrainingError
from studies.your_eyes.practice import practice_eyes

pytestmark = pytest.mark.filterwarnings("ignore")
SHORT = "--folds 2 --epochs 1 --copula-epochs 1 --estimate-on train --size 24 --max-iter 5"
GOOD = {
    "fit": [
        f"--csv {{own}}/eyes.csv --images {{own}}/photos --layout {{own}}/eyes.yml {SHORT}",
        "--data synthetic --n 60 --window 9 --folds 2 --scale smoke",
    ],
    "predict": [
        "--model {model} --csv {own}/eyes.csv --images {own}/photos --table {new}/p.csv",
        "--model {model} --csv {own}/eyes.csv --images {own}/photos --table {new}/p.csv --measured",
    ],
    "evaluate": [
        "--model {model} --csv {own}/eyes.csv --images {own}/photos --output {new}/e.html",
    ],
    "report": ["--results {records} --output {new}/r.html"],
    "check-data": ["--csv {own}/eyes.csv --images {own}/photos --layout {own}/eyes.yml"],
    "verify": ["--folder {records} --study fit-table"],
    "run": [
        "{odd}/page.md -o {new}/page.ipynb -p rate 0.1",
        "{odd}/page.md -o {new}/p.ipynb -f {odd}/p.yml",
    ],
    "download": ["grape --list --folder {new}/grape"],
    "doctor": ["--no-devices"],
}
NUMBERS = "0 -1 1 2 3 1.5 1e1 nan inf -inf 0x10 1_0 1,5 1e400 ３ ١ -0 +2 999999999999999999".split()
WORDS = [
    *NUMBERS,
    *"cpu cuda:7 tpu cpu,cpu all".split(),
    *"vit_tiny_patch16_224 vit_tiny_patch16_224.no resnet18 hf-hub:a/b".split(),
    *("", " ", "../..", "é ñ\n", "x" * 300, "--"),
]
PAGE = """```{code-cell} ipython3
:tags: [parameters]
rate: float = 0.5
```

```{code-cell} ipython3
finished()
```
"""
ODD = {  # a page, and files of another kind than their name says
    "page.md": PAGE.encode(),
    "empty": b"",
    "page": b"<!DOCTYPE html><html></html>",
    "noise": bytes(range(256)) * 20,
    "list.json": b"[1, 2]",
    "fit-table/a.json": b"[1, 2]",
    "mapping.yml": b"patient: id\npatient: name\n",
    "p.yml": b"rate: 0.2\n",
    "deep.yml": b"a: " + b"[" * 3000,
    "header.csv": b"id;AL\n",
    "one.csv": b"id,eye,AL,HM\n1,R,24,0\n",
    "utf16.csv": "id,eye\n1,R\n".encode("utf-16"),
}
CUT = {
    "cevit_lib.clinic.fold._fit": Mock(side_effect=TrainingError("it would train")),
    "cevit_lib.runner.run._execute": Mock(side_effect=NotebookError("it would run")),
    "cevit_lib.clinic.download._ask": Mock(side_effect=DataError("it would ask")),
    "cevit_lib.clinic.download.fetch": Mock(side_effect=DataError("it would fetch")),
    "cevit_lib.records.verify.refit_function": lambda study: lambda record: record,
    "cevit_lib.clinic.performance.Judged.performance.__defaults__": (4,),  # resamples
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Good files, torn copies of them and odd ones, by name."""
    base = tmp_path_factory.mktemp("fuzz")
    found = {"own": base / "own", "new": base / "new", "odd": base / "odd"}
    practice_eyes(found["own"], np.random.default_rng(0), 24, faults=False)
    (found["odd"] / "fit-table").mkdir(parents=True)
    for name, content in ODD.items():
        (found["odd"] / name).write_bytes(content)
    fit = GOOD["fit"][0].format(**found) + f" --results {base}/done --save {base}/models --fold 1"
    assert cli.main(["fit", *fit.split()]) == 0
    found |= {"model": base / "models" / "fold-1", "records": base / "done"}
    for name in ("model", "records", "own"):
        torn = base / f"torn-{name}"
        shutil.copytree(found[name], torn)
        for path in [path for path in torn.rglob("*") if path.is_file()]:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        found[f"torn-{name}"] = torn
    return found


def files(places) -> list[str]:
    """Every place that an option may name, by its template."""
    inside = [f"{{{name}}}" for name in places]
    for name in ("odd", "own", "model", "torn-model", "torn-own"):
        some = sorted(path for path in places[name].rglob("*") if path.is_file())[:12]
        inside += [f"{{{name}}}/{path.relative_to(places[name])}" for path in some]
    return [
        *inside,
        "{new}/x.csv",
        "{new}/x.ipynb",
        "{own}/eyes.csv/below",
        "/proc/no/x",
        "nowhere",
    ]


def options_of(command: str) -> list:
    commands = cli.build_parser(command)._subparsers._group_actions[0].choices
    return [one for one in commands[command]._actions if one.dest != "help"]


@st.composite
def tries(draw, places):
    """A command's words, and whether the disk is full."""
    command = draw(st.sampled_from(sorted(GOOD)))
    told = draw(st.sampled_from(GOOD[command])).split()
    for option in draw(st.lists(st.sampled_from(options_of(command)), max_size=3)):
        if option.choices is not None:
            value = draw(st.sampled_from([*map(str, option.choices), "other"]))
        elif option.type in (None, Path):
            value = draw(st.sampled_from(files(places) * 2 + WORDS))
        else:
            value = draw(st.sampled_from(NUMBERS))
        if option.option_strings:  # the last one counts
            told.append(option.option_strings[-1] + (f"={value}" if option.nargs != 0 else ""))
        else:
            told[0] = value
    return [command, *(word.format(**places) for word in told)], draw(st.integers(0, 4)) == 0


def state(places) -> dict:
    inputs = [place for name, place in places.items() if name != "new"]
    paths = [path for place in inputs for path in (place, *place.rglob("*"))]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def run(told: list[str], full: bool, places) -> None:
    """Run a command and look at how it ended."""
    shutil.rmtree(places["new"], ignore_errors=True)
    places["new"].mkdir()
    before, said = state(places), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(places["new"])
        patch.setattr("tempfile.tempdir", str(places["new"]))
        for name in ("CEVIT_SCRATCH", "CEVIT_RESULTS"):
            patch.setenv(name, str(places["new"] / name))
        patch.delenv("CEVIT_DATA", raising=False)
        for place, instead in CUT.items():
            patch.setattr(place, instead)
        if full:
            patch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                status = cli.main(told)
            except SystemExit as ended:
                status = ended.code
    text = said.getvalue()
    account = "".join(path.read_text() for path in places["new"].glob("cevit-fault-*"))
    how = f"{told}, {'full' if full else 'free'} disk: {status}, {text[-1500:]}\n{account}"
    assert status in (0, 1, 2) and "Traceback" not in text, how
    assert status == 0 or text.strip(), f"{told} failed and said nothing"
    assert state(places) == before, f"{told} changed what it reads"
    assert not list(places["new"].rglob(".*")), f"{told} left something"


@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.weekly)])
def test_no_command_ends_in_a_traceback(places, count):
    how = settings(
        max_examples=count,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    how(given(tries(places))(lambda tried: run(*tried, places)))()
