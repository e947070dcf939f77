"""The rules on the toy example, the simulation and the encoder; the others are in ``rules.py``."""

from cevit_lib.verdicts.judge import IN_PART, NOT_REPRODUCED, REPRODUCED, Evidence, Verdict

TOY, READINGS, SIMULATION, ENCODER = "toy-example", "toy-readings", "simulation", "encoder-size"
MIXED = ("rho13", "rho14", "rho23", "rho24")


def _toy(evidence: Evidence) -> list[tuple[bool, dict]]:
    """Records of the toy example, each with whether its thresholds and latent margins are read as the model says."""
    rows = evidence.records(TOY) + evidence.records(READINGS)
    return [(r["configuration"]["thresholds"] == "logit", r) for r in rows]


def _toy_within(evidence, estimator: str, ranges: dict) -> Verdict:
    """Reproduced if a setting with right thresholds has every bias in its range; in part if another reading has."""
    rows = [(right, r["metrics"][estimator]["bias"]) for right, r in _toy(evidence) if estimator in r["metrics"]]
    inside = [(right, all(low <= b[n] <= high for n, (low, high) in ranges.items())) for right, b in rows]
    signs = any(all(b[n] * (low + high) > 0 for n, (low, high) in ranges.items()) for _, b in rows)
    word = REPRODUCED if (True, True) in inside else IN_PART if (False, True) in inside or signs else NOT_REPRODUCED
    spans = [f"{n} {min(b[n] for _, b in rows):+.3f} to {max(b[n] for _, b in rows):+.3f}" for n in ranges]
    counts = (
        f"{inside.count((True, True))} of {sum(right for right, _ in rows)} settings with right thresholds in range, "
    )
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
    ranges = {name: (low - 0.02, high + 0.02) for name in MIXED} | {"rho34": (r34 - 0.02, r34 + 0.02)}
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
        word, f"{min(means):.0f} to {max(means):.0f} iterations over the settings; converged in {share:.0%} or more"
    )


def toy_speed(evidence):
    printed = evidence.printed("toy_example")["time_ratio"]["value"]
    rows = [r["metrics"] for _, r in _toy(evidence) if {"fmcem", "mcmc"} <= set(r["metrics"])]
    ratios = [m["mcmc"]["seconds"]["mean"] / m["fmcem"]["seconds"]["mean"] for m in rows]
    word = REPRODUCED if max(ratios) > printed / 2 else IN_PART if max(ratios) > 10 else NOT_REPRODUCED
    return Verdict(word, f"{min(ratios):.0f} to {max(ratios):.0f} times faster than the sampler in this repository")


def simulated_correlations(evidence):
    means = [r["metrics"]["gamma_error"] for r in evidence.records(SIMULATION, arm="fmcem")]
    r12, r34 = (sum(m[name] for m in means) / len(means) for name in ("r12", "r34"))
    low = [r12 < -0.1, r34 < -0.02]
    word = REPRODUCED if all(low) else IN_PART if any(low) else NOT_REPRODUCED
    return Verdict(word, f"mean error of rho12 {r12:+.3f}, of rho34 {r34:+.3f}")


def simulated_gain(names):
    def decide(evidence):
        printed = evidence.printed("table_simulation")["comparisons"]["CeViT vs. ViT"]
        ours = evidence.one(SIMULATION, summary="cohens_d")["metrics"]["fmcem against warm-up"]
        same = [ours[n]["d"] * printed[n]["d"] > 0 for n in names]
        large = [s and abs(ours[n]["d"]) > 0.2 for s, n in zip(same, names, strict=True)]
        word = REPRODUCED if all(large) else IN_PART if any(same) else NOT_REPRODUCED
        return Verdict(word, ", ".join(f"{n} d = {ours[n]['d']:+.2f} (printed {printed[n]['d']:+.2f})" for n in names))

    return decide


def lora_parameters(evidence):
    ours = evidence.records(ENCODER)[0]["metrics"]["trainable_parameters"]
    printed = evidence.printed("model")["trainable_parameters"]["value"]
    ratio = ours / printed
    word = REPRODUCED if 0.9 < ratio < 1.1 else IN_PART if 0.5 < ratio < 2 else NOT_REPRODUCED
    return Verdict(word, f"{ours:,} trainable parameters, printed about {printed:,.0f}")


def fit_hours(evidence):
    hours = evidence.one(SIMULATION, summary="full-size fit")["metrics"]["hours"]
    return Verdict(REPRODUCED if hours <= 4.5 else NOT_REPRODUCED, f"{hours:.2f} hours on one card")
