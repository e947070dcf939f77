"""``eval "$(python -m cevit_lib.records)"`` names the commit on a machine that gets a copy without
its history.
"""

from cevit_lib.edge import guarded
from cevit_lib.errors import ProvenanceError
from cevit_lib.records.provenance import CODE, commit_and_dirty, commit_source_hash


def main() -> int:
    """Print the two variables that a copy of this clean clone needs (see ``commit_and_dirty``)."""
    commit, dirty = commit_and_dirty()
    if dirty or not commit:
        raise ProvenanceError("this is not a clean clone: commit first, then copy")
    code = commit_source_hash(commit, folders=CODE)
    print(f"export CEVIT_COMMIT={commit} CEVIT_CODE_HASH={code}")
    return 0


if __name__ == "__main__":
    raise SystemExit(guarded("python -m cevit_lib.records", main))
