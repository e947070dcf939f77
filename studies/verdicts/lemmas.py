"""The claims of Supplement A.2: truncated pairs, concordance, and the limit of an estimator."""

from itertools import pairwise

from studies.verdicts.judge import (
    FALSE,
    IN_PART,
    MISPRINT,
    NOT_REPRODUCED,
    REPRODUCED,
    TRUE_R34,
    Verdict,
    claim,
)


@claim(
    "Supplement A.2, Tallis lemma",
    "In a quadrant Cov = rho - D, D the derivative of log alpha in t1 and t2, and D < 0.",
    "a misprint if D < 0 in all random cases and Cov = rho + D to 1e-9",
    "formula-checks",
    "proofs.html#fig-truncation",
)
def tallis(evidence):
    m = evidence.part("truncation")
    right = m["share_derivative_negative"] == 1 and m["gap_with_plus"] < 1e-9
    return Verdict(
        MISPRINT if right else NOT_REPRODUCED,
        f"D < 0 in {m['share_derivative_negative']:.0%} of {m['triples']:,} random cases, and "
        f"Cov = rho + D to {m['gap_with_plus']:.0e}: one sign",
    )


@claim(
    "Supplement A.2, Tallis lemma",
    "Hence Corr > rho in a quadrant.",
    "false if no random case has Corr > rho, in part if some have",
    "formula-checks",
    "proofs.html#fig-truncation",
)
def tallis_correlation(evidence):
    m = evidence.part("truncation")
    share = m["share_corr_above_rho"]
    return Verdict(
        REPRODUCED if share == 1 else IN_PART if share > 0 else FALSE,
        f"Corr > rho in {share:.0%} of {m['triples']:,} random cases: truncation weakens it",
        (
            "the lemma with its sign put right: Cov = rho + D < rho, as D < 0 in "
            f"{m['share_derivative_negative']:.0%} of the cases",
            "a discordant quadrant: Corr < rho in "
            f"{m['share_discordant_below_rho']:.0%} of the cases",
        ),
    )


@claim(
    "Supplement A.2, remark",
    "In a discordant quadrant Corr < rho, decreasing in Cov(c1, c2).",
    "reproduced if Corr < rho in all random cases and its mean over normal thresholds falls as "
    "their covariance grows",
    "formula-checks",
    "proofs.html#fig-truncation",
)
def discordant(evidence):
    m = evidence.part("truncation")
    share, means = m["share_discordant_below_rho"], list(m["discordant_by_covariance"].values())
    falls = all(b < a for a, b in pairwise(means))
    return Verdict(
        REPRODUCED if share == 1 and falls else IN_PART if share == 1 or falls else NOT_REPRODUCED,
        f"Corr < rho in {share:.0%}; over normal thresholds, where Cov(c1, c2) has a meaning, its "
        f"mean falls from {means[0]:.3f} to {means[-1]:.3f}",
    )


@claim(
    "Supplement A.2, monotonicity lemma",
    "E P(y3 = y4) increases with Cov(q3, q4).",
    "in part if it does for normal scores, while a linear programme finds equal margins, two "
    "positive covariances, and less concordance with the larger one",
    "formula-checks",
    "proofs.html#fig-counter-example",
)
def monotonicity(evidence):
    m = evidence.part("concordance")
    e = m["counter_example"]
    broken = e["its_smaller_concordance"] < e["its_concordance"] and e["small_covariance"] > 0
    return Verdict(
        REPRODUCED if not broken else IN_PART if m["gaussian_increasing"] else NOT_REPRODUCED,
        "true for normal scores and in the concordance order; with equal margins alone Cov "
        f"{e['small_covariance']:.2f} -> {e['large_covariance']:.2f} and concordance "
        f"{e['its_concordance']:.3f} -> {e['its_smaller_concordance']:.3f}",
    )


@claim(
    "Supplement A.2, concordance dominance",
    "Concordance stays above one half.",
    "in part if it does for normal scores, while the programme's pair, of positive covariance, "
    "starts above and ends below one half",
    "formula-checks",
    "proofs.html#fig-counter-example",
)
def dominance(evidence):
    m = evidence.part("concordance")
    e = m["counter_example"]
    broken = e["its_concordance"] > 0.5 > e["its_smaller_concordance"] and e["small_covariance"] > 0
    return Verdict(
        REPRODUCED if not broken else IN_PART if m["gaussian_increasing"] else NOT_REPRODUCED,
        f"true for normal scores; the programme's pair goes from {e['its_concordance']:.3f} to "
        f"{e['its_smaller_concordance']:.3f} as Cov goes from {e['small_covariance']:.2f} to "
        f"{e['large_covariance']:.2f}",
    )


@claim(
    "Supplement A.2, proof of Proposition 1",
    "The estimator's limit is the mean within-cell correlation.",
    "false if at the truth that mean stays more than .05 below .569, for all spreads of the scores",
    "formula-checks",
    "proofs.html#fig-truncation",
)
def limit(evidence):
    limits = evidence.part("truncation")["limit"]
    gaps = {sd: v["printed_limit"] for sd, v in limits.items()}
    within = [v["within"] for v in limits.values()]
    return Verdict(
        FALSE if max(gaps.values()) < TRUE_R34 - 0.05 else REPRODUCED,
        "at the truth it is "
        + ", ".join(f"{v:.2f} (SD {sd})" for sd, v in gaps.items())
        + ", not .569: the covariance between the cells' means is missing",
        (f"the covariance in place of the correlation: {min(within):.2f} to {max(within):.2f}",),
    )
