"""Run the GPU kernel of the copula loss in Triton's interpreter, on the CPU: ``python
triton_program.py FILE``.

FILE holds a list of (outputs, y, table, missing); it is overwritten with the list of (value,
gradient), computed by the kernel for many rows, and for two cases by the one for few rows as well.
The interpreter knows no libdevice; SciPy's functions stand in for it.
"""

import os
import sys
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np  # noqa: E402
import torch  # noqa: E402
import triton.language as tl  # noqa: E402
from scipy import special  # noqa: E402
from triton.runtime.interpreter import TensorHandle  # noqa: E402

from cevit_lib.copula import kernel  # noqa: E402

FUNCTIONS = {
    "erfcx": special.erfcx,
    "erfinv": special.erfinv,
    "normcdfinv": special.ndtri,
    "tanh": np.tanh,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "atan2": np.arctan2,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


def stand_in(function):
    """Return a function of Triton tensors from one of arrays."""

    def call(*operands):
        data = function(*(operand.handle.data for operand in operands))
        return tl.tensor(TensorHandle(data, operands[0].dtype.scalar), operands[0].type)

    return call


kernel.libdevice = SimpleNamespace(
    **{name: stand_in(function) for name, function in FUNCTIONS.items()}
)

with np.errstate(all="ignore"):
    cases = torch.load(sys.argv[1])
    few = [kernel.launch(*case) for case in cases[:2]]
    kernel.FEW = 0
    found = [kernel.launch(*case) for case in cases]
for one, other in zip(few, found, strict=False):
    torch.testing.assert_close(
        one, other, rtol=1e-7 if one[0].dtype == torch.float32 else 1e-13, atol=1e-14
    )
torch.save(found, sys.argv[1])
