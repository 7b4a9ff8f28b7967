"""Launch plan of the depthwise convolution in `cuda/conv`."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from kernelmark import DeviceLimits, KernelCall, Prefer, Tile, cuda_kernel
from kernelmark.kernels._cuda import GRID_LIMIT, ceil_div
from kernelmark.kernels.conv._geometry import fits_ints, geometry
from kernelmark.kernels.conv._sums import added, partials
from kernelmark.kernels.conv.problem import ConvProblem

THREADS = 256  # threads of a block of depthwise_wgrad.cuh, and the most threads of other blocks
PLANES = 32  # channels side by side in nhwc
TAPS = 9  # as in depthwise_wgrad.cuh
BLOCKS_PER_SM = 8  # blocks that fill a multiprocessor
#: OUT: rows of the output per thread. THREADS, KIB: the most threads of a block, and KiB of its shared memory. PIXELS:
#: the fewest pixels of a slice of wgrad, times the planes of a block.
TILES = tuple({"OUT": out, "THREADS": 256, "KIB": 48, "PIXELS": pixels} for out, pixels in ((4, 8192), (1, 64)))
SPACE = {
    "OUT": (1, 2, 4, 8, 16),
    "THREADS": (64, 128, 256),
    "KIB": (8, 16, 24, 32, 48),
    "PIXELS": (64, 512, 2048, 8192, 32768),
}


def _supports(p: ConvProblem) -> str | None:
    if p.groups != p.c:
        return f"groups is {p.groups}, expected c = {p.c}: each filter reads one channel"
    if max(p.n, p.c, p.k) > GRID_LIMIT:
        return f"n, c or k is {max(p.n, p.c, p.k)}, expected at most {GRID_LIMIT}: they are blocks along y and z"
    return fits_ints(p)


class Block(NamedTuple):
    """A block: threads along planes, rows and columns, and the tile that they stage."""

    planes: int
    rows: int
    cols: int
    tile_rows: int
    tile_cols: int

    def threads(self, layout: str) -> tuple[int, int, int]:
        """Return the threads along x, y and z for a layout."""
        return (self.cols, self.rows, self.planes) if layout == "nchw" else (self.planes, self.cols, self.rows)

    def shared_bytes(self, taps: int) -> int:
        return 4 * self.planes * (self.tile_rows * self.tile_cols + (taps | 1))


def output(p: ConvProblem) -> tuple[int, int, int]:
    """Return the numbers of planes in an image, and of the rows and columns that tiles cover."""
    return (p.k, p.p, p.q) if p.direction == "fprop" else (p.c, p.h, p.w)


def block(p: ConvProblem, t: Tile) -> Block | None:
    """Return the largest block that fits in shared memory, with the most threads along the contiguous axis."""
    return next((b for b in _blocks(p, t.OUT, t.THREADS) if b.shared_bytes(p.r * p.s) <= 1024 * t.KIB), None)


def _blocks(p: ConvProblem, out: int, threads: int) -> Iterator[Block]:
    """Yield blocks by falling size along x, then y, then z: columns, rows, planes, or in nhwc planes, columns, rows."""
    planes, height, width = output(p)
    last = p.layout == "nhwc"
    sizes = (planes, width, ceil_div(height, out)) if last else (width, ceil_div(height, out), planes)
    limits = (32, 8, 8) if last else (32, 8, 64)
    most = [min(_power_of_2(size), limit) for size, limit in zip(sizes, limits, strict=True)]
    for x in _halves(most[0]):
        for y in _halves(most[1]):
            for z in _halves(min(most[2], threads // (x * y))):
                rows, cols, of_planes = (z, y, x) if last else (y, x, z)
                yield Block(of_planes, rows, cols, *_staged(p, rows * out, cols))


def _halves(most: int) -> Iterator[int]:
    """Yield a power of 2, then all smaller powers."""
    while most:
        yield most
        most //= 2


def _power_of_2(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _staged(p: ConvProblem, rows: int, cols: int) -> tuple[int, int]:
    """Return the rows and columns of the input that a tile of the output needs (dgrad: input and output swapped)."""
    high, wide = (p.r - 1) * p.dilation_h, (p.s - 1) * p.dilation_w
    if p.direction == "fprop":
        return (rows - 1) * p.stride_h + high + 1, (cols - 1) * p.stride_w + wide + 1
    return (rows - 1 + high) // p.stride_h + 1, (cols - 1 + wide) // p.stride_w + 1


def _unfit(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    if p.direction == "wgrad":
        return None
    if output(p)[1] < t.OUT:
        return f"the tile has {t.OUT} rows per thread, expected at most the image's {output(p)[1]}"
    least = Block(1, 1, 1, *_staged(p, t.OUT, 1)).shared_bytes(p.r * p.s)
    return None if block(p, t) else f"a tile takes {least} bytes of shared memory, expected at most {1024 * t.KIB}"


@cuda_kernel(
    "conv",
    source="conv/depthwise.cu",
    entry="conv_depthwise_{direction}<{ctype}, {OUT}, Layout::{layout}>",
    supports=_supports,
    tunables=SPACE,
    valid=_unfit,
    prefer=Prefer(TILES),
)
def depthwise(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """A filter per channel, with images staged in shared memory."""
    if p.direction == "wgrad":
        return _wgrad(p, t.PIXELS, device.multiprocessors * BLOCKS_PER_SM)
    b, (planes, height, width) = block(p, t), output(p)
    assert b is not None  # otherwise no tile is valid
    across = ceil_div(width, b.cols)
    grid = (ceil_div(height, b.rows * t.OUT) * across, ceil_div(planes, b.planes), p.n)
    args = ("x", "w", "y", b.tile_rows, b.tile_cols, across, geometry(p))
    return [KernelCall(grid, b.threads(p.layout), args, b.shared_bytes(p.r * p.s))]


def _wgrad(p: ConvProblem, least: int, blocks: int) -> list[KernelCall]:
    """Return the launch that sums slices of pixels and, if needed, the one that adds these sums.

    There are as many slices as `blocks` blocks allow, but each has at least `least` pixels (nhwc: least / PLANES).
    """
    planes, groups = (PLANES if p.layout == "nhwc" else 1), ceil_div(p.r * p.s, TAPS)
    over_filters, pixels = (ceil_div(p.k, planes), groups), p.n * p.p * p.q
    most = max(1, blocks // math.prod(over_filters))
    slice_ = max(ceil_div(pixels, most), least // planes)
    slices = ceil_div(pixels, slice_)
    entry = f"conv_depthwise_wgrad<{p.ctype}, {p.ctype if slices == 1 else 'float'}, Layout::{p.layout}>"
    args = ("x", partials(p, slices), "y", slice_, geometry(p))
    return [
        KernelCall((*over_filters, slices), THREADS, args, entry=entry),
        *added(p, slices, f"conv_sum<{p.ctype}>"),
    ]
