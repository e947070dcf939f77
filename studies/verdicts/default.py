"""By which algorithm ``cevit fit`` trains where nobody says: decided by a rule that is older than
the records on photographs, in the words of the verdicts.

``reproduced``: one stage, by the photographs. ``reproduced in part``: one stage, by the simulation,
since the photographs leave it open. ``not reproduced``: Algorithm 3.
"""

from pathlib import Path

import numpy as np

from studies.comparison import compare_paired
from studies.verdicts.judge import (
    IN_PART,
    NOT_REPRODUCED,
    NOT_RUN,
    REPRODUCED,
    Claim,
    Evidence,
    Verdict,
    judge,
)
from studies.verdicts.simulation import column, dataset_means, interval, with_arms

ONE_STAGE, ALGORITHM_3 = "one stage", "algorithm 3, exact"
PHOTOGRAPHS = 80  # ten partitions of four folds, without and with adapters
SIMULATED = 50


def one_stage_by_default(evidence: Evidence) -> Verdict:
    """Ask the photographs first, and the simulation where they leave it open."""
    records = with_arms(evidence, "photographs", [ONE_STAGE, ALGORITHM_3], PHOTOGRAPHS)
    low, mean, high = log_score_gain(records)
    told = f"log score of a held-out pair {mean:+.3f} nats ({low:+.3f} to {high:+.3f})"
    if low * high > 0:
        return Verdict(REPRODUCED if low > 0 else NOT_REPRODUCED, f"{told} on photographs")
    records = with_arms(evidence, "simulation", [ONE_STAGE, ALGORITHM_3], SIMULATED)
    ours, theirs = (
        dataset_means(records, np.square(column(records, arm, "RMSE to truth")).mean(1))
        for arm in (ONE_STAGE, ALGORITHM_3)
    )
    low, mean, high = interval(1 - ours / theirs)
    more = f"in the simulation {mean:.1%} less squared error ({low:.1%} to {high:.1%})"
    return Verdict(IN_PART if low > 0 else NOT_REPRODUCED, f"{told}, which leaves it open; {more}")


def log_score_gain(records: list[dict]) -> tuple[float, float, float]:
    """Return mean and corrected 95 % interval of what one stage gains in the log score of held-out
    pairs: one difference a fold, the mean of the networks without and with adapters.
    """
    folds: dict[tuple, list[list[float]]] = {}
    for record in records:
        c, metrics = record["configuration"], record["metrics"]
        pair = [metrics[arm]["log-likelihood"] for arm in (ONE_STAGE, ALGORITHM_3)]
        folds.setdefault((c["partition"], c["fold"]), []).append(pair)
    means = np.array([np.mean(pairs, axis=0) for pairs in folds.values()])
    share = 1 / records[0]["configuration"]["folds"]
    found = compare_paired(*means.T, test_share=share)
    return found.low_corrected, found.difference, found.high_corrected


DEFAULT = Claim(
    key="one-stage-by-default",
    place="cevit fit",
    text="One stage is the better default: Algorithm 3 with the exact likelihood of new patients' "
    "outputs predicts held-out pairs no better.",
    rule="reproduced (one stage) if the 95 % interval of the gain in the log score of held-out "
    "pairs of photographs, corrected for shared training patients, lies above 0; not reproduced "
    "(Algorithm 3) if it lies below; otherwise in part (one stage) if the interval over data sets "
    "of its gain in squared distance to the truth lies above 0 in the simulation, at the last "
    "epoch, and not reproduced if it does not",
    studies=("photographs", "simulation"),
    decide=one_stage_by_default,
)


def default_algorithm(folder: Path | None = None) -> str:
    """Return what the records say ``cevit fit`` should do: ``"one stage"``, ``"algorithm 3"``, or
    ``"not run yet"``.
    """
    word = judge(DEFAULT, Evidence(folder)).word
    return {NOT_RUN: word, NOT_REPRODUCED: "algorithm 3"}.get(word, ONE_STAGE)
