"""Sizes, slices and launches of implicit GEMM (`cuda/conv/implicit*.cu`)."""

import math
from typing import NamedTuple

import numpy as np

from kernelmark import KernelCall, Tile
from kernelmark.kernels._cuda import GRID_LIMIT, INT_LIMIT, ceil_div
from kernelmark.kernels.conv._geometry import elements, fits_ints, geometry
from kernelmark.kernels.conv._sums import added, partials
from kernelmark.kernels.conv.problem import ConvProblem
from kernelmark.kernels.gemm._tiles import warps

WIDEST = 256  # the most rows or columns of a tile
DEEPEST = 32  # elements of the reduction in a step
NARROWEST = 32  # the fewest rows or columns of a tile
MASK_BITS = 32
FARTHEST = 15  # pixels from a filter's first tap along an axis: limit of wgrad in cuda/conv/implicit_feed.cuh


class Product(NamedTuple):
    """The matrix products of a convolution: a gathered (im2col) operand times a plain operand, summed over `depth`.

    `parts` is the number of products: one for each group or, for an input's gradient, one for each phase (residue
    modulo the strides) of each group.
    """

    plain: str
    gathered: str
    plain_size: int
    gathered_size: int
    depth: int
    parts: int


def product(p: ConvProblem) -> Product:
    """Return the product of the largest phase; others are equal, or smaller by a row or column of pixels or taps."""
    filters, channels = p.k // p.groups, p.c // p.groups
    if p.direction == "wgrad":
        return Product("y", "x", filters, channels * p.r * p.s, p.n * p.p * p.q, p.groups)
    if p.direction == "fprop":
        return Product("w", "x", filters, p.n * p.p * p.q, channels * taps(p), p.groups)
    pixels = p.n * ceil_div(p.h, p.stride_h) * ceil_div(p.w, p.stride_w)
    return Product("w", "y", channels, pixels, filters * taps(p), p.groups * p.stride_h * p.stride_w)


def taps(p: ConvProblem) -> int:
    """Return the number of taps that contribute to a pixel; for an input's gradient, in the largest phase."""
    if p.direction != "dgrad":
        return p.r * p.s
    down, across = math.gcd(p.stride_h, p.dilation_h), math.gcd(p.stride_w, p.dilation_w)
    return ceil_div(p.r, p.stride_h // down) * ceil_div(p.s, p.stride_w // across)


def masked(p: ConvProblem) -> bool:
    """Return whether a bit mask can tell which taps are inside the image: a bit per tap (wgrad: per row and column)."""
    if p.direction != "wgrad":
        return taps(p) <= MASK_BITS
    high = near(p.h, p.p, p.r, p.stride_h, p.dilation_h, p.pad_h.before)
    return high and near(p.w, p.q, p.s, p.stride_w, p.dilation_w, p.pad_w.before)


def near(size: int, outputs: int, taps: int, stride: int, dilation: int, pad: int) -> bool:
    """Return whether the taps of an axis are close together, and the first tap never lies past the image's end."""
    return (taps - 1) * dilation < FARTHEST and (outputs - 1) * stride - pad <= size


def gathered_rows(p: ConvProblem) -> bool:
    """Return whether the gathered operand provides the rows of the product; otherwise it provides the columns."""
    return p.layout == "nhwc" and p.direction != "wgrad"


def blocks(p: ConvProblem, t: Tile) -> tuple[int, int, int]:
    """Return the tile counts of the gathered and of the plain operand, and the number of parts."""
    gathered, plain = (t.BM, t.BN) if gathered_rows(p) else (t.BN, t.BM)
    m = product(p)
    return ceil_div(m.gathered_size, gathered), ceil_div(m.plain_size, plain), m.parts


def slices(p: ConvProblem, t: Tile) -> tuple[int, int]:
    """Divide the reduction into slices that fill the device; return their depth (at least DEPTH) and number."""
    depth = product(p).depth
    wanted = max(1, min(t.SMS * t.BLOCKS_PER_SM // math.prod(blocks(p, t)), depth // t.DEPTH))
    deep = ceil_div(ceil_div(depth, wanted), t.BK) * t.BK
    return deep, ceil_div(depth, deep)


def most_blocks(p: ConvProblem, t: Tile) -> int:
    """Return the number of blocks in a launch if slices have the least depth, DEPTH; no launch has more blocks."""
    return math.prod(blocks(p, t)) * max(1, product(p).depth // int(t.DEPTH))


def supports(p: ConvProblem) -> str | None:
    """Return why implicit GEMM cannot take the problem, or None."""
    if reason := fits_ints(p):
        return reason
    m = product(p)
    if m.parts > GRID_LIMIT:
        return f"groups and strides make {m.parts} parts, expected at most {GRID_LIMIT}: a grid's blocks along z"
    if m.plain_size > GRID_LIMIT * NARROWEST:
        return f"got {m.plain_size} channels or filters, expected at most {GRID_LIMIT * NARROWEST}: blocks along y"
    pixels = p.p * p.q if p.direction == "wgrad" else m.gathered_size // p.n
    spanned = min(p.n, (DEEPEST if p.direction == "wgrad" else WIDEST) // pixels + 2)
    images = max(elements(p, name) // p.n for name in ("x", "y")) * spanned
    stepped = DEEPEST * max(p.h * p.w, p.c * p.r * p.s)
    if max(images, stepped) > INT_LIMIT:
        return f"a tile spans {max(images, stepped)} elements of an operand, expected at most {INT_LIMIT}"
    return None


def call(p: ConvProblem, t: Tile, entry: str, shared_bytes: int) -> list[KernelCall]:
    """Return the product's launch and, if there are several slices, the launch that adds their partial sums."""
    m, (depth, count) = product(p), slices(p, t)
    x, y, z = blocks(p, t)
    number = np.int64(elements(p, p.output))
    arguments = (m.plain, m.gathered, partials(p, count), depth, count, number, geometry(p))
    launch = KernelCall((x, y, z * count), warps(t), arguments, shared_bytes, entry)
    return [launch, *added(p, count, f"conv_sum<{p.ctype}>")]
