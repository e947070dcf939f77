"""Paired comparisons: known effect sizes, names, and a corrected test that keeps its level."""

import numpy as np
import pytest
from scipy import stats

from studies.comparison import cohen_d_av, cohen_d_z, compare_paired


def test_both_cohens_d_by_hand():
    a, b = np.array([1.0, 2.0, 3.0, 5.0]), np.array([0.0, 2.0, 1.0, 4.0])
    # differences 1, 0, 2, 1: mean 1, variance 2/3
    assert cohen_d_z(a, b) == pytest.approx(1 / np.sqrt(2 / 3))
    pooled = np.sqrt((np.sum((a - a.mean()) ** 2) / 3 + np.sum((b - b.mean()) ** 2) / 3) / 2)
    assert cohen_d_av(a, b) == pytest.approx(1 / pooled) == -cohen_d_av(b, a)
    assert np.isnan(cohen_d_z(a + 0.5, a))  # a constant gain


def test_the_plain_test_is_scipys_and_the_sign_is_kept():
    rng = np.random.default_rng(1)
    b = rng.normal(size=20)
    a = b - 0.3 + 0.2 * rng.normal(size=20)
    found, wanted = compare_paired(a, b), stats.ttest_rel(a, b)
    assert found.p == pytest.approx(wanted.pvalue) and found.folds == 20
    assert found.d_z < 0 and found.difference < 0 and found.p_corrected > found.p


def test_corrected_test_keeps_its_level_where_the_plain_one_does_not():
    # k = 5 folds with the correlation that Nadeau and Bengio assume, test share / whole = 0.2
    rng, k, share, repeats = np.random.default_rng(3), 5, 0.2, 4000
    shared = rng.normal(size=(repeats, 1)) * np.sqrt(share)
    differences = shared + rng.normal(size=(repeats, k)) * np.sqrt(1 - share)
    t = differences.mean(1) / differences.std(1, ddof=1) * np.sqrt(k)
    plain = np.mean(2 * stats.t.sf(np.abs(t), k - 1) < 0.05)
    corrected = np.mean(
        [compare_paired(d, np.zeros(k)).p_corrected < 0.05 for d in differences[:1500]]
    )
    assert plain > 0.10  # 4 standard errors of a share near 0.05 over 4000 are 0.014
    assert abs(corrected - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 1500)


@pytest.mark.parametrize("shift", [0.0, 0.3, 0.6, 1.2])
def test_the_corrected_interval_belongs_to_the_corrected_test(shift):
    a = np.random.default_rng(8).normal(size=50) * 0.5 + shift
    found = compare_paired(a, np.zeros(50))
    outside = found.low_corrected > 0 or found.high_corrected < 0
    assert outside == (found.p_corrected < 0.05)
    # 1 / 50 + 1 / 4 in place of 1 / 50
    plain = stats.ttest_1samp(a, 0).confidence_interval(0.95)
    wider = (found.high_corrected - found.low_corrected) / (plain.high - plain.low)
    assert wider == pytest.approx(np.sqrt(0.27 / 0.02))
