"""Strategies on a GPU, each declared as one kernel: transpose B first for C = A x B^T, or update in two steps.

They are compared with `gemm/cublas.sgemm` itself, which computes the product with OP_T, and the update with alpha = -lr
and beta = 1.
"""

from types import SimpleNamespace
from typing import Any

import msgspec

from kernelmark import Launch, kernel
from kernelmark.kernels._launches import in_turn
from kernelmark.kernels.gemm import _cublas, cublas
from kernelmark.kernels.gemm.cpu import plain
from kernelmark.kernels.gemm.problem import GemmOperands, GemmProblem

_CUBLAS: dict[str, Any] = {
    "provider": "cublas",
    "device": "cuda",
    "dtypes": ("f32", "f64"),
    "supports": lambda problem: plain(problem) or cublas.fits_ints(problem),
    "library_scratch": lambda problem: _cublas.WORKSPACE_BYTES,
    "library_version": _cublas.described,
}
_NT: dict[str, Any] = {**_CUBLAS, "layouts": ("NT",)}
_OWN: dict[str, Any] = {"modules": ("cupy", "cuda.core")}


@kernel("gemm", modules=("cupy",), **_NT)
def tnn_geam(problem: GemmProblem, x: GemmOperands) -> Launch:
    """B transposed out of place by cuBLAS geam, then cuBLAS as NN."""
    turned = x.scratch((problem.k, problem.n), problem.dtype)
    transpose = _cublas.geam(x, problem.dtype, problem.k, problem.n, 1.0, x.b, "T", 0.0, turned)
    return in_turn(transpose, _multiply(problem, x, turned))


@kernel("gemm", **_NT, **_OWN)
def tnn(problem: GemmProblem, x: GemmOperands) -> Launch:
    """B transposed out of place by kernelmark's vectorised kernel, then cuBLAS as NN."""
    turned = x.scratch((problem.k, problem.n), problem.dtype)
    shape = f"transpose/m{problem.n}n{problem.k}/{problem.dtype}/out"
    transpose = x.launch("transpose/cuda.vectorised", shape, a=x.b, b=turned)
    return in_turn(transpose, _multiply(problem, x, turned))


@kernel("gemm", **_NT, **_OWN)
def inplace(problem: GemmProblem, x: GemmOperands) -> Launch:
    """B transposed in place by kernelmark's kernel, cuBLAS as NN, B transposed back."""
    n, k, dtype = problem.n, problem.k, problem.dtype
    name = "transpose/cuda.vectorised_inplace" if n == k else "transpose/cuda.c2r"
    there = x.launch(name, f"transpose/m{n}n{k}/{dtype}/in", a=x.b)
    back = x.launch(name, f"transpose/m{k}n{n}/{dtype}/in", a=x.b)
    return in_turn(there, _multiply(problem, x, x.b), back)


@kernel("gemm", layouts=("TN",), betas=(1.0,), modules=("cupy",), **_CUBLAS)
def two_step(problem: GemmProblem, x: GemmOperands) -> Launch:
    """GEMM of cuBLAS to scratch, then C += alpha * product by geam: separate gradient and update."""
    product = x.scratch((problem.m, problem.n), problem.dtype)
    gradient = msgspec.structs.replace(problem, alpha=1.0, beta=0.0)
    multiply = cublas.gemm(gradient, SimpleNamespace(a=x.a, b=x.b, c=product, stream=x.stream))
    update = _cublas.geam(x, problem.dtype, problem.m, problem.n, problem.alpha, product, "N", 1.0, x.c)
    return in_turn(multiply, update)


def _multiply(problem: GemmProblem, x: GemmOperands, turned: Any) -> Launch:
    """Return a launch of the product as NN, with `turned` (k x n) instead of B."""
    plain_product = msgspec.structs.replace(problem, layout="NN")
    return cublas.gemm(plain_product, SimpleNamespace(a=x.a, b=turned, c=x.c, stream=x.stream))
