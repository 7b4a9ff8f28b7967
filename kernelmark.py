"""The public face of kernelmark: what a file with kernels or operations imports."""

from bench.plan.dtypes import DTYPES, NUMERICS, numpy_dtype, split_dtype
from bench.plan.errors import Unsupported
from bench.plan.kernel import KernelCall, Launch, Scratch, TensorMap, Tile
from bench.plan.limits import DeviceLimits
from bench.plan.operation import Array, Arrays, Dim, Operand, Problem, Verdict, compare
from bench.plan.registry import cuda_kernel, kernel, operation
from bench.plan.tolerance import accumulation_error, largest_sum, storing_error

__all__ = [
    "DTYPES",
    "NUMERICS",
    "Array",
    "Arrays",
    "DeviceLimits",
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
    "accumulation_error",
    "compare",
    "cuda_kernel",
    "kernel",
    "largest_sum",
    "numpy_dtype",
    "operation",
    "split_dtype",
    "storing_error",
]
