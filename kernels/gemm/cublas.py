"""cuBLAS, for row-major and for column-major operands.

The plain kernels compute the row-major problem without a copy, as C^T = op(B)^T op(A)^T in column-major terms. Their
NT is the call (OP_T, OP_N). The founding texts (docs/claims.md) name this call op_T, and Caffe's caffe_gpu_gemm makes
it for A x B^T (src/caffe/util/math_functions.cu). The `_colmajor` kernels read the same buffers as column-major
matrices, and so compute another product; their NT is the call (OP_N, OP_T).
"""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from kernelmark import DTYPES, Launch, kernel, split_dtype
from kernelmark.kernels._cuda import INT_LIMIT, rows_of_16_bytes
from kernelmark.kernels._launches import in_turn
from kernelmark.kernels.gemm import _cublas
from kernelmark.kernels.gemm._groups import GROUPED
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
    matrices = {}
    for operand in problem.operands():
        pointer, rows = getattr(x, operand.name).data.ptr, operand.shape[-2]
        ld = operand.ld if order == "C" else rows
        matrices[operand.name] = _Matrix(ops[operand.name], int(pointer), ld, rows * operand.ld)
    return matrices


def _arguments(problem: GemmProblem, x: GemmOperands, order: str, scalar: str, types: bool) -> list[Any]:
    """Return the arguments after the handle: row-major C (m x n) is column-major C^T (n x m), with A and B swapped."""
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
    """A routine: its names for one product and for a batch, the type of its scalars, and GemmEx's last arguments."""

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


def _groups(problem: GemmProblem, x: GemmOperands) -> Iterator[tuple[GemmProblem, Any]]:
    """Yield a product and its operands for each group that has rows."""
    a, b, c = problem.operands()
    for group, (first, end) in enumerate(pairwise(problem.group_rows)):
        places = (a, first * a.ld), (b, group * b.shape[-2] * b.ld), (c, first * c.ld)
        pointers = {o.name: getattr(x, o.name).data.ptr + place * DTYPES[o.dtype].itemsize for o, place in places}
        arrays = {name: SimpleNamespace(data=SimpleNamespace(ptr=pointer)) for name, pointer in pointers.items()}
        if end > first:
            product = msgspec.structs.replace(problem, m=end - first, groups=1, grouping="none")
            yield product, SimpleNamespace(stream=x.stream, **arrays)


def gemm(problem: GemmProblem, x: GemmOperands) -> Launch:
    """Return the launch of SGEMM or DGEMM, row-major."""
    return _launch(_SGEMM if problem.dtype == "f32" else _DGEMM, problem, x, "C")


def fits_ints(problem: GemmProblem) -> str | None:
    """Return why a call with 32-bit sizes cannot take `problem`, or None."""
    largest = problem.largest
    return None if largest <= INT_LIMIT else f"{largest} does not fit cuBLAS's int, expected at most {INT_LIMIT}"


def unpadded(problem: GemmProblem) -> str | None:
    """Return why `problem` cannot be read as column-major, or None."""
    if problem.lda_pad or problem.ldb_pad or problem.ldc_pad:
        return "reads the buffers as column-major, where rows have no padding; use lda, ldb and ldc without padding"
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
_ROWS = "row-major: NT is the call (OP_T, OP_N), as in Caffe"
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


_OF_GROUPS: dict[str, Any] = _CUBLAS | {
    "groupings": GROUPED,
    "layouts": ("NN", "NT"),
    "numerics": {"f64": "fp64", "f32": "fp32", **HALF["numerics"]},
    "supports": fits_ints,
}


@kernel("gemm", dtypes=("f64", "f32", *HALF["dtypes"]), **_OF_GROUPS)
def loop(problem: GemmProblem, x: GemmOperands) -> Launch:
    """SGEMM, DGEMM or GemmEx of cuBLAS with COMPUTE_32F, called for one group after another."""
    routine = {"f32": _SGEMM, "f64": _DGEMM}.get(problem.dtype, _GEMMEX)
    return in_turn(*(_launch(routine, product, operands, "C") for product, operands in _groups(problem, x)))


def _aligned(problem: GemmProblem) -> str | None:
    """Return why GemmGroupedBatchedEx cannot take `problem`, or None; m1n1k1 in f16 led to a misaligned address."""
    return fits_ints(problem) or (rows_of_16_bytes(problem) if problem.dtype in ("f16", "bf16") else None)


@kernel("gemm", dtypes=("f64", "f32", "f16", "bf16"), **_OF_GROUPS | {"supports": _aligned})
def grouped(problem: GemmProblem, x: GemmOperands) -> Launch:
    """GemmGroupedBatchedEx of cuBLAS with COMPUTE_32F or COMPUTE_64F, a group for each B."""
    blas, scalar = _cublas.handle_of(x), "f8" if problem.dtype == "f64" else "f4"
    calls = [_arguments(product, operands, "C", scalar, types=True) for product, operands in _groups(problem, x)]
    op_a, op_b, m, n, k, _, a, (type_a, *_), lda, b, (type_b, *_), ldb, _, c, (type_c, *_), ldc = zip(
        *calls, strict=True
    )
    # The addresses of matrices lie on the device, all else in the host's memory.
    tables = [x.scratch((len(calls),), "f64") for _ in range(3)]
    for table, addresses in zip(tables, (a, b, c), strict=True):
        table.set(np.array(addresses, np.uint64).view(np.float64))
    at_a, at_b, at_c = (int(table.data.ptr) for table in tables)

    def each(*values: float, kind: str = "i4") -> int:
        return int(_cublas.host_array(values, kind).ctypes.data)

    alpha, beta = (each(*[value] * len(calls), kind=scalar) for value in (problem.alpha, problem.beta))
    matrices = (at_a, type_a, each(*lda), at_b, type_b, each(*ldb), beta, at_c, type_c, each(*ldc))
    sizes = [each(*values) for values in (op_a, op_b, m, n, k)]
    computed = _cublas.COMPUTE_64F if problem.dtype == "f64" else _cublas.COMPUTE_32F
    ones = each(*[1] * len(calls))
    return partial(blas.api.gemm_grouped_batched_ex, blas.handle, *sizes, alpha, *matrices, len(calls), ones, computed)
