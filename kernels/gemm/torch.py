"""GEMM by PyTorch's CPU build: oneDNN for bfloat16, the BLAS that it was built with for other types."""

import re
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from kernelmark import Launch, kernel
from kernelmark.kernels.gemm.problem import GemmOperands, GemmProblem


@lru_cache
def _implementations() -> dict[GemmProblem, str]:
    """What ran for the problems that were set up in this process."""
    return {}


def _written_whole(problem: GemmProblem) -> str | None:
    if problem.dtype == "bf16" and problem.ldc_pad:
        return (
            f"ldc is padded by {problem.ldc_pad}, expected 0: PyTorch 2.13 left elements of such a bfloat16 C unwritten"
        )
    return None


@kernel(
    "gemm",
    provider="torch",
    device="cpu",
    dtypes=("f64", "f32", "bf16"),
    modules=("numpy", "torch"),
    threaded=True,
    supports=_written_whole,
    library_version=lambda p: _implementations()[p],
)
def matmul(problem: GemmProblem, x: GemmOperands) -> Launch:
    """PyTorch's product into C, with alpha and beta: bfloat16 operands are multiplied by oneDNN, and added in FP32."""
    from kernelmark.kernels._torch import implementation, on_threads, tensor

    a = tensor(np.swapaxes(x.a, -1, -2) if problem.op_a == "T" else x.a)
    b = tensor(np.swapaxes(x.b, -1, -2) if problem.op_b == "T" else x.b)
    known = _implementations()
    if problem not in known:
        known[problem] = implementation(on_threads(lambda: a @ b, x.threads), "matmul", _blas())
    return on_threads(_product(problem, a, b, tensor(x.c)), x.threads)


def _product(problem: GemmProblem, a: Any, b: Any, c: Any) -> Launch:
    if problem.alpha == 1 and problem.beta == 0:
        matmul = import_module("torch").matmul
        return lambda: matmul(a, b, out=c)
    add = c.baddbmm_ if problem.batch > 1 else c.addmm_
    return lambda: add(a, b, alpha=problem.alpha, beta=problem.beta)


def _blas() -> str:
    """`PyTorch's BLAS, mkl 2024.2`."""
    built = import_module("torch").__config__.show()
    name = re.search(r"BLAS_INFO=(\w+)", built)
    version = re.search(r"Math Kernel Library Version ([\d.]+)", built)
    return " ".join(["PyTorch's BLAS,", name[1] if name else "unknown", *(version.groups() if version else ())])
