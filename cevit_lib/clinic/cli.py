"""The command ``cevit``: run, verify, fit, predict, evaluate, report, check-data, download, doctor.

``cevit --help`` must answer at once, so nothing here imports torch, papermill or pandas before a
command runs: options are declared from a table, and the module that does the work is imported when
it is to be done.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

from cevit_lib import __version__
from cevit_lib.clinic.options import COMMANDS, declare
from cevit_lib.clinic.words import in_options, say_aside
from cevit_lib.edge import check_output, guarded
from cevit_lib.errors import CevitError
from cevit_lib.paths import granted_cores


def build_parser(wanted: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands; only the wanted one's options are declared."""
    parser = argparse.ArgumentParser(
        prog="cevit", description="The CeViT compendium's command.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"cevit {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, about in COMMANDS.items():
        text = about["help"]
        command = commands.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False
        )
        if name == wanted:
            declare(name, command)
    return parser


def remedy(package: str) -> str:
    """Say which extra of this package brings a missing one."""
    from cevit_lib.clinic.doctor import extras

    name = package.split(".")[0].replace("_", "-")
    groups = [group for group, names in extras().items() if group and name in names]
    return f"pip install 'cevit-lib[{groups[0] if groups else 'vit,book'}]'"


def _in_words(command: str, usual: Callable[..., None]) -> Callable[..., None]:
    """Return what prints the library's own warnings as a sentence, without a line of source."""

    def show(message, category, *place, **further) -> None:
        if category.__module__ == "cevit_lib.errors":
            say_aside(f"cevit {command}: warning: {in_options(str(message))}")
        else:
            usual(message, category, *place, **further)

    return show


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Return 0, 1 (it ran and found a fault), 2 (it could not run) or 128 + a signal's number.
    """
    from cevit_lib.runner.run import join_pairs

    words = join_pairs(sys.argv[1:] if arguments is None else arguments)
    parser = build_parser(next((word for word in words if not word.startswith("-")), None))
    if empty := [word for word in words if word.startswith("--") and word.endswith("=--")]:
        parser.error(f"{empty[0]}: give a value")  # argparse would make an empty list of it
    options = parser.parse_args(words)
    work = partial(_run, options)
    return guarded(f"cevit {options.command}", work, missing=remedy)


def _run(options: argparse.Namespace) -> int:
    """Try every output that was named, then do the work."""
    outputs = COMMANDS[options.command].get("writes", {})
    inputs = [value for name, value in vars(options).items() if name not in outputs]
    named = [
        one
        for value in inputs
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, str | Path)
    ]
    given = {name: path for name in outputs if (path := getattr(options, name, None)) is not None}
    for name, path in given.items():
        check_output(path, outputs[name], f"--{name}", named)
    if granted_cores() < (os.cpu_count() or 1):  # torch would start a thread for every one there is
        os.environ.setdefault("OMP_NUM_THREADS", str(granted_cores()))
    os.environ["MATPLOTLIBRC"] = os.devnull  # a report does not look as the user's own figures do
    with warnings.catch_warnings():
        warnings.showwarning = _in_words(options.command, warnings.showwarning)
        try:
            return resolve_name(COMMANDS[options.command]["run"])(options)
        except CevitError as error:
            error.args = (in_options(str(error)),)
            raise


if __name__ == "__main__":
    sys.exit(main())
