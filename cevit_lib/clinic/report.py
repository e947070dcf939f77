"""The command ``cevit report``: one page on a fit, complete in itself, from its records alone."""

from __future__ import annotations

import argparse
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from cevit_lib.clinic import page as parts
from cevit_lib.clinic.intervals import tail
from cevit_lib.clinic.options import ARMS
from cevit_lib.clinic.page import BEGINNING, figure, paragraph, table
from cevit_lib.clinic.performance import RESAMPLED, Judged, Stated, in_words, stated_by
from cevit_lib.clinic.pooled import fit_records, pool, unsettled
from cevit_lib.clinic.report_figures import plot_correlation
from cevit_lib.clinic.tables import own_or_new
from cevit_lib.records import badge
from cevit_lib.records.store import write_whole

LIMITS = (
    "Cross-validated on the patients of one table: how the model does in another clinic, with "
    "another camera or another share of cases, is not known from this page; 'cevit evaluate' asks.",
    "Folds share training patients, so the spread between folds is no standard error.",
    "A pooled area under the curve compares patients who were scored by different folds' models.",
)

Records = list[dict[str, Any]]


def run_report(options: argparse.Namespace) -> int:
    """Write the page; return 0."""
    tail(options.level)
    own_or_new(options.output, BEGINNING)
    records = fit_records(options.results, options.study, options.id)
    judged = pool(records)
    stated = stated_by(options, judged)
    print(RESAMPLED.format(len(set(judged.ids)), len(judged.answers())), flush=True)
    found = judged.performance(stated, np.random.default_rng(0))
    text = page(records, judged, found, stated, options.level)
    write_whole(Path(options.output), text.encode())
    print(f"report on {len(records)} folds in {options.output} (not for clinical use)")
    print(in_words(found))
    for line in unsettled(records):
        print(line)
    return 0


def page(
    records: Records, judged: Judged, found: dict[str, dict], stated: Stated, level: float = 0.9
) -> str:
    """Return the report as HTML; ``found`` is the performance of the judged patients."""
    return parts.document(
        f"Report on {records[0]['data']['name']}",
        [
            _summary(records, judged),
            *(f'<p class="warn">{escape(line)}</p>' for line in unsettled(records)),
            "<h2>Model card</h2>",
            _card(records[0], judged.responses),
            "<h2>Patients</h2>",
            parts.flow_table(records[0]["data"].get("flow")),
            _patients(records, judged),
            "<h2>How good the predictions are</h2>",
            parts.performance(judged, stated, found, level),
            "<h2>With and without the copula</h2>",
            _arms(records),
            "<h2>How the responses hang together</h2>",
            _correlation(records, judged.responses),
            "<h2>Where it failed</h2>",
            parts.worst(judged),
            "<h2>What this page cannot say</h2>",
            parts.limits(*LIMITS),
            "<h2>Provenance</h2>",
            _provenance(records),
        ],
    )


def _summary(records: Records, judged: Judged) -> str:
    first, done = records[0], len(records)
    whole = first["configuration"]["folds"]
    text = f"{len(judged.ids)} patients, each predicted by a model that had not seen any photograph"
    text += " of him or her"
    return f"<p>{text}: {done} of {whole} folds, divided by patient, seed {first['seeds'][0]}.</p>"


def _card(record: dict[str, Any], responses: tuple[str, ...]) -> str:
    c, e = record["configuration"], record["configuration"]["encoder"]
    layout, changed = c["data"].get("layout", {}), c.get("augmentation", {})
    organ, covariates = layout.get("organ", "eye"), ", ".join(layout.get("covariates", ()))
    changes = {
        "rotation": f"photographs turned by up to {changed.get('rotation', 0):g} degrees",
        "colour": f"their colours changed by up to {changed.get('colour', 0):.0%}",
    }
    stages = [
        f"{name.replace('_', ' ')}: {s['epochs']} epochs, rate {s['learning_rate']:g}"
        for name, s in c["recipes"].items()
    ]
    rows = [
        [
            "Intended use",
            f"research and teaching on paired {organ}s; not for clinical use, no decision on a "
            "patient",
        ],
        ["Predicts", ", ".join(responses)],
        [
            "Sees",
            f"photographs of both {organ}s, an absent {organ} is black and nothing is said of it"
            + (f"; beside them {covariates}" if covariates else ""),
        ],
        [
            "Network",
            f"{e['backbone']} Vision Transformer shared by both {organ}s"
            + (f", residual adapters by {organ}" if e["adapters"] else "")
            + (f", LoRA of rank {e['lora_rank']}" if e["lora_rank"] else ", trained in full"),
        ],
        [
            "Weights it starts from",
            str(record["notes"]).partition(";")[0].removeprefix("backbone weights: "),
        ],
        [
            "Training",
            "; ".join([*stages, f"{c['batch_size']} patients a step", *map(changes.get, changed)]),
        ],
        ["Copula parameters", f"{c['estimator']}, on {c['estimate_on']} outputs, then held fixed"],
        [f"Missing {organ}s and responses", "kept; they enter the likelihood of what was observed"],
        ["Layout", c["data"].get("layout", c["data"])],
    ]
    return table(["", ""], rows)


def _patients(records: Records, judged: Judged) -> str:
    folds, start = {}, 0
    for record in records:
        stop = start + len(record["predictions"]["id"])
        folds[f"fold {record['configuration']['fold']}"] = judged.y[start:stop]
        start = stop
    return parts.characteristics(folds, judged)


def _arms(records: Records) -> str:
    def mean(arm: str, key: str) -> float | None:
        values = [record["metrics"][arm]["values"][key] for record in records]
        seen = [value for value in values if value is not None]
        return float(np.mean(seen)) if seen else None

    keys = list(records[0]["metrics"]["copula"]["values"])
    rows = [[key, *(mean(arm, key) for arm in ARMS)] for key in keys]
    return table(
        ["metric", *ARMS],
        rows,
        "Means over the folds. Compare the last column with the one before it: same start, same "
        "epochs.",
    )


def _correlation(records: Records, responses: tuple[str, ...]) -> str:
    found = np.array([record["parameters"]["correlation"] for record in records])
    panels = {"mean of the folds": found.mean(0)}
    if len(found) > 1:
        panels["standard deviation"] = found.std(0, ddof=1)
    names = [name.replace("_", " ") for name in responses]
    return figure(
        plot_correlation(panels, names), "Correlations of what the network leaves unexplained."
    )


def _provenance(records: Records) -> str:
    ids = ", ".join(record["id"] for record in records)
    data = records[0]["data"]
    return (
        paragraph(str(badge(records)))
        + f"<p>Data <code>{data['hash']}</code>; records <code>{ids}</code></p>"
    )
