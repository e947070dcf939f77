"""The studies of the compendium: the version of each recipe, how a record is fitted again, and how close it must come.

Raise a version by hand when a change of code could move the numbers of a study: its older records then count as
outdated and no page draws them. A study is one line in each of the first three tables, added by its owner; a study of
speed alone has no refit.
"""

# study -> recipe version
RECIPES: dict[str, int] = {
    "encoder-speed": 1,
    "embedding": 1,
    "fit-grape": 1,
    "fit-synthetic": 1,
}

# study -> "module:function"; the function takes a record and returns a fresh one (see ``cevit_lib.verify``)
REFITS: dict[str, str] = {
    "fit-grape": "cevit_lib.fit:refit",
    "fit-synthetic": "cevit_lib.fit:refit",
}

# study -> what makes its records; where there is none, the message tells the reader to look for the page that owns it
MAKERS: dict[str, str] = {
    "encoder-speed": "python -m benchmarks.encoder --device cuda",
    "likelihood-speed": "python -m benchmarks.likelihood --record",
    "formula-checks": "python -m cevit_lib.studies.formula_checks --scale paper",
    "linear-overfit": "python -m cevit_lib.studies.overfit",
    "score-distortions": "python -m cevit_lib.studies.stronger_covariance score-distortions",
    "posterior-samplers": "python -m cevit_lib.studies.stronger_covariance posterior-samplers",
    "fmcem-singularity": "python -m cevit_lib.studies.stronger_covariance fmcem-singularity",
    "recalibration": "python -m cevit_lib.studies.stronger_covariance recalibration",
    "overfitting-linear": "python -m cevit_lib.studies.stronger_covariance overfitting-linear",
    "overfitting-network": "python -m cevit_lib.studies.stronger_covariance overfitting-network",
    "toy-example": "python -m cevit_lib.studies.toy_example --study toy-example",
    "toy-unbiased": "python -m cevit_lib.studies.toy_example --study toy-unbiased",
    "toy-signal": "python -m cevit_lib.studies.toy_example --study toy-signal",
    "toy-readings": "python -m cevit_lib.studies.toy_example --study toy-readings",
    "fit-grape": "cevit fit --data grape",
    "fit-synthetic": "cevit fit --data synthetic",
}

# study -> {place of a number, or its beginning: largest difference}; only where the spread of seeds will not do
TOLERANCES: dict[str, dict[str, float]] = {
}
