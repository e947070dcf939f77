"""What the pages of ``cevit report`` and ``cevit evaluate`` are made of: HTML, whole in itself."""

from __future__ import annotations

import base64
from html import escape
from typing import Any

import numpy as np
import yaml
from scipy.stats import norm

from cevit_lib.clinic.check_data import characteristic
from cevit_lib.clinic.performance import Answer, Judged, Stated, in_words
from cevit_lib.clinic.report_figures import plot_agreement, plot_calibrated, plot_predicted
from cevit_lib.clinic.style import png
from cevit_lib.metrics import Interval, calibration_curve

BEGINNING = "<!doctype html>\n<!-- cevit report; not for clinical use -->"
LOOK = """body{font:16px/1.55 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
body{color:#1a1a1a}
h1,h2{line-height:1.2}table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
th,td{border-bottom:1px solid #ccc;padding:.3rem .5rem;text-align:left;vertical-align:top}
th{font-weight:600;font-size:.8rem}td{font-size:.9rem}
td.n{text-align:right;font-variant-numeric:tabular-nums}
td small{display:block;color:#555;white-space:nowrap;font-size:.7rem}
td:first-child{white-space:nowrap}pre{margin:0;white-space:pre-wrap}
caption{text-align:left;color:#444;padding:.3rem 0}
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
UNKNOWN = '<td class="n">–</td>'


def document(title: str, parts: list[str]) -> str:
    """Return a page with its warning below the title."""
    name = escape(title)
    head = (
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{name}, not for clinical use</title><style>{LOOK}</style></head>"
    )
    warning = (
        f"<h1>{name}</h1>",
        '<p class="warn">Not for clinical use. The numbers describe a model, they do not advise a '
        "patient.</p>",
    )
    body = "\n".join(part for part in (*warning, *parts) if part)
    return f"{BEGINNING}\n{head}<body><main>{body}</main></body></html>\n"


def table(head: list[str], rows: list[list[Any]], caption: str = "") -> str:
    """Return an HTML table; numbers stand to the right, what is not known is a dash."""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    top = "".join(f'<th scope="col">{escape(text)}</th>' for text in head if any(head))
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, Interval):
        if value.value != value.value:
            return UNKNOWN
        known = np.isfinite(value.low)
        ends = f"<small>{value.low:.3g} to {value.high:.3g}</small>" if known else ""
        return f'<td class="n">{value.value:.3g}{ends}</td>'
    if value is None or value != value:
        return UNKNOWN
    if isinstance(value, float):
        return f'<td class="n">{value if abs(value) > 1e-9 else 0:.3g}</td>'
    if isinstance(value, dict):
        written = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
        return f"<td><pre>{escape(written)}</pre></td>"
    return f'<td class="n">{value}</td>' if isinstance(value, int) else f"<td>{escape(value)}</td>"


def figure(picture: Any, caption: str) -> str:
    """Return a matplotlib figure as HTML, its bytes inside."""
    code = base64.b64encode(png(picture)).decode()
    text = escape(caption)
    image = f'<img alt="{text}" src="data:image/png;base64,{code}">'
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"


def paragraph(text: str) -> str:
    """Return a paragraph of plain words."""
    return f"<p>{escape(text)}</p>"


def flow_table(flow: dict[str, int] | None) -> str:
    """Return how many patients remained, and why not more."""
    rows = [[count, what] for what, count in (flow or {}).items()]
    return table(["count", ""], rows, "Flow of patients and photographs") if rows else ""


def characteristics(groups: dict[str, np.ndarray], judged: Judged) -> str:
    """Return mean and SD, or ones of those observed, in groups of patients (rows of ``y``)."""
    rows = [
        [
            name,
            int(len(y)),
            *(characteristic(y[:, k], k < judged.continuous) for k in range(y.shape[1])),
        ]
        for name, y in groups.items()
    ]
    head = ["", "patients", *judged.responses]
    return table(head, rows, "Mean (SD), or ones of observed")


def performance(
    judged: Judged, stated: Stated, found: dict[str, dict[str, Interval]], level: float
) -> str:
    """Return tables of what a clinician asks, a sentence on skill, coverage and figures."""
    answers: dict[str, list[Answer]] = {}
    for answer in judged.answers():
        answers.setdefault(answer.measure, []).append(answer)
    text = paragraph(in_words(found))
    for measure, of in answers.items():
        rows, head = [], [""]
        for answer in of:
            usual = answer.numbers(stated, said=answer.usual)
            head = ["", *found[answer.name]]
            rows.append([answer.name, *found[answer.name].values()])
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
    panels = [(answer.name, answer.said, answer.seen) for answer in answers if not answer.label]
    if panels:
        scale = dict(zip(judged.responses, judged.scale.mean(0), strict=False))
        half = [norm.ppf((1 + level) / 2) * scale[name] for name, *_ in panels]
        text += figure(
            plot_predicted(panels, half, judged.domains),
            f"Predicted against observed; grey band: {level:.0%} interval.",
        )
        text += figure(
            plot_agreement(panels, judged.domains),
            "Bland and Altman: predicted less observed against their mean; lines: bias and 95 % "
            "limits of agreement.",
        )
    curves = {
        answer.name: calibration_curve(answer.said, answer.seen)
        for answer in answers
        if answer.label
    }
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
