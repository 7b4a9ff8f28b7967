"""Overlap-save: cut the tensors of a convolution into tiles, and choose the cheapest sides of a tile.

A tile of side L yields L - taps + 1 outputs of a filter that spans `taps`. Strided outputs and dilated filters are
treated as dense, with zeros between. Every FFT convolution here, on the CPU and on a GPU, gets its tiles from `cuts`.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from kernelmark.kernels.conv._sizes import ConvSizes

Sides = tuple[int, int]


class Axis(NamedTuple):
    """An axis of a tensor, cut into tiles. Elements are `spacing` apart; positions count the zeros between them.

    first: where the first of the `tiles` tiles begins. step: the distance between tiles. extent: the part of a tile's
    side that is read from the tensor or stored. lead: the index of the first output in a tile.
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
    """A tensor of groups, channels per group, and images, cut into tiles; a filter is an image with a single tile.

    strides: in the tensor, of groups, channels, images, rows and columns. turned: whether to conjugate the spectra,
    which makes the product a correlation.
    """

    groups: int
    channels: int
    images: int
    height: Axis
    width: Axis
    strides: tuple[int, int, int, int, int]
    turned: bool

    @property
    def places(self) -> int:
        """Return the number of tiles in one channel of all images."""
        return self.images * self.height.tiles * self.width.tiles

    @property
    def planes(self) -> int:
        """Return the number of tiles in all channels of all images; each tile is transformed on its own."""
        return self.groups * self.channels * self.places

    @property
    def points(self) -> int:
        """Return the number of elements in a tile."""
        return self.height.side * self.width.side

    @property
    def frequencies(self) -> int:
        """Return the number of stored frequencies of a real tile; the others are conjugates."""
        return self.height.side * (self.width.side // 2 + 1)

    @property
    def elements(self) -> int:
        """Return the number of elements in the tensor."""
        return self.groups * self.channels * self.images * self.height.size * self.width.size


class Cuts(NamedTuple):
    """The three tensors of a problem, each cut into tiles."""

    x: Cut
    w: Cut
    y: Cut

    @property
    def sides(self) -> Sides:
        return self.x.height.side, self.x.width.side

    @property
    def points(self) -> int:
        return self.x.points

    @property
    def frequencies(self) -> int:
        return self.x.frequencies

    @property
    def planes(self) -> int:
        """Return the number of transforms of all three tensors."""
        return sum(cut.planes for cut in self)

    @property
    def products(self) -> int:
        """Return the number of complex multiply-adds."""
        return self.frequencies * self.x.planes * self.y.channels

    @property
    def transform_flop(self) -> float:
        """Return the operation count of all transforms: half of 5 N log2 N for each real transform."""
        return 2.5 * self.points * math.log2(self.points) * self.planes


@lru_cache
def cuts(p: ConvSizes, sides: Sides) -> Cuts:
    """Return the three tensors of a problem, cut into tiles of `sides`."""
    height = _axes(p, sides[0], (p.h, p.r, p.p), (p.stride_h, p.dilation_h, p.pad_h.before))
    width = _axes(p, sides[1], (p.w, p.s, p.q), (p.stride_w, p.dilation_w, p.pad_w.before))
    turned = {"fprop": "w", "wgrad": "y"}.get(p.direction)

    def cut(name: str, height: Axis, width: Axis) -> Cut:
        images, channels, rows, columns = p.shapes()[name]
        in_group = (images if name == "w" else channels) // p.groups
        image, plane, last = channels * rows * columns, rows * columns, p.layout == "nhwc"
        channel, row, column = (1, columns * channels, channels) if last else (plane, columns, 1)
        strides = (in_group * (image if name == "w" else channel), channel, image, row, column)
        sizes = (channels, in_group) if name == "w" else (in_group, images)
        return Cut(p.groups, *sizes, height, width, strides, name == turned)

    return Cuts(*(cut(name, *axes) for name, *axes in zip("xwy", height, width, strict=True)))


def _axes(p: ConvSizes, side: int, sizes: tuple[int, int, int], steps: tuple[int, int, int]) -> tuple[Axis, Axis, Axis]:
    """Return the axes of x, w and y. Tiles of the output (in wgrad: of y) do not overlap; tiles of the input do."""
    (image, taps, outputs), (stride, dilation, pad) = sizes, steps
    last = (taps - 1) * dilation
    step = side - last
    tiles = -(-(image if p.direction == "dgrad" else (outputs - 1) * stride + 1) // step)
    w = Axis(taps, dilation, 0, 1, side, side, side)
    if p.direction == "dgrad":  # a filter reaches back from its output's place
        x = Axis(image, 1, 0, tiles, step, side, step, last)
        return x, w, Axis(outputs, stride, pad - last, tiles, step, side, side)
    return Axis(image, 1, -pad, tiles, step, side, side), w, Axis(outputs, stride, 0, tiles, step, side, step)


def spans(p: ConvSizes) -> Sides:
    """Return the rows and columns that a dilated filter spans."""
    return (p.r - 1) * p.dilation_h + 1, (p.s - 1) * p.dilation_w + 1


@lru_cache
def whole(p: ConvSizes) -> Sides:
    """Return the sides of a tile that contains a whole image."""
    strided = (p.p - 1) * p.stride_h + 1, (p.q - 1) * p.stride_w + 1
    dense = (p.h, p.w) if p.direction == "dgrad" else strided
    height, width = (good_size(size + span - 1) for size, span in zip(dense, spans(p), strict=True))
    return height, width


def cheapest(p: ConvSizes, sides: Iterable[int], cost: Callable[[Cuts], float]) -> Sides:
    """Return the cheapest tile by `cost`, no larger than a whole image and no smaller than the span of a filter."""
    limits, least = whole(p), spans(p)
    fitting = (tuple(min(side, limit) for limit in limits) for side in sides)
    tiles = [(height, width) for height, width in fitting if height >= least[0] and width >= least[1]]
    return min(tiles, key=lambda tile: cost(cuts(p, tile)))


def executed(c: Cuts, multiply_add: int) -> int:
    """Return the operation count of transforms, plus `multiply_add` per complex multiply-add."""
    return round(c.transform_flop) + multiply_add * c.products


def good_size(size: int) -> int:
    """Return the smallest even number >= `size` whose only prime factors are 2, 3, 5 and 7, or 1 if `size` is 1."""
    if size <= 1:
        return 1
    half, odd = -(-size // 2), [1]
    for prime in (3, 5, 7):
        powers = [prime**i for i in range(half.bit_length())]
        odd = [number * power for number in odd for power in powers if number * power < prime * half]
    return 2 * min(number << (-(-half // number) - 1).bit_length() for number in odd)
