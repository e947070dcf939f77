"""The command ``cevit``: quick to answer, one clean line for an error."""

import re
import subprocess
import sys
import warnings
from pathlib import Path
from pkgutil import resolve_name

import pytest

from cevit_lib import __version__
from cevit_lib.clinic import cli
from cevit_lib.errors import DataError, NotConvergedWarning

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "torchvision", "timm", "peft", "papermill", "pandas", "scipy", "matplotlib")


def imported_after(*words: str) -> str:
    """Return the heavy modules that a fresh interpreter has imported after a command."""
    program = (
        "import sys\nfrom cevit_lib.clinic.cli import main\n"
        f"try:\n    main({list(words)!r})\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        f"print('HEAVY', sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_help_imports_nothing_heavy():
    assert imported_after("--help") == "HEAVY []"


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_of_each_command_imports_nothing_heavy(command):
    assert imported_after(command, "--help") == "HEAVY []"


def test_help_lists_the_commands_that_exist_and_no_other(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    listed = re.findall(r"^    ([\w-]+)", capsys.readouterr().out, flags=re.MULTILINE)
    assert listed == list(cli.COMMANDS)
    for _, declare, execute in cli.COMMANDS.values():
        assert callable(resolve_name(declare)) and callable(resolve_name(execute))


def test_version_and_unknown_commands(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0 and __version__ in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        cli.main(["nosuch"])
    assert ended.value.code == 2 and "invalid choice: 'nosuch'" in capsys.readouterr().err


@pytest.fixture
def planted(monkeypatch):
    """A doctor that raises what it is told to."""

    def plant(error):
        def fail(options):
            raise error

        monkeypatch.setattr("cevit_lib.clinic.doctor.run_doctor", fail)
        return cli.main(["doctor"])

    return plant


def test_an_error_of_ours_is_one_line_and_exit_status_2(planted, capsys):
    assert planted(DataError("no folder of the data set 'grape'")) == 2
    assert capsys.readouterr().err == "cevit doctor: no folder of the data set 'grape'\n"


def test_a_missing_extra_is_named_with_its_remedy(planted, capsys):
    assert planted(ModuleNotFoundError("No module named 'papermill'", name="papermill")) == 2
    assert "'papermill' is not installed; pip install 'cevit-lib[book]'" in capsys.readouterr().err
    assert planted(ModuleNotFoundError("No module named 'timm.models'", name="timm.models")) == 2
    assert "pip install 'cevit-lib[vit]'" in capsys.readouterr().err
    with pytest.raises(ModuleNotFoundError):  # a fault of our own must show where
        planted(ModuleNotFoundError("No module named 'cevit_lib.nosuch'", name="cevit_lib.nosuch"))


def test_interruption_and_bugs(planted, capsys):
    assert planted(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "cevit doctor: interrupted\n"
    with pytest.raises(ZeroDivisionError):
        planted(ZeroDivisionError())


def test_options_are_spelled_out(capsys):
    with pytest.raises(SystemExit):
        cli.main(["fit", "--data", "synthetic", "--epoch", "12"])
    assert "unrecognized arguments: --epoch 12" in capsys.readouterr().err


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
    with warnings.catch_warnings(record=True) as usual:
        warnings.simplefilter("always")
        assert cli.main(["doctor"]) == 0
    assert capsys.readouterr().err == "cevit doctor: warning: it did not converge\n"
    assert [str(one.message) for one in usual] == ["something else"]


def test_bad_parameter_of_a_run_is_one_line(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(
        "---\nkernelspec:\n  display_name: any\n  name: any\n---\n\n```{code-cell}\n"
        ":tags: [parameters]\n\nn: int = 1\n```\n\n```{code-cell}\nfinished()\n```\n"
    )
    assert cli.main(["run", str(page), "-p", "m", "-1"]) == 2
    assert capsys.readouterr().err == "cevit run: unknown parameter 'm'. This notebook takes: n\n"
