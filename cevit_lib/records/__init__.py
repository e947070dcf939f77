"""Records: one JSON file per fit or setting, which says how each number of the book was made.

Writing one, at the end of a fit::

    from cevit_lib.records import new_record, write_record
    record = new_record("toy-example", configuration={"n": 800, "estimator": "FastMCEM"},
    seeds=range(100),
                        metrics={"bias": [0.001, 0.002]}, scale="paper", seconds=12.5)
    write_record(record)                       # results/toy-example/<id>.json

Drawing a figure from them, and the line below it (a cell tagged ``hide-input``)::

    from cevit_lib.records import badge, load_records
    records = load_records("toy-example", configuration={"n": 800})
    figure = plot_bias(records)

    badge(records)       # record 7f3c1a… · 50 records · H100 · torch 2.14.1 · seeds 0-4 · commit
    1a2b3c4

Below a figure whose numbers were computed on the page itself stands ``live_badge(seconds)``.
"""

from cevit_lib.records.badges import badge, live_badge
from cevit_lib.records.build import new_record, record_id, rounded
from cevit_lib.records.paper import paper_numbers
from cevit_lib.records.provenance import source_hash
from cevit_lib.records.store import (
    add_arms,
    find_record,
    load_arrays,
    load_records,
    scratch_folder,
    write_record,
)

__all__ = [
    "add_arms",
    "badge",
    "find_record",
    "live_badge",
    "load_arrays",
    "load_records",
    "new_record",
    "paper_numbers",
    "record_id",
    "rounded",
    "scratch_folder",
    "source_hash",
    "write_record",
]
