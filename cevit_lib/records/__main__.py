"""``eval "$(python -m cevit_lib.records)"`` names the commit on a machine that gets a copy without
its history.
"""

import sys

from cevit_lib.errors import CevitError
from cevit_lib.records.provenance import CODE, commit_and_dirty, commit_source_hash


def main() -> int:
    """Print the two variables that a copy of this clean clone needs (see ``commit_and_dirty``)."""
    try:
        commit, dirty = commit_and_dirty()
        if dirty or not commit:
            print("this is not a clean clone: commit first, then copy", file=sys.stderr)
            return 2
        print(
            f"export CEVIT_COMMIT={commit} "
            f"CEVIT_CODE_HASH={commit_source_hash(commit, folders=CODE)}"
        )
    except CevitError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
