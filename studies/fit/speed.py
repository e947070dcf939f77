"""What the records of ``benchmarks/training.py`` say."""

from __future__ import annotations

from typing import Any

from cevit_lib.errors import ProvenanceError
from cevit_lib.records import load_records

PARTS = ("full-fit", "two-gpus", "captured", "grid", "deterministic")


def speed_records() -> dict[str, dict[str, Any]]:
    """Return the stored record of each part that was measured; of several, the newest."""
    try:
        records = load_records("training-speed")
    except ProvenanceError:
        return {}
    return {r["configuration"]["part"]: r for r in sorted(records, key=lambda r: r["created"])}


def say_speed(records: dict[str, dict[str, Any]]) -> str:
    """Return one line a part; one without a record is named with the command that measures it."""
    says = {
        "full-fit": _full_fit,
        "two-gpus": _two_devices,
        "captured": _captured,
        "grid": _grid,
        "deterministic": _deterministic,
    }
    lines = [
        says[part](records[part])
        if part in records
        else f"not measured yet: `python -m benchmarks.training --{part}`"
        for part in PARTS
    ]
    return "\n".join(f"- {line}" for line in lines)


def _full_fit(record: dict) -> str:
    m, c = record["metrics"], record["configuration"]
    epochs = " + ".join(map(str, c["epochs"]))
    told = (
        f"one complete fit, compiling included ({epochs} epochs of {c['pairs']:,} pairs, a tenth "
        "of them held out, "
        f"batch {c['batch']}) on one {c['machine']}: {m['whole_seconds']:.0f} s, "
        f"{m['whole_seconds'] / 3600:.2f} hours (printed: {m['paper_hours']:g} hours on two RTX "
        "4090)"
    )
    if m.get("floor_seconds"):
        told += (
            f"; its {m['pflop']:.1f} PFLOP would take {m['floor_seconds']:.0f} s at the "
            f"{m['matrix_tflops']:.0f} "
            f"TFLOP/s of a large bf16 product: {m['times_floor']:.1f} times the floor"
        )
    return told


def _two_devices(record: dict) -> str:
    speeds, parts = record["columns"]["images_per_second"], []
    for k, (batch, ratio) in enumerate(record["metrics"]["times_one_device"].items()):
        if ratio is None:
            parts.append(f"{batch}: did not run")
            continue
        one, two = speeds[2 * k : 2 * k + 2]
        parts.append(f"{batch}: {ratio:.2f} times one ({one:,.0f} and {two:,.0f} images a second)")
    return f"two {record['configuration']['machine']} inside one fit, the same steps: " + "; ".join(
        parts
    )


def _captured(record: dict) -> str:
    batch, m = record["columns"]["batch"][0], record["metrics"]
    told = f"steps of {batch} pairs recorded as CUDA graphs "
    told += "(`TORCHINDUCTOR_CUDAGRAPHS=1` before a compiled fit): "
    if None in (m["times_compiled"], m["times_one_device"]):
        return told + "did not run"
    compiled, one, two = record["columns"]["images_per_second"]
    return told + (
        f"{m['times_compiled']:.2f} times the speed of the compiled ones on one card ({one:,.0f} "
        "and "
        f"{compiled:,.0f} images a second), and two cards are {m['times_one_device']:.2f} times "
        "one "
        f"({two:,.0f})"
    )


def _grid(record: dict) -> str:
    m = record["metrics"]
    (one, two), (all_of_one, all_of_two) = m["fitting_seconds"], m["whole_seconds"]
    return (
        f"{m['fits']} fits of the simulation study, one arm each, on two "
        f"{record['configuration']['machine']}: "
        f"{m['times_one_device']:.2f} times one ({one:.0f} and {two:.0f} s of fitting; with "
        "start-up, compiling, "
        f"its check and estimates {all_of_one:.0f} and {all_of_two:.0f} s)"
    )


def _deterministic(record: dict) -> str:
    parts = []
    for name, m in record["metrics"].items():
        equal = "bit-equal" if m["bit_equal"] else "not bit-equal"
        ran = (
            None
            if m["error"]
            else f"{equal}, {m['epoch_seconds']:.1f} s an epoch, {m['peak_gib'] or 0:.0f} GiB"
        )
        parts.append(f"{name}: {ran or m['error']}")
    return f"two runs of one seed on one {record['configuration']['machine']}: " + "; ".join(parts)
