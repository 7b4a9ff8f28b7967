"""The tables of dgrad in direct convolution.

Pixels of x that are a stride apart use the same taps; they form one of stride_h x stride_w phases, each with its own
part of the tables. Together the phases use each filter and tap at most once.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from kernelmark import Array
from kernelmark.kernels.conv._shape import Shape
from kernelmark.kernels.conv.direct._plan import Border, Item, Plan, grid, line, panels, row_parts


class Phase(NamedTuple):
    """Elements of x, a stride apart, with the same taps. outputs: for each tap, the index in y for element `first`."""

    first: int
    length: int
    taps: Array
    outputs: Array


class _Tables(NamedTuple):
    """A phase's part of the tables in a `Plan`."""

    rows: Array
    steps: Array
    places: Array
    targets: Array


def phases(size: int, taps: int, pad: int, stride: int, dilation: int) -> list[Phase]:
    """Return the non-empty phases of an axis of x; the elements of a phase use the same taps."""
    axis = []
    for first in range(min(stride, size)):
        met = np.array([t for t in range(taps) if (first + pad - t * dilation) % stride == 0], np.int64)
        length = -(-(size - first) // stride)
        axis.append(Phase(first, length, met, (first + pad - met * dilation) // stride))
    return axis


def image_gradient(g: Shape, width: int, threads: int, most: int) -> Plan:
    """Return the plan of dgrad, phase by phase; the pixels of x in a phase use the same taps."""
    down = phases(g.h, g.r, g.top, g.stride_h, g.dilation_h)
    across = phases(g.w, g.s, g.left, g.stride_w, g.dilation_w)
    border = Border(g.k * g.groups, g.p, g.q, *_zeros(down, g.p), *_zeros(across, g.q), g.channels_last)
    parts = [_tables(g, border, a, b) for a, b in product(down, across)]
    rows, steps, places, targets = (np.concatenate(tables) for tables in zip(*parts, strict=True))
    return Plan(
        border=border,
        rows=rows,
        steps=steps,
        places=places,
        targets=targets,
        items=np.array(_items(g, border, parts, width, (threads, most))),
        lanes=(g.w_c, g.x_c),
    )


def _zeros(axis: list[Phase], size: int) -> tuple[int, int]:
    """Return how far the phases of an axis reach beyond y, before and after."""
    reached = [int(value) for phase in axis for at in phase.outputs for value in (at, at + phase.length - 1)]
    return max(0, -min(reached, default=0)), max(0, max(reached, default=0) - size + 1)


def _tables(g: Shape, border: Border, a: Phase, b: Phase) -> _Tables:
    """Return the tables of phase `a` along the rows' axis and `b` along the columns' axis."""
    image, channel, row, column = border.strides
    filters = line(g.k, channel), line(g.k, g.c * g.r * g.s)
    met = (a.outputs + border.top) * row, (b.outputs + border.left) * column
    taps = a.taps * g.s * g.w_tap, b.taps * g.w_tap
    targets = grid(line(g.n, g.x_n), line(a.length, g.stride_h * g.x_h), line(b.length, g.stride_w * g.x_w))
    return _Tables(
        rows=grid(line(g.n, image), line(a.length, row), line(b.length, column)),
        steps=grid(*met, filters[0]) if g.channels_last else grid(filters[0], *met),
        places=grid(*taps, filters[1]) if g.channels_last else grid(filters[1], *taps),
        targets=targets + a.first * g.x_h + b.first * g.x_w,
    )


def _items(g: Shape, border: Border, parts: list[_Tables], width: int, cut: tuple[int, int]) -> list[Item]:
    """Return the items; all phases of a panel follow one another, since they read the same filters.

    cut: the number of threads, and the most rows of an item.
    """
    _, channel, _, _ = border.strides
    lanes, most = panels(g.c, width), max(len(part.rows) for part in parts)
    count = len(row_parts(most, lanes, g.groups, width, cut))
    starts = [np.cumsum([0, *map(len, tables)]) for tables in zip(*((p.rows, p.steps) for p in parts), strict=True)]
    return [
        Item(
            *(r + len(part.rows) * i // count, r + len(part.rows) * (i + 1) // count, t, t + len(part.steps)),
            b=group * g.k * channel,
            v=group * g.k * g.c * g.r * g.s + c * g.w_c,
            out=(group * g.c + c) * g.x_c,
            lanes=number,
        )
        for group, i in product(range(g.groups), range(count))
        for c, number in lanes
        for part, r, t in zip(parts, *starts, strict=False)
    ]
