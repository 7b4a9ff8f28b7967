"""How grouped convolution, depthwise among it, is cut into planes and strips of rows; pure arithmetic on shapes.

A plane is a channel of an image. With channels last, where groups are small, it is a few vectors of channels, in which
the channel of a group that it is for stands for the whole group. Small planes of nchw are turned so, too.
A strip of each plane of a group lies in a buffer with zeros around it, a stride's elements taken apart: its phases,
each of which is `depth` rows of `pitch` places. So every tap meets all outputs of a strip in one run of places, from an
offset of its own on.

| | source | target |
| --- | --- | --- |
| fprop | x, in stride_h x stride_w phases | y, in one phase |
| dgrad | y, in one phase | x, in phases that meet the same taps |
| wgrad | x as of fprop; y lies in places like the sums of fprop | w |
"""

from itertools import product
from math import ceil
from typing import NamedTuple

import numpy as np

from kernelmark import Array
from kernelmark.kernels._host import split
from kernelmark.kernels.conv._shape import Shape
from kernelmark.kernels.conv.direct._phases import phases

VECTORS = 7  # of channels that are read at a time, at most
EXPANDED = (1, 2, 4, 8, 16)  # channels of a group whose vectors `_vectors.py` expands
#: Pixels of a plane that is turned, at most: of the smaller and of the larger of the source's and the target's.
TURNED = 200, 1000


class Side(NamedTuple):
    """Images: their rows and columns, and the strides of image, plane, row and column."""

    height: int
    width: int
    image: int
    plane: int
    row: int
    column: int


class Cut(NamedTuple):
    """The buffer of a strip: phases down and across, zeros before the source, rows and places of a phase.

    unit: elements of a place: one, or a few vectors.
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
        """The number of elements in the buffer."""
        return self.down * self.across * self.depth * self.pitch * self.unit


class Plan(NamedTuple):
    """The arguments of the loops.

    parts: of the target, the first row, the step and the number of rows, the same of columns, and where its taps of all
    the group's planes begin and end in `offsets` (where they meet the first output in the buffer) and in `weights`
    (where they lie in w). strip: rows of a part at a time. planes: of a group, of the source and of the target.
    strides: in w, from a plane of the target to the next and from a group to the next.
    """

    cut: Cut
    parts: Array
    offsets: Array
    weights: Array
    strip: int
    planes: tuple[int, int]
    strides: tuple[int, int]


class _Axis(NamedTuple):
    """A phase of the target along one axis: first, step, length, and for each tap its number, phase and distance."""

    first: int
    step: int
    length: int
    met: list[tuple[int, int, int]]


#: The target's phases along an axis, how many the source has, and the zeros before it.
_Sides = tuple[list[_Axis], int, int]


def unit_of(g: Shape, lanes: int, threads: int) -> int:
    """Return the number of elements of a place: several with channels last and equal groups in whole vectors, else one.

    They are an odd number of vectors, so that neighbouring places do not compete for the same cache lines. threads: as
    many as share nothing but the channels.
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
    """Return whether planes are transposed: small ones of depthwise convolution, two vectors or more a thread."""
    smaller, larger = sorted((g.h * g.w, g.p * g.q))
    is_small = smaller <= TURNED[0] and larger <= TURNED[1]
    return is_small and not g.channels_last and g.c == g.k == 1 and g.groups >= 2 * lanes * threads


def channels(g: Shape, unit: int) -> int:
    """Return what places divide: all channels, or groups if a place has one element."""
    return g.groups * (g.c if unit > 1 else 1)


def turned_side(side: Side, unit: int) -> Side:
    """Return transposed planes, `unit` of them."""
    return Side(side.height, side.width, 0, 0, side.width * unit, unit)


def x_side(g: Shape, unit: int) -> Side:
    """The images x."""
    return Side(g.h, g.w, g.x_n, unit * g.x_c, g.x_h, g.x_w)


def y_side(g: Shape, unit: int) -> Side:
    """The images y."""
    return Side(g.p, g.q, g.y_n, unit * g.y_k, g.q * g.y_pixel, g.y_pixel)


def forward(g: Shape, unit: int, held: int | None) -> Plan:
    """Return the plan of fprop and of wgrad. held: most elements of a strip, unless a row has more; None: all rows."""
    down = _Axis(0, 1, g.p, [(t, *_apart(t * g.dilation_h, g.stride_h)) for t in range(g.r)])
    across = _Axis(0, 1, g.q, [(t, *_apart(t * g.dilation_w, g.stride_w)) for t in range(g.s)])
    sides, targets = (([down], g.stride_h, g.top), ([across], g.stride_w, g.left)), g.k if unit == 1 else 1
    return _plan(g, unit, held, sides, (g.c, targets), (g.w_c, g.c * g.r * g.s))


def image_gradient(g: Shape, unit: int, held: int | None) -> Plan:
    """The plan of dgrad."""
    down, top = _back(g.h, g.r, g.top, g.stride_h, g.dilation_h)
    across, left = _back(g.w, g.s, g.left, g.stride_w, g.dilation_w)
    return _plan(
        g, unit, held, ((down, 1, top), (across, 1, left)), (g.k, g.c if unit == 1 else 1), (g.c * g.r * g.s, g.w_c)
    )


def _apart(distance: int, stride: int) -> tuple[int, int]:
    return distance % stride, distance // stride


def _back(size: int, taps: int, pad: int, stride: int, dilation: int) -> tuple[list[_Axis], int]:
    """The phases of an axis of x, and the zeros before y that they meet."""
    found = phases(size, taps, pad, stride, dilation)
    zeros = max(0, -min((int(at) for phase in found for at in phase.outputs), default=0))
    return [
        _Axis(
            phase.first,
            stride,
            phase.length,
            [(int(t), 0, int(at) + zeros) for t, at in zip(phase.taps, phase.outputs, strict=True)],
        )
        for phase in found
    ], zeros


def _plan(
    g: Shape,
    unit: int,
    held: int | None,
    sides: tuple[_Sides, _Sides],
    planes: tuple[int, int],
    strides: tuple[int, int],
) -> Plan:
    """planes, strides: of the source and of the target, their number in a group and the stride between them in w."""
    (down, apart_h, top), (across, apart_w, left) = sides
    pitch, reach = max(a.length + _reach(a) for a in across), max(_reach(a) for a in down)
    length = max(a.length for a in down)
    most = max(1, held // (planes[0] * apart_h * apart_w * pitch * unit) - reach) if held else length
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
    """Return the items: image, group or place of channels, number of channels, rows of a strip.

    With channels last, by strips.
    """
    unit = plan.cut.unit
    many = channels(g, unit)
    groups = range(ceil(many / unit))
    strips = split(int(plan.parts[:, 2].max()), plan.strip, g.n * len(groups), threads)
    pairs = product(strips, groups) if g.channels_last else ((s, i) for i, s in product(groups, strips))
    listed = [(group, min(unit, many - group * unit), *strip) for strip, group in pairs]
    return np.array([(n, *each) for n in range(g.n) for each in listed])
