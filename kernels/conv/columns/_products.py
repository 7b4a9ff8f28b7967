"""The products of convolution by columns: their matrices, addresses, and the number of images at a time."""

from typing import NamedTuple

from kernelmark import Scratch, Tile
from kernelmark.kernels._cuda import GRID_LIMIT, ceil_div
from kernelmark.kernels.conv.problem import ConvProblem
from kernelmark.kernels.gemm._tiles import PACK

ENTRY = "conv_columns_{what}<{BM}, {BN}, {BK}, {WM}, {WN}, {TM}, {TN}, {STAGES}, {W}, {V}, Op::{op_a}, Op::{op_b}>"


class Matrix(NamedTuple):
    """A matrix in the operand or scratch `at`: leading dimension, offset, strides of groups and images, in floats."""

    at: str | Scratch
    ld: int
    first: int = 0
    group: int = 0
    image: int = 0

    def packed(self, length: int) -> bool:
        """Return whether rows of this length in the matrix begin and end at vector boundaries."""
        return not any(size % PACK for size in (length, *self[1:]))


class Pass(NamedTuple):
    """The images that are multiplied in one pass; the scratch for their columns has room for `most` images."""

    first: int
    images: int
    most: int


class Product(NamedTuple):
    """For each group, `products` GEMMs op(a) op(b) (m x n, over k), or their sum. op: `NN`, `NT` or `TN`."""

    op: str
    a: Matrix
    b: Matrix
    c: Matrix
    m: int
    n: int
    k: int
    products: int

    @property
    def loaded_n(self) -> int:
        """Return the number of columns of op(b) that may be read, including padding."""
        padded = self.op[1] == "N" and isinstance(self.b.at, Scratch)
        return ceil_div(self.n, PACK) * PACK if padded else self.n

    @property
    def loads_packs(self) -> bool:
        """Return whether the operands' rows that are stored along m or n begin and end at vector boundaries."""
        return (self.op[0] == "N" or self.a.packed(self.m)) and (self.op[1] == "T" or self.b.packed(self.loaded_n))

    def entry(self, what: str, tile: Tile) -> str:
        widths = {"W": PACK if self.loads_packs else 1, "V": PACK if self.c.packed(self.n) else 1}
        return ENTRY.format(what=what, op_a=self.op[0], op_b=self.op[1], **widths, **vars(tile))

    def tiles(self, t: Tile) -> tuple[int, int]:
        """Return how many tiles cover the product, and how many of them lie side by side in a row."""
        across = ceil_div(self.n, t.BN)
        return ceil_div(self.m, t.BM) * across, across


def height(p: ConvProblem) -> int:
    """Return the number of rows of one group's im2col matrix: channels times taps."""
    return p.c // p.groups * p.r * p.s


def leading(p: ConvProblem) -> int:
    """Return the number of floats in a stored row of the im2col matrix, padded to whole vectors."""
    return ceil_div(p.p * p.q if p.layout == "nchw" else height(p), PACK) * PACK


def _image_floats(p: ConvProblem) -> int:
    """Return the number of elements in the columns of one image."""
    return leading(p) * (p.groups * height(p) if p.layout == "nchw" else p.groups * p.p * p.q)


def passes(p: ConvProblem, t: Tile) -> list[Pass]:
    """Divide the images into passes, each with as many images as the scratch and the grid have room for."""
    limit = p.n if p.pointwise else max(1, t.KIB * 1024 // (4 * _image_floats(p)))
    step = min(p.n, limit, GRID_LIMIT // p.groups)
    return [Pass(first, min(step, p.n - first), step) for first in range(0, p.n, step)]


def columns(p: ConvProblem, now: Pass) -> Matrix:
    """Return the im2col matrix of a pass, or x itself if the convolution is pointwise."""
    depth, pixels = p.c // p.groups, p.p * p.q
    if p.pointwise:
        first = now.first * p.c * pixels
        if p.layout == "nchw":
            return Matrix("x", pixels, first, depth * pixels, p.c * pixels)
        return Matrix("x", p.c, first, depth)
    scratch = Scratch("columns", 4 * now.most * _image_floats(p))
    if p.layout == "nchw":
        return Matrix(scratch, leading(p), 0, height(p) * leading(p), _image_floats(p))
    return Matrix(scratch, leading(p), 0, now.images * pixels * leading(p))


def product(p: ConvProblem, now: Pass) -> Product:
    """Return the product of a pass. In nhwc the images of a pass are one matrix."""
    filters, high, pixels = p.k // p.groups, height(p), p.p * p.q
    col, w = columns(p, now), Matrix("w", high, 0, filters * high)
    first = now.first * p.k * pixels
    if p.layout == "nchw":
        y = Matrix("y", pixels, first, filters * pixels, p.k * pixels)
        if p.direction == "fprop":
            return Product("NN", w, col, y, filters, pixels, high, now.images)
        if p.direction == "dgrad":
            return Product("TN", w, y, col, high, pixels, filters, now.images)
        return Product("NT", y, col, w, filters, high, pixels, now.images)
    y, pixels = Matrix("y", p.k, first, filters), now.images * pixels
    if p.direction == "fprop":
        return Product("NT", col, w, y, pixels, filters, high, 1)
    if p.direction == "dgrad":
        return Product("NN", y, w, col, pixels, high, filters, 1)
    return Product("TN", y, col, w, filters, high, pixels, 1)
