"""cuBLAS, in both conventions.

The plain kernels serve the row-major problem through the transposed column-major call, C^T = op(B)^T op(A)^T, without
a copy; the `_colmajor` ones read the same buffers as column-major and make the literal call of their layout (NT is
OP_N, OP_T).
"""

from functools import partial
from typing import Any, NamedTuple

from kernelmark import Launch, kernel, split_dtype
from kernels._cuda import INT_LIMIT
from kernels.gemm import _cublas
from kernels.gemm.problem import GemmOperands, GemmProblem

# Values of cublas_api.h.
_COMPUTE_32F, _COMPUTE_32F_FAST_TF32 = 68, 77
_DEFAULT_ALGO = -1


class _Matrix(NamedTuple):
    """An operand as cuBLAS sees it: operation, address, leading dimension, batch stride, all in elements."""

    op: int
    pointer: int
    ld: int
    stride: int


def _matrices(problem: GemmProblem, x: GemmOperands, order: str) -> dict[str, _Matrix]:
    ops = {"a": _cublas.OP[problem.op_a], "b": _cublas.OP[problem.op_b], "c": _cublas.OP["N"]}
    found = {}
    for operand in problem.operands():
        pointer, rows = getattr(x, operand.name).data.ptr, operand.shape[-2]
        ld = operand.ld if order == "C" else rows
        found[operand.name] = _Matrix(ops[operand.name], int(pointer), ld, rows * operand.ld)
    return found


def _arguments(problem: GemmProblem, x: GemmOperands, order: str, scalar: str, types: bool) -> list[Any]:
    """Arguments behind the handle: row-major C (m x n) is column-major C^T (n x m), with A and B in turned places."""
    matrices, batched = _matrices(problem, x, order), problem.batch > 1
    first, second = (matrices["b"], matrices["a"]) if order == "C" else (matrices["a"], matrices["b"])
    m, n = (problem.n, problem.m) if order == "C" else (problem.m, problem.n)
    stored, result = (_cublas.CUDA_R[dtype] for dtype in split_dtype(problem.dtype))

    def matrix(which: _Matrix, kind: int) -> list[int]:
        return [which.pointer, *([kind] if types else []), which.ld, *([which.stride] if batched else [])]

    alpha, beta = (_cublas.host_scalar(value, scalar).ctypes.data for value in (problem.alpha, problem.beta))
    inputs = [*matrix(first, stored), *matrix(second, stored)]
    outputs = [*matrix(matrices["c"], result), *([problem.batch] if batched else [])]
    return [first.op, second.op, m, n, problem.k, alpha, *inputs, beta, *outputs]


def _gemm(name: str, scalar: str, problem: GemmProblem, x: GemmOperands, order: str) -> Launch:
    blas = _cublas.handle_of(x)
    routine = getattr(blas.api, f"{name}_strided_batched" if problem.batch > 1 else name)
    return partial(routine, blas.handle, *_arguments(problem, x, order, scalar, types=False))


def _gemm_ex(compute: int, problem: GemmProblem, x: GemmOperands, order: str) -> Launch:
    blas = _cublas.handle_of(x)
    routine = blas.api.gemm_strided_batched_ex if problem.batch > 1 else blas.api.gemm_ex
    arguments = _arguments(problem, x, order, "f4", types=True)
    return partial(routine, blas.handle, *arguments, compute, _DEFAULT_ALGO)


def fits_ints(problem: GemmProblem) -> str | None:
    """Why a call with 32-bit sizes cannot take `problem`, or None."""
    largest = max(problem.m, problem.n, problem.k, problem.batch, *(operand.ld for operand in problem.operands()))
    return None if largest <= INT_LIMIT else f"{largest} does not fit cuBLAS's int, expected at most {INT_LIMIT}"


def unpadded(problem: GemmProblem) -> str | None:
    """Why a column-major reading cannot take `problem`, or None."""
    if problem.lda_pad or problem.ldb_pad or problem.ldc_pad:
        return "reads the buffers column by column, which have no padding that way; take lda, ldb and ldc without it"
    return fits_ints(problem)


_CUBLAS: dict[str, Any] = {
    "provider": "cublas",
    "device": "cuda",
    "modules": ("cupy",),
    "layouts": ("NN", "NT", "TN", "TT"),
    "library_scratch": lambda problem: _cublas.WORKSPACE_BYTES,
    "library_version": _cublas.described,
}
_ROWS: dict[str, Any] = {**_CUBLAS, "supports": fits_ints}
_COLUMNS: dict[str, Any] = {**_CUBLAS, "supports": unpadded, "order": "F"}
_HALF: dict[str, Any] = {"dtypes": ("f16", "bf16", "f16.f32", "bf16.f32"), "numerics": {"f16": "f16", "bf16": "bf16"}}
_TF32: dict[str, Any] = {"dtypes": ("f32",), "numerics": "tf32"}


@kernel("gemm", dtypes=("f32",), numerics="fp32", **_ROWS)
def sgemm(problem: GemmProblem, x: GemmOperands) -> Launch:
    """SGEMM of cuBLAS in FP32 throughout, row-major through the transposed call."""
    return _gemm("sgemm", "f4", problem, x, "C")


@kernel("gemm", dtypes=("f64",), numerics="fp64", **_ROWS)
def dgemm(problem: GemmProblem, x: GemmOperands) -> Launch:
    """DGEMM of cuBLAS, row-major through the transposed call."""
    return _gemm("dgemm", "f8", problem, x, "C")


@kernel("gemm", **_HALF, **_ROWS)
def gemmex(problem: GemmProblem, x: GemmOperands) -> Launch:
    """GemmEx of cuBLAS on 16-bit operands with COMPUTE_32F, row-major through the transposed call."""
    return _gemm_ex(_COMPUTE_32F, problem, x, "C")


@kernel("gemm", **_TF32, **_ROWS)
def gemmex_tf32(problem: GemmProblem, x: GemmOperands) -> Launch:
    """GemmEx of cuBLAS on FP32 operands with COMPUTE_32F_FAST_TF32, row-major through the transposed call."""
    return _gemm_ex(_COMPUTE_32F_FAST_TF32, problem, x, "C")


@kernel("gemm", dtypes=("f32",), numerics="fp32", **_COLUMNS)
def sgemm_colmajor(problem: GemmProblem, x: GemmOperands) -> Launch:
    """SGEMM of cuBLAS on the same buffers read as column-major, so that NT is the literal (OP_N, OP_T)."""
    return _gemm("sgemm", "f4", problem, x, "F")


@kernel("gemm", dtypes=("f64",), numerics="fp64", **_COLUMNS)
def dgemm_colmajor(problem: GemmProblem, x: GemmOperands) -> Launch:
    """DGEMM of cuBLAS on the same buffers read as column-major, so that NT is the literal (OP_N, OP_T)."""
    return _gemm("dgemm", "f8", problem, x, "F")


@kernel("gemm", **_HALF, **_COLUMNS)
def gemmex_colmajor(problem: GemmProblem, x: GemmOperands) -> Launch:
    """GemmEx of cuBLAS with COMPUTE_32F on the same buffers read as column-major: NT is the literal (OP_N, OP_T)."""
    return _gemm_ex(_COMPUTE_32F, problem, x, "F")


@kernel("gemm", **_TF32, **_COLUMNS)
def gemmex_tf32_colmajor(problem: GemmProblem, x: GemmOperands) -> Launch:
    """GemmEx of cuBLAS with COMPUTE_32F_FAST_TF32 on the same buffers read as column-major: NT is (OP_N, OP_T)."""
    return _gemm_ex(_COMPUTE_32F_FAST_TF32, problem, x, "F")
