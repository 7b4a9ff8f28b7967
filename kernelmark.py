"""The public face of kernelmark: what a file with kernels or operations imports."""

from bench.plan.dtypes import DTYPES, NUMERICS, numpy_dtype, operand_roundoff, split_dtype
from bench.plan.errors import Unsupported
from bench.plan.operation import Array, Arrays, Dim, Operand, Problem, Verdict, compare
from bench.plan.registry import KernelCall, Launch, Scratch, TensorMap, Tile, cuda_kernel, kernel, operation

__all__ = [
    "DTYPES",
    "NUMERICS",
    "Array",
    "Arrays",
    "Dim",
    "KernelCall",
    "Launch",
    "Operand",
    "Problem",
    "Scratch",
    "TensorMap",
    "Tile",
    "Unsupported",
    "Verdict",
    "compare",
    "cuda_kernel",
    "kernel",
    "numpy_dtype",
    "operand_roundoff",
    "operation",
    "split_dtype",
]
