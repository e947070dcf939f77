"""What the page on speed draws, from planted records of the old arms and the new."""

import pandas as pd

from studies.fit import speed


def planted(*rows: tuple, **metrics: float) -> dict:
    """A record of the encoder's benchmark: arm, adapters, compiled with, images a second, pairs."""
    table = pd.DataFrame(rows, columns=["arm", "adapters", "compile", "images_per_second", "pairs"])
    return {
        "columns": table.assign(precision="bf16").to_dict("list"),
        "metrics": metrics,
        "configuration": {},
    }


def test_a_newer_measurement_of_an_arm_replaces_the_older_and_the_floor_is_the_newest():
    old = planted(
        ("two passes", True, "none", 900.0, 48), ("one pass", True, "default", 2400.0, 48)
    )
    new = planted(
        ("two passes", True, "none", 1000.0, 48), ("ours", True, "default", 4000.0, 192), floor=2e4
    )
    table = speed.steps([old, new])
    assert table["images_per_second"].tolist() == [1000.0, 2400.0, 4000.0]
    assert table["words"].iloc[-1] == "one product a layer, compiled, 192 pairs"
    (line,) = [
        line for line in speed.draw_steps(table).axes[0].lines if line.get_label() == "floor"
    ]
    assert line.get_xdata()[0] == 20_000
    fit = {"whole_seconds": 100.0, "floor_seconds": 25.0, "times_floor": 4.0, "pflop": 20.0}
    fit |= {"matrix_tflops": 800.0, "decoded_per_second_and_core": 10.0, "read_per_second": 3e4}
    fit |= {"warm-up_first_epoch_seconds": 14.2, "warm-up_epoch_seconds": 1.2}
    said = speed.say(table, {"metrics": fit, "configuration": {"machine": "CARD"}})
    assert "4,000 images a second, 20% of the floor" in said and "Compiling takes 13 s" in said
