"""The command ``cevit``: quick to answer, one clean line for an error."""

import re
import subprocess
import sys
import warnings
from pathlib import Path
from unittest.mock import Mock

import pytest

from cevit_lib import __version__
from cevit_lib.clinic import cli
from cevit_lib.edge import FAULT_OF_OURS
from cevit_lib.errors import DataError, NotConvergedWarning

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "torchvision", "timm", "peft", "papermill", "pandas", "scipy", "matplotlib")


@pytest.mark.parametrize("command", [[], *([name] for name in cli.COMMANDS)], ids=str)
def test_help_imports_nothing_heavy(command):
    program = (
        "import sys\nfrom cevit_lib.clinic.cli import main\n"
        f"try:\n    main({[*command, '--help']!r})\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        f"print('HEAVY', sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.endswith("HEAVY []\n"), done.stderr


@pytest.mark.parametrize(
    "words, status, said",
    [
        (["--version"], 0, __version__),
        (["nosuch"], 2, "invalid choice: 'nosuch'"),
        (["fit", "--data", "synthetic", "--epoch", "12"], 2, "unrecognized arguments: --epoch 12"),
        (["fit", "--size", "0"], 2, "'0': give a whole number of at least 1"),
        (["fit", "--rotation", "181"], 2, "'181': give a number of at least 0 and at most 180"),
        (["fit", "--colour", "2"], 2, "at least 0 and at most 1"),
        (["fit", "--mean", "128"], 2, "at least 0 and at most 1"),
        (["fit", "--epochs", "1.5"], 2, "'1.5': give a whole number"),
        (["fit", "--learning-rate", "nan"], 2, "'nan': give a number"),
        (["fit", "--level", "90"], 2, "at most 0.999"),
        (["report", "--within", "AL"], 2, "'AL': give a number"),
        (["report", "--prevalence", "HM=5"], 2, "at most 1"),
        (["verify", "--seed=-1"], 2, "'-1': give a whole number of at least 0"),
        (["run", "data", "--start-timeout", "inf"], 2, "'inf': give a number"),
    ],
    ids=str,
)
def test_words_that_are_no_command(capsys, words, status, said):
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == status and said in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "error, status, said",
    [
        (DataError("no folder of 'grape'"), 2, "no folder of 'grape'"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            ModuleNotFoundError("No module named 'papermill'", name="papermill"),
            2,
            "the package 'papermill' is not installed; pip install 'cevit-lib[notebook]'",
        ),
        (
            ModuleNotFoundError("No module named 'timm.models'", name="timm.models"),
            2,
            "the package 'timm.models' is not installed; pip install 'cevit-lib[vit]'",
        ),
        (
            RuntimeError("CPUAllocator: can't allocate memory"),
            2,
            "out of memory (CPUAllocator: can't allocate memory); make the batch or the "
            "photographs smaller.",
        ),
        (
            OSError(28, "No space left on device", "a.json"),
            2,
            "a.json: the disk is full; free some space and give the same command again.",
        ),
    ],
)
def test_an_error_that_is_no_fault_of_ours_is_one_line(monkeypatch, capsys, error, status, said):
    monkeypatch.setattr("cevit_lib.clinic.doctor.run_doctor", Mock(side_effect=error))
    assert cli.main(["doctor"]) == status
    assert capsys.readouterr().err == f"cevit doctor: {said}\n"


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("cevit_lib.x", name="cevit_lib.x"), ZeroDivisionError()]
)
def test_a_fault_of_ours_is_a_sentence_that_says_where_and_keeps_the_whole_account(
    monkeypatch, capsys, tmp_path, error
):
    def fail(options):
        raise error

    monkeypatch.setattr("cevit_lib.clinic.doctor.run_doctor", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.main(["doctor"]) == FAULT_OF_OURS
    (account,) = tmp_path.iterdir()
    said = capsys.readouterr().err
    assert re.search(r"fault of the program \(.*Error.*test_cli\.py:\d+\)", said), said
    assert said.count("\n") == 1 and str(account) in said
    assert "in fail\n    raise error" in account.read_text()


@pytest.mark.parametrize(
    "words, told",
    [
        (["fit", "--data", "synthetic", "--results", "{file}"], "--results .* is a file"),
        (["fit", "--data", "synthetic", "--table", "{file}/t.csv"], "is a file, no folder"),
        (["fit", "--data", "synthetic", "--save", "/proc/none/x"], "cannot be written"),
        (["run", "data", "-o", "{folder}"], "--output .* is a folder; name a file"),
        (["run", "{file}", "-o", "{file}"], "is read by this command and left"),
        (
            ["predict", "--model", "m", "--images", ".", "--csv", "{file}", "--table", "{file}"],
            "is read by this",
        ),
        (["report", "--results", ".", "--output", "{folder}"], "is a folder"),
    ],
    ids=str,
)
def test_outputs_are_tried_before_the_work(monkeypatch, capsys, tmp_path, words, told):
    for command in cli.COMMANDS.values():
        monkeypatch.setattr(
            command["run"].replace(":", "."), lambda options: pytest.fail("it began")
        )
    (tmp_path / "page.md").write_text("my own")
    places = {"file": tmp_path / "page.md", "folder": tmp_path}
    assert cli.main([word.format(**places) for word in words]) == 2
    assert re.search(told, capsys.readouterr().err)
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]


def test_a_reader_who_has_enough_ends_a_command_quietly():
    program = "import sys; from cevit_lib.clinic.cli import main; sys.exit(main(['doctor']))"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as command:
        command.stdout.close()
        said = command.stderr.read()
    assert command.returncode == 141 and said == b""


def test_a_warning_of_ours_is_a_sentence_and_others_are_as_usual(monkeypatch, capsys):
    def warn(options):
        warnings.warn("it did not converge", NotConvergedWarning, stacklevel=1)
        warnings.warn("something else", UserWarning, stacklevel=1)
        return 0

    monkeypatch.setattr("cevit_lib.clinic.doctor.run_doctor", warn)
    with pytest.warns(UserWarning, match="something else"):
        assert cli.main(["doctor"]) == 0
    assert capsys.readouterr().err == "cevit doctor: warning: it did not converge\n"
