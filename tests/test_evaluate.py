"""What a clinician asks of predictions, on patients of the fit's table and of another clinic."""

import numpy as np
import pytest
import torch
from scipy.special import expit, logit
from sklearn.metrics import roc_curve

from cevit_lib.clinic.evaluate import recalibrated
from cevit_lib.clinic.performance import (
    Answer,
    filled,
    in_words,
    joined,
    judge,
    of_label,
    of_length,
    skill,
    usual_of,
)
from cevit_lib.copula import CopulaParameters
from cevit_lib.training import Predictions

RNG = np.random.default_rng(0)
NAMES = ("AL_OS", "AL_OD", "HM_OS", "HM_OD", "glaucoma")
NAN = float("nan")


def a_clinic(n: int = 300):
    """Patients, and the predictions of a model that knows them well; two lengths, three labels."""
    p = len(NAMES)
    correlation = torch.full((p, p), 0.5, dtype=torch.float64).fill_diagonal_(1)
    parameters = CopulaParameters(correlation, torch.ones(2, dtype=torch.float64))
    outputs = torch.from_numpy(np.random.default_rng(1).normal(size=(n, p)))
    noise = np.random.default_rng(2).multivariate_normal(np.zeros(p), correlation.numpy(), n)
    y = outputs.numpy() + noise
    y[:, 2:] = y[:, 2:] > 0
    return Predictions(tuple(map(str, range(n))), NAMES, outputs, parameters), y


def test_saying_the_usual_has_no_skill_and_knowing_all_has_all():
    y = np.where(RNG.uniform(size=200) < 0.1, NAN, RNG.normal(24, 1, size=200))
    usual = np.full(200, 23.5)
    known = np.nan_to_num(y)
    assert skill(usual, y, usual) == 0 and skill(known, y, usual) == 1
    here = np.full(200, np.nanmean(y))  # about the mean of the same patients it is R squared
    said = known + RNG.normal(size=200)
    found = of_length(said, y, here, 0.5)
    assert found["skill"] == pytest.approx(found["R²"], abs=1e-12)
    p, label = expit(RNG.normal(size=200)), (RNG.uniform(size=200) < 0.3) * 1.0
    assert skill(p, label, usual * 0 + 0.3) == pytest.approx(
        1 - np.square(p - label).mean() / np.square(0.3 - label).mean()
    )


def test_detection_is_read_off_the_curve_and_predictive_values_are_counted_at_their_prevalence():
    score = RNG.normal(size=400).round(1)  # some have the same
    label = (RNG.uniform(size=400) < expit(score - 1)) * 1.0
    found = of_label(expit(score), label, np.full(400, 0.3), 0.02, 0.8)
    false, true, _ = roc_curve(label, score, drop_intermediate=False)
    assert found["sensitivity at specificity 0.8"] == true[false <= 0.2 + 1e-12].max()
    assert found["specificity at sensitivity 0.8"] == 1 - false[true >= 0.8 - 1e-12].min()
    # a town of 2 % prevalence: every positive stands for .02 / mean(label) of a person, and so on
    weight = np.where(label == 1, 0.02 / label.mean(), 0.98 / (1 - label.mean()))
    threshold = np.sort(score[label == 0])[int(np.ceil(0.8 * (label == 0).sum())) - 1]
    yes = score > threshold
    value = found["positive predictive value"]
    assert value == pytest.approx((weight * label)[yes].sum() / weight[yes].sum(), rel=1e-9)
    assert found["negative predictive value"] == pytest.approx(
        (weight * (1 - label))[~yes].sum() / weight[~yes].sum(), rel=1e-9
    )


def test_recalibration_in_the_large_and_with_a_slope_mends_what_was_planted():
    score = RNG.normal(size=100_000)
    label = (RNG.uniform(size=100_000) < expit(0.7 + 0.5 * score)) * 1.0
    answer = Answer("HM", "HM", True, expit(score), label, np.full(100_000, 0.5))
    plain, large, whole = recalibrated(answer)
    moved = expit(logit(answer.said) + large[1])
    assert moved.mean() == pytest.approx(label.mean(), abs=1e-9)
    assert whole[1:3] == (pytest.approx(0.7, abs=0.03), pytest.approx(0.5, abs=0.03))
    assert plain[3] > large[3] > whole[3]
    length = 3 + 0.8 * score + RNG.normal(size=100_000)
    _, large, whole = recalibrated(Answer("AL", "AL", False, score, length, score))
    assert large[1] == pytest.approx(length.mean() - score.mean(), abs=1e-9)
    correlation = np.corrcoef(score, length)[0, 1]
    assert whole[2] == pytest.approx(correlation * length.std() / score.std(), rel=1e-9)


def test_any_and_both_are_judged_where_both_eyes_are_known_and_come_from_the_copula():
    predictions, y = a_clinic()
    y[:100, 2], y[:, 1] = NAN, y[:, 1] + 5
    usual = usual_of(y, NAMES, 2)
    assert usual["any HM"] == (y[100:, 2:4].max(1)).mean()
    clinic = judge(predictions, y, usual)
    by_name = {answer.name: answer for answer in clinic.answers()}
    assert np.isnan(by_name["any HM"].seen[:100]).all()
    stated = filled(clinic.answers(), {"AL_OD": 2.0, "HM": 0.05, "any HM": 0.1})
    half = float(f"{(y[:, :2] - y[:, :2].mean(0)).std() / 2:.1g}")  # not of how far the eyes differ
    expected = {
        "AL_OS": half,
        "AL_OD": 2.0,
        "HM_OS": 0.05,
        "HM_OD": 0.05,
        "any HM": 0.1,
        "both HM": 0.05,
        "glaucoma": y[:, 4].mean(),
    }
    assert stated == pytest.approx(expected)
    joint = predictions.joint.sum(3).numpy()  # the third label summed out
    np.testing.assert_allclose(by_name["any HM"].said, 1 - joint[:, 0, 0], atol=1e-9)
    np.testing.assert_allclose(by_name["both HM"].said, joint[:, 1, 1], atol=1e-9)


def test_a_model_with_skill_is_told_from_one_without():
    predictions, y = a_clinic()
    strangers = np.random.default_rng(3).permutation(y)
    for seen, told in ((y, "better than"), (strangers, "No skill is shown for any response")):
        clinic = judge(predictions, seen, usual_of(y, NAMES, 2))
        stated = filled(clinic.answers(), {})
        assert told in in_words(clinic.performance(stated, np.random.default_rng(0), 60))


def test_folds_laid_together_keep_each_folds_usual_and_order_the_worst_by_their_scale():
    predictions, y = a_clinic(20)
    both = joined([judge(predictions, y, {"AL_OS": value}) for value in (23.0, 25.0)])
    assert len(both.ids) == 40 and both.asked[0].usual.tolist() == [23.0] * 20 + [25.0] * 20
    outputs = predictions.outputs.clone()
    outputs[:, 0] = torch.from_numpy(y[:, 0] - np.linspace(1.6, 1.7, 20))
    y[3, 1], y[5, 1] = NAN, outputs[5, 1] - 9
    shifted = judge(Predictions(predictions.ids, NAMES, outputs, predictions.parameters), y, {})
    assert shifted.coverage(0.9)["AL_OS"] == (9, 20)  # 1.6449 is the 95 % quantile
    assert shifted.coverage(0.9)["AL_OD"][1] == 19
    assert shifted.worst(1) == [("5", "AL_OD", float(outputs[5, 1]), y[5, 1])]
