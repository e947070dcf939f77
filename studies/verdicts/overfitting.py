"""The claims of Section 4 and of its supplement: what overfitting does to the covariance and to its
estimates.
"""

from studies.verdicts.judge import (
    FALSE,
    IN_PART,
    NOT_REPRODUCED,
    REPRODUCED,
    TRUE_R12,
    TRUE_R34,
    Evidence,
    Verdict,
    claim,
)


def _stronger(evidence: Evidence):
    """Gallery records in which the phenomenon occurs beyond its standard error."""
    for record in evidence.records("score-distortions"):
        ratio = record["metrics"]["ratio34"]
        if ratio["mean"] - 2 * (ratio["se"] or 0) > 1:
            yield record


def _named(record) -> str:
    c = record["configuration"]
    return f"{c['distortion']} {c['strength']:g}"


@claim(
    "Section 4, Eq. (15)",
    "Overfitted networks show a stronger covariance.",
    "reproduced if both ratios exceed 1 by 2 SE at the last checkpoint",
    "overfitting-network",
    "stronger_covariance.html#fig-overfitting-network",
)
def phenomenon(evidence):
    record = evidence.records("overfitting-network")[0]
    last = record["configuration"]["checkpoints"][-1]
    ratios = [record["metrics"][f"{last}:in-sample:ratio{pair}"] for pair in ("12", "34")]
    clear = [r["mean"] - 2 * r["se"] > 1 for r in ratios]
    return Verdict(
        REPRODUCED if all(clear) else IN_PART if any(clear) else NOT_REPRODUCED,
        f"a network past interpolation: Cov ratio {ratios[0]['mean']:.2f} (regression), "
        f"{ratios[1]['mean']:.0f} (classification)",
    )


@claim(
    "Section 4",
    "A bias term shared by both eyes adds covariance.",
    "false if a constant leaves the covariance ratio at 1",
    "score-distortions",
    "stronger_covariance.html#fig-gallery",
)
def shared_bias(evidence):
    ratio, _ = evidence.mean(
        "score-distortions", "ratio34", distortion="constant-shift", strength=1.0
    )
    r34, se = evidence.mean(
        "score-distortions", "maximum-likelihood:r34", distortion="constant-shift", strength=1.0
    )
    return Verdict(
        FALSE if abs(ratio - 1) < 1e-6 else REPRODUCED,
        f"a shift of 1 common to all patients leaves the covariance ratio at {ratio:.3f} "
        f"(and yet moves rho34 to {r34:.2f})",
        ("a bias of each eye: a constant moves no covariance either",),
    )


@claim(
    "Section 4, Proposition 1",
    "A stronger covariance means overestimation of rho34.",
    "false if some setting with ratio > 1 (2 SE) has a maximum-likelihood estimate below .569 (4 "
    "SE)",
    "score-distortions",
    "stronger_covariance.html#fig-proposition-1",
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
        f"{len(below)} of {len(low)} settings with a stronger covariance give less than "
        f".569{example}",
        ("scores that are scaled, nothing else: see the gallery",),
    )


@claim(
    "Section 4, Proposition 1",
    "The estimate goes to 1 as the ratio grows.",
    "false unless both scaling and shared noise exceed .9 at their largest strength",
    "score-distortions",
    "stronger_covariance.html#fig-proposition-1",
)
def proposition_1_limit(evidence):
    ratio, _ = evidence.mean("score-distortions", "ratio34", distortion="scaling", strength=10.0)
    scaled, _ = evidence.mean(
        "score-distortions", "maximum-likelihood:r34", distortion="scaling", strength=10.0
    )
    noisy, _ = evidence.mean(
        "score-distortions", "maximum-likelihood:r34", distortion="shared-noise", strength=10.0
    )
    return Verdict(
        REPRODUCED if min(scaled, noisy) > 0.9 else FALSE,
        f"at a ratio of {ratio:.0f} scaling gives {scaled:.2f}, shared noise {noisy:.2f}",
        ("every other distortion of the gallery at its largest ratio",),
    )


@claim(
    "Section 4",
    "Plug-in consistency explains the near-singular MCMC estimates.",
    "not reproduced if, wherever the Gibbs sampler's eigenvalue is under half the likelihood's, a "
    "proper posterior "
    "agrees with the likelihood within .05",
    "posterior-samplers",
    "stronger_covariance.html#fig-samplers",
)
def mcmc_singular(evidence):
    blamed, cleared = [], []
    for record in evidence.records("posterior-samplers"):
        m = record["metrics"]
        low = (
            m["gibbs:smallest_eigenvalue"]["mean"]
            < 0.5 * m["maximum-likelihood:smallest_eigenvalue"]["mean"]
        )
        close = abs(m["posterior:r34"]["mean"] - m["maximum-likelihood:r34"]["mean"]) < 0.05
        blamed += [record] if low else []
        cleared += [record] if low and close else []
    return Verdict(
        NOT_REPRODUCED
        if blamed and len(cleared) == len(blamed)
        else REPRODUCED
        if not cleared
        else IN_PART,
        f"in {len(blamed)} settings the Gibbs sampler's eigenvalue falls below half of the "
        "likelihood's; in "
        f"{len(cleared)} of them a proper posterior agrees with the likelihood, so the sampler is "
        "at fault",
    )


@claim(
    "Section 4, Proposition 2",
    "fMCEM's estimate stays away from singularity.",
    "false if some replication has an eigenvalue below 1e-3, which the loss refuses",
    "fmcem-singularity",
    "stronger_covariance.html#fig-proposition-2",
)
def proposition_2(evidence):
    rows = evidence.records("fmcem-singularity", correlation="exchangeable")
    worst = min(rows, key=lambda r: min(r["columns"]["fmcem:smallest_eigenvalue"]))
    smallest = min(worst["columns"]["fmcem:smallest_eigenvalue"])
    r34 = max(worst["columns"]["fmcem:r34"])
    return Verdict(
        FALSE if smallest < 1e-3 else REPRODUCED,
        f"{_named(worst)}: fMCEM's smallest eigenvalue falls to {smallest:.0e}, its rho34 rises "
        f"to {r34:.4f}",
        ("an eigenvalue of 1e-3, which the loss can invert, in place of 0",),
    )


@claim(
    "Supplement A.3",
    "Its limit is w11 + w00 - w10 - w01.",
    "reproduced within .03; in part if bounded by .95",
    "score-distortions",
    "stronger_covariance.html#fig-proposition-2",
)
def proposition_2_limit(evidence):
    record = evidence.one("score-distortions", distortion="shared-noise", strength=10.0)
    r34 = record["metrics"]["fmcem:r34"]["mean"]
    printed = 2 * record["metrics"]["concordant_labels"]["mean"] - 1
    close = abs(r34 - printed) < 0.03
    return Verdict(
        REPRODUCED if close else IN_PART if r34 < 0.95 else NOT_REPRODUCED,
        f"under shared noise 10 it stays at {r34:.2f}; w11 + w00 - w10 - w01 = {printed:.2f}",
    )


@claim(
    "Supplement A.3",
    "The truncated variance has a positive lower bound.",
    "in part if it falls below .01 far out, and so holds for bounded scores only",
    "formula-checks",
    "proofs.html#fig-truncation",
)
def minimal_variance(evidence):
    v = evidence.part("truncation")["truncated_variance"]
    return Verdict(
        IN_PART if v["-30"] < 0.01 else REPRODUCED,
        f"Var at q = 0, -5, -30: {v['0']:.2f}, {v['-5']:.3f}, {v['-30']:.4f}: the infimum is 0",
    )


@claim(
    "Section 4, Proposition 3",
    "A stronger covariance means underestimation of rho12.",
    "false if some distortion raises the limit above .72",
    "formula-checks",
    "stronger_covariance.html#fig-proposition-3",
)
def proposition_3(evidence):
    paths = evidence.part("residuals")["paths"]
    above = {n: max(p["limit"]) for n, p in paths.items() if max(p["limit"]) > TRUE_R12 + 1e-6}
    below = [n for n, p in paths.items() if min(p["limit"]) < TRUE_R12 - 1e-6]
    return Verdict(
        FALSE if above else REPRODUCED,
        f"down under {len(below)} distortions, up under {', '.join(above)} "
        f"(to {max(above.values(), default=TRUE_R12):.2f})",
        ("outputs rescaled to their true variance: shared noise raises it as well",),
    )


@claim(
    "Section 4",
    "Overfitted regression underestimates rho12.",
    "reproduced if both designs lose more than .05 at the largest number of features",
    "overfitting-linear",
    "stronger_covariance.html#fig-overfitting-linear",
)
def underfit_r12(evidence):
    most = max(r["configuration"]["features"] for r in evidence.records("overfitting-linear"))
    rows = evidence.records("overfitting-linear", features=most)
    values = [r["metrics"]["in-sample:maximum-likelihood:r12"]["mean"] for r in rows]
    word = REPRODUCED if max(values) < TRUE_R12 - 0.05 else NOT_REPRODUCED
    n = rows[0]["configuration"]["n"]
    return Verdict(
        word,
        f"least squares, {most} features for {n} patients: "
        f"{', '.join(f'{v:.2f}' for v in values)} for .72",
    )


@claim(
    "Section 4",
    "fMCEM and MCMC both return the residuals' Pearson correlation.",
    "reproduced if all agree within .01",
    "posterior-samplers",
    "stronger_covariance.html#fig-samplers",
)
def pearson(evidence):
    gaps = []
    for record in evidence.records("posterior-samplers", distortion="none"):
        m = record["metrics"]
        gaps += [
            abs(m[f"{role}:r12"]["mean"] - m["exact-em:r12"]["mean"])
            for role in ("gibbs", "posterior")
        ]
    return Verdict(
        REPRODUCED if max(gaps) < 0.01 else NOT_REPRODUCED, f"largest gap {max(gaps):.4f}"
    )


@claim(
    "Section 4, Remark 4",
    "Cov(y3, y4 | images) increases with Cov(q3, q4).",
    "in part if its mean decreases for some means of the scores",
    "formula-checks",
    "when_it_helps.html#fig-total-covariance",
)
def remark_4(evidence):
    increases = evidence.part("total-covariance")["increases"]
    return Verdict(
        REPRODUCED if all(increases.values()) else IN_PART,
        "; ".join(
            f"{n}: {'increases' if up else 'does not increase'}" for n, up in increases.items()
        ),
    )


@claim(
    "Section 4",
    "A near-singular Gamma makes gradients explode.",
    "reproduced if a gradient exceeds 1e5",
    "formula-checks",
    "proofs.html#sec-signs",
)
def gradient(evidence):
    m = evidence.part("gradient")["disagree"]
    top = max(m.values())
    return Verdict(
        REPRODUCED if top > 1e5 else NOT_REPRODUCED,
        f"labels that disagree: gradient up to {top:.0e}",
    )


@claim(
    "Supplement A.2, Tallis lemma",
    "Cov = rho - L12 and Corr > rho in a quadrant.",
    "false if no random case has Corr > rho",
    "formula-checks",
    "proofs.html#fig-truncation",
)
def tallis(evidence):
    m = evidence.part("truncation")
    return Verdict(
        FALSE
        if m["share_corr_above_rho"] == 0
        else REPRODUCED
        if m["share_corr_above_rho"] == 1
        else IN_PART,
        f"Corr > rho in {m['share_corr_above_rho']:.0%} of {m['triples']} random cases; the cross "
        "derivative "
        f"is positive in {m['share_cross_derivative_positive']:.0%}",
        ("the derivative read in t, as printed: then Cov - rho is negative, not positive",),
    )


@claim(
    "Supplement A.2, remark",
    "In a discordant quadrant Corr < rho, decreasing in Cov(c1, c2).",
    "in part if Corr < rho always: the second half has no meaning",
    "formula-checks",
    "proofs.html#fig-truncation",
)
def discordant(evidence):
    share = evidence.part("truncation")["share_discordant_below_rho"]
    return Verdict(
        IN_PART if share == 1 else NOT_REPRODUCED,
        f"Corr < rho in {share:.0%}; 'decreasing in Cov(c1, c2)' has no meaning for fixed "
        "thresholds",
    )


@claim(
    "Supplement A.2, monotonicity lemma",
    "E P(y3 = y4) increases with Cov(q3, q4).",
    "false if a linear programme finds equal margins, larger covariance and less concordance",
    "formula-checks",
    "proofs.html#fig-counter-example",
)
def monotonicity(evidence):
    m = evidence.part("concordance")
    e = m["counter_example"]
    return Verdict(
        FALSE if e["its_smaller_concordance"] < e["its_concordance"] else REPRODUCED,
        f"true for Gaussian scores ({m['gaussian_increasing']}), but same margins, Cov "
        f"{abs(e['small_covariance']):.1f} -> {e['large_covariance']:.1f} and concordance "
        f"{e['its_concordance']:.3f} -> {e['its_smaller_concordance']:.3f}",
        ("equal margins of both scores: the counter-example has them",),
    )


@claim(
    "Supplement A.2, concordance dominance",
    "Concordance stays above one half.",
    "false if the programme's pair starts above and ends below one half",
    "formula-checks",
    "proofs.html#fig-counter-example",
)
def dominance(evidence):
    e = evidence.part("concordance")["counter_example"]
    broken = e["its_concordance"] > 0.5 > e["its_smaller_concordance"]
    return Verdict(
        FALSE if broken else REPRODUCED,
        f"baseline {e['its_concordance']:.3f} > 1/2, stronger covariance "
        f"{e['its_smaller_concordance']:.3f}",
        ("equal margins of both scores: the counter-example has them",),
    )


@claim(
    "Supplement A.2, proof of Proposition 1",
    "The estimator's limit is the mean within-cell correlation.",
    "false if at the truth that mean stays more than .05 below .569",
    "formula-checks",
    "proofs.html#fig-truncation",
)
def limit(evidence):
    limits = evidence.part("truncation")["limit"]
    gaps = {sd: v["printed_limit"] for sd, v in limits.items()}
    return Verdict(
        FALSE if max(gaps.values()) < TRUE_R34 - 0.05 else REPRODUCED,
        "at the truth it is "
        + ", ".join(f"{v:.2f} (SD {sd})" for sd, v in gaps.items())
        + ", not .569",
        ("less and more spread of the scores: none gives .569",),
    )
