"""The command ``cevit report``: one page on a fit, complete in itself, from its records alone."""

from __future__ import annotations

import argparse
import base64
import io
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from cevit_lib.clinic.check_data import characteristic
from cevit_lib.clinic.intervals import tail
from cevit_lib.clinic.options import ARMS
from cevit_lib.clinic.pooled import Pooled, fit_records, pool
from cevit_lib.clinic.report_figures import plot_calibrated, plot_correlation, plot_predicted
from cevit_lib.clinic.tables import own_or_new
from cevit_lib.metrics import calibration_curve
from cevit_lib.records import badge
from cevit_lib.records.store import write_whole

BEGINNING = "<!doctype html>\n<!-- cevit report; not for clinical use -->"
LOOK = """body{font:16px/1.55 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem}
body{color:#1a1a1a}
h1,h2{line-height:1.2}table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
th,td{border-bottom:1px solid #ccc;padding:.3rem .7rem;text-align:left;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums}
caption{text-align:left;color:#444;padding:.3rem 0}
.warn{background:#fff3d6;border-left:5px solid #8a5a00;padding:.7rem 1rem;font-weight:600}
figure{margin:1.2rem 0}img{max-width:100%;height:auto}figcaption{color:#444}
code{overflow-wrap:anywhere}"""
LIMITS = (
    "Cross-validated on the patients of one table: how the model does in another clinic, with "
    "another camera or another share of cases, is not known from this page.",
    "Probabilities and intervals hold for patients like those of the table. The interval's width "
    "is the spread of the residuals; that the network itself is uncertain is not in it.",
    "Folds share training patients, so the spread between folds is no standard error.",
    "A pooled area under the curve compares patients who were scored by different folds' models.",
)


def run_report(options: argparse.Namespace) -> int:
    """Write the page; return 0."""
    tail(options.level)
    own_or_new(options.output, BEGINNING)
    records = fit_records(options.results, options.study, options.id)
    write_whole(Path(options.output), page(pool(records), options.level).encode())
    print(f"report on {len(records)} folds in {options.output} (not for clinical use)")
    return 0


def page(pooled: Pooled, level: float = 0.9) -> str:
    """Return the report as HTML."""
    name = escape(str(pooled.records[0]["data"]["name"]))
    parts = [
        f"<h1>Report on {name}</h1>",
        '<p class="warn">Not for clinical use. The numbers describe a model, they do not advise a '
        "patient.</p>",
        _summary(pooled),
        "<h2>Model card</h2>",
        _card(pooled),
        "<h2>Patients</h2>",
        _patients(pooled),
        "<h2>How good the predictions are</h2>",
        _metrics(pooled),
        _coverage(pooled, level),
        _figures(pooled, level),
        "<h2>With and without the copula</h2>",
        _arms(pooled),
        "<h2>How the responses hang together</h2>",
        _correlation(pooled),
        "<h2>Where it failed</h2>",
        _worst(pooled),
        "<h2>What this page cannot say</h2>",
        "<ul>" + "".join(f"<li>{line}</li>" for line in LIMITS) + "</ul>",
        "<h2>Provenance</h2>",
        _provenance(pooled),
    ]
    head = (
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Report on {name}, not for clinical use</title><style>{LOOK}</style></head>"
    )
    return (
        f"{BEGINNING}\n{head}<body><main>"
        + "\n".join(part for part in parts if part)
        + "</main></body></html>\n"
    )


def table(head: list[str], rows: list[list[Any]], caption: str = "") -> str:
    """Return an HTML table; numbers stand to the right, what is not known is a dash."""

    def cell(value: Any) -> str:
        if value is None or value != value:
            return '<td class="n">–</td>'
        if isinstance(value, int | float):
            return (
                f'<td class="n">{value:.3g}</td>'
                if isinstance(value, float)
                else f'<td class="n">{value}</td>'
            )
        return f"<td>{escape(str(value))}</td>"

    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    top = "".join(f'<th scope="col">{escape(text)}</th>' for text in head if any(head))
    body = "".join("<tr>" + "".join(map(cell, row)) + "</tr>" for row in rows)
    return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _summary(pooled: Pooled) -> str:
    first, done = pooled.records[0], len(pooled.records)
    whole = first["configuration"]["folds"]
    text = f"{len(pooled.ids)} patients, each predicted by a model that had not seen any photograph"
    text += " of him or her"
    return f"<p>{text}: {done} of {whole} folds, divided by patient, seed {first['seeds'][0]}.</p>"


def _card(pooled: Pooled) -> str:
    record = pooled.records[0]
    c, e = record["configuration"], record["configuration"]["encoder"]
    stages = [
        f"{name.replace('_', ' ')}: {s['epochs']} epochs, rate {s['learning_rate']:g}"
        for name, s in c["recipes"].items()
    ]
    rows = [
        [
            "Intended use",
            "research and teaching on paired eyes; not for clinical use, no decision on a patient",
        ],
        ["Predicts", ", ".join(pooled.responses)],
        ["Sees", "photographs of both eyes, an absent eye is black and nothing is said of it"],
        [
            "Network",
            f"{e['backbone']} Vision Transformer shared by both eyes"
            + (", residual adapters by eye" if e["adapters"] else "")
            + (f", LoRA of rank {e['lora_rank']}" if e["lora_rank"] else ", trained in full"),
        ],
        [
            "Weights it starts from",
            str(record["notes"]).partition(";")[0].removeprefix("backbone weights: "),
        ],
        ["Training", "; ".join(stages) + f"; {c['batch_size']} patients a step"],
        ["Copula parameters", f"{c['estimator']}, on {c['estimate_on']} outputs, then held fixed"],
        ["Missing eyes and responses", "kept; they enter the likelihood of what was observed"],
        ["Layout", str(c["data"].get("layout", c["data"]))],
    ]
    return table(["", ""], rows)


def _patients(pooled: Pooled) -> str:
    flow = pooled.records[0]["data"].get("flow") or {}
    text = table(
        ["count", ""],
        [[count, what] for what, count in flow.items()],
        "Flow of patients, eyes, photographs",
    )
    rows, start = [], 0
    for record in pooled.records:
        stop = start + len(record["predictions"]["id"])
        cells = [record["configuration"]["fold"], stop - start]
        cells += [
            characteristic(pooled.y[start:stop, k], k < pooled.continuous)
            for k in range(len(pooled.responses))
        ]
        rows.append(cells)
        start = stop
    return text + table(
        ["fold", "patients", *pooled.responses],
        rows,
        "Test patients: mean (SD), or ones of observed",
    )


def _metrics(pooled: Pooled) -> str:
    found = pooled.metrics(np.random.default_rng(0))
    rows = [
        [name, i.value, f"{i.low:.3g} to {i.high:.3g}" if np.isfinite(i.low) else None]
        for name, i in found.items()
    ]
    return table(
        ["metric", "value", "95 % interval"],
        rows,
        "All test patients together; intervals resample patients",
    )


def _coverage(pooled: Pooled, level: float) -> str:
    rows = [
        [name, f"{inside} of {seen}", inside / seen if seen else None]
        for name, (inside, seen) in pooled.coverage(level).items()
    ]
    caption = f"Observed values inside their {level:.0%} prediction interval"
    return table(["response", "inside", "share"], rows, caption) if rows else ""


def _figures(pooled: Pooled, level: float) -> str:
    p0, names, text = pooled.continuous, pooled.responses, ""
    if p0:
        panels = [(names[k], pooled.outputs[:, k], pooled.y[:, k]) for k in range(p0)]
        half = (norm.ppf((1 + level) / 2) * pooled.scale.mean(0)).tolist()
        text += figure(
            plot_predicted(panels, half),
            f"Predicted against observed; grey band: {level:.0%} interval.",
        )
    curves = {
        name: calibration_curve(pooled.probabilities[:, k], pooled.y[:, p0 + k])
        for k, name in enumerate(names[p0:])
        if np.isfinite(pooled.y[:, p0 + k]).any()
    }
    if curves:
        text += figure(
            plot_calibrated(curves),
            "Share of positives in fifths of patients against what was predicted.",
        )
    return text


def _arms(pooled: Pooled) -> str:
    def mean(arm: str, key: str) -> float | None:
        values = [record["metrics"][arm]["values"][key] for record in pooled.records]
        seen = [value for value in values if value is not None]
        return float(np.mean(seen)) if seen else None

    keys = list(pooled.records[0]["metrics"]["copula"]["values"])
    rows = [[key, *(mean(arm, key) for arm in ARMS)] for key in keys]
    return table(
        ["metric", *ARMS],
        rows,
        "Means over the folds. Compare the last column with the one before it: same start, same "
        "epochs.",
    )


def _correlation(pooled: Pooled) -> str:
    found = np.array([record["parameters"]["correlation"] for record in pooled.records])
    panels = {"mean of the folds": found.mean(0)}
    if len(found) > 1:
        panels["standard deviation"] = found.std(0, ddof=1)
    names = [name.replace("_", " ") for name in pooled.responses]
    return figure(
        plot_correlation(panels, names), "Correlations of what the network leaves unexplained."
    )


def _worst(pooled: Pooled) -> str:
    rows = [[*case, case[2] - case[3]] for case in pooled.worst()]
    caption = (
        "The predictions that are furthest off in units of their spread: look at these photographs"
    )
    return (
        table(["patient", "response", "predicted", "observed", "error"], rows, caption)
        if rows
        else ""
    )


def _provenance(pooled: Pooled) -> str:
    ids = ", ".join(record["id"] for record in pooled.records)
    data = pooled.records[0]["data"]
    line = escape(str(badge(pooled.records)))
    return f"<p>{line}</p><p>Data <code>{data['hash']}</code>; records <code>{ids}</code></p>"


def figure(picture: Any, caption: str) -> str:
    """Return a matplotlib figure as HTML, its bytes inside."""
    buffer = io.BytesIO()
    picture.savefig(buffer, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})
    code = base64.b64encode(buffer.getvalue()).decode()
    text = escape(caption)
    image = f'<img alt="{text}" src="data:image/png;base64,{code}">'
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"
