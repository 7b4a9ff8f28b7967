"""Cut grouped (and depthwise) convolution into planes and strips of rows; pure arithmetic on shapes.

A plane is a channel of an image. With channels last and small groups it is a few vectors of channels, in which one
channel of each group represents the whole group. Small planes of nchw are transposed to this form, too. A zero-padded
buffer holds a strip of each plane of a group. It stores phases one after another: a phase has the positions that are a
stride apart, in `depth` rows of `pitch` positions. So the factors that a tap needs for all outputs of a strip are
contiguous, and begin at the tap's offset.

| | source | target |
| --- | --- | --- |
| fprop | x, in stride_h x stride_w phases | y, in one phase |
| dgrad | y, in one phase | x, in phases whose pixels use the same taps |
| wgrad | x, as in fprop; y, placed like the sums of fprop | w |
"""

from itertools import product
from math import ceil
from typing import NamedTuple

import numpy as np

from kernelmark import Array
from kernelmark.kernels._host import split
from kernelmark.kernels.conv._shape import Shape
from kernelmark.kernels.conv.direct._phases import phases

VECTORS = 7  # the most vectors of channels that are read at a time
EXPANDED = (1, 2, 4, 8, 16)  # channels of a group whose vectors `_vectors.py` expands
#: The most pixels of a plane that is transposed: in the smaller and in the larger of source and target.
TURNED = 200, 1000


class Side(NamedTuple):
    """The storage of images: rows and columns, and the strides of images, planes, rows and columns."""

    height: int
    width: int
    image: int
    plane: int
    row: int
    column: int


class Cut(NamedTuple):
    """The layout of the buffer that holds a strip.

    down, across: the number of phases (positions a stride apart) along each axis. top, left: zeros before the source.
    depth, pitch: rows of a phase, positions of a row. unit: elements of a position (one, or a few vectors).
    """

    down: int
    across: int
    top: int
    left: int
    depth: int
    pitch: int
    unit: int

    @property
    def size(self) -> int:
        """Return the number of elements in the buffer."""
        return self.down * self.across * self.depth * self.pitch * self.unit


class Plan(NamedTuple):
    """The arguments of the loops in `_depthwise.py`.

    parts: for each part of the target, its rows (first, step, number), its columns, and its range in `offsets` and
    `weights`. These have an entry for each tap of each plane of a group: `offsets` the index in the buffer that the
    first output reads, `weights` the index in w. strip: how many rows of a part to compute at a time. planes: how many
    a group has in source and target. strides: the distances in w between planes of the target and between groups.
    """

    cut: Cut
    parts: Array
    offsets: Array
    weights: Array
    strip: int
    planes: tuple[int, int]
    strides: tuple[int, int]


class _Axis(NamedTuple):
    """A phase of the target along one axis: first, step, length; per tap: number, source phase, distance."""

    first: int
    step: int
    length: int
    met: list[tuple[int, int, int]]


#: The target's phases along an axis, the number of the source's phases, and the zeros before the source.
_Sides = tuple[list[_Axis], int, int]


def unit_of(g: Shape, lanes: int, threads: int) -> int:
    """Return the number of elements per position: those of a few vectors (of channels or of transposed planes), or 1.

    Vectors of channels need channels last, c = k and groups that fill whole vectors. The number of vectors is odd, so
    that neighbouring positions do not compete for cache sets. threads: the number of threads that share the channels.
    """
    if turns(g, lanes, threads):
        return lanes
    whole = g.c == 1 or (g.c in EXPANDED and g.c <= lanes and g.groups * g.c % lanes == 0)
    if not g.channels_last or g.c != g.k or not whole:
        return 1
    vectors, most = ceil(g.groups * g.c / lanes), VECTORS if g.c == 1 else VECTORS // 2
    parts = ceil(ceil(vectors / most) / threads) * threads
    return (ceil(vectors / min(parts, vectors)) | 1) * lanes


def turns(g: Shape, lanes: int, threads: int) -> bool:
    """Return whether to transpose planes: small depthwise ones, with at least two vectors of planes per thread."""
    smaller, larger = sorted((g.h * g.w, g.p * g.q))
    is_small = smaller <= TURNED[0] and larger <= TURNED[1]
    return is_small and not g.channels_last and g.c == g.k == 1 and g.groups >= 2 * lanes * threads


def channels(g: Shape, unit: int) -> int:
    """Return the number of channels, or the number of groups if `unit` is 1."""
    return g.groups * (g.c if unit > 1 else 1)


def turned_side(side: Side, unit: int) -> Side:
    """Return the sizes and strides of `unit` transposed planes."""
    return Side(side.height, side.width, 0, 0, side.width * unit, unit)


def x_side(g: Shape, unit: int) -> Side:
    """Return the sizes and strides of the images x."""
    return Side(g.h, g.w, g.x_n, unit * g.x_c, g.x_h, g.x_w)


def y_side(g: Shape, unit: int) -> Side:
    """Return the sizes and strides of the images y."""
    return Side(g.p, g.q, g.y_n, unit * g.y_k, g.q * g.y_pixel, g.y_pixel)


def forward(g: Shape, unit: int, elements: int | None) -> Plan:
    """Return the plan of fprop and wgrad. elements: the most in a strip's buffers, or None for a single strip."""
    down = _Axis(0, 1, g.p, [(t, *_apart(t * g.dilation_h, g.stride_h)) for t in range(g.r)])
    across = _Axis(0, 1, g.q, [(t, *_apart(t * g.dilation_w, g.stride_w)) for t in range(g.s)])
    sides, targets = (([down], g.stride_h, g.top), ([across], g.stride_w, g.left)), g.k if unit == 1 else 1
    return _plan(g, unit, elements, sides, (g.c, targets), (g.w_c, g.c * g.r * g.s))


def image_gradient(g: Shape, unit: int, elements: int | None) -> Plan:
    """Return the plan of dgrad."""
    down, top = _back(g.h, g.r, g.top, g.stride_h, g.dilation_h)
    across, left = _back(g.w, g.s, g.left, g.stride_w, g.dilation_w)
    return _plan(
        g, unit, elements, ((down, 1, top), (across, 1, left)), (g.k, g.c if unit == 1 else 1), (g.c * g.r * g.s, g.w_c)
    )


def _apart(distance: int, stride: int) -> tuple[int, int]:
    return distance % stride, distance // stride


def _back(size: int, taps: int, pad: int, stride: int, dilation: int) -> tuple[list[_Axis], int]:
    """Return the phases of an axis of x, and the zeros before y that they read."""
    axis = phases(size, taps, pad, stride, dilation)
    zeros = max(0, -min((int(at) for phase in axis for at in phase.outputs), default=0))
    return [
        _Axis(
            phase.first,
            stride,
            phase.length,
            [(int(t), 0, int(at) + zeros) for t, at in zip(phase.taps, phase.outputs, strict=True)],
        )
        for phase in axis
    ], zeros


def _plan(
    g: Shape,
    unit: int,
    elements: int | None,
    sides: tuple[_Sides, _Sides],
    planes: tuple[int, int],
    strides: tuple[int, int],
) -> Plan:
    """Return the plan. planes, strides: for source and target, the planes per group and their distance in w."""
    (down, apart_h, top), (across, apart_w, left) = sides
    pitch, reach = max(a.length + _reach(a) for a in across), max(_reach(a) for a in down)
    length = max(a.length for a in down)
    most = max(1, elements // (planes[0] * apart_h * apart_w * pitch * unit) - reach) if elements else length
    strip = max(b - a for a, b in split(length, most, 1, 1))
    cut = Cut(apart_h, apart_w, top, left, strip + reach, pitch, unit)
    parts: list[tuple[int, ...]] = []
    offsets: list[int] = []
    weights: list[int] = []
    for a, b in product(down, across):
        first = len(weights)
        for plane, (t, phase_h, row), (u, phase_w, column) in product(range(planes[0]), a.met, b.met):
            phase = phase_h * apart_w + phase_w
            offsets.append(plane * cut.size + ((phase * cut.depth + row) * pitch + column) * unit)
            weights.append(plane * strides[0] + (t * g.s + u) * g.w_tap)
        parts.append((*a[:3], *b[:3], first, len(weights)))
    tables = np.array(parts), np.array(offsets, np.int64), np.array(weights, np.int64)
    return Plan(cut, *tables, strip, planes, (strides[1], g.k * g.c * g.r * g.s))


def _reach(axis: _Axis) -> int:
    return max((distance for _, _, distance in axis.met), default=0)


def items(g: Shape, plan: Plan, threads: int) -> Array:
    """Return the items: image, index of a group (or of a position's channels), number of channels, rows of a strip.

    With channels last, items are ordered by strips.
    """
    unit = plan.cut.unit
    many = channels(g, unit)
    groups = range(ceil(many / unit))
    strips = split(int(plan.parts[:, 2].max()), plan.strip, g.n * len(groups), threads)
    pairs = product(strips, groups) if g.channels_last else ((s, i) for i, s in product(groups, strips))
    listed = [(group, min(unit, many - group * unit), *strip) for strip, group in pairs]
    return np.array([(n, *each) for n in range(g.n) for each in listed])
