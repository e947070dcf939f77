"""The grid on Snakemake's local executor: killed in the middle, taken up again, failures listed and
tried alone.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from cevit_lib.records.store import read_record
from cevit_lib.records.verify import numbers
from studies.study import find


@pytest.fixture(scope="module")
def engine(tmp_path_factory, root):
    """Return the command of a small grid: two fits of the simulation, and a fold whose data are not
    there.
    """
    folder = tmp_path_factory.mktemp("workflow")
    config = folder / "config.yaml"
    missing = {"options": f"--data grape --data-folder {folder / 'nowhere'}", "folds": 2}
    config.write_text(
        yaml.safe_dump(
            {
                "scale": "smoke",
                "device": "cpu",
                "results": str(folder / "results"),
                "state": str(folder / "state"),
                "studies": "simulation",
                "fits": "absent",
                "data_fits": {"absent": missing},
            }
        )
    )
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--workflow-profile",
        str(root / "workflow/profiles/default"),
        "--snakefile",
        str(root / "workflow/Snakefile"),
        "--directory",
        str(folder / "run"),
        "--cores",
        "1",
        "--retries",
        "0",
        "--configfile",
        str(config),
    ]
    return folder, command


def start(command, root, *more):
    here = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *more],
        cwd=root,
        env=here,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_a_killed_grid_goes_on_and_gives_the_same_records(engine, root):
    folder, command = engine
    records = lambda: sorted((folder / "results" / "simulation").glob("*.json"))  # noqa: E731
    process = start(command, root)
    while not records() and process.poll() is None:
        time.sleep(0.05)
    time.sleep(0.5)  # into the next job
    os.killpg(process.pid, signal.SIGKILL)  # the engine and its jobs
    told = process.communicate()[0]
    first = records()
    assert len(first) == 1, told
    before = first[0].stat().st_mtime_ns

    process = start(command, root)
    told = process.communicate()[0]
    assert process.returncode != 0  # the fold without data
    assert len(records()) == 2 and first[0].stat().st_mtime_ns == before, told
    assert "simulation: 2 of 2 fits have a record" in told
    assert "folds of data sets: 0 of 2 done" in told
    (log,) = re.findall(r"missing: absent-fold-1-\w+, see (\S+)", told)
    assert "no folder of the data set 'grape'" in Path(log).read_text()

    for record in find("simulation").run("smoke", folder / "uninterrupted", ("cpu",)):
        path = folder / "results" / "simulation" / f"{record['id']}.json"
        ours, theirs = numbers(read_record(path)), numbers(record)
        # fits made alone and side by side differ by rounding only
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-3)

    plan = start(command, root, "--dry-run").communicate()[0]
    assert re.search(r"fold_of_a_data_set\s+2\b", plan) and "fit_of_a_study" not in plan, (
        "only the failure is left"
    )


@pytest.mark.parametrize("wrong", ["scal=smoke", "scale=smok"])
def test_a_misspelt_key_stops_the_grid(engine, root, wrong):
    _, command = engine
    process = start([*command, "--config", wrong], root, "--dry-run")
    told = process.communicate()[0]
    assert process.returncode and f"{wrong.partition('=')[0]}" in told and "give " in told, told
