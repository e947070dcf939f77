"""The pages of ``cevit report`` and ``cevit evaluate``: ``page.html``, filled in."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined
from scipy.stats import norm

from cevit_lib.clinic.check_data import characteristic
from cevit_lib.clinic.performance import Judged, in_words
from cevit_lib.clinic.report_figures import plot_calibrated, plot_predicted
from cevit_lib.clinic.style import png
from cevit_lib.clinic.tables import own_or_new
from cevit_lib.metrics import Interval, calibration_curve
from cevit_lib.records.store import write_whole


def write_page(
    path: Path,
    judged: Judged,
    stated: dict[str, float],
    found: dict[str, dict[str, Interval]],
    level: float,
    **told: Any,
) -> None:
    """Write the page on judged patients, whole or not at all.

    Parameters
    ----------
    path : Path
    judged, stated, found
        The patients, what was stated of each answer, and the performance under it.
    level : float
        Of the prediction intervals.
    **told
        What else ``page.html`` names.

    Raises
    ------
    DataError
        There is a file of that name which is no page of ours; it is left as it is.
    """
    own_or_new(path)
    shelf = Environment(
        loader=PackageLoader("cevit_lib.clinic", "."),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shelf.filters |= {"said": _text, "pixels": _pixels}
    answers = judged.answers()
    lengths = [answer for answer in answers if not answer.label]
    curves = {a.name: calibration_curve(a.said, a.seen) for a in answers if a.label}
    reach = norm.ppf((1 + level) / 2)
    predicted = (
        plot_predicted(
            [(answer.name, answer.said, answer.seen) for answer in lengths],
            [reach * answer.scale.mean() for answer in lengths],
            judged.domains,
        )
        if lengths
        else None
    )
    page = shelf.get_template("page.html").render(
        judged=judged,
        answers=answers,
        stated=stated,
        found=found,
        skill=in_words(found),
        coverage=judged.coverage(level),
        percent=f"{level:.0%}",
        predicted=predicted,
        calibrated=plot_calibrated(curves) if curves else None,
        worst=[[*case, case[2] - case[3]] for case in judged.worst()],
        characteristic=characteristic,
        **told,
    )
    write_whole(path, page.encode())


def _pixels(picture: Any) -> str:
    return base64.b64encode(png(picture)).decode()


def _text(value: Any) -> str:
    """Return a cell; what is not known is a dash."""
    if isinstance(value, Interval):
        ends = f"\n{value.low:.3g} to {value.high:.3g}" if np.isfinite(value.low) else ""
        return _text(value.value) + ends
    if isinstance(value, dict):
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    if value is None or value != value:
        return "–"
    return f"{value if abs(value) > 1e-9 else 0:.3g}" if isinstance(value, float) else str(value)
