"""GEMM on the CPU: NumPy, SciPy's BLAS, and strategies that transpose B before they compute C = A x B^T."""

from itertools import pairwise
from typing import Any

import numpy as np

from kernelmark import Launch, kernel
from kernelmark.kernels._launches import in_turn
from kernelmark.kernels.gemm._epilogue import EPILOGUES
from kernelmark.kernels.gemm._groups import GROUPED
from kernelmark.kernels.gemm._steps import Rows, finish
from kernelmark.kernels.gemm.problem import GemmOperands, GemmProblem
from kernelmark.kernels.transpose._openblas import imatcopy, imatcopy_scratch, omatcopy

_CPU: dict[str, Any] = {"device": "cpu", "modules": ("numpy",), "threaded": True}
_SCIPY: dict[str, Any] = {"device": "cpu", "provider": "scipy", "modules": ("scipy",), "threaded": True}
_REAL = ("f32", "f64")


def plain(problem: GemmProblem) -> str | None:
    """Return why a kernel for one dense product cannot take `problem`, or None."""
    if problem.batch > 1:
        return "has no batched path; use batch 1"
    if problem.lda_pad or problem.ldb_pad or problem.ldc_pad:
        return "would copy operands whose rows are padded; use lda, ldb and ldc without padding"
    return None


def multiply(a: Any, b: Any, problem: GemmProblem, x: GemmOperands, c: Any) -> Launch:
    """Return a launch of C = alpha a b + beta C, for a (m x k) and b (k x n).

    NumPy cannot accumulate, so beta needs scratch.
    """
    alpha, beta = problem.alpha, problem.beta
    if alpha == 1 and beta == 0:
        return lambda: np.matmul(a, b, out=c)
    product = x.scratch(c.shape, problem.dtype) if beta else c

    def launch() -> None:
        np.matmul(a, b, out=product)
        if alpha != 1:
            np.multiply(product, alpha, out=product)
        if beta not in (0, 1):
            np.multiply(c, beta, out=c)
        if beta:
            np.add(product, c, out=c)

    return launch


@kernel("gemm", provider="numpy", dtypes=_REAL, epilogues=("plain", *EPILOGUES), **_CPU)
def matmul(problem: GemmProblem, x: GemmOperands) -> Launch:
    """NumPy matmul into C, on the BLAS it was built with; then NumPy operations for beta or an epilogue."""
    a = np.swapaxes(x.a, -1, -2) if problem.op_a == "T" else x.a
    b = np.swapaxes(x.b, -1, -2) if problem.op_b == "T" else x.b
    if problem.epilogue == "plain":
        return multiply(a, b, problem, x, x.c)
    if problem.epilogue == "update":
        gradient, room = (x.scratch(x.c.shape, problem.dtype) for _ in range(2))
        rows = Rows(gradient, x.c, v=x.v, room=room)
    else:
        rows = Rows(x.c, x.c, bias=x.bias if problem.epilogue == "bias-relu" else None)
    return in_turn(multiply(a, b, problem, x, rows.x), finish(problem.epilogue, rows))


@kernel("gemm", provider="numpy", dtypes=_REAL, groupings=GROUPED, **_CPU)
def grouped(problem: GemmProblem, x: GemmOperands) -> Launch:
    """NumPy matmul for one group after another, on the BLAS it was built with; then NumPy operations for beta."""
    b = np.swapaxes(x.b, -1, -2) if problem.op_b == "T" else x.b
    groups = enumerate(pairwise(problem.group_rows))
    return in_turn(*(multiply(x.a[i:j], b[g], problem, x, x.c[i:j]) for g, (i, j) in groups if j > i))


@kernel("gemm", provider="numpy", dtypes=("s8.s32",), **_CPU)
def widened(problem: GemmProblem, x: GemmOperands) -> Launch:
    """8-bit integers converted to FP32 (FP64 if a sum may exceed 2^24); NumPy matmul; C converted back to integers."""
    kind = "f32" if problem.k <= 2**24 // 2**14 else "f64"
    a, b, c = (x.scratch(array.shape, kind) for array in (x.a, x.b, x.c))
    product = multiply(
        np.swapaxes(a, -1, -2) if problem.op_a == "T" else a,
        np.swapaxes(b, -1, -2) if problem.op_b == "T" else b,
        problem,
        x,
        c,
    )
    return in_turn(
        lambda: np.copyto(a, x.a),
        lambda: np.copyto(b, x.b),
        product,
        lambda: np.copyto(x.c, c, casting="unsafe"),
    )


@kernel("gemm", provider="numpy", dtypes=_REAL, layouts=("NT",), supports=plain, **_CPU)
def tnn(problem: GemmProblem, x: GemmOperands) -> Launch:
    """B transposed out of place by NumPy's copyto, then NumPy matmul as NN."""
    b = x.scratch((problem.k, problem.n), problem.dtype)
    return in_turn(lambda: np.copyto(b, x.b.T), multiply(x.a, b, problem, x, x.c))


@kernel("gemm", provider="openblas", name="tnn", dtypes=_REAL, layouts=("NT",), supports=plain, **_CPU)
def tnn_openblas(problem: GemmProblem, x: GemmOperands) -> Launch:
    """B transposed out of place by OpenBLAS omatcopy on all threads, then NumPy matmul as NN."""
    b = x.scratch((problem.k, problem.n), problem.dtype)
    return in_turn(omatcopy(x.b, b, problem.dtype, x.threads), multiply(x.a, b, problem, x, x.c))


@kernel(
    "gemm",
    provider="openblas",
    dtypes=_REAL,
    layouts=("NT",),
    supports=plain,
    library_scratch=lambda p: max(imatcopy_scratch(p.n, p.k, p.dtype), imatcopy_scratch(p.k, p.n, p.dtype)),
    **_CPU,
)
def inplace(problem: GemmProblem, x: GemmOperands) -> Launch:
    """B transposed in place by OpenBLAS imatcopy, NumPy matmul as NN, B transposed back."""
    n, k = problem.n, problem.k
    there = imatcopy(x.b.ctypes.data, n, k, problem.dtype)
    back = imatcopy(x.b.ctypes.data, k, n, problem.dtype)
    return in_turn(there, multiply(x.a, x.b.reshape(k, n), problem, x, x.c), back)


def _blas(routine: Any, problem: GemmProblem, x: GemmOperands, order: str) -> Launch:
    """Return a launch of the routine; row-major C = op(A) op(B) is C^T = op(B)^T op(A)^T on transposed views."""
    alpha, beta, trans_a, trans_b = problem.alpha, problem.beta, problem.op_a == "T", problem.op_b == "T"
    a, b, c = x.a, x.b, x.c
    if order == "C":
        a, b, c, trans_a, trans_b = b.T, a.T, c.T, trans_b, trans_a
    return lambda: routine(alpha, a, b, beta, c, trans_a, trans_b, 1)


_READ = {
    "C": "row-major without copies, on the OpenBLAS that SciPy brings: NT is the call (OP_T, OP_N), as in Caffe",
    "F": "on the same buffers read as column-major: NT is the call (OP_N, OP_T)",
}


def _declare(name: str, routine: str, dtype: str, order: str) -> None:
    label = f"SciPy's {routine} {_READ[order]}."

    @kernel("gemm", name=name, label=label, dtypes=(dtype,), order=order, supports=plain, **_SCIPY)
    def set_up(problem: GemmProblem, x: GemmOperands) -> Launch:
        from scipy.linalg import blas

        return _blas(getattr(blas, routine), problem, x, order)


for _routine, _dtype in (("sgemm", "f32"), ("dgemm", "f64")):
    _declare(_routine, _routine, _dtype, "C")
    _declare(f"{_routine}_colmajor", _routine, _dtype, "F")
