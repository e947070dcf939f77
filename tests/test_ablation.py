"""The ablation on real eyes, at smoke size on drawn ones: who is left out of what, and what a
comparison may say."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import t

pytest.importorskip("timm", reason="needs the extra vit")

from cevit_lib.errors import DataError, ProvenanceError  # noqa: E402
from cevit_lib.records import load_records  # noqa: E402
from cevit_lib.records.verify import numbers  # noqa: E402
from cevit_lib.training.algorithm import AlgorithmThree  # noqa: E402
from cevit_lib.training.side_by_side import SideBySide  # noqa: E402
from studies.ablation import (  # noqa: E402
    data,
    figures,
    fits,
    patients,
    pretraining,
    tables,
)
from studies.ablation.settings import PAPER, SMOKE, grid  # noqa: E402
from studies.encoder.masked_autoencoder import (  # noqa: E402
    MaskedAutoencoder,
    Pretraining,
    build_encoder,
    pretrain_together,
    side_by_side,
)
from studies.study import find  # noqa: E402

CPU = torch.device("cpu")
SMALL = Pretraining(3, batch=4, decoder={"width": 16, "depth": 1})


@pytest.fixture(scope="module")
def made():
    """Smoke records of each part; those of this very code are not fitted again."""
    parts = ("ablation", "ablation-references", "ablation-probe", "ablation-tuning")
    return {name: grid.records for name, grid in tables.all_parts(parts, "smoke").items()}


@pytest.fixture(scope="module")
def eyes():
    return data.load_eyes("synthetic eyes", SMOKE["size"], True)


@pytest.fixture(scope="module")
def splits(eyes):
    return [data.partition(eyes, SMOKE | {"fold": fold}) for fold in (1, 2)]


# ---------------------------------------------------------------- who sees whom


def test_no_image_of_a_test_patient_is_pretrained_on(eyes):
    images, owners = data.all_images(SMOKE)
    made = find("ablation-pretraining").collect("smoke").records[:-1]
    for (member, _), record in zip(pretraining.settings("smoke"), made, strict=False):
        split = data.partition(eyes, member)
        rows = data.without_test_patients(owners, eyes, split)
        tested = {eyes.ids[i] for i in split.test}
        assert not tested & set(owners[rows]) and len(rows) == len(images) - 2 * len(tested)
        assert record["configuration"] == member and record["metrics"]["images_seen"] == len(rows)
        stored = torch.load(pretraining.weights_file(member, "smoke"), weights_only=True)
        told = stored["told"]
        assert told["images_seen"] == len(rows) and told["record"] == record["id"]
        assert not told["test_images_seen"] and not told["labels_used"]
    strangers = np.array([f"other {name}" for name in owners])
    with pytest.raises(DataError, match="do not agree"):  # would leave nobody out
        data.without_test_patients(strangers, eyes, split)


def test_a_member_learns_from_its_own_images_alone():
    """Other images for the second member change the second member, and not one bit of the first."""
    images = (torch.rand(12, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 255).to(
        torch.uint8
    )
    changed = images.clone()
    changed[6:] = 255 - changed[6:]
    rows = [np.arange(6), np.arange(6, 12)]
    one, other = (
        pretrain_together(SMOKE["encoder"], own, rows, SMALL, [1, 2])[0]
        for own in (images, changed)
    )
    same = [
        all(torch.equal(a[name], b[name]) for name in a) for a, b in zip(one, other, strict=True)
    ]
    assert same == [True, False]


def test_the_batched_loss_is_that_of_the_network_alone():
    """The first step's loss of a member equals the plain forward pass on the same draw."""
    models = []
    for seed in (3, 4):
        torch.manual_seed(seed)
        models.append(MaskedAutoencoder(build_encoder(SMOKE["encoder"]), **SMALL.decoder))
    program, _ = side_by_side(models, CPU)
    generator = torch.Generator().manual_seed(5)
    seen = torch.rand(2, 4, 3, 32, 32, generator=generator)
    order = torch.rand(2, 4, models[0].patches, generator=generator).argsort(-1)
    together = program(seen, order)
    for k, model in enumerate(models):
        torch.testing.assert_close(together[k], model(seen[k], order[k]), rtol=1e-5, atol=1e-6)


def test_cross_fitted_outputs_are_of_patients_left_out(eyes, splits):
    parts = fits.inner_splits(eyes, splits[0], SMOKE, 0)
    assert sorted(np.concatenate([part.test for part in parts])) == sorted(splits[0].train)
    for part in parts:
        seen = set(part.train)
        assert not seen & set(part.test) and not (seen | set(part.test)) & set(splits[0].test)


def test_a_cross_fitted_output_stands_in_its_patients_row(eyes, splits):
    """A network that says everybody's responses must give back those of the training patients, in
    their order."""

    class Oracle(SideBySide):
        def train(self, *_):
            return []

        def outputs(self, part):
            return self.responses(part)

    wanted = [(SMOKE | {"fold": fold, "weights": "random"}, 7) for fold in (1, 2)]
    batch = fits.Batch(wanted, eyes, pretraining.Encoders("smoke"), CPU)
    oracle = Oracle(**vars(batch.networks))
    found = AlgorithmThree(oracle, batch.warm_up, batch.further, {}, oracle).cross_fit()
    for own, split in zip(found, batch.splits, strict=True):
        assert torch.equal(own, eyes.y[split.train])


def test_every_fold_has_as_many_training_patients_as_networks_side_by_side_need(eyes, splits):
    train, inner = fits.smallest(SMOKE, len(eyes))
    assert min(len(split.train) for split in splits) == train == 23
    assert {len(split.test) for split in splits} == {23, 24}
    parts = [part for split in splits for part in fits.inner_splits(eyes, split, SMOKE, 0)]
    assert min(len(part.train) for part in parts) == inner
    assert fits.smallest(PAPER, 112) == (89, 59)


def test_missing_weights_name_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(pretraining, "project_root", lambda: tmp_path)
    with pytest.raises(DataError, match="python -m studies ablation-pretraining"):
        pretraining.Encoders("paper")(SMOKE)


# ---------------------------------------------------------------- records


def test_every_fit_has_its_arms_its_predictions_and_the_name_of_its_weights(made, eyes):
    for record in made["ablation"]:
        assert set(record["metrics"]) == {"warm-up", *SMOKE["arms"], "cross-fits"}
        weights = record["parameters"]["weights"]
        assert weights["kind"] == "mae-fold" and not weights["test_images_seen"] and weights["hash"]
        split = data.partition(eyes, record["configuration"])
        assert record["predictions"]["patient"] == [
            eyes.ids[i] for i in split.test
        ]  # none is cut off
        assert len(record["predictions"]["fmcem"]) == len(split.test)
    hashes = {
        r["configuration"]["fold"]: r["parameters"]["weights"]["hash"] for r in made["ablation"]
    }
    assert len(set(hashes.values())) == 2
    shown = [r for r in made["ablation"] if r["columns"]]
    assert [
        (r["seeds"], r["configuration"]["fold"], r["configuration"]["adapters"]) for r in shown
    ] == [([0], 1, True)]


def test_a_fit_made_alone_has_the_numbers_of_the_same_fit_made_with_others(made, eyes):
    def train(record):
        return len(data.partition(eyes, record["configuration"]).train)

    record = max(made["ablation"], key=train)  # the fold with one patient more than its neighbours
    again = find("ablation").refit(record)
    assert again["id"] == record["id"]
    together, alone = numbers(record), numbers(again)
    assert together.keys() == alone.keys()
    # 24 patients put the maximum of the likelihood on a singular matrix (the estimator warns), and
    # near it the last digit of an output decides between points whose correlations are .01 apart
    # and whose likelihoods are equal
    edge = [k for k in together if k.startswith("parameters.cross-fitted.correlation")]
    rest = [k for k in together if k not in edge]
    assert edge and len(rest) > 90
    outputs = "metrics.cross-fits.empirical loss"  # of what the estimate is made from
    assert alone[outputs] == pytest.approx(together[outputs], rel=1e-5)
    for keys, rtol, atol in ((rest, 5e-3, 1e-3), (edge, 0, 0.05)):
        np.testing.assert_allclose(
            [alone[k] for k in keys], [together[k] for k in keys], rtol=rtol, atol=atol
        )


def test_the_grid_is_ten_seeds_of_five_folds_on_one_partition():
    wanted = grid("ablation")
    assert len(wanted) == 100 and {c["partition"] for c, _ in wanted} == {0}
    assert {s for _, s in wanted} == set(range(10))
    assert not {s for _, s in grid("ablation-tuning")} & {s for _, s in wanted}


def test_the_constant_reference_is_the_training_mean_and_pixels_beat_it_where_they_tell(made, eyes):
    record = made["ablation-references"][0]
    split = data.partition(eyes, record["configuration"])
    mean = eyes.y[split.train, 0].mean()
    error = float((eyes.y[split.test, 0] - mean).abs().mean())
    assert record["metrics"]["constant"]["MAE y1"] == pytest.approx(error, rel=1e-5)
    assert record["metrics"]["constant"]["AUC y3"] == pytest.approx(0.5)
    values = [
        [r["metrics"][name]["MAE y1"] for r in made["ablation-references"]]
        for name in ("PCA of pixels", "constant")
    ]
    assert np.mean(values[0]) < 0.9 * np.mean(values[1])  # the drawn stripes show the thickness


# ---------------------------------------------------------------- what the tables may say


def noise(differences, seeds=10, folds=5):
    """A frame of two arms whose differences are given, (seeds, folds)."""
    rows = [
        {
            "seed": s,
            "partition": 0,
            "fold": f + 1,
            "folds": folds,
            "weights": "none",
            "arm": arm,
            "metric": "MAE",
            "value": 10.0 + (differences[s, f] if arm == "a" else 0.0),
        }
        for s in range(seeds)
        for f in range(folds)
        for arm in ("a", "b")
    ]
    return pd.DataFrame(rows)


def test_the_corrected_interval_is_the_formula_by_hand():
    d = np.random.default_rng(0).normal(0.2, 1.0, (10, 5))
    row = tables.compare(noise(d), "a", "b", "MAE")
    half = t.ppf(0.975, 49) * d.std(ddof=1) * math.sqrt(1 / 50 + 0.2 / 0.8)
    assert [row["low"], row["high"]] == pytest.approx([d.mean() - half, d.mean() + half])
    assert row["d_z"] == pytest.approx(d.mean() / d.std(ddof=1))


def test_seeds_of_one_partition_do_not_make_the_study_large():
    """All variation is between test sets: ten seeds fool the plain test, one value a test set does
    not see 50."""
    by_fold = np.array([0.9, -0.3, 0.6, 0.1, 0.5])
    row = tables.compare(noise(np.tile(by_fold, (10, 1))), "a", "b", "MAE")
    assert row["p"] < 1e-4 and row["p_test_sets"] > 0.1 and row["word"] == "not distinguishable"


def test_power_is_the_share_of_simulated_studies_that_find_the_effect():
    """Differences as the correction assumes them: equally correlated by test_share."""
    rng, folds, share, d, n = np.random.default_rng(1), 20, 0.2, 1.2, 20_000
    shift = d * math.sqrt(folds / tables.inflated(folds, share))
    statistic = rng.normal(shift, 1, n) / np.sqrt(rng.chisquare(folds - 1, n) / (folds - 1))
    found = (np.abs(statistic) > t.ppf(0.975, folds - 1)).mean()
    expected = tables.power(d, folds, share)
    assert abs(found - expected) < 4 * math.sqrt(expected * (1 - expected) / n)
    smallest = tables.smallest_detectable(folds, share)
    assert tables.power(smallest, folds, share) == pytest.approx(0.8, abs=1e-6)
    assert tables.power(1e-9, folds, share) == pytest.approx(0.05, abs=1e-6)
    # no number of seeds takes it below 2.8 standard errors of 1/2
    assert tables.smallest_detectable(1000, share) > 1.3


@pytest.mark.parametrize(
    ("mean", "metric", "word"),
    [(-3.0, "MAE", "better"), (-3.0, "AUC", "worse"), (0.0, "MAE", "not distinguishable")],
)
def test_words_follow_the_direction_of_the_metric(mean, metric, word):
    d = mean + np.random.default_rng(2).normal(0, 0.1 * abs(mean), (10, 5))
    row = tables.compare(noise(d).assign(metric=metric), "a", "b", metric)
    assert row["word"].startswith(word)


def test_table_two_has_the_papers_rows_and_names_what_is_not_run(made):
    frame = tables.metrics_frame(made["ablation"])
    table = tables.table_two(frame)
    assert list(dict.fromkeys(table.index.get_level_values(0))) == list(tables.TABLE_TWO)
    assert table.loc[("CeViT vs. ViT", "printed"), "MAE_L"] == "-1.91 (<0.001)"
    without = tables.table_two(frame[~frame["arm"].str.contains("adapters")])
    assert set(without.loc[("ViT-A vs. ViT", "no copula")]) == {"not run yet"}
    assert [row for name, row in table.index if name == "CeViT vs. ViT"] == [
        "printed",
        "fmcem",
        "cross-fitted",
    ]


def test_a_reference_without_chance_stands_beside_every_seed(made):
    frame = tables.metrics_frame(made["ablation"] + made["ablation-references"])
    pairs = tables.paired(frame, "cross-fitted", "PCA of pixels", "MAE")
    assert len(pairs) == 4 and set(pairs["partition"]) == {
        0
    }  # two seeds, two folds; other partitions stay out


def test_incomplete_grids_are_named(tmp_path):
    with pytest.raises(ProvenanceError):
        tables.all_parts(["ablation"], "stored", tmp_path)
    stored = tables.all_parts(["ablation-references", "ablation-probe"], "stored")
    assert stored["ablation-references"].complete
    assert (
        tables.all_parts(["ablation-probe"], "stored", tmp_path)["ablation-probe"].note
        == "0 of 10 folds"
    )


def test_worst_cases_are_the_largest_errors_and_failures_add_up(made):
    predictions = patients.predictions_frame(made["ablation"], "cross-fitted")
    assert len(predictions) == data.SYNTHETIC_PATIENTS  # everybody is tested once a seed
    table = patients.worst_cases(predictions, 3)
    error = (predictions["said RNFL_OS"] - predictions["seen RNFL_OS"]).abs()
    other = (predictions["said RNFL_OD"] - predictions["seen RNFL_OD"]).abs()
    assert table.index[0] == predictions["patient"][np.maximum(error, other).idxmax()]
    groups = patients.failures(predictions)
    thirds = groups.iloc[:3]
    assert thirds["eyes"].sum() == 2 * len(predictions)
    assert np.average(thirds["MAE (um)"], weights=thirds["eyes"]) == pytest.approx(
        pd.concat([error, other]).mean()
    )


def test_pictures_draw_what_they_are_given(made):
    frame = tables.metrics_frame(made["ablation"] + made["ablation-references"])
    figure = figures.plot_metrics(frame, ["MAE_L", "AUC_L"], note="37 of 50 folds", smoke=True)
    assert figure.get_suptitle() == "grid not complete: 37 of 50 folds"
    assert figures.named(tables.means(frame)).index.tolist()[:2] == ["training mean", "age, camera"]
    mean, _ = tables.gamma_matrices(made["ablation"])["fmcem"]
    texts = [
        text.get_text()
        for text in figures.plot_gamma(tables.gamma_matrices(made["ablation"])).axes[0].texts
    ]
    assert texts[0].startswith(f"{mean[0, 1]:.2f}")
    assert len(tables.comparisons(frame, tables.CONTROLS)) == 2 * len(tables.CONTROLS)
    assert tables.tuning_frame(made["ablation-tuning"])["last epoch"].is_monotonic_increasing


@pytest.fixture(scope="module")
def stored():
    return load_records("ablation")


def test_the_alt_texts_of_the_page_say_what_the_records_hold(stored):
    """They are typed, since a picture's text cannot be computed; new records that say otherwise
    must change them."""
    parts = ("references", "probe")
    beside = [r for part in parts for r in load_records(f"ablation-{part}")]
    frame = tables.metrics_frame(stored + beside)
    level = frame[frame["partition"] == 0].pivot_table("value", "arm", "metric")
    best = level["MAE"].drop("frozen encoder, transductive").nsmallest(2)
    assert best.index.tolist() == ["PCA of pixels", "frozen encoder"]
    networks = [a for a in level.index if a.split(",")[0] in ("warm-up", *PAPER["arms"])]
    middle = level.loc[networks, "MAE"]
    assert level.loc["PCA of pixels", "MAE"] < middle.min() < middle.max()
    assert middle.max() < level.loc["constant", "MAE"]
    middle = level.loc[networks, "AUC"]
    assert level.loc["PCA of pixels", "AUC"] > middle.max() > middle.min()
    # dependence helps the thickness beside matched independence; adapters and areas tell nothing
    both = ("", ", adapters")
    helped = [(f"{a}{x}", f"independence{x}", "") for a in tables.ESTIMATES for x in both]
    assert (tables.comparisons(frame, helped, ["MAE"])["high"] < 0).all()
    areas = [(f"{a}{x}", f"{b}{x}", "") for a, b, _ in tables.CONTROLS for x in both]
    adapters = [(f"{a}, adapters", a, "") for a in ("empirical", "cross-fitted")]
    for nothing in (tables.comparisons(frame, areas, ["AUC"]), tables.comparisons(frame, adapters)):
        assert (nothing["low"] < 0).all() and (nothing["high"] > 0).all()
    estimated = {name: mean for name, (mean, _) in tables.gamma_matrices(stored).items()}
    assert (estimated["fmcem"] > 0).all() and (estimated["cross-fitted"][:2, 2:] < 0).all()
    assert estimated["cross-fitted"][0, 1] > 0 and estimated["cross-fitted"][2, 3] > 0
    taught, new = patients.separation(patients.shown_plane(stored))
    assert 0.5 < new < taught - 0.1


def test_outputs_read_with_their_own_parameters_have_the_stored_likelihood(stored):
    some = stored[:3] + stored[-3:]
    found = patients.readings(some).set_index(["network", "Gamma", "sigma"])["log-likelihood"]
    for name, arm in (("CeViT, fMCEM", "fmcem"), ("CeViT, cross-fitted", "cross-fitted")):
        expected = [r["metrics"][arm]["log-likelihood"] for r in some]
        np.testing.assert_allclose(
            found[name, arm, arm], expected, rtol=1e-4
        )  # records round outputs
    one, other = (
        found["ViT", gamma, "cross-fitted"].to_numpy() for gamma in ("independence", "cross-fitted")
    )
    assert (one < other).any()


def test_wrong_fields_counts_eyes_and_patients():
    sure = np.log(19)
    table = pd.DataFrame(
        {
            "seen field_OS": [1.0, 0.0, 1.0],
            "seen field_OD": [1.0, 0.0, 0.0],
            "said field_OS": [-sure, 1.0, -0.5],
            "said field_OD": [-0.1, -2.0, -1.0],
        }
    )
    found = patients.wrong_fields(table)
    assert (found["eyes"], found["wrong"], found["surely"], found["both"]) == (6, 4, 1, 1)
    assert found["where eyes differ"] == 0.5 and found["where eyes agree"] == 0.75


def test_tuning_looks_for_the_lowest_point_of_the_mean_curve():
    """Not for the mean of the curves' lowest points, which is lower and at no common epoch."""
    configuration = {"warm_up": {"learning_rate": 1e-3, "epochs": 3}}
    made = [
        {"configuration": configuration, "trace": {"cross-fit 1": {"validation_loss": curve}}}
        for curve in ([1.0, 2.0, 4.0], [4.0, 2.0, 1.0])
    ]
    row = tables.tuning_frame(made).iloc[0]
    assert (row["best epoch"], row["at epoch"], row["last epoch"]) == (2.0, 2, 2.5)


def test_spread_over_seeds_is_that_within_a_fold():
    def fit(seed, fold, value):
        matrix = np.eye(4)
        matrix[0, 1] = matrix[1, 0] = value
        return {
            "seeds": [seed],
            "configuration": {"fold": fold, "adapters": False},
            "parameters": {"fmcem": {"correlation": matrix.tolist()}},
        }

    rows = tables.gamma_spread([fit(0, 1, 0.1), fit(1, 1, 0.3), fit(0, 2, 0.5), fit(1, 2, 0.7)])
    row = rows.loc[("fmcem", "rho12")]
    assert row["SD over folds"] == pytest.approx(0.4 / np.sqrt(2))
    assert row["SD over seeds, within a fold"] == pytest.approx(0.2 / np.sqrt(2))


def test_smallest_eigenvalues_are_those_of_a_matrix_whose_are_known():
    flat = {"correlation": (0.5 * np.eye(4) + 0.5).tolist()}
    found = tables.smallest_eigenvalues(
        [{"parameters": {"fmcem": flat, "weights": {"kind": "none"}}}]
    )
    assert found.columns.tolist() == ["fmcem"] and found["fmcem"][0] == pytest.approx(0.5)


def test_characteristics_count_patients_and_reduced_fields():
    parts = {
        1: [[80.0, 70.0, 1, 0], [90.0, 74.0, 1, 1], [100.0, 78.0, 0, 0]],
        2: [[60.0, 50.0, 0, 1], [62.0, 54.0, 1, 1]],
    }
    records = [
        {"configuration": {"fold": fold}, "predictions": {"y": y}} for fold, y in parts.items()
    ]
    table = patients.characteristics(records)
    assert table.loc[1].tolist() == ["3", "90.0 (10.0)", "74.0 (4.0)", "2", "1", "1"]
    assert table.loc[2].tolist() == ["2", "61.0 (1.4)", "52.0 (2.8)", "1", "2", "1"]


def test_separation_is_measured_along_the_training_means_alone():
    """Training classes stand left and right; the test eyes stand the other way round, far up, where
    no mean looks."""
    points = [(-1, 0), (-2, 0), (1, 0), (2, 0), (-3, 50), (3, 50)]
    columns = {
        "CeViT-A: first": [x for x, _ in points],
        "CeViT-A: second": [y for _, y in points],
        "test": [False] * 4 + [True] * 2,
        "binary": [0.0, 0.0, 1.0, 1.0, 1.0, 0.0],
    }
    assert patients.separation({"columns": columns}) == (1.0, 0.0)
