"""The ablation on photographs, at smoke size on drawn ones: who is left out of what, what the eyes
of strangers lose, what a comparison may say, and how the default is decided."""

import argparse
import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import t
from test_simulation_tables import folds as simulated

pytest.importorskip("timm", reason="needs the extra vit")

from cevit_lib.clinic.configuration import algorithm_of
from cevit_lib.clinic.options import declare
from cevit_lib.errors import DataError  # noqa: E402
from cevit_lib.records import load_records
from cevit_lib.records.verify import numbers  # noqa: E402
from cevit_lib.training.algorithm import AlgorithmThree  # noqa: E402
from cevit_lib.training.recipe import Recipe  # noqa: E402
from cevit_lib.training.side_by_side import SideBySide  # noqa: E402
from studies.comparison import inflation  # noqa: E402
from studies.photographs import data, figures, fits, pretraining, tables  # noqa: E402
from studies.photographs.settings import ADAPTED, ARMS, DISRUPTED, SMOKE  # noqa: E402
from studies.study import find  # noqa: E402
from studies.verdicts.default import (  # noqa: E402
    ALGORITHM_3,
    DEFAULT,
    ONE_STAGE,
    default_algorithm,
    one_stage_by_default,
)
from studies.verdicts.judge import (  # noqa: E402
    IN_PART,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    Evidence,
    MissingRecordError,
)

NAMES = ("photographs", "photographs-disrupted", "photographs-references")


@pytest.fixture(scope="module")
def made():
    """Smoke records of each part; those of this very code are not fitted again."""
    return {name: find(name).collect("smoke").records for name in NAMES}


@pytest.fixture(scope="module")
def eyes():
    return data.load_eyes("synthetic eyes", SMOKE["size"], True)


FOLDS = [SMOKE | {"fold": fold} for fold in (1, 2, 3, 4)]

# ---------------------------------------------------------------- who sees whom


def test_every_partition_tests_everybody_once_and_each_fold_within_one_half(eyes):
    halves = [set(data.rows_of_half(eyes, half)) for half in (0, 1)]
    assert not halves[0] & halves[1] and len(halves[0]) == len(halves[1]) == len(eyes) / 2
    for number in (0, 1):
        splits = [data.partition(eyes, c | {"partition": number}) for c in FOLDS]
        tested = np.concatenate([split.test for split in splits])
        assert sorted(tested) == list(range(len(eyes)))
        for c, split in zip(FOLDS, splits, strict=True):
            assert set(split.test) <= halves[data.half_of(c)]
            assert not set(split.test) & set(split.train) and len(split.train) == 36
    first, other = (data.partition(eyes, FOLDS[0] | {"partition": p}).test for p in (0, 1))
    assert set(first) != set(other)


def test_no_image_of_a_test_patient_is_pretrained_on(eyes):
    images, owners = data.all_images(SMOKE)
    made = find("photographs-pretraining").collect("smoke").records
    for (member, _), record in zip(pretraining.settings("smoke"), made, strict=True):
        rows = data.without_half(owners, eyes, member["half"])
        stored = torch.load(pretraining.weights_file(member["half"], "smoke"), weights_only=True)
        assert stored["told"]["images_seen"] == record["metrics"]["images_seen"] == len(rows)
        assert stored["told"]["record"] == record["id"] and not stored["told"]["labels_used"]
        for c in FOLDS:
            if data.half_of(c) == member["half"]:
                tested = {eyes.ids[i] for i in data.partition(eyes, c).test}
                assert pretraining.encoder_of(c, "smoke")[1]["record"] == record["id"]
                assert not tested & set(owners[rows]) and tested <= set(owners)
    strangers = np.array([f"other {name}" for name in owners])
    with pytest.raises(DataError, match="do not agree"):  # would leave nobody out
        data.without_half(strangers, eyes, 0)


def test_missing_weights_name_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, "project_root", lambda: tmp_path)
    with pytest.raises(DataError, match="python -m studies photographs-pretraining"):
        pretraining.encoder_of(SMOKE, "paper")


def test_cross_fitted_outputs_stand_in_their_patients_rows(eyes):
    """A network that says everybody's responses must give back those of the training patients, in
    their order, also where their eyes are strangers'."""

    class Oracle(SideBySide):
        def train(self, *_):
            return []

        def outputs(self, part):
            return self.responses(part)

    wanted = [(c | {"weights": "random", "pairs": "strangers"}, 7) for c in FOLDS]
    batch = fits.Batch(wanted, "smoke", torch.device("cpu"))
    oracle, recipe = Oracle(**vars(batch.fresh)), Recipe(**SMOKE["recipe"])
    found = AlgorithmThree(oracle, recipe, recipe, {}, oracle).cross_fit()
    for own, split, pairs in zip(found, batch.splits, batch.eyes, strict=True):
        assert torch.equal(own, pairs.y[split.train])
        assert not torch.equal(own, eyes.y[split.train])


# ---------------------------------------------------------------- strangers


def test_strangers_keep_each_eye_and_what_joins_its_responses(eyes):
    c = FOLDS[0]
    split = data.partition(eyes, c)
    parts = [split.test, *data.left_out_parts(eyes, split, c, 0)]
    assert sorted(np.concatenate(parts)) == list(range(len(eyes)))
    mixed = data.strangers(eyes, parts, np.random.default_rng(0))
    assert torch.equal(mixed.images[:, 0], eyes.images[:, 0])
    assert torch.equal(mixed.y[:, ::2], eyes.y[:, ::2])
    right = [tuple(row) for row in eyes.y[:, 1::2].tolist()]
    whose = [right.index(tuple(row)) for row in mixed.y[:, 1::2].tolist()]
    assert all(torch.equal(mixed.images[i, 1], eyes.images[j, 1]) for i, j in enumerate(whose))
    assert all(i != j for i, j in enumerate(whose))
    for rows in parts:  # nobody has an eye on either side of a split
        assert sorted(whose[i] for i in rows) == sorted(rows)


def test_without_what_joins_the_eyes_two_eyes_are_two_patients(made):
    """The density under such parameters is the product of two densities of one eye each."""
    from cevit_lib.copula import CopulaParameters, log_density

    record = made["photographs"][0]
    whole = CopulaParameters.from_dict(record["parameters"]["one stage"])
    y, outputs = (
        torch.tensor(record["predictions"][name], dtype=torch.float64)
        for name in ("y", "one stage")
    )
    each = 0.0
    for j in (0, 1):
        own = [j, j + 2]
        alone = CopulaParameters(whole.correlation[own][:, own], whole.scale[[j]])
        each = each + log_density(outputs[:, own], y[:, own], alone)
    torch.testing.assert_close(log_density(outputs, y, tables.within_eyes(whole)), each)
    joint, _ = tables.joined(record)
    assert joint == pytest.approx(record["metrics"]["one stage"]["log-likelihood"], rel=1e-4)


# ---------------------------------------------------------------- records


def test_every_fit_has_its_arms_its_predictions_and_the_name_of_its_weights(made, eyes):
    for record in made["photographs"]:
        c = record["configuration"]
        arms = ADAPTED if c["adapters"] else ARMS
        assert set(record["metrics"]) == set(record["arms"]) == set(arms)
        weights = record["parameters"]["weights"]
        assert weights["kind"] == "mae-half" and weights["hash"]
        tested = [eyes.ids[i] for i in data.partition(eyes, c).test]
        assert record["predictions"]["patient"] == tested
        assert len(record["predictions"]["one stage"]) == len(tested)
        # estimated along the way, and after the last epoch
        epochs, renewed = c["recipe"]["epochs"], record["trace"]["one stage"]
        assert renewed["estimated after epoch"][-1] == epochs
        last = record["parameters"]["one stage"]["correlation"][0][1]
        assert renewed["rho12"][-1] == pytest.approx(last, rel=1e-4)
        said = [tuple(np.ravel(record["predictions"][arm])) for arm in arms]
        assert len(set(said)) == len(arms)
        assert len(record["trace"]["algorithm 3, exact"]["loss"]) == epochs - epochs // 2
    (shown,) = [r for r in made["photographs"] if r["columns"]]
    assert shown["configuration"] | fits.SHOWN == shown["configuration"] | {"arm": "one stage"}
    assert len(shown["columns"]["test"]) == 2 * len(eyes)


@pytest.mark.parametrize(
    ("study", "arms"),
    [("photographs-disrupted", DISRUPTED), ("photographs", ("algorithm 3, exact",))],
)
def test_a_fit_made_alone_has_the_numbers_of_the_same_fit_made_with_others(made, study, arms):
    """Beside other fits, and behind other arms: one that is added later is the same."""
    record = made[study][1]
    again = find(study).refit(record | {"arms": dict.fromkeys(arms)})
    assert again["id"] == record["id"]
    for arm in arms:  # both epochs see estimates of networks that trained along
        for name, together in record["trace"][arm].items():
            np.testing.assert_allclose(again["trace"][arm][name], together, rtol=5e-3)
    found, known = numbers(again), numbers(record)
    assert found == pytest.approx({name: known[name] for name in found}, rel=5e-3, abs=1e-3)


# ---------------------------------------------------------------- what the tables may say


def noise(differences, metric="MAE"):
    """A frame of two arms whose differences are given, (partitions, folds)."""
    partitions, folds = differences.shape
    rows = [
        {"partition": p, "fold": f + 1, "folds": folds, "arm": arm, "metric": metric}
        | {"value": 10.0 + (differences[p, f] if arm == "a" else 0.0)}
        for p in range(partitions)
        for f in range(folds)
        for arm in ("a", "b")
    ]
    return pd.DataFrame(rows)


def test_the_corrected_interval_is_the_formula_by_hand():
    d = np.random.default_rng(0).normal(0.2, 1.0, (10, 4))
    row = tables.compare(noise(d), "a", "b", "MAE")
    half = t.ppf(0.975, 39) * d.std(ddof=1) * math.sqrt(1 / 40 + 1 / 3)
    assert [row["low"], row["high"]] == pytest.approx([d.mean() - half, d.mean() + half])
    assert row["d_z"] == pytest.approx(d.mean() / d.std(ddof=1))


def test_the_smallest_difference_is_found_in_four_of_five_simulated_studies():
    """Differences as the correction assumes them: equally correlated by the test share."""
    rng, folds, share, n = np.random.default_rng(1), 40, 0.25, 20_000
    d = tables.smallest_detectable(folds, share)
    shift = d * math.sqrt(folds / inflation(folds, share))
    statistic = rng.normal(shift, 1, n) / np.sqrt(rng.chisquare(folds - 1, n) / (folds - 1))
    found = (np.abs(statistic) > t.ppf(0.975, folds - 1)).mean()
    assert abs(found - 0.8) < 4 * math.sqrt(0.16 / n)
    # no number of partitions takes it below 2.8 standard errors of sqrt(1/3)
    assert tables.smallest_detectable(10_000, share) > 1.6
    differences = rng.normal(size=(10, 4))
    row = tables.compare(noise(differences), "a", "b", "MAE")
    assert row["smallest"] == pytest.approx(d * differences.std(ddof=1))


@pytest.mark.parametrize(
    ("mean", "metric", "word"),
    [(-3.0, "MAE", "better"), (-3.0, "AUC", "worse"), (0.0, "MAE", "not distinguishable")],
)
def test_words_follow_the_direction_of_the_metric(mean, metric, word):
    d = mean + np.random.default_rng(2).normal(0, 0.1, (10, 4))
    assert tables.compare(noise(d, metric), "a", "b", metric)["word"] == word


def test_tables_and_pictures_have_every_arm_and_the_papers_rows(made):
    records = made["photographs"]
    frame = tables.metrics_frame(records + made["photographs-references"])
    assert list(tables.levels(frame).index) == list(tables.NAMES.values())
    two = tables.table_two(frame)
    assert list(dict.fromkeys(two.index.get_level_values(0))) == list(tables.TABLE_TWO)
    assert two.loc[("CeViT vs. ViT", "printed"), "MAE_L"] == "-1.91 (<0.001)"
    rows = tables.comparisons(frame)
    assert len(rows) == 2 * len(tables.QUESTIONS)
    plain = [r for r in records if not r["configuration"]["adapters"]]
    mean, _ = tables.gamma_matrices(plain)["CeViT, one stage"]
    texts = figures.plot_gamma(tables.gamma_matrices(plain)).axes[1].texts
    assert texts[0].get_text().startswith(f"{mean[0, 1]:.2f}")
    gains = tables.gains_of_dependence(plain, made["photographs-disrupted"])
    assert "where the eyes are strangers" in tables.answer(rows, gains)
    weights = tables.weights_table(records)
    assert weights["fits"].tolist() == [4, 4] and not weights["labels_used"].any()


# ---------------------------------------------------------------- the default of `cevit fit`


def planted(gain, spread, rng, extra=0.0):
    """Records of photographs whose log score gains on average, fold by fold."""
    rows = []
    for partition, fold in itertools.product(range(10), range(1, 5)):
        c = {"partition": partition, "fold": fold, "folds": 4}
        ours = -9 + gain + spread * rng.normal()
        for adapters in (-extra, extra):
            values = {ONE_STAGE: ours + adapters, ALGORITHM_3: -9.0}
            metrics = {arm: {"log-likelihood": value} for arm, value in values.items()}
            rows.append({"configuration": c, "metrics": metrics})
    return rows


@pytest.mark.parametrize(
    ("gain", "share", "word"),
    [
        (0.5, -0.1, REPRODUCED),  # the photographs decide, whatever the simulation says
        (-0.5, 0.1, NOT_REPRODUCED),
        (0.0, 0.1, IN_PART),
        (0.0, -0.1, NOT_REPRODUCED),
        (0.0, 0.002, NOT_REPRODUCED),  # nobody decides: the algorithm that is there stays
    ],
)
def test_the_default_is_decided_by_the_photographs_else_by_the_simulation(gain, share, word):
    photographs = planted(gain, 0.2, np.random.default_rng(3), 5.0)
    known = {"photographs": photographs, "simulation": simulated(**{ONE_STAGE: 1 - share})}
    verdict = one_stage_by_default(Evidence(_cache=known))
    assert verdict.word == word, verdict.because
    assert ("simulation" in verdict.because) == (gain == 0)


def test_half_a_grid_decides_nothing(tmp_path):
    rng = np.random.default_rng(4)
    with pytest.raises(MissingRecordError, match="40 of 80"):
        one_stage_by_default(Evidence(_cache={"photographs": planted(1, 0.1, rng)[:40]}))
    assert default_algorithm(tmp_path) == NOT_RUN
    assert DEFAULT.studies == ("photographs", "simulation")


def test_cevit_fit_takes_what_the_rule_decided():
    parser = argparse.ArgumentParser()
    declare("fit", parser)
    own = {ONE_STAGE: "one-stage", "algorithm 3": "feasible"}[default_algorithm()]
    assert algorithm_of(parser.parse_args([])) == own
    for words in (["--preset", "paper"], ["--copula-epochs", "3"], ["--algorithm", "feasible"]):
        assert algorithm_of(parser.parse_args(words)) == "feasible"


def test_the_page_says_what_the_records_say():
    records, disrupted, plain = map(load_records, NAMES)
    folds_of_all = {(c["partition"], c["fold"]) for c in (r["configuration"] for r in plain)}
    assert [len(each) for each in (folds_of_all, records, disrupted)] == [40, 80, 40]
    frame = tables.metrics_frame(records + plain)
    table = tables.levels(frame)
    networks, plain = table.iloc[:-2], table.iloc[-2:]
    assert networks["MAE"].max() < plain["MAE"].iloc[0]  # "all do"
    assert networks["AUC"].min() > plain["AUC"].iloc[0]
    assert networks["AUC"].max() < plain["AUC"].iloc[1]  # "none does"
    assert networks["MAE"].min() > plain["MAE"].iloc[1] - 1e-3
    assert set(tables.comparisons(frame)["word"]) == {"not distinguishable"}
    brier = tables.comparisons(frame, ["Brier"])
    worse = brier.loc[brier["word"] == "worse", "a"]
    assert set(worse) == {"one stage", "algorithm 3, paper"}  # "a little worse"
    own = [r for r in records if not r["configuration"]["adapters"]]
    gains = tables.gains_of_dependence(own, disrupted)
    first = (gains["gain"] == tables.GAINS["log score"]) & (gains["pairs"] == "own")
    assert gains.loc[first, "low"].item() > 0  # "more probable"
    # "gone" between strangers, and "neither moves"
    assert (gains.loc[~first, "low"] < 0).all() and (gains.loc[~first, "high"] > 0).all()
