"""What is said of the speed of training, from planted records."""

from studies.fit import speed


def planted(part: str, metrics: dict, columns: dict | None = None, **configuration) -> dict:
    return {
        "configuration": {"part": part, "machine": "CARD", **configuration},
        "metrics": metrics,
        "columns": columns,
    }


FULL = planted(
    "full-fit",
    {
        "whole_seconds": 1800.0,
        "paper_hours": 4.5,
        "floor_seconds": 60.0,
        "pflop": 30.0,
        "matrix_tflops": 500.0,
        "times_floor": 30.0,
    },
    epochs=[2, 3],
    pairs=1000,
    batch=48,
)


def test_a_part_without_a_record_is_named_with_its_command():
    lines = speed.say_speed({}).splitlines()
    assert len(lines) == len(speed.PARTS)
    for part, line in zip(speed.PARTS, lines, strict=True):
        assert line.endswith(f"`python -m benchmarks.training --{part}`")


def test_every_part_is_said_with_its_own_numbers():
    records = {
        "full-fit": FULL,
        "two-gpus": planted(
            "two-gpus",
            {"times_one_device": {"batch 8": 0.5, "batch 16": 1.75}},
            {"images_per_second": [2000.0, 1000.0, 400.0, 700.0]},
        ),
        "captured": planted(
            "captured",
            {"times_compiled": 0.8, "times_one_device": 1.25},
            {"batch": [8, 8, 8], "images_per_second": [1000.0, 800.0, 1000.0]},
        ),
        "grid": planted(
            "grid",
            {
                "fits": 50,
                "times_one_device": 1.9,
                "fitting_seconds": [190.0, 100.0],
                "whole_seconds": [300.0, 200.0],
            },
        ),
        "deterministic": planted(
            "deterministic",
            {
                "eager, free": {
                    "bit_equal": False,
                    "epoch_seconds": 2.0,
                    "peak_gib": 5.0,
                    "error": None,
                },
                "eager, deterministic": {
                    "bit_equal": None,
                    "epoch_seconds": None,
                    "peak_gib": None,
                    "error": "no room",
                },
            },
        ),
    }
    full, two, captured, grid, twice = speed.say_speed(records).splitlines()
    assert (
        "2 + 3 epochs of 1,000 pairs" in full
        and "1800 s, 0.50 hours" in full
        and "30.0 times the floor" in full
    )
    assert (
        "batch 8: 0.50 times one (2,000 and 1,000" in two
        and "batch 16: 1.75 times one (400 and 700" in two
    )
    assert "steps of 8 pairs" in captured and "1.25 times one (1,000)" in captured
    assert "0.80 times the speed of the compiled ones on one card (800 and 1,000 images" in captured
    records["captured"]["metrics"]["times_compiled"] = None  # the row that is not captured failed
    assert (
        speed.say_speed({"captured": records["captured"]}).splitlines()[2].endswith("did not run")
    )
    assert "1.90 times one (190 and 100 s" in grid and "estimates 300 and 200 s)" in grid
    assert (
        "eager, free: not bit-equal, 2.0 s an epoch, 5 GiB" in twice
        and "eager, deterministic: no room" in twice
    )
