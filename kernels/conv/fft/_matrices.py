"""How a convolution's tensors are cut into overlapping tiles for the transforms in cuda/conv/fft_tiled*.cu."""

import math
from typing import Any, NamedTuple

import numpy as np

from kernelmark import Scratch
from kernels._cuda import GRID_LIMIT, INT_LIMIT, ceil_div
from kernels.conv.problem import ConvProblem

THREADS = 128  # of a block that transforms: each has a column of two tiles
SIDES = (32, 16)
#: A side or a tile is refused where it costs this many times what the cheapest costs.
WASTE = 1.5
Pair = tuple[int, int]  # of height and width


class Tensor(NamedTuple):
    """One group's share of an operand; a filter is an image. Strides are in elements, of an image and of a group."""

    channels: int
    images: int
    size: Pair
    image_stride: int
    group_stride: int


class Cut(NamedTuple):
    """A tensor in tiles, as the .cu have it. by_channel: its channels are the rows of its spectrum's matrices."""

    name: str
    tensor: Tensor
    by_channel: bool
    tiles: Pair
    first: Pair
    step: Pair
    extent: Pair
    conjugate: bool

    @property
    def places(self) -> int:
        """Tiles of one channel of all images."""
        return self.tensor.images * math.prod(self.tiles)

    @property
    def matrix(self) -> Pair:
        """Rows and columns."""
        size = (self.tensor.channels, self.places)
        return size if self.by_channel else size[::-1]

    def ld(self, side: int) -> int:
        """Columns, rounded up to what a block transforms."""
        width = 2 * THREADS // side
        return ceil_div(self.matrix[1], width) * width

    def spectrum(self, side: int, groups: int) -> Scratch:
        return Scratch(f"spectrum_{self.name}", 8 * frequencies(side) * groups * self.matrix[0] * self.ld(side))

    def grid(self, side: int, groups: int) -> Pair:
        return self.matrix[0] * self.ld(side) * side // (2 * THREADS), groups

    def arguments(self, side: int, *, extent: bool) -> tuple[Any, ...]:
        t = self.tensor
        sizes = (t.channels, t.images, *t.size, *self.tiles, *self.first, *self.step)
        strides = (np.int64(t.image_stride), np.int64(t.group_stride))
        return (*sizes, *(self.extent if extent else ()), self.ld(side), *strides)


def frequencies(side: int) -> int:
    """Of the transform of a real tile, those that are kept; the others are their conjugates."""
    return side * (side // 2 + 1)


def fitting(p: ConvProblem) -> list[int]:
    """Sides of tiles that hold a filter and more."""
    return [side for side in SIDES if max(p.r, p.s) < side]


def tensors(p: ConvProblem) -> dict[str, Tensor]:
    c, k, taps = p.c // p.groups, p.k // p.groups, p.r * p.s
    return {
        "x": Tensor(c, p.n, (p.h, p.w), p.c * p.h * p.w, c * p.h * p.w),
        "w": Tensor(c, k, (p.r, p.s), c * taps, k * c * taps),
        "y": Tensor(k, p.n, (p.p, p.q), p.k * p.p * p.q, k * p.p * p.q),
    }


def cuts(p: ConvProblem, side: int) -> tuple[Cut, Cut, Cut]:
    """The operands whose spectra A and B are multiplied, C = A^T B, and the output."""
    step, whole = (side - p.r + 1, side - p.s + 1), (side, side)
    before, last = (p.pad_h.before, p.pad_w.before), (p.r - 1, p.s - 1)
    found = tensors(p)
    over = found["x" if p.direction == "dgrad" else "y"].size  # tiles begin a step of these apart
    tiles = (ceil_div(over[0], step[0]), ceil_div(over[1], step[1]))

    def cut(name: str, by_channel: bool, first: Pair = (0, 0), extent: Pair = whole, conjugate: bool = False) -> Cut:
        count, apart = ((1, 1), whole) if name == "w" else (tiles, step)
        return Cut(name, found[name], by_channel, count, first, apart, extent, conjugate)

    if p.direction == "fprop":
        return cut("w", True, conjugate=True), cut("x", True, (-before[0], -before[1])), cut("y", True)
    if p.direction == "dgrad":
        lead = (before[0] - last[0], before[1] - last[1])
        return cut("w", False), cut("y", True, lead), cut("x", True, (-last[0], -last[1]))
    x = cut("x", False, (-before[0], -before[1]))
    return x, cut("y", False, extent=step, conjugate=True), cut("w", True)


def transform_flop(side: int) -> int:
    """Of two real tiles, which are one complex one: 5 N log2 N."""
    return 5 * side**2 * int(math.log2(side**2))


def supports(p: ConvProblem) -> str | None:
    """Why no convolution by tiles can take the problem, or None."""
    for name in ("stride", "dilation"):
        if getattr(p, name) != 1:
            return f"{name} is {getattr(p, name)}, expected 1"
    for name in ("r", "s"):
        if getattr(p, name) >= max(SIDES):
            return f"{name} is {getattr(p, name)}, expected less than {max(SIDES)}, the side of a tile"
    if p.groups > GRID_LIMIT:
        return f"groups is {p.groups}, expected at most {GRID_LIMIT}: a grid has {GRID_LIMIT} blocks along y"
    blocks = max(cut.grid(side, 1)[0] for side in fitting(p) for cut in cuts(p, side))
    return None if blocks <= INT_LIMIT else f"{blocks} blocks of tiles, expected at most {INT_LIMIT} along x"


def wasteful(p: ConvProblem, side: int, among: list[int]) -> str | None:
    """Why a side is none to take, or None: memory and products grow with the frequencies of all tiles."""
    if side not in among:
        return f"tiles of {side} x {side} do not hold the problem"

    def found(side: int) -> int:
        return math.prod(cuts(p, side)[1].tiles) * frequencies(side)

    least = min(map(found, among))
    if found(side) <= WASTE * least:
        return None
    return f"tiles of {side} x {side} have {found(side)} frequencies an image where {least} are enough"
