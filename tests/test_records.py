"""Records: written whole, never edited, refused for publication where they are not fit for it."""

import errno
import importlib
import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from cevit_lib.errors import ProvenanceError
from cevit_lib.records import (
    badge,
    find_record,
    load_arrays,
    load_records,
    new_record,
    paper_numbers,
    record_id,
    source_hash,
    write_record,
)
from cevit_lib.records.recipes import STUDIES
from cevit_lib.records.store import read_record, record_path

# the package re-exports a function of the same name
origin = importlib.import_module("cevit_lib.records.provenance")
ROOT = Path(__file__).resolve().parents[1]
STUDY = "planted-study"
SHA = "1a2b3c4" + "0" * 33


@pytest.fixture(autouse=True)
def study(monkeypatch):
    monkeypatch.setitem(STUDIES, STUDY, {"recipe": 2})


@pytest.fixture
def make(tmp_path):
    def record(seed: int = 0, **changes) -> dict:
        made = new_record(
            STUDY, {"n": 800, "nested": {"tol": 1e-6}}, [seed], {"bias": 0.01 * seed}, seconds=1.0
        )
        return made | {"commit": SHA, "dirty": False} | changes

    return record


# ---- what is in a record  ----


def test_a_record_says_how_it_was_made_and_comes_back_equal(tmp_path):
    torch = pytest.importorskip("torch")
    record = new_record(
        STUDY,
        {"n": np.int64(3), "grid": np.arange(2)},
        range(2),
        {"copula": {"mae": np.float64(0.5), "auc": float("nan")}, "plain": {"mae": 1, "auc": 0}},
        parameters={"correlation": torch.eye(2, dtype=torch.float64)},
        trace=[{"epoch": 0, "loss": 1.5}, {"epoch": 1, "loss": 1.0}],
        predictions={"id": ["007"], "mu": [1.0]},
        columns={"rho": np.zeros(2)},
        data={"name": "toy", "hash": "ab"},
        seconds=2.0,
        times={"warm_up": 1.0},
    )
    path = write_record(record, tmp_path)
    stored = read_record(path)
    assert stored["configuration"] == {"n": 3, "grid": [0, 1]} and stored["seeds"] == [0, 1]
    found = stored["metrics"]["copula"], path.read_text().count('"auc"')
    assert found == ({"mae": 0.5, "auc": None}, 1), "NaN is not JSON; names stand once"
    assert stored["trace"] == record["trace"]
    assert stored["parameters"]["correlation"] == [[1.0, 0.0], [0.0, 1.0]]
    assert stored["predictions"]["id"] == ["007"] and stored["times"] == {
        "total_seconds": 2.0,
        "warm_up": 1.0,
    }
    assert stored["recipe"] == 2 and stored["source"] == source_hash() and stored["device"]["name"]


def test_identity_is_the_fit_not_the_order_in_which_it_was_written():
    one = record_id(STUDY, {"a": 1, "b": {"c": 2, "d": 3}}, [0])
    assert one == record_id(STUDY, {"b": {"d": 3, "c": 2}, "a": 1}, range(1))
    others = [
        record_id(STUDY, {"a": 2, "b": {"c": 2, "d": 3}}, [0]),
        record_id(STUDY, {"a": 1}, [0]),
        record_id(STUDY, {"a": 1, "b": {"c": 2, "d": 3}}, [1]),
        record_id(STUDY, {"a": 1, "b": {"c": 2, "d": 3}}, [0], scale="smoke"),
        record_id(STUDY, {"a": 1, "b": {"c": 2, "d": 3}}, [0], data={"hash": "x"}),
    ]
    assert len({one, *others}) == 6


# ---- writing  ----


def test_records_are_added_never_edited(make, tmp_path):
    """Only a clean record may follow a dirty one, which was never fit to be drawn."""
    write_record(make(dirty=True), tmp_path)
    path = write_record(make(), tmp_path)
    before = path.read_bytes()
    assert write_record(make(created="2030-01-01T00:00:00+00:00"), tmp_path) == path  # once more
    for other, words in (({"metrics": {"bias": 9.0}}, "metrics"), ({"dirty": True}, "dirty")):
        with pytest.raises(ProvenanceError, match=rf"of the same fit \(they differ in {words}\)"):
            write_record(make(**other), tmp_path)
    assert path.read_bytes() == before and read_record(path)["dirty"] is False
    found = [find_record(STUDY, make()["configuration"], [k], folder=tmp_path) for k in (0, 4)]
    assert found[0]["id"] == path.stem and found[1] is None


@pytest.mark.parametrize(
    "step, error, seen",
    [
        ("fsync", OSError(errno.ENOSPC, "No space left on device"), OSError),
        ("replace", OSError(errno.ENOSPC, "No space left on device"), OSError),
        ("fsync", KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_what_was_there_survives_a_full_disk_and_an_interruption(
    make, tmp_path, monkeypatch, step, error, seen
):
    path = write_record(make(dirty=True), tmp_path)
    before = path.read_bytes()

    monkeypatch.setattr(os, step, Mock(side_effect=error))
    words = "the disk is full: could not write .*json" if seen is OSError else None
    with pytest.raises(seen, match=words):
        write_record(make(metrics={"bias": 1.0}), tmp_path)
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


def test_large_arrays_lie_beside_and_are_known_by_their_hash(make, tmp_path):
    draws = np.random.default_rng(0).normal(size=(50, 4))
    paths = [write_record(make(arrays={"draws": draws}), tmp_path) for _ in range(2)]
    record = read_record(paths[0])  # the same arrays are the same record
    np.testing.assert_array_equal(load_arrays(record, tmp_path)["draws"], draws)
    np.savez_compressed(paths[0].with_suffix(".npz"), draws=draws + 1)
    for wrong, told in ((record, "sha256 differs"), (make(seed=1), "has no arrays")):
        with pytest.raises(ProvenanceError, match=told):
            load_arrays(wrong, tmp_path)


# ---- reading for publication  ----


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dirty": True}, "is dirty: it was made from code that is in no commit"),
        ({"scale": "smoke"}, "is a smoke record"),
        ({"recipe": 1}, "is outdated: it was made with recipe 1 of 'planted-study', now 2"),
        ({"status": "failed"}, "is the record of a failed fit"),
    ],
)
def test_what_no_page_may_draw_is_refused_by_name(make, tmp_path, changes, reason):
    write_record(make(seed=1), tmp_path)
    bad = write_record(make(seed=2, **changes), tmp_path)
    with pytest.raises(ProvenanceError) as caught:
        load_records(STUDY, folder=tmp_path)
    for words in (reason, str(bad), "cevit run PAGE -p scale paper"):
        assert words in str(caught.value)
    assert len(load_records(STUDY, publication=False, folder=tmp_path)) == 2


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"seeds":[0],', "", "'seeds' is a required property"),
        ('"dirty":false', '"dirty":"no"', "dirty: 'no' is not of type 'boolean'"),
        ('"dirty"', '"extra": 1, "dirty"', "'extra' was unexpected"),
        (SHA, "abc", "commit: 'abc' does not match"),
        ('"name"', '"label"', "device: 'name' is a required property"),
        ("{", "[", "is not JSON"),
    ],
)
def test_an_invalid_record_is_refused_with_file_and_field(make, tmp_path, old, new, words):
    path = write_record(make(), tmp_path)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ProvenanceError) as caught:
        load_records(STUDY, folder=tmp_path)
    assert words in str(caught.value) and str(path) in str(caught.value)


def test_a_study_without_records_is_an_error_that_names_the_command(make, tmp_path, monkeypatch):
    write_record(make(), tmp_path)
    assert len(load_records(STUDY, True, {"nested": {"tol": 1e-6}}, folder=tmp_path)) == 1
    monkeypatch.setitem(STUDIES[STUDY], "maker", "python -m planted")
    told = f"'tol': 1e-05.* by python -m planted, and commit results/{STUDY}"
    with pytest.raises(ProvenanceError, match=told):
        load_records(STUDY, True, {"nested": {"tol": 1e-5}}, folder=tmp_path)


def test_smoke_records_never_share_a_folder_with_those_that_pages_draw(tmp_path, monkeypatch):
    monkeypatch.setenv("CEVIT_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("CEVIT_SCRATCH", str(tmp_path / "scratch"))
    assert record_path(STUDY, "x").parent == tmp_path / "results" / STUDY
    smoke = new_record(STUDY, {"n": 1}, [0], {"a": 1.0}, scale="smoke")
    assert write_record(smoke).parent == tmp_path / "scratch" / "results" / STUDY
    again = write_record(smoke | {"metrics": {"a": 2.0}})  # smoke runs repeat themselves
    assert read_record(again)["metrics"] == {"a": 2.0}


# ---- badges  ----


def test_badge_is_one_line_with_everything(make):
    card = {"type": "cuda", "name": "NVIDIA H100 80GB HBM3", "count": 1, "cuda": "12.8"}
    records = [make(seed, device=card, versions={"torch": "2.14.1"}) for seed in (0, 1, 2, 3, 4, 7)]
    line = badge(records)
    assert (
        line.endswith("6 records · H100 · torch 2.14.1 · seeds 0-4, 7 · commit 1a2b3c4")
        and "\n" not in line
    )
    assert badge(records) == badge(records[::-1]) != badge(records[:5])
    assert "SMOKE RUN · DIRTY" in badge([make(scale="smoke", dirty=True)])


# ---- where a number comes from  ----


FILES = {"a.py": b"x = 1\n", "sub/b.json": b"{}\n", "sub/c.py": b""}


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        (dict(reversed(FILES.items())), True),
        ({name: content.replace(b"\n", b"\r\n") for name, content in FILES.items()}, True),
        (FILES | {"__pycache__/a.py": b"1", "x.pyc": b"1", "x.txt": b"1"}, True),
        (FILES | {"a.py": b"x = 2\n"}, False),
        ({"z.py": FILES["a.py"], "sub/b.json": b"{}\n", "sub/c.py": b""}, False),
        ({"a.py": b"", "sub/b.json": b"{}\n", "sub/c.py": FILES["a.py"]}, False),
    ],
    ids=["order", "windows", "noise", "content", "name", "moved"],
)
def test_source_hash_depends_on_names_and_contents_only(tmp_path, changed, same):
    for name, files in (("base", FILES), ("changed", changed)):
        for path, content in files.items():
            target = tmp_path / name / "cevit_lib" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    assert (source_hash(tmp_path / "changed") == source_hash(tmp_path / "base")) == same


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A small repository that stands for the compendium."""
    root = tmp_path / "clone"
    (root / "cevit_lib").mkdir(parents=True)
    (root / "cevit_lib" / "a.py").write_text("x = 1\n")
    (root / "_toc.yml").write_text("")
    for name in ("CEVIT_COMMIT", "CEVIT_CODE_HASH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CEVIT_ROOT", str(root))
    imported = SimpleNamespace(__file__=str(root / "cevit_lib" / "__init__.py"))
    monkeypatch.setattr(
        origin, "sys", SimpleNamespace(modules=dict.fromkeys(origin.SOURCE, imported))
    )
    who = "-c user.name=a -c user.email=a@b -c commit.gpgsign=false"
    commands = f"git init -q && git add . && git {who} commit -qm start && git rev-parse HEAD"
    done = subprocess.run(
        commands, shell=True, cwd=root, check=True, capture_output=True, text=True
    )
    return root, done.stdout.strip()


@pytest.mark.parametrize("code, same", [("x = 1\n", True), ("x = 2\n", False)])
def test_code_of_another_clone_is_that_of_this_one_or_dirty(clone, tmp_path, code, same):
    other = tmp_path / "other" / "cevit_lib" / "a.py"
    other.parent.mkdir(parents=True)
    other.write_text(code)
    for module in origin.sys.modules.values():  # the studies, too, of which the clone has none
        module.__file__ = str(other)
    assert origin.commit_and_dirty() == (clone[1], not same)


@pytest.mark.parametrize(
    "changed, dirty",
    [("results/new.json", False), ("untracked.py", True), ("cevit_lib/a.py", True)],
)
def test_only_changes_outside_results_make_a_clone_dirty(clone, monkeypatch, changed, dirty):
    root, head = clone
    monkeypatch.chdir(ROOT)  # which clone it is does not depend on the folder one is in
    assert origin.commit_and_dirty(commit=head[:10]) == (head, False)
    (root / changed).parent.mkdir(exist_ok=True)
    (root / changed).write_text("{}")
    assert origin.commit_and_dirty() == (head, dirty)
    with pytest.raises(ProvenanceError, match="was passed in, but"):
        origin.commit_and_dirty(commit="0" * 40)


def test_a_copy_without_history_is_clean_only_where_its_code_is_that_of_the_commit(
    clone, monkeypatch
):
    root, head = clone
    expected = origin.commit_source_hash(head, root, origin.CODE)
    shutil.rmtree(root / ".git")
    monkeypatch.setenv("CEVIT_COMMIT", head)
    assert origin.commit_and_dirty() == (head, True), (
        "a commit without the hash of its code proves nothing"
    )
    monkeypatch.setenv("CEVIT_CODE_HASH", expected)
    assert origin.commit_and_dirty() == (head, False)
    (root / "cevit_lib" / "a.py").write_text("x = 2\n")
    assert origin.commit_and_dirty() == (head, True)


# ---- the records that are committed  ----


def committed() -> list[Path]:
    return sorted(
        path for path in (ROOT / "results").glob("*/*.json") if path.parent.name != "paper"
    )


def test_committed_records_may_all_be_published():
    for study in sorted({path.parent.name for path in committed()}):
        for record in load_records(study, folder=ROOT / "results"):
            identity = record_id(
                study, record["configuration"], record["seeds"], record["scale"], record["data"]
            )
            assert identity == record["id"], f"{study}/{record['id']} was edited by hand"
            if record["arrays"]:
                load_arrays(record, ROOT / "results")


def test_committed_records_carry_the_hash_of_their_commit():
    records = [(path, read_record(path)) for path in committed()]
    shallow = origin._git(ROOT, "rev-parse", "--is-shallow-repository")
    if records and shallow != "false":
        pytest.skip("this is a shallow clone or no clone: the commits of the records are not here")
    hashes = {
        commit: origin.commit_source_hash(commit, ROOT)
        for commit in {record["commit"] for _, record in records}
    }
    wrong = [str(path) for path, record in records if hashes[record["commit"]] != record["source"]]
    assert not wrong, f"made by code that is not that of their commit: {wrong}"


def test_the_papers_numbers_say_where_they_are_printed():
    for path in (ROOT / "results" / "paper").glob("*.json"):
        content = paper_numbers(path.stem)
        entries = [entry for entry in content.values() if isinstance(entry, dict)]
        assert content["place"] and all(e["place"] for e in entries if "value" in e), path.name
    with pytest.raises(ProvenanceError, match="stored: .*toy_example"):
        paper_numbers("nosuch")
