"""Two processes on the processor (gloo) make the fit of one."""

import json
import os
import subprocess
import sys

import pytest
import torch
from two_processes import FIT, warm_up

from cevit_lib.clinic import cli
from cevit_lib.errors import ParameterError
from cevit_lib.records.store import read_record


@pytest.fixture(scope="module")
def together(tmp_path_factory, root):
    """Run the program in two processes; a hang is ended and told after ten minutes."""
    folder = tmp_path_factory.mktemp("two")
    starter = "-m torch.distributed.run --standalone --nproc-per-node 2".split()
    done = subprocess.run(
        [sys.executable, *starter, root / "tests" / "two_processes.py", folder],
        cwd=root,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, [json.loads((folder / f"found-{k}.json").read_text()) for k in range(2)]


def test_two_processes_train_as_one_does(together):
    folder, found = together
    fit, outputs = warm_up()
    for one in found:
        assert one["unreached"] == [[5.0, 5.0], [5.0]]
        assert one["joined"] == [0, 1, 2, 3, 4]
        torch.testing.assert_close(
            torch.tensor(one["outputs"], dtype=torch.float64), outputs, rtol=1e-4, atol=1e-4
        )
        for ours, theirs in zip(fit.trace, one["trace"], strict=True):
            for key in ("loss", "validation_loss", "gradient_norm", "learning_rate"):
                assert theirs[key] == pytest.approx(ours[key], rel=1e-4), key
    assert found[0]["outputs"] == found[1]["outputs"]
    with pytest.raises(ParameterError, match="processes: 2 there, 1 here"):
        warm_up(folder / "state")


def test_the_first_process_writes_the_record_of_a_fit_with_lora(together, tmp_path):
    folder, found = together
    assert [one["status"] for one in found] == [0, 0]
    assert not (folder / "results-1").exists()
    (path,) = (folder / "results-0").glob("fit-synthetic/*.json")
    assert cli.main([*FIT, "--results", str(tmp_path)]) == 0
    two, one = read_record(path), read_record(tmp_path / "fit-synthetic" / path.name)
    assert two["trace"][-1]["loss"] == pytest.approx(one["trace"][-1]["loss"], rel=1e-3)
    for name in ("warm-up", "empirical, same epochs", "copula"):
        torch.testing.assert_close(
            torch.tensor(two["predictions"][name]),
            torch.tensor(one["predictions"][name]),
            rtol=1e-3,
            atol=1e-3,
        )
