"""Tables for direct convolutions that are matrix products: 1x1 filters at every pixel, without padding.

| | rows | steps | lanes | b | v |
| --- | --- | --- | --- | --- | --- |
| fprop | filters | channels | pixels of y | w | x |
| dgrad | channels | filters | pixels of x | w | y |

The filters are read in place, so that a layer with few pixels does not spend its time on packing filters.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from kernelmark.kernels._host import split
from kernelmark.kernels.conv._shape import Shape
from kernelmark.kernels.conv.direct._plan import Border, Item, Plan, line, panels

MOST_PANELS = 4


class _Images(NamedTuple):
    """The channels per group of x or y, and its strides along images, channels and pixels."""

    channels: int
    image: int
    channel: int
    pixel: int


def is_product(g: Shape) -> bool:
    """Return whether each pixel of y depends only on the same pixel of x."""
    return g.r == g.s == g.stride_h == g.stride_w == 1 and (g.p, g.q) == (g.h, g.w)


def is_better(g: Shape, width: int) -> bool:
    """Return whether vectors of pixels are faster than vectors of filters, for which each call has to pack w.

    On two CPUs with AVX-512, packing all of w first took as long as multiplying w with one panel of pixels. With more
    than four panels, vectors of filters were at least as fast.
    """
    products = g.n * len(panels(g.p * g.q, width))
    return is_product(g) and products <= MOST_PANELS and products * width < g.n * g.p * g.q + width


def forward(g: Shape, width: int, threads: int, most: int) -> Plan:
    """Return the plan of the output y."""
    return _plan(g, _x(g), _y(g), (g.c, 1), width, (threads, most))


def image_gradient(g: Shape, width: int, threads: int, most: int) -> Plan:
    """Return the plan of the images' gradient."""
    return _plan(g, _y(g), _x(g), (1, g.c), width, (threads, most))


def _x(g: Shape) -> _Images:
    return _Images(g.c, g.x_n, g.x_c, g.x_w)


def _y(g: Shape) -> _Images:
    return _Images(g.k, g.y_n, g.y_k, g.y_pixel)


def _plan(
    g: Shape, source: _Images, target: _Images, filters: tuple[int, int], width: int, cut: tuple[int, int]
) -> Plan:
    """Return the plan. filters: strides of w along the target's channels and the source's.

    cut: the number of threads, and the most rows of an item.
    """
    (threads, most), lanes = cut, panels(g.p * g.q, width)
    rows = split(target.channels, most, g.n * g.groups * len(lanes), threads)
    items: list[Item] = []
    for n, group in product(range(g.n), range(g.groups)):
        first, out = (n * side.image + group * side.channels * side.channel for side in (source, target))
        items += [
            Item(
                *(*r, 0, source.channels),
                b=group * g.k * g.c,
                v=first + pixel * source.pixel,
                out=out + pixel * target.pixel,
                lanes=count,
            )
            for r in rows
            for pixel, count in lanes
        ]
    return Plan(
        border=Border(g.k, 1, 1, 0, 0, 0, 0, g.channels_last),
        rows=line(target.channels, filters[0]),
        steps=line(source.channels, filters[1]),
        places=line(source.channels, source.channel),
        targets=line(target.channels, target.channel),
        items=np.array(items),
        lanes=(source.pixel, target.pixel),
    )
