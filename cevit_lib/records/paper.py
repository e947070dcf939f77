"""The numbers that the paper prints, each with its place."""

import json

from cevit_lib.errors import ProvenanceError
from cevit_lib.paths import results_folder


def paper_numbers(name: str) -> dict:
    """Return ``results/paper/NAME.json``: what the paper prints, under ``"place"`` where it prints
    it.

    Examples
    --------
    >>> paper_numbers("toy_example")["gamma_true"]["value"][0][1]
    0.72

    Raises
    ------
    ProvenanceError
        There is no such file; the message lists those that exist.
    """
    folder = results_folder() / "paper"
    path = folder / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(found.stem for found in folder.glob("*.json"))) or "none"
        raise ProvenanceError(
            f"{path} does not exist; the paper's numbers that are stored: {known}"
        )
    return json.loads(path.read_text("utf-8"))
