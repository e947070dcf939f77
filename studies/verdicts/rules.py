"""The rules: functions from evidence to a verdict, one per claim. The words of each rule stand in ``claims.py``."""

from studies.verdicts.judge import FALSE, IN_PART, NOT_REPRODUCED, REPRODUCED, Evidence, Verdict

CHECKS, GALLERY, SAMPLERS, SINGULAR = (
    "formula-checks",
    "score-distortions",
    "posterior-samplers",
    "fmcem-singularity",
)
LINEAR, NETWORK = "overfitting-linear", "overfitting-network"
TRUE_R34, TRUE_R12 = 0.569, 0.72


def _part(evidence: Evidence, part: str) -> dict:
    return evidence.one(CHECKS, part=part)["metrics"]


def _stronger(evidence: Evidence):
    """Gallery records in which the phenomenon occurs beyond its standard error."""
    for record in evidence.records(GALLERY):
        ratio = record["metrics"]["ratio34"]
        if ratio["mean"] - 2 * (ratio["se"] or 0) > 1:
            yield record


def _named(record) -> str:
    c = record["configuration"]
    return f"{c['distortion']} {c['strength']:g}"


def theorem(evidence):
    m = _part(evidence, "theorem")
    share = max(v["share_not_positive"] for v in m["by_logit_sd"].values())
    word = FALSE if share > 0 else REPRODUCED
    return Verdict(
        word,
        f"up to {100 * share:.1f} % of patients get a probability <= 0; e.g. {m['example_printed']:.3f} "
        f"where {m['example_right']:.4f} is right",
    )


def integral_form(evidence):
    gap = _part(evidence, "theorem")["right_against_integral"]
    return Verdict(
        REPRODUCED if gap < 1e-9 else NOT_REPRODUCED,
        f"with the thresholds put right the largest gap to the integral is {gap:.1e}",
    )


def corollary(evidence):
    m = _part(evidence, "corollary")
    shares = {p: v["printed_not_positive"] for p, v in m.items()}
    gap = max(v["largest_gap"] for v in m.values())
    word = (
        FALSE
        if max(shares.values()) > 0 and gap < 1e-6
        else REPRODUCED
        if gap < 1e-6
        else NOT_REPRODUCED
    )
    return Verdict(
        word,
        "printed sum <= 0 in "
        + ", ".join(f"{100 * s:.0f} % (p1 = {p})" for p, s in shares.items()),
    )


def trace(evidence):
    values = _part(evidence, "objective")["trace_by_rho34"].values()
    word = FALSE if max(values) - min(values) > 0.1 else REPRODUCED
    return Verdict(
        word, f"between {min(values):.2f} and {max(values):.2f} as rho34 goes from .3 to .9"
    )


def objective_sign(evidence):
    values = list(_part(evidence, "objective")["printed_by_factor"].values())
    word = FALSE if values == sorted(values) else REPRODUCED
    return Verdict(
        word,
        f"printed objective at S, 10 S, 100 S, 1000 S: {', '.join(f'{v:.1f}' for v in values)}",
    )


def rescaling_is_maximum(evidence):
    m = _part(evidence, "objective")
    word = FALSE if m["cov2cor_below_maximum"] > 1e-4 else REPRODUCED
    return Verdict(
        word,
        f"cov2cor lies {m['cov2cor_below_maximum']:.3f} per patient below the maximum over correlation "
        f"matrices, elements up to {m['cov2cor_largest_difference']:.2f} apart",
    )


def underestimates_with_right_bounds(evidence):
    toy, _ = evidence.mean(GALLERY, "fmcem:r34", distortion="none")
    other, se = evidence.mean(SINGULAR, "fmcem:r34", correlation="exchangeable", strength=0.0)
    if toy >= TRUE_R34:
        return Verdict(NOT_REPRODUCED, f"{toy:.3f} for the paper's Gamma, truth .569")
    word = IN_PART if other - 4 * se > TRUE_R34 else REPRODUCED
    return Verdict(
        word,
        f"{toy:.3f} for the paper's Gamma, {other:.3f} for an exchangeable one; truth .569 in both",
    )


def prediction(evidence):
    m = _part(evidence, "prediction")["uniform"]
    word = FALSE if m["printed_has_negative"] > 0 else REPRODUCED
    return Verdict(
        word,
        f"{100 * m['printed_has_negative']:.0f} % of patients have a negative cell, "
        f"{100 * m['printed_changes_class']:.0f} % change class, (1, 1) is never predicted",
    )


def joint_rule_is_better(evidence):
    m = _part(evidence, "prediction")["uniform"]
    up = m["joint"]["joint"] > m["marginal"]["joint"]
    down = m["joint"]["per_eye"] < m["marginal"]["per_eye"]
    word = IN_PART if up and down else REPRODUCED if up else NOT_REPRODUCED
    return Verdict(
        word,
        f"both eyes right: {m['joint']['joint']:.3f} against {m['marginal']['joint']:.3f}; per eye, the "
        f"paper's ACC: {m['joint']['per_eye']:.3f} against {m['marginal']['per_eye']:.3f}",
    )


def phenomenon_occurs(evidence):
    record = evidence.records(NETWORK)[0]
    last = record["configuration"]["checkpoints"][-1]
    ratios = [record["metrics"][f"{last}:in-sample:ratio{pair}"] for pair in ("12", "34")]
    clear = [r["mean"] - 2 * r["se"] > 1 for r in ratios]
    word = REPRODUCED if all(clear) else IN_PART if any(clear) else NOT_REPRODUCED
    return Verdict(
        word,
        f"a network past interpolation: Cov ratio {ratios[0]['mean']:.2f} (regression), "
        f"{ratios[1]['mean']:.0f} (classification)",
    )


def shared_bias(evidence):
    ratio, _ = evidence.mean(GALLERY, "ratio34", distortion="constant-shift", strength=1.0)
    r34, se = evidence.mean(
        GALLERY, "maximum-likelihood:r34", distortion="constant-shift", strength=1.0
    )
    word = FALSE if abs(ratio - 1) < 1e-6 else REPRODUCED
    return Verdict(
        word,
        f"a shift of 1 common to all patients leaves the covariance ratio at {ratio:.3f} "
        f"(and yet moves rho34 to {r34:.2f})",
    )


def proposition_1(evidence):
    low = [(r["metrics"]["maximum-likelihood:r34"], r) for r in _stronger(evidence)]
    below = [(v, r) for v, r in low if v["mean"] + 4 * v["se"] < TRUE_R34]
    word = FALSE if below else REPRODUCED
    worst = min(below, key=lambda pair: pair[0]["mean"], default=None)
    example = (
        f"; e.g. {_named(worst[1])}: {worst[0]['mean']:.3f} (SE {worst[0]['se']:.3f})"
        if worst
        else ""
    )
    return Verdict(
        word,
        f"{len(below)} of {len(low)} settings with a stronger covariance give less than .569{example}",
    )


def proposition_1_limit(evidence):
    ratio, _ = evidence.mean(GALLERY, "ratio34", distortion="scaling", strength=10.0)
    scaled, _ = evidence.mean(
        GALLERY, "maximum-likelihood:r34", distortion="scaling", strength=10.0
    )
    noisy, _ = evidence.mean(
        GALLERY, "maximum-likelihood:r34", distortion="shared-noise", strength=10.0
    )
    word = REPRODUCED if min(scaled, noisy) > 0.9 else FALSE
    return Verdict(
        word, f"at a ratio of {ratio:.0f} scaling gives {scaled:.2f}, shared noise {noisy:.2f}"
    )


def singular_sampler(evidence):
    blamed, cleared = [], []
    for record in evidence.records(SAMPLERS):
        m = record["metrics"]
        low = (
            m["gibbs:smallest_eigenvalue"]["mean"]
            < 0.5 * m["maximum-likelihood:smallest_eigenvalue"]["mean"]
        )
        close = abs(m["posterior:r34"]["mean"] - m["maximum-likelihood:r34"]["mean"]) < 0.05
        blamed += [record] if low else []
        cleared += [record] if low and close else []
    word = (
        NOT_REPRODUCED
        if blamed and len(cleared) == len(blamed)
        else REPRODUCED
        if not cleared
        else IN_PART
    )
    return Verdict(
        word,
        f"in {len(blamed)} settings the Gibbs sampler's eigenvalue falls below half of the likelihood's; in "
        f"{len(cleared)} of them a proper posterior agrees with the likelihood, so the sampler is at fault",
    )


def tallis(evidence):
    m = _part(evidence, "truncation")
    word = (
        FALSE
        if m["share_corr_above_rho"] == 0
        else REPRODUCED
        if m["share_corr_above_rho"] == 1
        else IN_PART
    )
    return Verdict(
        word,
        f"Corr > rho in {m['share_corr_above_rho']:.0%} of {m['triples']} random cases; the cross derivative "
        f"is positive in {m['share_cross_derivative_positive']:.0%}",
    )


def discordant(evidence):
    share = _part(evidence, "truncation")["share_discordant_below_rho"]
    word = IN_PART if share == 1 else NOT_REPRODUCED
    return Verdict(
        word,
        f"Corr < rho in {share:.0%}; 'decreasing in Cov(c1, c2)' has no meaning for fixed thresholds",
    )


def monotonicity(evidence):
    m = _part(evidence, "concordance")
    e = m["counter_example"]
    word = FALSE if e["its_smaller_concordance"] < e["its_concordance"] else REPRODUCED
    return Verdict(
        word,
        f"true for Gaussian scores ({m['gaussian_increasing']}), but same margins, Cov "
        f"{abs(e['small_covariance']):.1f} -> {e['large_covariance']:.1f} and concordance "
        f"{e['its_concordance']:.3f} -> {e['its_smaller_concordance']:.3f}",
    )


def dominance(evidence):
    e = _part(evidence, "concordance")["counter_example"]
    broken = e["its_concordance"] > 0.5 > e["its_smaller_concordance"]
    return Verdict(
        FALSE if broken else REPRODUCED,
        f"baseline {e['its_concordance']:.3f} > 1/2, stronger covariance {e['its_smaller_concordance']:.3f}",
    )


def probability_limit(evidence):
    limits = _part(evidence, "truncation")["limit"]
    gaps = {sd: v["printed_limit"] for sd, v in limits.items()}
    word = FALSE if max(gaps.values()) < TRUE_R34 - 0.05 else REPRODUCED
    return Verdict(
        word,
        "at the truth it is "
        + ", ".join(f"{v:.2f} (SD {sd})" for sd, v in gaps.items())
        + ", not .569",
    )


def proposition_2(evidence):
    rows = evidence.records(SINGULAR, correlation="exchangeable")
    worst = min(rows, key=lambda r: min(r["columns"]["fmcem:smallest_eigenvalue"]))
    smallest = min(worst["columns"]["fmcem:smallest_eigenvalue"])
    r34 = max(worst["columns"]["fmcem:r34"])
    word = FALSE if smallest < 1e-3 else REPRODUCED
    return Verdict(
        word,
        f"{_named(worst)}: fMCEM's smallest eigenvalue falls to {smallest:.0e}, its rho34 rises to {r34:.4f}",
    )


def proposition_2_limit(evidence):
    record = evidence.one(GALLERY, distortion="shared-noise", strength=10.0)
    r34 = record["metrics"]["fmcem:r34"]["mean"]
    printed = 2 * record["metrics"]["concordant_labels"]["mean"] - 1
    close = abs(r34 - printed) < 0.03
    return Verdict(
        REPRODUCED if close else IN_PART if r34 < 0.95 else NOT_REPRODUCED,
        f"under shared noise 10 it stays at {r34:.2f}; w11 + w00 - w10 - w01 = {printed:.2f}",
    )


def minimal_variance(evidence):
    v = _part(evidence, "truncation")["truncated_variance"]
    return Verdict(
        FALSE if v["-30"] < 0.01 else REPRODUCED,
        f"Var at q = 0, -5, -30: {v['0']:.2f}, {v['-5']:.3f}, {v['-30']:.4f}: the infimum is 0",
    )


def proposition_3(evidence):
    paths = _part(evidence, "residuals")["paths"]
    above = {n: max(p["limit"]) for n, p in paths.items() if max(p["limit"]) > TRUE_R12 + 1e-6}
    below = [n for n, p in paths.items() if min(p["limit"]) < TRUE_R12 - 1e-6]
    word = FALSE if above else REPRODUCED
    return Verdict(
        word,
        f"down under {len(below)} distortions, up under {', '.join(above)} "
        f"(to {max(above.values(), default=TRUE_R12):.2f})",
    )


def linear_underestimates(evidence):
    most = max(r["configuration"]["features"] for r in evidence.records(LINEAR))
    rows = evidence.records(LINEAR, features=most)
    values = [r["metrics"]["in-sample:maximum-likelihood:r12"]["mean"] for r in rows]
    word = REPRODUCED if max(values) < TRUE_R12 - 0.05 else NOT_REPRODUCED
    n = rows[0]["configuration"]["n"]
    return Verdict(
        word,
        f"least squares, {most} features for {n} patients: {', '.join(f'{v:.2f}' for v in values)} for .72",
    )


def pearson(evidence):
    gaps = []
    for record in evidence.records(SAMPLERS, distortion="none"):
        m = record["metrics"]
        gaps += [
            abs(m[f"{role}:r12"]["mean"] - m["exact-em:r12"]["mean"])
            for role in ("gibbs", "posterior")
        ]
    return Verdict(
        REPRODUCED if max(gaps) < 0.01 else NOT_REPRODUCED, f"largest gap {max(gaps):.4f}"
    )


def remark_4(evidence):
    increases = _part(evidence, "total-covariance")["increases"]
    word = REPRODUCED if all(increases.values()) else FALSE
    return Verdict(
        word,
        "; ".join(
            f"{n}: {'increases' if up else 'does not increase'}" for n, up in increases.items()
        ),
    )


def gradients(evidence):
    m = _part(evidence, "gradient")["disagree"]
    top = max(m.values())
    return Verdict(
        REPRODUCED if top > 1e5 else NOT_REPRODUCED,
        f"labels that disagree: gradient up to {top:.0e}",
    )


def minima(evidence):
    m = _part(evidence, "minima")
    worst = max(
        max(abs(a - b) for a, b in zip(v["margins"], m["true_margins"], strict=True))
        for v in m["four_responses"].values()
    )
    ratio = evidence.one(CHECKS, part="regression")["metrics"]["separate:0"]["monte_carlo"]
    word = FALSE if worst > 0.01 else REPRODUCED
    return Verdict(
        word,
        f"margins move by up to {worst:.2f} under a wrong Gamma, and with different images per eye OLS has "
        f"{ratio:.2f} times GLS's squared error",
    )


def score_correlation(evidence):
    value, _ = evidence.mean(GALLERY, "score-correlation:r34", distortion="none")
    word = NOT_REPRODUCED if value > 0.2 else REPRODUCED
    return Verdict(
        word,
        f"it returns the correlation of the images' scores: {value:.2f} here, where that is .50",
    )


def slight_underestimate(evidence):
    printed = evidence.printed("toy_example")
    truth, bias = printed["gamma_true"]["value"][2][3], printed["fmcem_bias_rho_34"]["value"]
    share = abs(bias) / truth
    return Verdict(
        REPRODUCED if share < 0.1 else NOT_REPRODUCED,
        f"the printed bias is {100 * share:.0f} % of rho34",
    )


def vanishing_residuals(evidence):
    record = evidence.records(NETWORK)[0]
    path = {
        s: record["metrics"][f"{s}:in-sample:maximum-likelihood:r12"]["mean"]
        for s in record["configuration"]["checkpoints"]
    }
    step = min(path, key=lambda s: abs(path[s]))
    word = (
        REPRODUCED
        if abs(path[step]) < 0.2 * TRUE_R12
        else IN_PART
        if abs(path[step]) < 0.5 * TRUE_R12
        else NOT_REPRODUCED
    )
    return Verdict(
        word,
        f"in-sample residual correlation {next(iter(path.values())):.2f} early, {path[step]:.2f} at step {step}",
    )
