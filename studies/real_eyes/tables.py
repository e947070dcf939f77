"""The two tables of the chapter, from its records."""

from typing import Any

import numpy as np
import pandas as pd

from studies.real_eyes import rules
from studies.real_eyes.missing import ANALYSES, MECHANISMS
from studies.real_eyes.steps import REGIONS

UNITS = {"uwhvf": "dB a year", "papila": "mm"}
LIMITS = {
    "cut": "number cut at {cut} {unit}",
    "compress": "slope compressed",
    "tests": "{tests} tests over {years:g} y",
    "p_value": "p < {p_value}",
    "myopia": "myopia at {myopia:g} D",
}
"""Limit -> its words; the first that a record has is what is special in it."""


def kind_of(record: dict[str, Any]) -> str:
    """Return "uwhvf" or "papila", also of invented patients."""
    return record["data"]["name"].split()[-1]


def words_of(record: dict[str, Any]) -> str:
    """Return what is special in a record's limits."""
    limits = record["configuration"]["limits"]
    words = next((words for limit, words in LIMITS.items() if limit in limits), "as above")
    return words.format(unit=UNITS[kind_of(record)], **limits)


def limits_table(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return, a row a setting, how the estimate and the two steps move with the limits.

    Labels cut from the number stand last.
    """
    rows = {}
    for record in sorted(records, key=_place):
        found = record["metrics"]
        rho = np.array(found["estimate"]["correlation"], dtype=float)
        row = {
            "patients (both)": f"{found['patients']} ({found['positive']['both']})",
            "rho13": f"{rho[0, 2]:.2f}",
            "rho34": f"{rho[2, 3]:.2f}",
            "eigenvalue": f"{found['estimate']['smallest_eigenvalue']:.1g}",
        }
        for step in ("within an eye", "between eyes"):
            own = found.get("steps", {}).get(step)
            row[step] = _interval(own) if own else "refused"
        rows[f"{kind_of(record).upper()}: {words_of(record)}"] = row
    return pd.DataFrame(rows).T


def missing_table(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the mean bias of three analyses when eyes were lost; a star where the rule says
    repaired.
    """
    rows = {}
    for record in sorted(records, key=kind_of, reverse=True):
        deleted = record["metrics"]["deleted"]
        for mechanism in MECHANISMS:
            strangers = deleted[f"{mechanism}: all eyes, as strangers"]
            for analysis in ANALYSES:
                own = deleted[f"{mechanism}: {analysis}"]
                rows.setdefault((mechanism, analysis), {}).update(
                    {
                        f"{kind_of(record).upper()}, {words}": f"{own[name]['mean']:+.{digits}f}"
                        + ("*" if rules.repairs(own[name], strangers[name]) else "")
                        for name, words, digits in (
                            ("number", UNITS[kind_of(record)], 3),
                            ("label", "probability", 3),
                        )
                    }
                )
    return pd.DataFrame(rows).T


def _place(record: dict[str, Any]) -> tuple:
    limits = record["configuration"]["limits"]
    return "cut" in limits, kind_of(record) == "papila", -limits.get("myopia", 0), words_of(record)


def _interval(step: dict[str, Any]) -> str:
    if abs(step["mean"]) > 100:
        return f"{step['mean']:.1g}"
    return f"{step['mean']:.2f} ({step['low']:.2f} to {step['high']:.2f})"


def told_steps(record: dict[str, Any]) -> str:
    """Return what each step of the log score gains, and whether it holds by the rule."""
    lines = []
    for step, own in record["metrics"]["steps"].items():
        gain = f"{own['mean']:.2f} nats ({own['low']:.2f} to {own['high']:.2f})"
        held = "holds" if rules.holds(own) else "does not hold"
        patients = f"{own['share_positive']:.0%} of patients gain, one loses"
        lines.append(f"{step}: {gain}, {held}; {patients} {-own['worst_patient']:.0f}")
    return "\n".join([kind_of(record).upper(), *lines])


def told_statements(record: dict[str, Any]) -> str:
    """Return how many statements are calibrated, and how many regions cover what they say, by the
    rules.
    """
    found, lines = record["metrics"], []
    for model, words in (("within an eye", "strangers"), ("all", "copula")):
        right = sum(rules.calibrated(own[model]) for own in found["statements"].values())
        cover = sum(rules.covers(own, REGIONS[r]) for r, own in found["regions"][model].items())
        regions = ", ".join(
            f"{region} {own['mean']:.1%} (size {own['size']:.2f})"
            for region, own in found["regions"][model].items()
        )
        lines.append(
            f"{words}: {right} of 4 statements calibrated, {cover} of 3 regions: {regions}"
        )
    return "\n".join([kind_of(record).upper(), *lines])


def told_errors(records: list[dict[str, Any]]) -> str:
    """Return, for each analysis, how many intervals keep their level by the rule, and how many fits
    lack a standard error.
    """
    rows = [
        (key.split(": ")[1].split(",")[0], own)
        for r in records
        for key, own in r["metrics"].items()
    ]
    most = max(own["defined"] for _, own in rows)
    lines = []
    for analysis in dict.fromkeys(name for name, _ in rows):
        own = [count for name, count in rows if name == analysis]
        kept = sum(rules.keeps_level(count["hold"], count["defined"]) for count in own)
        lack = max(1 - count["defined"] / most for count in own)
        lines.append(
            f"{analysis}: {kept} of {len(own)} kinds of intervals hold the truth as often as they "
            f"say; at most {lack:.0%} of fits without a standard error"
        )
    return "\n".join(lines)
