"""What the pages of ``cevit report`` and ``cevit evaluate`` are made of: HTML, whole in itself."""

from __future__ import annotations

import base64
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from scipy.stats import norm

from cevit_lib.clinic.check_data import characteristic
from cevit_lib.clinic.performance import Judged, in_words
from cevit_lib.clinic.report_figures import plot_calibrated, plot_predicted
from cevit_lib.clinic.style import png
from cevit_lib.clinic.tables import own_or_new
from cevit_lib.metrics import Interval, calibration_curve
from cevit_lib.records.store import write_whole

BEGINNING = "<!doctype html>\n<!-- cevit report; not for clinical use -->"
LOOK = """body{font:16px/1.55 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
body{color:#1a1a1a}
h1,h2{line-height:1.2}table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
th,td{border-bottom:1px solid #ccc;padding:.3rem .5rem;text-align:left;vertical-align:top}
th{font-weight:600;font-size:.8rem}td{font-size:.9rem}
td{font-variant-numeric:tabular-nums;white-space:pre-wrap}td:first-child{white-space:nowrap}
table+p{color:#444;margin-top:-.6rem}
.warn{background:#fff3d6;border-left:5px solid #8a5a00;padding:.7rem 1rem;font-weight:600}
figure{margin:1.2rem 0}img{max-width:100%;height:auto}figcaption{color:#444}
code{overflow-wrap:anywhere}"""
LIMITS = (
    "Probabilities and intervals hold for patients like those of the table. The interval's width "
    "is the spread of the residuals; that the network itself is uncertain is not in it.",
    "Sensitivity at a stated specificity, and the reverse, are read off the curve of the same "
    "patients: a threshold that is fixed beforehand will do a little worse.",
    "A label in any or in both of two is judged where both were observed.",
)


def write_page(path: Path, title: str, sections: dict[str, str]) -> None:
    """Write a page, whole or not at all, with its warning below the title; sections by their
    headings.

    Raises
    ------
    DataError
        There is a file of that name which is no page of ours; it is left as it is.
    """
    own_or_new(path)
    name = escape(title)
    head = (
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{name}, not for clinical use</title><style>{LOOK}</style></head>"
    )
    warning = warned("Not for clinical use. The numbers describe a model, they advise no patient.")
    parts = [f"<h2>{heading}</h2>\n{text}" for heading, text in sections.items()]
    body = "\n".join([f"<h1>{name}</h1>", warning, *parts])
    write_whole(path, f"{BEGINNING}\n{head}<body><main>{body}</main></body></html>\n".encode())


def table(head: list[str], rows: list[list[Any]], caption: str = "") -> str:
    """Return an HTML table with its caption below; what is not known is a dash."""
    cells = pd.DataFrame(rows, columns=head, dtype=object)
    look = {"index": False, "border": 0, "justify": "left", "header": any(head), "na_rep": "–"}
    with pd.option_context("display.max_colwidth", None):
        text = cells.to_html(formatters=[_text] * len(head), **look)
    return text + paragraph(caption)


def _text(value: Any) -> str:
    if isinstance(value, Interval):
        ends = f"\n{value.low:.3g} to {value.high:.3g}" if np.isfinite(value.low) else ""
        return _text(value.value) + ends
    if isinstance(value, dict):
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    if isinstance(value, float):
        return "–" if value != value else f"{value if abs(value) > 1e-9 else 0:.3g}"
    return str(value)


def figure(picture: Any, caption: str) -> str:
    """Return a matplotlib figure as HTML, its bytes inside."""
    code = base64.b64encode(png(picture)).decode()
    text = escape(caption)
    image = f'<img alt="{text}" src="data:image/png;base64,{code}">'
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"


def paragraph(text: str) -> str:
    """Return a paragraph of plain words."""
    return f"<p>{escape(text)}</p>"


def warned(*texts: str) -> str:
    """Return what is to be seen first."""
    return "".join(f'<p class="warn">{escape(text)}</p>' for text in texts)


def flow_table(flow: dict[str, int] | None) -> str:
    """Return how many patients remained, and why not more."""
    rows = [[count, what] for what, count in (flow or {}).items()]
    return table(["count", ""], rows, "Flow of patients and photographs") if rows else ""


def characteristics(groups: dict[str, slice], judged: Judged) -> str:
    """Return mean and SD, or ones of those observed, in groups of patients."""
    rows = []
    for name, of in groups.items():
        cells = [characteristic(answer.seen[of], not answer.label) for answer in judged.asked]
        rows.append([name, len(judged.ids[of]), *cells])
    head = ["", "patients", *(answer.name for answer in judged.asked)]
    return table(head, rows, "Mean (SD), or ones of observed")


def performance(
    judged: Judged,
    stated: dict[str, float],
    found: dict[str, dict[str, Interval]],
    level: float,
) -> str:
    """Return tables of what a clinician asks, a sentence on skill, coverage and figures."""
    text, answers = paragraph(in_words(found)), judged.answers()
    for measure in dict.fromkeys(answer.measure for answer in answers):
        rows, head = [], [""]
        for answer in (answer for answer in answers if answer.measure == measure):
            head = ["", *found[answer.name]]
            rows.append([answer.name, *found[answer.name].values()])
            usual = replace(answer, said=answer.usual).numbers(stated)
            rows.append(["no skill", *usual.values()])
        text += table(
            head,
            rows,
            f"{measure}: value, 95 % interval from resampled patients, "
            "too short where a label is rare",
        )
    text += paragraph(
        "No skill: the mean of the patients on whom the model was fitted, said of everybody. "
        "Skill: the share of its squared error that the predictions spare."
    )
    return text + _coverage(judged, level) + _figures(judged, level)


def _coverage(judged: Judged, level: float) -> str:
    rows = [
        [name, f"{inside} of {seen}", inside / seen if seen else None]
        for name, (inside, seen) in judged.coverage(level).items()
    ]
    caption = f"Observed values inside their {level:.0%} prediction interval"
    return table(["response", "inside", "share"], rows, caption) if rows else ""


def _figures(judged: Judged, level: float) -> str:
    answers, text = judged.answers(), ""
    measures = [answer for answer in answers if not answer.label]
    curves = {a.name: calibration_curve(a.said, a.seen) for a in answers if a.label}
    if measures:
        panels = [(answer.name, answer.said, answer.seen) for answer in measures]
        half = [norm.ppf((1 + level) / 2) * answer.scale.mean() for answer in measures]
        text += figure(
            plot_predicted(panels, half, judged.domains),
            f"Predicted against observed; grey band: {level:.0%} interval.",
        )
    if curves:
        text += figure(
            plot_calibrated(curves),
            "Share of positives in fifths of patients against what was predicted.",
        )
    return text


def worst(judged: Judged) -> str:
    """Return the predictions that are furthest off."""
    rows = [[*case, case[2] - case[3]] for case in judged.worst()]
    caption = (
        "The predictions that are furthest off in units of their spread: look at these photographs"
    )
    head = ["patient", "response", "predicted", "observed", "error"]
    return table(head, rows, caption) if rows else ""


def limits(*further: str) -> str:
    """Return what a page cannot say."""
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in (*further, *LIMITS)) + "</ul>"
