"""What each of two processes runs in test_accelerate; argument: a folder, into which the first one
writes.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from checkpoint_program import network

from cevit_lib.clinic import cli
from cevit_lib.datasets import SyntheticPairs
from cevit_lib.training import Recipe, fit_warm_up, predict_outputs, processes

FIT = [
    "fit",
    "--data",
    "synthetic",
    "--n",
    "90",
    "--window",
    "36",
    "--epochs",
    "2",
    "--copula-epochs",
    "1",
    "--fold",
    "1",
    "--lora-rank",
    "2",
    "--batch-size",
    "25",
    "--estimate-on",
    "train",
    "--scale",
    "smoke",
    "--device",
    "cpu",
]


def warm_up(checkpoint=None):
    """A warm-up of 41 patients in batches of 13 and 14: no share is as long as the other."""
    data = SyntheticPairs(41, np.random.default_rng(0), window=24)
    fit = fit_warm_up(
        network(dropout=0.0),
        data,
        Recipe(2, 1e-3, 14),
        rng=np.random.default_rng(5),
        validation=data.subset(np.arange(7)),
        device="cpu",
        checkpoint=checkpoint,
    )
    return fit, predict_outputs(fit, data, device="cpu")


def unreached():
    """A parameter that only the second process reaches still gets its gradient, and nothing waits
    for ever.
    """
    crew, weight = processes(), torch.nn.Parameter(torch.ones(2))
    other = torch.nn.Parameter(torch.ones(1))
    loss = (3 * weight).sum() + (5 * other).sum() if crew.index else (2 * weight).sum()
    loss.backward()
    crew.add_gradients([weight, other])
    return [weight.grad.tolist(), other.grad.tolist()]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    crew = processes()
    rows = crew.share(np.arange(5))
    found = {
        "unreached": unreached(),
        "joined": torch.cat(crew.everyone(torch.as_tensor(rows))).tolist(),
    }
    fit, outputs = warm_up(folder / "state")
    found |= {"trace": fit.trace, "outputs": outputs.tolist()}
    found["status"] = cli.main([*FIT, "--results", str(folder / f"results-{crew.index}")])
    (folder / f"found-{crew.index}.json").write_text(json.dumps(found))
