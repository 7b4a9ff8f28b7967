"""Implicit GEMM on Hopper's tensor cores: wgmma multiplies tiles that the TMA gathers (cuda/conv/implicit_wgmma.cu)."""

import numpy as np

from kernelmark import DTYPES, DeviceLimits, Im2colMap, KernelCall, Prefer, TensorMap, Tile, cuda_kernel
from kernelmark.kernels._cuda import INT_LIMIT, ceil_div
from kernelmark.kernels.conv._geometry import elements, fits_ints, geometry
from kernelmark.kernels.conv._sums import added, partials
from kernelmark.kernels.conv.problem import ConvProblem
from kernelmark.kernels.gemm import hopper
from kernelmark.kernels.gemm.hopper import (
    ATOM_BYTES,
    BM,
    BOX,
    BUFFERS,
    HOPPER,
    NARROW,
    PERSISTENT,
    ROW_BYTES,
    SMALL,
    WIDE,
)

FARTHEST = 255  # pixels from a filter's first tap along an axis: the TMA has 8 bits for them
CHUNK = 8  # 16-bit elements; the TMA needs a multiple of them in each pixel
PAST = 4 * BM  # rows past the last pixel for which blocks of a cluster still compute addresses
ENTRY = "conv_implicit_wgmma<{ctype}, Direction::{direction}, {BN}, {STAGES}, {CLUSTER}>"


def images(p: ConvProblem, pixels: int) -> Im2colMap:
    """Return the tensor map of the gathered images for copies of this many pixels with 64 channels."""
    box = (pixels, ROW_BYTES // DTYPES[p.dtype].itemsize)
    down, right = (p.r - 1) * p.dilation_h, (p.s - 1) * p.dilation_w
    if p.direction == "dgrad":
        lower = (p.pad_h.before - down, p.pad_w.before - right)
        upper = (lower[0] + p.h - p.p, lower[1] + p.w - p.q)
        return Im2colMap("y", box, lower, upper, swizzle="128B")
    lower, upper = (-p.pad_h.before, -p.pad_w.before), (p.pad_h.after - down, p.pad_w.after - right)
    return Im2colMap("x", box, lower, upper, (p.stride_h, p.stride_w), "128B")


def product(p: ConvProblem) -> tuple[int, int, int]:
    """Return the rows and columns of the product, and the number of parts: one per tap for a filter's gradient."""
    if p.direction == "wgrad":
        return p.k, p.c, p.r * p.s
    return (p.n * p.p * p.q, p.k, 1) if p.direction == "fprop" else (p.n * p.h * p.w, p.c, 1)


def cluster_tiles(p: ConvProblem, t: Tile) -> int:
    """Return the number of cluster-sized tiles of all parts."""
    rows, columns, parts = product(p)
    return ceil_div(rows, BM * t.CLUSTER) * ceil_div(columns, t.BN) * parts


def slices(p: ConvProblem, t: Tile) -> tuple[int, int]:
    """Divide the pixels of a filter's gradient into slices that fill the device; return their steps and number.

    A slice has at least DEPTH pixels, unless the problem has fewer. Other products have one slice.
    """
    pixels = p.n * p.p * p.q
    steps = ceil_div(pixels, BOX)
    wanted = max(1, min(t.SMS // (cluster_tiles(p, t) * t.CLUSTER), pixels // t.DEPTH))
    depth = ceil_div(steps, wanted if p.direction == "wgrad" else 1)
    return depth, ceil_div(steps, depth)


def blocks(p: ConvProblem, t: Tile) -> int:
    """Return the number of block-sized tiles, times the slices."""
    return cluster_tiles(p, t) * int(t.CLUSTER) * slices(p, t)[1]


def supports(p: ConvProblem) -> str | None:
    """Return why the kernel cannot take the problem, or None."""
    if p.groups > 1:
        return f"groups is {p.groups}, expected 1: a tile spans all channels"
    for name, size in (("c", p.c), ("k", p.k)):
        if size % CHUNK:
            return (
                f"{name} is {size}, expected a multiple of {CHUNK}: pixels begin at multiples of 16 bytes for the TMA"
            )
    if p.direction == "dgrad" and not p.unit_stride:
        return f"the stride is {p.stride}, expected 1 in an input's gradient: a tap reaches only some of the pixels"
    farthest = max((p.r - 1) * p.dilation_h, (p.s - 1) * p.dilation_w)
    if farthest > FARTHEST:
        return (
            f"a tap lies {farthest} pixels from the first one, expected at most {FARTHEST}: the TMA has 8 bits for it"
        )
    if p.n * max(p.h * p.w, p.p * p.q) > INT_LIMIT - PAST:
        return f"there are more than {INT_LIMIT - PAST} pixels: they are counted in C ints"
    return images(p, BM).refusal(DTYPES[p.dtype].itemsize) or fits_ints(p)


_ORDER = hopper.in_order(blocks, WIDE | {"DEPTH": 256}, NARROW | {"DEPTH": 256}, SMALL | {"DEPTH": 64})


def unless(p: ConvProblem, t: Tile, device: DeviceLimits) -> str | None:
    """Return None, or why a narrower tile is better: the last tile is half empty, or narrow tiles make more blocks."""
    columns = product(p)[1]
    if t.BN > BOX and columns <= 2 * t.BN and 0 < columns % t.BN <= t.BN // 2:
        return f"half of a tile of {t.BN} columns is empty"
    return _ORDER.unless(p, t, device) if _ORDER.unless else None


@cuda_kernel(
    "conv",
    source="conv/implicit_wgmma.cu",
    entry=ENTRY,
    dtypes=("f16", "bf16"),
    layouts=("nhwc",),
    numerics={"f16": "f16", "bf16": "bf16"},
    supports=supports,
    tunables=PERSISTENT | {"DEPTH": (256, 64, 128, 512, 1024, 2048)},
    valid=hopper.whole_boxes,
    prefer=Prefer(_ORDER.tiles, unless),
    **HOPPER,
)
def implicit_wgmma(p: ConvProblem, t: Tile, device: DeviceLimits) -> list[KernelCall]:
    """Implicit GEMM of 16-bit operands by warp-specialised wgmma, gathered by the TMA, channels last."""
    depth, count = slices(p, t)
    pixels = TensorMap("y" if p.direction != "dgrad" else "x", (BOX, BOX), "128B", rows=(0, 1, 2))
    grid = min(t.SMS // t.CLUSTER, cluster_tiles(p, t) * count) * t.CLUSTER
    shared_bytes = hopper.stages_bytes(t) + ATOM_BYTES
    if p.direction == "wgrad":
        out = DTYPES["f32" if count > 1 else p.dtype].ctype
        entry = f"conv_implicit_wgmma_wgrad<{{ctype}}, {out}, {{BN}}, {{STAGES}}, {{CLUSTER}}>"
        cut = (p.n * p.p * p.q, depth, count, np.int64(elements(p, "w")))
        sliced = (pixels, images(p, BOX), partials(p, count), *cut, geometry(p))
        launch = KernelCall(grid, 3 * hopper.WARPGROUP, sliced, shared_bytes, entry, t.CLUSTER)
        return [launch, *added(p, count, f"conv_sum<{p.ctype}>")]
    filters = TensorMap("w", (t.BN // t.CLUSTER if p.direction == "fprop" else BOX, BOX), "128B", rows=(0,))
    shared_bytes += BM * ROW_BYTES * min(t.BN // BOX, BUFFERS)
    arguments = (images(p, BM), filters, pixels, product(p)[0], geometry(p))
    return [KernelCall(grid, 3 * hopper.WARPGROUP, arguments, shared_bytes, cluster=t.CLUSTER)]
