"""The claims of Sections 2 and 3: the model, its formulas, the network."""

from studies.verdicts.judge import (
    IN_PART,
    MISPRINT,
    NOT_REPRODUCED,
    REPRODUCED,
    TRUE_R34,
    Verdict,
    claim,
)


@claim(
    "Section 2.2, Theorem 2.1, Eq. (10)",
    "The log density of the four responses.",
    "a misprint if the printed bracket is not positive for some patients drawn from the model, and "
    "with the right thresholds equals the integral to 1e-9",
    "formula-checks",
    "proofs.html#fig-printed-density",
)
def theorem_2_1(evidence):
    m = evidence.part("theorem")
    share = max(v["share_not_positive"] for v in m["by_logit_sd"].values())
    right = m["right_against_integral"] < 1e-9
    return Verdict(
        NOT_REPRODUCED if not right else MISPRINT if share > 0 else REPRODUCED,
        f"up to {100 * share:.1f} % of patients get a probability <= 0; e.g. "
        f"{m['example_printed']:.3f} "
        f"where {m['example_right']:.4f} is right",
    )


@claim(
    "Section 2.2, Remark 2",
    "Eq. (10) equals the general integral form.",
    "reproduced if the printed cells equal numerical integration to 1e-9, a misprint if those with "
    "right thresholds do",
    "formula-checks",
    "proofs.html#fig-printed-density",
)
def song(evidence):
    m = evidence.part("theorem")
    gap = m["right_against_integral"]
    printed = abs(m["example_printed"] - m["example_right"])
    return Verdict(
        NOT_REPRODUCED if gap > 1e-9 else MISPRINT if printed > 1e-9 else REPRODUCED,
        f"with the thresholds put right the largest gap to the integral is {gap:.1e}; as printed "
        f"it is {printed:.3f} in the pages' example",
    )


@claim(
    "Supplement A.1, Corollary A.1",
    "The p-dimensional density by inclusion-exclusion.",
    "a misprint if the printed sum is not positive in some cell while the right sum equals the "
    "sign flip to 1e-6",
    "formula-checks",
    "proofs.html#sec-corollary",
)
def corollary_a_1(evidence):
    m = evidence.part("corollary")
    shares = {p: v["printed_not_positive"] for p, v in m.items()}
    gap = max(v["largest_gap"] for v in m.values())
    return Verdict(
        MISPRINT
        if max(shares.values()) > 0 and gap < 1e-6
        else REPRODUCED
        if gap < 1e-6
        else NOT_REPRODUCED,
        "printed sum <= 0 in "
        + ", ".join(f"{100 * s:.0f} % (p1 = {p})" for p, s in shares.items()),
    )


@claim(
    "Section 2.3",
    "log L = log|Gamma| - z' Gamma^{-1} z / 2.",
    "a misprint if along k S the printed objective grows without bound, and the one with right "
    "signs falls from S on",
    "formula-checks",
    "proofs.html#sec-signs",
)
def mcem_objective(evidence):
    m = evidence.part("objective")
    printed, right = (list(m[f"{form}_by_factor"].values()) for form in ("printed", "right"))
    holds, grows = right == sorted(right, reverse=True), printed == sorted(printed)
    return Verdict(
        NOT_REPRODUCED if not holds else MISPRINT if grows else REPRODUCED,
        f"at S, 10 S, 100 S, 1000 S: printed {', '.join(f'{v:.1f}' for v in printed)}; with right "
        f"signs {', '.join(f'{v:.1f}' for v in right)}",
    )


@claim(
    "Section 2.3",
    "tr(Gamma^{-1} Sigma) = 2 is invariant and unrelated to Gamma.",
    "in part if it is 2 to 1e-9 for each Gamma with its own V, but varies by more than .1 while V "
    "belongs to the old Gamma, as in the M-step",
    "formula-checks",
    "proofs.html#sec-signs",
)
def trace(evidence):
    m = evidence.part("objective")
    values, own = m["trace_by_rho34"].values(), m["trace_with_own_by_rho34"].values()
    true = all(abs(value - 2) < 1e-9 for value in own)
    varies = max(values) - min(values) > 0.1
    return Verdict(
        NOT_REPRODUCED if not true else IN_PART if varies else REPRODUCED,
        "true for each Gamma with its own V; in the M-step V belongs to the old Gamma, and it goes "
        f"from {min(values):.2f} to {max(values):.2f} as rho34 goes from .3 to .9",
    )


@claim(
    "Section 2.3",
    "The approximate objective is maximised by the sample correlation matrix.",
    "in part if it is the maximum over correlation matrices (1e-9) for second moments with a unit "
    "diagonal, and lies more than 1e-4 per patient below it for latent variances of .6, as "
    "Algorithm 2 makes them",
    "formula-checks",
    "proofs.html#sec-signs",
)
def cov2cor(evidence):
    m = evidence.part("objective")
    unit, below = m["cov2cor_below_maximum_with_unit_diagonal"], m["cov2cor_below_maximum"]
    return Verdict(
        NOT_REPRODUCED if abs(unit) > 1e-9 else IN_PART if below > 1e-4 else REPRODUCED,
        "true where the second moments have a unit diagonal; with latent variances of .6 it lies "
        f"{below:.3f} per patient below the maximum, elements up to "
        f"{m['cov2cor_largest_difference']:.2f} apart",
    )


@claim(
    "Section 2.3, Remark 3",
    "Given right bounds, fMCEM underestimates rho34.",
    "reproduced if below .569 for both matrices, in part if for the paper's only (4 SE)",
    ("score-distortions", "fmcem-singularity"),
    "stronger_covariance.html#fig-proposition-2",
)
def remark_3(evidence):
    toy, _ = evidence.mean("score-distortions", "fmcem:r34", distortion="none")
    other, se = evidence.mean(
        "fmcem-singularity", "fmcem:r34", correlation="exchangeable", strength=0.0
    )
    above = other - 4 * se > TRUE_R34
    return Verdict(
        NOT_REPRODUCED if toy >= TRUE_R34 else IN_PART if above else REPRODUCED,
        f"{toy:.3f} for the paper's Gamma, {other:.3f} for an exchangeable one; truth .569 in both",
    )


@claim(
    "Section 3.3",
    "The four cell probabilities and the Bayes rule.",
    "a misprint if a printed cell is negative for some patients, and with right cells the rule "
    "gets both eyes right more often than each eye at one half",
    "formula-checks",
    "proofs.html#sec-prediction",
)
def prediction(evidence):
    m = evidence.part("prediction")["uniform"]
    right = m["joint"]["joint"] > m["marginal"]["joint"]
    negative = m["printed_has_negative"] > 0
    return Verdict(
        NOT_REPRODUCED if not right else MISPRINT if negative else REPRODUCED,
        f"{100 * m['printed_has_negative']:.0f} % of patients have a negative cell, "
        f"{100 * m['printed_changes_class']:.0f} % change class, (1, 1) is never predicted",
    )


@claim(
    "Section 3.3",
    "Classify the pair jointly, not each eye at one half.",
    "reproduced if the joint rule is better at joint accuracy; in part if it is then worse per eye",
    "formula-checks",
    "remarks.html#fig-rules",
)
def joint_rule(evidence):
    m = evidence.part("prediction")["uniform"]
    up = m["joint"]["joint"] > m["marginal"]["joint"]
    down = m["joint"]["per_eye"] < m["marginal"]["per_eye"]
    return Verdict(
        IN_PART if up and down else REPRODUCED if up else NOT_REPRODUCED,
        f"both eyes right: {m['joint']['joint']:.3f} against {m['marginal']['joint']:.3f}; per "
        "eye, the "
        f"paper's ACC: {m['joint']['per_eye']:.3f} against {m['marginal']['per_eye']:.3f}",
    )


@claim(
    "Section 3.2",
    "About 1.2 million trainable parameters.",
    "reproduced within 10 %, in part within a factor of 2",
    "encoder-size",
    "encoder.html#sec-what-trains",
)
def lora(evidence):
    ours = evidence.records("encoder-size")[0]["metrics"]["trainable_parameters"]
    printed = evidence.printed("model")["trainable_parameters"]["value"]
    ratio = ours / printed
    return Verdict(
        REPRODUCED if 0.9 < ratio < 1.1 else IN_PART if 0.5 < ratio < 2 else NOT_REPRODUCED,
        f"{ours:,} trainable parameters, printed about {printed:,.0f}",
    )
