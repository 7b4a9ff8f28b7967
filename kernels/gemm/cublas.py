"""cuBLAS, in both conventions.

The plain kernels compute the row-major problem without a copy, as C^T = op(B)^T op(A)^T in column-major terms: NT is
the call (OP_T, OP_N), which Caffe's caffe_gpu_gemm makes for A x B^T (src/caffe/util/math_functions.cu), and which the
founding texts mean by op_T. The `_colmajor` kernels read the same buffers as column-major matrices, which is another
product: their NT is the call (OP_N, OP_T).
"""

from functools import partial
from typing import Any, NamedTuple

from kernelmark import Launch, kernel, split_dtype
from kernelmark.kernels._cuda import INT_LIMIT
from kernelmark.kernels.gemm import _cublas
from kernelmark.kernels.gemm.handwritten import F32, HALF
from kernelmark.kernels.gemm.problem import GemmOperands, GemmProblem

_DEFAULT_ALGO = -1  # CUBLAS_GEMM_DEFAULT


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
    """Arguments after the handle: row-major C (m x n) is column-major C^T (n x m), with A and B in turned places."""
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


class _Routine(NamedTuple):
    """A routine: its names for one product and for a batch, the type of its scalars, what GemmEx takes at the end."""

    name: str
    batched: str
    scalar: str
    computed: tuple[int, ...] = ()


_SGEMM = _Routine("sgemm", "sgemm_strided_batched", "f4")
_DGEMM = _Routine("dgemm", "dgemm_strided_batched", "f8")
_GEMMEX = _Routine("gemm_ex", "gemm_strided_batched_ex", "f4", (_cublas.COMPUTE_32F, _DEFAULT_ALGO))
_GEMMEX_TF32 = _GEMMEX._replace(computed=(_cublas.COMPUTE_32F_FAST_TF32, _DEFAULT_ALGO))


def _launch(routine: _Routine, problem: GemmProblem, x: GemmOperands, order: str) -> Launch:
    blas = _cublas.handle_of(x)
    function = getattr(blas.api, routine.batched if problem.batch > 1 else routine.name)
    arguments = _arguments(problem, x, order, routine.scalar, types=bool(routine.computed))
    return partial(function, blas.handle, *arguments, *routine.computed)


def gemm(problem: GemmProblem, x: GemmOperands) -> Launch:
    """SGEMM or DGEMM, row-major."""
    return _launch(_SGEMM if problem.dtype == "f32" else _DGEMM, problem, x, "C")


def fits_ints(problem: GemmProblem) -> str | None:
    """Why a call with 32-bit sizes cannot take `problem`, or None."""
    largest = problem.largest
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
    "library_scratch": lambda problem: _cublas.WORKSPACE_BYTES,
    "library_version": _cublas.described,
}
_FP64: dict[str, Any] = F32 | {"dtypes": ("f64",), "numerics": "fp64"}
_TF32: dict[str, Any] = F32 | {"numerics": "tf32"}
_ROWS = "row-major: NT is the call (OP_T, OP_N), as Caffe makes it"
_COLUMNS = "on the same buffers read as column-major: NT is the call (OP_N, OP_T)"

_KERNELS: tuple[tuple[str, _Routine, dict[str, Any], str], ...] = (
    ("sgemm", _SGEMM, F32, f"SGEMM of cuBLAS in FP32 throughout, {_ROWS}."),
    ("dgemm", _DGEMM, _FP64, f"DGEMM of cuBLAS, {_ROWS}."),
    ("gemmex", _GEMMEX, HALF, f"GemmEx of cuBLAS on 16-bit operands with COMPUTE_32F, {_ROWS}."),
    ("gemmex_tf32", _GEMMEX_TF32, _TF32, f"GemmEx of cuBLAS on FP32 operands with COMPUTE_32F_FAST_TF32, {_ROWS}."),
    ("sgemm_colmajor", _SGEMM, F32, f"SGEMM of cuBLAS {_COLUMNS}."),
    ("dgemm_colmajor", _DGEMM, _FP64, f"DGEMM of cuBLAS {_COLUMNS}."),
    ("gemmex_colmajor", _GEMMEX, HALF, f"GemmEx of cuBLAS with COMPUTE_32F {_COLUMNS}."),
    (
        *("gemmex_tf32_colmajor", _GEMMEX_TF32, _TF32),
        f"GemmEx of cuBLAS with COMPUTE_32F_FAST_TF32 {_COLUMNS}.",
    ),
)


def _declare(name: str, routine: _Routine, declared: dict[str, Any], label: str) -> None:
    columns = name.endswith("_colmajor")
    order = "F" if columns else "C"

    @kernel(
        "gemm", name=name, label=label, order=order, supports=unpadded if columns else fits_ints, **declared, **_CUBLAS
    )
    def set_up(problem: GemmProblem, x: GemmOperands) -> Launch:
        return _launch(routine, problem, x, order)


for _kernel in _KERNELS:
    _declare(*_kernel)
