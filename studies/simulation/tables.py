"""Tables of the simulation study: from its records to tidy frames and the tables of the page.

Nothing here fits or draws; what is judged stands in ``studies.verdicts``.
"""

METRICS = {
    "MAE_L": "MAE y1",
    "MAE_R": "MAE y2",
    "ACC_L": "ACC y3",
    "ACC_R": "ACC y4",
    "AUC_L": "AUC y3",
    "AUC_R": "AUC y4",
    "RMSE_L": "RMSE y1",
    "RMSE_R": "RMSE y2",
    "Brier_L": "Brier y3",
    "Brier_R": "Brier y4",
    "ACC by joint rule_L": "ACC joint rule y3",
    "ACC by joint rule_R": "ACC joint rule y4",
    "RMSE to truth_L": "RMSE to truth y1",
    "RMSE to truth_R": "RMSE to truth y2",
    "joint ACC": "joint ACC",
    "joint ACC by margins": "joint ACC marginal rule",
    "log-likelihood": "log-likelihood",
}
"""Name in the tables -> name in the records; the left eye is domain 1."""
PRINTED = ("MAE_L", "MAE_R", "ACC_L", "ACC_R", "AUC_L", "AUC_R")


def sign(metric: str) -> int:
    """Return 1 for a metric of which less is better, otherwise -1."""
    return 1 if metric.startswith(("MAE", "RMSE", "Brier")) else -1


def both_eyes(values: dict[str, float | None]) -> dict[str, float]:
    """Return an arm's metrics by the tables' names, and the mean of both eyes; what was not defined
    is NaN.
    """
    found = {
        name: float("nan") if values[own] is None else float(values[own])
        for name, own in METRICS.items()
        if own in values
    }
    stems = [name.removesuffix("_L") for name in found if name.endswith("_L")]
    return found | {stem: (found[f"{stem}_L"] + found[f"{stem}_R"]) / 2 for stem in stems}
