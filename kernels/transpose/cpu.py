"""Transpositions on the CPU: NumPy, and OpenBLAS's extensions."""

from typing import Any

import numpy as np

from kernelmark import Launch, kernel
from kernelmark.kernels._launches import in_bands, in_turn
from kernelmark.kernels._worth import threads_that_pay
from kernelmark.kernels.transpose._openblas import imatcopy as _imatcopy
from kernelmark.kernels.transpose._openblas import imatcopy_scratch
from kernelmark.kernels.transpose._openblas import omatcopy as _omatcopy
from kernelmark.kernels.transpose.problem import TransposeOperands, TransposeProblem


@kernel("transpose", provider="numpy", device="cpu", numerics="exact", modules=("numpy",), places=("out",))
def out(problem: TransposeProblem, x: TransposeOperands) -> Launch:
    """NumPy copyto from the transposed view, on one thread."""
    return lambda: np.copyto(x.b, x.a.swapaxes(-1, -2))


_OPENBLAS: dict[str, Any] = {
    "provider": "openblas",
    "device": "cpu",
    "numerics": "exact",
    "modules": ("numpy", "threadpoolctl"),
    "dtypes": ("f32", "f64"),
    "batchs": (1,),
}


@kernel("transpose", places=("out",), **_OPENBLAS)
def omatcopy(problem: TransposeProblem, x: TransposeOperands) -> Launch:
    """OpenBLAS omatcopy on one thread."""
    return _omatcopy(x.a, x.b, problem.dtype)


@kernel("transpose", places=("out",), threaded=True, **_OPENBLAS)
@threads_that_pay(compiled=False)
def omatcopy_threaded(problem: TransposeProblem, x: TransposeOperands) -> Launch:
    """OpenBLAS omatcopy in bands of the result's rows, one per thread."""
    return _omatcopy(x.a, x.b, problem.dtype, x.threads)


@kernel(
    "transpose",
    places=("in",),
    library_scratch=lambda p: imatcopy_scratch(p.m, p.n, p.dtype),
    **_OPENBLAS,
)
def imatcopy(problem: TransposeProblem, x: TransposeOperands) -> Launch:
    """OpenBLAS imatcopy on one thread; a rectangle is copied out and back."""
    return _imatcopy(x.a.ctypes.data, problem.m, problem.n, problem.dtype)


@kernel("transpose", places=("in",), threaded=True, **_OPENBLAS)
@threads_that_pay(compiled=False)
def omatcopy_and_back(problem: TransposeProblem, x: TransposeOperands) -> Launch:
    """OpenBLAS omatcopy to a full copy, which is then copied back, both on all threads."""
    b = x.scratch((problem.n, problem.m), problem.dtype)
    result, there = x.a.reshape(b.shape), _omatcopy(x.a, b, problem.dtype, x.threads)
    return in_turn(there, in_bands(problem.n, x.threads, lambda i, j: lambda: np.copyto(result[i:j], b[i:j])))
