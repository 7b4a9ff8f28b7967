"""Implicit GEMM for convolution and both gradients, in FP32 and on tensor cores: `cuda/conv/implicit*.cu`."""

import math
from collections.abc import Mapping
from typing import Any

from kernelmark import DTYPES, DeviceLimits, KernelCall, Prefer, Tile, Tunable, cuda_kernel, tile_on
from kernelmark.kernels._cuda import beyond_block, multiprocessors
from kernelmark.kernels._waves import Choice, by_waves
from kernelmark.kernels.conv.implicit._product import (
    blocks,
    call,
    gathered_rows,
    masked,
    most_blocks,
    product,
    slices,
    supports,
)
from kernelmark.kernels.conv.problem import ConvProblem
from kernelmark.kernels.gemm import tensorcore
from kernelmark.kernels.gemm._tiles import PAD, PIPELINE, SLICES, unlike_fragments, unshared, warps
from kernelmark.kernels.gemm.ladder import MIDDLE, SMALL, WIDE

#: Tiles of the FP32 kernel. Each fills SMS multiprocessors with BLOCKS_PER_SM blocks; if there are too few tiles, the
#: reduction is cut into slices of at least DEPTH. LOW and NARROW are for 64 channels, as rows or as columns.
LEAST: dict[str, Tunable] = {**SMALL, "SMS": multiprocessors, "BLOCKS_PER_SM": 4, "DEPTH": 64}
NARROW: dict[str, Tunable] = {**MIDDLE, "BN": 64, "SMS": multiprocessors, "BLOCKS_PER_SM": 3, "DEPTH": 256}
LOW: dict[str, Tunable] = {**NARROW, "BM": 64, "BN": 128}
SQUARE: dict[str, Tunable] = {**MIDDLE, "SMS": multiprocessors, "BLOCKS_PER_SM": 2, "DEPTH": 256}
BROAD: dict[str, Tunable] = {**WIDE, "SMS": multiprocessors, "BLOCKS_PER_SM": 1, "DEPTH": 256}
#: SQUARE and BROAD, also cut into slices for several waves, with their relative rates (kernels/_waves.py).
FILLING = tuple(
    Choice({**tile, "BLOCKS_PER_SM": waves * resident}, rate, resident)
    for tile, rate, resident in ((SQUARE, 0.93, 2), (BROAD, 1.0, 1))
    for waves in (1, 2, 3, 4)
)
#: Tiles of the tensor cores' kernels for 16-bit elements. Those of FP32 elements are half as deep.
SMALL_16: dict[str, Tunable] = {**tensorcore.SMALL, "SMS": multiprocessors, "BLOCKS_PER_SM": 3, "DEPTH": 64}
SQUARE_16: dict[str, Tunable] = {
    **tensorcore.WIDE,
    "BN": 128,
    "WN": 32,
    "SMS": multiprocessors,
    "BLOCKS_PER_SM": 1,
    "DEPTH": 512,
}
WIDE_16: dict[str, Tunable] = {**tensorcore.WIDE, "SMS": multiprocessors, "BLOCKS_PER_SM": 1, "DEPTH": 512}
SMALL_32, SQUARE_32, WIDE_32 = (tile | {"BK": 16} for tile in (SMALL_16, SQUARE_16, WIDE_16))
#: Tuning spaces. No tile is narrower than 32, since more blocks would not fit along a grid's y.
SPACE: dict[str, tuple[Tunable, ...]] = {**PIPELINE, "BN": (32, 64, 128, 256), "SMS": (multiprocessors,), **SLICES}
SPACE_16: dict[str, tuple[Tunable, ...]] = {**tensorcore.SPACE, "BK": (32,), "SMS": (multiprocessors,), **SLICES}
SPACE_32: dict[str, tuple[Tunable, ...]] = SPACE_16 | {"BK": (16, 32)}
WAVES = 4  # with this many waves of blocks, it matters little that the last wave is not full
BALANCE = 16  # FP32 operations that a GPU with fast memory performs in the time in which it moves a byte

FFMA = (
    "conv_implicit<Direction::{direction}, Layout::{layout}, {BM}, {BN}, {BK}, {WM}, {WN}, {TM}, {TN}, {STAGES}, "
    "{W}, {V}, {MASKED}>"
)
MMA = (
    "conv_implicit_mma<{ARITHMETIC}, {OUT}, Direction::{direction}, Layout::{layout}, {BM}, {BN}, {BK}, {WM}, {WN}, "
    "{STAGES}, {W}, {V}, {MASKED}>"
)


def filled(entry: str, p: ConvProblem, **values: Any) -> str:
    """Return the kernel's C++ name with the values that depend on the problem filled in."""
    for name, value in {"MASKED": str(masked(p)).lower(), **values}.items():
        entry = entry.replace("{" + name + "}", str(value))
    return entry


def half_empty(p: ConvProblem, width: int) -> bool:
    """Return whether one or two tiles of this width cover the plain operand, and the last is at most half full."""
    size = product(p).plain_size
    return size <= 2 * width and 0 < size % width <= width // 2


def waves(p: ConvProblem, t: Tile) -> bool:
    """Return whether there are so many tiles that a partial last wave hardly matters."""
    return math.prod(blocks(p, t)) >= WAVES * int(t.SMS)


def launched(p: ConvProblem, t: Tile) -> int:
    """Return the number of blocks in the product's launch: tiles times slices."""
    return math.prod(blocks(p, t)) * slices(p, t)[1]


def useful(p: ConvProblem, t: Tile) -> float:
    """Return the share of the time that goes into elements of the product, not into padding and partial sums."""
    gathered, plain = (t.BM, t.BN) if gathered_rows(p) else (t.BN, t.BM)
    m, (_, count) = product(p), slices(p, t)
    across, down, _ = blocks(p, t)
    inside = m.gathered_size * m.plain_size / float(across * gathered * down * plain)
    return inside / (1 + (8 * count * BALANCE / (2 * m.depth) if count > 1 else 0))


def fill_half(p: ConvProblem, t: Tile, device: DeviceLimits) -> str | None:
    """Return a reason against tiles smaller than `t` if `t` makes enough blocks for half of the device, else None."""
    half = device.multiprocessors // 2
    return f"larger tiles make at least {half} blocks" if most_blocks(p, t) >= half else None


def valid(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why a tile of the FP32 kernel is invalid, or None. A thread copies at one index along BK in all steps."""
    if reason := unlike_fragments(t):
        return reason
    threads, sums = warps(t), t.TM * t.TN
    crowded = threads > 128 or (p.direction == "dgrad" and not masked(p))
    return beyond_block(threads, sums, 1 if sums > 64 else 2 if crowded else 3) or unshared(threads, 0, t.BK)


def unless(p: ConvProblem, t: Tile, device: DeviceLimits) -> str | None:
    """Return why a tile of the FP32 kernel is not the default, or None; tiles SQUARE and BROAD must fill the device."""
    least, low, narrow, square = (tile_on(device, tile) for tile in (LEAST, LOW, NARROW, SQUARE))
    if t == least:
        return fill_half(p, square, device)
    if t in (low, narrow) and (t == narrow) != gathered_rows(p):
        return f"{p.layout} {p.direction} has its channels along the other side of the tile"
    if t in (low, narrow) and not half_empty(p, 128):
        return "tiles of 128 channels are at least half full"
    return _FULLEST.unless(p, t, device) if _FULLEST.unless else None


def fit(p: ConvProblem, t: Tile, device: DeviceLimits) -> str | None:
    """Return why the tile, SQUARE or BROAD, does not suit the problem, or None."""
    crowded = SQUARE["BN"] == t.BN and ((p.layout, p.direction) != ("nchw", "fprop") or not masked(p))
    return f"{p.direction} of {p.r} x {p.s} causes register bank conflicts of FFMA" if crowded else None


_FULLEST = by_waves(FILLING, launched, useful, warps, fit)


def line(p: ConvProblem) -> int:
    """Return the length of aligned runs of elements that are contiguous in the output and in the product."""
    if p.direction == "wgrad":
        return p.c // p.groups * p.r * p.s
    if p.layout == "nhwc":
        return (p.k if p.direction == "fprop" else p.c) // p.groups
    return p.p * p.q if p.direction == "fprop" else p.h * p.w if p.unit_stride else 1


def packed(p: ConvProblem) -> tuple[int, int]:
    """Return W and V, the floats per copy and per store. Both are 1 for fprop in nhwc: 4 would spill registers."""
    filters, channels, last = p.k // p.groups, p.c // p.groups, p.layout == "nhwc"
    copied = last and p.direction != "fprop" and channels % 4 == 0 and (p.direction == "dgrad" or filters % 4 == 0)
    stored = 1 if last and p.direction == "fprop" else line(p)
    return 4 if copied else 1, 1 if stored % 4 else 4


def stages_bytes(t: Tile, w: int) -> int:
    """Return the FP32 kernel's shared memory in bytes: STAGES panels, with rows padded against bank conflicts."""
    threads_a_row = warps(t) // t.BK
    pad = threads_a_row if w == 1 and PAD < threads_a_row < 32 else PAD
    return int(4 * t.STAGES * t.BK * (t.BM + t.BN + 2 * pad))


@cuda_kernel(
    "conv",
    source="conv/implicit.cu",
    entry=FFMA,
    min_arch=80,
    dtypes=("f32",),
    numerics="fp32",
    supports=supports,
    tunables=SPACE,
    valid=valid,
    prefer=Prefer((LEAST, LOW, NARROW, *(choice.values for choice in FILLING)), unless),
)
def implicit(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Implicit GEMM in FP32, with panels gathered several steps ahead."""
    w, v = packed(p)
    return call(p, t, filled(FFMA, p, W=w, V=v), stages_bytes(t, w))


def whole_chunks(p: ConvProblem) -> str | None:
    """Return why channels cannot be copied in units of 16 bytes, or why implicit GEMM cannot take `p`, or None."""
    if p.layout == "nchw":  # copied word by word
        return supports(p)
    chunk = 16 // DTYPES[p.dtype].itemsize
    for name, size in (("c", p.c // p.groups), ("k", p.k // p.groups)):
        if size % chunk and (name == "c" or p.direction != "fprop"):
            return f"{name} / groups is {size}, expected a multiple of {chunk}: 16 bytes are copied at once"
    return supports(p)


def valid_mma(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    """Return why a tile of the tensor cores' kernels is invalid, or None."""
    if reason := tensorcore.unlike_mma(t, DTYPES[p.dtype].itemsize, (False, False)):
        return reason
    blocks = 1 if t.WM * t.WN > 1024 else 3 if masked(p) else 2
    return beyond_block(warps(t), t.WM * t.WN // 32, blocks) or unshared(warps(t), 0, t.BK)


def in_order(small: Mapping[str, Tunable], square: Mapping[str, Tunable], *wide: Mapping[str, Tunable]) -> Prefer:
    """Return a preference for larger tiles that fill the device; `wide` tiles are not used for nchw or dgrad."""

    def unless(p: ConvProblem, t: Tile, device: DeviceLimits) -> str | None:
        least, middle, *widest = (tile_on(device, tile) for tile in (small, square, *wide))
        if t == least:
            return fill_half(p, middle, device) if product(p).plain_size > t.BN else None
        crowded = p.layout == "nchw" or p.direction == "dgrad"
        if t in widest and crowded:
            return f"{p.layout} {p.direction} takes more registers than a thread has"
        if t == middle and widest and not crowded and not half_empty(p, 256) and waves(p, *widest):
            return f"larger tiles make {WAVES} waves or more"
        return None

    return Prefer((small, square, *wide), unless)


def mma_call(p: ConvProblem, t: Tile, arithmetic: str) -> list[KernelCall]:
    """Return the launches of conv/implicit_mma.cu."""
    out = DTYPES["f32" if slices(p, t)[1] > 1 else p.dtype]
    chunk, v = 16 // DTYPES[p.dtype].itemsize, 16 // out.itemsize
    w = chunk if p.layout == "nhwc" else 1
    entry = filled(MMA, p, ARITHMETIC=arithmetic, OUT=out.ctype, W=w, V=1 if line(p) % v else v)
    return call(p, t, entry, t.STAGES * t.BK * (t.BM + t.BN) * DTYPES[p.dtype].itemsize)


_MMA: dict[str, Any] = {
    "source": "conv/implicit_mma.cu",
    "entry": MMA,
    "min_arch": 80,
    "supports": whole_chunks,
    "valid": valid_mma,
}


@cuda_kernel(
    "conv",
    dtypes=("f16", "bf16"),
    layouts=("nhwc",),
    numerics={"f16": "f16", "bf16": "bf16"},
    tunables=SPACE_16,
    prefer=in_order(SMALL_16, SQUARE_16, WIDE_16),
    **_MMA,
)
def implicit_mma(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Implicit GEMM of 16-bit operands by mma.sync, channels last."""
    return mma_call(p, t, "Sixteen<{ctype}>")


@cuda_kernel(
    "conv",
    dtypes=("f32",),
    numerics="tf32",
    tunables=SPACE_32,
    prefer=in_order(SMALL_32, SQUARE_32, WIDE_32),
    **_MMA,
)
def implicit_tf32(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Implicit GEMM of FP32 operands rounded to TF32, by mma.sync."""
    return mma_call(p, t, "Tf32")


@cuda_kernel(
    "conv",
    dtypes=("f32",),
    layouts=("nhwc",),
    numerics="3xtf32",
    executed=lambda p, t: 3 * p.flop,
    tunables=SPACE_32,
    prefer=in_order(SMALL_32, SQUARE_32),
    **_MMA,
)
def implicit_3xtf32(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Implicit GEMM of FP32 operands split into two TF32 numbers, by three mma.sync products, channels last."""
    return mma_call(p, t, "ThreeTf32")
