"""``python -m cevit_lib.runner ipynb [--check]`` writes (or compares) ``notebooks/ipynb`` from the pages."""

import argparse
import sys

from cevit_lib.errors import CevitError


def main(arguments: list[str] | None = None) -> int:
    """Write the clean copies of all pages; with ``--check`` write nothing and fail where one differs."""
    parser = argparse.ArgumentParser(prog="python -m cevit_lib.runner", description=__doc__)
    parser.add_argument("what", choices=["ipynb"])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 where a copy differs"
    )
    options = parser.parse_args(arguments)
    from cevit_lib.runner.convert import write_clean_copies

    try:
        differing = write_clean_copies(options.check)
    except CevitError as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if options.check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
