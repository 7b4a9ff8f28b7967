"""Overlap-save: how the tensors of a convolution are cut into tiles, and which sides of a tile cost least.

A tile of side L yields L - taps + 1 outputs of a filter that spans `taps`. Strided outputs and dilated filters are
taken as dense ones with zeros between. Every FFT convolution here, on the CPU and on a GPU, has its tiles from `cuts`.
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from kernelmark.kernels.conv._sizes import ConvSizes

Sides = tuple[int, int]


class Axis(NamedTuple):
    """One axis of a tensor and its tiles, in elements of the dense tensor; the tensor's elements lie `spacing` apart.

    first: where the first of `tiles` tiles begins. step: between tiles. extent: the part of a tile's side that is taken
    from the tensor or put back. lead: the place in a tile of the first output.
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
    """A tensor in tiles: groups, channels of a group, and images; a filter is an image in a single tile.

    strides: in the tensor, of groups, channels, images, rows and columns. turned: whether this operand is shifted over
    the other, so that its spectra are conjugated.
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
        """The number of tiles in one channel of all images."""
        return self.images * self.height.tiles * self.width.tiles

    @property
    def planes(self) -> int:
        """Tiles of all channels, each with a transform of its own."""
        return self.groups * self.channels * self.places

    @property
    def points(self) -> int:
        """Elements of a tile."""
        return self.height.side * self.width.side

    @property
    def frequencies(self) -> int:
        """Frequencies of a real tile that are stored: the others are their conjugates."""
        return self.height.side * (self.width.side // 2 + 1)

    @property
    def elements(self) -> int:
        """Elements of the tensor itself."""
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
        """The number of transforms of all three tensors."""
        return sum(cut.planes for cut in self)

    @property
    def products(self) -> int:
        """The number of complex multiply-adds."""
        return self.frequencies * self.x.planes * self.y.channels

    @property
    def transform_flop(self) -> float:
        """Half of 5 N log2 N for each real transform."""
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
    """Axes of x, w and y: tiles of the output, or of y in wgrad, follow each other; the input's overlap."""
    (image, taps, outputs), (stride, dilation, pad) = sizes, steps
    last = (taps - 1) * dilation
    step = side - last
    tiles = -(-(image if p.direction == "dgrad" else (outputs - 1) * stride + 1) // step)
    w = Axis(taps, dilation, 0, 1, side, side, side)
    if p.direction == "dgrad":  # a filter reaches back from where its output is
        x = Axis(image, 1, 0, tiles, step, side, step, last)
        return x, w, Axis(outputs, stride, pad - last, tiles, step, side, side)
    return Axis(image, 1, -pad, tiles, step, side, side), w, Axis(outputs, stride, 0, tiles, step, side, step)


def spans(p: ConvSizes) -> Sides:
    """Rows and columns that a dilated filter reaches over."""
    return (p.r - 1) * p.dilation_h + 1, (p.s - 1) * p.dilation_w + 1


@lru_cache
def whole(p: ConvSizes) -> Sides:
    """Return the sides for one tile per image."""
    strided = (p.p - 1) * p.stride_h + 1, (p.q - 1) * p.stride_w + 1
    dense = (p.h, p.w) if p.direction == "dgrad" else strided
    height, width = (good_size(size + span - 1) for size, span in zip(dense, spans(p), strict=True))
    return height, width


def cheapest(p: ConvSizes, sides: Iterable[int], cost: Callable[[Cuts], float]) -> Sides:
    """Return the cheapest sides by a device's model, among those given that hold a filter, none larger than needed."""
    limits, least = whole(p), spans(p)
    fitting = (tuple(min(side, limit) for limit in limits) for side in sides)
    held = [(height, width) for height, width in fitting if height >= least[0] and width >= least[1]]
    return min(held, key=lambda found: cost(cuts(p, found)))


def executed(c: Cuts, multiply_add: int) -> int:
    """Return the floating-point operations: the transforms', and `multiply_add` for each complex multiply-add."""
    return round(c.transform_flop) + multiply_add * c.products


def good_size(size: int) -> int:
    """Return the next product of 2, 3, 5 and 7 that is even, or 1."""
    if size <= 1:
        return 1
    half, odd = -(-size // 2), [1]
    for prime in (3, 5, 7):
        powers = [prime**i for i in range(half.bit_length())]
        odd = [number * power for number in odd for power in powers if number * power < prime * half]
    return 2 * min(number << (-(-half // number) - 1).bit_length() for number in odd)
