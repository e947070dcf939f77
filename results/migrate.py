"""Takes the arms out of the identity of records, once, and writes every record in its short form.

    python results/migrate.py

Where ``studies.json`` says that a study's records grow by arms, the configuration no longer names them: they become
entries. Only ``id``, ``configuration`` and ``arms`` change; the old identity is kept as ``formerly``, arrays move along.
"""

from pathlib import Path

from cevit_lib.records.build import ARMS, identifying, record_id
from cevit_lib.records.recipes import arms_of
from cevit_lib.records.store import read_record, to_text, validate_record, write_whole


def renamed(record: dict) -> dict:
    """Return a record under its new identity; one whose study does not grow, as it is."""
    study, old = record["study"], record["configuration"]
    if arms_of(study) is None or "formerly" in record:
        return record
    if old.get("from_scratch"):
        raise SystemExit(f"{record['id']}: arms from scratch have no entries yet")
    new = record_id(study, old, record["seeds"], record["scale"], record["data"])
    changed = {"id": new, "configuration": identifying(study, old), "formerly": record["id"]}
    entries = {name: {"recipe": record["recipe"]} for name in old[ARMS[0]]}
    return record | changed | {"arms": entries}


def main() -> None:
    counted = {"written": 0, "renamed": 0}
    for path in sorted(Path(__file__).parent.glob("*/*.json")):
        if path.parent.name == "paper":
            continue
        record = renamed(old := read_record(path))
        target = path.with_name(f"{record['id']}.json")
        if record["id"] != old["id"]:
            if record["arrays"]:
                arrays = path.with_suffix(".npz").rename(target.with_suffix(".npz"))
                record["arrays"] = record["arrays"] | {"file": arrays.name}
            path.unlink()
            counted["renamed"] += 1
        validate_record(record, target)
        write_whole(target, to_text(record).encode())
        counted["written"] += 1
    print(counted)


if __name__ == "__main__":
    main()
