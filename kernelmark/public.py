"""The public face of kernelmark: what a file with kernels or operations imports."""

from bench.plan.dtypes import DTYPES, NUMERICS, Array, numpy_dtype, split_dtype
from bench.plan.errors import Unsupported
from bench.plan.kernel import Im2colMap, KernelCall, Launch, Prefer, Scratch, TensorMap, Tile
from bench.plan.limits import DeviceLimits
from bench.plan.numbers import DECIMAL, WHOLE
from bench.plan.operation import Arrays, Dim, Operand, Problem
from bench.plan.registry import cuda_kernel, kernel, operation
from bench.plan.tiles import Tunable, tile_on
from bench.plan.tolerance import accumulation_error, accumulation_rms, largest_sum, sum_bound
from bench.plan.verdict import Bound, Verdict, compare, equal, error_variance, sums_limit

__all__ = [
    "DECIMAL",
    "DTYPES",
    "NUMERICS",
    "WHOLE",
    "Array",
    "Arrays",
    "Bound",
    "DeviceLimits",
    "Dim",
    "Im2colMap",
    "KernelCall",
    "Launch",
    "Operand",
    "Prefer",
    "Problem",
    "Scratch",
    "TensorMap",
    "Tile",
    "Tunable",
    "Unsupported",
    "Verdict",
    "accumulation_error",
    "accumulation_rms",
    "compare",
    "cuda_kernel",
    "equal",
    "error_variance",
    "kernel",
    "largest_sum",
    "numpy_dtype",
    "operation",
    "split_dtype",
    "sum_bound",
    "sums_limit",
    "tile_on",
]
