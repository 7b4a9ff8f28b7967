"""The public names of kernelmark, for files with kernels or operations."""

from kernelmark.bench.plan.dtypes import DTYPES, NUMERICS, Array, numpy_dtype, split_dtype
from kernelmark.bench.plan.errors import Unsupported
from kernelmark.bench.plan.files import cache_folder
from kernelmark.bench.plan.kernel import Im2colMap, KernelCall, Launch, Prefer, Scratch, TensorMap, Tile
from kernelmark.bench.plan.limits import DeviceLimits
from kernelmark.bench.plan.numbers import DECIMAL, WHOLE
from kernelmark.bench.plan.operation import (
    SPECIALS,
    Arrays,
    Changes,
    Checksums,
    Dim,
    Distribution,
    EmulatedSizes,
    Features,
    Operand,
    Problem,
)
from kernelmark.bench.plan.registry import cuda_kernel, kernel, operation
from kernelmark.bench.plan.tiles import Tunable, tile_on
from kernelmark.bench.plan.tolerance import (
    accumulation_error,
    accumulation_rms,
    independent_roundings,
    largest_sum,
    sum_bound,
)
from kernelmark.bench.plan.verdict import (
    Bound,
    Verdict,
    compare,
    equal,
    error_variance,
    moved,
    sum_weights,
    summed,
    sums_limit,
    within,
)

__all__ = [
    "DECIMAL",
    "DTYPES",
    "NUMERICS",
    "SPECIALS",
    "WHOLE",
    "Array",
    "Arrays",
    "Bound",
    "Changes",
    "Checksums",
    "DeviceLimits",
    "Dim",
    "Distribution",
    "EmulatedSizes",
    "Features",
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
    "cache_folder",
    "compare",
    "cuda_kernel",
    "equal",
    "error_variance",
    "independent_roundings",
    "kernel",
    "largest_sum",
    "moved",
    "numpy_dtype",
    "operation",
    "split_dtype",
    "sum_bound",
    "sum_weights",
    "summed",
    "sums_limit",
    "tile_on",
    "within",
]
