"""Launch plan of the copy in `cuda/roofline`."""

import numpy as np

from kernelmark import DTYPES, DeviceLimits, KernelCall, Prefer, Tile, cuda_kernel
from kernelmark.kernels._cuda import beyond_block, blocks_on_each, ceil_div
from kernelmark.kernels.copy.problem import CopyProblem

VECTOR_BYTES = 16
#: The most blocks: one for each round of vectors, or a few on each multiprocessor, with many rounds per block.
ALL = 2**20
BLOCKS = (ALL, *map(blocks_on_each, (1, 2, 4, 8, 16)), 3)


@cuda_kernel(
    "copy",
    source="roofline/copy.cu",
    entry="copy_vectorised<bits::{dtype}, {THREADS}, {LOADS}>",
    numerics="exact",
    tunables={"THREADS": (64, 128, 256, 512, 1024), "LOADS": (1, 2, 4, 8, 16), "BLOCKS": BLOCKS},
    valid=lambda p, t, _: beyond_block(t.THREADS, 4 * t.LOADS),
    prefer=Prefer(tuple({"THREADS": 256, "LOADS": loads, "BLOCKS": blocks} for loads in (4, 8) for blocks in (ALL, 3))),
)
def vectorised(p: CopyProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """128-bit accesses, with several in flight per thread."""
    elements = p.m * p.n
    vectors = ceil_div(elements * DTYPES[p.dtype].itemsize, VECTOR_BYTES)
    blocks = min(t.BLOCKS, ceil_div(vectors, t.THREADS * t.LOADS))
    return [KernelCall(blocks, t.THREADS, ("a", "b", np.int64(elements)))]
