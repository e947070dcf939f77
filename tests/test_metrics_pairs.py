"""Metrics for two eyes and for patients: identities, small cases by hand, simulated intervals."""

from itertools import product

import numpy as np
import pytest
from scipy.special import expit, logit

from cevit_lib.errors import DataError, LabelError, ParameterError, ShapeError
from cevit_lib.metrics import (
    area_under_curve,
    bland_altman,
    brier_score,
    calibration,
    calibration_curve,
    evaluate,
    joint_accuracy,
    patient_bootstrap,
    patient_labels,
    patient_scores,
    r_squared,
    share_within,
)

NAN = np.nan
NAMES = ("AL_OS", "AL_OD", "HM_OS", "HM_OD")


def least_squares(rng, n=60):
    """Responses, and the predictions of a regression fitted to the same patients."""
    x = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    y = x @ [23.5, 0.7, -0.3] + rng.normal(size=n)
    return x @ np.linalg.lstsq(x, y, rcond=None)[0], y


# --- lengths


def test_shares_within_limits_by_hand():
    predicted, observed = np.array([23.1, 24.0, 25.0, 22.0]), np.array([22.6, 24.4, 23.0, NAN])
    assert share_within(predicted, observed, 0.5) == pytest.approx(
        2 / 3
    )  # 23.1 - 22.6 is 0.5 but for rounding
    assert np.isnan(share_within(predicted[3:], observed[3:], 1.0))


def test_slopes_of_the_difference_are_what_algebra_says():
    """On the mean (var p - var y) / (2 var m); on the measured value -(1 - R^2)."""
    predicted, y = least_squares(np.random.default_rng(2))
    found = bland_altman(predicted, y)
    assert found.slope == pytest.approx(
        (predicted.var() - y.var()) / (2 * ((predicted + y) / 2).var())
    )
    assert found.slope_on_observed == pytest.approx(-(1 - r_squared(predicted, y)))
    assert found.bias == pytest.approx(0, abs=1e-12)
    assert found.high - found.low == pytest.approx(2 * 1.96 * (predicted - y).std(ddof=1))
    assert np.isnan(bland_altman([1.0, 2.0, 3.0], [1.0, 2.0, NAN])).all()


# --- thresholds


# --- calibration


def test_calibration_of_two_groups_is_known_and_distortions_are_read_off():
    labels = np.r_[np.ones(3), np.zeros(7), np.ones(4), np.zeros(4)]
    right, other = (np.repeat(shares, [10, 8]) for shares in ([3 / 10, 4 / 8], [0.2, 0.6]))
    found = calibration(right, labels)
    assert (found.intercept, found.slope) == pytest.approx((0, 1), abs=1e-7)
    assert found.brier == pytest.approx((3 * 0.49 + 7 * 0.09 + 8 * 0.25) / 18)
    slope = (logit(4 / 8) - logit(3 / 10)) / (logit(0.6) - logit(0.2))
    assert calibration(other, labels).slope == pytest.approx(slope, abs=1e-8)
    assert calibration(expit(logit(right) - 0.7), labels).intercept == pytest.approx(0.7, abs=1e-7)


@pytest.mark.parametrize(
    "labels, reason",
    [
        ([0, 0, 1, 1], "separate"),
        ([0, 0, 0, 0], "4 zeros, 0 ones"),
        ([NAN] * 4, "no patient"),
    ],
)
def test_a_slope_that_does_not_exist_has_its_reason(labels, reason):
    found = calibration([0.1, 0.2, 0.8, 0.9], labels)
    assert np.isnan(found.slope) and reason in found.reason
    assert np.isfinite(found.brier) == np.isfinite(labels).any()


def test_probabilities_at_the_edge_give_numbers_and_logits_are_refused():
    found = calibration([0.0, 1.0, 1.0, 0.0, 0.5], [0, 1, 0, 1, 1])
    assert np.isfinite([found.intercept, found.slope]).all()
    with pytest.raises(LabelError, match="sigmoid"):
        brier_score([2.3], [1])


def test_the_curve_has_equal_groups_and_wilson_intervals():
    probability = np.linspace(0.1, 0.9, 103)
    labels = (np.arange(103) % 3 == 0).astype(float)
    labels[0] = NAN
    curve = calibration_curve(probability, labels, bins=4)
    assert curve.count.tolist() == [26, 26, 25, 25] and (np.diff(curve.predicted) > 0).all()
    assert (curve.observed * curve.count).sum() == pytest.approx(np.nansum(labels))
    # a bound's distance from the share is 1.96 standard errors at the bound itself
    for bound in (curve.low, curve.high):
        error = np.sqrt(bound * (1 - bound) / curve.count)
        assert abs(bound - curve.observed) == pytest.approx(1.959964 * error, abs=1e-6)


# --- patients


def test_labels_of_a_patient_for_every_pattern_of_eyes():
    def expected(eyes, rule):
        """Fill what is missing in both ways: the answer is known if it is the same."""
        filled = product(*[(0, 1) if np.isnan(eye) else (eye,) for eye in eyes])
        answers = {float(rule(case)) for case in filled}
        return answers.pop() if len(answers) == 1 else NAN

    patterns = list(product((0.0, 1.0, NAN), repeat=2))
    for level, rule in (("any", any), ("both", all)):
        np.testing.assert_equal(
            patient_labels(patterns, level), [expected(eyes, rule) for eyes in patterns]
        )


# --- intervals


def test_the_bootstrap_error_of_a_mean_is_its_formula_over_patients():
    rng = np.random.default_rng(7)
    patients = np.tile([f"{k:03}" for k in range(40)], 2)  # rows need not stand together
    errors = np.tile(rng.normal(size=40), 2) + 0.3 * rng.normal(size=80)
    found = patient_bootstrap(
        lambda rows: errors[rows].mean(), patients, np.random.default_rng(8), replications=4000
    )
    formula = errors.reshape(2, 40).mean(0).std() / np.sqrt(
        40
    )  # resampling divides by n, not n - 1
    assert found.standard_error == pytest.approx(formula, rel=4 / np.sqrt(2 * 4000))
    assert found.value == errors.mean() and found.undefined == 0


def test_undefined_resamples_are_counted_and_too_many_give_no_interval():
    scores, one = np.linspace(0, 1, 30), np.r_[np.zeros(29), 1]
    lost = patient_bootstrap(
        lambda rows: area_under_curve(scores[rows], one[rows]), 30, np.random.default_rng(10)
    )
    assert lost.value == 1 and np.isnan(lost.low)
    expected = 1000 * (29 / 30) ** 30  # no positive is drawn
    assert lost.undefined == pytest.approx(expected, abs=4 * np.sqrt(expected))


def test_all_metrics_share_the_resamples_and_bad_arguments_are_named():
    found = patient_bootstrap(
        lambda rows: {"a": rows.mean(), "b": rows.mean()}, 40, np.random.default_rng(14)
    )
    assert found["a"] == found["b"] and found["a"].low < 19.5 < found["a"].high
    with pytest.raises(DataError, match="1 patients"):
        patient_bootstrap(lambda rows: 0.0, ["a", "a"], np.random.default_rng(0))
    with pytest.raises(ParameterError):
        patient_bootstrap(lambda rows: 0.0, 10, np.random.default_rng(0), level=95)


# --- single measures


def test_evaluate_uses_both_rules_and_says_why_a_number_is_missing():
    outputs = np.array([[0.0, 0.0, 1.0, -0.1], [1.0, 1.0, 0.2, 2.0]])
    y = np.array([[1.0, 0.0, 1, 1], [1.0, 1.0, 0, 1]])
    metrics = evaluate(outputs, y, NAMES, 2, joint_classes=np.array([[1, 1], [1, 1]]))
    expected = {
        "MAE AL_OS": 0.5,
        "RMSE AL_OS": np.sqrt(0.5),
        "RMSE AL_OD": 0.0,
        "ACC HM_OD": 0.5,
        "ACC joint rule HM_OD": 1.0,
        "joint ACC": 0.5,
        "joint ACC marginal rule": 0.0,
        "AUC HM_OS": 1.0,
    }
    assert expected.items() <= metrics.values.items()
    assert metrics.reasons == {"AUC HM_OD": "one class only: 0 zeros, 2 ones"}
    y[:, 0] = NAN
    poor = evaluate(outputs, y, NAMES, 2)
    assert poor.values.keys() == metrics.values.keys() and np.isnan(poor.values["MAE AL_OS"])
    assert poor.reasons["RMSE AL_OS"] == "no patient has it observed"


@pytest.mark.parametrize(
    "measure, arguments",
    [
        (evaluate, (np.zeros((3, 4)), np.zeros((2, 4)), NAMES, 2)),
        (area_under_curve, (np.zeros(3), np.zeros((3, 1)))),
        (joint_accuracy, (np.zeros(3), np.zeros(3))),
        (patient_labels, (np.zeros((3, 1)), "any")),
        (patient_scores, (np.ones((3, 4)) / 4, "any")),
    ],
)
def test_shapes_are_checked(measure, arguments):
    with pytest.raises(ShapeError):
        measure(*arguments)
