"""A group's own table: every shape, code, mark and encoding gives the same eyes."""

import gzip
import io
import re
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pytest
import torch
from PIL import Image

from cevit_lib.datasets import load_paired_table, split_by_patient
from cevit_lib.datasets.layout import Criterion, differences, read_layout
from cevit_lib.datasets.table import arrange
from cevit_lib.errors import DataError

LONG = {"patient": "id", "eye": "eye", "continuous": {"AL": "al"}, "binary": {"HM": "se <= -6"}}
WIDE = {
    "patient": "id",
    "eyes": {"OS": "links", "OD": "rechts"},
    "continuous": {"AL": "al_{eye}"},
    "binary": {"HM": "se_{eye} <= -6"},
}
# patient 007: both eyes; 12: no AL on the right; 0012 (another patient than 12): left eye only
ROWS = [
    ("007", "OD", "26.1", "-6"),
    ("007", "OS", "25.5", "-5.75"),
    ("12", "OS", "23.4", "+1.25"),
    ("12", "OD", "", "-7"),
    ("0012", "OS", "24.0", "0"),
]
NAN = float("nan")
EXPECTED = torch.tensor(
    [[25.5, 26.1, 0, 1], [23.4, NAN, 0, 1], [24.0, NAN, 0, NAN]], dtype=torch.float64
)


def long_text(separator=",", rows=ROWS, header=("id", "eye", "al", "se")) -> str:
    return "\n".join(separator.join(row) for row in (header, *rows)) + "\n"


def load(folder, text, layout=LONG, encoding="utf-8", **options):
    path = folder / "eyes.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return load_paired_table(path, layout=layout, **options)


def check(data) -> None:
    """Left eye first, ids as text, what is missing is NaN and counted."""
    assert data.ids == ("007", "12", "0012")
    torch.testing.assert_close(data.y, EXPECTED, equal_nan=True)
    assert data.responses == ("AL_OS", "AL_OD", "HM_OS", "HM_OD") and data.continuous == 2
    flow = data.notes["flow"]
    assert flow["patients with responses of one eye only"] == 1 and flow["AL_OD not observed"] == 2


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_encodings_and_separators(tmp_path, encoding, separator):
    header = ("id", "eye", "al", "se", "Größe")
    rows = [(*row, "größer") for row in ROWS]
    data = load(
        tmp_path, long_text(separator, rows, header).replace("\n", "\r\n"), encoding=encoding
    )
    check(data)
    assert bool(data.notes["warnings"]) == (encoding == "cp1252")  # a guess is told


def test_decimal_commas(tmp_path):
    check(load(tmp_path, long_text(";").replace(".", ",")))
    minus = [("1", "OD", "23", "−7,5"), ("1", "OS", "24", "−2")]  # the minus of a report
    assert load(tmp_path, long_text(";", minus)).y[0].tolist() == [24, 23, 0, 1]
    assert load(tmp_path, THREE, {**LONG, "decimal": ","}).y[0, :2].tolist() == [24.1, 23.456]


THREE = long_text(";", [("1", "OD", "23,456", "-1"), ("1", "OS", "24,100", "-2")])


@pytest.mark.parametrize(
    "codes, declared",
    [
        (("R", "L"), {}),
        (("right", "LEFT"), {}),
        (("od", "os"), {}),
        (("右", "左"), {}),
        (("RE", "le"), {}),
        (("1", "2"), {"laterality": {1: "OD", 2: "OS"}}),  # numbers: only where the layout says so
    ],
)
def test_codes_of_an_eye(tmp_path, codes, declared):
    swap = {"OD": codes[0], "OS": codes[1]}
    text = long_text(rows=[(i, swap[e], *rest) for i, e, *rest in ROWS])
    check(load(tmp_path, text, LONG | declared))


WIDE_ROWS = [
    ["id", "al_rechts", "al_links", "se_rechts", "se_links"],
    ["007", "26.1", "25.5", "-6", "-5.75"],
    ["12", "", "23.4", "-7", "1.25"],
    ["0012", "/", "24.0", "", "0"],
]


def test_a_wide_table_and_excel_give_the_same(tmp_path):
    check(load(tmp_path, "\n".join(map(",".join, WIDE_ROWS)), WIDE))
    book = openpyxl.Workbook()
    book.active.append(WIDE_ROWS[0])
    for row in WIDE_ROWS[1:]:
        book.active.append(
            [row[0], *(float(cell) if cell.strip("/") else cell for cell in row[1:])]
        )
    book.active["A2"].value, book.active["A2"].number_format = 7, "000"  # Excel shows 007
    book.save(tmp_path / "eyes.xlsx")
    check(load_paired_table(tmp_path / "eyes.xlsx", layout=WIDE))
    book.active["B2"].value = "=20+4"
    book.save(tmp_path / "eyes.xlsx")
    with pytest.raises(DataError, match="line 2: '=20.4' is a formula whose result is not stored"):
        load_paired_table(tmp_path / "eyes.xlsx", layout=WIDE)


def test_usual_names_need_no_layout(tmp_path):
    check(
        load(
            tmp_path,
            long_text(
                header=("patient", "eye", "AL", "HM"),
                rows=[
                    (i, e, al, "" if se == "" else str(int(float(se) <= -6)))
                    for i, e, al, se in ROWS
                ],
            ),
            None,
        )
    )
    with pytest.raises(DataError, match="subject, x are not understood without a layout.*patient"):
        load(tmp_path, "subject,x\n1,2\n", None)


@pytest.mark.parametrize(
    "rule, value, truth",
    [
        ("SE <= -6", -6.0, 1),
        ("SE < -6", -6.0, 0),
        ("AL >= 26", 26.0, 1),
        ("AL≥26", 25.99, 0),
        ("vf_ms < 22", 21.9, 1),
        ("sex == F", "f", 1),
        ("sex != F", "F", 0),
        ("a b == 2", 2.0, 1),
        ("dx == glaucoma", "Glaucoma ", 1),
        ("dx == 'glaucoma'", "Glaucoma", 1),
        ("dx == glaucoma", "ungradable", NAN),
        ("dx != normal", "nicht beurteilbar", NAN),
        ("dx != normal", "glaucoma?", NAN),
        ("dx == unknown else known", "unknown", 1),
        ("dx in [glaucoma, POAG]", "poag", 1),
        ("dx in [glaucoma, POAG]", "no glaucoma", 0),
        ("dx not in [normal, healthy]", "healthy", 0),
        ("dx contains glaucoma", "early glaucoma", 1),
        ("dx contains glaucoma", "no sign of glaucoma", NAN),
        ("dx == glaucoma else [normal, healthy]", "cataract", NAN),
        ("dx == glaucoma else [normal, healthy]", "healthy", 0),
        ("grade in [2, 3] else [0, 1]", 9.0, NAN),
        ("grade in [2, 3] else [0, 1]", 1.0, 0),
    ],
)
def test_rules(rule, value, truth):
    np.testing.assert_equal(Criterion.parse(rule).holds(pd.Series([value])).tolist(), [truth])


DIAGNOSES = ["glaucoma", "normal", "cataract", "unknown", "", "Glaucoma", "normal", "glaucoma"]


@pytest.mark.parametrize(
    "rule, error, message",
    [
        ("dx == glaucoma", False, "'normal' (2), 'cataract' (1)"),  # two values are taken for 0
        ("dx == glaucmoa", True, "fits none of 7 cells (nearest: 'Glaucoma'); the column holds"),
        ("dx contains myopia", True, "'else [normal]' behind it names what is 0"),
        ("dx in [glaucoma, cataracts] else normal", False, "'cataracts' is never found"),
    ],
)
def test_a_rule_on_text_tells_what_became_of_every_value(tmp_path, rule, error, message):
    rows = [(f"{k // 2}", ("OS", "OD")[k % 2], dx) for k, dx in enumerate(DIAGNOSES)]
    (tmp_path / "eyes.csv").write_text(long_text(rows=rows, header=("id", "eye", "dx")))
    layout = {"patient": "id", "eye": "eye", "binary": {"G": rule}}
    arranged = arrange(tmp_path / "eyes.csv", layout)
    (problem,) = arranged.problems
    assert problem.error == error and message in problem.message
    assert "'unknown' 1 -> not observed" in arranged.data.notes["labels"]["G"]


def test_codes_for_missing_add_to_the_usual_cells_and_are_compared_as_numbers(tmp_path):
    rows = [
        ("1", "OS", "-9,00", "999"),
        ("1", "OD", "24,5", "-9"),
        ("2", "OS", "", "-1,25"),
        ("2", "OD", "n/a", "-9,5"),
    ]
    data = load(tmp_path, long_text(";", rows), {**LONG, "missing": [-9, "999.0"]})
    np.testing.assert_equal(data.y.tolist(), [[NAN, 24.5, NAN, NAN], [NAN, NAN, 0, 1]])
    rows = [("999" if row[0] == "2" else "9", *row[1:]) for row in rows]  # ids are no measurements
    assert load(tmp_path, long_text(";", rows), {**LONG, "missing": [-9, 999]}).ids == ("9", "999")


@pytest.mark.parametrize(
    "row, reason, sentence",
    [
        ("{},1,24,0", "rows of no known eye, their code is '1'", "laterality: {1: OD or OS, ...}"),
        (",OD,24,0", "rows without a patient's id", "no patient's id"),
        ("1.2{}E+11,OD,24,0", "rows whose id was shortened", "keep the column as text"),
    ],
)
def test_a_table_of_which_every_row_is_rejected_says_why(tmp_path, row, reason, sentence):
    text = "id,eye,al,se\n" + "".join(row.format(i) + "\n" for i in range(3))
    with pytest.raises(DataError) as caught:
        load(tmp_path, text)
    assert sentence in str(caught.value) and "(2 more" in str(caught.value)
    arranged = arrange(tmp_path / "eyes.csv", LONG)
    assert len(arranged.data) == 0 and arranged.data.notes["flow"][reason] == 3


def test_a_label_of_the_patient_is_one_column_on_which_both_rows_agree(tmp_path):
    layout = {**LONG, "binary": {"DR": "dr"}, "patient_level": ["DR"]}
    text = "id,eye,al,dr\n1,OD,22,1\n1,OS,23,1\n2,OS,21,0\n3,OD,24,\n3,OS,25,1\n"
    data = load(tmp_path, text, layout)
    assert data.responses == ("AL_OS", "AL_OD", "DR") and data.y[:, 2].tolist() == [1, 0, 1]
    with pytest.raises(DataError, match=r"line 3, column 'dr': .*lines 2 and 3\) disagree on 'DR'"):
        load(tmp_path, text.replace("1,OS,23,1", "1,OS,23,0"), layout)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("26.1", "26.l", r"line 2, column 'al': '26.l' is no number"),
        ("25.5", "inf", r"line 3, column 'al': 'inf' is no number"),
        ("26.1", "2.61", r"line 2, column 'al': '2.61' is outside the limits 15 to 40"),
        ("12,OD", "12,OU", r"line 5, column 'eye': 'OU' is no known code"),
        ("12,OD", "12,OS", r"line 5, column 'id': OS of patient '12' stands in line 4 already"),
        ("12,OD", ",OD", r"line 5, column 'id': no patient's id"),
        ("25.5,", "25.5,,,", r"line 3: 6 cells for 4 columns"),
        ("25.5", '"25.5', r"line 3: .*quote"),
        (",al,", ",alx,", r"lacks the columns al .nearest: .alx..; it has id, eye, alx, se"),
        (",al,", ",se,", r"line 1: column 'se' stands twice"),
        ("26.1", "26.1\0", r"holds zero bytes"),
    ],
)
def test_what_is_wrong_is_named_by_line_and_column(tmp_path, old, new, message):
    with pytest.raises(DataError, match=message):
        load(tmp_path, long_text().replace(old, new, 1), {**LONG, "limits": {"AL": [15, 40]}})


@pytest.mark.parametrize(
    "content, layout, message",
    [
        (
            long_text(";").replace(".", ",").replace("25,5", "25.5"),
            {},
            r"line 2, column 'al': '26,1' has a comma, line 3 has '25.5'",
        ),
        (THREE, {}, "'23,456' may be a decimal mark or part thousands"),
        (THREE.replace("23,456", "1.234,5"), {"decimal": ","}, r"'1\.234,5' is no number"),
        (b"", {}, "is empty: save or fetch it again"),
        (b"id,eye\n", {}, "1 lines"),
        (b"PK\x03\x04", {}, "is a damaged Excel workbook or zip file: save or fetch it again"),
        (
            b"id,eye,al,se\n1,OD,\xff,0\n",
            {"encoding": "utf-8"},
            "line 2: not utf-8 text",
        ),
        (b"id,eye,al,se\n1,OD,\xe9,0\n\x81,OD,,\n", {}, "line 3: not cp1252 text"),
    ],
)
def test_files_that_are_no_table_or_may_be_read_in_two_ways(tmp_path, content, layout, message):
    with pytest.raises(DataError, match=message):
        load(tmp_path, content, {**LONG, **layout})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"binray": {}}, "unknown key 'binray' .nearest: 'binary'"),
        ({"continuous": {"AL": "al >= 26"}}, "'al >= 26' is a rule; put it under 'binary'"),
        ({"binary": {"HM": "se <= high"}}, "'high' is no number"),
        ({"binary": {"HM": "se =< -6"}}, "'=<' is no comparison"),
        ({"binary": {"HM": "se = 1"}}, "'=' is no comparison"),
        ({"patient_level": ["XX"]}, "'XX'"),
        ({"continuous": {"": "al"}}, "has its own name"),
        ({"laterality": {"1": "right"}}, "maps codes to OS or OD"),
        ({"continuous": ["al"]}, "expected a map"),
        ({"size": "big"}, "positive whole number"),
        ({"limits": {"AL": ["low", 40]}}, "two numbers"),
        ({"domains": ["OS", "OD", "OU"]}, "two only"),
        ({"eyes": {"OS": "l", "OD": "r", "OU": "b"}}, "OS, OD, OU; two only"),
        ({"covariates": {"refraction": "se"}}, "response 'HM' is made from its column 'se'"),
        ({"eye": None}, "one row a patient"),
        ({"image": "a", "file": "b"}, "not both"),
        ({"decimal": "'"}, "expected '.' or ','"),
    ],
)
def test_a_wrong_layout_is_named(tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        load(tmp_path, long_text(), {**LONG, **change})


def test_one_visit_of_several(tmp_path):
    text = "id,eye,visit,al,se\n1,OD,1.0,22,0\n1,OD,2,23,0\n1,OS,1,24,0\n"
    data = load(tmp_path, text, {**LONG, "where": {"visit": 1}})
    assert data.y[0, :2].tolist() == [24, 22]
    assert data.notes["flow"]["rows left out by 'where'"] == 1
    message = r"no row .* visit = 'one'.*'1.0' \(1\), '2' \(1\), '1' \(1\)"
    with pytest.raises(DataError, match=message):
        load(tmp_path, text, {**LONG, "where": {"visit": "one"}})


def test_all_visits_of_a_patient_stay_in_one_fold(tmp_path):
    text = "id,eye,visit,al,se\n" + "".join(
        f"{i:02d},{eye},{visit},{22 + i},{-8 * (i % 2)}\n"
        for i in range(10)
        for visit in ("first", "second")
        for eye in ("OD", "OS")
    )
    with pytest.raises(DataError, match="name the column of several visits by 'visit'"):
        load(tmp_path, text)
    data = load(tmp_path, text, {**LONG, "visit": "visit"})
    assert (data.notes["flow"]["patients"], data.notes["flow"]["visits"]) == (10, 20)
    part = data.subset(split_by_patient(data, 5, np.random.default_rng(0))[0].test)
    assert len(part) == 4 and len(set(part.ids)) == 2 and part.visits.count("first") == 2


@pytest.mark.parametrize(
    "declared, names",
    [
        ({"organ": "knee"}, ("left", "right")),
        ({"organ": "ear", "domains": ["AS", "AD"]}, ("AS", "AD")),
        ({}, ("OS", "OD")),
    ],
)
def test_two_of_any_organ_bear_the_layouts_names(tmp_path, declared, names):
    text = "pid,side,jsw,kl\n1,R,3.5,2\n1,L,4.5,0\n2,1,3.0,3\n"
    layout = {
        "patient": "pid",
        "eye": "side",
        "continuous": {"JSW": "jsw"},
        "binary": {"OA": "kl >= 2"},
        "laterality": {"1": names[0]},
    }
    data = load(tmp_path, text, layout | declared)
    assert data.domains == names
    assert data.responses == tuple(f"{name}_{side}" for name in ("JSW", "OA") for side in names)
    np.testing.assert_equal(data.y.tolist(), [[4.5, 3.5, 0, 1], [3.0, NAN, 1, NAN]])


def test_a_column_of_each_eye_and_a_suffix_of_file_names(tmp_path):
    for name in ("a", "b"):
        Image.new("RGB", (9, 9)).save(tmp_path / f"{name}_f.png")
    text = "ID;Left AL;AL right;Left-Fundus;Right-Fundus\n7;23;24.5;a;b_f.png\n"
    layout = {
        "patient": "ID",
        "continuous": {"AL": {"OS": "Left AL", "right": "AL right"}},
        "image": {"left": "Left-Fundus", "OD": "Right-Fundus"},
        "suffix": "_f.png",
        "size": 8,
    }
    data = load(tmp_path, text, layout, images=tmp_path)
    assert data.y.tolist() == [[23, 24.5]]
    assert [path.name for path in data.images.paths[0]] == ["a_f.png", "b_f.png"]
    with pytest.raises(DataError, match="'AL': OS; two only, OS and OD"):
        load(tmp_path, text, {**layout, "continuous": {"AL": {"OS": "Left AL"}}})


def test_layouts_are_compared_by_what_a_label_means():
    mine = {**LONG, "binary": {"HM": "sphere <= -6.0"}, "continuous": {"AL": "length"}}
    theirs = read_layout(LONG)
    assert differences(read_layout(mine), theirs) == []
    for change in ({"binary": {"HM": "se < -6"}}, {"patient_level": ["HM"]}):
        assert len(differences(read_layout({**mine, **change}), theirs)) == 1


def zipped(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/"), text)
    return buffer.getvalue()


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500)


@pytest.mark.parametrize(
    "suffix, content, kind",
    [
        (".csv", b"PAR1\x15\4", "a Parquet file: export it as CSV"),
        (".zsav", b"$FL3@(#) SPSS", "an SPSS file"),
        (".dta", b"<stata_dta><header>", "a Stata file"),
        (".dta", b"r\2\1\0", "a Stata file"),
        (".rds", gzip.compress(b"X\n\0\0\0\3", mtime=0), "an R file"),
        (".csv.gz", gzip.compress(b"id,eye", mtime=0), r"a packed file \(gzip\): unpack it"),
        (".sas7bdat", bytes(12) + b"\xc2\xea\x81\x60", "a SAS file"),
        (".numbers", zipped(Index__Document="x"), "a Numbers file of Apple: export it there"),
        (".csv", zipped(mimetype="x", **{"content.xml": "x"}), "an OpenDocument file"),
        (".npz", zipped(**{"y.npy": "x"}), "a NumPy archive"),
        (".csv", zipped(xl__workbook="x"), "an Excel workbook .*: name it eyes.xlsx"),
        (".xlsx", b"id,eye\n1,OD\n", "plain text under the name of .*: name it eyes.csv"),
        (".xlsx", OLE + "EncryptedPackage".encode("utf-16-le"), "locked by a password"),
        (".xls", OLE + "Workbook".encode("utf-16-le"), "an old Excel file"),
        (".xls", b"\xef\xbb\xbf\n<HTML><table>", "a web page"),
        (".csv", "<!doctype html>".encode("utf-16"), "a web page"),
        (".csv", b'[{"id": "1"}]', "a JSON file"),
        (".csv", b"%PDF-1.7", "a PDF"),
        (".csv", b"\xff\xd8\xff\xe0", "a photograph is no table"),
        (".csv", bytes(99), "nothing but zero bytes"),
    ],
)
def test_a_file_of_another_kind_is_named_with_the_way_out(tmp_path, suffix, content, kind):
    path = tmp_path / f"eyes{suffix}"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"is .*{kind}"):
        load_paired_table(path, layout=LONG)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "sep=;\n" + text.replace(",", ";"),
        lambda text: "Export of clinic A\n\n" + text,
        lambda text: "\n".join(f'"{line}"' for line in text.splitlines()),
        lambda text: re.sub(r"^(\d+)", r'="\1"', text, flags=re.MULTILINE),
        lambda text: re.sub(r"^(\d+)", "'\\1\u200b", text, flags=re.MULTILINE),
        lambda text: text.replace("\n", ",,\r"),
    ],
)
def test_what_spreadsheet_programs_add_is_read_through(tmp_path, change):
    data = load(tmp_path, change(long_text()))
    check(data)
    assert len(data.notes["warnings"]) == ("Export" in change(""))


def test_covariates_belong_to_the_patients_and_a_table_shows_nothing(tmp_path):
    layout = {**LONG, "covariates": {"age": "age", "female": "sex == F"}}
    rows = [(*row, age, sex) for row, age, sex in zip(ROWS, "44556", "FFMMF", strict=True)]
    data = load(tmp_path, long_text(",", rows, ("id", "eye", "al", "se", "age", "sex")), layout)
    np.testing.assert_equal(
        data.covariates.tolist(), [[[4, 1]] * 2, [[5, 0]] * 2, [[6, 1], [NAN, NAN]]]
    )
    assert data.replace(covariates=data.covariates + 1).hash != data.hash
    with pytest.raises(DataError, match="'eyes' is a table without photographs"):
        data.load()


def test_photographs_and_an_eye_without_one(tmp_path):
    for name, level in (("a.png", 10), ("b.png", 200), ("c.png", 90)):
        Image.new("L", (20, 20), level).save(tmp_path / name)
    rows = [(*r, p) for r, p in zip(ROWS, ("a.png", "b.png", "c.png", "", ""), strict=True)]
    text, layout = long_text(",", rows, ("id", "eye", "al", "se", "photo")), {"image": "photo"}
    data = load(tmp_path, text, LONG | layout | {"size": 8}, images=tmp_path)
    assert data.ids == ("007", "12")  # 0012 has no photograph at all
    # the last one is the label of an eye that nobody photographed
    np.testing.assert_equal(data.y.tolist(), [[25.5, 26.1, 0, 1], [23.4, NAN, 0, NAN]])
    assert (data.load()[:, :, 0, 0, 0] * 255).round().tolist() == [[200, 10], [90, 0]]
    assert data.notes["flow"]["responses set to not observed, their eye has no photograph"] == 1
