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

STUDY = "posterior-samplers"


@pytest.fixture(scope="module")
def grid(tmp_path_factory, root):
    """Return a folder, and what starts a small grid in it: two fits of a study, and folds without
    data.
    """
    folder = tmp_path_factory.mktemp("workflow")
    config = folder / "config.yaml"
    missing = {"options": f"--data grape --data-folder {folder / 'nowhere'}", "folds": 2}
    settings = {"scale": "smoke", "device": "cpu", "studies": STUDY, "fits": "absent"}
    settings |= {name: str(folder / name) for name in ("results", "state")}
    config.write_text(yaml.safe_dump(settings | {"data_fits": {"absent": missing}}))
    workflow = root / "workflow"
    options = f"--workflow-profile {workflow / 'profiles/default'} --cores 1 --retries 0"
    options += f" --snakefile {workflow / 'Snakefile'} --directory {folder / 'run'}"
    command = [sys.executable, "-m", "snakemake", *options.split(), "--configfile", str(config)]

    def start(*more):
        return subprocess.Popen(
            [*command, *more],
            cwd=root,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            text=True,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    return folder, start


@pytest.mark.weekly
def test_a_killed_grid_goes_on_and_lists_what_failed(grid):
    folder, start = grid
    results = folder / "results" / STUDY
    process = start()
    while not (first := list(results.glob("*.json"))) and process.poll() is None:
        time.sleep(0.05)
    time.sleep(0.5)  # into the next job
    os.killpg(process.pid, signal.SIGKILL)  # the engine and its jobs
    process.communicate()
    before = first[0].stat().st_mtime_ns

    process = start()
    told = process.communicate()[0]
    assert process.returncode != 0  # the fold without data
    assert first[0].stat().st_mtime_ns == before, told
    assert f"{STUDY}: 2 of 2 fits have a record" in told
    assert "folds of data sets: 0 of 2 done" in told
    (log,) = re.findall(r"missing: absent-fold-1-\w+, see (\S+)", told)
    assert "no folder of the data set 'grape'" in Path(log).read_text()


def test_a_misspelt_key_stops_the_grid(grid):
    process = grid[1]("--config", "scal=smoke", "--dry-run")
    told = process.communicate()[0]
    assert process.returncode and "scal" in told and "give " in told, told
