"""What Propositions 1 and 2 assume, beside rho34 > 0: a counter-example has to satisfy all of
it."""

PREMISES = {
    "Cov(q3, q4) > 0": ("true_cov34", 0.0),
    "Cov of the plug-in scores > 0": ("cov34", 0.0),
    "their ratio > 1": ("ratio34", 1.0),
    "share of equal labels > 1/2": ("concordant_labels", 0.5),
}
"""Premise in words -> column of a Monte Carlo record, and the bound that it has to exceed."""


def premises(metrics: dict, prefix: str = "") -> dict[str, tuple[float, bool]]:
    """Check the premises on the columns of a record.

    Parameters
    ----------
    metrics : dict
        Columns with their ``mean`` and ``se`` over replications.
    prefix : str
        In front of a column's name, such as ``"1500:cross-fitted:"``.

    Returns
    -------
    dict
        Premise in words -> its number, and whether that exceeds the bound by two standard errors.
    """
    found = {}
    for words, (name, bound) in PREMISES.items():
        column = metrics[prefix + name]
        found[words] = column["mean"], column["mean"] - 2 * (column["se"] or 0.0) > bound
    return found
