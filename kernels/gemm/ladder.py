"""Plans of launches of the FP32 ladder in `cuda/gemm`, from block tiles to pipelines that fill a device."""

from typing import NamedTuple

import numpy as np

from kernelmark import DeviceLimits, KernelCall, Prefer, Scratch, Tile, Tunable, cuda_kernel
from kernelmark.kernels._cuda import ceil_div, multiprocessors
from kernelmark.kernels._waves import Choice, by_waves
from kernelmark.kernels.gemm import _tiles
from kernelmark.kernels.gemm._tiles import FRAGMENTS, PAD, PIPELINE, SLICES, pack, warps
from kernelmark.kernels.gemm.handwritten import F32, arguments, within_grid, within_ints
from kernelmark.kernels.gemm.problem import GemmProblem

#: Tiles of the pipelined kernels. WIDE reads least from shared memory per multiply-add, and is for products with many
#: tiles; two blocks of MIDDLE or three of NARROW fit on a multiprocessor; SMALL is for small products; TINY is for one
#: warp. Blocks of 128 threads with WIDE's fragments reached 0.99 of its rate in NN and 0.96 in NT on an H200.
WIDE = {"BM": 128, "BN": 256, "BK": 8, "WM": 64, "WN": 64, "TM": 8, "TN": 16, "STAGES": 4}
MIDDLE = {"BM": 128, "BN": 128, "BK": 8, "WM": 64, "WN": 32, "TM": 8, "TN": 8, "STAGES": 4}
NARROW = MIDDLE | {"BN": 64}
SMALL = {"BM": 64, "BN": 32, "BK": 8, "WM": 32, "WN": 16, "TM": 4, "TN": 4, "STAGES": 3}
TINY = SMALL | {"BM": 32, "BN": 16}
#: The tuning space of kernels that do not copy panels ahead, but wait for them.
PATCHES = {"BM": (32, 64, 128, 256), "BN": (32, 64, 128, 256), "BK": (4, 8, 16, 32)}
SUM_ROWS = 8  # rows of C per block of the launch that adds the slices

VECTORISED = "sgemm_vectorised<{BM}, {BN}, {BK}, {TM}, {TN}, {W}, Op::{op_a}, Op::{op_b}>"
WARPTILE = "sgemm_warptile<{BM}, {BN}, {BK}, {WM}, {WN}, {TM}, {TN}, {W}, Op::{op_a}, Op::{op_b}>"
ASYNC = "sgemm_async<{BM}, {BN}, {BK}, {WM}, {WN}, {TM}, {TN}, {STAGES}, {W}, Op::{op_a}, Op::{op_b}, {WHOLE}>"
SPLITK = ASYNC.replace("async", "splitk")
STREAMK = ASYNC.replace("async", "streamk")


def packed(entry: str, p: GemmProblem) -> str:
    """Return the kernel's C++ name with W filled in. W is the number of floats that the kernel may move at once."""
    return entry.replace("{W}", str(pack(p)))


def piped(entry: str, p: GemmProblem, t: Tile) -> str:
    """Return a pipelined kernel's C++ name with W and WHOLE filled in.

    WHOLE is true if tiles and steps divide the product and op(B) is T. The kernel then starts the copies of a step in
    thirds: most of these copies are single words, and thirds were 15 % faster on an H200. In NN, they were 2 to 5 %
    slower.
    """
    whole = p.op_b == "T" and not (p.m % t.BM or p.n % t.BN or p.k % t.BK)
    return packed(entry, p).replace("{WHOLE}", str(whole).lower())


def grid(p: GemmProblem, t: Tile, layers: int = 1) -> tuple[int, int, int]:
    """Return the grid of BM x BN tiles over C, with `layers` blocks per tile for each product of the batch."""
    return ceil_div(p.n, t.BN), ceil_div(p.m, t.BM), p.batch * layers


def stages_bytes(t: Tile) -> int:
    """Return the bytes of shared memory that hold STAGES panels of A and of B."""
    return int(4 * t.STAGES * t.BK * (t.BM + t.BN + 2 * PAD))


@cuda_kernel(
    "gemm",
    source="gemm/blocktile1d.cu",
    entry="sgemm_blocktile1d<{BM}, {BN}, {BK}, {TM}, Op::{op_a}, Op::{op_b}>",
    supports=within_grid("m", 32),
    tunables={"BM": (32, 64, 128, 256), "BN": (32, 64, 128, 256), "BK": (4, 8, 16, 32), "TM": (4, 8, 16, 32, 64)},
    valid=_tiles.columns,
    prefer=Prefer(({"BM": 64, "BN": 64, "BK": 8, "TM": 8}, {"BM": 32, "BN": 32, "BK": 8, "TM": 4})),
    **F32,
)
def blocktile1d(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """A column of TM elements per thread, each read of B used TM times."""
    return [KernelCall(grid(p, t), t.BM * t.BN // t.TM, arguments(p))]


@cuda_kernel(
    "gemm",
    source="gemm/blocktile2d.cu",
    entry="sgemm_blocktile2d<{BM}, {BN}, {BK}, {TM}, {TN}, Op::{op_a}, Op::{op_b}>",
    supports=within_grid("m", 64),
    tunables=PATCHES | {"TM": (2, 4, 8, 16), "TN": (2, 4, 8, 16)},
    valid=_tiles.patches(lambda p: 1),
    prefer=Prefer(
        (
            {"BM": 128, "BN": 128, "BK": 8, "TM": 8, "TN": 8},
            {"BM": 64, "BN": 32, "BK": 8, "TM": 4, "TN": 4},
        )
    ),
    **F32,
)
def blocktile2d(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """TM x TN elements per thread, as a sum of outer products."""
    return [KernelCall(grid(p, t), t.BM * t.BN // (t.TM * t.TN), arguments(p))]


@cuda_kernel(
    "gemm",
    source="gemm/vectorised.cu",
    entry=VECTORISED,
    supports=within_grid("m", 64),
    tunables=PATCHES | {"TM": (4, 8, 16), "TN": (4, 8, 16)},
    valid=_tiles.patches(pack),
    prefer=Prefer(
        (
            {"BM": 128, "BN": 128, "BK": 8, "TM": 8, "TN": 8},
            {"BM": 64, "BN": 32, "BK": 16, "TM": 4, "TN": 4},
        )
    ),
    **F32,
)
def vectorised(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """TM x TN elements per thread, with global and shared memory accessed four words at a time."""
    return [KernelCall(grid(p, t), t.BM * t.BN // (t.TM * t.TN), arguments(p), entry=packed(VECTORISED, p))]


@cuda_kernel(
    "gemm",
    source="gemm/warptile.cu",
    entry=WARPTILE,
    supports=within_grid("m", 64),
    tunables=FRAGMENTS,
    valid=_tiles.double_buffered,
    prefer=Prefer(
        (
            {"BM": 128, "BN": 128, "BK": 8, "WM": 64, "WN": 32, "TM": 8, "TN": 8},
            {"BM": 64, "BN": 32, "BK": 16, "WM": 32, "WN": 16, "TM": 4, "TN": 4},
        )
    ),
    **F32,
)
def warptile(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """A tile per warp, with panels staged through double-buffered shared memory."""
    return [KernelCall(grid(p, t), warps(t), arguments(p), entry=packed(WARPTILE, p))]


def tiles(p: GemmProblem, t: Tile) -> int:
    """Return the number of tiles of C in all products of the batch."""
    return int(np.prod(grid(p, t)))


def useful(p: GemmProblem, t: Tile) -> float:
    """Return the share of the tiles' elements that are in C."""
    return p.m * p.n * p.batch / float(tiles(p, t) * t.BM * t.BN)


#: Rates relative to WIDE's, which follow from the tiles' reads of shared memory per multiply-add.
CHOICES = (
    Choice(WIDE, 1.0, 1),
    Choice(MIDDLE, 0.93, 2),
    Choice(NARROW, 0.85, 3),
    Choice(SMALL, 0.4, 8),
)
ASYNC_TILES = by_waves(CHOICES, tiles, useful, warps, _tiles.pipeline)


@cuda_kernel(
    "gemm",
    source="gemm/async.cu",
    entry=ASYNC,
    name="async",
    min_arch=80,
    supports=within_grid("m", 64),
    tunables=PIPELINE,
    valid=_tiles.pipeline,
    prefer=ASYNC_TILES,
    **F32,
)
def async_(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """A tile per warp, with panels copied several steps ahead by cp.async."""
    return [KernelCall(grid(p, t), warps(t), arguments(p), stages_bytes(t), piped(ASYNC, p, t))]


def half_empty(p: GemmProblem, t: Tile, device: DeviceLimits) -> str | None:
    """Return a reason if n takes one or two tiles as wide as WIDE or wider, the last of them half empty, else None."""
    empty = -p.n % t.BN
    if WIDE["BN"] <= t.BN and empty >= t.BN // 2 and p.n <= 2 * t.BN:
        return f"{empty} columns of the last tile are empty"
    return None


def slices(p: GemmProblem, t: Tile) -> tuple[int, int]:
    """Divide k into slices that fill the device; return their depth (at least DEPTH, if k allows) and number."""
    wanted = max(1, min(t.SMS * t.BLOCKS_PER_SM // tiles(p, t), p.k // t.DEPTH))
    depth = ceil_div(ceil_div(p.k, wanted), t.BK) * t.BK
    return depth, ceil_div(p.k, depth)


def _sliced(choice: Choice) -> dict[str, Tunable]:
    """Return a tile's tunables for slices of k: up to three blocks per multiprocessor; deep slices for large tiles."""
    return {
        "SMS": multiprocessors,
        "BLOCKS_PER_SM": min(choice.resident, 3),
        "DEPTH": 8 if choice.resident > 3 else 256,
    }


@cuda_kernel(
    "gemm",
    source="gemm/splitk.cu",
    entry=SPLITK,
    min_arch=80,
    supports=within_grid("m", SUM_ROWS),
    tunables={**PIPELINE, "SMS": (multiprocessors,), **SLICES},
    valid=_tiles.pipeline,
    prefer=by_waves(
        tuple(choice._replace(values={**choice.values, **_sliced(choice)}) for choice in CHOICES),
        lambda p, t: tiles(p, t) * slices(p, t)[1],
        useful,
        warps,
        _tiles.pipeline,
    ),
    **F32,
)
def splitk(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Slices of k are multiplied by separate blocks; a second launch adds their sums in order."""
    depth, count = slices(p, t)
    lda, ldb, ldc, stride_a, stride_b, stride_c = arguments(p)[8:]
    partials = Scratch("partials", 4 * p.batch * count * p.m * p.n if count > 1 else 0)
    to = (partials, p.n, np.int64(p.m * p.n), 1.0, 0.0) if count > 1 else ("c", ldc, stride_c, p.alpha, p.beta)
    product = ("a", "b", *to, p.m, p.n, p.k, lda, ldb, stride_a, stride_b, depth, count)
    multiply = KernelCall(grid(p, t, count), warps(t), product, stages_bytes(t), piped(SPLITK, p, t))
    summed = (partials, "c", p.m, p.n, count, p.alpha, p.beta, ldc, stride_c)
    over_c = (ceil_div(p.n, 32), ceil_div(p.m, SUM_ROWS), p.batch)
    add = KernelCall(over_c, (32, SUM_ROWS), summed, entry="sgemm_splitk_sum")
    return [multiply, add] if count > 1 else [multiply]


class Dealt(NamedTuple):
    """The schedule of stream-K: `whole` tiles are not divided; blocks share the steps of the other tiles equally."""

    tiles: int
    whole: int
    steps: int
    share: int
    blocks: int

    @property
    def divides(self) -> bool:
        """Return whether several blocks share a tile."""
        return self.share % self.steps != 0


def dealt(p: GemmProblem, t: Tile) -> Dealt:
    """Return a schedule. A block's share is 1 to 2 tiles; if tiles are few, it is at least DEPTH along k or a tile."""
    count, steps, fill = tiles(p, t), ceil_div(p.k, t.BK), t.SMS * t.BLOCKS_PER_SM
    whole = max(count // fill - 1, 0) * fill
    rest = (count - whole) * steps
    share = ceil_div(rest, min(fill, max(count, rest * t.BK // t.DEPTH)))
    return Dealt(count, whole, steps, share, fill if whole else ceil_div(rest, share))


@cuda_kernel(
    "gemm",
    source="gemm/streamk.cu",
    entry=STREAMK,
    min_arch=80,
    supports=within_ints,
    tunables={**PIPELINE, "SMS": (multiprocessors, 1), **SLICES},
    valid=_tiles.pipeline,
    prefer=Prefer(
        (
            {**WIDE, "SMS": multiprocessors, "BLOCKS_PER_SM": 1, "DEPTH": 256},
            {**MIDDLE, "SMS": multiprocessors, "BLOCKS_PER_SM": 2, "DEPTH": 256},
            {**TINY, "SMS": 1, "BLOCKS_PER_SM": 2, "DEPTH": 8},  # so few blocks that small problems are divided, too
        ),
        half_empty,
    ),
    **F32,
)
def streamk(p: GemmProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """A persistent grid shares all steps along k evenly; a second launch adds divided tiles in order."""
    d = dealt(p, t)
    partials = Scratch("partials", 2 * d.blocks * 4 * t.BM * t.BN if d.divides else 0)
    a, b, c, *sizes = arguments(p)
    product = (a, b, c, partials, *sizes, d.tiles, d.whole, d.share, d.steps)
    summed = (partials, c, p.m, p.n, p.alpha, p.beta, sizes[7], sizes[-1], d.whole, d.share, d.steps)
    over_rest = (d.tiles - d.whole, t.BM // SUM_ROWS)
    calls = [
        KernelCall(d.blocks, warps(t), product, stages_bytes(t), piped(STREAMK, p, t)),
        KernelCall(over_rest, (32, SUM_ROWS), summed, entry=f"sgemm_streamk_sum<{t.BM}, {t.BN}>"),
    ]
    return calls if d.divides else calls[:1]
