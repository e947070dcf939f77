"""The studies of the compendium: the version of each recipe, how a record is fitted again, and how close it must come.

Raise a version by hand when a change of code could move the numbers of a study: its older records then count as
outdated and no page draws them. A study is one line in each of the first three tables, added by its owner; a study of
speed alone has no refit.
"""

# study -> recipe version
RECIPES: dict[str, int] = {
    "formula-checks": 1,
    "score-distortions": 1,
    "posterior-samplers": 1,
    "fmcem-singularity": 1,
    "recalibration": 1,
    "overfitting-linear": 1,
    "overfitting-network": 1,
    "encoder-speed": 1,
    "encoder-size": 1,
    "normal-accuracy": 1,
    "training-speed": 1,
    "likelihood-speed": 1,
    "embedding": 1,
    "toy-example": 1,
    "toy-unbiased": 1,
    "toy-signal": 1,
    "toy-readings": 1,
    "linear-overfit": 1,
    "estimation-speed": 1,
    "simulation": 1,
    "simulation-adapters": 1,
    "simulation-from-scratch": 1,
    "simulation-tuning": 1,
    "simulation-size": 1,
    "simulation-equal-steps": 1,
    "simulation-strength": 1,
    "simulation-overfitting": 1,
    "fit-grape": 1,
    "fit-synthetic": 1,
    "fit-table": 1,
    "axial-length": 1,
    "axial-length-thresholds": 1,
    "axial-length-missing": 1,
    "ablation": 1,
    "ablation-transductive": 1,
    "ablation-tuning": 1,
    "ablation-predecessors": 1,
    "ablation-references": 1,
    "ablation-probe": 1,
    "ablation-pretraining": 1,
}

# study -> "module:function"; the function takes a record and returns a fresh one (see ``cevit_lib.verify``)
REFITS: dict[str, str] = {
    "formula-checks": "cevit_lib.studies.formula_checks:refit",
    "score-distortions": "cevit_lib.studies.stronger_covariance:refit",
    "posterior-samplers": "cevit_lib.studies.stronger_covariance:refit",
    "fmcem-singularity": "cevit_lib.studies.stronger_covariance:refit",
    "recalibration": "cevit_lib.studies.stronger_covariance:refit",
    "overfitting-linear": "cevit_lib.studies.stronger_covariance:refit",
    "overfitting-network": "cevit_lib.studies.stronger_covariance:refit",
    "encoder-size": "cevit_lib.studies.encoder_size:refit",
    "toy-example": "cevit_lib.studies.toy_example:refit",
    "toy-unbiased": "cevit_lib.studies.toy_example:refit",
    "toy-signal": "cevit_lib.studies.toy_example:refit",
    "toy-readings": "cevit_lib.studies.toy_example:refit",
    "linear-overfit": "cevit_lib.studies.overfit:refit",
    "simulation": "cevit_lib.studies.simulation:refit",
    "simulation-adapters": "cevit_lib.studies.simulation:refit",
    "simulation-from-scratch": "cevit_lib.studies.simulation:refit",
    "simulation-tuning": "cevit_lib.studies.simulation:refit",
    "simulation-size": "cevit_lib.studies.simulation:refit",
    "simulation-equal-steps": "cevit_lib.studies.simulation:refit",
    "simulation-strength": "cevit_lib.studies.simulation:refit",
    "simulation-overfitting": "cevit_lib.studies.simulation:refit",
    "fit-grape": "cevit_lib.fit:refit",
    "fit-synthetic": "cevit_lib.fit:refit",
    "fit-table": "cevit_lib.fit:refit",
    "ablation": "cevit_lib.studies.ablation:refit",
    "ablation-transductive": "cevit_lib.studies.ablation:refit",
    "ablation-references": "cevit_lib.studies.ablation:refit",
    "ablation-predecessors": "cevit_lib.studies.ablation:refit",
    "ablation-probe": "cevit_lib.studies.ablation:refit",
    "axial-length": "cevit_lib.studies.axial_length:refit",
    "axial-length-thresholds": "cevit_lib.studies.axial_length:refit",
    "axial-length-missing": "cevit_lib.studies.axial_length:refit",
}

# study -> what makes its records; where there is none, the message tells the reader to look for the page that owns it
MAKERS: dict[str, str] = {
    "training-speed": "python -m benchmarks.training --full-fit --two-gpus --grid --deterministic",
    "encoder-speed": "python -m benchmarks.encoder --device cuda",
    "encoder-size": "python -m cevit_lib.studies.encoder_size",
    "embedding": "python -m cevit_lib.studies.embedding --device cuda",
    "normal-accuracy": "python -m benchmarks.normal --record",
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
    "estimation-speed": "python -m benchmarks.estimation",
    "simulation": "python -m cevit_lib.studies.simulation --study simulation",
    "simulation-adapters": "python -m cevit_lib.studies.simulation --study simulation-adapters",
    "simulation-from-scratch": "python -m cevit_lib.studies.simulation --study simulation-from-scratch",
    "simulation-tuning": "python -m cevit_lib.studies.simulation --study simulation-tuning",
    "simulation-size": "python -m cevit_lib.studies.simulation --study simulation-size",
    "simulation-equal-steps": "python -m cevit_lib.studies.simulation --study simulation-equal-steps",
    "simulation-strength": "python -m cevit_lib.studies.simulation --study simulation-strength",
    "simulation-overfitting": "python -m cevit_lib.studies.simulation --study simulation-overfitting",
    "fit-grape": "cevit fit --data grape",
    "fit-synthetic": "cevit fit --data synthetic",
    "fit-table": "cevit fit --csv TABLE --images FOLDER --layout FILE.yml",
    "axial-length": "python -m cevit_lib.studies.axial_length",
    "axial-length-thresholds": "python -m cevit_lib.studies.axial_length",
    "axial-length-missing": "python -m cevit_lib.studies.axial_length",
    "ablation": "python -m cevit_lib.studies.ablation --study ablation",
    "ablation-transductive": "python -m cevit_lib.studies.ablation --study ablation-transductive",
    "ablation-tuning": "python -m cevit_lib.studies.ablation --study ablation-tuning",
    "ablation-predecessors": "python -m cevit_lib.studies.ablation --study ablation-predecessors",
    "ablation-references": "python -m cevit_lib.studies.ablation --study ablation-references",
    "ablation-probe": "python -m cevit_lib.studies.ablation --study ablation-probe",
    "ablation-pretraining": "python -m cevit_lib.studies.ablation_pretraining",
}

# study -> {place of a number, or its beginning: largest difference}; only where the spread of seeds will not do
TOLERANCES: dict[str, dict[str, float]] = {
}

# study -> keys of its configuration that only number repetitions; records that differ in nothing else are its spread
REPLICATES: dict[str, tuple[str, ...]] = {
    study: ("dataset", "fold") for study in RECIPES if study.startswith("simulation")
}
