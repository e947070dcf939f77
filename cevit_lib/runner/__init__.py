"""Notebooks run strictly: parameters checked before any work, success proved by the notebook's own
last cell.

A page begins with ``check_parameters`` (see there for the two cells) and ends with a cell tagged
``remove-cell``::

    finished()

``cevit run NOTEBOOK -p name value`` and ``run_notebook`` execute it (the latter two need the extra
``book``).
"""

import json
import os
import sys

from cevit_lib.runner.parameters import CHECKED, check_parameters, coerce, declared_parameters
from cevit_lib.runner.reads import watch_reads, write_reads
from cevit_lib.runner.run import HERE, NONCE, run_notebook

__all__ = ["check_parameters", "coerce", "declared_parameters", "finished", "run_notebook"]

watch_reads()


def finished() -> None:
    """Tell the runner that the notebook came to its end; the last cell of every page calls it.

    The runner puts a fresh nonce into the kernel's environment and believes in success only when
    this call prints it back, with the parameters as they were checked and where the library is.
    Without a runner (Jupyter, Colab, plain papermill) nothing is printed.
    """
    write_reads()
    if os.environ.get(NONCE):
        live = {"parameters": CHECKED, "library": str(HERE), "python": sys.prefix}
        print(f"finished {os.environ[NONCE]} {json.dumps(live, default=str)}")
