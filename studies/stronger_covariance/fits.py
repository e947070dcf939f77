"""Monte Carlo studies of the stronger covariance phenomenon: how plug-in scores move each estimate
of Gamma.

Each study is a list of settings, each setting one record with its replications as columns. A
replication has its own stream, ``SeedSequence(seed).spawn(replications)[i]``; settings share the
root seed, so their differences are paired.

    python -m studies score-distortions    writes results/, skips what is there
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from cevit_lib.copula import CopulaParameters, log_density, scores_given
from cevit_lib.datasets.synthetic import TEXT_CORRELATION
from cevit_lib.estimation import (
    ExactEM,
    FastMCEM,
    GaussianScoreCorrelation,
    MaximumLikelihood,
    RankLikelihoodMCMC,
)
from cevit_lib.estimation.correlation import from_off_diagonal
from studies import theory
from studies.study import Study, fitted, replications

SEED = 20261129
ROLES = {
    "maximum-likelihood": "exact maximum likelihood",
    "exact-em": "EM with exact E-step and cov2cor",
    "fmcem": "fMCEM, univariate means",
    "fmcem-100": "fMCEM, 100 iterations",
    "fmcem-bivariate": "fMCEM, bivariate means",
    "fmcem-maximised": "fMCEM, maximising M-step",
    "fmcem-variances": "fMCEM with the latent variances",
    "gibbs": "Gibbs, inverse Wishart and cov2cor",
    "posterior": "proper posterior",
    "score-correlation": "CeCNN's correlation of scores",
}
"""Estimator -> words on a page."""


def estimator(role: str, rng: np.random.Generator, sweeps: int):
    """Return a fresh estimator for a role; the samplers draw ``sweeps`` times, a quarter of it as
    burn-in."""
    if role in ("gibbs", "posterior"):
        sampler = "paper" if role == "gibbs" else "proper"
        return RankLikelihoodMCMC(sampler, sweeps=sweeps, burn_in=sweeps // 4, thin=5, rng=rng)
    return {
        "maximum-likelihood": lambda: MaximumLikelihood(),
        "exact-em": lambda: ExactEM(rescale=True, max_iter=1000),
        "fmcem": lambda: FastMCEM(max_iter=1000),
        "fmcem-100": FastMCEM,
        "fmcem-bivariate": lambda: FastMCEM(means="bivariate"),
        "fmcem-maximised": lambda: FastMCEM(rescale=False),
        "fmcem-variances": lambda: FastMCEM(variances=True),
        "score-correlation": GaussianScoreCorrelation,
    }[role]()


def describe(correlation) -> dict:
    """The numbers of a 4 x 4 estimate that the pages draw."""
    g = np.asarray(correlation, dtype=float)
    return {
        "r12": g[0, 1],
        "r13": g[0, 2],
        "r14": g[0, 3],
        "r23": g[1, 2],
        "r24": g[1, 3],
        "r34": g[2, 3],
        "smallest_eigenvalue": np.linalg.eigvalsh(g)[0],
        "r_squared_3": 1.0 - scores_given(g, [2], [0, 1]).covariance.item(),
    }


def estimate(roles, outputs, y, rng: np.random.Generator, sweeps: int) -> dict:
    """Fit every estimator of ``roles`` to the same outputs; returns ``{"role:quantity":
    value}``."""
    row = {}
    for role in roles:
        found = fitted(estimator(role, rng, sweeps), outputs, y)
        numbers = describe(found.parameters_.correlation) | {"converged": float(found.converged_)}
        row |= {f"{role}:{name}": float(value) for name, value in numbers.items()}
    return row


def replicate_distortion(c: dict, stream: np.random.SeedSequence) -> dict:
    """One replication: draw a truth, distort its scores, estimate; optionally recalibrate each
    eye's scores first."""
    rng = np.random.default_rng(stream)
    gamma = (
        theory.EXCHANGEABLE_CORRELATION if c["correlation"] == "exchangeable" else TEXT_CORRELATION
    )
    draw = theory.draw_scores(c["n"], rng, gamma, c["sd"], c["score_correlation"])
    scores = theory.distort(draw, c["distortion"], c["strength"], rng)
    if c["recalibrate"]:
        other = theory.draw_scores(c["n"], rng, gamma, c["sd"], c["score_correlation"])
        calibration = theory.distort(other, c["distortion"], c["strength"], rng)
        scores = theory.recalibrate(scores, calibration, other.y)
    outputs = theory.outputs_from_scores(scores)
    row = covariances(outputs, draw.outputs, draw.y)
    return row | estimate(c["estimators"], outputs, draw.y, rng, c["sweeps"])


def covariances(outputs, truth, y) -> dict:
    """What the definition and the premises of Propositions 1 and 2 look at."""
    measured = theory.stronger_covariance(outputs, truth)
    return {
        "cov34": measured.estimated[2, 3],
        "true_cov34": measured.truth[2, 3],
        "ratio12": measured.ratio[0, 1],
        "ratio34": measured.ratio[2, 3],
        "concordant_labels": float((y[:, 2] == y[:, 3]).mean()),
    }


def replicate_linear(c: dict, stream: np.random.SeedSequence) -> dict:
    """One replication of the linear model: in-sample and cross-fitted estimates, and their held-out
    log-likelihood."""
    rng = np.random.default_rng(stream)
    draw = theory.draw_linear_eyes(c["n"] + c["n_test"], c["features"], rng)
    train, test = (
        draw.subset(np.arange(c["n"])),
        draw.subset(np.arange(c["n"], c["n"] + c["n_test"])),
    )

    def fit(eyes):
        return theory.fit_linear(eyes, c["shared"])

    model = fit(train)
    inputs = {
        "in-sample": model(train),
        "cross-fitted": theory.cross_fit(train, fit, c["folds"], rng),
    }
    return compare_inputs(c, inputs, train, test, model(test), rng)


def compare_inputs(c, inputs, train, test, test_outputs, rng) -> dict:
    """Estimate from each kind of outputs; keep the covariance ratios and the log-likelihood of new
    patients."""
    row = {}
    for kind, outputs in inputs.items():
        found = covariances(outputs, theory.outputs_from_scores(train.scores), train.y)
        found |= estimate(c["estimators"], outputs, train.y, rng, c["sweeps"])
        scale = (train.y - outputs)[:, :2].std(axis=0)
        found["sigma"] = float(scale.mean())
        names = ("r12", "r13", "r14", "r23", "r24", "r34")
        values = {role: [found[f"{role}:{name}"] for name in names] for role in c["estimators"]}
        for role, numbers in (values | {"independence": np.zeros(6)}).items():
            gamma = from_off_diagonal(numbers, 4)
            found[f"{role}:test_log_likelihood"] = held_out(test_outputs, test.y, gamma, scale)
        row |= {f"{kind}:{name}": value for name, value in found.items()}
    return row


def held_out(outputs, y, correlation, scale) -> float:
    """Mean log-likelihood per patient of new patients under given copula parameters."""
    # the loss refuses a near-singular matrix; a user would shrink it as its message says, and so is
    # done here
    parameters = CopulaParameters(
        theory.tensor(correlation), theory.tensor(scale), validate=False
    ).shrink()
    return float(log_density(theory.tensor(outputs), theory.tensor(y), parameters).mean())


def replicate_network(c: dict, stream: np.random.SeedSequence) -> dict:
    """One replication of the network: estimates at each checkpoint, from training and from
    cross-fitted outputs."""
    rng = np.random.default_rng(stream)
    draw = theory.draw_linear_eyes(c["n"] + c["n_test"], c["features"], rng)
    train, test = (
        draw.subset(np.arange(c["n"])),
        draw.subset(np.arange(c["n"], c["n"] + c["n_test"])),
    )
    seeds = rng.integers(2**31, size=c["folds"] + 1)
    runs = {
        s: (a, b)
        for s, a, b in theory.train_network(
            train, test, c["checkpoints"], int(seeds[0]), c["width"]
        )
    }
    crossed = {step: np.empty_like(train.y) for step in c["checkpoints"]}
    for seed, fold in zip(
        seeds[1:], np.array_split(rng.permutation(c["n"]), c["folds"]), strict=True
    ):
        rest = train.subset(np.setdiff1d(np.arange(c["n"]), fold))
        for step, _, outputs in theory.train_network(
            rest, train.subset(fold), c["checkpoints"], int(seed), c["width"]
        ):
            crossed[step][fold] = outputs
    row = {}
    for step, (inside, outside) in runs.items():
        inputs = {"in-sample": inside, "cross-fitted": crossed[step]}
        error = np.abs(outside[:, :2] - test.y[:, :2]).mean()
        numbers = compare_inputs(c, inputs, train, test, outside, rng) | {
            "test_error": float(error)
        }
        row |= {f"{step}:{name}": value for name, value in numbers.items()}
    return row


def _distortion(**changes) -> dict:
    return {
        "distortion": "none",
        "strength": 0.0,
        "correlation": "toy",
        "sd": 1.0,
        "score_correlation": 0.5,
        "n": 2000,
        "recalibrate": False,
        "sweeps": 0,
        "replications": 10,
        "estimators": [
            "maximum-likelihood",
            "exact-em",
            "fmcem",
            "fmcem-bivariate",
            "score-correlation",
        ],
    } | changes


def gallery_settings(smoke: bool) -> list[dict]:
    """Every distortion at every strength."""
    size = {"n": 150, "replications": 2} if smoke else {}
    return [_distortion(**size)] + [
        _distortion(distortion=d.name, strength=k, **size)
        for d in theory.DISTORTIONS.values()
        for k in d.strengths[1 if smoke else 0 : 2 if smoke else None]
    ]


def sampler_settings(smoke: bool) -> list[dict]:
    """Chosen distortions, with the two samplers beside maximum likelihood."""
    roles = ["maximum-likelihood", "exact-em", "gibbs", "posterior"]
    chosen = [
        ("none", 0.0),
        ("shared-noise", 1.0),
        ("constant-shift", 1.0),
        ("scaling", 2.0),
        ("label-tracking", 0.5),
    ]
    size = (
        {"n": 200, "replications": 1, "sweeps": 200}
        if smoke
        else {"n": 1000, "replications": 5, "sweeps": 6000}
    )
    return [
        _distortion(distortion=d, strength=k, estimators=roles, **size)
        for d, k in chosen[: 2 if smoke else None]
    ]


def singularity_settings(smoke: bool) -> list[dict]:
    """Label tracking under the exchangeable Gamma, with other readings of Algorithm 2 beside it,
    and well separated classes without any distortion."""
    roles = ["maximum-likelihood", "exact-em", "fmcem"]
    readings = ["fmcem-100", "fmcem-bivariate", "fmcem-maximised", "fmcem-variances"]
    size = {"n": 200, "replications": 2} if smoke else {"n": 4000, "replications": 10}
    tracked = [0.0, 1.0] if smoke else [0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0]
    spread = [2.0] if smoke else [0.5, 1.0, 2.0, 3.0, 5.0, 10.0]
    return [
        _distortion(
            distortion="label-tracking",
            strength=k,
            correlation="exchangeable",
            estimators=roles + readings,
            **size,
        )
        for k in tracked
    ] + [_distortion(sd=sd, estimators=roles, **size) for sd in spread]


def recalibration_settings(smoke: bool) -> list[dict]:
    """The same distortions before and after each eye's scores were recalibrated on other
    patients."""
    chosen = [
        ("none", 0.0),
        ("constant-shift", 1.0),
        ("scaling", 2.0),
        ("shared-noise", 1.0),
        ("label-tracking", 0.5),
        ("own-latent-tracking", 0.5),
        ("averaging", 1.0),
    ]
    size = {"n": 150, "replications": 2} if smoke else {"n": 4000, "replications": 10}
    return [
        _distortion(
            distortion=d,
            strength=k,
            recalibrate=r,
            estimators=["maximum-likelihood", "exact-em"],
            **size,
        )
        for d, k in chosen[: 2 if smoke else None]
        for r in (False, True)
    ]


def linear_settings(smoke: bool) -> list[dict]:
    """Features per eye from few to a quarter of n, weights shared between the eyes or separate.

    With many more, a cross-fitted probit model meets separated classes and its scores have no mean
    to report.
    """
    base = {
        "n": 1000,
        "n_test": 2000,
        "folds": 5,
        "replications": 20,
        "sweeps": 0,
        "estimators": ["maximum-likelihood", "fmcem"],
    }
    base |= {"n": 200, "n_test": 200, "replications": 2} if smoke else {}
    grid = (4, 40) if smoke else (5, 50, 100, 175, 250)
    return [base | {"features": p, "shared": shared} for shared in (True, False) for p in grid]


def network_settings(smoke: bool) -> list[dict]:
    """A small network from its first steps to past interpolation."""
    tiny = {"n": 100, "n_test": 100, "replications": 1, "checkpoints": [20, 100], "folds": 2}
    base = {
        "n": 500,
        "n_test": 2000,
        "features": 20,
        "width": 128,
        "folds": 5,
        "replications": 10,
        "sweeps": 0,
        "checkpoints": [20, 50, 100, 200, 400, 800, 1500],
        "estimators": ["maximum-likelihood", "fmcem"],
    }
    return [base | (tiny if smoke else {})]


def summarise(columns: dict[str, list]) -> dict:
    """Mean and standard error over replications of every column."""
    table = pd.DataFrame(columns, dtype=float)
    found = {"mean": table.mean(skipna=False), "se": table.sem(skipna=False)}
    return pd.DataFrame(found).to_dict("index")


def record_of(records: list[dict], **wanted) -> dict:
    """Return the one record whose settings have the wanted values."""
    (found,) = (r for r in records if r["configuration"] | wanted == r["configuration"])
    return found


def estimates_table(records: list[dict], roles: Sequence[str], settings: list[str]) -> pd.DataFrame:
    """Estimates of rho34 with their standard errors: a row a record, named by some of its settings,
    a column an estimator."""
    table = {}
    for record in records:
        found = {ROLES[role]: record["metrics"][f"{role}:r34"] for role in roles}
        table[tuple(record["configuration"][name] for name in settings)] = {
            words: f"{each['mean']:.3f} ({each['se'] or np.nan:.3f})"
            for words, each in found.items()
        }
    return pd.DataFrame(table).T.rename_axis(settings).sort_index()


def study(name: str, settings: Callable, replicate: Callable) -> Study:
    """Return the study of a list of settings, each replicated; all share one root seed."""

    def fits(scale: str) -> list[tuple[dict, int]]:
        return [(configuration, SEED) for configuration in settings(scale == "smoke")]

    def fit(configuration: dict, seed: int, scale: str) -> dict:
        columns = replications(replicate, configuration, seed)
        return {"metrics": summarise(columns), "columns": columns}

    return Study(name, fits, fit, device="cpu")


STUDIES = {
    each.name: each
    for each in (
        study("score-distortions", gallery_settings, replicate_distortion),
        study("posterior-samplers", sampler_settings, replicate_distortion),
        study("fmcem-singularity", singularity_settings, replicate_distortion),
        study("recalibration", recalibration_settings, replicate_distortion),
        study("overfitting-linear", linear_settings, replicate_linear),
        study("overfitting-network", network_settings, replicate_network),
    )
}
"""Name -> :class:`studies.study.Study`."""
