"""Plans of launches in `cuda`: a kernel that accesses the host's memory, and the multiply-adds after a transfer."""

from typing import Any

import numpy as np

from kernelmark import DTYPES, DeviceLimits, KernelCall, Prefer, Tile, cuda_kernel
from kernelmark.kernels._cuda import beyond_block, blocks_on_each, ceil_div
from kernelmark.kernels.transfer.problem import MOST_WORK, SCALE, SHIFT, TransferProblem

VECTOR_BYTES = 16
#: The most blocks: some on each multiprocessor, or a single one with several rounds.
BLOCKS: tuple[Any, ...] = (*map(blocks_on_each, (8, 16, 4, 2, 1)), 1)
TUNABLES: dict[str, Any] = {"THREADS": (256, 128, 64, 512, 1024), "LOADS": (4, 8, 2, 1), "BLOCKS": BLOCKS}
PREFER = Prefer(tuple({"THREADS": 256, "LOADS": 4, "BLOCKS": blocks} for blocks in (BLOCKS[0], 1)))


def _blocks(p: TransferProblem, t: Tile) -> int:
    """Return the number of blocks of a launch."""
    vectors = ceil_div(p.n * DTYPES[p.dtype].itemsize, VECTOR_BYTES)
    return min(int(t.BLOCKS), ceil_div(vectors, t.THREADS * t.LOADS))


@cuda_kernel(
    "transfer",
    source="roofline/copy.cu",
    entry="copy_vectorised<bits::{dtype}, {THREADS}, {LOADS}>",
    numerics="exact",
    host_memory="mapped",
    directions=("h2d", "d2h"),
    works=(0,),
    nodes=(None,),
    tunables=TUNABLES,
    valid=lambda p, t, _: beyond_block(t.THREADS, 4 * t.LOADS),
    prefer=PREFER,
)
def mapped(p: TransferProblem, t: Tile, limits: DeviceLimits) -> list[KernelCall]:
    """A kernel reads or writes the host's memory in place, 128 bits at a time."""
    return [KernelCall(_blocks(p, t), t.THREADS, ("a", "b", np.int64(p.n)))]


@cuda_kernel(
    "transfer",
    source="transfer/work.cu",
    entry="transfer_work<real::{dtype}, {THREADS}, {LOADS}>",
    dtypes=("f32", "f64"),
    directions=("d2d",),
    works=tuple(2**i for i in range(MOST_WORK.bit_length())),
    tunables=TUNABLES,
    valid=lambda p, t, _: beyond_block(t.THREADS, 4 * t.LOADS),
    prefer=PREFER,
)
def arrived(p: TransferProblem, t: Tile, limits: DeviceLimits) -> list[KernelCall]:
    """Works on data that are already on the GPU, without the transfer."""
    constants = (np.uint32(p.work), np.float64(SCALE), np.float64(SHIFT))
    return [KernelCall(_blocks(p, t), t.THREADS, ("a", "b", np.int64(p.n), *constants))]
