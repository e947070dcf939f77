"""Numbers behind "Proofs, checked" and the verdicts: printed formulas against right ones on seeded
random inputs.

One record per part, study ``formula-checks``. Deterministic parts have no standard error; the
others are shares over ``n`` independent draws, whose standard error is sqrt(share (1 - share) / n)
at most.

    python -m studies formula-checks
"""

from collections.abc import Callable

import numpy as np
import torch
from scipy.special import ndtr

from cevit_lib.copula import (
    CopulaParameters,
    class_probabilities,
    log_density,
    scores_given,
)
from cevit_lib.datasets.synthetic import TEXT_CORRELATION
from cevit_lib.estimation import ExactEM
from cevit_lib.estimation.correlation import complete_objective, from_off_diagonal
from cevit_lib.normal import bivariate_normal_cdf
from studies import theory
from studies.study import Study
from studies.theory.printed import printed_conditional_cells
from studies.theory.scores import SCORE_CORRELATION

SEED = 20261129


def conditional_cells(outputs, y, parameters) -> dict[str, np.ndarray]:
    """P(y3, y4 | residuals) by the right formula and as printed, both (n, 2, 2)."""
    outputs, y = theory.tensor(outputs), theory.tensor(y)
    return {
        "right": class_probabilities(outputs, parameters, y).numpy(),
        "printed": printed_conditional_cells(outputs, y, parameters).numpy(),
    }


def of_the_labels(cells: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The cells (n,) of the labels that occurred."""
    return cells[np.arange(len(y)), y[:, 2].astype(int), y[:, 3].astype(int)]


def check_theorem(c: dict, rng: np.random.Generator) -> dict:
    """Eq. (10) as printed on data from the model: how often it is not positive, and how wrong its
    log is."""
    parameters, found = CopulaParameters(TEXT_CORRELATION, [1.0, 1.0]), {}
    for sd in c["logit_sd"]:
        outputs = sd * rng.standard_normal((c["n"], 4))
        errors = rng.standard_normal((c["n"], 4)) @ np.linalg.cholesky(TEXT_CORRELATION).T
        sums = theory.scores_from_outputs(outputs) + errors
        y = np.concatenate([outputs[:, :2] + errors[:, :2], sums[:, 2:] > 0], 1)
        cells = conditional_cells(outputs, y, parameters)
        right, printed = (of_the_labels(cells[name], y) for name in ("right", "printed"))
        positive = printed > 0
        gap = np.abs(np.log(printed[positive]) - np.log(right[positive]))
        found[f"{sd:g}"] = {
            "share_not_positive": float(1 - positive.mean()),
            "mean_log_error": float(gap.mean()),
            "smallest": float(printed.min()),
            "largest_sum_error": float(np.abs(cells["printed"].sum((1, 2)) - 1).max()),
        }
    return {"by_logit_sd": found, "right_against_integral": gap_to_integral(rng)} | worked_example()


def gap_to_integral(rng: np.random.Generator, points: int = 25, nodes: int = 48) -> float:
    """Largest gap between the right cells and the general integral form (a Gauss-Legendre rule over
    each cell)."""
    parameters, worst = CopulaParameters(TEXT_CORRELATION, [1.0, 1.0]), 0.0
    outputs, residuals = 1.5 * rng.standard_normal((points, 4)), rng.standard_normal((points, 2))
    y = np.concatenate([outputs[:, :2] + residuals, np.zeros((points, 2))], 1)
    cells = class_probabilities(theory.tensor(outputs), parameters, theory.tensor(y)).numpy()
    law = scores_given(TEXT_CORRELATION, [2, 3], [0, 1])
    means, covariance = residuals @ law.slope.numpy().T, law.covariance.numpy()
    for i, threshold in enumerate(-theory.scores_from_outputs(outputs)[:, 2:]):
        for cell in np.ndindex(2, 2):
            lower = np.where(np.array(cell) == 1, threshold, -np.inf)
            upper = np.where(np.array(cell) == 1, np.inf, threshold)
            integral = theory.integrate_normal(lower, upper, means[i], covariance, nodes)
            worst = max(worst, abs(integral - cells[i][cell]))
    return worst


def worked_example() -> dict:
    """The pages' example: mu = (-1.473, -.326), labels (1, 0), residuals 0."""
    parameters = CopulaParameters(TEXT_CORRELATION, [1.0, 1.0])
    outputs, y = np.array([[0.0, 0.0, -1.473, -0.326]]), np.array([[0.0, 0.0, 1.0, 0.0]])
    cells = conditional_cells(outputs, y, parameters)
    return {f"example_{name}": float(of_the_labels(cells[name], y)[0]) for name in cells}


def random_cell(size: int, rng: np.random.Generator):
    """A random label cell: labels with at least one 1, thresholds, conditional mean and
    covariance."""
    labels = rng.integers(0, 2, size)
    labels[rng.integers(size)] = 1
    root = rng.standard_normal((size, size + 2))
    covariance = root @ root.T
    d = np.sqrt(np.diag(covariance))
    correlation = 0.7 * covariance / np.outer(d, d) + 0.3 * np.eye(
        size
    )  # no sharp edge for the quadrature
    return labels, rng.standard_normal(size), 0.7 * rng.standard_normal(size), correlation


def check_corollary(c: dict, rng: np.random.Generator) -> dict:
    """Corollary A.1 for p1 = 2, 3, 4: the sign flip against inclusion-exclusion, and the two
    printed sums."""
    found = {}
    for size, count in zip((2, 3, 4), c["cells"], strict=True):
        rows = []
        for _ in range(count):
            cell = random_cell(size, rng)
            functions = (
                theory.cell_probability,
                theory.inclusion_exclusion_probability,
                theory.printed_limits_probability,
                theory.printed_expansion_probability,
            )
            rows.append([f(*cell) for f in functions])
        right, exclusion, limits, expansion = np.array(rows).T
        found[str(size)] = {
            "largest_gap": float(np.abs(right - exclusion).max()),
            "printed_not_positive": float((limits <= 0).mean()),
            "printed_mean_error": float(np.abs(limits - right).mean()),
            "expansion_not_positive": float((expansion <= 0).mean()),
            "expansion_mean_error": float(np.abs(expansion - right).mean()),
        }
    return found


def draw_margins(name: str, n: int, rng: np.random.Generator):
    """Marginal probabilities (p3, p4) of n patients under one of the listed distributions."""
    if name == "uniform":
        return rng.uniform(size=(2, n))
    sd = 1.5 if name == "logit-1.5" else 3.0
    return 1 / (1 + np.exp(-sd * draw_pair(n, rng).T))


def draw_pair(n: int, rng: np.random.Generator) -> np.ndarray:
    """Scores (n, 2) of two eyes, standard normal and correlated 1/2."""
    return rng.standard_normal((n, 2)) @ np.linalg.cholesky(np.array([[1.0, 0.5], [0.5, 1.0]])).T


def check_prediction(c: dict, rng: np.random.Generator) -> dict:
    """Section 3.3: the printed rule, the joint Bayes rule and the marginal rule on the same
    patients."""
    found = {}
    for name in ("uniform", "logit-1.5", "logit-3"):
        p3, p4 = draw_margins(name, c["n"], rng)
        rules = theory.compare_rules(p3, p4, c["rho34"])
        printed = theory.label_cells(p3, p4, c["rho34"], "printed")
        right = theory.label_cells(p3, p4, c["rho34"])
        changed = printed.reshape(-1, 4).argmax(1) != right.reshape(-1, 4).argmax(1)
        found[name] = rules | {
            "printed_changes_class": float(changed.mean()),
            "printed_has_negative": float((printed < 0).any((1, 2)).mean()),
            "printed_mean_sum": float(printed.sum((1, 2)).mean()),
        }
    return found


def check_truncation(c: dict, rng: np.random.Generator) -> dict:
    """The Tallis lemma on random triples, and the within-cell correlation that the proof takes for
    a limit."""
    c1, c2 = rng.uniform(-3, 3, (2, c["n"]))
    r = rng.uniform(0.01, 0.99, c["n"])
    kept = theory.orthant_moments(c1, c2, r).probability > 1e-6  # the printed form divides by it
    c1, c2, r = c1[kept], c2[kept], r[kept]
    right, derivative = theory.orthant_moments(c1, c2, r), theory.tallis_derivative(c1, c2, r)
    discordant = theory.orthant_moments(c1, c2, r, (1, -1))  # the cell (1, 0)
    below = discordant.correlation < r
    limits = {}
    for sd in (0.0, 1.0, 2.0):
        q = sd * draw_pair(c["n"], rng)
        limits[f"{sd:g}"] = theory.decompose_latent_correlation(q[:, 0], q[:, 1], 0.569)
    return {
        "triples": int(kept.sum()),
        "share_corr_above_rho": float((right.correlation > r).mean()),
        "share_corr_not_positive": float((right.correlation <= 0).mean()),
        "share_discordant_below_rho": float(below[discordant.probability > 1e-6].mean()),
        "share_derivative_negative": float((derivative < 0).mean()),
        "gap_with_plus": float(np.abs(r + derivative - right.covariance).max()),
        "printed_mean_error": float(np.abs(r - derivative - right.covariance).mean()),
        "discordant_by_covariance": {
            f"{g:g}": mean_cell_correlation(g, (1, -1), c["n"])
            for g in (0.0, 0.25, 0.5, 0.75, 0.95)
        },
        "equal_threshold_correlation": {
            f"{t:g}": float(theory.orthant_moments(t, t, 0.569).correlation)
            for t in (-3, -1, 0, 1, 3)
        },
        "limit": limits,
        "truncated_variance": {
            f"{q:g}": float(theory.truncated_variance(q)) for q in (0, -1, -5, -30)
        },
    }


def mean_cell_correlation(covariance: float, sides: tuple, n: int) -> float:
    """Mean of Corr(u3, u4 | cell) over n standard normal thresholds with the given covariance; the
    same draws for all covariances."""
    gamma = np.array([[1.0, covariance], [covariance, 1.0]])
    c = np.random.default_rng(SEED).standard_normal((n, 2)) @ np.linalg.cholesky(gamma).T
    cell = theory.orthant_moments(c[:, 0], c[:, 1], 0.569, sides)
    return float(cell.correlation[cell.probability > 1e-9].mean())


def check_concordance(c: dict, rng: np.random.Generator) -> dict:
    """The monotonicity lemma: printed values above 1, the Gaussian closed form, the
    counter-example."""
    support, margin = np.array(c["support"]), np.full(len(c["support"]), 1 / len(c["support"]))
    low = theory.extreme_concordance(support, margin, c["covariances"][0], 0.569, largest=True)
    high = theory.extreme_concordance(support, margin, c["covariances"][1], 0.569)
    gammas = np.linspace(-0.9, 0.9, 37)
    curves = {
        f"{rho:g}": [
            float(theory.expected_concordance([0.4, -0.2], [[1, g], [g, 1]], rho)) for g in gammas
        ]
        for rho in (-0.5, 0.0, 0.569)
    }
    return {
        "printed_at_1.5": float(theory.printed_concordance_probability(1.5, 1.5, 0.569)),
        "right_at_1.5": float(theory.concordance_probability(1.5, 1.5, 0.569)),
        "symmetry": bivariate_normal_cdf(
            theory.tensor([1, -1]), theory.tensor([1, -1]), 0.5
        ).tolist(),
        "gaussian_increasing": all(bool((np.diff(v) > 0).all()) for v in curves.values()),
        "counter_example": {
            "support": support,
            "small_covariance": low.covariance,
            "its_concordance": low.concordance,
            "large_covariance": high.covariance,
            "its_smaller_concordance": high.concordance,
            "small_weights": low.weights,
            "large_weights": high.weights,
        },
    }


def check_objective(c: dict, rng: np.random.Generator) -> dict:
    """Signs and traces of Section 2.3: the printed objective has no maximum, the trace is not
    constant."""
    scatter = TEXT_CORRELATION
    deflated = scatter.copy()  # latent variances below 1, as fMCEM's Z'Z / n has them
    deflated[[2, 3], [2, 3]] = 0.6
    deflated[:2, 2:] *= 0.9
    deflated[2:, :2] = deflated[:2, 2:].T
    deflated[2, 3] = deflated[3, 2] = 0.5 * scatter[2, 3]
    rescaled, constrained = (
        ExactEM(rescale=rescale).m_step(deflated, scatter) for rescale in (True, False)
    )
    others = scatter[np.triu_indices(4, 1)][:5]
    gammas = {f"{rho:g}": from_off_diagonal([*others, rho], 4) for rho in c["rho34"]}
    return {
        "printed_by_factor": {
            f"{k:g}": theory.printed_expected_log_likelihood(k * scatter, scatter)
            for k in c["factors"]
        },
        "right_by_factor": {
            f"{k:g}": complete_objective(k * scatter, scatter) for k in c["factors"]
        },
        "trace_by_rho34": {rho: theory.trace_term(g, scatter) for rho, g in gammas.items()},
        "trace_with_own_by_rho34": {rho: theory.trace_term(g, g) for rho, g in gammas.items()},
        "cov2cor_below_maximum": complete_objective(constrained, deflated)
        - complete_objective(rescaled, deflated),
        "cov2cor_largest_difference": float(np.abs(constrained - rescaled).max()),
        "cov2cor_below_maximum_with_unit_diagonal": complete_objective(
            ExactEM(rescale=False).m_step(rescaled, scatter), rescaled
        )
        - complete_objective(rescaled, rescaled),
        "printed_cross_entropy": {
            "right_label": float(theory.printed_cross_entropy(0.9, 1)),
            "wrong_label": float(theory.printed_cross_entropy(0.1, 1)),
        },
    }


def check_residuals(c: dict, rng: np.random.Generator) -> dict:
    """Proposition 3: residual correlation under each distortion of (q1, q2), closed form and one
    large sample."""
    draw, paths = theory.draw_scores(c["n"], rng), {}
    for name, kind in theory.DISTORTIONS.items():
        if (
            name == "own-latent-tracking"
        ):  # for continuous responses it is the same as tracking the label
            continue
        top = {"scaling": 2.5, "label-tracking": 0.95}.get(
            name, max(kind.strengths)
        )  # 1 would leave no residual
        fine = np.linspace(
            0 if name != "scaling" else 0.3,
            min(top, 2.5 if name.startswith("shared-n") else top),
            40,
        )
        ratio = [kind.score_covariance(k, 0.72) / 0.5 for k in fine]
        points = {"strength": [], "ratio": [], "estimate": []}
        for k in [k for k in kind.strengths if fine[0] <= k <= fine[-1]]:
            scores = theory.distort(draw, name, k, rng, tasks="regression")
            points["strength"].append(k)
            points["ratio"].append(
                float(np.cov(scores[:, :2].T)[0, 1] / np.cov(draw.scores[:, :2].T)[0, 1])
            )
            points["estimate"].append(float(np.corrcoef((draw.y - scores)[:, :2].T)[0, 1]))
        limit = [kind.residual_correlation(k, 0.72) for k in fine]
        paths[name] = {"strength": fine, "ratio": ratio, "limit": limit, "points": points}
    # plug-ins of variance v and covariance g with residuals uncorrelated with them
    uncorrelated = [
        (0.72 + SCORE_CORRELATION - g) / (2 - v)
        for v in np.linspace(0.51, 1, 50)
        for g in np.linspace(0.51, v, 50)
    ]
    return {
        "paths": paths,
        "largest_if_uncorrelated": max(uncorrelated),
        "se": float((1 - 0.72**2) / np.sqrt(c["n"])),
    }


def check_gradient(c: dict, rng: np.random.Generator) -> dict:
    """Size of the loss's gradient in the logits as rho34 goes to 1, for labels that agree and that
    disagree."""
    found = {"agree": {}, "disagree": {}}
    for gap in c["gaps"]:
        gamma = np.eye(4)
        gamma[2, 3] = gamma[3, 2] = 1 - gap
        parameters = CopulaParameters(gamma, [1.0, 1.0])
        for name, labels in (("agree", (1.0, 1.0)), ("disagree", (0.0, 1.0))):
            outputs = theory.tensor(
                [[0.0, 0.0, 0.8, 0.8 if name == "agree" else -0.8]]
            ).requires_grad_(True)
            loss = -log_density(
                outputs, theory.tensor([[0.0, 0.0, *labels]]), parameters, validate=False
            ).sum()
            found[name][f"{gap:g}"] = float(torch.autograd.grad(loss, outputs)[0].abs().max())
    return found


def check_total_covariance(c: dict, rng: np.random.Generator) -> dict:
    """Remark 4: the within part against Cov(q3, q4), for means of the two scores that agree and
    that are opposite."""
    gammas = np.linspace(*c["range"], 41)

    def curve(mean) -> dict[str, list[float]]:
        parts = [theory.total_label_covariance(mean, 1.0, g, 0.569) for g in gammas]
        return {key: [float(part[key]) for part in parts] for key in parts[0]}

    curves = {name: curve(mean) for name, mean in c["means"].items()}
    opposite = np.linspace(0, 1, 101)
    slopes = [np.diff(curve((m, -m))["within"]) for m in opposite]
    falls = float(opposite[[bool((s < 0).all()) for s in slopes].index(True)])
    return {
        "covariance": gammas,
        "curves": curves,
        "increases": {name: bool((np.diff(v["within"]) > 0).all()) for name, v in curves.items()},
        "rises_up_to": float(max(opposite[[bool((s > 0).all()) for s in slopes]])),
        "falls_from": falls,
        "least_concordance_there": min(
            float(theory.expected_concordance((falls, -falls), [[1, g], [g, 1]], 0.569))
            for g in gammas
        ),
    }


def check_minima(c: dict, rng: np.random.Generator) -> dict:
    """Where the population copula loss of an unrestricted model has its minimum when Gamma is
    wrong."""
    scores, gamma = np.array(c["scores"]), TEXT_CORRELATION
    pair = {f"{r:g}": ndtr(theory.binary_pair_minimum(scores[2:], 0.569, r)) for r in c["assumed"]}
    upper = gamma[np.triu_indices(4, 1)]
    cases = {
        "truth": upper,
        "independence": np.zeros(6),
        "paper's fMCEM bias": upper + np.array(c["printed_bias"]),
        "biased as fMCEM at strong signal": np.array(c["strong_bias"]) + upper,
        "rho34 = .95": np.r_[upper[:5], 0.95],
    }
    four = {}
    for name, values in cases.items():
        assumed = from_off_diagonal(values, 4)
        found = theory.free_model_minimum(scores, gamma, assumed)
        four[name] = {
            "means": found[:2],
            "margins": ndtr(found[2:]),
            "smallest_eigenvalue": float(np.linalg.eigvalsh(assumed)[0]),
        }
    return {"true_margins": ndtr(scores[2:]), "binary_pair": pair, "four_responses": four}


def check_regression(c: dict, rng: np.random.Generator) -> dict:
    """OLS against GLS for two eyes: exact ratios for a drawn design, and a Monte Carlo of both
    estimates."""
    found = {}
    for shared in (False, True):
        for r in c["image_correlation"]:
            left, right = theory.draw_two_eyes(c["n"], 2, r, rng)
            model = theory.TwoEyeRegression(left, right, c["rho"], shared)
            errors = np.linalg.cholesky(np.array([[1.0, c["rho"]], [c["rho"], 1.0]]))
            squares = np.zeros((c["replications"], 2))
            truth = np.ones(model.design.shape[1])
            for i, stream in enumerate(rng.spawn(c["replications"])):
                e = (stream.standard_normal((c["n"], 2)) @ errors.T).T.ravel()
                squares[i] = [((b - truth) ** 2).sum() for b in model.fit(model.design @ truth + e)]
            ratio = squares.mean(0)
            relative = np.cov(squares.T) / np.outer(ratio, ratio) / c["replications"]
            variance = max(relative[0, 0] + relative[1, 1] - 2 * relative[0, 1], 0.0)
            found[f"{'shared' if shared else 'separate'}:{r:g}"] = {
                "exact": model.efficiency(),
                "limit": float(theory.gain_limit(c["rho"], r)),
                "monte_carlo": float(ratio[0] / ratio[1]),
                "se": float(ratio[0] / ratio[1] * np.sqrt(variance)),
            }
    return found


PARTS: dict[str, tuple[Callable, dict, dict]] = {
    "theorem": (check_theorem, {"n": 100_000, "logit_sd": [0.5, 1.0, 2.0, 3.0]}, {"n": 2000}),
    "corollary": (check_corollary, {"cells": [1000, 300, 60]}, {"cells": [50, 10, 3]}),
    "prediction": (check_prediction, {"n": 200_000, "rho34": 0.569}, {"n": 5000}),
    "truncation": (check_truncation, {"n": 20_000}, {"n": 1000}),
    "concordance": (
        check_concordance,
        {"support": [-3.0, -0.5, 0.5, 3.0], "covariances": [0.05, 0.5]},
        {},
    ),
    "objective": (
        check_objective,
        {"rho34": [0.3, 0.569, 0.7, 0.8, 0.9], "factors": [1, 10, 100, 1000]},
        {},
    ),
    "residuals": (check_residuals, {"n": 200_000}, {"n": 5000}),
    "gradient": (check_gradient, {"gaps": [0.1, 0.01, 1e-3, 1e-4, 1e-6]}, {}),
    "total-covariance": (
        check_total_covariance,
        {
            "range": [0.0, 0.95],
            "means": {
                "centred": [0.0, 0.0],
                "same sign": [1.5, 1.5],
                "opposite signs, +-0.4": [0.4, -0.4],
                "opposite signs, +-1.5": [1.5, -1.5],
            },
        },
        {},
    ),
    "minima": (
        check_minima,
        {
            "scores": [0.0, 0.0, 1.0, -0.5],
            "assumed": [0.0, 0.2, 0.368, 0.569, 0.8, 0.95, 0.99],
            "printed_bias": [-0.003, 0.104, 0.06, 0.06, 0.104, -0.201],
            "strong_bias": [0.0, 0.4, 0.25, 0.27, 0.4, -0.15],
        },
        {"assumed": [0.0, 0.569, 0.95]},
    ),
    "regression": (
        check_regression,
        {
            "n": 200,
            "rho": 0.72,
            "image_correlation": [0.0, 0.5, 0.8, 0.95, 1.0],
            "replications": 400,
        },
        {"n": 50, "image_correlation": [0.0, 1.0], "replications": 20},
    ),
}
"""Part -> (function, its configuration at paper scale, what smoke changes)."""


def settings(scale: str = "paper") -> list[tuple[dict, int]]:
    """Return configuration and seed of every part."""
    return [
        ({"part": name} | full | (tiny if scale == "smoke" else {}), SEED)
        for name, (_, full, tiny) in PARTS.items()
    ]


def fit(configuration: dict, seed: int, scale: str) -> dict:
    """Run one part with its own stream."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    return {"metrics": PARTS[configuration["part"]][0](configuration, rng)}


STUDY = Study("formula-checks", settings, fit, device="cpu")


def collect(scale: str = "stored") -> dict[str, dict]:
    """Return part -> record: the stored ones, or those of a run made now."""
    return {r["configuration"]["part"]: r for r in STUDY.collect(scale).whole()}
