"""The tables of direct convolution; pure arithmetic on shapes.

| | rows | steps | lanes | b | v |
| --- | --- | --- | --- | --- | --- |
| fprop | pixels of y | channels and taps | filters | x | w |
| dgrad | pixels of x | filters and taps | channels | y | w |
| wgrad | channels and taps | pixels of y | filters | x | y |

`_phases.py` has the plan of dgrad. An item has at most `most` rows of sums.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from kernelmark import Array
from kernelmark.kernels._host import split
from kernelmark.kernels.conv._shape import Shape


class Border(NamedTuple):
    """The rows and columns of zeros around an image of `channels` x `height` x `width`."""

    channels: int
    height: int
    width: int
    top: int
    bottom: int
    left: int
    right: int
    channels_last: bool

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Return the strides of images with borders, along n, channels, rows and columns."""
        rows, columns = self.height + self.top + self.bottom, self.width + self.left + self.right
        if self.channels_last:
            return self.channels * rows * columns, 1, columns * self.channels, self.channels
        return self.channels * rows * columns, rows * columns, columns, 1

    @property
    def empty(self) -> bool:
        return not (self.top or self.bottom or self.left or self.right)

    def lines(self, images: int) -> int:
        """Return the number of lines of images with borders; with channels last, all channels share a line."""
        return images * self.strides[0] // self.strides[2]


class Item(NamedTuple):
    """A unit of a thread's work: the sums in rows r0:r1 of `lanes` lanes, over steps t0:t1 and over images.

    b, v, out: the offsets in these operands. next_b, next_v: the strides between images.
    """

    r0: int
    r1: int
    t0: int
    t1: int
    b: int
    v: int
    out: int
    lanes: int
    images: int = 1
    next_b: int = 0
    next_v: int = 0


class Plan(NamedTuple):
    """The arguments of the loops in `_loops.py`. lanes: the strides between lanes in v and in the output."""

    border: Border
    rows: Array
    steps: Array
    places: Array
    targets: Array
    items: Array
    lanes: tuple[int, int]


def grid(*axes: Array) -> Array:
    """Return all sums of one element from each axis; the last axis varies fastest."""
    return sum(np.ix_(*axes), np.zeros((1,) * len(axes), np.int64)).reshape(-1)


def line(count: int, stride: int) -> Array:
    return np.arange(count, dtype=np.int64) * stride


def together(places: Array, side: int) -> Array:
    """Cut the steps into runs whose offsets rise and span less than `side`; return the end of each step's run."""
    ends = np.append(np.flatnonzero(np.diff(places) <= 0) + 1, len(places))
    run_ends = np.empty(len(places), np.int64)
    first = 0
    while first < len(places):
        last = int(ends[np.searchsorted(ends, first, "right")])
        last = min(last, first + int(np.searchsorted(places[first:last], places[first] + side)))
        run_ends[first:last] = last
        first = last
    return run_ends


def _met(g: Shape, border: Border) -> Array:
    """Return the offsets at which the first output reads each channel and tap, in the order of w."""
    _, channel, row, column = border.strides
    axes = line(g.c, channel), line(g.r, g.dilation_h * row), line(g.s, g.dilation_w * column)
    return grid(*axes[1:], axes[0]) if g.channels_last else grid(*axes)


def lines_met(plan: Plan, images: int, start: int, stop: int) -> Array:
    """Return the sorted numbers of the lines of bordered images that items start:stop read."""
    length, is_read = plan.border.strides[2], np.zeros(plan.border.lines(images), bool)
    shared = [i for i, name in enumerate(Item._fields) if name not in ("v", "out", "lanes", "next_v")]
    for r0, r1, t0, t1, b, count, next_b in np.unique(plan.items[start:stop, shared], axis=0).tolist():
        # The sum of two column indices never reaches the next line.
        rows, steps = (np.unique(places // length) for places in (plan.rows[r0:r1], plan.steps[t0:t1]))
        is_read[b // length + grid(rows, steps, line(count, next_b // length))] = True
    return np.flatnonzero(is_read)


def panels(lanes: int, width: int) -> list[tuple[int, int]]:
    """Return the beginning of each panel and its number of lanes."""
    return [(first, min(width, lanes - first)) for first in range(0, lanes, width)]


def row_parts(
    rows: int, lanes: list[tuple[int, int]], groups: int, width: int, cut: tuple[int, int]
) -> list[tuple[int, int]]:
    """Cut rows into items so that threads get equal work; a last panel at most half full counts as half a panel.

    cut: the number of threads, and the maximum number of rows in an item.
    """
    threads, most = cut
    halves = 2 * len(lanes) - 1 if 2 * lanes[-1][1] <= width else len(lanes)
    return split(rows, most, groups * halves, threads)


def _around_x(g: Shape) -> Border:
    """Return the zeros around x that taps read."""
    down = (g.p - 1) * g.stride_h + (g.r - 1) * g.dilation_h + 1 - g.top - g.h
    right = (g.q - 1) * g.stride_w + (g.s - 1) * g.dilation_w + 1 - g.left - g.w
    return Border(g.c * g.groups, g.h, g.w, g.top, max(0, down), g.left, max(0, right), g.channels_last)


def forward(g: Shape, width: int, threads: int, most: int) -> Plan:
    """Return the plan of the output y."""
    border, depth = _around_x(g), g.c * g.r * g.s
    image, channel, row, column = border.strides
    lanes = panels(g.k, width)
    rows = row_parts(g.n * g.p * g.q, lanes, g.groups, width, (threads, most))
    items = [
        Item(
            *(*r, 0, depth),
            b=group * g.c * channel,
            v=(group * g.k + f) * depth,
            out=(group * g.k + f) * g.y_k,
            lanes=count,
        )
        for group, r in product(range(g.groups), rows)
        for f, count in lanes
    ]
    return Plan(
        border=border,
        rows=grid(line(g.n, image), line(g.p, g.stride_h * row), line(g.q, g.stride_w * column)),
        steps=_met(g, border),
        places=line(depth, 1),
        targets=grid(line(g.n, g.y_n), line(g.p * g.q, g.y_pixel)),
        items=np.array(items),
        lanes=(depth, g.y_k),
    )


def filter_gradient(g: Shape, width: int, threads: int, most: int) -> Plan:
    """Return the plan of the filters' gradient, summed over images."""
    border, depth, pixels = _around_x(g), g.c * g.r * g.s, g.p * g.q
    image, channel, row, column = border.strides
    lanes = panels(g.k, width)
    rows = row_parts(depth, lanes, g.groups, width, (threads, most))
    items = [
        Item(
            *(*r, 0, pixels),
            b=group * g.c * channel,
            v=(group * g.k + f) * g.y_k,
            out=(group * g.k + f) * depth,
            lanes=count,
            images=g.n,
            next_b=image,
            next_v=g.y_n,
        )
        for group, r in product(range(g.groups), rows)
        for f, count in lanes
    ]
    return Plan(
        border=border,
        rows=_met(g, border),
        steps=grid(line(g.p, g.stride_h * row), line(g.q, g.stride_w * column)),
        places=line(pixels, g.y_pixel),
        targets=line(depth, 1),
        items=np.array(items),
        lanes=(g.y_k, depth),
    )
