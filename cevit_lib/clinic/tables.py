"""Predictions as a table, one row a patient: what the photographs say, and what an eye adds.

Intervals of a continuous response are normal before anything is measured, by its exact density
after.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm
from torch import Tensor

from cevit_lib.copula import CopulaParameters, class_probabilities, condition_on, log_density
from cevit_lib.copula.prediction import by_labels
from cevit_lib.datasets import ImageFiles, PairedEyes
from cevit_lib.datasets.layout import EYES
from cevit_lib.edge import check_output
from cevit_lib.errors import DataError
from cevit_lib.records.store import write_whole
from cevit_lib.training import NOT_CLINICAL, Predictions

Domains = tuple[str, str]
POINTS = 401  # of the grid on which a conditional density is integrated
REACH = 9.0  # its half width in SDs


def eye_of(response: str, domains: Domains = EYES) -> str | None:
    """Return the eye (or whatever the domains are) of a response, ``None`` for one of the
    patient.
    """
    found = _ending(domains).search(response)
    return found.group(1) if found else None


def _ending(domains: Domains) -> re.Pattern:
    return re.compile(rf"_({'|'.join(map(re.escape, domains))})(?!\w)")


def pairs_of(
    responses: tuple[str, ...], continuous: int, domains: Domains = EYES
) -> dict[str, tuple[int, int]]:
    """Return the binary responses that exist for both eyes: name without the eye to the columns of
    both.
    """
    stems: dict[str, list[int]] = {}
    ending = _ending(domains)
    for k in range(continuous, len(responses)):
        if ending.search(responses[k]):
            stems.setdefault(ending.sub("", responses[k]), []).append(k)
    return {stem: tuple(columns) for stem, columns in stems.items() if len(columns) == 2}


def patient_table(
    predictions: Predictions,
    *,
    level: float = 0.9,
    seen: np.ndarray | None = None,
    measured: Any = None,
    domains: Domains = EYES,
) -> pd.DataFrame:
    """Return one row a patient: means with intervals, marginal and joint probabilities, updates by
    what was measured.

    Parameters
    ----------
    predictions : Predictions
        For ``n`` patients.
    level : float
        Of the prediction intervals.
    seen : (n, 2) booleans, optional
        Which eyes (OS, OD) have a photograph; what would be said of an eye without one is left
        empty.
    measured : tensor, shape (n, p), optional
        Responses, ``NaN`` where not measured. Adds, by ``condition_on``, what is then known of the
        others; empty where the response itself is measured, or nothing is.
    domains : tuple of str
        Names of the left and of the right eye, as the responses end.

    Returns
    -------
    pandas.DataFrame
        Columns ``id``; per continuous response ``mean``, ``lower`` and ``upper``; per binary one
        ``probability``; the cells ``joint 00`` ... in the order of the binary responses; ``any``
        and ``both`` for a label of both eyes; ``class`` by the joint rule; and the same with
        ``updated`` before.
    """
    table, responses, p0 = predictions.table(), predictions.responses, predictions.parameters.p0
    low, high = marginal_interval(predictions.outputs, predictions.parameters, level)
    for k in range(p0):
        place = table.columns.get_loc(f"mean {responses[k]}") + 1
        table.insert(place, f"lower {responses[k]}", low[:, k].tolist())
        table.insert(place + 1, f"upper {responses[k]}", high[:, k].tolist())
    for name, (a, b) in pairs_of(responses, p0, domains).items():
        pair = predictions.parameters.margin([a, b])
        both = class_probabilities(predictions.outputs[:, [a, b]].double(), pair)[:, 1, 1]
        either = predictions.probabilities[:, a - p0] + predictions.probabilities[:, b - p0] - both
        table[f"any {name}"], table[f"both {name}"] = either.tolist(), both.tolist()
    for name in table.filter(regex="^class "):
        table[name] = table.pop(name).astype("Int64")  # last, and able to be empty
    if measured is not None:
        table = pd.concat([table, _updates(predictions, measured, level, domains)], axis=1)
    return table if seen is None else _without_unseen(table, predictions, seen, domains)


def prediction_table(
    records: list[dict[str, Any]], data: PairedEyes, arm: str = "copula", level: float = 0.9
) -> pd.DataFrame:
    """Return one row a patient from the records of several folds; every patient was predicted by a
    fit without him.
    """
    place = {owner: number for number, owner in enumerate(_owners(data.ids, data.visits))}
    eyes, tables = photographs_of(data), []
    for record in records:
        predictions = stored_predictions(record, data.responses, arm)
        rows = [
            place[owner] for owner in _owners(predictions.ids, record["predictions"].get("visit"))
        ]
        seen = None if eyes is None else eyes[rows]
        table = patient_table(predictions, level=level, seen=seen, domains=data.domains)
        table.insert(1, "fold", record["configuration"]["fold"])
        if data.visits:
            table.insert(1, "visit", [data.visits[row] for row in rows])
        tables.append(table.set_axis(rows))
    return pd.concat(tables).sort_index().reset_index(drop=True)


def _owners(ids: tuple[str, ...], visits: Sequence[str] | None) -> list[tuple[str, str]]:
    """Return whose each row is: a patient, and his or her visit where there are several."""
    return list(zip(ids, visits or [""] * len(ids), strict=True))


def stored_predictions(record: dict[str, Any], responses: tuple[str, ...], arm: str) -> Predictions:
    """Return the test patients' predictions that a record holds."""
    stored, estimated = record["predictions"], record["parameters"]
    outputs = torch.tensor(stored[arm], dtype=torch.float64)
    parameters = CopulaParameters(estimated["correlation"], estimated["scale"])
    return Predictions(tuple(stored["id"]), tuple(responses), outputs, parameters)


def photographs_of(data: PairedEyes) -> np.ndarray | None:
    """Return which eyes have a photograph, ``(n, 2)``; ``None`` where all have one because images
    lie in memory.
    """
    if not isinstance(data.images, ImageFiles):
        return None
    return np.array([[path is not None for path in eyes] for eyes in data.images.paths])


def write_table(table: pd.DataFrame, path: Path, source: str) -> None:
    """Write a table of predictions as CSV, whole or not at all; its first line says that it is not
    for clinical use.

    Raises
    ------
    DataError
        There is a file of that name which is no table of predictions; it is left as it is.
    """
    own_or_new(path)
    text = f"# {NOT_CLINICAL}; {source}\n" + table.to_csv(
        index=False, float_format="%.5g", lineterminator="\n"
    )
    write_whole(Path(path), text.encode())


#: How a table or a report begins: with a comment. What a model says of its use is none.
_OURS = re.compile(f"(# |<!doctype html>\n<!-- .*){NOT_CLINICAL}".encode())


def own_or_new(path: Path) -> None:
    """Refuse to replace a file that does not begin as ours do: it would be somebody's own.

    Raises
    ------
    DataError
        The file is another one.
    OutputError
        The path is a folder, or cannot be written.
    """
    check_output(path, "file")
    if path.exists() and not _OURS.match(path.read_bytes()[:99]):
        raise DataError(
            f"{path} exists and was not written by cevit; it is left as it is: name another file."
        )


def _updates(
    predictions: Predictions, measured: Any, level: float, domains: Domains
) -> pd.DataFrame:
    """Return the columns ``updated ...`` given what was measured."""
    outputs, y, parameters = predictions.outputs.double(), measured.double(), predictions.parameters
    responses, p0, columns = predictions.responses, predictions.parameters.p0, {}
    told, told_of = torch.isfinite(y).any(1), torch.isfinite(y).any(0)
    known = condition_on(outputs, y, parameters)

    def put(name: str, values: torch.Tensor, *of: int) -> None:
        # nothing is left to say of what is measured itself
        open_ = told & ~torch.isfinite(y[:, list(of)]).all(1)
        columns[f"updated {name}"] = torch.where(open_, values, torch.nan).tolist()

    for k in range(p0):
        low, high = conditional_interval(outputs, y, parameters, k, level)
        put(f"mean {responses[k]}", known.mean[:, k], k)
        put(f"lower {responses[k]}", low, k)
        put(f"upper {responses[k]}", high, k)
    for k in range(p0, len(responses)):
        put(f"probability {responses[k]}", known.probability[:, k - p0], k)
    for name, (a, b) in pairs_of(responses, p0, domains).items():
        first, second = known.probability[:, a - p0], known.probability[:, b - p0]
        kept = [k for k in range(len(responses)) if k < p0 or k in (a, b) or told_of[k]]
        if_first = y[:, kept].clone()
        if_first[:, kept.index(a)] = 1.0
        given = condition_on(outputs[:, kept], if_first, parameters.margin(kept))
        both = first * given.probability[:, kept.index(b) - p0]
        put(f"any {name}", first + second - both, a, b)
        put(f"both {name}", both, a, b)
    return pd.DataFrame(columns)


def _without_unseen(
    table: pd.DataFrame, predictions: Predictions, seen: np.ndarray, domains: Domains
) -> pd.DataFrame:
    """Empty what the network said of an eye that it did not see, and say which eyes it saw."""
    labels = predictions.responses[predictions.parameters.p0 :]
    eyes = dict(zip(domains, seen.T, strict=True)) | {None: np.ones(len(table), dtype=bool)}
    all_labels = np.all([eyes[None], *(eyes[eye_of(name, domains)] for name in labels)], axis=0)
    for column in table:
        joint = re.match("(updated )?(joint|any|both|class) ", column)
        there = all_labels if joint else eyes[eye_of(column, domains)]
        table[column] = table[column].where(there)
    words = np.select([seen.all(1), *seen.T], ["both", *domains], "none")
    table.insert(1, "photographs", words)
    return table


def marginal_interval(
    outputs: Tensor, parameters: CopulaParameters, level: float
) -> tuple[Tensor, Tensor]:
    """Return the ends of each continuous response's interval, both ``(n, p0)``: mean and quantile
    times scale.

    The scale is that of the residuals on which the copula parameters were estimated; how uncertain
    it and the network are is not in it.
    """
    half = norm.ppf((1 + level) / 2) * parameters.scale.double()
    means = outputs[:, : parameters.p0].double()
    return means - half, means + half


def conditional_interval(
    outputs: Tensor, y: Tensor, parameters: CopulaParameters, column: int, level: float
) -> tuple[Tensor, Tensor]:
    """Return the ends of one continuous response's interval given what was measured, both ``(n,)``.

    Given labels the distribution is no normal one any more, so its density, the joint one as a
    function of the missing response, is summed on a grid and the quantiles are read off.

    Parameters
    ----------
    outputs, y : tensor, shape (n, p)
        As of ``condition_on``; where column ``column`` of ``y`` is measured the interval is that
        value.
    parameters : CopulaParameters
    column : int
        Which continuous response.
    level : float
        Probability of the interval.
    """
    outputs, y = outputs.double(), y.double()
    low, high = torch.full_like(y[:, column], torch.nan), torch.full_like(y[:, column], torch.nan)
    for rows, labels in by_labels(y, parameters.p0):  # labels that nobody looked at are left out
        if not torch.isnan(y[rows, column]).any():  # nothing is left to say
            low[rows] = high[rows] = y[rows, column]
            continue
        kept = [*range(parameters.p0), *labels]
        few = outputs[rows][:, kept], y[rows][:, kept], parameters.margin(kept)
        low[rows], high[rows] = _interval(*few, column, (1 - level) / 2)
    return low, high


def _interval(
    outputs: Tensor, y: Tensor, parameters: CopulaParameters, column: int, beyond: float
) -> tuple[Tensor, Tensor]:
    """Return the ends of the interval of patients who have the same labels, all in ``y``."""
    known = condition_on(outputs, y, parameters)
    centre, sd = known.mean[:, column], known.sd[:, column]
    steps = torch.linspace(-REACH, REACH, POINTS, dtype=torch.float64)
    grid = centre[:, None] + sd[:, None] * steps  # (n, points)
    filled = y.repeat_interleave(POINTS, 0)
    filled[:, column] = grid.flatten()
    logs = log_density(
        outputs.repeat_interleave(POINTS, 0), filled, parameters, validate=False, missing=True
    )
    density = torch.softmax(logs.reshape(-1, POINTS), 1)
    below = density.cumsum(1) - density / 2  # a point's weight is spread around it
    pairs = zip(below.numpy(), grid.numpy(), strict=True)
    ends = torch.tensor(np.array([np.interp((beyond, 1 - beyond), *pair) for pair in pairs]))
    measured = y[:, column, None].expand(-1, 2)
    return torch.where(torch.isnan(measured), ends, measured).unbind(1)
