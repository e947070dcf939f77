"""The command ``cevit``: run, verify, fit, predict, report, check-data, download, doctor.

``cevit --help`` must answer at once, so nothing here imports torch, papermill or pandas before a command runs.
``cevit_lib/fit`` gives ``add_fit_arguments(parser)``, ``run_fit(options) -> int``, ``add_predict_arguments`` and
``run_predict`` likewise; it is imported for its options too, so it imports torch inside functions only.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module

from cevit_lib import __version__
from cevit_lib.errors import CevitError

# name: (help, module, function that declares the options, function that runs)
COMMANDS = {
    "run": (
        "execute a notebook strictly with papermill",
        "cevit_lib.runner.run",
        "add_run_arguments",
        "run_command",
    ),
    "verify": (
        "fit a sample of the stored records again and compare",
        "cevit_lib.records.verify",
        "add_arguments",
        "main",
    ),
    "fit": (
        "fit a model to paired eyes; ends with a record",
        "cevit_lib.clinic",
        "add_fit_arguments",
        "run_fit",
    ),
    "predict": (
        "predict with a fitted model",
        "cevit_lib.clinic",
        "add_predict_arguments",
        "run_predict",
    ),
    "report": (
        "write a page on a fit, complete in itself",
        "cevit_lib.clinic",
        "add_report_arguments",
        "run_report",
    ),
    "check-data": (
        "list what is wrong in a table of eyes and its photographs",
        "cevit_lib.clinic.check_data",
        "add_arguments",
        "main",
    ),
    "download": (
        "fetch GRAPE or PAPILA from their archives",
        "cevit_lib.clinic.download",
        "add_arguments",
        "main",
    ),
    "doctor": (
        "print versions, devices, and where data and weights are",
        "cevit_lib.clinic.doctor",
        "add_arguments",
        "main",
    ),
}


def build_parser(wanted: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands; only the wanted one's module is imported, for its options."""
    parser = argparse.ArgumentParser(
        prog="cevit", description="The CeViT compendium's command.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"cevit {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (text, module, declare, execute) in COMMANDS.items():
        command = commands.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False
        )
        if name == wanted:
            loaded = import_module(module)
            getattr(loaded, declare)(command)
            command.set_defaults(execute=getattr(loaded, execute))
    return parser


def remedy(package: str) -> str:
    """Say which extra of this package brings a missing one."""
    from cevit_lib.clinic.doctor import EXTRAS

    groups = [
        group for group, names in EXTRAS.items() if package.split(".")[0].replace("_", "-") in names
    ]
    return f"pip install 'cevit-lib[{groups[0] if groups else 'vit,book'}]'"


def _in_words(command: str, usual: Callable[..., None]) -> Callable[..., None]:
    """Return what prints the library's own warnings as a sentence, without Python's line of source."""

    def show(message, category, *place, **further) -> None:
        if category.__module__ == "cevit_lib.errors":
            print(f"cevit {command}: warning: {message}", file=sys.stderr)
        else:
            usual(message, category, *place, **further)

    return show


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0, 1 (it ran and found a fault), 2 (it could not run) or 128 + a signal's number."""
    from cevit_lib.runner.run import join_pairs

    words = join_pairs(sys.argv[1:] if arguments is None else arguments)
    parser = build_parser(next((word for word in words if not word.startswith("-")), None))
    options = parser.parse_args(words)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _in_words(options.command, warnings.showwarning)
            status = options.execute(options)
        sys.stdout.flush()
        return status
    except (
        BrokenPipeError
    ):  # whoever read has enough, such as head; Python's own last flush must not complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except CevitError as error:
        print(f"cevit {options.command}: {error}", file=sys.stderr)
        return getattr(error, "exit_status", 2)
    except ModuleNotFoundError as error:
        if (error.name or "cevit_lib").startswith("cevit_lib"):
            raise
        print(
            f"cevit {options.command}: the package {error.name!r} is not installed; {remedy(error.name)}",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print(f"cevit {options.command}: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
