"""Real eyes without photographs: the small regression against closed forms, and the studies on
invented patients."""

import json
import re

import numpy as np
import pytest
import torch

from cevit_lib.copula import CopulaParameters
from cevit_lib.records import load_records
from studies.real_eyes import fits, rules, tables
from studies.real_eyes.alternatives import analyse, draw_trial
from studies.real_eyes.data import (
    covariates_of,
    load_eyes,
)
from studies.real_eyes.missing import delete
from studies.real_eyes.model import (
    Regression,
    design_of,
    draw_responses,
    fit_regression,
    information_errors,
)
from studies.real_eyes.steps import REGIONS, predict, summarise_steps

CORRELATION = np.array(
    [[1, 0.8, 0.4, 0.3], [0.8, 1, 0.3, 0.4], [0.4, 0.3, 1, 0.6], [0.3, 0.4, 0.6, 1]]
)


def regression(dependence="all", correlation=CORRELATION):
    """A model with known parameters: two lengths (mm) and two labels, one covariate of the eye."""
    coefficients = np.array([24.0, -0.3, 24.1, -0.2, -0.5, 0.4, -0.3, 0.5])
    parameters = CopulaParameters(correlation, [1.2, 0.9])
    return Regression(coefficients, parameters, np.nan, True, dependence)


def drawn(n, seed, model=None):
    rng, model = np.random.default_rng(seed), model or regression()
    design = design_of(rng.normal(size=(n, 2, 1)))
    return design, draw_responses(model.outputs(design), model.parameters, rng).numpy()


# --- the regression


def test_with_numbers_alone_the_maximum_is_least_squares_and_the_residuals_correlation():
    """The same covariates in every margin: Zellner's regressions gain nothing in the means, and all
    is closed form."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(90, 1, 2)), 2, axis=1)
    design, plain = design_of(x), np.column_stack([np.ones(90), x[:, 0]])
    y = (
        plain @ rng.normal(size=(3, 4))
        + 3 * rng.normal(size=(90, 4)) @ np.linalg.cholesky(CORRELATION).T
    )
    model = fit_regression(design, y, 4)
    expected = np.linalg.lstsq(plain, y, rcond=None)[0]
    residual = y - plain @ expected
    covariance = residual.T @ residual / 90
    np.testing.assert_allclose(model.coefficients.reshape(4, 3).T, expected, atol=1e-4)
    np.testing.assert_allclose(model.parameters.scale, np.sqrt(np.diag(covariance)), rtol=1e-5)
    np.testing.assert_allclose(model.parameters.correlation, np.corrcoef(residual.T), atol=1e-5)
    likelihood = -45 * (np.linalg.slogdet(2 * np.pi * covariance)[1] + 4)
    assert model.converged and model.log_likelihood == pytest.approx(likelihood, abs=1e-5)
    # their errors are closed forms too
    errors = information_errors(model, design, y)
    by_formula = np.sqrt(np.outer(np.diag(covariance), np.diag(np.linalg.inv(plain.T @ plain))))
    np.testing.assert_allclose(errors["coefficients"].reshape(4, 3), by_formula, rtol=1e-3)
    rho = model.parameters.correlation.numpy()
    np.testing.assert_allclose(errors["correlation"], (1 - rho**2) / np.sqrt(90), atol=1e-4)
    np.testing.assert_allclose(errors["scale"], np.sqrt(np.diag(covariance) / 180), rtol=1e-3)


def test_without_dependence_the_labels_obey_the_score_equations_of_logistic_regression():
    design, y = drawn(150, 1)
    model = fit_regression(design, y, 2, "none")
    miss = y[:, 2:] - torch.sigmoid(model.outputs(design)[:, 2:]).numpy()
    np.testing.assert_allclose(np.einsum("npk,np->k", design[:, 2:], miss), 0, atol=2e-3)
    assert (model.parameters.correlation == torch.eye(4)).all()


def test_within_an_eye_is_the_sum_of_two_models_of_one_eye():
    design, y = drawn(150, 2)
    together = fit_regression(design, y, 2, "within an eye")
    alone = [fit_regression(design[:, [k, k + 2]], y[:, [k, k + 2]], 1) for k in (0, 1)]
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
    model = fit_regression(design_of(np.zeros((120, 2, 0)), 2), y, 2)
    assert model.coefficients == pytest.approx([y[:, 0].mean(), mean], abs=1e-4)
    assert model.parameters.scale.numpy() == pytest.approx(
        [y[:, 0].std(), np.sqrt(variance)], rel=1e-4
    )
    rho = slope * y[:, 0].std() / np.sqrt(variance)
    assert float(model.parameters.correlation[0, 1]) == pytest.approx(rho, abs=1e-4)
    assert abs(y[seen, 1].mean() - mean) > 0.5  # the wrong answer is far away


def test_the_fit_finds_the_truth():
    design, y = drawn(4000, 4)
    model = fit_regression(design, y, 2)
    np.testing.assert_allclose(model.parameters.correlation, CORRELATION, atol=4 * 0.03)
    errors = information_errors(model, design, y)
    away = (model.coefficients - regression().coefficients) / errors["coefficients"]
    assert np.abs(away).max() < 4


# --- what a second eye tells


def test_the_right_model_covers_what_it_says_and_independence_does_not():
    model, n = regression(), 4000
    design, y = drawn(n, 6)
    found = predict(model, design, y)
    for name, nominal in (("ellipse", 0.9), ("difference", 0.95), ("fellow", 0.95)):
        error = np.sqrt(nominal * (1 - nominal) / n)
        assert found[name].mean() == pytest.approx(nominal, abs=4 * error + 0.005), name
    apart = predict(regression(correlation=np.eye(4)), design, y)
    assert apart["difference"].mean() > 0.99
    area = found["ellipse_size"] / apart["ellipse_size"]
    assert area == pytest.approx(np.sqrt(1 - 0.8**2))
    assert (found["fellow_size"] < apart["fellow_size"] * np.sqrt(1 - 0.8**2) + 1e-9).all()
    # the variance of the difference under independence, over what it is
    width = np.sqrt((1.2**2 + 0.9**2) / (1.2**2 + 0.9**2 - 2 * 0.8 * 1.2 * 0.9))
    assert apart["difference_size"][0] / found["difference_size"][0] == pytest.approx(width)
    # the chain rule: any and both are the four cells, the fellow's probability is calibrated
    labels, chance = y[:, 2:], found["fellow_probability"]
    assert chance.min() > 0 and chance.max() < 1  # the label itself is not looked at
    for rows in (labels[:, 0] == 0, labels[:, 0] == 1):
        miss = (labels[:, 1] - chance)[rows]
        assert miss.mean() == pytest.approx(0, abs=4 * 0.5 / np.sqrt(rows.sum()))
    margins = torch.sigmoid(model.outputs(design)[:, 2:]).numpy().sum(1)
    np.testing.assert_allclose(found["any"] + found["both"], margins, atol=1e-9)


def test_the_steps_of_a_normal_pair_add_up_to_its_mutual_information():
    """With labels that tell nothing, all dependence is worth -log(1 - rho^2) / 2, whatever the step
    between claims."""
    gamma, claimed = np.eye(4), np.eye(4)
    gamma[0, 1] = gamma[1, 0] = 0.8
    claimed[[0, 2], [2, 0]] = 0.3  # not so: this step loses
    design, y = drawn(20_000, 8, regression(correlation=gamma))
    models = {"none": np.eye(4), "within an eye": claimed, "all": gamma}
    found = {
        name: {"log_density": predict(regression(correlation=own), design, y)["log_density"][None]}
        for name, own in models.items()
    }
    made = summarise_steps(found, {"bootstrap": 200}, np.random.default_rng(0))
    within, between = made["steps"]["within an eye"], made["steps"]["between eyes"]
    expected = -np.log(1 - 0.8**2) / 2
    assert within["mean"] + between["mean"] == pytest.approx(expected, abs=4 * 0.8 / 20_000**0.5)
    assert within["high"] < 0 and not rules.holds(within)
    assert between["low"] < between["mean"] < between["high"] and rules.holds(between)
    assert not rules.holds(between | {"repeats": [1.0] * 9 + [-1.0]})


def test_an_eye_is_lost_by_what_was_seen_or_by_itself():
    y = drawn(2000, 9)[1]
    left = delete(y, "the left eye decides", 1, np.random.default_rng(10))
    assert np.isfinite(left[:, [0, 2]]).all()
    assert (np.isnan(left[:, 1]) == np.isnan(left[:, 3])).all()
    longer = y[:, 0] > np.median(y[:, 0])
    shares = [np.isnan(left[rows, 1]).mean() for rows in (longer, ~longer)]
    assert shares == pytest.approx([0.9, 0.2], abs=4 * np.sqrt(0.16 / 1000))
    again = delete(y + [0, 5, 5, 5], "the left eye decides", 1, np.random.default_rng(10))
    np.testing.assert_array_equal(np.isnan(again), np.isnan(left))
    for better in (1, -1):
        lost = np.isnan(delete(y, "the better eye is lost", better, np.random.default_rng(11)))
        worse = better * (y[:, 0] - y[:, 1]) < 0  # the left one
        assert not lost[worse, 0].any() and not lost[~worse, 1].any()
        assert lost[:, :2].sum(1).mean() == pytest.approx(0.6, abs=4 * np.sqrt(0.24 / 2000))


# --- beside it


def test_three_analyses_estimate_one_effect_and_strangers_have_too_small_an_error():
    """Of an exposure of the patient the variance is (1 + rho) times that of strangers, of one eye's
    (1 - rho) times."""
    c = {"correlation": 0.6, "patients": 4000}
    found = analyse(*draw_trial(c, 1.0, np.random.default_rng(12)))
    for kind, effect in (("number", 0.5), ("label", 1.0)):
        for name in ("strangers", "GEE", "copula"):
            own = found[f"{kind}: {name}"]
            bound = np.maximum(own["error"], found[f"{kind}: GEE"]["error"])
            assert (np.abs(own["effect"] - effect) < 4 * bound).all(), (kind, name)
    ratio = {
        name: (found[f"number: {name}"]["error"] / found["number: strangers"]["error"]) ** 2
        for name in ("GEE", "copula")
    }
    for own in ratio.values():
        assert own == pytest.approx([1.6, 0.4], rel=0.08)


# --- the studies


@pytest.mark.parametrize(("source", "cut", "side"), [("uwhvf", -0.5, -1), ("papila", 24.0, 1)])
def test_a_label_cut_from_the_number_is_a_function_of_it(source, cut, side):
    data = load_eyes(f"invented {source}", cut=cut)
    assert ((side * (data.y[:, :2] - cut) >= 0) == data.binary.bool()).all()
    model = fit_regression(design_of(covariates_of(data)), data.y.numpy(), 2)
    assert model.parameters.smallest_eigenvalue() < 1e-3


# --- the records


@pytest.fixture(scope="module")
def records():
    return {name: load_records(name, publication=False) for name in fits.STUDIES}


def test_the_records_hold_summaries_and_no_row_of_a_table(records):
    """No list of numbers is longer than the twenty repeats."""
    for name, made in records.items():
        assert len(made) == len(fits.settings(name, "paper"))
        lists = re.findall(r"\[([^][]*)\]", json.dumps(made))
        assert max(each.count(",") for each in lists) < 20
        assert all(record["predictions"] is record["arrays"] is None for record in made)


def test_the_tables_have_the_counts_of_the_records(
    uwhvf_folder, papila_folder, monkeypatch, records
):
    monkeypatch.setenv("CEVIT_DATA", str(uwhvf_folder.parent))
    for record in records["real-eyes"] + records["real-eyes-limits"]:
        c = record["configuration"]
        labels = load_eyes(c["source"], **c["limits"]).binary.sum(1)
        found = record["metrics"]
        assert found["patients"] == record["data"]["patients"] == len(labels)
        assert found["positive"] == {"both": (labels == 2).sum(), "one": (labels == 1).sum()}


def test_a_second_eye_is_judged_as_the_page_says(records):
    """The answer at its top, from the records that it draws, and its limits."""
    main = {tables.kind_of(record): record["metrics"] for record in records["real-eyes"]}
    steps = {kind: found["steps"]["between eyes"] for kind, found in main.items()}
    assert {kind: rules.holds(step) for kind, step in steps.items()} == {"uwhvf": 1, "papila": 0}
    both = main["uwhvf"]["statements"]["both eyes"]
    said = both["none"]["predicted"], both["all"]["predicted"], both["observed"]["mean"]
    said = [round(number, 2) for number in (steps["uwhvf"]["mean"], *said)]
    assert said == [0.16, 0.08, 0.12, 0.12]
    for found in main.values():
        for own in found["statements"].values():
            assert rules.calibrated(own["all"]) and not rules.calibrated(own["within an eye"])
        regions = found["regions"]
        assert all(rules.covers(own, REGIONS[r]) for r, own in regions["all"].items())
        assert regions["within an eye"]["difference"]["low"] > REGIONS["difference"]
    for record in records["real-eyes-limits"]:
        found, cut = record["metrics"], "cut" in record["configuration"]["limits"]
        singular = found["estimate"]["smallest_eigenvalue"] < 1e-6
        assert singular == (cut or "refused" in found)
        if cut or tables.kind_of(record) == "uwhvf":
            step = found["steps"]["between eyes"]
            assert step["high"] < -100 if cut else step["low"] > 0
