"""GEMM by PyTorch's CPU build: oneDNN for bfloat16 and integers, the BLAS that it was built with for other types."""

import re
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from kernelmark import DTYPES, Launch, kernel
from kernelmark.kernels.gemm._groups import GROUPED
from kernelmark.kernels.gemm.problem import GemmOperands, GemmProblem


@lru_cache
def _implementations() -> dict[GemmProblem, str]:
    """Return the implementations that ran, by problem, for the problems set up in this process."""
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
    """PyTorch's product into C, with alpha and beta; bfloat16 operands by oneDNN, with products added in FP32."""
    from kernelmark.kernels._torch import implementation, on_threads, tensor

    a = tensor(np.swapaxes(x.a, -1, -2) if problem.op_a == "T" else x.a)
    b = tensor(np.swapaxes(x.b, -1, -2) if problem.op_b == "T" else x.b)
    known = _implementations()
    if problem not in known:
        untimed = _product(problem, a, b, tensor(x.c.copy()))
        known[problem] = implementation(on_threads(untimed, x.threads), "matmul", _blas())
    return on_threads(_product(problem, a, b, tensor(x.c)), x.threads)


def _as_int_mm(problem: GemmProblem) -> str | None:
    if problem.batch > 1:
        return "has no batched path; use batch 1"
    if problem.ldc_pad:
        return f"ldc is padded by {problem.ldc_pad}, expected 0: C must be contiguous"
    turned = [name for name, op in (("m", problem.op_a), ("n", problem.op_b)) if op == "T"]
    if single := next((name for name in (*turned, "k") if turned and getattr(problem, name) == 1), None):
        return f"{single} is 1, expected more for a transposed operand: PyTorch 2.13 left C unwritten"
    return None


@kernel(
    "gemm",
    provider="torch",
    device="cpu",
    dtypes=("s8.s32",),
    modules=("numpy", "torch"),
    threaded=True,
    supports=_as_int_mm,
    library_version=lambda p: _implementations()[p],
)
def int_mm(problem: GemmProblem, x: GemmOperands) -> Launch:
    """PyTorch's torch._int_mm, which has no public equivalent: 8-bit integers by oneDNN, added in 32 bits."""
    from kernelmark.kernels._torch import implementation, on_threads, tensor

    multiply = import_module("torch")._int_mm
    a, b = tensor(x.a.T if problem.op_a == "T" else x.a), tensor(x.b.T if problem.op_b == "T" else x.b)
    c, known = tensor(x.c), _implementations()
    if problem not in known:
        known[problem] = implementation(on_threads(lambda: multiply(a, b), x.threads), "matmul", "PyTorch's loops")
    return on_threads(lambda: multiply(a, b, out=c), x.threads)


def _as_grouped_mm(problem: GemmProblem) -> str | None:
    if (problem.alpha, problem.beta) != (1, 0):
        return "has neither alpha nor beta; use 1 and 0"
    for operand in problem.operands()[:2]:
        if (pitch := operand.ld * DTYPES[operand.dtype].itemsize) % 16:
            return f"rows of {operand.name} begin every {pitch} bytes, expected a multiple of 16"
    return None


@kernel(
    "gemm",
    provider="torch",
    device="cpu",
    dtypes=("f32", "f16", "bf16"),
    groupings=GROUPED,
    modules=("numpy", "torch"),
    threaded=True,
    supports=_as_grouped_mm,
)
def grouped_mm(problem: GemmProblem, x: GemmOperands) -> Launch:
    """PyTorch's grouped_mm, which allocates its result, copied into C."""
    from kernelmark.kernels._torch import on_threads, tensor

    multiply = import_module("torch.nn.functional").grouped_mm
    a, b, c = tensor(x.a), tensor(np.swapaxes(x.b, -1, -2) if problem.op_b == "T" else x.b), tensor(x.c)
    ends = tensor(np.array(problem.group_rows[1:], np.int32))
    return on_threads(lambda: c.copy_(multiply(a, b, offs=ends)), x.threads)


def _product(problem: GemmProblem, a: Any, b: Any, c: Any) -> Launch:
    if problem.alpha == 1 and problem.beta == 0:
        matmul = import_module("torch").matmul
        return lambda: matmul(a, b, out=c)
    add = c.baddbmm_ if problem.batch > 1 else c.addmm_
    return lambda: add(a, b, alpha=problem.alpha, beta=problem.beta)


def _blas() -> str:
    """Return the name and version of the BLAS in PyTorch: `PyTorch's BLAS, mkl 2024.2`."""
    built = import_module("torch").__config__.show()
    name = re.search(r"BLAS_INFO=(\w+)", built)
    version = re.search(r"Math Kernel Library Version ([\d.]+)", built)
    return " ".join(["PyTorch's BLAS,", name[1] if name else "unknown", *(version.groups() if version else ())])
