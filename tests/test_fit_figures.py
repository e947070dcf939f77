"""What the page on training draws from the simulation's records, from a planted one."""

import numpy as np

from studies.fit import figures


def planted(*arms: str) -> dict:
    """A record of four epochs; the estimate of arm k has every correlation at k tenths."""
    matrices = {arm: np.full((4, 4), 0.1 * k) for k, arm in enumerate(arms, start=1)}
    parameters = {arm: {"correlation": matrix.tolist()} for arm, matrix in matrices.items()}
    trace = {"rho12": [0.5, 0.6, 0.7, 0.75], "rho34": [0.1, 0.2, 0.3, 0.4]}
    return {"parameters": parameters, "trace": {"one stage": trace}}


def test_estimates_stand_at_the_epoch_after_which_they_were_made():
    whole = planted("one stage", "algorithm 3, paper", "algorithm 3, paper, further")
    rows = figures.estimates_by_epoch([whole, planted("one stage", "algorithm 3, paper")])
    where = rows.set_index(["correlation", "method", "epoch"])["estimate"].round(9)
    for name, path in {"rho12": [0.5, 0.6, 0.7], "rho34": [0.1, 0.2, 0.3], "rho13": []}.items():
        own = where[name]["one stage"]
        assert own.groupby("epoch").agg(set).tolist() == [{value} for value in path] + [{0.1}]
        found = where[name]["Algorithm 3"].groupby("epoch").agg(list).to_dict()
        assert found == {2: [0.2, 0.2], 4: [0.3]}  # half-way in both, the longer one in one fold
