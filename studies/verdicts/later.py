"""A prediction that the grid of gains led to: what estimating later mends.

Where both eyes show the same image, one stage stayed on the plateau in 16 of 30 fits. The rule is
committed before the arm that decides it, ``one stage, later``, is trained.
"""

from studies.verdicts.predictions import (
    CONFIRMED,
    DATASETS,
    GRID_R,
    GRID_STRENGTH,
    IN_PART,
    MARGIN,
    MATCHED,
    ONE_STAGE,
    REFUTED,
    Outcome,
    gains,
    predicted,
)
from studies.verdicts.simulation import column, with_arms

LATE = "one stage, later"
PLATEAU = 1.0
"""RMSE to truth of a network that has learnt next to nothing; knowing nothing has about 3."""


@predicted(
    "Estimated from the fourth epoch on, one stage learns where both eyes show the same image, and "
    "loses next to nothing elsewhere.",
    "confirmed if at r = 1 no network has an RMSE to truth above 1 and at each strength the mean "
    "squared error exceeds matched independence's by at most 3 %, and if in each of the nine other "
    "cells it exceeds that of one stage by at most 3 %; in part if one of the two holds",
    "simulation-gain",
)
def later(evidence):
    count = len(GRID_R) * len(GRID_STRENGTH) * DATASETS
    records = with_arms(evidence, "simulation-gain", [LATE, MATCHED, ONE_STAGE], count)
    worst = {True: 1.0, False: 1.0}  # at r = 1, elsewhere
    for r in GRID_R:
        for strength in GRID_STRENGTH:
            cell = {"pixel_correlation": r, "strength": strength}
            own = [x for x in records if cell.items() <= x["configuration"].items()]
            gain = gains(own, LATE, MATCHED if r == 1 else ONE_STAGE).mean()
            worst[r == 1] = min(worst[r == 1], gain)
    alike = [x for x in records if x["configuration"]["pixel_correlation"] == 1]
    stuck = int((column(alike, LATE, "RMSE to truth").mean(1) > PLATEAU).sum())
    met = [not stuck and worst[True] > -MARGIN, worst[False] > -MARGIN]
    word = CONFIRMED if all(met) else IN_PART if any(met) else REFUTED
    return Outcome(
        word,
        f"{stuck} of {len(alike)} networks stay on the plateau at r = 1; at worst "
        f"{worst[True]:+.1%} of matched independence's squared error is gained there, and "
        f"{worst[False]:+.1%} of one stage's elsewhere",
    )
