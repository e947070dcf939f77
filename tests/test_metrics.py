"""Metrics against their definitions, by brute force, and NaN with its reason."""

import numpy as np
import pytest
import torch

from cevit_lib.errors import ShapeError
from cevit_lib.metrics import (
    accuracy,
    area_under_curve,
    evaluate,
    joint_accuracy,
    mean_absolute_error,
    root_mean_squared_error,
)

NAMES = ("AL_L", "AL_R", "HM_L", "HM_R")


def pair_count(scores: np.ndarray, labels: np.ndarray) -> float:
    """Count concordant pairs one by one: the definition of the area under the curve."""
    wins = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a in scores[labels == 1]
        for b in scores[labels == 0]
    ]
    return float(np.mean(wins))


@pytest.mark.parametrize("levels", [3, 1000])
def test_area_under_curve_is_the_share_of_concordant_pairs(levels):
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, levels, 60) / levels, (rng.random(60) < 0.4).astype(float)
    assert area_under_curve(scores, labels) == pytest.approx(pair_count(scores, labels), abs=1e-12)
    assert area_under_curve(-scores, labels) == pytest.approx(
        1 - pair_count(scores, labels), abs=1e-12
    )
    assert area_under_curve(np.exp(scores), labels) == area_under_curve(scores, labels)


def test_errors_by_hand_and_missing_values_left_out():
    predicted, observed = torch.tensor([1.0, 2.0, 9.0]), torch.tensor([2.0, 0.0, float("nan")])
    assert mean_absolute_error(predicted, observed) == 1.5
    assert root_mean_squared_error(predicted, observed) == pytest.approx(np.sqrt(2.5))
    assert np.isnan(mean_absolute_error(predicted[2:], observed[2:]))


def test_accuracies_by_hand():
    classes = np.array([[1, 1], [0, 1], [0, 0], [1, 0]])
    labels = np.array([[1, 1], [1, 1], [0, np.nan], [0, 1]])
    assert accuracy(classes[:, 0], labels[:, 0]) == 0.5
    assert accuracy(classes[:, 1], labels[:, 1]) == pytest.approx(2 / 3)
    assert joint_accuracy(classes, labels) == pytest.approx(
        1 / 3
    )  # the third patient lacks a label


def test_evaluate_uses_both_rules():
    outputs = np.array([[0.0, 0.0, 1.0, -0.1], [1.0, 1.0, 0.2, 2.0]])
    y = np.array([[1.0, 0.0, 1, 1], [1.0, 1.0, 0, 1]])
    metrics = evaluate(outputs, y, NAMES, 2, joint_classes=np.array([[1, 1], [1, 1]])).values
    assert metrics["MAE AL_L"] == 0.5 and metrics["RMSE AL_R"] == 0.0
    assert metrics["ACC HM_R"] == 0.5 and metrics["ACC joint rule HM_R"] == 1.0
    assert metrics["joint ACC"] == 0.5 and metrics["joint ACC marginal rule"] == 0.0
    assert metrics["AUC HM_L"] == 1.0


def test_one_class_gives_nan_with_its_reason():
    outputs, y = (
        np.zeros((3, 4)),
        np.array([[1.0, np.nan, 0, 1], [2.0, np.nan, 0, 0], [3.0, np.nan, 0, 1]]),
    )
    metrics = evaluate(outputs, y, NAMES, 2)
    assert (
        np.isnan(metrics.values["AUC HM_L"])
        and metrics.reasons["AUC HM_L"] == "one class only: 3 zeros, 0 ones"
    )
    assert (
        np.isnan(metrics.values["MAE AL_R"])
        and metrics.reasons["MAE AL_R"] == "no patient has it observed"
    )
    assert set(metrics.reasons) == {key for key, value in metrics.values.items() if np.isnan(value)}


def test_shapes_are_checked():
    with pytest.raises(ShapeError):
        evaluate(np.zeros((3, 4)), np.zeros((2, 4)), NAMES, 2)
    with pytest.raises(ShapeError):
        area_under_curve(np.zeros(3), np.zeros((3, 1)))
    with pytest.raises(ShapeError):
        joint_accuracy(np.zeros(3), np.zeros(3))
