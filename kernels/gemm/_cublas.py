"""The cuBLAS library: its bindings, its handle, its workspace and the stream of its launches.

It is called through nvmath's bindings or, if these are absent, through ctypes in the library that CuPy uses. CuPy's own
wrappers set the stream at every call, which drops the workspace and prevents graph capture.
"""

import ctypes
import importlib
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from kernelmark import Launch, Unsupported
from kernelmark.kernels.gemm.problem import GemmOperands

WORKSPACE_BYTES = 32 * 2**20  # as cuBLAS recommends for Hopper
# Values of cublas_api.h and library_types.h.
OP = {"N": 0, "T": 1, "C": 2}
CUDA_R = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14, "e4m3": 28, "s8": 3, "s32": 10}
#: Values of cublasComputeType_t: FP32 sums, FP32 sums of operands rounded to TF32, FP64 sums, 32-bit integer sums.
COMPUTE_32F, COMPUTE_32F_FAST_TF32, COMPUTE_64F, COMPUTE_32I = 68, 77, 70, 72
#: No TF32 in sgemm, and no 16-bit partial sums in GemmEx: CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION.
_MATH_MODE = 16


class _Ctypes:
    """The routines of nvmath.bindings.cublas that kernelmark calls, under the same names."""

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
        self.cgemm3m_strided_batched = self._routine(
            "cublasCgemm3mStridedBatched", *head, *matrix, s, *matrix, s, p, *matrix, s, i
        )
        self.gemm_ex = self._routine("cublasGemmEx", *head, *typed, *typed, p, *typed, i, i)
        self.gemm_grouped_batched_ex = self._routine(
            "cublasGemmGroupedBatchedEx", *[p] * 8, i, p, p, i, p, p, p, i, p, i, p, i
        )
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


@lru_cache
def _nvmath() -> Any | None:
    """Return nvmath's bindings of cuBLAS, or None if they are absent or refuse the other packages' versions."""
    try:
        return importlib.import_module("nvmath.bindings.cublas")
    except Exception:  # a package of an incompatible version may raise anything
        return None


def binding() -> str:
    """Return `nvmath` or `ctypes`, the binding through which cuBLAS is called."""
    return "nvmath" if _nvmath() else "ctypes"


@lru_cache
def described(problem: object) -> str:
    """Return the library's version and the binding through which it is called: `cublas 13.0.2 by nvmath`."""
    blas = _cublas()
    version = blas.api.get_version(blas.handle)
    return f"cublas {version // 10000}.{version // 100 % 100}.{version % 100} by {binding()}"


@lru_cache
def _cublas() -> _CuBlas:
    import cupy

    api: Any = _nvmath() or _Ctypes()
    handle = api.create()
    api.set_math_mode(handle, _MATH_MODE)
    return _CuBlas(api, handle, cupy.empty(WORKSPACE_BYTES, cupy.uint8))


def handle_of(x: GemmOperands) -> _CuBlas:
    """Return the handle, set to the stream of `x`; its workspace is set again, since setting a stream removes it."""
    blas = _cublas()
    blas.api.set_stream(blas.handle, x.stream.ptr)
    blas.api.set_workspace(blas.handle, blas.workspace.data.ptr, WORKSPACE_BYTES)
    return blas


@cache
def host_scalar(value: complex, dtype: str) -> Any:
    """Return a host scalar that lives as long as the process, since launches hold only its address."""
    return np.array(value, dtype)


@cache
def host_array(values: tuple[float, ...], dtype: str) -> Any:
    """Return a host array that lives as long as the process."""
    return np.array(values, dtype)


def geam(x: GemmOperands, dtype: str, m: int, n: int, alpha: float, a: Any, op_a: str, beta: float, c: Any) -> Launch:
    """Return a launch that computes row-major C (m x n) = alpha op(A) + beta C, where A and C have no padding."""
    blas, scalar = handle_of(x), {"f32": "f4", "f64": "f8"}[dtype]
    factors = [host_scalar(value, scalar).ctypes.data for value in (alpha, beta)]
    pointer, ld = int(c.data.ptr), n if op_a == "N" else m
    source = (int(a.data.ptr), ld)
    routine = getattr(blas.api, "sgeam" if dtype == "f32" else "dgeam")
    return partial(routine, blas.handle, OP[op_a], 0, n, m, factors[0], *source, factors[1], pointer, n, pointer, n)


class Spectrum(NamedTuple):
    """A batch of column-major FP32 complex matrices: address, operation, leading dimension and batch stride."""

    pointer: int
    op: str
    ld: int
    stride: int


def cgemm3m(x: Any, size: tuple[int, int, int], batch: int, alpha: float, *matrices: Spectrum) -> Launch:
    """Return a launch of C (m x n) = alpha op(A) op(B) for a batch, with three real products per complex product."""
    blas, (a, b, c) = handle_of(x), matrices
    factors = [host_scalar(value, "c8").ctypes.data for value in (alpha, 0.0)]
    inputs = (a.pointer, a.ld, a.stride, b.pointer, b.ld, b.stride)
    output = (c.pointer, c.ld, c.stride)
    operations = (OP[a.op], OP[b.op])
    routine = blas.api.cgemm3m_strided_batched
    return partial(routine, blas.handle, *operations, *size, factors[0], *inputs, factors[1], *output, batch)
