"""Tables and pictures of the simulation study, on smoke records and on records planted by hand."""

import copy
import math

import numpy as np
import pytest
from scipy.stats import t as student

from studies.simulation import figures, settings, tables
from studies.study import Grid, find
from studies.verdicts import CLAIMS, IN_PART, NOT_REPRODUCED, NOT_RUN, REPRODUCED, Evidence, judge

RNG = np.random.default_rng(5)
SMALL = ("", "-size", "-equal-steps", "-strength", "-overfitting")
BY_KEY = {claim.key: claim for claim in CLAIMS}


@pytest.fixture(scope="module")
def smoke():
    return find("simulation").collect("smoke")


@pytest.fixture(scope="module")
def planted(smoke):
    """The paper's 50 folds with known numbers: noise by data set and fold, a gain of .01 in MAE by
    dependence alone.
    """
    made = []
    for d in range(10):
        level = RNG.normal(0, 0.02)
        for fold in range(1, 6):
            record = copy.deepcopy(smoke.records[0])
            record |= {"scale": "paper", "dirty": False, "id": f"{d}{fold}"}
            record["configuration"] |= {"dataset": d, "fold": fold, "folds": 5}
            values = record["metrics"]
            for arm in (
                "warm-up",
                "empirical",
                "independence",
                "fmcem",
                "in-sample",
                "held-out",
                "true",
            ):
                gain = 0.01 if arm not in ("warm-up", "empirical", "independence") else 0.0
                noise = level + RNG.normal(0, 0.002)
                values[arm] |= {"MAE y1": 0.9 - gain + noise, "MAE y2": 0.88 - gain + noise}
                values[arm] |= {"AUC y3": 0.94 + gain + noise, "AUC y4": 0.94 - gain + noise}
            values["Bayes-optimal"] |= {"MAE y1": 0.8, "MAE y2": 0.78}
            bias = np.array(record["parameters"]["true"]["correlation"])
            bias[0, 1] = bias[1, 0] = bias[0, 1] - 0.2
            record["parameters"]["fmcem"]["correlation"] = bias.tolist()
            made.append(record)
    return Grid("simulation", made, 50)


def evidence(records):
    found = Evidence()
    found._cache["simulation"] = records
    found.has = lambda study: bool(records)
    return found


def test_the_frame_holds_every_number_once_and_the_excess_is_signed(smoke):
    frame = tables.metrics_frame(smoke.records)
    assert not frame.duplicated(["dataset", "fold", "arm", "epoch", "metric"]).any()
    record = smoke.records[1]
    key = (frame["fold"] == record["configuration"]["fold"]) & (frame["epoch"] == "last")
    for metric, own, better in (("MAE_L", "MAE y1", 1), ("AUC_R", "AUC y4", -1)):
        row = frame[key & (frame["arm"] == "fmcem") & (frame["metric"] == metric)].iloc[0]
        floor = record["metrics"]["Bayes-optimal"][own]
        assert row["value"] == record["metrics"]["fmcem"][own]
        assert row["excess"] == pytest.approx(better * (row["value"] - floor))
    both = frame[key & (frame["arm"] == "true") & frame["metric"].isin(["MAE_L", "MAE_R"])][
        "value"
    ].mean()
    assert frame[key & (frame["arm"] == "true") & (frame["metric"] == "MAE")]["value"].iloc[
        0
    ] == pytest.approx(both)


def test_the_interval_takes_data_sets_as_units(planted):
    frame = tables.metrics_frame(planted.records)
    row = tables.compare(frame, "held-out", "independence", "MAE_L")
    pairs = tables.paired_values(frame, "held-out", "independence", "MAE_L")
    means = (pairs["a"] - pairs["b"]).groupby(pairs["dataset"]).mean()
    half = student.ppf(0.975, 9) * means.std(ddof=1) / math.sqrt(10)
    assert (row["low"], row["high"]) == pytest.approx((means.mean() - half, means.mean() + half))
    assert row["folds"] == 50 and row["datasets"] == 10 and row["word"] == "better"
    assert abs(row["difference"] + 0.01) < 4 * 0.002 * math.sqrt(2 / 50)
    assert row["room"] == pytest.approx(-row["difference"] / (row["mean_b"] - 0.8))
    assert tables.compare(frame, "independence", "held-out", "MAE_L")["word"] == "worse"
    assert tables.compare(frame, "held-out", "independence", "AUC_R")["word"] == "worse"
    assert tables.compare(frame, "independence", "independence", "MAE_L")["word"].startswith(
        "no verdict"
    )


def test_sentences_turn_with_the_numbers(planted):
    frame = tables.metrics_frame(planted.records)
    sentence = tables.say(tables.compare(frame, "true", "independence", "MAE"))
    assert "10 data sets, 50 folds" in sentence and sentence.endswith("**better**.")
    swapped = tables.say(tables.compare(frame, "independence", "true", "MAE"))
    assert (
        swapped.endswith("**worse**.") and "difference +" in swapped and "difference -" in sentence
    )
    told = tables.summary(tables.comparisons(frame, ("MAE",)))
    assert told.loc["dependence, true Gamma", "result"] == "better" and "$" not in sentence
    assert told.loc["re-weighting by sigma", "result"] == "not distinguishable"


def test_a_grid_with_gaps_says_so_everywhere(planted):
    part = Grid("simulation", planted.records[:37], 50)
    assert part.note == "37 of 50 folds" and planted.note == "50 folds"
    table = tables.table_one(part)
    assert any("37 of 50 folds" in name for name in table.index)
    assert set(table.loc["verdict"]) == {"not run yet: 37 of 50 folds"}
    frame = tables.metrics_frame(part.records)
    drawn = figures.plot_metrics(frame, ["MAE_L"], note=part.note)
    assert "37 of 50 folds" in drawn.get_suptitle()
    assert "37 folds" in tables.say(tables.compare(frame, "true", "independence", "MAE"))
    verdict = judge(BY_KEY["simulation-mae"], evidence(part.records))
    assert verdict.word == NOT_RUN and "37 of 50" in verdict.because


def test_stored_records_are_those_of_the_grid():
    grid = find("simulation-tuning").collect("stored")
    assert grid.complete and grid.expected == len(settings.grid("simulation-tuning")) == 35
    table = tables.tuning_frame(grid.records)
    frozen = settings.PAPER["warm_up"]
    assert (
        len(table) == 7
        and (table["folds"] == 5).all()
        and table["last epoch"].is_monotonic_increasing
    )
    assert (table["learning rate"][0], table["epochs"][0]) == (
        frozen["learning_rate"],
        frozen["epochs"],
    )


def test_errors_of_gamma_by_hand(planted):
    errors = tables.gamma_errors(planted.records)
    assert errors["fmcem"][0, 1] == errors["fmcem"][1, 0] == pytest.approx(-0.2)
    assert errors["fmcem"][2, 3] == pytest.approx(0) and np.all(np.diag(errors["held-out"]) == 0)
    assert "rho12 -0.200 (SE 0.000)" in tables.say_gamma(planted.records)
    assert (
        judge(BY_KEY["simulation-gamma"], evidence(planted.records)).word == IN_PART
    )  # rho34 is not below


def test_the_verdict_on_the_gain_turns_with_the_numbers(planted):
    assert judge(BY_KEY["simulation-mae"], evidence(planted.records)).word == REPRODUCED
    assert (
        judge(BY_KEY["simulation-auc"], evidence(planted.records)).word == IN_PART
    )  # planted: one eye only
    against = copy.deepcopy(planted.records)
    for record in against:
        record["metrics"]["fmcem"]["MAE y1"] += 0.05
        record["metrics"]["fmcem"]["MAE y2"] += 0.05
    assert judge(BY_KEY["simulation-mae"], evidence(against)).word == NOT_REPRODUCED
    longer = copy.deepcopy(
        planted.records
    )  # ten more epochs explain it all: the control has the same gain
    for record in longer:
        for metric in ("MAE y1", "MAE y2"):
            record["metrics"]["empirical"][metric] = record["metrics"]["fmcem"][metric]
    assert judge(BY_KEY["simulation-mae"], evidence(longer)).word == IN_PART
    table = tables.table_one(planted)
    assert (
        table.loc["verdict", "MAE_L"] == REPRODUCED and table.iloc[0]["MAE_L"] == "-1.47 (<0.001)"
    )


def test_a_printed_d_and_p_imply_the_number_of_pairs():
    for count in (10, 50, 500):
        p = 2 * student.sf(0.3 * math.sqrt(count), count - 1)
        assert tables.implied_pairs(0.3, p) == count


def test_sensitivity_has_a_row_for_every_setting_and_arm(smoke):
    small = copy.deepcopy(smoke.records)
    for record in small:
        record["configuration"]["n"] = 200
    grids = [smoke, Grid("simulation-size", small, 2)]
    rows = tables.sensitivity(grids, "n", "independence", ("held-out", "true"))
    assert list(zip(rows["n"], rows["a"], strict=True)) == [
        (200, "held-out"),
        (200, "true"),
        (300, "held-out"),
        (300, "true"),
    ]
    own = tables.gamma_frame(smoke.records)
    wanted = own[own["estimate"] == "held-out"]["error"].abs().mean()
    assert rows["estimate_error"][0] == pytest.approx(wanted) and math.isnan(
        rows["estimate_error"][1]
    )


def test_pictures_of_a_smoke_grid_are_marked(smoke):
    from cevit_lib.clinic.style import png
    from tools.dress import SMOKE_MARKS

    frame, marks = tables.metrics_frame(smoke.records), {"note": smoke.note, "smoke": smoke.smoke}
    rows = tables.sensitivity([smoke], "n", "independence", ("held-out", "true"))
    drawn = [
        figures.plot_metrics(frame, ["MAE_L", "AUC_R", "joint ACC"], **marks),
        figures.plot_gamma(tables.gamma_errors(smoke.records), **marks),
        figures.plot_differences(tables.comparisons(frame), **marks),
        figures.plot_sensitivity([("n", "patients", rows)], "difference", "MAE", **marks),
        figures.plot_curves(tables.curves(smoke.records), **marks),
    ]
    for figure in drawn:
        assert any(text.get_text() in SMOKE_MARKS for text in figure.texts)
        assert png(figure)
    assert tables.costs(smoke.records).loc["warm-up", "seconds a fit"] > 0


def test_networks_left_behind_are_counted_by_arm(planted):
    """Two folds whose labels were not learnt are counted, and do not weigh on the mean of the
    others.
    """
    records = copy.deepcopy(planted.records)
    expected = np.mean(
        [(r["metrics"]["true"]["AUC y3"] + r["metrics"]["true"]["AUC y4"]) / 2 for r in records[2:]]
    )
    for record in records:
        record["metrics"]["Bayes-optimal"] |= {"AUC y3": 0.96, "AUC y4": 0.96}
    for record in records[:2]:
        record["metrics"]["true"] |= {"AUC y3": 0.8, "AUC y4": 0.8}
    found = tables.left_behind(tables.metrics_frame(records), "AUC", 0.1)
    count, total, mean = found.loc["true"]
    assert (count, total) == (2, 50) and mean == pytest.approx(expected, abs=1e-4)
    assert found.loc["held-out"].iloc[0] == 0


def test_the_table_by_epochs_holds_the_planted_means(planted):
    records = copy.deepcopy(planted.records[:4])
    for record, epochs in zip(records, (4, 4, 8, 8), strict=True):
        record["configuration"]["warm_up"] = record["configuration"]["warm_up"] | {"epochs": epochs}
        for arm in ("empirical", "fmcem", "in-sample", "held-out", "true"):
            best = arm == ("fmcem" if epochs == 4 else "held-out")
            record["metrics"][arm] |= {
                "MAE y1": 1.0 - 0.2 * best,
                "MAE y2": 1.2 - 0.2 * best,
                "log-likelihood": -3.0,
            }
            record["metrics"][arm]["log-likelihood"] += arm == "in-sample"
    grid = Grid("simulation-overfitting", records, 4)
    found = tables.by_epochs([grid])
    assert found.loc[4, ("MAE", "fmcem")] == pytest.approx(0.9) and found.loc[
        8, ("MAE", "fmcem")
    ] == pytest.approx(1.1)
    said = tables.say_by_epochs([grid]).splitlines()
    assert len(said) == 4 and said[1].startswith("- MAE, held-out estimate against fmcem: ")


def test_what_the_alternative_texts_of_the_small_grids_say_is_in_the_records():
    """They are typed, so they are held to the records."""
    grids = {name: find(f"simulation{name}").collect("stored") for name in SMALL}
    main, size, steps, strength, long = grids.values()

    def errors(grid, by):
        table = tables.estimate_errors([main, grid], by)
        return table.pivot(index=by, columns="a")["estimate_error"]

    def rows_of(grid, by, control, *arms):
        return tables.sensitivity([main, grid], by, control, arms)

    rows = rows_of(strength, "strength", "independence", "held-out").set_index("strength")
    assert rows.loc[0, "low"] < 0 < rows.loc[0, "high"]
    assert rows["difference"].loc[0.25:].is_monotonic_decreasing
    error = errors(strength, "strength")
    assert error[["held-out", "in-sample"]].max().max() < 0.1 and error["fmcem"].min() > 0.3

    rows = rows_of(size, "n", "independence", "held-out").set_index("n")
    few = rows.loc[[500, 1000, 2000]]
    assert (few["difference"] < 2 * rows.loc[10_000, "difference"]).all()
    exact = errors(size, "n")[["held-out", "in-sample"]]
    assert (exact.loc[:5000] / exact.loc[10_000]).stack().between(2.5, 4.5).all()
    worse = tables.against_start(size).drop(columns=["AUC of warm-ups", "MAE"]).astype(float)
    assert (worse.loc[:2000] > 0).all(axis=None) and (worse.loc[5000] < 0).all()

    rows = rows_of(steps, "n", "independence", "held-out").set_index("n")
    assert rows.loc[500, "low"] > 0 and rows["difference"].idxmin() == 5000
    error = errors(steps, "n")
    assert error.loc[:1000, ["fmcem", "in-sample"]].min(axis=None) > 0.5
    assert error["held-out"].max() < 0.21

    rows = rows_of(long, "epochs", "empirical", "fmcem", "in-sample", "held-out", "true")
    rows = rows.pivot(index="epochs", columns="a")
    gain = -rows["difference"]
    error = errors(long, "epochs")
    assert gain["in-sample"].idxmin() == gain["held-out"].idxmin() == gain["fmcem"].idxmax() == 16
    assert gain.loc[32, "true"] > 2 * gain.loc[32].drop("true").max()
    assert error.loc[32, "fmcem"] > 0.6 and error.loc[32, "in-sample"] > 0.6
    assert error.loc[32, "held-out"] == pytest.approx(0.2, abs=0.05)


def test_more_steps_are_compared_by_data_sets_that_differ(planted):
    """Welch's interval by hand: five data sets each, two folds that are averaged first."""
    few, many = (
        copy.deepcopy([r for r in planted.records if r["configuration"]["fold"] <= 2][:10])
        for _ in range(2)
    )
    area = {id(few): [0.50, 0.52, 0.54, 0.51, 0.53], id(many): [0.60, 0.70, 0.80, 0.65, 0.75]}
    for records in (few, many):
        for record in records:
            c = record["configuration"]
            value = area[id(records)][c["dataset"] % 5] + (0.01 if c["fold"] == 1 else -0.01)
            record["metrics"]["warm-up"] |= {"AUC y3": value, "AUC y4": value}
    said = tables.say_steps(Grid("a", few, 10), Grid("b", many, 10), ("AUC",))
    a, b = (np.var(area[id(r)], ddof=1) / 5 for r in (few, many))
    half = student.ppf(0.975, (a + b) ** 2 / (a**2 / 4 + b**2 / 4)) * np.sqrt(a + b)
    assert said.count("\n") == 0 and "AUC 0.700 instead of 0.520" in said
    assert f"{0.18 - half:+.3f} to {0.18 + half:+.3f}): **better**" in said


def test_each_arm_is_set_against_its_own_warm_up(planted):
    records = copy.deepcopy(planted.records[:10])
    for record in records:
        for metric in ("MAE y1", "MAE y2"):
            record["metrics"]["true"][metric] = record["metrics"]["warm-up"][metric] - 0.25
        record["metrics"]["warm-up"] |= {"AUC y3": 0.7, "AUC y4": 0.9}
    (row,) = tables.against_start(Grid("simulation-size", records, 10)).to_dict("records")
    assert row["true"] == "-0.250" and row["AUC of warm-ups"] == "0.800 (0.800 to 0.800)"


def test_the_price_of_a_loss_is_a_ratio_of_median_epochs():
    seconds = {
        "warm-up": 9.0,
        "empirical": 2.0,
        "independence": 3.0,
        "fmcem": 3.0,
        "in-sample": 3.0,
        "held-out": 3.0,
        "true": 3.0,
    }
    trace = [
        {"stage": stage, "seconds": s * factor}
        for stage, s in seconds.items()
        for factor in (1, 1, 1, 50)
    ]
    assert tables.epoch_price([{"trace": trace}]) == pytest.approx(1.5)
