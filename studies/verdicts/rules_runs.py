"""The rules on the toy example, the simulation and the encoder; the others are in ``rules.py``."""

from cevit_lib.records import paper_numbers
from studies.comparison import cohen_d_z
from studies.verdicts.judge import (
    IN_PART,
    NOT_REPRODUCED,
    REPRODUCED,
    Evidence,
    MissingRecordError,
    Verdict,
)

TOY, READINGS, SIMULATION, ENCODER = "toy-example", "toy-readings", "simulation", "encoder-size"
SPEED = "training-speed"
PAPERS_ARM, CONTROL = (
    "fmcem",
    "empirical",
)  # the paper's copula loss; the same epochs under the empirical loss
SUBSTANTIAL = 0.2  # the paper's bound for Cohen's d
RECORDED = {
    "MAE_L": "MAE y1",
    "MAE_R": "MAE y2",
    "ACC_L": "ACC y3",
    "ACC_R": "ACC y4",
    "AUC_L": "AUC y3",
    "AUC_R": "AUC y4",
}
MIXED = ("rho13", "rho14", "rho23", "rho24")


def _toy(evidence: Evidence) -> list[tuple[bool, dict]]:
    """Records of the toy example, each with whether its thresholds and latent margins are read as the model says."""
    rows = evidence.records(TOY) + evidence.records(READINGS)
    return [(r["configuration"]["thresholds"] == "logit", r) for r in rows]


def _toy_within(evidence, estimator: str, ranges: dict) -> Verdict:
    """Reproduced if a setting with right thresholds has every bias in its range; in part if another reading has."""
    rows = [
        (right, r["metrics"][estimator]["bias"])
        for right, r in _toy(evidence)
        if estimator in r["metrics"]
    ]
    inside = [
        (right, all(low <= b[n] <= high for n, (low, high) in ranges.items())) for right, b in rows
    ]
    signs = any(all(b[n] * (low + high) > 0 for n, (low, high) in ranges.items()) for _, b in rows)
    word = (
        REPRODUCED
        if (True, True) in inside
        else IN_PART
        if (False, True) in inside or signs
        else NOT_REPRODUCED
    )
    spans = [
        f"{n} {min(b[n] for _, b in rows):+.3f} to {max(b[n] for _, b in rows):+.3f}"
        for n in ranges
    ]
    counts = f"{inside.count((True, True))} of {sum(right for right, _ in rows)} settings with right thresholds in range, "
    counts += f"{inside.count((False, True))} of {sum(not right for right, _ in rows)} with another reading"
    return Verdict(word, f"{counts}; bias over all settings: {', '.join(spans)}")


def toy_r12(evidence):
    return _toy_within(evidence, "fmcem", {"rho12": (-0.01, 0.01)})


def toy_mixed(evidence):
    low, high = evidence.printed("toy_example")["fmcem_bias_mixed_range"]["value"]
    return _toy_within(evidence, "fmcem", {name: (low - 0.02, high + 0.02) for name in MIXED})


def toy_r34(evidence):
    bias = evidence.printed("toy_example")["fmcem_bias_rho_34"]["value"]
    return _toy_within(evidence, "fmcem", {"rho34": (bias - 0.02, bias + 0.02)})


def toy_mcmc(evidence):
    printed = evidence.printed("toy_example")
    high, low = printed["mcmc_bias_mixed_range"]["value"]
    r34 = printed["mcmc_bias_rho_34"]["value"]
    ranges = {name: (low - 0.02, high + 0.02) for name in MIXED} | {
        "rho34": (r34 - 0.02, r34 + 0.02)
    }
    return _toy_within(evidence, "mcmc", ranges)


def toy_iterations(evidence):
    printed = evidence.printed("toy_example")
    wanted, sd = printed["fmcem_iterations_mean"]["value"], printed["fmcem_iterations_sd"]["value"]
    rows = [(r["metrics"]["fmcem"], r["configuration"]["replications"]) for _, r in _toy(evidence)]
    means = [m["iterations"]["mean"] for m, _ in rows]
    near = [abs(m["iterations"]["mean"] - wanted) < 2 * sd for m, _ in rows]
    always = all(m["converged"] == n for m, n in rows)
    word = REPRODUCED if any(near) and always else IN_PART if any(near) else NOT_REPRODUCED
    share = min(m["converged"] / n for m, n in rows)
    return Verdict(
        word,
        f"{min(means):.0f} to {max(means):.0f} iterations over the settings; converged in {share:.0%} or more",
    )


def toy_speed(evidence):
    printed = evidence.printed("toy_example")["time_ratio"]["value"]
    rows = [r["metrics"] for _, r in _toy(evidence) if {"fmcem", "mcmc"} <= set(r["metrics"])]
    ratios = [m["mcmc"]["seconds"]["mean"] / m["fmcem"]["seconds"]["mean"] for m in rows]
    word = (
        REPRODUCED if min(ratios) > printed / 2 else IN_PART if min(ratios) > 10 else NOT_REPRODUCED
    )
    return Verdict(
        word,
        f"{min(ratios):.0f} to {max(ratios):.0f} times faster than the sampler in this repository",
    )


def _fold_values(records: list[dict], arm: str, metric: str) -> list[float]:
    """A metric of an arm's last epoch in every fold, in the order of data sets and folds; NaN where undefined."""
    ordered = sorted(
        records, key=lambda r: (r["configuration"]["dataset"], r["configuration"]["fold"])
    )
    values = [r["metrics"][arm][RECORDED[metric]] for r in ordered]
    return [float("nan") if value is None else float(value) for value in values]


def _whole_grid(evidence) -> list[dict]:
    """Records of the simulation, if every fold of every data set has one."""
    printed = evidence.printed("simulation")
    wanted, found = (
        printed["datasets"]["value"] * printed["folds"]["value"],
        evidence.records(SIMULATION),
    )
    if len(found) < wanted:
        raise MissingRecordError(f"{len(found)} of {wanted} folds of {SIMULATION} have a record")
    return found


def simulated_correlations(evidence):
    at = {"rho12": (0, 1), "rho34": (2, 3)}
    errors: dict[str, list[float]] = {name: [] for name in at}
    for record in _whole_grid(evidence):
        ours, truth = (record["parameters"][name]["correlation"] for name in (PAPERS_ARM, "true"))
        for name, (i, j) in at.items():
            errors[name].append(ours[i][j] - truth[i][j])
    r12, r34 = (sum(errors[name]) / len(errors[name]) for name in at)
    low = [r12 < -0.1, r34 < -0.02]
    word = REPRODUCED if all(low) else IN_PART if any(low) else NOT_REPRODUCED
    return Verdict(word, f"mean error of fMCEM's rho12 {r12:+.3f}, of rho34 {r34:+.3f}")


def gain_verdict(records: list[dict], names: tuple[str, ...]) -> Verdict:
    """Judge the gain of the paper's arm in some metrics: against the same epochs without copula, and the warm-up.

    Reproduced if Cohen's d_z over the folds has the printed sign and exceeds 0.2 for every metric and against both;
    in part if it does for one metric against one of them.
    """
    printed = paper_numbers("table_simulation")["comparisons"]["CeViT vs. ViT"]
    large, told = [], []
    for name in names:
        ours = _fold_values(records, PAPERS_ARM, name)
        d = {b: cohen_d_z(ours, _fold_values(records, b, name)) for b in (CONTROL, "warm-up")}
        large += [
            value * printed[name]["d"] > 0 and abs(value) > SUBSTANTIAL for value in d.values()
        ]
        told.append(
            f"{name} d = {d[CONTROL]:+.2f} at equal epochs, {d['warm-up']:+.2f} against the warm-up "
            f"(printed {printed[name]['d']:+.2f})"
        )
    word = REPRODUCED if all(large) else IN_PART if any(large) else NOT_REPRODUCED
    return Verdict(word, "; ".join(told))


def simulated_gain(names):
    return lambda evidence: gain_verdict(_whole_grid(evidence), names)


def lora_parameters(evidence):
    ours = evidence.records(ENCODER)[0]["metrics"]["trainable_parameters"]
    printed = evidence.printed("model")["trainable_parameters"]["value"]
    ratio = ours / printed
    word = REPRODUCED if 0.9 < ratio < 1.1 else IN_PART if 0.5 < ratio < 2 else NOT_REPRODUCED
    return Verdict(word, f"{ours:,} trainable parameters, printed about {printed:,.0f}")


def fit_hours(evidence):
    fits = evidence.records(SPEED, part="full-fit")
    if not fits:
        raise MissingRecordError(f"no record of {SPEED} with a full-size fit")
    seconds = max(r["metrics"]["whole_seconds"] for r in fits)
    printed = evidence.printed("application")["hours"]["value"]
    word = REPRODUCED if seconds <= 3600 * printed else NOT_REPRODUCED
    return Verdict(word, f"{seconds / 3600:.2f} hours on one {fits[0]['configuration']['machine']}")
