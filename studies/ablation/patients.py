"""What single patients got in the ablation: predictions, failures, worst cases, readings under
other parameters.

Every patient is in one test part, so each has one prediction a seed. Nothing here fits or draws.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
import torch

from cevit_lib.copula import CopulaParameters, log_density

READINGS = (
    ("ViT", "empirical", "independence", "cross-fitted"),
    ("ViT", "empirical", "cross-fitted", "cross-fitted"),
    ("CeViT, cross-fitted", "cross-fitted", "cross-fitted", "cross-fitted"),
    ("CeViT, fMCEM", "fmcem", "fmcem", "fmcem"),
    ("CeViT, fMCEM", "fmcem", "fmcem", "cross-fitted"),
    ("CeViT, fMCEM", "fmcem", "cross-fitted", "fmcem"),
    ("CeViT, fMCEM", "fmcem", "cross-fitted", "cross-fitted"),
)
"""Network's name, its arm, and whose Gamma and whose sigma its outputs are read with."""


def readings(records: Iterable[dict]) -> pd.DataFrame:
    """Return the mean log density of the test patients, network by network, under each Gamma and
    sigma.

    Returns
    -------
    DataFrame
        One row a fit and reading: ``network, Gamma, sigma, seed, fold, log-likelihood`` (nats a
        patient).
    """
    rows = []
    for record in records:
        y = torch.tensor(record["predictions"]["y"], dtype=torch.float64)
        for network, arm, gamma, sigma in READINGS:
            outputs = torch.tensor(record["predictions"][arm], dtype=torch.float64)
            known = record["parameters"]
            correlation = (
                np.eye(4) if gamma == "independence" else np.array(known[gamma]["correlation"])
            )
            parameters = CopulaParameters(
                torch.tensor(correlation), torch.tensor(known[sigma]["scale"]).double()
            )
            rows.append(
                {
                    "network": network,
                    "Gamma": gamma,
                    "sigma": sigma,
                    "seed": record["seeds"][0],
                    "fold": record["configuration"]["fold"],
                    "log-likelihood": float(log_density(outputs, y, parameters).mean()),
                }
            )
    return pd.DataFrame(rows)


def shown_plane(records: Iterable[dict]) -> dict | None:
    """Return the record that holds the coordinates of one CeViT-A's class tokens, if it is
    there."""
    return next((record for record in records if record.get("columns")), None)


def separation(record: dict, view: str = "CeViT-A") -> tuple[float, float]:
    """Return the areas under the curve of training and of test eyes, along the line of the training
    classes' means."""
    from cevit_lib.metrics import area_under_curve

    columns = record["columns"]
    points = np.stack([columns[f"{view}: first"], columns[f"{view}: second"]], axis=1).astype(float)
    test, positive = np.array(columns["test"], dtype=bool), np.array(columns["binary"]) > 0.5
    step = points[~test & positive].mean(0) - points[~test & ~positive].mean(0)
    return tuple(
        float(area_under_curve((points @ step)[part], positive[part])) for part in (~test, test)
    )


def predictions_frame(records: Iterable[dict], arm: str) -> pd.DataFrame:
    """Return one row per test patient, in the order of their ids: means over seeds of an arm's
    outputs, and the observed responses."""
    rows = []
    for record in records:
        table = record["predictions"]
        for patient, y, outputs in zip(
            table["patient"], table["y"], table.get(arm, []), strict=False
        ):
            rows.append([patient, *y, *outputs])
    names = [f"{kind} {name}" for kind in ("seen", "said") for name in PAIR]
    return pd.DataFrame(rows, columns=["patient", *names]).groupby("patient").mean().reset_index()


PAIR = ("RNFL_OS", "RNFL_OD", "field_OS", "field_OD")


def characteristics(records: Iterable[dict]) -> pd.DataFrame:
    """Return what each fold's test patients are: how many, mean and SD of the thickness, reduced
    fields by eye."""
    rows = {}
    for record in records:
        y = np.asarray(record["predictions"]["y"])
        told = {"patients": f"{len(y)}"}
        told |= {
            f"{PAIR[k]}, um": f"{y[:, k].mean():.1f} ({y[:, k].std(ddof=1):.1f})" for k in range(2)
        }
        told |= {PAIR[k]: f"{y[:, k].sum():.0f}" for k in (2, 3)}
        rows[record["configuration"]["fold"]] = told | {
            "both fields": f"{(y[:, 2] * y[:, 3]).sum():.0f}"
        }
    return pd.DataFrame(rows).T.sort_index().rename_axis("test part of fold")


def worst_cases(predictions: pd.DataFrame, count: int = 8) -> pd.DataFrame:
    """Return the patients with the largest error of either eye's thickness: numbers and ids, no
    picture."""
    errors = pd.DataFrame(
        {
            eye: predictions[f"said RNFL_{eye}"] - predictions[f"seen RNFL_{eye}"]
            for eye in ("OS", "OD")
        }
    )
    table = predictions.assign(
        error_OS=errors["OS"], error_OD=errors["OD"], worst=errors.abs().max(axis=1)
    )
    for eye in ("OS", "OD"):
        table[f"P(field_{eye})"] = 1 / (1 + np.exp(-table[f"said field_{eye}"]))
    shown = [
        "patient",
        "seen RNFL_OS",
        "error_OS",
        "seen RNFL_OD",
        "error_OD",
        "seen field_OS",
        "P(field_OS)",
        "seen field_OD",
        "P(field_OD)",
    ]
    return table.nlargest(count, "worst")[shown].set_index("patient")


def failures(predictions: pd.DataFrame) -> pd.DataFrame:
    """Return where the errors lie: mean error and MAE by thirds of the observed thickness and by
    asymmetry."""
    seen = predictions[["seen RNFL_OS", "seen RNFL_OD"]].to_numpy()
    error = predictions[["said RNFL_OS", "said RNFL_OD"]].to_numpy() - seen
    names = ["thin third", "middle third", "thick third"]
    # equal thicknesses are parted by the patients' order
    thirds = pd.qcut(pd.Series(seen.ravel()).rank(method="first"), 3, labels=names)
    apart = np.repeat(
        np.abs(seen[:, 0] - seen[:, 1]) > np.median(np.abs(seen[:, 0] - seen[:, 1])), 2
    )
    groups = {name: (thirds == name).to_numpy() for name in names}
    groups |= {"eyes alike": ~apart, "eyes apart": apart}
    flat = error.ravel()
    return pd.DataFrame(
        {
            name: {
                "eyes": int(own.sum()),
                "mean error (um)": flat[own].mean(),
                "MAE (um)": np.abs(flat[own]).mean(),
            }
            for name, own in groups.items()
        }
    ).T


def wrong_fields(predictions: pd.DataFrame) -> dict[str, float]:
    """Return how labels fail at 1/2: eyes called wrongly, surely so (0.9), both eyes of a patient;
    and shares."""
    seen, logit = (
        predictions[[f"{kind} field_OS", f"{kind} field_OD"]].to_numpy()
        for kind in ("seen", "said")
    )
    wrong = (logit > 0) != (seen > 0.5)
    differ = seen[:, 0] != seen[:, 1]
    return {
        "eyes": wrong.size,
        "wrong": int(wrong.sum()),
        "surely": int((wrong & (np.abs(logit) > np.log(9))).sum()),
        "both": int(wrong.all(1).sum()),
        "where eyes differ": float(wrong[differ].mean()),
        "where eyes agree": float(wrong[~differ].mean()),
    }
