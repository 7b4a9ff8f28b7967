"""Small products, single or in batches; launches and memory limit their speed, not arithmetic."""

from typing import Any

import numpy as np

from kernelmark import DTYPES, DeviceLimits, KernelCall, Prefer, Tile, Tunable, cuda_kernel
from kernelmark.kernels._cuda import ceil_div, multiprocessors
from kernelmark.kernels.gemm.handwritten import LAYOUTS, arguments
from kernelmark.kernels.gemm.problem import GemmProblem

LARGEST = 128
PAD = 4  # elements after each row of a panel, as in batched.cu
PARTS = {64: (8, 4), 32: (4, 4), 16: (2, 2), 8: (1, 1)}  # TM x TN elements per thread, by the side of the tile
SHARED_LIMIT = 99 * 1024  # bytes of a block's panels: two such blocks share a multiprocessor of an H100


def small(p: GemmProblem) -> str | None:
    """Return why a kernel that keeps all of k in shared memory cannot take `p`, or None."""
    if max(p.m, p.n, p.k) > LARGEST:
        return f"m, n and k are {p.m}, {p.n} and {p.k}, expected at most {LARGEST}: all of k lies in shared memory"
    return None


def panels_bytes(p: GemmProblem, side: int) -> int:
    """Return the bytes of shared memory that one product needs for a panel of A and a panel of B."""
    return 2 * p.k * (side + PAD) * DTYPES[p.dtype].itemsize


def blocks(p: GemmProblem, side: int) -> int:
    """Return the number of tiles of this side over C, in all products of the batch."""
    return ceil_div(p.m, side) * ceil_div(p.n, side) * p.batch


def shared_limit(device: DeviceLimits) -> int:
    """Return the most shared memory of a block, in bytes."""
    return min(SHARED_LIMIT, device.block_shared_bytes)


def side(p: GemmProblem, t: Tile, device: DeviceLimits) -> int:
    """Return the tile's side: SIDE if not 0, otherwise the widest that is not half empty, fits and fills the device."""
    fitting = (s for s in PARTS if s < 2 * min(p.m, p.n) and panels_bytes(p, s) <= shared_limit(device))
    return int(t.SIDE) or next((s for s in fitting if blocks(p, s) >= t.SMS), min(PARTS))


def together(p: GemmProblem, t: Tile, wide: int, threads: int) -> int:
    """Return how many products share a block: the most that fit and still leave each multiprocessor a block."""
    capacity = 1024 * t.KIB // panels_bytes(p, wide)
    return int(max(1, min(t.THREADS // threads, capacity, p.batch, blocks(p, wide) // t.SMS)))


def _unfit(p: GemmProblem, t: Tile, device: DeviceLimits) -> str | None:
    needed, limit = panels_bytes(p, side(p, t, device)), shared_limit(device)
    return None if needed <= limit else f"panels take {needed} bytes of shared memory, expected at most {limit}"


#: THREADS, KIB: the most threads of a block that several products share, and the most KiB of its panels. SIDE 0 chooses
#: a side by the problem. If SMS is 1, this side is wide, and even small batches share blocks.
_SHARED = {"THREADS": 256, "KIB": 48}
_DEALT: tuple[tuple[Tunable, int], ...] = (
    (multiprocessors, 0),
    (1, 0),
    *((multiprocessors, wide) for wide in (64, 32, 16)),
)
_SPACE: dict[str, tuple[Tunable, ...]] = {
    "SMS": (multiprocessors, 1),
    "SIDE": (0, 64, 32, 16, 8),
    "THREADS": (64, 128, 256),
    "KIB": (16, 32, 48, 64, 96),
}


@cuda_kernel(
    "gemm",
    source="gemm/batched.cu",
    entry="gemm_batched<{ctype}, {SIDE}, 1, 1, Op::{op_a}, Op::{op_b}>",
    min_arch=80,
    dtypes=("f32", "f64"),
    layouts=LAYOUTS,
    supports=small,
    tunables=_SPACE,
    valid=_unfit,
    prefer=Prefer(tuple({"SMS": sms, "SIDE": wide, **_SHARED} for sms, wide in _DEALT)),
)
def batched(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Small products with all of k in shared memory at once, several products per block."""
    wide = side(p, t, device)
    tm, tn = PARTS[wide]
    threads = wide * wide // (tm * tn)
    products = together(p, t, wide, threads)
    grid = (ceil_div(p.batch, products), ceil_div(p.m, wide), ceil_div(p.n, wide))
    scalar: Any = np.float64 if p.dtype == "f64" else np.float32
    a, b, c, m, n, k, alpha, beta, *rest = arguments(p)
    args = (a, b, c, m, n, k, scalar(alpha), scalar(beta), *rest, p.batch)
    entry = f"gemm_batched<{p.ctype}, {wide}, {tm}, {tn}, Op::{p.op_a}, Op::{p.op_b}>"
    return [KernelCall(grid, (threads, products), args, products * panels_bytes(p, wide), entry)]
