"""The command ``cevit``: run, verify, fit, predict, doctor.

``cevit --help`` must answer at once, so nothing here imports torch, papermill or pandas before a command runs.
``cevit_lib/fit.py`` gives ``add_fit_arguments(parser)``, ``run_fit(options) -> int``, ``add_predict_arguments`` and
``run_predict`` likewise; it is imported to build the parser and therefore imports torch inside functions only.
"""

import argparse
import sys
from importlib import import_module

from cevit_lib import __version__
from cevit_lib.errors import CevitError

# name: (help, module, function that declares the options, function that runs)
COMMANDS = {
    "run": ("execute a notebook strictly with papermill", "cevit_lib.runner.run", "add_run_arguments", "run_command"),
    "verify": ("fit a sample of the stored records again and compare", "cevit_lib.verify", "add_arguments", "main"),
    "fit": ("fit a model to paired eyes; ends with a record", "cevit_lib.fit", "add_fit_arguments", "run_fit"),
    "predict": ("predict with a fitted model", "cevit_lib.fit", "add_predict_arguments", "run_predict"),
    "doctor": ("print versions, devices, and where data and weights are", "cevit_lib.doctor", "add_arguments", "main"),
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(prog="cevit", description="The CeViT compendium's command.")
    parser.add_argument("--version", action="version", version=f"cevit {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (text, module, declare, execute) in COMMANDS.items():
        loaded = import_module(module)
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        getattr(loaded, declare)(command)
        command.set_defaults(execute=getattr(loaded, execute))
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 0, 1 (it ran and found a fault), 2 (it could not run) or 128 + a signal's number."""
    from cevit_lib.runner.run import join_pairs

    options = build_parser().parse_args(join_pairs(sys.argv[1:] if arguments is None else arguments))
    try:
        return options.execute(options)
    except CevitError as error:
        print(f"cevit {options.command}: {error}", file=sys.stderr)
        return getattr(error, "exit_status", 2)
    except KeyboardInterrupt:
        print(f"cevit {options.command}: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
