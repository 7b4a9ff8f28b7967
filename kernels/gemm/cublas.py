"""cuBLAS, in both conventions.

The plain kernels serve the row-major problem through the transposed column-major call, C^T = op(B)^T op(A)^T, without
a copy; the `_colmajor` ones read the same buffers as column-major and make the literal call of their layout (NT is
OP_N, OP_T). Called through nvmath's bindings or, where those are absent, by ctypes in the library that CuPy uses:
CuPy's own wrappers set the stream at every call, which drops the workspace and forbids graph capture.
"""

import ctypes
import importlib.util
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from kernelmark import Launch, Unsupported, kernel, split_dtype
from kernels._cuda import INT_LIMIT
from kernels.gemm.problem import GemmOperands, GemmProblem

WORKSPACE_BYTES = 32 * 2**20  # what cuBLAS advises for Hopper
# Values of cublas_api.h and library_types.h.
_OP = {"N": 0, "T": 1}
_CUDA_R = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}
_COMPUTE_32F, _COMPUTE_32F_FAST_TF32 = 68, 77
_DEFAULT_ALGO = -1
#: No TF32 in sgemm, and no 16-bit partial sums in GemmEx: CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION.
_MATH_MODE = 16


class _Ctypes:
    """The routines of nvmath.bindings.cublas that are used here, by their names there."""

    def __init__(self) -> None:
        import cuda.pathfinder as pathfinder

        try:
            self._library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
        except pathfinder.DynamicLibNotFoundError:
            raise Unsupported(
                "found no libcublas; pip install 'kernelmark[gpu]', or install a CUDA 13 toolkit"
            ) from None
        p, i, s, z = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong, ctypes.c_size_t
        head, matrix, typed = (p, i, i, i, i, i, p), (p, i), (p, i, i)
        self.set_stream = self._routine("cublasSetStream_v2", p, p)
        self.set_workspace = self._routine("cublasSetWorkspace_v2", p, p, z)
        self.set_math_mode = self._routine("cublasSetMathMode", p, i)
        for name in ("sgemm", "dgemm"):
            routine = self._routine(f"cublas{name.capitalize()}_v2", *head, *matrix, *matrix, p, *matrix)
            batched = self._routine(
                f"cublas{name.capitalize()}StridedBatched", *head, *matrix, s, *matrix, s, p, *matrix, s, i
            )
            setattr(self, name, routine)
            setattr(self, f"{name}_strided_batched", batched)
            add = self._routine(f"cublas{name[0].upper()}geam", p, i, i, i, i, p, p, i, p, p, i, p, i)
            setattr(self, name[0] + "geam", add)
        self.gemm_ex = self._routine("cublasGemmEx", *head, *typed, *typed, p, *typed, i, i)
        self.gemm_strided_batched_ex = self._routine(
            "cublasGemmStridedBatchedEx", *head, *typed, s, *typed, s, p, *typed, s, i, i, i
        )

    def get_version(self, handle: int) -> int:
        version = ctypes.c_int()
        self._routine("cublasGetVersion_v2", ctypes.c_void_p, ctypes.c_void_p)(handle, ctypes.byref(version))
        return version.value

    def create(self) -> int:
        handle = ctypes.c_void_p()
        self._routine("cublasCreate_v2", ctypes.c_void_p)(ctypes.byref(handle))
        return handle.value or 0

    def _routine(self, name: str, *argtypes: Any) -> Any:
        routine = getattr(self._library, name)
        routine.argtypes, routine.restype, routine.errcheck = argtypes, ctypes.c_int, _check
        return routine


def _check(status: int, routine: Any, arguments: tuple[Any, ...]) -> None:
    if status:
        raise RuntimeError(f"{routine.__name__} returned cuBLAS status {status}, expected 0")


class _CuBlas(NamedTuple):
    """The bindings, the process's handle, and its workspace (kept alive here)."""

    api: Any
    handle: int
    workspace: Any


def binding() -> str:
    """`nvmath` or `ctypes`: through what cuBLAS is called here."""
    return "nvmath" if importlib.util.find_spec("nvmath") else "ctypes"


@lru_cache
def described(problem: object) -> str:
    """`cublas 13.0.2 by nvmath`: the library's version and how it is called."""
    blas = _cublas()
    version = blas.api.get_version(blas.handle)
    return f"cublas {version // 10000}.{version // 100 % 100}.{version % 100} by {binding()}"


@lru_cache
def _cublas() -> _CuBlas:
    import cupy

    if binding() == "nvmath":
        from nvmath.bindings import cublas as api
    else:
        api = _Ctypes()
    handle = api.create()
    api.set_math_mode(handle, _MATH_MODE)
    return _CuBlas(api, handle, cupy.empty(WORKSPACE_BYTES, cupy.uint8))


def _handle(x: GemmOperands) -> _CuBlas:
    """The handle on the stream of `x`; cuBLAS forgets the workspace when the stream is set."""
    blas = _cublas()
    blas.api.set_stream(blas.handle, x.stream.ptr)
    blas.api.set_workspace(blas.handle, blas.workspace.data.ptr, WORKSPACE_BYTES)
    return blas


@lru_cache
def _scalar(value: float, dtype: str) -> Any:
    """A host scalar that lives as long as the process, since launches hold its address only."""
    return np.array(value, dtype)


class _Matrix(NamedTuple):
    """An operand as cuBLAS sees it: operation, address, leading dimension, batch stride, all in elements."""

    op: int
    pointer: int
    ld: int
    stride: int


def _matrices(problem: GemmProblem, x: GemmOperands, order: str) -> dict[str, _Matrix]:
    ops = {"a": _OP[problem.op_a], "b": _OP[problem.op_b], "c": _OP["N"]}
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
    stored, result = (_CUDA_R[dtype] for dtype in split_dtype(problem.dtype))

    def matrix(which: _Matrix, kind: int) -> list[int]:
        return [which.pointer, *([kind] if types else []), which.ld, *([which.stride] if batched else [])]

    alpha, beta = (_scalar(value, scalar).ctypes.data for value in (problem.alpha, problem.beta))
    inputs = [*matrix(first, stored), *matrix(second, stored)]
    outputs = [*matrix(matrices["c"], result), *([problem.batch] if batched else [])]
    return [first.op, second.op, m, n, problem.k, alpha, *inputs, beta, *outputs]


def _gemm(name: str, scalar: str, problem: GemmProblem, x: GemmOperands, order: str) -> Launch:
    blas = _handle(x)
    routine = getattr(blas.api, f"{name}_strided_batched" if problem.batch > 1 else name)
    return partial(routine, blas.handle, *_arguments(problem, x, order, scalar, types=False))


def geam(x: GemmOperands, dtype: str, m: int, n: int, alpha: float, a: Any, op_a: str, beta: float, c: Any) -> Launch:
    """Row-major C (m x n) = alpha op(A) + beta C, both without padding; in place where beta is not 0."""
    blas, scalar = _handle(x), {"f32": "f4", "f64": "f8"}[dtype]
    factors = [_scalar(value, scalar).ctypes.data for value in (alpha, beta)]
    pointer, ld = int(c.data.ptr), n if op_a == "N" else m
    source = (int(a.data.ptr), ld)
    routine = getattr(blas.api, "sgeam" if dtype == "f32" else "dgeam")
    return partial(routine, blas.handle, _OP[op_a], 0, n, m, factors[0], *source, factors[1], pointer, n, pointer, n)


def _gemm_ex(compute: int, problem: GemmProblem, x: GemmOperands, order: str) -> Launch:
    blas = _handle(x)
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
    "library_scratch": lambda problem: WORKSPACE_BYTES,
    "library_version": described,
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
