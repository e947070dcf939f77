"""UWHVF: left eye first, a label with a trend of its own, short series and lone eyes counted, the
counts of the real tables."""

import numpy as np
import pandas as pd
import pytest
import torch

from cevit_lib.datasets import load_uwhvf
from cevit_lib.errors import DataError

# invented: patient 1 has both eyes, 2 one eye only, 3 a right series that is too short
SERIES = """PatID,Eye,Baseline_Age,Baseline_MTD,Follow_up_length,N_fields,Slope_MTD
1,Right,50,-3.5,6,7,0.25
1,Left,50,-4,6,8,-1.5
2,Left,61,-9,2,5,-0.5
3,Right,70,-1,1.9,9,-2
3,Left,70,-2,2.5,5,0
4,Left,40,0,0.1,2,
"""
EYES = ("1_Right", "1_Left", "2_Left", "3_Right", "3_Left", "4_Left")
HEADER = '"","Cluster_1","Cluster_2","Cluster_3","Cluster_4","Cluster_5","Cluster_6"\n'
# the sixth cluster decides: it rises steeply (1_Right), falls (1_Left), falls with p = .02 (2_Left)
SLOPES = HEADER + "".join(
    f"{eye},{','.join(['-0.1'] * 5)},{last}\n"
    for eye, last in zip(EYES, (3, -3, -3, -3, -0.1, "NA"), strict=True)
).replace("4_Left,-0.1,-0.1,-0.1,-0.1,-0.1", "4_Left,NA,NA,NA,NA,NA")
P_VALUES = HEADER + "".join(
    f"{eye},{','.join(['0.5'] * 5)},{last}\n"
    for eye, last in zip(EYES, (1e-4, 1e-4, 0.02, 1e-4, 0.5, "NA"), strict=True)
)


def written(folder, series=SERIES, slopes=SLOPES, p_values=P_VALUES):
    if series:
        (folder / "Series_Summary.csv").write_text(series)
    (folder / "Cluster_Slope_MTD.csv").write_text(slopes)
    (folder / "Cluster_pvalue_MTD.csv").write_text(p_values)
    return folder


def test_left_eye_first_and_a_label_that_is_no_cut_of_the_slope(tmp_path):
    data = load_uwhvf(written(tmp_path))
    assert data.ids == ("1",) and data.continuous == 2 and data.images is None
    assert data.responses == ("slope_OS", "slope_OD", "falls_OS", "falls_OD")
    assert data.y.tolist() == [[-1.5, 0.25, 1, 0]]
    assert data.covariate_names == ("age", "years", "tests", "first_MD")
    assert data.covariates.tolist() == [[[50, 6, 8, -4], [50, 6, 7, -3.5]]]
    nan = float("nan")
    everybody = load_uwhvf(tmp_path, missing="keep", p_value=0.03)
    expected = [[-1.5, 0.25, 1, 0], [-0.5, nan, 1, nan], [0, nan, 0, nan]]
    torch.testing.assert_close(
        everybody.y, torch.tensor(expected, dtype=torch.float64), equal_nan=True
    )
    flow = everybody.notes["flow"]
    assert flow["patients with such a series of one eye only"] == 2 and flow["kept"] == 3
    assert flow["eyes with a shorter series"] == 2 and flow["without a response"] == 1
    assert len(load_uwhvf(tmp_path, years=1.5)) == 2


ROWS = SERIES.splitlines(keepends=True)


@pytest.mark.parametrize(
    "tables, options, told",
    [
        ({"slopes": "".join(SLOPES.splitlines(keepends=True)[:-2])}, {}, "'3_Left'.*is a part"),
        ({"series": "".join(ROWS[:-1])}, {}, "'4_Left'.*is a part"),
        ({"series": SERIES + ROWS[1]}, {}, "an eye is twice"),
        ({"slopes": SLOPES.replace("1_Left,-0.1", "1_Left,")}, {}, "1 eyes .* no number.*'1_Left'"),
        ({"series": SERIES.replace("Slope_MTD", "Slope_MD")}, {}, "lacks the column 'Slope_MTD'"),
        ({"p_values": P_VALUES.replace("0.02", "0,02")}, {}, "Cluster_pvalue_MTD.csv"),
        ({"series": SERIES.replace("-1.5", "fast")}, {}, "cannot be read.*'fast'"),
        ({"series": None}, {}, "Series_Summary.csv cannot be read.*cevit download uwhvf"),
        ({}, {"tests": 9}, "of 4 patients none has 9 tests.*both eyes, and 0 have"),
        ({}, {"tests": 2, "years": 0.1}, "'4_Left'.*too short for a trend"),
        ({}, {"tests": 8}, "of 4 patients none has 8 tests.*and 1 have them of one eye"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, tables, options, told):
    with pytest.raises(DataError, match=told) as caught:
        load_uwhvf(written(tmp_path, **tables), **options)
    assert "\n" not in str(caught.value)


def test_the_real_tables_have_their_counts_and_values(uwhvf_folder):
    data, everybody = load_uwhvf(uwhvf_folder), load_uwhvf(uwhvf_folder, missing="keep")
    assert len(data) == 942 and data.complete.all() and len(everybody) == 942 + 133
    assert not torch.isnan(data.covariates).any()
    # each value against the files themselves, read by another way
    series, slopes, p_values = (
        pd.read_csv(uwhvf_folder / f"{name}.csv", dtype={"PatID": str})
        for name in ("Series_Summary", "Cluster_Slope_MTD", "Cluster_pvalue_MTD")
    )
    series["falls"] = ((slopes.iloc[:, 1:] < 0) & (p_values.iloc[:, 1:] < 0.01)).any(axis=1)
    assert (slopes.iloc[:, 0] == series["PatID"] + "_" + series["Eye"]).all()
    sides = series.pivot(index="PatID", columns="Eye", values=["Slope_MTD", "falls"])
    order = [(name, eye) for name in ("Slope_MTD", "falls") for eye in ("Left", "Right")]
    np.testing.assert_array_equal(data.y, sides.loc[list(data.ids), order].astype(float))
