"""Our own copy in `cuda/roofline`."""

import numpy as np

from kernelmark import DTYPES, DeviceLimits, KernelCall, Tile, cuda_kernel
from kernels._cuda import ceil_div
from kernels.copy.problem import CopyProblem

VECTOR_BYTES = 16


@cuda_kernel(
    "copy",
    source="roofline/copy.cu",
    entry="copy_vectorised<bits::{dtype}, {THREADS}, {LOADS}>",
    numerics="exact",
    tunables={"THREADS": (256,), "LOADS": (4, 8), "BLOCKS": (2**20, 3)},
)
def vectorised(p: CopyProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """128-bit accesses, several under way in each thread."""
    elements = p.m * p.n
    vectors = ceil_div(elements * DTYPES[p.dtype].itemsize, VECTOR_BYTES)
    blocks = min(t.BLOCKS, ceil_div(vectors, t.THREADS * t.LOADS))
    return [KernelCall(blocks, t.THREADS, ("a", "b", np.int64(elements)))]
