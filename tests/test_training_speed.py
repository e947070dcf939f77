"""What the page on speed draws, and what it says of the records."""

from cevit_lib.records import load_records
from studies.fit import speed

RECORD = load_records("encoder-speed")[-1]


def test_the_arms_of_a_step_stand_beside_the_floor_in_words():
    table = speed.steps(RECORD).set_index("words")["images_per_second"]
    assert table.index[0] == "a pass for each eye" and table.is_monotonic_increasing
    assert table["one product a layer, compiled, 192 pairs"] > 4400  # what was asked for
    ours = table["one product a layer, compiled"]
    assert 6 < ours / table["a pass for each eye"] < 7  # "six times"
    assert 1.15 < ours / table["peft's three products a layer, compiled"] < 1.25  # "a fifth"
    waits = table["one product a layer, not replayed, compiled"]
    assert waits < ours / 2 and RECORD["metrics"]["adapter_cost"] < 0.04
    large = "one product a layer{}, compiled, 192 pairs"
    assert table[large.format(", not replayed")] > 0.95 * table[large.format("")]
    (line,) = [
        line
        for line in speed.draw_steps(speed.steps(RECORD)).axes[0].lines
        if line.get_label() == "floor"
    ]
    assert table.max() / line.get_xdata()[0] > 1 / 3  # "more than a third"


def test_what_the_page_says_of_losses_and_estimates():
    estimates = load_records("estimation-speed")[-1]
    table = speed.costs(speed.loss_records(), estimates).set_index(["panel", "method", "patients"])
    ms = table["ms"]["estimate, one CPU thread"]
    ratio = ms["maximum likelihood"] / ms["fMCEM"]
    assert 1.7 < ratio.min() and ratio.max() < 4.3 and ms["maximum likelihood"][1000] < 25
    losses = table["ms"]["loss, one CPU thread"].unstack("method")
    ratio = losses["copula loss"] / losses["BCE + MSE"]
    assert 2.5 < ratio.min() and ratio.max() < 10.5  # "three to ten times"
    together = estimates["metrics"]["members"]["25 members"]
    alone = 1e3 * estimates["metrics"]["at 800"]["MaximumLikelihood"]["seconds"]
    assert together < 40 and 1.5 < together / alone < 2.5


def test_what_two_cards_bring_is_what_the_page_says():
    ratio = speed.fit_records()["two-gpus"]["metrics"]["times_one_device"]
    assert {k: round(v, 1) for k, v in ratio.items()} == {"batch 48": 1.8, "batch 192": 1.9}


def test_what_a_fit_takes_is_said_beside_its_floor():
    fit = {"whole_seconds": 100.0, "floor_seconds": 25.0, "times_floor": 4.0, "pflop": 20.0}
    fit |= {"matrix_tflops": 800.0, "decoded_per_second_and_core": 10.0, "read_per_second": 3e4}
    fit |= {"warm-up_first_epoch_seconds": 14.2, "warm-up_epoch_seconds": 1.2}
    speeds = {"ours-48": 4000.0, "adapters alone-48": 5000.0}  # the latter is no whole step
    steps = {"images_per_second": speeds, "floor": 2e4, "adapter_cost": 0.051}
    said = speed.say({"metrics": steps}, {"metrics": fit, "configuration": {"machine": "CARD"}})
    assert "4,000 images a second, 20% of the floor, of which the adapters cost 5.1%" in said
    assert "100 s on one CARD, 4.0 times its floor" in said and "Compiling takes 13 s" in said
