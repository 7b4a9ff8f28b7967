"""Copies on the CPU."""

import numpy as np

from kernelmark import Launch, kernel
from kernels._threads import in_bands
from kernels.copy.problem import CopyOperands, CopyProblem


@kernel("copy", provider="numpy", device="cpu", numerics="exact", modules=("numpy",))
def copyto(problem: CopyProblem, x: CopyOperands) -> Launch:
    """NumPy copyto on one thread."""
    return lambda: np.copyto(x.b, x.a)


@kernel("copy", provider="numpy", device="cpu", numerics="exact", modules=("numpy",), threaded=True)
def threaded(problem: CopyProblem, x: CopyOperands) -> Launch:
    """NumPy copyto in bands of rows, one a thread."""
    return in_bands(problem.m, x.threads, lambda i, j: lambda: np.copyto(x.b[i:j], x.a[i:j]))
