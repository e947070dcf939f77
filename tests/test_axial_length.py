"""The small regression against closed forms, and the study of both eyes' axial length on invented
patients."""

import numpy as np
import pytest
import torch

from cevit_lib.copula import CopulaParameters, class_probabilities
from cevit_lib.errors import DataError, ParameterError, ShapeError
from cevit_lib.records import load_records
from studies.axial_length import figures
from studies.axial_length import fits as study
from studies.axial_length.data import design_of, load_table, simulated_table, source_for
from studies.axial_length.folds import LEVELS, predict_patients
from studies.axial_length.model import (
    Regression,
    draw_responses,
    fit_regression,
    information_errors,
)

CORRELATION = np.array(
    [[1, 0.8, 0.4, 0.3], [0.8, 1, 0.3, 0.4], [0.4, 0.3, 1, 0.6], [0.3, 0.4, 0.6, 1]]
)


def regression(dependence="both eyes", correlation=CORRELATION):
    """A model with known parameters: two lengths (mm) and two labels."""
    coefficients = np.array([[24.0, 24.1, -0.5, -0.3], [-0.3, -0.2, 0.4, 0.5]])
    parameters = CopulaParameters(
        torch.tensor(correlation), torch.tensor([1.2, 0.9], dtype=torch.float64)
    )
    return Regression(coefficients, parameters, np.nan, True, dependence)


def drawn(n, seed, model=None):
    rng, model = np.random.default_rng(seed), model or regression()
    design = np.column_stack([np.ones(n), rng.normal(size=n)])
    return design, draw_responses(model.outputs(design), model.parameters, rng).numpy()


# --- the regression


def test_with_lengths_alone_the_maximum_is_least_squares_and_the_residuals_correlation():
    """The same covariates in every margin: Zellner's regressions gain nothing in the means, and all
    is closed form."""
    rng = np.random.default_rng(0)
    design = np.column_stack([np.ones(90), rng.normal(size=(90, 2))])
    y = (
        design @ rng.normal(size=(3, 4))
        + 3 * rng.normal(size=(90, 4)) @ np.linalg.cholesky(CORRELATION).T
    )
    model = fit_regression(design, y, 4)
    expected = np.linalg.lstsq(design, y, rcond=None)[0]
    residual = y - design @ expected
    covariance = residual.T @ residual / 90
    np.testing.assert_allclose(model.coefficients, expected, atol=1e-4)
    np.testing.assert_allclose(model.parameters.scale, np.sqrt(np.diag(covariance)), rtol=1e-5)
    np.testing.assert_allclose(model.parameters.correlation, np.corrcoef(residual.T), atol=1e-5)
    likelihood = -45 * (np.linalg.slogdet(2 * np.pi * covariance)[1] + 4)
    assert model.converged and model.log_likelihood == pytest.approx(likelihood, abs=1e-5)
    # their errors are closed forms too
    errors = information_errors(model, design, y)
    by_formula = np.sqrt(np.outer(np.diag(np.linalg.inv(design.T @ design)), np.diag(covariance)))
    np.testing.assert_allclose(errors["coefficients"], by_formula, rtol=1e-3)
    rho = model.parameters.correlation.numpy()
    np.testing.assert_allclose(errors["correlation"], (1 - rho**2) / np.sqrt(90), atol=1e-4)
    np.testing.assert_allclose(errors["scale"], np.sqrt(np.diag(covariance) / 180), rtol=1e-3)


def test_without_dependence_the_labels_obey_the_score_equations_of_logistic_regression():
    design, y = drawn(150, 1)
    model = fit_regression(design, y, 2, "none")
    probability = torch.sigmoid(model.outputs(design)[:, 2:]).numpy()
    np.testing.assert_allclose(design.T @ (y[:, 2:] - probability), 0, atol=2e-3)
    assert (model.parameters.correlation == torch.eye(4)).all()


def test_eyes_apart_is_the_sum_of_two_models_of_one_eye():
    design, y = drawn(150, 2)
    together = fit_regression(design, y, 2, "eyes apart")
    alone = [fit_regression(design, y[:, [k, k + 2]], 1) for k in (0, 1)]
    assert together.log_likelihood == pytest.approx(
        sum(one.log_likelihood for one in alone), abs=1e-4
    )
    gamma = together.parameters.correlation.numpy()
    assert gamma[0, 2] == pytest.approx(float(alone[0].parameters.correlation[0, 1]), abs=1e-3)
    assert np.abs(gamma[[0, 0, 1, 2], [1, 3, 2, 3]]).max() < 1e-12
    errors = information_errors(together, design, y)["correlation"]
    assert (errors > 0).sum() == 4 and np.isfinite(errors).all()


def test_a_missing_right_eye_gives_andersons_estimate():
    """Monotone missing normal responses have a closed-form maximum (Anderson, 1957)."""
    rng = np.random.default_rng(3)
    y = rng.normal(size=(120, 2)) @ np.array([[1.0, 0.0], [1.8, 0.6]]).T
    y[y[:, 0] < 0.3, 1] = np.nan  # depends on the left eye only, which everybody has
    seen = np.isfinite(y[:, 1])
    slope = np.cov(y[seen].T, bias=True)[0, 1] / y[seen, 0].var()
    mean = y[seen, 1].mean() + slope * (y[:, 0].mean() - y[seen, 0].mean())
    variance = y[seen, 1].var() + slope**2 * (y[:, 0].var() - y[seen, 0].var())
    model = fit_regression(np.ones((120, 1)), y, 2)
    assert model.coefficients[0] == pytest.approx([y[:, 0].mean(), mean], abs=1e-4)
    assert model.parameters.scale.numpy() == pytest.approx(
        [y[:, 0].std(), np.sqrt(variance)], rel=1e-4
    )
    rho = slope * y[:, 0].std() / np.sqrt(variance)
    assert float(model.parameters.correlation[0, 1]) == pytest.approx(rho, abs=1e-4)
    # the wrong answers are far away
    assert abs(y[seen, 1].mean() - mean) > 0.5


def test_the_fit_finds_the_truth_and_bad_arguments_are_named():
    design, y = drawn(4000, 4)
    model = fit_regression(design, y, 2)
    np.testing.assert_allclose(model.parameters.correlation, CORRELATION, atol=4 * 0.03)
    errors = information_errors(model, design, y)
    away = (model.coefficients - regression().coefficients) / errors["coefficients"]
    assert np.abs(away).max() < 4
    fixed = fit_regression(design[:100], y[:100, 2:], 0, correlation=np.eye(2))
    assert fixed.parameters.p0 == 0 and fixed.converged
    with pytest.raises(ParameterError, match="eyes apart"):
        fit_regression(design, y, 2, "half")
    with pytest.raises(ShapeError):
        fit_regression(design[:10], y, 2)


def test_draws_have_the_margins_and_the_cells_of_the_model():
    n, model = 40_000, regression()
    design = np.column_stack([np.ones(n), np.full(n, 0.7)])
    outputs = model.outputs(design)
    y = draw_responses(outputs, model.parameters, np.random.default_rng(5)).numpy()
    np.testing.assert_allclose(y[:, :2].mean(0), outputs[0, :2], atol=4 * 1.2 / np.sqrt(n))
    assert np.corrcoef(y[:, :2].T)[0, 1] == pytest.approx(0.8, abs=4 * 0.36 / np.sqrt(n))
    cells = class_probabilities(outputs[:1], model.parameters)[0].numpy()
    shares = [[((y[:, 2] == a) & (y[:, 3] == b)).mean() for b in (0, 1)] for a in (0, 1)]
    np.testing.assert_allclose(shares, cells, atol=4 * 0.5 / np.sqrt(n))


# --- predictions


def test_the_right_model_covers_what_it_says_and_independence_does_not():
    model, n = regression(), 4000
    design, y = drawn(n, 6)
    found = predict_patients(model, design, y, 99, np.random.default_rng(7))
    for name, nominal in (("region", 0.9), ("difference", 0.95), ("fellow", 0.95)):
        assert found[name].mean() == pytest.approx(
            nominal, abs=4 * np.sqrt(nominal * (1 - nominal) / n) + 0.005
        ), name
    counts = np.histogram(found["level"], 10, (0, 1))[0]
    assert (
        np.abs(counts / n - 0.1).max() < 4 * np.sqrt(0.09 / n) + 0.01
    )  # 99 draws make steps of .01
    whole = found["fellow_log_likelihood"].mean()
    apart = predict_patients(
        regression(correlation=np.eye(4)), design, y, 99, np.random.default_rng(7)
    )
    assert whole > apart["fellow_log_likelihood"].mean() + 0.3
    assert (
        apart["difference"].mean() > 0.99
        and apart["region_area"][0] > 1.6 * found["region_area"][0]
    )
    assert found["region_area"][0] == pytest.approx(apart["region_area"][0] * np.sqrt(1 - 0.8**2))
    assert (found["fellow_width"] < apart["fellow_width"] * np.sqrt(1 - 0.8**2) + 1e-9).all()
    # 1.5 is the variance of the difference under independence, over what it is
    width = np.sqrt((1.2**2 + 0.9**2) / (1.2**2 + 0.9**2 - 2 * 0.8 * 1.2 * 0.9))
    assert apart["difference_width"][0] / found["difference_width"][0] == pytest.approx(width)


def test_deletion_by_the_left_eye_looks_at_nothing_else():
    y = drawn(2000, 9)[1]
    left = study.delete(y, "by the left eye", np.random.default_rng(10))
    assert (
        np.isfinite(left[:, [0, 2]]).all() and (np.isnan(left[:, 1]) == np.isnan(left[:, 3])).all()
    )
    longer = y[:, 0] > np.median(y[:, 0])
    shares = [np.isfinite(left[longer, 1]).mean(), np.isfinite(left[~longer, 1]).mean()]
    assert shares == pytest.approx([0.9, 0.2], abs=4 * np.sqrt(0.16 / 1000))
    changed = y.copy()
    changed[:, 1:] += 5
    again = study.delete(changed, "by the left eye", np.random.default_rng(10))
    np.testing.assert_array_equal(np.isnan(again), np.isnan(left))
    assert np.isnan(study.delete(y, "at random", np.random.default_rng(0))).mean() == pytest.approx(
        0.3, abs=0.03
    )


# --- the study


@pytest.fixture(scope="module")
def smoke():
    """The records of a machine without the real table; those of this very code are not made
    again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CEVIT_DATA", raising=False)
        yield {name: one.collect("smoke").records[0] for name, one in study.STUDIES.items()}


def test_a_study_without_the_table_runs_on_invented_patients(smoke):
    assert source_for("smoke") == "simulated" and source_for("paper") == "papila"
    assert {record["data"]["name"] for record in smoke.values()} == {"simulated"}
    whole = smoke["axial-length"]
    assert len(whole["columns"]["copula:log_likelihood"]) == 5
    compared = whole["metrics"]["comparisons"]["copula - independence"]
    assert compared["log_likelihood"]["difference"] > 0.5
    missing = smoke["axial-length-missing"]["metrics"]["deleted"]
    bias = [
        abs(missing[f"by the left eye:all, {way}:bias"]["mean"])
        for way in ("copula", "independent")
    ]
    assert bias[0] < bias[1]
    again = study.STUDIES["axial-length-thresholds"].refit(smoke["axial-length-thresholds"])
    assert again["metrics"] == smoke["axial-length-thresholds"]["metrics"]
    with pytest.raises(DataError, match="CEVIT_DATA"):
        study.STUDIES["axial-length"].collect("paper")


def test_the_figures_draw_the_records_numbers_and_mark_a_smoke_run(smoke):
    whole, limits, missing = smoke.values()
    drawn = {
        "regions": figures.plot_regions(whole),
        "gain": figures.plot_gain(whole),
        "joint": figures.plot_joint(whole, LEVELS),
        "calibration": figures.plot_patient_calibration(whole),
        "limits": figures.plot_thresholds(limits, whole["metrics"]["all_patients"]["dioptres"]),
        "missing": figures.plot_missing(missing),
    }
    for name, figure in drawn.items():
        assert any("smoke" in text.get_text() for text in figure.texts), name
    heights = [bar.get_height() for bar in drawn["regions"].axes[1].patches]
    arms = whole["metrics"]["arms"]
    assert heights[:3] == [1, 1, 1]
    assert heights[3] == pytest.approx(
        arms["copula"]["region_area"] / arms["independence"]["region_area"]
    )
    line = drawn["gain"].axes[0].lines[1].get_ydata()
    assert line == pytest.approx(whole["metrics"]["gain"]["quantiles"])
    curve = drawn["joint"].axes[0].lines[1].get_ydata()
    assert curve == pytest.approx(whole["metrics"]["joint"]["copula"]["observed"])


def test_too_few_positives_are_counted_and_refused():
    data = simulated_table(np.random.default_rng(11), -0.5)
    data = data.subset(data.complete)
    y = data.y.clone()
    y[:, 2:] = 0
    y[:3, 2] = y[2:6, 3] = 1
    poor = data.replace(y=y)
    c = {"divisions": 4, "folds": 5}
    refused, message, share = study.refused_divisions(poor, c, np.random.default_rng(0))
    assert refused == 4 and "0 ones" in message and share > 0.4
    assert study.refused_divisions(data, c, np.random.default_rng(0)) == (0, None, 0.0)


def test_invented_patients_have_the_shape_of_the_table():
    data = simulated_table(np.random.default_rng(12))
    assert len(data) == 244 and data.continuous == 4 and data.covariate_names == ("age", "female")
    labelled = simulated_table(np.random.default_rng(12), -0.5)
    expected = torch.where(torch.isnan(data.y[:, 2:]), torch.nan, (data.y[:, 2:] <= -0.5).double())
    torch.testing.assert_close(labelled.binary, expected, equal_nan=True)
    assert design_of(data).shape == (244, 3) and 0 < (~data.complete).sum() < 60


# --- the records


@pytest.fixture(scope="module")
def records():
    return {name: load_records(name, publication=False)[-1] for name in study.STUDIES}


def test_the_records_hold_summaries_and_no_row_of_the_table(records):
    def longest(value):
        if isinstance(value, dict):
            return max(map(longest, value.values()), default=0)
        if isinstance(value, list):
            return max([len(value), *map(longest, value)])
        return 0

    for record in records.values():
        assert (
            record["data"]["name"] == "papila"
            and record["predictions"] is None
            and record["arrays"] is None
        )
        assert longest(record) <= 50  # folds; never patients
    assert (
        sum(record["times"]["total_seconds"] for record in records.values()) < 120
    )  # two cores, 60 s


def test_the_table_has_the_counts_of_the_record(papila_folder, monkeypatch, records):
    monkeypatch.setenv("CEVIT_DATA", str(papila_folder.parent))
    for limit, found in records["axial-length-thresholds"]["metrics"].items():
        labels = load_table("papila", float(limit)).binary.numpy()
        both, left, right = found["both"], found["left only"], found["right only"]
        assert labels.sum(0).tolist() == [both + left, both + right] and len(labels) == 215
        assert (labels.sum(1) == 2).sum() == both
