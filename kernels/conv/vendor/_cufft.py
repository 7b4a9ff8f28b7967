"""Convolution by cuFFT and cuBLAS: how the operands are cut into tiles.

Overlap-save: a tile of side L yields L - taps + 1 outputs. Strided outputs and dilated filters are taken as dense ones
with zeros between. The spectra of a tensor are a matrix at each frequency and group; cuFFT writes and reads them so,
frequency by frequency.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from kernels.conv._sizes import Pad
from kernels.conv.fft._tiling import good_size
from kernels.conv.problem import ConvProblem

_SIDES = (16, 24, 32, 48, 64, 96, 128)
#: Rates of the model that chooses a side: only their ratio counts.
_BYTES_PER_S, _FLOP_PER_S = 2.5e12, 40e12


class Axis(NamedTuple):
    """One axis of a tensor and of its tiles, in elements of the dense tensor, where the tensor's lie `spacing` apart.

    first: where the first tile begins. step: between tiles. extent: of a tile's side, what is not 0. lead: of a tile's
    side, what comes before the outputs.
    """

    size: int
    spacing: int
    first: int
    tiles: int
    step: int
    side: int
    extent: int
    lead: int = 0


class Cut(NamedTuple):
    """A tensor in tiles. At each frequency and group its spectra are a matrix of `rows` by `columns` times tiles.

    strides: in the tensor, of groups, rows, columns, height and width.
    """

    name: str
    groups: int
    rows: int
    columns: int
    height: Axis
    width: Axis
    strides: tuple[int, ...]

    @property
    def tiles(self) -> int:
        return self.height.tiles * self.width.tiles

    @property
    def ld(self) -> int:
        """Elements of a row of the matrix."""
        return self.columns * self.tiles

    @property
    def planes(self) -> int:
        """Transforms."""
        return self.groups * self.rows * self.ld

    @property
    def points(self) -> int:
        return self.height.side * self.width.side

    @property
    def frequencies(self) -> int:
        """Of the transform of a real tile, the others being conjugates of these."""
        return self.height.side * (self.width.side // 2 + 1)

    @property
    def elements(self) -> int:
        """Of the tensor itself."""
        return self.groups * self.rows * self.columns * self.height.size * self.width.size


class Cuts(NamedTuple):
    """The three tensors of a problem."""

    x: Cut
    w: Cut
    y: Cut


def cuts(p: ConvProblem, sides: tuple[int, int]) -> Cuts:
    """All three with tiles of `sides`."""
    c, k = p.c // p.groups, p.k // p.groups
    height = _axes(p, sides[0], (p.h, p.r, p.p), p.stride_h, p.dilation_h, p.pad_h)
    width = _axes(p, sides[1], (p.w, p.s, p.q), p.stride_w, p.dilation_w, p.pad_w)
    x, w, y = (_strides(p, shape) for shape in ((p.c, p.h, p.w), (c, p.r, p.s), (p.k, p.p, p.q)))
    return Cuts(
        Cut("x", p.groups, c, p.n, height.x, width.x, (c * x[1], x[1], x[0], *x[2:])),
        Cut("w", p.groups, c, k, height.w, width.w, (k * w[0], w[1], w[0], *w[2:])),
        Cut("y", p.groups, k, p.n, height.y, width.y, (k * y[1], y[1], y[0], *y[2:])),
    )


class _Axes(NamedTuple):
    x: Axis
    w: Axis
    y: Axis


def _axes(p: ConvProblem, side: int, sizes: tuple[int, int, int], stride: int, dilation: int, pad: Pad) -> _Axes:
    """Tiles of the output, or of y in wgrad, that follow each other, and the tiles of the input that they need."""
    image, taps, outputs = sizes
    span = (taps - 1) * dilation + 1
    step = side - span + 1
    dense = image if p.direction == "dgrad" else (outputs - 1) * stride + 1
    tiles, last = -(-dense // step), span - 1
    w = Axis(taps, dilation, 0, 1, side, side, side)
    if p.direction == "dgrad":  # a filter reaches back from where its output is
        y = Axis(outputs, stride, pad.before - last, tiles, step, side, side)
        return _Axes(Axis(image, 1, 0, tiles, step, side, side, lead=last), w, y)
    extent = step if p.direction == "wgrad" else side
    x = Axis(image, 1, -pad.before, tiles, step, side, side)
    return _Axes(x, w, Axis(outputs, stride, 0, tiles, step, side, extent))


def _strides(p: ConvProblem, shape: tuple[int, int, int]) -> tuple[int, ...]:
    """Of the first axis, channels, height and width."""
    channels, height, width = shape
    last = p.layout == "nhwc"
    return (channels * height * width, *((1, width * channels, channels) if last else (height * width, width, 1)))


def _spans(p: ConvProblem) -> tuple[int, int]:
    return (p.r - 1) * p.dilation_h + 1, (p.s - 1) * p.dilation_w + 1


@lru_cache
def whole(p: ConvProblem) -> tuple[int, int]:
    """Sides of one tile an image."""
    dense = (p.h, p.w) if p.direction == "dgrad" else ((p.p - 1) * p.stride_h + 1, (p.q - 1) * p.stride_w + 1)
    height, width = (good_size(size + span - 1) for size, span in zip(dense, _spans(p), strict=True))
    return height, width


@lru_cache
def cheapest(p: ConvProblem) -> tuple[int, int]:
    """Sides that the model takes for the fastest."""
    return min(_candidates(p), key=lambda sides: _seconds(cuts(p, sides)))


def _candidates(p: ConvProblem) -> Iterator[tuple[int, int]]:
    limits, spans = whole(p), _spans(p)
    yield limits
    for side in _SIDES:
        height, width = (min(side, limit) for limit in limits)
        if height >= spans[0] and width >= spans[1]:
            yield height, width


def _seconds(c: Cuts) -> float:
    """A tile is written and read, and so is its spectrum, which is as large."""
    moved = 16 * c.x.points * sum(cut.planes for cut in c)
    return moved / _BYTES_PER_S + _product_flop(c) / _FLOP_PER_S


def executed(c: Cuts) -> int:
    """Floating-point operations: half of 5 N log2 N a real transform, and 6 a complex multiply-add."""
    transforms = 2.5 * c.x.points * math.log2(max(2, c.x.points)) * sum(cut.planes for cut in c)
    return round(transforms) + _product_flop(c)


def _product_flop(c: Cuts) -> int:
    return 6 * c.x.frequencies * c.x.groups * c.x.rows * c.y.rows * c.x.ld
