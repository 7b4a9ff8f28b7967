"""CuPy's matmul as programs call it: CuPy checks and copies operands, then calls cuBLAS with its own handle."""

import math
from functools import partial
from typing import Any

from kernelmark import DTYPES, Launch, kernel, numpy_dtype
from kernelmark.kernels.gemm.cublas import fits_ints
from kernelmark.kernels.gemm.handwritten import HALF
from kernelmark.kernels.gemm.problem import GemmOperands, GemmProblem


def _supports(problem: GemmProblem) -> str | None:
    if (problem.m, problem.n, problem.batch) == (1, 1, 1) and problem.dtype in ("f16", "bf16"):
        return f"m and n are 1, expected more in {problem.dtype}: CuPy then adds the products in 16 bits"
    return fits_ints(problem)


def _copied_bytes(problem: GemmProblem) -> int:
    """Return the bytes that CuPy allocates in a call for copies of padded and, in a batch, of transposed operands."""
    copied = 0
    for operand, op in zip(problem.operands(), (*problem.layout, "N"), strict=True):
        *_, rows, columns = operand.shape
        is_turned = op == "T" and problem.batch > 1 and min(rows, columns) > 1
        if is_turned or (operand.pad and problem.batch * rows > 1):
            copied += math.prod(operand.shape) * DTYPES[operand.dtype].itemsize
    return copied


@kernel(
    "gemm",
    provider="cupy",
    device="cuda",
    dtypes=("f64", "f32", "f16", "bf16"),
    alphas=(1.0,),
    betas=(0.0,),
    numerics={"f64": "fp64", "f32": "fp32", **HALF["numerics"]},
    modules=("cupy",),
    supports=_supports,
    library_scratch=_copied_bytes,
)
def matmul(problem: GemmProblem, x: GemmOperands) -> Launch:
    """CuPy matmul into C: cublasGemmEx; for a batch, cublasGemmStridedBatchedEx on copies of transposed operands."""
    import cupy

    def typed(matrix: Any, op: str) -> Any:
        matrix = matrix.view(numpy_dtype(problem.dtype))  # CuPy has bfloat16; kernelmark passes its bits as integers
        return matrix.swapaxes(-1, -2) if op == "T" else matrix

    return partial(cupy.matmul, typed(x.a, problem.op_a), typed(x.b, problem.op_b), out=typed(x.c, "N"))
