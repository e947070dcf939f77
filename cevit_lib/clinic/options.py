"""What the commands on one's own data can be told, and what they take otherwise.

Imported before any command runs, so nothing heavy is imported here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cevit_lib.edge import at_least

COUNT, SEED, RATE = at_least(1), at_least(0), at_least(1e-12, whole=False)
LEVEL = at_least(0.01, False, 0.999)
#: A Vision Transformer for a laptop's processor.
TINY = {"embed_dim": 64, "depth": 3, "num_heads": 2}
#: Word after ``--estimator`` -> class of :mod:`cevit_lib.estimation`.
ESTIMATORS = {
    "exact-em": "ExactEM",
    "fast-mcem": "FastMCEM",
    "monte-carlo-em": "MonteCarloEM",
    "maximum-likelihood": "MaximumLikelihood",
    "gaussian-score": "GaussianScoreCorrelation",
    "pairwise": "PairwiseLikelihood",
}
#: What one fit holds: the warm-up, and from it the same epochs without and with the copula loss.
ARMS = ("warm-up", "empirical, same epochs", "copula")
_PHOTOGRAPHS: dict[str, Any] = {
    "size": 48,
    "epochs": 40,
    "copula_epochs": 10,
    "learning_rate": 1e-3,
    "copula_learning_rate": 1e-4,
    "batch_size": 24,
    "estimate_on": "cross-fitted",
}
#: Data set -> settings that an option leaves open.
DEFAULTS: dict[str, dict[str, Any]] = {
    "grape": _PHOTOGRAPHS,
    "table": _PHOTOGRAPHS,
    "synthetic": {
        "window": 12,
        "epochs": 15,
        "copula_epochs": 6,
        "learning_rate": 2e-3,
        "copula_learning_rate": 3e-4,
        "batch_size": 64,
        "estimate_on": "held-out",
    },
}
FULL_SIZE = 224  # pixels, of every backbone but the tiny one, unless the layout says otherwise


def add_fit_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cevit fit``."""
    _add_data_arguments(parser)
    _add_network_arguments(parser)
    _add_training_arguments(parser)
    _add_run_arguments(parser)


def _add_network_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--backbone",
        default="tiny",
        help="'tiny' (a small ViT trained in full, for a CPU), any timm ViT name, "
        "hf-hub:OWNER/NAME or local-dir:FOLDER",
    )
    add(
        "--pretrained",
        action="store_true",
        help="load timm's weights of that name (needs internet or timm's cache)",
    )
    add(
        "--weights",
        type=Path,
        help="file with the backbone's weights: timm's, RETFound's, an MAE's, DINOv2's or DINOv3's",
    )
    for name, number in (("mean", at_least(0, False, 1)), ("std", at_least(1e-12, False, 1))):
        add(
            f"--{name}",
            type=number,
            nargs="+",
            help=f"the {name} by which the weights' images were normalised, of red, green, blue in "
            "[0, 1] (default: the backbone's; for RETFound, MAE and DINO files ImageNet's)",
        )
    add(
        "--adapters",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="residual adapters, one set per eye",
    )
    add(
        "--lora-rank",
        type=SEED,
        help="rank of LoRA, 0 trains in full (default: 0 without weights, else 8)",
    )


def _add_training_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--algorithm",
        choices=("feasible", "one-stage"),
        default="feasible",
        help="the paper's Algorithm 3, or the copula loss from the start, its parameters estimated "
        "after every epoch (--epochs, --learning-rate)",
    )
    add("--epochs", type=COUNT, help="epochs of the warm-up")
    add("--copula-epochs", type=COUNT, help="epochs under the copula loss (and of the control)")
    add("--learning-rate", type=RATE, help="of the warm-up")
    add("--copula-learning-rate", type=RATE, help="of the copula stage")
    add("--batch-size", type=COUNT, help="patients per step")
    add(
        "--rotation",
        type=at_least(0, False, 180),
        default=0.0,
        help="photographs are turned anew in every step, up to so many degrees to either side",
    )
    add(
        "--colour",
        type=at_least(0, False, 1),
        default=0.0,
        help="their brightness, contrast and saturation change by up to this share, as 0.2",
    )
    add(
        "--estimator",
        choices=sorted(ESTIMATORS),
        help="of the copula parameters (default: exact-em, in one stage maximum-likelihood, for "
        "more than four labels pairwise)",
    )
    add("--max-iter", type=COUNT, help="most iterations of the estimator (default: its own)")
    add(
        "--estimate-on", choices=("held-out", "train", "cross-fitted"), help="whose outputs it sees"
    )
    add(
        "--preset",
        choices=("paper",),
        help="the paper's recipes, fMCEM on training residuals, raw units",
    )


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--folds", type=at_least(2), default=5, help="of the cross-validation by patient")
    add(
        "--fold",
        type=COUNT,
        action="append",
        help="only this fold, counted from 1; may be repeated (default: all)",
    )
    add(
        "--final",
        action="store_true",
        help="after the folds one fit on all patients, saved as all (needs --save)",
    )
    add("--seed", type=SEED, default=0, help="root seed of split, weights and order")
    add(
        "--device",
        default="auto",
        help="auto, cpu, cuda, cuda:1, ...; of several, by commas, one that is free",
    )
    add(
        "--share",
        type=COUNT,
        default=1,
        help="fits that may use one of several devices at the same time",
    )
    add(
        "--checkpoint",
        type=Path,
        help="folder for the state of unfinished fits; the same command goes on from there",
    )
    add("--accumulation", type=COUNT, help="parts in which a batch is computed, for less memory")
    add(
        "--compile",
        action="store_true",
        help="compile the network (worth its minute on an accelerator)",
    )
    add("--deterministic", action="store_true", help="bit-equal reruns on one device, at a cost")
    add(
        "--scale",
        choices=("paper", "smoke"),
        default="paper",
        help="a smoke record is never published",
    )
    add(
        "--results",
        type=Path,
        help="folder of the records (default: cevit-results here, for smoke the scratch folder; "
        "the book's own are in results)",
    )
    add(
        "--table",
        type=Path,
        help="CSV file for the predictions, one row a patient (default: beside the records)",
    )
    add("--level", type=LEVEL, default=0.9, help="of the prediction intervals in that table")
    add("--save", type=Path, help="folder for the trained models, one per fold")


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the commands that use a saved model have in common."""
    add = parser.add_argument
    add("--model", type=Path, required=True, help="a model that 'cevit fit --save' wrote")
    _add_table_arguments(parser, table=True, images=True)
    add("--level", type=LEVEL, default=0.9, help="of the prediction intervals")
    add("--weights", type=Path, help="the backbone's weights, if the model was built with a file")
    add("--device", default="auto", help="auto, cpu, cuda, ...")


def add_predict_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cevit predict``."""
    add_model_arguments(parser)
    add = parser.add_argument
    add(
        "--measured",
        nargs="?",
        const="all",
        metavar="EYE",
        help="also update by the responses that the table holds: of both eyes, or of one, OS or OD "
        "(the other's are not looked at)",
    )
    add("--table", type=Path, required=True, help="CSV file for the predictions")


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cevit report``."""
    add = parser.add_argument
    add("--results", type=Path, required=True, help="folder of the records that 'cevit fit' wrote")
    add("--study", default="fit-table", help="whose records (default: those of one's own table)")
    add(
        "--level",
        type=LEVEL,
        default=0.9,
        help="of the prediction intervals whose coverage is counted",
    )
    _add_stated(parser)
    add("--output", type=Path, required=True, help="HTML file, complete in itself")


def _add_stated(parser: argparse.ArgumentParser) -> None:
    def named(number: Callable[[str], float]) -> Callable[[str], tuple[str, float]]:
        return lambda word: (word.rpartition("=")[0], number(word.rpartition("=")[2]))

    parser.add_argument(
        "--within",
        action="append",
        type=named(at_least(1e-12, False)),
        metavar="NAME=LIMIT",
        help="error that is small enough, in units of the response, as AL=0.5 (default: half its "
        "SD); may be repeated",
    )
    parser.add_argument(
        "--prevalence",
        action="append",
        type=named(at_least(1e-12, False, 1)),
        metavar="NAME=SHARE",
        help="share of positives where predictive values are wanted, as HM=0.05 (default: that "
        "of the patients); may be repeated",
    )


def add_evaluate_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cevit evaluate``."""
    add_model_arguments(parser)
    _add_stated(parser)
    add = parser.add_argument
    add("--output", type=Path, help="HTML file (default: evaluation-TABLE.html here)")


def _add_table_arguments(parser: argparse.ArgumentParser, table: bool, images: bool) -> None:
    add = parser.add_argument
    add(
        "--csv",
        type=Path,
        required=table,
        help="one's own table: CSV or .xlsx, one row a patient or one row an eye",
    )
    add(
        "--images",
        required=images,
        help="folder of its photographs; of GRAPE roi (optic-nerve-head crops, default) or cfp",
    )
    add("--layout", type=Path, help="YAML file that names the table's columns, rules and codes")


def _add_data_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--data", choices=("grape", "synthetic"), help="data set of the book; or give --csv")
    _add_table_arguments(parser, table=False, images=False)
    add("--data-folder", type=Path, help="folder of the data set (default: CEVIT_DATA/grape)")
    add("--size", type=COUNT, help="height and width of photographs in pixels")
    add("--mirror", action="store_true", help="flip left eyes onto right ones")
    add("--n", type=COUNT, help="synthetic: number of patients (default: 2000)")
    add(
        "--window",
        type=COUNT,
        help="synthetic: pixels kept of each side, 9 to 72 (the paper: 72; default 12)",
    )


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cevit check-data``."""
    _add_table_arguments(parser, table=True, images=False)
    add = parser.add_argument
    add(
        "--model",
        type=Path,
        help="a saved model whose patients these are to be: its layout, no responses needed",
    )
    add(
        "--folds",
        type=at_least(2),
        help="also print the characteristics of so many folds by patient",
    )
    add("--seed", type=SEED, default=0, help="of the division into folds")
    add("--strict", action="store_true", help="warnings count as errors")


def add_download_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cevit download``."""
    add = parser.add_argument
    add("name", choices=("grape", "papila", "uwhvf"), help="data set")
    add("--folder", type=Path, help="where to put it (default: CEVIT_DATA/NAME)")
    add("--list", action="store_true", help="print files, sizes and checksums, and fetch none")
    add(
        "--only",
        action="append",
        metavar="PATTERN",
        help="only files of such names, as '*.xlsx'; may be repeated",
    )


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``cevit doctor``."""
    parser.add_argument(
        "--no-devices", action="store_true", help="do not ask torch which devices it sees (faster)"
    )
