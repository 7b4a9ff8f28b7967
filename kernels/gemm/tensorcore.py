"""GEMM on tensor cores from compute capability 8.0 on: wmma, and mma.sync in 16 bits, INT8, TF32, 3xTF32 and FP64."""

import math
from typing import Any

from kernelmark import DTYPES, DeviceLimits, KernelCall, Prefer, Tile, cuda_kernel, split_dtype
from kernelmark.kernels._cuda import beyond_block, beyond_static, ceil_div
from kernelmark.kernels.gemm import _tiles
from kernelmark.kernels.gemm._tiles import warps
from kernelmark.kernels.gemm.handwritten import F32, HALF, arguments, within_grid
from kernelmark.kernels.gemm.ladder import grid
from kernelmark.kernels.gemm.problem import GemmProblem

SIXTEEN: dict[str, Any] = HALF | {"min_arch": 80}
#: ldmatrix transposes only 16-bit elements, so 8-bit operands have to be stored along k.
INT8: dict[str, Any] = {"dtypes": ("s8.s32",), "layouts": ("NT",), "numerics": "exact", "min_arch": 80}
TF32: dict[str, Any] = F32 | {"min_arch": 80, "numerics": "tf32"}
F64: dict[str, Any] = F32 | {"dtypes": ("f64",), "min_arch": 80, "numerics": "fp64"}
#: WIDE is for products whose tiles fill a device, with one block per multiprocessor; MIDDLE is for products with half
#: as many tiles, such as the founding problem; SMALL is for all others.
WIDE = {"BM": 128, "BN": 256, "BK": 32, "WM": 64, "WN": 64, "STAGES": 4}
MIDDLE = WIDE | {"BN": 128, "WN": 32}
SMALL = {"BM": 64, "BN": 64, "BK": 32, "WM": 32, "WN": 32, "STAGES": 4}
#: The same for FP32 elements, half as deep. 3xTF32 begins with MIDDLE, since splitting elements takes registers.
WIDE_F32, MIDDLE_F32, SMALL_F32 = (tile | {"BK": 16} for tile in (WIDE, MIDDLE, SMALL))
#: The same for 8-bit elements, twice as deep.
WIDE_INT8, MIDDLE_INT8, SMALL_INT8 = (tile | {"BK": 64} for tile in (WIDE, MIDDLE, SMALL))
#: The same for FP64, whose sums take twice as many registers.
WIDE_F64, SMALL_F64 = MIDDLE_F32, SMALL_F32
ROW_BYTES = 128  # the fewest bytes in a panel's row that is not along k: the swizzle permutes eight 16-byte chunks
#: Tuning spaces of the kernels by mma.sync, first for 16-bit elements.
SPACE = {
    "BM": (32, 64, 128, 256),
    "BN": (32, 64, 128, 256),
    "BK": (32, 64),
    "WM": (16, 32, 64, 128),
    "WN": (16, 32, 64, 128),
    "STAGES": (2, 3, 4, 5, 6),
}
SPACE_F32 = SPACE | {"BK": (16, 32, 64)}
SPACE_INT8 = SPACE | {"BK": (64, 128)}
SPACE_F64 = SPACE | {"BK": (16, 32)}

WMMA = "gemm_wmma<{ctype}, {TC}, {T}, {BK}, Op::{op_a}, Op::{op_b}>"
MMA = "gemm_mma<ARITHMETIC, {TC}, {BM}, {BN}, {BK}, {WM}, {WN}, {STAGES}, {W}, Op::{op_a}, Op::{op_b}>"


def by_size(*tiles: dict[str, int]) -> Prefer:
    """Prefer the first of `tiles` (from large to small) whose blocks occupy half of a device, or else the last tile."""

    def unless(p: GemmProblem, t: Tile, device: DeviceLimits) -> str | None:
        half, wanted = device.multiprocessors // 2, vars(t)
        for larger in tiles[: tiles.index(wanted)] if wanted in tiles else ():
            if (blocks := math.prod(grid(p, Tile(**larger)))) >= half:
                return f"{blocks} larger tiles occupy half of the multiprocessors, expected less than {half}"
        return None

    return Prefer(tiles[::-1], unless)


def fits_mma(p: GemmProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why a tile is invalid for kernels that multiply by mma.sync, or None."""
    storage = DTYPES[split_dtype(p.dtype)[0]].itemsize
    along_k = (p.op_a == "N", p.op_b == "T")
    return unlike_mma(t, storage, along_k) or unshared_by(t, storage, along_k) or _tiles.beyond_grid(p, t)


def unlike_mma(t: Tile, itemsize: int, along_k: tuple[bool, bool]) -> str | None:
    """Return why mma.cuh does not support a tile's panels, warps or sums, or None."""
    if t.BK * itemsize % 64:
        return f"a step has {t.BK * itemsize} bytes along k, expected a multiple of 64"
    for name, width, along in zip(("BM", "BN"), (t.BM, t.BN), along_k, strict=True):
        if not along and width * itemsize < ROW_BYTES:
            return f"{name} = {width} has rows of {width * itemsize} bytes, expected at least {ROW_BYTES}"
    if reason := _tiles.divides(t, ("WM", "BM"), ("WN", "BN")):
        return reason
    sum_words = t.WM * t.WN // 32 * max(itemsize // 4, 1)  # per thread
    return beyond_block(warps(t), sum_words, 3 if sum_words <= 32 else 1) or _beyond_stripes(t, itemsize)


def _beyond_stripes(t: Tile, itemsize: int) -> str | None:
    """Return why the stripes through which warps store C do not fit in the panels' memory, or None (mma_store.cuh)."""
    stripes = warps(t) // 32 * 16 * (t.WN + 8) * max(itemsize, 4)
    panels = t.STAGES * t.BK * (t.BM + t.BN) * itemsize
    return f"stripes take {stripes} bytes, expected at most the {panels} of the panels" if stripes > panels else None


def unshared_by(t: Tile, itemsize: int, along_k: tuple[bool, bool]) -> str | None:
    """Return why threads cannot copy panels in chunks of 16 bytes, or None."""
    for width, along in zip((t.BM, t.BN), along_k, strict=True):
        if reason := _tiles.unshared(warps(t), 0, (t.BK if along else width) * itemsize // 16):
            return reason
    return None


def fits_wmma(_p: GemmProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why the tiles of A, B and C do not fit into shared memory, or None."""
    return beyond_static(4 * t.T * t.T + 2 * max(2 * t.T * (t.BK + 8), t.T * (t.BK + 8) + t.BK * (t.T + 8)))


def copied(p: GemmProblem) -> int:
    """Return how many elements a copy of A or B may move: 16 or 4 bytes if rows are aligned to these, else one."""
    a, b, _ = p.operands()
    size = DTYPES[a.dtype].itemsize
    for nbytes in (16, 4):
        if a.ld * size % nbytes == 0 and b.ld * size % nbytes == 0:
            return max(nbytes // size, 1)
    return 1


def named(entry: str, p: GemmProblem) -> str:
    """Return the kernel's C++ name with the type of C and the number of elements per copy filled in."""
    return entry.replace("{TC}", DTYPES[split_dtype(p.dtype)[1]].ctype).replace("{W}", str(copied(p)))


def mma_call(p: GemmProblem, t: Tile, arithmetic: str) -> list[KernelCall]:
    """Return the launch of the kernel in gemm/mma.cuh."""
    stages_bytes = t.STAGES * t.BK * (t.BM + t.BN) * DTYPES[split_dtype(p.dtype)[0]].itemsize
    entry = named(MMA.replace("ARITHMETIC", arithmetic), p)
    return [KernelCall(grid(p, t), warps(t), arguments(p), stages_bytes, entry)]


@cuda_kernel(
    "gemm",
    source="gemm/wmma.cu",
    entry=WMMA,
    tunables={"T": (32, 64, 96), "BK": (16, 32, 64, 128)},
    valid=fits_wmma,
    prefer=Prefer(({"T": 64, "BK": 32},)),
    supports=within_grid("m", 64),
    **SIXTEEN,
)
def wmma(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Fragments of nvcuda::wmma, with tiles of A, B and C in shared memory."""
    over_c = (ceil_div(p.n, t.T), ceil_div(p.m, t.T), p.batch)
    return [KernelCall(over_c, 128, arguments(p), entry=named(WMMA, p))]


_MMA: dict[str, Any] = {"entry": MMA, "supports": within_grid("m", 64), "valid": fits_mma}


@cuda_kernel(
    "gemm",
    source="gemm/mma.cu",
    tunables=SPACE,
    prefer=by_size(WIDE, MIDDLE, SMALL),
    **_MMA | SIXTEEN,
)
def mma(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """16-bit operands by mma.sync, panels copied several steps ahead, fragments loaded one step ahead."""
    return mma_call(p, t, "Sixteen<{ctype}>")


@cuda_kernel(
    "gemm",
    source="gemm/mma_int8.cu",
    tunables=SPACE_INT8,
    prefer=by_size(WIDE_INT8, MIDDLE_INT8, SMALL_INT8),
    **_MMA | INT8,
)
def mma_int8(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """8-bit integers by mma.sync, summed in 32 bits."""
    return mma_call(p, t, "Int8")


@cuda_kernel(
    "gemm",
    source="gemm/mma_tf32.cu",
    tunables=SPACE_F32,
    prefer=by_size(WIDE_F32, MIDDLE_F32, SMALL_F32),
    **_MMA | TF32,
)
def mma_tf32(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """FP32 operands rounded to TF32, by mma.sync."""
    return mma_call(p, t, "Tf32")


@cuda_kernel(
    "gemm",
    source="gemm/mma_3xtf32.cu",
    tunables=SPACE_F32,
    prefer=by_size(MIDDLE_F32, SMALL_F32),
    **_MMA | TF32 | {"numerics": "3xtf32", "executed": lambda p, t: 3 * p.flop},
)
def mma_3xtf32(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """FP32 operands split into two TF32 numbers, three products by mma.sync, sums added in FP32."""
    return mma_call(p, t, "ThreeTf32")


@cuda_kernel(
    "gemm",
    source="gemm/mma_f64.cu",
    tunables=SPACE_F64,
    prefer=by_size(WIDE_F64, SMALL_F64),
    **_MMA | F64,
)
def mma_f64(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """FP64 operands and sums by mma.sync, 16 rows of A at a time from Hopper on, 8 before."""
    return mma_call(p, t, f"Double<{16 if device.capability >= 90 else 8}>")
