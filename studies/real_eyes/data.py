"""Pairs of real eyes without photographs: UWHVF, PAPILA, or invented patients of their shape."""

import os
from typing import Any

import numpy as np
import torch

from cevit_lib.copula import CopulaParameters
from cevit_lib.datasets import PairedEyes, load_papila, load_uwhvf
from cevit_lib.estimation.correlation import from_off_diagonal
from studies.real_eyes.model import design_of, draw_responses

INVENTED_SEED = 20261129
SCALES = {
    "age": lambda years: (years - 60) / 10,
    "female": lambda one: one,
    "years": lambda years: np.log2(years / 8),
    "tests": lambda tests: (tests - 7) / 5,
    "first_MD": lambda decibel: (decibel + 5) / 10,
}
"""Covariate -> as it stands in the design: 0 is a usual eye, 1 a step that a reader can picture."""

SHAPES = {
    "uwhvf": {
        "responses": ("slope", "falls"),
        "intercepts": (-0.2, -1.2),
        "scale": 0.5,
        "correlation": (0.5, -0.65, -0.35, -0.35, -0.65, 0.4),
    },
    "papila": {
        "responses": ("AL", "myopia"),
        "intercepts": (23.6, -0.7),
        "scale": 1.2,
        "correlation": (0.9, 0.5, 0.45, 0.45, 0.5, 0.85),
    },
}
"""Round numbers near those of the real tables; correlations rho12, rho13, rho14, rho23, rho24,
rho34.
"""


def load_eyes(source: str, missing: str = "drop", **limits: Any) -> PairedEyes:
    """Return the patients of one source: a length or a slope, and a label, of both eyes.

    Parameters
    ----------
    source : {"uwhvf", "papila", "invented uwhvf", "invented papila"}
    missing : {"drop", "keep"}
        ``"keep"``: patients of whom one eye only was measured are there, too.
    **limits
        Of the loader. ``cut`` makes the label a function of the number (1 at or below it; at or
        above it for a length), ``compress`` takes the number's inverse hyperbolic sine in steps of
        that size.
    """
    cut, compress = limits.pop("cut", None), limits.pop("compress", None)
    kind = source.split()[-1]
    if source.startswith("invented"):
        data = invented(kind, np.random.default_rng(INVENTED_SEED), 300)
        data = data.subset(data.complete) if missing == "drop" else data
    else:
        data = {"uwhvf": load_uwhvf, "papila": load_papila}[kind](missing=missing, **limits)
    y = data.y.clone()
    if cut is not None:
        y[:, 2:] = (y[:, :2] <= cut if kind == "uwhvf" else y[:, :2] >= cut).double()
    if compress is not None:
        y[:, :2] = torch.asinh(y[:, :2] / compress) * compress
    return data.replace(y=y)


def available(source: str, scale: str) -> str:
    """Return the source, or for a smoke run without its table invented patients of its shape."""
    here = os.path.isdir(os.path.join(os.environ.get("CEVIT_DATA", ""), source))
    return source if here or scale != "smoke" else f"invented {source}"


def covariates_of(data: PairedEyes) -> np.ndarray:
    """Return the covariates ``(n, 2, k)`` in the design's units; NaN for an eye not measured."""
    seen = torch.isfinite(data.y).reshape(-1, 2, 2).any(1)
    columns = data.covariates.where(seen[..., None], torch.nan).permute(2, 0, 1).numpy()
    scaled = [SCALES[name](c) for name, c in zip(data.covariate_names, columns, strict=True)]
    return np.stack(scaled, axis=2)


def invented(kind: str, rng: np.random.Generator, n: int) -> PairedEyes:
    """Return invented patients of the shape of a table, for a reader who does not have it.

    Of one in ten the left eye only was measured.
    """
    shape, age = SHAPES[kind], np.clip(rng.normal(61, 14, n), 18, 90).round()
    if kind == "uwhvf":
        years = rng.uniform(2, 18, n).round(1)
        tests = rng.integers(5, 16, n).astype(float)
        first = (-rng.gamma(1.2, 3.3, n)[:, None] - rng.gamma(1.0, 1.5, (n, 2))).round(1)
        names, each = ("age", "years", "tests", "first_MD"), [age, years, tests, first]
        effects = [[-0.04, 0.0, 0.0, 0.0], [0.2, 0.8, 0.3, -0.2]]
    else:
        names, each = ("age", "female"), [age, (rng.random(n) < 0.62).astype(float)]
        effects = [[-0.15, -0.7], [-0.3, -0.2]]
    columns = [np.broadcast_to(c[:, None], (n, 2)) if c.ndim == 1 else c for c in each]
    data = PairedEyes(
        None,
        torch.zeros(n, 4, dtype=torch.float64),
        tuple(f"{k:04}" for k in range(n)),
        tuple(f"{name}_{eye}" for name in shape["responses"] for eye in ("OS", "OD")),
        continuous=2,
        name=f"invented {kind}",
        covariates=torch.tensor(np.stack(columns, axis=2)),
        covariate_names=names,
    )
    b = np.column_stack([shape["intercepts"], effects]).ravel()
    outputs = torch.from_numpy(design_of(covariates_of(data), shared=True) @ b)
    gamma = from_off_diagonal(shape["correlation"], 4)
    parameters = CopulaParameters(gamma, [shape["scale"]] * 2)
    y = draw_responses(outputs, parameters, rng)
    lone = torch.from_numpy(rng.random(n) < 0.1)
    y[lone, 1], y[lone, 3] = torch.nan, torch.nan
    return data.replace(y=y)
