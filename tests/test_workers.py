"""Places of fits on a machine's devices: jobs take them in turn; a killed job frees its own."""

import os
from itertools import repeat
from pathlib import Path
from unittest.mock import Mock

import pytest

from cevit_lib.clinic.devices import claim
from cevit_lib.paths import granted_cores


def test_jobs_take_devices_in_turn(tmp_path):
    with (
        claim("cuda:0,cuda:1", 2, tmp_path) as first,
        claim("cuda:0,cuda:1", 2, tmp_path) as second,
    ):
        assert (first, second) == ("cuda:0", "cuda:1")
        with claim("cuda:0,cuda:1", 2, tmp_path) as third:
            assert third == "cuda:0"
    with claim("cuda:3", folder=tmp_path) as named:
        assert named == "cuda:3"


@pytest.mark.parametrize(
    "quota, cores",
    [("200000 100000", 2), ("50000 100000", 1), ("max 100000", 64), (FileNotFoundError(), 64)],
)
def test_what_a_control_group_grants_is_not_exceeded(monkeypatch, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    monkeypatch.setattr(Path, "read_text", Mock(side_effect=repeat(quota)))
    assert granted_cores() == cores
