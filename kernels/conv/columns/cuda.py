"""Launch plans of im2col and col2im in `cuda/conv`, with the GEMM of the FP32 ladder."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kernelmark import DeviceLimits, KernelCall, Prefer, Scratch, Tile, cuda_kernel
from kernelmark.kernels._cuda import GRID_LIMIT, ceil_div
from kernelmark.kernels.conv._geometry import fits_ints, geometry
from kernelmark.kernels.conv._sums import added, partials
from kernelmark.kernels.conv.columns._products import ENTRY, Pass, Product, columns, height, leading, passes, product
from kernelmark.kernels.conv.problem import ConvProblem
from kernelmark.kernels.gemm._tiles import PACK, PIPELINE, pipelined, warps
from kernelmark.kernels.gemm.ladder import NARROW, SMALL, stages_bytes

WARP, WARPS, PIXELS = 32, 8, 4  # as in im2col.cu
BLOCKS_PER_SM = 3  # blocks that fill a multiprocessor
#: SLICE: the least length of a slice of wgrad's sum. KIB: the most KiB of columns in a pass, unless a single image has
#: more. LOW wastes less if a product has few rows. With blocks of 256 threads, a thread would have 128 registers, which
#: are too few for 64 sums and the strides of groups and images.
LOW = NARROW | {"BM": 64, "BN": 128, "WM": 32, "WN": 64}
LARGE = {"SLICE": 256, "KIB": 2**19}
TILES = (NARROW | LARGE, LOW | LARGE, SMALL | {"SLICE": 8, "KIB": 1})
SPACE = {**PIPELINE, "SLICE": (8, 64, 128, 256, 512, 1024), "KIB": (1, 2**13, 2**15, 2**17, 2**19)}


def _supports(p: ConvProblem) -> str | None:
    if p.groups > GRID_LIMIT:
        return f"groups is {p.groups}, expected at most {GRID_LIMIT}: they are blocks along z"
    blocks = max(ceil_div(p.c, WARPS), ceil_div(height(p) + PACK, WARP))
    if blocks > GRID_LIMIT:
        return f"channels or taps make {blocks} blocks along y, expected at most {GRID_LIMIT}"
    return fits_ints(p)


def _valid(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    first = product(p, passes(p, t)[0])
    return pipelined(t, (first.op[0] == "N", first.op[1] == "T"), PACK if first.loads_packs else 1)


def _unless(p: ConvProblem, t: Tile, _: DeviceLimits) -> str | None:
    m = product(p, passes(p, t)[0]).m
    return f"the product has {m} rows, expected more than half of BM = {t.BM}" if m <= t.BM // 2 and t.BM > 64 else None


@cuda_kernel(
    "conv",
    source="conv/im2col.cu",
    entry=ENTRY,
    min_arch=80,
    dtypes=("f32",),
    supports=_supports,
    tunables=SPACE,
    valid=_valid,
    prefer=Prefer(TILES, _unless),
)
def im2col(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Columns in scratch memory, multiplied by the pipelined FP32 GEMM."""
    return list(_wgrad(p, t, device) if p.direction == "wgrad" else _multiplied(p, t))


def _multiplied(p: ConvProblem, t: Tile) -> Iterator[KernelCall]:
    for now in passes(p, t):
        if p.direction == "fprop" and not p.pointwise:
            yield _im2col(p, now)
        yield _gemm(p, product(p, now), t)
        if p.direction == "dgrad" and not p.pointwise:
            yield _col2im(p, now)


def _im2col(p: ConvProblem, now: Pass) -> KernelCall:
    ld, scratch = leading(p), columns(p, now).at
    if p.layout == "nchw":
        grid = (ceil_div(ld, WARP), ceil_div(p.c, WARPS), now.images)
        return KernelCall(grid, (WARP, WARPS), ("x", scratch, now.first, ld, geometry(p)), entry="conv_im2col_nchw")
    grid = (ceil_div(now.images * p.p * p.q, WARPS * PIXELS), ceil_div(ld, WARP), p.groups)
    return KernelCall(
        grid, (WARP, WARPS), ("x", scratch, now.first, now.images, ld, geometry(p)), entry="conv_im2col_nhwc"
    )


def _col2im(p: ConvProblem, now: Pass) -> KernelCall:
    width, tall = (WARP, WARPS) if p.layout == "nchw" else (WARPS, WARP)
    grid = (ceil_div(now.images * p.h * p.w, width), ceil_div(p.c, tall))
    args = (columns(p, now).at, "x", now.first, now.images, leading(p), geometry(p))
    return KernelCall(grid, (WARP, WARPS), args, entry=f"conv_col2im<Layout::{p.layout}>")


def _gemm(p: ConvProblem, d: Product, t: Tile) -> KernelCall:
    blocks, across = d.tiles(t)
    factors = (d.a, d.b, d.c)
    sizes = (d.m, d.n, d.k, d.loaded_n, *(x.ld for x in factors), across, p.groups)
    steps = (*(x.first for x in factors), *(x.group for x in factors), *(x.image for x in factors))
    args = (*(x.at for x in factors), *sizes, *map(np.int64, steps))
    return KernelCall((blocks, 1, d.products * p.groups), warps(t), args, stages_bytes(t), d.entry("gemm", t))


class Sum(NamedTuple):
    """The sum over the images of a pass, divided into `slices` slices of `depth` terms."""

    now: Pass
    depth: int
    slices: int


def sums(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[Sum]:
    """Return the sum of each pass, divided into slices that fill the device; `depth` is at least SLICE."""

    def sliced(now: Pass) -> Sum:
        d = product(p, now)
        wanted = max(1, device.multiprocessors * BLOCKS_PER_SM // (d.tiles(t)[0] * p.groups))
        depth = max(ceil_div(d.k * d.products, wanted), t.SLICE)
        return Sum(now, depth, ceil_div(d.k * d.products, depth))

    return [sliced(now) for now in passes(p, t)]


def _wgrad(p: ConvProblem, t: Tile, device: DeviceLimits) -> Iterator[KernelCall]:
    parts = sums(p, t, device)
    slices = sum(part.slices for part in parts)
    out = partials(p, slices)
    before = 0
    for part in parts:
        if not p.pointwise:
            yield _im2col(p, part.now)
        yield _slices(p, part, out, before, t)
        before += part.slices
    yield from added(p, slices, "conv_sum<float>")


def _slices(p: ConvProblem, part: Sum, out: str | Scratch, before: int, t: Tile) -> KernelCall:
    d = product(p, part.now)
    blocks, across = d.tiles(t)
    sizes = (d.m, d.n, d.k, d.k * d.products, part.depth, d.loaded_n, d.a.ld, d.b.ld, across, p.groups, before)
    steps = (d.a.first, d.b.first, d.a.group, d.b.group, d.a.image, d.b.image)
    args = (d.a.at, d.b.at, out, *sizes, *map(np.int64, steps))
    return KernelCall((blocks, 1, part.slices * p.groups), warps(t), args, stages_bytes(t), d.entry("sum", t))
