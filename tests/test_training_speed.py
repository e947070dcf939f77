"""What the page on speed says and draws, from planted records of the old arms and the new."""

import numpy as np
import pandas as pd
import pytest

from cevit_lib.records import load_records
from studies.fit import speed


def planted(columns: dict, floor: float | None = None, **configuration) -> dict:
    metrics = {} if floor is None else {"floor": floor}
    return {"columns": columns, "metrics": metrics, "configuration": configuration}


def arms(*rows: tuple) -> dict:
    """Columns of a benchmark of the encoder: arm, adapters, compiled with, images a second."""
    table = pd.DataFrame(rows, columns=["arm", "adapters", "compile", "images_per_second"])
    return table.assign(precision="bf16").to_dict("list")


def test_a_newer_measurement_of_an_arm_replaces_the_older_and_the_floor_is_the_newest():
    old = arms(("two passes", True, "none", 900.0), ("one pass", True, "default", 2400.0))
    new = arms(("two passes", True, "none", 1000.0), ("ours", True, "reduce-overhead", 4000.0))
    new["arm"].append("without adapters")
    for name, value in (("adapters", False), ("compile", "reduce-overhead"), ("precision", "bf16")):
        new[name].append(value)
    new["images_per_second"].append(4100.0)
    new["pairs"] = [48, 48, 192]
    table = speed.steps([planted(old, pairs=48), planted(new, floor=20_000.0)])
    assert table["words"].tolist() == [
        "a pass for each eye",
        "both eyes in one pass, compiled",
        "one product a layer, compiled",
        "one product a layer, without adapters, compiled, 192 pairs",
    ]
    assert table["images_per_second"].tolist() == [1000.0, 2400.0, 4000.0, 4100.0]
    (line,) = [
        line for line in speed.draw_steps(table).axes[0].lines if line.get_label() == "floor"
    ]
    assert line.get_xdata()[0] == 20_000
    fit = {"whole_seconds": 100.0, "paper_hours": 4.5, "floor_seconds": 25.0, "times_floor": 4.0}
    fit |= {"pflop": 20.0, "matrix_tflops": 800.0, "decoding_seconds": 30.0}
    record = {"metrics": fit, "configuration": {"machine": "CARD"}}
    assert speed.fit_times(record)["seconds"].tolist() == [16_200.0, 100.0, 30.0, 25.0]
    fit |= {"warm-up_first_epoch_seconds": 14.2, "warm-up_epoch_seconds": 1.2}
    fit |= {"decoded_per_second_and_core": 10.0, "read_per_second": 30_000.0}
    assert speed.say(table, record) == (
        "The fastest whole step trains 4,000 images a second, 20% of the floor. A complete fit "
        "takes 100 s on one CARD, 4.0 times its floor: 20.0 PFLOP at 800 TFLOP/s. Compiling "
        "takes 13 s of it. A core decodes 10 photographs a second; kept bytes are read at 30,000."
    )


def test_what_is_drawn_of_loss_and_estimate_stands_in_the_records():
    losses, estimates = speed.loss_records(), load_records("estimation-speed")
    table = speed.costs(losses, estimates[-1])
    assert set(table["panel"].value_counts().index) == {
        "loss, one CPU thread",
        "loss, GPU, replayed",
        "estimate, one CPU thread",
    }
    own = table[(table["method"] == "fMCEM") & (table["patients"] == 1000)]["ms"]
    seconds = dict(
        zip(*(estimates[-1]["columns"][k] for k in ("n", "FastMCEM.seconds")), strict=True)
    )
    assert own.item() == pytest.approx(1e3 * seconds[1000])
    assert len(speed.draw_costs(table).axes) == 3 and np.isfinite(table["ms"]).all()
