"""Moves of strips in grouped convolution: from the source to a zero-padded buffer, and from sums to the target.

`_planes.py` describes the arguments that all functions share.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from kernelmark.kernels._numba import clear, inlined, part
from kernelmark.kernels._tile import LANES
from kernelmark.kernels.conv.direct._vectors import (
    expand_2,
    expand_4,
    expand_8,
    expand_16,
    halve,
    halve_4,
    halve_8,
    move,
    move_4,
    move_8,
)
from kernelmark.kernels.transpose._blocks import square


@inlined
def _copy(to, at, source, begin, count):
    """Copy contiguous elements; the last vector overlaps the one before."""
    if count >= LANES:
        for i in range(0, count - LANES, LANES):
            move(to, at + i, source, begin + i)
        move(to, at + count - LANES, source, begin + count - LANES)
    elif LANES > 8 and count >= 8:
        move_8(to, at, source, begin)
        move_8(to, at + count - 8, source, begin + count - 8)
    elif LANES > 4 and count >= 4:
        move_4(to, at, source, begin)
        move_4(to, at + count - 4, source, begin + count - 4)
    else:
        for i in range(count):  # three elements at most; without a loop, all sums of a caller took 1.7 times as long
            to[at + i] = source[begin + i]


@inlined
def _pick(to, at, source, begin, step, count):
    """Copy elements that are `step` apart."""
    if step == 1:
        _copy(to, at, source, begin, count)
    elif step == 2 and count >= LANES:
        for i in range(0, count - LANES, LANES):
            halve(to, at + i, source, begin + 2 * i)
        halve(to, at + count - LANES, source, begin + 2 * (count - LANES))
    elif step == 2 and LANES > 8 and count >= 8:
        halve_8(to, at, source, begin)
        halve_8(to, at + count - 8, source, begin + 2 * (count - 8))
    elif step == 2 and LANES > 4 and count >= 4:
        halve_4(to, at, source, begin)
        halve_4(to, at + count - 4, source, begin + 2 * (count - 4))
    else:
        for i in range(count):
            to[at + i] = source[begin + i * step]


@part
def load(b, size, members, x, side, cut, at, lanes, first):
    """Copy the rows of x that a strip needs to the zero-filled buffer b; the strip begins at the target's row `first`.

    size: the elements of a plane in b. members: how many planes to fill at once (the channels of a group, or 1).
    """
    for phase in range(cut.down * cut.across):
        h_phase, w_phase = phase // cut.across, phase % cut.across
        low = min(cut.pitch, max(0, -((w_phase - cut.left) // cut.across)))
        count = min(cut.pitch, max(low, -((w_phase - cut.left - side.width) // cut.across))) - low
        begin, step = at + (low * cut.across + w_phase - cut.left) * side.column, cut.across * side.column
        for row in range(cut.depth):
            h = (first + row) * cut.down + h_phase - cut.top
            line = ((phase * cut.depth + row) * cut.pitch + low) * cut.unit
            if h < 0 or h >= side.height:
                for member in range(members):
                    clear(b, line + member * size, count * cut.unit)
            elif cut.unit == 1:
                _pick(b, line, x, begin + h * side.row, step, count)
            elif members == 1:
                for j in range(count):
                    _copy(b, line + j * cut.unit, x, begin + h * side.row + j * step, lanes)
            else:
                for j in range(count):
                    _expand(b, line + j * cut.unit, size, members, x, begin + h * side.row + j * step, lanes)


@part
def load_group(b, size, planes, x, side, cut, image, group, lanes, first):
    """Fill the buffers of a group's planes: all at once if a position has several channels, otherwise one by one."""
    count, members = (1, planes) if cut.unit > 1 else (planes, 1)
    for plane in range(count):
        at = image * side.image + (group * count + plane) * side.plane
        load(b[plane * size :], size, members, x, side, cut, at, lanes, first)


@part
def _expand(b, at, size, members, x, begin, lanes):
    """For each channel of a group, write to its plane vectors that repeat the channel in all lanes of the group."""
    for v in range(0, lanes, LANES):
        if members == 2:
            expand_2(b, at + v, size, x, begin + v)
        elif members == 4:
            expand_4(b, at + v, size, x, begin + v)
        elif members == 8:
            expand_8(b, at + v, size, x, begin + v)
        else:
            expand_16(b, at + v, size, x, begin + v)


@part
def store(out, side, sums, cut, at, lanes, rows, columns):
    """Store a strip's sums in the target image. rows, columns: the first index, the step and the number of each."""
    step, count = columns[1] * side.column, columns[2]
    for i in range(rows[2]):
        line, to = i * cut.pitch * cut.unit, at + (rows[0] + i * rows[1]) * side.row + columns[0] * side.column
        if cut.unit > 1:
            for j in range(count):
                _copy(out, to + j * step, sums, line + j * cut.unit, lanes)
        elif step == 1:
            _copy(out, to, sums, line, count)
        else:
            for j in range(count):
                out[to + j * step] = sums[line + j]


@part
def turn(to, source, side, image, group, lanes):
    """Transpose a vector of planes, stored as `side` describes, so that the elements of each pixel are contiguous."""
    pixels, at = side.height * side.width, image * side.image + group * side.plane
    _transpose(to, (0, LANES, 1), source, (at, 1, pixels), pixels, lanes)


@part
def turn_back(out, planes, side, image, group, lanes):
    """Transpose a vector of planes back from contiguous pixels to the storage that `side` describes."""
    pixels, at = side.height * side.width, image * side.image + group * side.plane
    _transpose(out, (at, 1, pixels), planes, (0, LANES, 1), pixels, lanes)


@part
def _transpose(to, target, source, origin, pixels, lanes):
    """Copy planes. target, origin: offset of the first pixel, strides of pixels and of planes; one stride is 1."""
    (d, d_pixel, d_plane), (s, s_pixel, s_plane) = target, origin
    whole = pixels if lanes == LANES and pixels >= LANES else 0
    for i in range(0, whole, LANES):
        first = min(i, pixels - LANES)
        square(to, d + first * d_pixel, d_pixel * d_plane, source, s + first * s_pixel, s_pixel * s_plane)
    for i in range(whole, pixels):
        for lane in range(lanes):
            to[d + i * d_pixel + lane * d_plane] = source[s + i * s_pixel + lane * s_plane]
